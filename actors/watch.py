"""A number that only grows, and those who wait for it: how news goes upwards."""

from __future__ import annotations

from attrs import define, field, frozen
from sortedcontainers import SortedDict
from trio.lowlevel import ParkingLot, checkpoint

from ..messages.errors import SessionError


class WatchClosed(SessionError):
    """The value that was waited for will not come any more."""


@frozen
class WatchStatistics:
    """What a watch holds at this moment."""

    value: int
    tasks_waiting: int
    targets: int
    """Different values that are waited for."""


@define(eq=False)
class Watch:
    """A value that only grows; whoever waits sees the newest one, never a backlog.

    ``publish`` is synchronous, never waits for anyone, and costs time only for the waiters whose
    target it reaches, however many others wait. A waiter who is slow misses the values in between,
    which is the point: news is a reason to look, not a thing to keep.

    No wake-up is lost: there is no checkpoint between the test of the value and the wait.
    """

    value: int = 0
    closed: bool = field(default=False, init=False)
    _lots: SortedDict[int, ParkingLot] = field(factory=SortedDict, init=False, repr=False)

    def publish(self, value: int) -> None:
        """Set the value and wake everyone whose target it reaches.

        Raises:
            ValueError: ``value`` is below the present one.
        """
        if value < self.value:
            raise ValueError(f"a watch cannot go back from {self.value} to {value}")
        self.value = value
        while self._lots and self._lots.peekitem(0)[0] <= value:
            self._lots.popitem(0)[1].unpark_all()

    def advance(self) -> None:
        """Publish the next value."""
        self.publish(self.value + 1)

    def close(self) -> None:
        """Tell everyone who waits, now or later, that nobody will publish for them any more."""
        self.closed = True
        while self._lots:
            self._lots.popitem(0)[1].unpark_all()

    async def reached(self, target: int) -> int:
        """Wait until the value is ``target`` or more, and return it. Always a checkpoint.

        Raises:
            WatchClosed: the watch was closed before.
        """
        await checkpoint()
        if self.value < target and not self.closed:
            await self._park(target)
        if self.value < target:
            raise WatchClosed(f"closed at {self.value}, before {target} was reached")
        return self.value

    async def changed(self, after: int) -> int:
        """Wait until the value is above ``after`` and return the newest one; errors as before."""
        return await self.reached(after + 1)

    async def _park(self, target: int) -> None:
        lot = self._lots.get(target)
        if lot is None:
            lot = self._lots[target] = ParkingLot()
        try:
            await lot.park()
        finally:
            # ``publish`` has taken the lot away already; the last one to give up does it here.
            if not lot and self._lots.get(target) is lot:
                del self._lots[target]

    def statistics(self) -> WatchStatistics:
        """A snapshot for logs, tests and curious people."""
        waiting = sum(len(lot) for lot in self._lots.values())
        return WatchStatistics(self.value, waiting, len(self._lots))
