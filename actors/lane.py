"""The writer's lane: one user of the index's writing connection at a time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar, TypeVarTuple

import trio
from attrs import define, field

from ..storage.index import SearchIndex
from ..storage.index_view import Reader, View
from .holding import holding, taken
from .runtime import Runtime, TwoParts

R = TypeVar("R")
Ts = TypeVarTuple("Ts")


@define(eq=False)
class WriterLane:
    """Calls on the writer's connection, one after the other.

    A reader without a snapshot of its own borrows the connection: the lane is then held on its
    behalf from the opening of its view until ``give_back``.
    """

    index: SearchIndex
    _runtime: Runtime
    _limiter: trio.CapacityLimiter = field(factory=lambda: trio.CapacityLimiter(1), init=False)
    _taken_by: Reader | None = field(default=None, init=False)

    async def call(self, fn: Callable[[*Ts], R], *args: *Ts) -> R:
        """Run ``fn`` on a worker thread with the lane held; a cancellation interrupts it."""
        async with holding(self._limiter):
            return await self._start(fn, *args)

    async def call_whole(self, fn: Callable[[*Ts], R], *args: *Ts) -> R:
        """As ``call``, but a cancellation lets ``fn`` end, which must not stop half way."""
        async with holding(self._limiter):
            self.index.arm()
            return await self._runtime.call(fn, *args)

    async def take(self, reader: Reader) -> None:
        """Hold the lane on behalf of ``reader`` until ``show`` or ``give_back`` lets go of it."""
        limiter = self._limiter
        await taken(
            partial(limiter.acquire_on_behalf_of_nowait, reader),
            partial(limiter.acquire_on_behalf_of, reader),
        )
        self._taken_by = reader

    async def show(
        self,
        reader: Reader,
        open_view: Callable[[], View],
        read: Callable[[View], R],
        opened: Callable[[], None],
    ) -> R:
        """Open a view with the lane that ``reader`` holds, and read it, in one visit of a thread.

        ``opened`` is called once the view has been opened, or has failed to. From then on nobody
        waits for the lane, unless the reader has no connection of its own.
        """

        def between() -> None:
            opened()
            if reader.owned:
                self._let_go(reader)

        self.index.arm()
        interrupts = self.index.interrupt, reader.interrupt
        return await self._runtime.call_in_two(TwoParts(open_view, read, between, interrupts))

    async def close(self) -> None:
        """Close the index as soon as nobody uses its connection, and keep the lane for good."""
        await self._limiter.acquire_on_behalf_of(self)
        await self._runtime.call(self.index.close)

    def give_back(self, reader: Reader) -> None:
        """Release what ``reader`` holds: its snapshot, and the lane where it has that still."""
        reader.release()
        self._let_go(reader)

    def _let_go(self, reader: Reader) -> None:
        if self._taken_by is reader:
            self._taken_by = None
            self._limiter.release_on_behalf_of(reader)

    async def _start(self, fn: Callable[[*Ts], R], *args: *Ts) -> R:
        self.index.arm()
        return await self._runtime.call(fn, *args, interrupt=self.index.interrupt)

    @property
    def busy(self) -> bool:
        """Whether somebody holds the lane."""
        return self._limiter.borrowed_tokens > 0
