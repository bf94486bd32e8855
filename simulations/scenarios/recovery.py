"""Recovery: crashes and kills at any step, and what the next incarnation finds."""

from __future__ import annotations

import random

from ..faults import Configuration, draw
from ..marked_store import TOLD_MARKS
from .mixture import Mixture


def _draw(stream: random.Random) -> Configuration:
    return draw(
        stream,
        crashes=stream.randint(1, 2),
        restarts=stream.choice((0, 0, 1)),
        steps=stream.randint(2, 5),
        mounts=0,
        observers=0,
        watchers=0,
        lose_index=stream.choice((0.0, 0.0, 0.3)),
    )


RECOVERY = Mixture(
    "recovery",
    _draw,
    frozenset(
        {
            "a stale cursor",
            "a further page",
            "a request is cancelled",
            "a write in the middle of a call",
            "a crash",
            "a crash with requests under way",
            "a service closes with requests under way",
            "a close",
            "a lost index",
            "a damaged index",
        }
    )
    | TOLD_MARKS,
)
