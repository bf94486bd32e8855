"""The five tools, in the order in which a host registers them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

from attrs import evolve

from ..messages.config import ToolsConfig
from . import arguments as schemas
from . import rendering, structure
from .boundary import sanitised
from .cards import event_card, search_card, trace_card
from .definition import Arguments, Caller, Tool, ToolError, ToolResult
from .operations import Operations

if TYPE_CHECKING:
    from ..actors.recall import Recall
    from ..actors.service import SessionQuery
    from ..messages.json import Json

Answer = TypeVar("Answer")

_FOR_WORKSPACES: Final = {
    "session_search": (
        "Find sessions of this workspace by words that were said or done in them. Shows each"
        " session once, with its strongest match. Several filters must all be met; the values of"
        " one list are alternatives."
    ),
    "session_event_search": (
        "Find events within one session by words in them, also where they were compacted away."
    ),
}
"""Descriptions that speak of no current session."""


def session_tools(query: SessionQuery, config: ToolsConfig | None = None) -> tuple[Tool, ...]:
    """``session_search``, ``session_event_search``, ``session_trace``, ``session_event_trace`` and
    ``session_event_read`` over one service."""
    return tools_over(query.recall(), config or ToolsConfig())


def workspace_tools(query: SessionQuery, config: ToolsConfig | None = None) -> tuple[Tool, ...]:
    """The same for callers without a session of their own, who have to name one."""
    return tuple(
        evolve(
            tool,
            parameters=schemas.with_session_required(tool.parameters),
            description=_FOR_WORKSPACES.get(tool.name, tool.description),
        )
        for tool in session_tools(query, config)
    )


def tools_over(recall: Recall, config: ToolsConfig) -> tuple[Tool, ...]:
    """The tools over the calls that they make."""
    does = Operations(recall, config)
    return (
        Tool(
            name="session_search",
            description=(
                "Find earlier sessions of this workspace by words that were said or done in them."
                " Shows each session once, with its strongest match; the current session is left"
                " out. Several filters must all be met; the values of one list are alternatives."
            ),
            parameters=schemas.SESSION_SEARCH,
            output=structure.FOUND_SESSIONS,
            timeout_ms=config.search_timeout_ms,
            card=search_card("Search sessions"),
            run=_run(does.search_sessions, rendering.found_sessions, structure.found_sessions),
        ),
        Tool(
            name="session_event_search",
            description=(
                "Find events within one session by words in them. Without session_id this is the"
                " current session, searched up to the step in progress, also where it was compacted"
                " out of your context."
            ),
            parameters=schemas.SESSION_EVENT_SEARCH,
            output=structure.FOUND_EVENTS,
            timeout_ms=config.search_timeout_ms,
            card=search_card("Search session events"),
            run=_run(does.search_events, rendering.found_events, structure.found_events),
        ),
        Tool(
            name="session_trace",
            description=(
                "Show the family of a session: the sessions it was forked or delegated from, and"
                " all that came from it, with their titles."
            ),
            parameters=schemas.SESSION_TRACE,
            output=structure.FAMILY,
            parallel=_always,
            card=trace_card,
            run=_run(does.trace_session, rendering.family, structure.family),
        ),
        Tool(
            name="session_event_trace",
            description=(
                "Show how one event relates to others of its session: what replaced it, what it"
                " replaced, what it cites and what cites it."
            ),
            parameters=schemas.SESSION_EVENT_TRACE,
            output=structure.RELATIONS,
            parallel=_always,
            card=event_card("Trace"),
            run=_run(does.trace_event, rendering.relations, structure.relations),
        ),
        Tool(
            name="session_event_read",
            description=(
                "Read one event of a session as its complete JSON, and on request the texts of the"
                " events before and after it."
            ),
            parameters=schemas.SESSION_EVENT_READ,
            output=structure.READ_EVENT,
            parallel=_always,
            card=event_card("Read"),
            run=_run(does.read_event, rendering.read_event, structure.read_event),
        ),
    )


def _always(_arguments: Arguments) -> bool:
    return True


def _run(
    operation: Callable[[Caller | None, Arguments], Awaitable[Answer]],
    text: Callable[[Answer], str],
    structured: Callable[[Answer], dict[str, Json]],
) -> Callable[[Caller | None, Arguments], Awaitable[ToolResult]]:
    """One call from arguments to result; a failure of our own or of a hook is told as any other."""

    async def run(caller: Caller | None, arguments: Arguments) -> ToolResult:
        try:
            answer = await operation(caller, arguments)
            return ToolResult(text(answer), structured(answer))
        except ToolError:
            raise
        except Exception as error:
            told = sanitised("tool", error)
        raise told

    return run
