"""A probe between the system and its runtime: what is running, for whom, and how much at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final, TypeVar, TypeVarTuple

import trio
from attrs import define, field
from trio.lowlevel import current_task

from ..actors.runtime import Runtime, TwoParts

R = TypeVar("R")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

UPKEEP: Final = frozenset({"tidy", "_begin", "_end", "unwatch"})
"""What is done for nobody: the care of the index, and asking a store to tell of changes."""

FOLLOWING: Final = UPKEEP | {"sweep", "_news", "_stat"}
"""Likewise, where stores do tell: whether they told of everything is looked at, too."""


@define(eq=False)
class Probe:
    """A runtime that passes every call on to another one and watches it."""

    _runtime: Runtime
    _upkeep: frozenset[str] = UPKEEP
    running: Counter[tuple[str, str]] = field(factory=Counter, init=False)
    """Calls under way, by the kind of their task, which is its name without a number, and the
    name of their function."""
    most: dict[str, int] = field(factory=dict, init=False)
    """How many calls the tasks of one kind ever had under way at once."""
    late: int = field(default=0, init=False)
    """Calls that nobody waits for any more and that have not ended."""

    def now_ms(self) -> int:
        return self._runtime.now_ms()

    def new_id(self) -> str:
        return self._runtime.new_id()

    async def call(
        self,
        fn: Callable[[*Ts], R],
        *args: *Ts,
        interrupt: Callable[[], None] | None = None,
        limiter: trio.CapacityLimiter | None = None,
    ) -> R:
        with self._watching(fn):
            return await self._runtime.call(fn, *args, interrupt=interrupt, limiter=limiter)

    async def call_in_two(self, work: TwoParts[T, R]) -> R:
        with self._watching(work.second):
            return await self._runtime.call_in_two(work)

    @contextmanager
    def _watching(self, fn: Callable[..., object]) -> Iterator[None]:
        kind = current_task().name.rstrip(" 0123456789")
        self.running[kind, _name_of(fn)] += 1
        count = sum(number for (each, _), number in self.running.items() if each == kind)
        self.most[kind] = max(count, self.most.get(kind, 0))
        try:
            yield
        finally:
            self.running[kind, _name_of(fn)] -= 1
            self.running += Counter()

    async def call_or_abandon(
        self, fn: Callable[[*Ts], R], *args: *Ts, afterwards: Callable[[], None]
    ) -> R:
        def ended() -> None:
            self.late -= 1
            afterwards()

        try:
            return await self._runtime.call_or_abandon(fn, *args, afterwards=ended)
        except trio.Cancelled:
            self.late += 1  # ``ended`` is called for it, or was
            raise

    def working(self, *kinds: str) -> list[str]:
        """What tasks of these kinds have under way, upkeep left out."""
        return sorted(
            f"{name} of {kind}"
            for kind, name in self.running
            if kind in kinds and name not in self._upkeep
        )


def _name_of(fn: Callable[..., object]) -> str:
    while isinstance(fn, partial):
        fn = fn.func
    return getattr(fn, "__name__", type(fn).__name__)
