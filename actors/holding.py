"""Holding a lock, without a schedule point where nobody else has it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio
from trio.lowlevel import checkpoint_if_cancelled


@asynccontextmanager
async def holding(lock: trio.Lock | trio.CapacityLimiter) -> AsyncIterator[None]:
    """Hold a lock for the length of the block, in which something is awaited for long enough.

    A free lock costs no round of the scheduler, of which a search would pay one for each.
    """
    await taken(lock.acquire_nowait, lock.acquire)
    try:
        yield
    finally:
        lock.release()


async def taken(at_once: Callable[[], None], waiting: Callable[[], Awaitable[None]]) -> None:
    """Take a lock at once where that can be done, as in ``holding``, and otherwise wait for it."""
    await checkpoint_if_cancelled()
    try:
        at_once()
    except trio.WouldBlock:
        await waiting()
