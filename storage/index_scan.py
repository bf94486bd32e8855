"""The scan: from a view to the matches of one page and their snippets. Runs on any thread."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import takewhile
from typing import Final

import apsw
from attrs import evolve, frozen
from msgspec.structs import replace

from ..history.request import Scope
from ..history.snippets import excerpt
from ..messages.config import IndexConfig
from ..messages.records import EventSearchHit, SessionSearchHit
from .counting import INSTANCES, MIN_AVERAGE_LENGTH, SPANS, average_length, counts_from_ranks
from .document_rows import CURRENT, SHADOWED, SURFACES
from .index_file import index_errors, index_failed
from .index_query import (
    FILED_DOCUMENTS,
    SEQ_BITS,
    Binding,
    Predicates,
    best_by_count,
    best_by_rank,
    best_of_extent,
    best_of_sessions_by_count,
    best_of_sessions_by_rank,
    file_predicates,
    integers,
)
from .index_values import Garbled, blob, decode_header, integer
from .index_view import (
    IndexedDocument,
    Match,
    Ranking,
    Reader,
    View,
    indexed_document,
    matches_of,
)
from .tokens import MatchFinder, match_expression, overlaps_itself, storable

_HEADROOM: Final = 4
"""How many times the wanted matches the first scan asks for, so that few scans are repeated."""

_EXTRA: Final = 20


@frozen
class Found:
    """What a scan gives: the hits of the page, whether more follow, and the ranking behind it."""

    sessions: tuple[SessionSearchHit, ...]
    events: tuple[EventSearchHit, ...]
    """Either of the two, by the scope of the request."""
    more: bool
    ranking: Ranking


def scan(reader: Reader, view: View, config: IndexConfig, redact: Callable[[str], str]) -> Found:
    """Rank, unless the view brings a ranking that reaches far enough, and read the page.

    Raises:
        SessionQueryError: ``INDEX_FAILED``.
        apsw.InterruptError: the reader was interrupted.
    """
    with index_errors("the index could not be read"):
        return _scan(reader, view, config, redact)


def _scan(reader: Reader, view: View, config: IndexConfig, redact: Callable[[str], str]) -> Found:
    ranking = view.ranking or _rank(reader.connection, view, config)
    page = ranking.matches[view.offset : view.offset + view.request.limit]
    more = len(ranking.matches) > view.offset + view.request.limit
    # An unfinished statement would make an interruption stick, and stop what comes after it.
    with closing(_Hydration(reader, view, config, redact, page)) as hydrated:
        if view.request.scope is Scope.SESSIONS:
            sessions = tuple(hydrated.session_hit(match) for match in page)
            return Found(sessions, (), more, ranking)
        return Found((), tuple(hydrated.event_hit(match) for match in page), more, ranking)


def reaches(ranking: Ranking, wanted: int) -> bool:
    """Whether a ranking holds ``wanted`` matches, or all there are."""
    return ranking.complete or len(ranking.matches) >= wanted


# -- ranking ----------------------------------------------------------------------------------


@frozen
class _Arm:
    """The strongest matches of one source."""

    matches: list[Match]
    complete: bool
    """Whether the source has no more."""


def _rank(db: apsw.Connection, view: View, config: IndexConfig) -> Ranking:
    if not view.tokens:
        return Ranking(view.generation, (), True)
    overlay = view.overlay
    where = file_predicates(
        view.request,
        view.types,
        live=overlay.sessions.keys(),
        live_not_persisted=overlay.unpersisted,
        hidden=overlay.hidden,
        flips=overlay.flips,
        store_bound=view.store_bound,
    )
    phrase = match_expression(view.request.query, config.tokenizer)
    if view.request.scope is Scope.EVENTS:
        return _rank_events(db, view, where, phrase)
    return _rank_sessions(db, view, where, phrase)


def count_function(tokens: tuple[str, ...]) -> str:
    """The auxiliary function that counts the spans of a phrase."""
    return SPANS if overlaps_itself(list(tokens)) else INSTANCES


def _rank_events(db: apsw.Connection, view: View, where: Predicates, phrase: str) -> Ranking:
    limit = scan_limit(view)
    statement = best_of_extent(where, count_function(view.tokens))
    arms = [_Arm(list(view.recent_matches), view.recent_complete)]
    assert view.target is not None
    for extent in view.target.filed:
        bindings = (phrase, extent.lo, extent.hi, *where.bindings, limit)
        arms.append(_arm(db, statement, bindings, limit))
    matches, complete = _merged(arms)
    return Ranking(view.generation, tuple(matches), complete)


def _rank_sessions(db: apsw.Connection, view: View, where: Predicates, phrase: str) -> Ranking:
    """One scan of the file; where it holds too few sessions, one that picks the best of each."""
    limit = scan_limit(view)
    recent = _Arm(list(view.recent_matches), view.recent_complete)
    bindings = (phrase, *where.bindings, limit)
    by_rank = count_function(view.tokens) is INSTANCES and average_length(db) >= MIN_AVERAGE_LENGTH
    filed = _comparable(
        db, phrase, _first_scan(db, view, where, bindings, by_rank), recent, by_rank
    )
    if filed is None:
        by_rank = False
        filed = _first_scan(db, view, where, bindings, by_rank)
    sessions, complete = _distinct(_merged([recent, filed]))
    if len(sessions) < view.wanted and not filed.complete:
        statement = (
            best_of_sessions_by_rank(where)
            if by_rank
            else best_of_sessions_by_count(where, count_function(view.tokens))
        )
        best = _comparable(db, phrase, _arm(db, statement, bindings, limit), recent, by_rank)
        if best is None:
            counting = best_of_sessions_by_count(where, count_function(view.tokens))
            best = _arm(db, counting, bindings, limit)
        sessions, complete = _distinct(_merged([recent, best]))
    return Ranking(view.generation, tuple(sessions), complete)


def _first_scan(
    db: apsw.Connection,
    view: View,
    where: Predicates,
    bindings: tuple[Binding, ...],
    by_rank: bool,
) -> _Arm:
    statement = (
        best_by_rank(where) if by_rank else best_by_count(where, count_function(view.tokens))
    )
    return _arm(db, statement, bindings, scan_limit(view))


def _comparable(
    db: apsw.Connection, phrase: str, filed: _Arm, recent: _Arm, by_rank: bool
) -> _Arm | None:
    """The arm with weights that can be merged with counted ones, or ``None`` where it has none."""
    if not by_rank or not recent.matches or not filed.matches:
        return filed
    first = filed.matches[0]
    count = db.execute(
        f"SELECT {INSTANCES}(fts) FROM fts WHERE fts MATCH ? AND rowid = ?", (phrase, first.id)
    ).get
    counts = counts_from_ranks(
        [match.weight for match in filed.matches], integer(count), average_length(db)
    )
    if counts is None:
        return None
    counted = [
        replace(match, weight=-count) for match, count in zip(filed.matches, counts, strict=True)
    ]
    return _Arm(counted, filed.complete)


def scan_limit(view: View) -> int:
    """Matches that one statement is asked for: some more than the page needs."""
    return _HEADROOM * view.wanted + _EXTRA


def _arm(db: apsw.Connection, statement: str, bindings: tuple[Binding, ...], limit: int) -> _Arm:
    matches = matches_of(db.execute(statement, bindings).fetchall())
    return _Arm(matches, len(matches) < limit)


def _merged(arms: list[_Arm]) -> tuple[list[Match], bool]:
    """All matches in order, up to the end of the first arm that has more than it shows."""
    complete = all(arm.complete for arm in arms)
    filled = [arm for arm in arms if arm.matches]
    if len(filled) < 2:
        return filled[0].matches if filled else [], complete
    merged = heapq.merge(*(arm.matches for arm in arms))
    if complete:
        return list(merged), True
    last = min(arm.matches[-1] for arm in arms if not arm.complete)
    return list(takewhile(lambda match: match <= last, merged)), False


def _distinct(ranked: tuple[list[Match], bool]) -> tuple[list[Match], bool]:
    """The first match of each session."""
    matches, complete = ranked
    seen: set[int] = set()
    first: list[Match] = []
    for match in matches:
        if match.session_no not in seen:
            seen.add(match.session_no)
            first.append(match)
    return first, complete


# -- reading the page -------------------------------------------------------------------------


class _Hydration:
    """Turns the matches of one page into hits."""

    def __init__(
        self,
        reader: Reader,
        view: View,
        config: IndexConfig,
        redact: Callable[[str], str],
        page: Sequence[Match],
    ) -> None:
        """Hits are asked for in the order of ``page``, each once."""
        self._view = view
        self._rows = reader.connection.cursor()
        self._read_filed(page)
        self._chars = config.snippet_chars
        self._redact = redact
        self._finder = MatchFinder(
            view.request.query, list(view.tokens), config.tokenizer, reader.probe
        )
        self._type_names = {code: name for name, code in view.types.items()}

    def session_hit(self, match: Match) -> SessionSearchHit:
        document, header = self._document(match)
        live = self._view.overlay.sessions.get(match.session_no)
        header = live.header if live is not None else decode_header(blob(header))
        return SessionSearchHit(
            header=header,
            live=live is not None,
            persisted=live.persisted if live is not None else True,
            best_match=self._event_hit(document, header.id),
        )

    def event_hit(self, match: Match) -> EventSearchHit:
        assert self._view.target is not None
        return self._event_hit(self._document(match)[0], self._view.target.header.id)

    def _event_hit(self, document: IndexedDocument, session_id: str) -> EventSearchHit:
        body = self._redacted(document, session_id)
        shown = excerpt(body, self._finder.find(storable(body)), self._chars)
        return EventSearchHit(
            session_id=session_id,
            seq=document.seq,
            type=self._type_names[document.type_code],
            time=document.time,
            surface=SURFACES[document.surface],
            snippet=shown.text,
            match=shown.match,
        )

    def _redacted(self, document: IndexedDocument, session_id: str) -> str:
        try:
            return self._redact(document.text)
        except Exception as error:
            # What cannot be redacted is not shown.
            raise index_failed(
                f"redact failed on event {document.seq} of session {session_id!r}: {error!r}"
            ) from error

    def _document(self, match: Match) -> tuple[IndexedDocument, object]:
        """A document and, where it is filed, the encoded header of its session."""
        recent = self._view.recent_documents.get(match.id)
        if recent is not None:
            return recent, None
        row_id, header, *columns = next(self._rows, (None, None))
        if row_id != match.id:
            raise Garbled(f"the index has a word but no text of document {match.id}")
        document = indexed_document(columns)
        flipped = match.session_no << SEQ_BITS | match.seq in self._view.overlay.flips
        if flipped and document.surface == CURRENT:
            return evolve(document, surface=SHADOWED), header
        return document, header

    def _read_filed(self, page: Sequence[Match]) -> None:
        """Begin to read the rows of the page that are in the file, one text at a time."""
        recent = self._view.recent_documents
        ids = [match.id for match in page if match.id not in recent]
        if ids:
            self._rows.execute(FILED_DOCUMENTS, (integers(ids),))

    def close(self) -> None:
        """Read no further."""
        self._rows.close(True)
