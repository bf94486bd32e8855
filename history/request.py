"""Search requests, normalised: what was asked, in one form, checked before anything is read.

Two requests that mean the same have the same fingerprint, whatever the order of their clauses and
values and whether a default was spelled out (search-index §4, §9, §12).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from enum import StrEnum
from hashlib import blake2b
from typing import Final

from attrs import evolve, frozen

from ..messages.config import IndexConfig
from ..messages.errors import ErrorCode, SessionQueryError
from ..messages.filters import (
    AvailabilityIn,
    CreatedAt,
    Cwd,
    EventFilter,
    Ids,
    Parent,
    SeqRange,
    SessionFilter,
    SurfaceIn,
    Text,
    TimeRange,
    TypeIn,
    checked,
    invalid_filter,
)
from ..messages.json import Json, encode
from .filtering import same_workspace
from .whitespace import collapse

MAX_PREDICATES: Final = 14
"""Predicates that one statement may carry, the session equality of an event search included."""

MAX_BINDINGS: Final = 32_766
"""Values that one statement may bind."""

MAX_QUERY_CHARS: Final = 2_000
"""Code points of a query; full text opens a posting list for each of its tokens."""

_FIXED_BINDINGS: Final = 12
"""Bindings of every search besides its filters: markers, phrase, visibility, limit, offset."""

_NONCHARACTERS: Final = re.compile("[\ufdd0\ufdd1\ud800-\udfff]")

_SESSION_CLAUSES: Final = (Ids, Cwd, CreatedAt, Parent, AvailabilityIn)
_EVENT_CLAUSES: Final = (SeqRange, TimeRange, TypeIn, SurfaceIn)
_Range = CreatedAt | SeqRange | TimeRange


class Scope(StrEnum):
    """What a search ranks."""

    SESSIONS = "sessions"
    EVENTS = "events"


@frozen
class SearchRequest:
    """A checked search. ``session_id`` is set for the events scope alone."""

    scope: Scope
    query: str
    session_id: str | None
    session_filters: tuple[SessionFilter, ...]
    event_filters: tuple[EventFilter, ...]
    limit: int
    cursor: str | None
    fingerprint: str
    """Equal for requests that ask for the same pages."""
    echoes: bool = True
    """Whether what only echoes the use of this library's own tools may be found."""


def session_search(
    query: object,
    session_filters: Iterable[object],
    event_filters: Iterable[object],
    limit: object,
    cursor: object,
    config: IndexConfig,
) -> SearchRequest:
    """Check a search across sessions; the first fault in the order of the parameters is raised.

    Raises:
        SessionQueryError: ``INVALID_FILTER``, ``INVALID_CURSOR``, ``INVALID_QUERY`` or
            ``INVALID_LIMIT``.
    """
    sessions: tuple[SessionFilter, ...] = checked(
        session_filters, _SESSION_CLAUSES, "session_filters"
    )
    events = _event_clauses(event_filters, "event_filters")
    _check_budget(sessions + events, fixed_predicates=0)
    return _request(Scope.SESSIONS, query, None, sessions, events, limit, cursor, config)


def event_search(
    session_id: object,
    query: object,
    filters: Iterable[object],
    limit: object,
    cursor: object,
    config: IndexConfig,
) -> SearchRequest:
    """Check a search within one session; errors as in ``session_search``."""
    if not isinstance(session_id, str):
        raise invalid_filter(f"session_id must be text, got {session_id!r}")
    events = _event_clauses(filters, "filters")
    _check_budget(events, fixed_predicates=1)
    return _request(Scope.EVENTS, query, session_id, (), events, limit, cursor, config)


def without_echoes(request: SearchRequest) -> SearchRequest:
    """The request for what is no echo of the own tools; this takes nothing of the budgets."""
    fingerprint = blake2b(request.fingerprint.encode(), digest_size=16, person=b"without echoes")
    return evolve(request, echoes=False, fingerprint=fingerprint.hexdigest())


def in_stored_workspaces(
    request: SearchRequest,
    stored: Iterable[str | None],
    canonical_cwd: Callable[[str], str],
) -> SearchRequest:
    """The request with each ``Cwd`` clause naming those of ``stored`` that it stands for."""
    directories = tuple(stored)

    def named(clause: SessionFilter) -> SessionFilter:
        if not isinstance(clause, Cwd):
            return clause
        return Cwd(tuple(filter(same_workspace(clause.values, canonical_cwd), directories)))

    return evolve(request, session_filters=tuple(map(named, request.session_filters)))


