"""The canary: a scenario that is wrong on purpose in one seed of a hundred.

A batch that is long enough and reports none has lost the ability to notice failures.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final

import trio
from attrs import frozen

from ..verdict import Kind, NotLive, Violation
from ..world import World

PERIOD: Final = 100
"""One seed in so many fails."""

WAYS: Final = {
    "violation": Kind.CORRECTNESS,
    "not-live": Kind.LIVENESS,
    "deadlock": Kind.LIVENESS,
    "crash": Kind.INTERNAL,
}
"""How it may fail, and what that has to be taken for."""


@frozen
class CanaryConfiguration:
    """Whether and how this seed fails."""

    sick: bool
    way: str

    def __str__(self) -> str:
        return f"sick={self.sick} way={self.way!r}"


@frozen
class Canary:
    """Does nothing but wait, and fail where its configuration says so."""

    name: str = "canary"
    marks: frozenset[str] = frozenset({"sang", "fell silent"})

    def configure(self, stream: random.Random, overrides: Mapping[str, str]) -> CanaryConfiguration:
        """``sick=yes`` or ``sick=no``, and ``way`` with one of the four ways to fail."""
        sick, way = stream.randrange(PERIOD) == 0, stream.choice(list(WAYS))
        for name, value in overrides.items():
            if name == "sick" and value in ("yes", "no"):
                sick = value == "yes"
            elif name == "way" and value in WAYS:
                way = value
            else:
                raise ValueError(f"the canary knows sick=yes|no and way={'|'.join(WAYS)}")
        return CanaryConfiguration(sick, way)

    async def run(self, world: World, configuration: CanaryConfiguration) -> None:
        """Wait a little, then sing or fail."""
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(trio.sleep, world.stream("canary").random())
        if not configuration.sick:
            world.marks.hit("sang")
            return
        world.marks.hit("fell silent")
        match configuration.way:
            case "violation":
                raise Violation("the canary says something wrong, on purpose")
            case "not-live":
                raise NotLive("the canary does not wake up, on purpose")
            case "deadlock":
                await trio.sleep_forever()
            case _:
                raise RuntimeError("the canary falls off its perch, on purpose")


CANARY: Final = Canary()
