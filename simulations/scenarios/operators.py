"""Operators: stores are swapped and services closed while everybody is at work."""

from __future__ import annotations

import random

from ..faults import Configuration, draw
from ..marked_store import TOLD_MARKS
from .mixture import Mixture


def _draw(stream: random.Random) -> Configuration:
    return draw(
        stream,
        mounts=stream.randint(1, 4),
        restarts=stream.choice((0, 0, 1)),
        steps=stream.randint(2, 6),
        lose_index=stream.choice((0.0, 0.0, 0.3)),
    )


OPERATORS = Mixture(
    "operators",
    _draw,
    frozenset(
        {
            "a stale cursor",
            "a further page",
            "a request is cancelled",
            "news of a generation",
            "a write in the middle of a call",
            "another store",
            "a service closes with requests under way",
            "a close",
            "a lost index",
            "a damaged index",
        }
    )
    | TOLD_MARKS,
)
