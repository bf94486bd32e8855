"""Holding a lock, without a schedule point where nobody else has it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
from trio.lowlevel import checkpoint_if_cancelled


@asynccontextmanager
async def holding(lock: trio.Lock | trio.CapacityLimiter) -> AsyncIterator[None]:
    """Hold a lock for the length of the block, in which something is awaited for long enough.

    A free lock costs no round of the scheduler, of which a search would pay one for each.
    """
    await checkpoint_if_cancelled()
    try:
        lock.acquire_nowait()
    except trio.WouldBlock:
        await lock.acquire()
    try:
        yield
    finally:
        lock.release()
