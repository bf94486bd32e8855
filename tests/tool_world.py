"""What the tests of the model tools share: a service whose calls are watched and disturbed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

from attrs import asdict, define, field, frozen

from session_query.actors.recall import Recall
from session_query.actors.service import SessionQuery
from session_query.messages.config import ToolsConfig
from session_query.tools.definition import Caller, Tool, ToolResult
from session_query.tools.session_tools import tools_over

R = TypeVar("R")

OPERATIONS = {
    "filter_sessions": "filterSessions",
    "search_sessions": "searchSessions",
    "search_events": "searchEvents",
    "trace_session": "traceSession",
    "trace_event": "traceEvent",
    "read_event": "readEvent",
    "read_titles": "readTitleSnapshots",
}


@frozen
class Call:
    """One call that a tool made."""

    method: str
    arguments: tuple[Any, ...]


Disturbance = Callable[[str, int, Callable[[], Awaitable[Any]]], Awaitable[Any]]
"""Given the method, how often it has been called, and the call itself."""


async def undisturbed(_method: str, _number: int, call: Callable[[], Awaitable[Any]]) -> Any:
    return await call()


@define(eq=False)
class WatchedRecall:
    """The calls of a ``Recall``, written down; ``disturb`` stands around each of them."""

    recall: Recall
    disturb: Disturbance = undisturbed
    calls: list[Call] = field(factory=list)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.recall, name)
        if name not in OPERATIONS:
            return found

        async def watched(*arguments: Any) -> Any:
            self.calls.append(Call(name, arguments))
            number = sum(call.method == name for call in self.calls)
            return await self.disturb(name, number, lambda: found(*arguments))

        return watched


def watched(query: SessionQuery, disturb: Disturbance = undisturbed) -> WatchedRecall:
    return WatchedRecall(query.recall(), disturb)


def tool_named(recall: Any, name: str, **config: Any) -> Tool:
    """One tool over a watched service."""
    (tool,) = [tool for tool in tools_over(recall, ToolsConfig(**config)) if tool.name == name]
    return tool


async def run(
    query: SessionQuery, name: str, caller: Caller | None, /, **arguments: Any
) -> ToolResult:
    """One call without a disturbance."""
    return await tool_named(query.recall(), name).run(caller, arguments)


def clauses(filters: Iterable[Any]) -> list[dict[str, Any]]:
    """Filters in their JSON form."""
    shown = []
    for clause in filters:
        names = {"start": "from", "end": "to"}
        parts = {names.get(k, k): v for k, v in asdict(clause).items()}
        parts = {k: [*v] if isinstance(v, tuple) else v for k, v in parts.items() if v is not None}
        shown.append({"kind": clause.kind, **parts})
    return shown
