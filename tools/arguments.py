"""What a model may ask: the schemas of the five tools, and arguments made into filters.

A fault is told with the name of the argument and with what it has to be; what is asked of the
service has been checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from attrs import frozen

from ..history.whitespace import collapse
from ..messages.errors import ErrorCode
from ..messages.filters import (
    AvailabilityIn,
    CreatedAt,
    EventFilter,
    Ids,
    SeqRange,
    SessionFilter,
    SurfaceIn,
    TimeRange,
    TypeIn,
)
from ..messages.json import MAX_SAFE_INTEGER, Json
from ..messages.records import Availability, Surface
from .definition import Arguments, ToolError
from .instants import Instant, parse_instant
from .quoting import quoted

_SHOWN: Final = 60
"""Code points of a refused value that an error repeats."""

# -- schemas ----------------------------------------------------------------------------------

_TIME: Final = "ISO 8601 with an offset, such as 2026-03-02T09:14:00Z or 2026-03-02T17:14:00+08:00"

QUERY: Final[dict[str, Json]] = {
    "type": "string",
    "description": (
        "Words to find, side by side and in this order. Case does not matter; there are no"
        " operators and no wildcards: every character is taken as it is. Fewer words find more."
    ),
}
SEQ: Final[dict[str, Json]] = {
    "type": "integer",
    "description": "Number of the event within its session, from 0 on, as shown in results.",
}


def _text(description: str) -> dict[str, Json]:
    return {"type": "string", "description": description}


def _whole_number(description: str) -> dict[str, Json]:
    return {"type": "integer", "description": description}


def _texts(description: str, *choices: str) -> dict[str, Json]:
    items: dict[str, Json] = {"type": "string"}
    if choices:
        items["enum"] = list(choices)
    return {"type": "array", "items": items, "description": description}


def _object(required: Iterable[str], /, **properties: dict[str, Json]) -> dict[str, Json]:
    return {"type": "object", "properties": dict(properties), "required": list(required)}


_OWN_SESSION: Final = _text("Id of the session. Leave it out for your own, the current session.")
_EVENT_TYPES: Final = _texts(
    "Only events of these types, such as user/message, assistant/message, tool/call, tool/result."
)
_SURFACES: Final = _texts(
    "Only events that stand here: current (still in the model's context), shadowed (replaced, for"
    " instance by a compaction), log-only (never in the context).",
    *Surface,
)

SESSION_SEARCH: Final = _object(
    ["query"],
    query=QUERY,
    session_ids=_texts("Only these sessions."),
    created_at_from=_text(f"Only sessions created at this time or later. {_TIME}."),
    created_at_to=_text(f"Only sessions created at this time or earlier. {_TIME}."),
    parent_session_ids=_texts("Only direct children of these sessions."),
    include_root_sessions={
        "type": "boolean",
        "description": (
            "Only sessions without a parent; together with parent_session_ids, those as well."
        ),
    },
    availability=_texts(
        "Only sessions that are running (live), or that are stored (persisted); many are both.",
        *Availability,
    ),
    event_seq_from=_whole_number("Only events with this number or a higher one."),
    event_seq_to=_whole_number("Only events with this number or a lower one."),
    event_time_from=_text(f"Only events at this time or later. {_TIME}."),
    event_time_to=_text(f"Only events at this time or earlier. {_TIME}."),
    event_types=_EVENT_TYPES,
    event_surfaces=_SURFACES,
)
SESSION_EVENT_SEARCH: Final = _object(
    ["query"],
    session_id=_OWN_SESSION,
    query=QUERY,
    seq_from=_whole_number("Only events with this number or a higher one."),
    seq_to=_whole_number("Only events with this number or a lower one."),
    time_from=_text(f"Only events at this time or later. {_TIME}."),
    time_to=_text(f"Only events at this time or earlier. {_TIME}."),
    event_types=_EVENT_TYPES,
    surfaces=_SURFACES,
)
SESSION_TRACE: Final = _object([], session_id=_OWN_SESSION)
SESSION_EVENT_TRACE: Final = _object(["seq"], session_id=_OWN_SESSION, seq=SEQ)
SESSION_EVENT_READ: Final = _object(
    ["seq"],
    session_id=_OWN_SESSION,
    seq=SEQ,
    before=_whole_number("How many events before it to show as well; 0 where left out."),
    after=_whole_number("How many events after it to show as well; 0 where left out."),
)


def with_session_required(schema: dict[str, Json]) -> dict[str, Json]:
    """A schema for callers that have no session of their own."""
    properties, required = schema["properties"], schema["required"]
    assert isinstance(properties, dict)
    assert isinstance(required, list)
    if "session_id" not in properties:
        return schema
    session_id = _text("Id of the session, as shown in results.")
    return {
        **schema,
        "properties": {**properties, "session_id": session_id},
        "required": ["session_id", *required],
    }


# -- values -----------------------------------------------------------------------------------


def words(arguments: Arguments) -> str:
    """The query, its white space folded.

    Raises:
        ToolError: ``INVALID_QUERY`` where it is blank or holds a NUL.
    """
    query = collapse(arguments["query"])
    if not query:
        raise ToolError(ErrorCode.INVALID_QUERY, "query is blank: give the words to look for.")
    if "\0" in query:
        raise ToolError(ErrorCode.INVALID_QUERY, "query holds a NUL character: leave it out.")
    return query


def count(arguments: Arguments, name: str) -> int | None:
    """A whole number from 0 on, ``None`` where it is not given.

    Raises:
        ToolError: ``INVALID_FILTER``.
    """
    value = arguments.get(name)
    if value is None:
        return None
    if not 0 <= value <= MAX_SAFE_INTEGER:
        raise _invalid(f"{name} must be a whole number from 0 to {MAX_SAFE_INTEGER}.")
    return int(value)


def required_count(arguments: Arguments, name: str) -> int:
    """As ``count``, for an argument that the schema requires."""
    value = count(arguments, name)
    assert value is not None
    return value


@frozen
class SeqBounds:
    """The seqs between which events are wanted, inclusive."""

    start: int | None
    end: int | None

    def before(self, seq: int) -> SeqBounds:
        """Those of them that come before an event."""
        end = seq - 1 if self.end is None else min(self.end, seq - 1)
        return SeqBounds(self.start, end)

    @property
    def empty(self) -> bool:
        """Whether no event can lie within."""
        return self.end is not None and self.end < (self.start or 0)

    @property
    def filters(self) -> list[EventFilter]:
        if self.start is None and self.end is None:
            return []
        return [SeqRange(self.start, self.end)]


def seq_bounds(arguments: Arguments, prefix: str = "") -> SeqBounds:
    """The bounds named ``seq_from`` and ``seq_to``, behind a prefix.

    Raises:
        ToolError: ``INVALID_FILTER`` where a bound is negative or they are reversed.
    """
    first, last = f"{prefix}seq_from", f"{prefix}seq_to"
    bounds = SeqBounds(count(arguments, first), count(arguments, last))
    _check_order(bounds.start, bounds.end, first, last)
    return bounds


def event_filters(arguments: Arguments, prefix: str = "") -> list[EventFilter]:
    """The filters on time, type and surface, in this order.

    Raises:
        ToolError: ``INVALID_FILTER``.
    """
    clauses: list[EventFilter | None] = [
        _time_range(TimeRange, arguments, f"{prefix}time"),
        _one_of(TypeIn, arguments, "event_types"),
        _one_of(SurfaceIn, arguments, f"{prefix}surfaces"),
    ]
    return [clause for clause in clauses if clause is not None]


def session_filters(arguments: Arguments) -> list[SessionFilter]:
    """The filters on id, creation time and availability, in this order.

    Raises:
        ToolError: ``INVALID_FILTER``.
    """
    clauses: list[SessionFilter | None] = [
        _one_of(Ids, arguments, "session_ids"),
        _time_range(CreatedAt, arguments, "created_at"),
        _one_of(AvailabilityIn, arguments, "availability"),
    ]
    return [clause for clause in clauses if clause is not None]


def parents(arguments: Arguments) -> tuple[tuple[str, ...], bool] | None:
    """The ids of wanted parents, each once, and whether sessions without one are wanted too.

    ``None`` where nothing is said about parents.

    Raises:
        ToolError: ``INVALID_FILTER`` for an empty list.
    """
    ids = _listed(arguments, "parent_session_ids")
    roots = bool(arguments.get("include_root_sessions"))
    if ids is None and not roots:
        return None
    return tuple(dict.fromkeys(ids or ())), roots


_Clause = TypeVar("_Clause")


def _listed(arguments: Arguments, name: str) -> tuple[str, ...] | None:
    values = arguments.get(name)
    if values is None:
        return None
    if not values:
        raise _invalid(f"{name} is an empty list, which nothing matches: leave it out.")
    return tuple(values)


def _one_of(clause: Callable[[Any], _Clause], arguments: Arguments, name: str) -> _Clause | None:
    values = _listed(arguments, name)
    return None if values is None else clause(values)


def _time_range(
    clause: Callable[[float | None, float | None], _Clause], arguments: Arguments, name: str
) -> _Clause | None:
    first, last = f"{name}_from", f"{name}_to"
    start, end = _instant(arguments, first), _instant(arguments, last)
    _check_order(start, end, first, last)
    if start is None and end is None:
        return None
    return clause(
        None if start is None else start.as_lower_bound,
        None if end is None else end.as_upper_bound,
    )


def _instant(arguments: Arguments, name: str) -> Instant | None:
    text = arguments.get(name)
    if text is None:
        return None
    instant = parse_instant(text)
    if instant is None:
        given = quoted(text[:_SHOWN])
        raise _invalid(f"{name} must be a date and time that exists, {_TIME}; got {given}.")
    return instant


_Bound = TypeVar("_Bound", int, Instant)


def _check_order(start: _Bound | None, end: _Bound | None, first: str, last: str) -> None:
    if start is not None and end is not None and start > end:
        raise _invalid(f"{first} lies after {last}: swap them, or leave one out.")


def _invalid(message: str) -> ToolError:
    return ToolError(ErrorCode.INVALID_FILTER, message)
