"""Reads: exact reads, traces, listings and leases beside writers and outsiders."""

from __future__ import annotations

import random

from ..faults import Configuration, draw
from ..marked_store import TOLD_MARKS
from .mixture import Mixture


def _draw(stream: random.Random) -> Configuration:
    return draw(
        stream,
        searchers=0,
        readers=stream.randint(1, 4),
        observers=stream.randint(0, 2),
        watchers=0,
        mounts=stream.choice((0, 0, 2)),
    )


READS = Mixture(
    "reads",
    _draw,
    frozenset({"a request is cancelled", "a write in the middle of a call", "another store"})
    | TOLD_MARKS,
)
