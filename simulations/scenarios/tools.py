"""Tools: models of several workspaces look things up while sessions move between those."""

from __future__ import annotations

import random

from ..faults import Configuration, draw
from ..marked_store import TOLD_MARKS
from ..tool_oracle import OWN_TOOLS
from .mixture import Mixture


def _draw(stream: random.Random) -> Configuration:
    return draw(
        stream,
        searchers=0,
        readers=0,
        observers=0,
        watchers=0,
        writers=stream.randint(0, 2),
        steps=stream.randint(3, 7),
        callers=stream.randint(2, 3),
        sessions=stream.randint(2, 5),
        outsiders=stream.randint(1, 3),
        mounts=stream.choice((0, 0, 2)),
        restarts=stream.choice((0, 0, 0, 1)),
        shown=stream.choice((1, 2, 100, 100)),
        page=stream.choice((1, 2, 100, 100)),
        moves=stream.choice((0.2, 0.5, 0.8)),
        families=stream.randint(1, 999_999),
    )


TOOLS = Mixture(
    "tools",
    _draw,
    frozenset(
        {
            "a request is cancelled",
            "a write in the middle of a call",
            "another store",
            "a session moves during a call",
            "a session of nowhere or elsewhere is refused",
            "some of the workspace is told to be left out",
            "more is found than is shown",
            "a close",
            "a service closes with requests under way",
        }
        | {f"{tool} is {how}" for tool in OWN_TOOLS for how in ("answered", "cancelled", "refused")}
    )
    | TOLD_MARKS,
)
