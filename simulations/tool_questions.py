"""Questions of models: calls of the five tools, as a caller of one workspace makes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from attrs import field, frozen

from ..messages.json import Json, encode
from ..messages.records import Availability, Surface
from .logs import PHRASES

NOBODY: Final = "nowhere"
"""An id that no session ever has, though some name it as their parent."""


@frozen
class ToolQuestion:
    """One call of one tool."""

    tool: str
    arguments: dict[str, Json] = field(eq=False)
    own: str | None
    """The session of the caller, if it has one."""
    cwd: str | None
    step: int | None
    """The seq of the last ``step/start`` of that session."""

    @property
    def target(self) -> str | None:
        """The one session that is asked about; ``None`` for a search across sessions."""
        if self.tool == "session_search":
            return None
        target = self.arguments.get("session_id", self.own)
        assert isinstance(target, str)
        return target

    def __str__(self) -> str:
        """One line for traces."""
        return f"{self.tool} {encode(self.arguments).decode()} by {self.own} in {self.cwd}"


def draw_arguments(rng: Random, tool: str, ids: Sequence[str], *, has_own: bool) -> dict[str, Json]:
    """Arguments of a call about one or some of ``ids``; who has no session of its own names one."""
    if tool == "session_search":
        return _across(rng, ids)
    arguments: dict[str, Json] = {}
    if not has_own or rng.random() < 0.8:
        arguments["session_id"] = rng.choice((*ids, NOBODY))
    if tool == "session_event_search":
        arguments["query"] = rng.choice(PHRASES)
        _add_filters(rng, arguments, "", "surfaces")
    elif tool != "session_trace":
        arguments["seq"] = rng.choice((0, 0, 1, 2, 4, 9))
    if tool == "session_event_read":
        arguments |= {"before": rng.choice((0, 2)), "after": rng.choice((0, 1))}
    return arguments


def _across(rng: Random, ids: Sequence[str]) -> dict[str, Json]:
    arguments: dict[str, Json] = {"query": rng.choice(PHRASES)}
    named: tuple[tuple[str, float, Callable[[], Json]], ...] = (
        ("session_ids", 0.2, lambda: list(rng.choices((*ids, NOBODY), k=2))),
        ("parent_session_ids", 0.25, lambda: list(rng.choices((*ids, NOBODY), k=2))),
        ("include_root_sessions", 0.15, lambda: True),
        ("availability", 0.15, lambda: [rng.choice(tuple(Availability)).value]),
    )
    arguments |= {name: draw() for name, chance, draw in named if rng.random() < chance}
    _add_filters(rng, arguments, "event_", "event_surfaces")
    return arguments


def _add_filters(rng: Random, arguments: dict[str, Json], prefix: str, surfaces: str) -> None:
    if rng.random() < 0.15:
        arguments[f"{prefix}seq_from"] = rng.choice((0, 1, 3))
    if rng.random() < 0.15:
        arguments[f"{prefix}seq_to"] = rng.choice((3, 5))
    if rng.random() < 0.15:
        arguments["event_types"] = ["user/message", rng.choice(("tool/call", "tool/result"))]
    if rng.random() < 0.15:
        arguments[surfaces] = [rng.choice(tuple(Surface)).value]
