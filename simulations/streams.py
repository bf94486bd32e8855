"""Named random streams: each concern of a run draws from its own, all derived from one seed.

Turning one fault off leaves what the other streams yield as it was, so that a failing seed can be
made smaller by hand and stays recognisable.
"""

from __future__ import annotations

import random

from attrs import define, field


@define(eq=False)
class Streams:
    """The random numbers of one run."""

    seed: int
    _streams: dict[str, random.Random] = field(factory=dict, init=False)

    def stream(self, name: str) -> random.Random:
        """The stream of this name; the same object at every call."""
        if name not in self._streams:
            # A text is hashed with SHA-512, alike in every process.
            self._streams[name] = random.Random(f"{self.seed}/{name}")
        return self._streams[name]


def draw_id(stream: random.Random) -> str:
    """A session id whose order says nothing about when it was drawn."""
    return f"s-{stream.getrandbits(48):012x}"
