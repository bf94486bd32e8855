"""Filters as predicates: what a record must be like to pass all clauses (query-service §4, §5)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final, Protocol, TypeAlias

from ..messages.config import identity
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
from ..messages.records import Availability, EventRecord, SessionRecord
from .case_folding import fold_case
from .whitespace import JS_WHITESPACE, collapse

SESSION_CLAUSES: Final = (Ids, Cwd, CreatedAt, Parent, AvailabilityIn)
EVENT_CLAUSES: Final = (SeqRange, TimeRange, TypeIn, SurfaceIn, Text)

SessionPredicate: TypeAlias = Callable[[SessionRecord], bool]
EventPredicate: TypeAlias = Callable[[EventRecord], bool]
TextPredicate: TypeAlias = Callable[[str], bool]


class _Range(Protocol):
    @property
    def start(self) -> float | None: ...
    @property
    def end(self) -> float | None: ...


def session_predicate(
    filters: Iterable[object], canonical_cwd: Callable[[str], str] = identity
) -> SessionPredicate:
    """What sessions must be like; every clause is checked and copied now.

    Raises:
        SessionQueryError: ``INVALID_FILTER``.
    """
    clauses: tuple[SessionFilter, ...] = checked(filters, SESSION_CLAUSES, "filters")
    tests = [_session_test(clause, canonical_cwd) for clause in clauses]
    return lambda record: all(test(record) for test in tests)


def event_predicates(filters: Iterable[object]) -> tuple[EventPredicate, TextPredicate]:
    """What events must be like, and what their texts must; every clause is checked and copied now.

    Raises:
        SessionQueryError: ``INVALID_FILTER``.
    """
    clauses: tuple[EventFilter, ...] = checked(filters, EVENT_CLAUSES, "filters")
    texts = [text_test(clause.text) for clause in clauses if isinstance(clause, Text)]
    tests = [_event_test(clause) for clause in clauses if not isinstance(clause, Text)]
    return (
        lambda record: all(test(record) for test in tests),
        lambda text: all(test(text) for test in texts),
    )


def text_test(words: str) -> TextPredicate:
    """Whether a text holds the words literally, whatever their case and the white space between.

    Raises:
        SessionQueryError: ``INVALID_FILTER`` for blank words.
    """
    parts = collapse(words).split(" ")
    if parts == [""]:
        raise invalid_filter(f"filter 'text': {words!r} is blank; give words to look for")
    literals = (re.escape(fold_case(part)) for part in parts)
    search = re.compile(f"[{JS_WHITESPACE}]+".join(literals)).search
    return lambda text: search(fold_case(text)) is not None


def same_workspace(
    values: Iterable[str | None], canonical_cwd: Callable[[str], str]
) -> Callable[[str | None], bool]:
    """Whether a working directory is one of ``values`` in its canonical form."""

    def canonical(cwd: str | None) -> str | None:
        return None if cwd is None else canonical_cwd(cwd)

    wanted = frozenset(map(canonical, values))
    return lambda cwd: canonical(cwd) in wanted


def _session_test(clause: SessionFilter, canonical_cwd: Callable[[str], str]) -> SessionPredicate:
    match clause:
        case Ids(values):
            ids = frozenset(values)
            return lambda record: record.header.id in ids
        case Cwd(values):
            in_workspace = same_workspace(values, canonical_cwd)
            return lambda record: in_workspace(record.header.cwd)
        case CreatedAt():
            within = _range_test(clause)
            return lambda record: within(record.header.created_at)
        case Parent(values):
            parents = frozenset(values)
            return lambda record: record.header.parent_session in parents
        case AvailabilityIn(values):
            live, persisted = (kind in values for kind in Availability)
            return lambda record: (live and record.live) or (persisted and record.persisted)


def _event_test(clause: SeqRange | TimeRange | TypeIn | SurfaceIn) -> EventPredicate:
    match clause:
        case SeqRange():
            seq_within = _range_test(clause)
            return lambda record: seq_within(record.seq)
        case TimeRange():
            time_within = _range_test(clause)
            return lambda record: time_within(record.time)
        case TypeIn(values):
            types = frozenset(values)
            return lambda record: record.type in types
        case SurfaceIn(values):
            surfaces = frozenset(values)
            return lambda record: record.surface in surfaces


def _range_test(clause: _Range) -> Callable[[int], bool]:
    start, end = clause.start, clause.end
    return lambda value: (start is None or value >= start) and (end is None or value <= end)
