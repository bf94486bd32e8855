"""A polite end: the signals that ask a process to end interrupt no task in the middle."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def ending_when_told() -> AsyncIterator[None]:
    """Cancel the block at ``SIGINT`` or ``SIGTERM``, so that all that is half done is cleared away.

    ``KeyboardInterrupt`` leaves it then, in a group.
    """
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as told:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_end, told)
            yield
            nursery.cancel_scope.cancel()


async def _end(told: AsyncIterator[int]) -> None:
    async for _signal in told:
        raise KeyboardInterrupt
