"""The SQL of a search: filters as predicates, and the statements that rank documents.

A document row is ``d``, a session row ``s``; the same predicates serve the file and the recent
tables, with other facts about which sessions are live and which rows are shadowed.
"""

from __future__ import annotations

import array
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, TypeAlias

import apsw
from attrs import define, field, frozen

from ..history.request import SearchRequest
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
    TimeRange,
    TypeIn,
)
from ..messages.records import Availability, Surface
from .document_rows import CURRENT, SHADOWED, SURFACE_CODES
from .index_values import key

# Quoted: the stub of apsw knows the last one, the module at run time does not.
Binding: TypeAlias = "int | float | str | bytes | apsw.CArrayBinding"

SEQ_BITS: Final = 32
"""A row is named ``session number << SEQ_BITS | seq`` where one number is wanted."""

_NOTHING: Final = "0"
"""The predicate that no row meets."""


@frozen
class Predicates:
    """Conditions on ``d`` and ``s``, and the values that they bind, in order."""

    sql: str
    bindings: tuple[Binding, ...]


@define(eq=False)
class _Conditions:
    """Predicates under construction."""

    terms: list[str] = field(factory=list)
    bindings: list[Binding] = field(factory=list)

    def add(self, sql: str, *bindings: Binding) -> None:
        self.terms.append(sql)
        self.bindings.extend(bindings)

    def one_of(self, column: str, values: Iterable[int]) -> None:
        numbers = sorted(set(values))
        if numbers:
            self.add(f"{column} IN (SELECT value FROM carray(?))", integers(numbers))
        else:
            self.add(_NOTHING)

    def none_of(self, column: str, values: Iterable[int]) -> None:
        numbers = sorted(set(values))
        if numbers:
            self.add(f"{column} NOT IN (SELECT value FROM carray(?))", integers(numbers))

    def one_of_texts(self, column: str, values: Collection[str | None]) -> None:
        texts = tuple(key(value) for value in dict.fromkeys(values) if value is not None)
        alternatives = [f"{column} IS NULL"] if None in values else []
        if texts:
            alternatives.append(f"{column} IN (SELECT value FROM carray(?))")
            self.bindings.append(apsw.carray(texts))
        self.terms.append(f"({' OR '.join(alternatives)})" if alternatives else _NOTHING)

    def within(self, column: str, start: float | None, end: float | None) -> None:
        if start is not None:
            self.add(f"{column} >= ?", _bound(start))
        if end is not None:
            self.add(f"{column} <= ?", _bound(end))

    def built(self) -> Predicates:
        return Predicates(" AND ".join(self.terms) or "1", tuple(self.bindings))


def _bound(value: float) -> float:
    """The end of a range as SQLite takes it: no whole number of more than 64 bits."""
    return value if abs(value) < 2**63 else float(value)


def integers(values: Iterable[int]) -> apsw.CArrayBinding:
    """A set of numbers as one binding; it must not be empty."""
    return apsw.carray(array.array("q", values))


def file_predicates(
    request: SearchRequest,
    types: Mapping[str, int],
    *,
    live: Collection[int],
    live_not_persisted: Collection[int],
    hidden: Collection[int],
    flips: Collection[int],
    store_bound: bool,
) -> Predicates:
    """What rows of the file must meet.

    ``live`` are the numbers of live sessions, those of ``hidden`` must not show at all, ``flips``
    names rows that are shadowed though the file says current. Without a store, stored sessions do
    not show.
    """
    conditions = _Conditions()
    conditions.none_of("d.session", hidden)
    if not store_bound:
        conditions.one_of("d.session", live)

    def availability(clause: AvailabilityIn) -> None:
        wanted = set(clause.values)
        if wanted == {Availability.LIVE}:
            conditions.one_of("d.session", live)
        elif wanted == {Availability.PERSISTED}:
            conditions.none_of("d.session", live_not_persisted)
        elif not wanted:
            conditions.add(_NOTHING)

    def surface(clause: SurfaceIn) -> None:
        codes = {SURFACE_CODES[Surface(value)] for value in clause.values}
        if not codes or not flips or {CURRENT, SHADOWED} <= codes:
            conditions.one_of("d.surface", codes)
            return
        flipped = f"(d.session << {SEQ_BITS} | d.seq) IN (SELECT value FROM carray(?))"
        conditions.add(
            f"CASE WHEN d.surface = {CURRENT} AND {flipped} THEN {SHADOWED} ELSE d.surface END "
            "IN (SELECT value FROM carray(?))",
            integers(sorted(flips)),
            integers(sorted(codes)),
        )

    _add_filters(conditions, request, types, availability, surface)
    return conditions.built()


def recent_predicates(request: SearchRequest, types: Mapping[str, int]) -> Predicates:
    """What rows of the recent tables must meet; they are live and say their surface themselves."""
    conditions = _Conditions()

    def availability(clause: AvailabilityIn) -> None:
        wanted = set(clause.values)
        if wanted == {Availability.PERSISTED}:
            conditions.add("s.persisted")
        elif not wanted:
            conditions.add(_NOTHING)

    def surface(clause: SurfaceIn) -> None:
        conditions.one_of("d.surface", {SURFACE_CODES[Surface(value)] for value in clause.values})

    _add_filters(conditions, request, types, availability, surface)
    return conditions.built()