def _request(
    scope: Scope,
    query: object,
    session_id: str | None,
    session_filters: tuple[SessionFilter, ...],
    event_filters: tuple[EventFilter, ...],
    limit: object,
    cursor: object,
    config: IndexConfig,
) -> SearchRequest:
    if cursor is not None and not isinstance(cursor, str):
        raise SessionQueryError(
            ErrorCode.INVALID_CURSOR, f"cursor must be text of an earlier page, got {cursor!r}"
        )
    words = _normalised_query(query)
    rows = _checked_limit(limit, config)
    identity: list[Json] = [
        scope.value,
        words,
        session_id,
        _canonical(session_filters),
        _canonical(event_filters),
        rows,
    ]
    fingerprint = blake2b(encode(identity), digest_size=16).hexdigest()
    return SearchRequest(
        scope=scope,
        query=words,
        session_id=session_id,
        session_filters=session_filters,
        event_filters=event_filters,
        limit=rows,
        cursor=cursor,
        fingerprint=fingerprint,
    )


def _normalised_query(query: object) -> str:
    if not isinstance(query, str):
        raise SessionQueryError(ErrorCode.INVALID_QUERY, f"query must be text, got {query!r}")
    words = collapse(query)
    if not words:
        raise SessionQueryError(ErrorCode.INVALID_QUERY, "query is blank: give words to look for")
    if len(words) > MAX_QUERY_CHARS:
        raise SessionQueryError(
            ErrorCode.INVALID_QUERY,
            f"query has {len(words)} characters, at most {MAX_QUERY_CHARS} are looked for: give"
            " a shorter piece of the text",
        )
    if "\0" in words:
        raise SessionQueryError(ErrorCode.INVALID_QUERY, f"query {query!r} holds a NUL character")
    return _NONCHARACTERS.sub("\ufffd", words)


def _checked_limit(limit: object, config: IndexConfig) -> int:
    if limit is None:
        return config.default_limit
    if type(limit) is not int or not 1 <= limit <= config.max_limit:
        raise SessionQueryError(
            ErrorCode.INVALID_LIMIT,
            f"limit must be a whole number from 1 to {config.max_limit}, got {limit!r}",
        )
    return limit


def _event_clauses(filters: Iterable[object], what: str) -> tuple[EventFilter, ...]:
    clauses: tuple[EventFilter, ...] = checked(filters, (*_EVENT_CLAUSES, Text), what)
    if any(isinstance(clause, Text) for clause in clauses):
        raise invalid_filter(f"{what}: a search takes no Text filter; put the words in the query")
    return clauses


def _check_budget(
    clauses: tuple[SessionFilter | EventFilter, ...], *, fixed_predicates: int
) -> None:
    predicates = fixed_predicates + sum(predicate_count(clause) for clause in clauses)
    if predicates > MAX_PREDICATES:
        raise invalid_filter(f"filters need {predicates} conditions, at most {MAX_PREDICATES} fit")
    bindings = _FIXED_BINDINGS + fixed_predicates + sum(_binding_count(one) for one in clauses)
    if bindings > MAX_BINDINGS:
        raise invalid_filter(f"filters bind {bindings} values, at most {MAX_BINDINGS} fit")


def predicate_count(clause: SessionFilter | EventFilter) -> int:
    """How much of the predicate budget a clause takes (search-index §9)."""
    if isinstance(clause, _Range):
        return (clause.start is not None) + (clause.end is not None)
    if isinstance(clause, AvailabilityIn):
        return 0 if len(set(clause.values)) == 2 else 1
    return 1


def _binding_count(clause: SessionFilter | EventFilter) -> int:
    if isinstance(clause, _Range):
        return predicate_count(clause)
    if isinstance(clause, Text):
        return 0
    return len(clause.values)


def _canonical(clauses: tuple[SessionFilter | EventFilter, ...]) -> Json:
    described = [_describe(clause) for clause in clauses]
    described.sort(key=encode)
    return list(described)


def _describe(clause: SessionFilter | EventFilter) -> Json:
    if isinstance(clause, _Range):
        return [clause.kind, clause.start, clause.end]
    if isinstance(clause, Text):
        return [clause.kind, clause.text]
    absent_first = sorted(clause.values, key=lambda value: (value is not None, value or ""))
    return [clause.kind, list(absent_first)]
