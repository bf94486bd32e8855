"""How long the blocking calls of a run take, drawn from a stream of their own."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

import trio
from attrs import define, frozen

from .runtime import Wait, lasting


@frozen
class Latency:
    """Virtual seconds that a blocking call takes, and what an interrupt finds."""

    longest: float = 0.01
    """Each half of a call, before and after its effect, takes up to this; mostly much less."""
    hang: float = 0.0
    """The chance that a call takes ``hang_seconds`` more before its effect."""
    hang_seconds: float = 2.0
    lands: float = 0.5
    """The chance that an interrupt comes before the effect."""


CALM: Final = Latency(longest=0.001, lands=1.0)
"""For the liveness phase."""


@define(eq=False)
class Pacing:
    """The paces of a ``SimulatedRuntime`` in a seeded run."""

    _stream: random.Random
    _spent: Callable[[], float]
    """Virtual seconds that the effect of a call took by itself, asked once after each."""
    latency: Latency = Latency()
    dead: bool = False
    """After a crash nothing is waited for."""

    def before(self, fn: Callable[..., object]) -> Wait:
        """From the beginning of a call to its effect."""
        hangs, seconds = self._stream.random() < self.latency.hang, self._half()
        return self._lasting(seconds + self.latency.hang_seconds * hangs, fn)

    def after(self, fn: Callable[..., object]) -> Wait:
        """From the effect of a call until its caller hears of it."""
        return self._lasting(self._half() + self._spent(), fn)

    def lands(self) -> bool:
        """Whether an interrupt comes in time."""
        return self._stream.random() < self.latency.lands

    def _half(self) -> float:
        share: float = self._stream.random() ** 3
        # Whole microseconds, so that sums of times print alike.
        return round(self.latency.longest * share, 6)

    def _lasting(self, seconds: float, fn: Callable[..., object]) -> Wait:
        wait = lasting(0 if self.dead else seconds)(fn)

        async def unless_dead() -> None:
            if self.dead:
                await trio.lowlevel.checkpoint()
            else:
                await wait()

        return unless_dead
