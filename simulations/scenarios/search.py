"""Search: slow searchers beside writers and outsiders, some of them cancelled."""

from __future__ import annotations

import random

from ..faults import Configuration, draw
from ..marked_store import TOLD_MARKS
from .mixture import Mixture


def _draw(stream: random.Random) -> Configuration:
    return draw(stream, readers=0, observers=0, mounts=0)


SEARCH = Mixture(
    "search",
    _draw,
    frozenset(
        {
            "a stale cursor",
            "a further page",
            "a request is cancelled",
            "news of a generation",
            "a write in the middle of a call",
        }
    )
    | TOLD_MARKS,
)
