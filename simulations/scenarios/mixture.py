"""A mixture of roles and faults: what the scenarios have in common."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from attrs import frozen

from ..faults import Configuration, override
from ..play import play
from ..world import World


@frozen
class Mixture:
    """A scenario that plays all roles of its configurations."""

    name: str
    draw: Callable[[random.Random], Configuration]
    marks: frozenset[str]

    def configure(self, stream: random.Random, overrides: Mapping[str, str]) -> Configuration:
        """Draw a configuration and set what is overridden.

        Raises:
            ValueError: an override that names no field, or whose value does not fit.
        """
        return override(self.draw(stream), overrides)

    async def run(self, world: World, configuration: Configuration) -> None:
        """Play it."""
        await play(world, configuration)