def _add_filters(
    conditions: _Conditions,
    request: SearchRequest,
    types: Mapping[str, int],
    availability: Callable[[AvailabilityIn], None],
    surface: Callable[[SurfaceIn], None],
) -> None:
    if not request.echoes:
        conditions.add("NOT d.own")
    clauses: tuple[SessionFilter | EventFilter, ...] = (
        *request.session_filters,
        *request.event_filters,
    )
    for clause in clauses:
        match clause:
            case Ids(values):
                conditions.one_of_texts("s.id", values)
            case Cwd(values):
                conditions.one_of_texts("s.cwd", values)
            case Parent(values):
                conditions.one_of_texts("s.parent", values)
            case CreatedAt(start, end):
                conditions.within("s.created_at", start, end)
            case SeqRange(start, end):
                conditions.within("d.seq", start, end)
            case TimeRange(start, end):
                conditions.within("d.time", start, end)
            case TypeIn(values):
                conditions.one_of("d.type", [types[name] for name in values if name in types])
            case AvailabilityIn():
                availability(clause)
            case SurfaceIn():
                surface(clause)


_COLUMNS: Final = "d.id, d.session, d.seq, d.time, d.len, s.id"


def best_by_rank(where: Predicates) -> str:
    """Documents of the file, strongest first, by FTS5's own rank; binds phrase, filters, limit.

    With no column sizes kept, rank order is the order of the match count (fts_design §1).
    """
    return (
        f"SELECT {_COLUMNS}, fts.rank FROM fts CROSS JOIN doc AS d ON d.id = fts.rowid "
        f"CROSS JOIN session AS s ON s.no = d.session WHERE fts MATCH ? AND {where.sql} "
        "ORDER BY fts.rank, d.len, d.time DESC, s.id, d.seq DESC LIMIT ?"
    )


def best_by_count(where: Predicates, count: str) -> str:
    """As ``best_by_rank``, by an auxiliary function; rows end with minus the count."""
    return (
        f"SELECT {_COLUMNS}, -g.c AS weight FROM "
        f"(SELECT rowid AS i, {count}(fts) AS c FROM fts WHERE fts MATCH ?) AS g "
        "CROSS JOIN doc AS d ON d.id = g.i CROSS JOIN session AS s ON s.no = d.session "
        f"WHERE {where.sql} "
        "ORDER BY weight, d.len, d.time DESC, s.id, d.seq DESC LIMIT ?"
    )


def best_of_sessions_by_rank(where: Predicates) -> str:
    """The strongest document of each session of the file; binds as ``best_by_rank``."""
    return _best_of_sessions(
        f"SELECT {_COLUMNS} AS key, fts.rank AS weight FROM fts "
        "CROSS JOIN doc AS d ON d.id = fts.rowid CROSS JOIN session AS s ON s.no = d.session "
        f"WHERE fts MATCH ? AND {where.sql}"
    )


def best_of_sessions_by_count(where: Predicates, count: str, prefix: str = "") -> str:
    """As ``best_of_sessions_by_rank``, by an auxiliary function and for any of the table sets."""
    fts, doc, session = f"{prefix}fts", f"{prefix}doc", f"{prefix}session"
    return _best_of_sessions(
        f"SELECT {_COLUMNS} AS key, -g.c AS weight FROM "
        f"(SELECT rowid AS i, {count}({fts}) AS c FROM {fts} WHERE {fts} MATCH ?) AS g "
        f"CROSS JOIN {doc} AS d ON d.id = g.i CROSS JOIN {session} AS s ON s.no = d.session "
        f"WHERE {where.sql}"
    )


def _best_of_sessions(matches: str) -> str:
    return (
        "SELECT id, session, seq, time, len, key, weight FROM (SELECT *, row_number() OVER "
        "(PARTITION BY session ORDER BY weight, len, time DESC, seq DESC) AS place "
        f"FROM ({matches})) WHERE place = 1 "
        "ORDER BY weight, len, time DESC, key, seq DESC LIMIT ?"
    )


def best_of_extent(where: Predicates, count: str, prefix: str = "") -> str:
    """Documents of one extent, strongest first; binds phrase, lo, hi, filters, limit.

    Never by rank: that would first visit every match of the whole table (fts_design P13).
    """
    fts, doc, session = f"{prefix}fts", f"{prefix}doc", f"{prefix}session"
    return (
        f"SELECT {_COLUMNS}, -g.c AS weight FROM "
        f"(SELECT rowid AS i, {count}({fts}) AS c FROM {fts} "
        f"WHERE {fts} MATCH ? AND rowid >= ? AND rowid < ?) AS g "
        f"CROSS JOIN {doc} AS d ON d.id = g.i CROSS JOIN {session} AS s ON s.no = d.session "
        f"WHERE {where.sql} "
        "ORDER BY weight, d.len, d.time DESC, d.seq DESC LIMIT ?"
    )


FILED_DOCUMENTS: Final = (
    "SELECT d.id, s.header, d.seq, d.time, d.type, d.surface, b.text FROM carray(?) AS c "
    "CROSS JOIN doc AS d ON d.id = c.value CROSS JOIN body AS b ON b.id = d.id "
    "CROSS JOIN session AS s ON s.no = d.session"
)
"""What hits are made from, in the order of the ids that it binds."""
