"""Rows of searches and listings on the big corpus, when nothing has changed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from statistics import median
from typing import Final

import apsw
import limits
from corpus import RARE
from measure import Row, a_few, paired, row, timed_async
from plain import PlainSearch
from stored import TOLD, Stored, spellings, swept, told

from session_query import (
    CreatedAt,
    Cwd,
    EventFilter,
    JsonlStore,
    SessionFilter,
    SessionQuery,
    Surface,
    SurfaceIn,
    TimeRange,
    TypeIn,
)

_PAGE: Final = 20
_TITLES: Final = 100
_PAGES: Final = "page of a search"
_DEEP: Final = (5, 50, 200)
"""Pages beyond the first."""


async def searches(stored: Stored, rounds: int) -> list[Row]:
    """What a search costs when nothing has changed, by what it asks for."""
    rows = [await _sweep(stored, rounds)]
    async with swept(stored.root, stored.index) as query:
        rows += [await _rare(stored, query, rounds)]
    db = apsw.Connection(str(stored.index))
    try:
        async with told(stored.root, stored.index) as query:
            rows += [await _rare_told(stored, query, rounds)]
            rows += [await _common(stored, query, db, rounds)]
            rows += await _deep_pages(stored, query, db, rounds)
            rows += [await _within_session(stored, query, rounds)]
            rows += await _filters(stored, query, db, rounds)
            rows += [
                await _titles(stored, query, db, rounds),
                await _listing(stored, query, rounds),
            ]
            rows += [await _lineage(stored, query, rounds)]
    finally:
        db.close()
    return rows


def plainly(stored: Stored, work: Callable[[PlainSearch], object]) -> float | None:
    """Milliseconds of something done the plain way, if it is asked of this corpus."""
    plain = stored.plain
    return a_few(lambda: work(plain)) if plain is not None else None


async def _sweep(stored: Stored, rounds: int) -> Row:
    store = JsonlStore(stored.root)

    async def sweep() -> None:
        store.sweep()

    ours, bare = await paired(sweep, lambda: limits.bare_sweep(stored.root), rounds)
    plain = plainly(stored, PlainSearch.listing)
    ok = ours <= 1.2 * bare
    return row("sweep of the store", "ms", ours, bare, plain, budget="≤ 1.2 ×", ok=ok)


async def _rare(stored: Stored, query: SessionQuery, rounds: int) -> Row:
    store, words = JsonlStore(stored.root), spellings(RARE)

    async def search() -> None:
        assert (await query.search_sessions(next(words))).items

    ours, sweep = await paired(search, store.sweep, rounds)
    plain = plainly(stored, lambda plain: plain.search_sessions(RARE))
    ok, note = ours <= sweep + 1.5, "limit: our sweep"
    return row("search, rare word", "ms", ours, sweep, plain, budget="≤ + 1.5 ms", ok=ok, note=note)


async def _rare_told(stored: Stored, query: SessionQuery, rounds: int) -> Row:
    words = spellings(RARE)
    await query.search_sessions(next(words))
    spent = [await timed_async(lambda: query.search_sessions(next(words))) for _ in range(rounds)]
    plain = plainly(stored, lambda plain: plain.search_sessions(RARE))
    ours = median(spent)
    ok, note = ours <= 1, "no sweep"
    return row("the same, told", "ms", ours, None, plain, budget="≤ 1 ms", ok=ok, note=note)


async def _common(stored: Stored, query: SessionQuery, db: apsw.Connection, rounds: int) -> Row:
    words = spellings(stored.common)
    share = limits.count_matches(db, stored.common) / stored.corpus.total

    async def first_page() -> None:
        assert (await query.search_sessions(next(words))).items

    ours, bare = await paired(first_page, lambda: limits.count_matches(db, stored.common), rounds)
    plain = stored.plain_common
    name, note = f"search, word in {share:.0%} of documents", f"{TOLD}; limit: count(*)"
    ok = ours <= 12 * bare
    return row(
        name,
        "ms",
        ours,
        bare,
        plain,
        budget="≤ 12 ×",
        ok=ok,
        note=note,
        family=_PAGES,
        size=1,
    )


async def _deep_pages(
    stored: Stored, query: SessionQuery, db: apsw.Connection, rounds: int
) -> list[Row]:
    word, rows, cursor, page = stored.common, list[Row](), None, 1
    ids = limits.matching_ids(db, word, _PAGE)
    for wanted in _DEEP:
        while page < wanted:
            cursor = (await query.search_sessions(word, limit=_PAGE, cursor=cursor)).next_cursor
            page += 1
            if cursor is None:
                return rows

        async def deep(at: str | None = cursor) -> None:
            assert (await query.search_sessions(word, limit=_PAGE, cursor=at)).items

        def plainly_deep(plain: PlainSearch, offset: int = (wanted - 1) * _PAGE) -> None:
            assert plain.search_sessions(word, _PAGE, offset)

        ours, bare = await paired(deep, lambda: limits.hydrate(db, ids), rounds)
        rows.append(
            row(
                f"the same, page {wanted}",
                "ms",
                ours,
                bare,
                plainly(stored, plainly_deep),
                budget="≤ + 1.5 ms",
                ok=ours <= bare + 1.5,
                note=f"{TOLD}; limit: reading the rows of the page",
                family=_PAGES,
                size=wanted,
            )
        )
    return rows


async def _within_session(stored: Stored, query: SessionQuery, rounds: int) -> Row:
    session_id = stored.corpus.header(stored.corpus.sessions // 2).id
    words = spellings(stored.common)

    async def search() -> None:
        assert (await query.search_events(session_id, next(words))).items

    await search()
    ours = median([await timed_async(search) for _ in range(rounds)])
    plain = plainly(stored, lambda plain: plain.search_events(session_id, stored.common))
    return row("search within one session, common word", "ms", ours, None, plain, note=TOLD)


async def _filters(
    stored: Stored, query: SessionQuery, db: apsw.Connection, rounds: int
) -> list[Row]:
    """The common word with filters; each plain condition asks for the same."""
    corpus = stored.corpus
    middle = corpus.header(corpus.sessions // 2)
    cases: list[tuple[str, list[SessionFilter], list[EventFilter], str]] = [
        ("workspace", [Cwd([middle.cwd])], [], f"s.cwd = '{middle.cwd}'"),
        (
            "newer half of the sessions",
            [CreatedAt(middle.created_at)],
            [],
            f"s.created_at >= {middle.created_at}",
        ),
        ("type", [], [TypeIn(["user/message"])], "d.type = 'user/message'"),
        ("surface", [], [SurfaceIn([Surface.CURRENT])], "d.surface = 'current'"),
        (
            "newer half of the events",
            [],
            [TimeRange(middle.created_at)],
            f"d.time >= {middle.created_at}",
        ),
    ]
    rows = []
    for name, sessions, events, where in cases:
        search = _filtered(query, stored.common, sessions, events)
        ours, bare = await paired(search, lambda: limits.count_matches(db, stored.common), rounds)
        plain = plainly(stored, partial(_plainly_filtered, stored.common, where))
        note = f"{TOLD}; limit: count(*) without a filter"
        rows.append(row(f"the same, filter: {name}", "ms", ours, bare, plain, note=note))
    return rows


def _filtered(
    query: SessionQuery, word: str, sessions: list[SessionFilter], events: list[EventFilter]
) -> Callable[[], Awaitable[None]]:
    words = spellings(word)

    async def search() -> None:
        page = await query.search_sessions(
            next(words), session_filters=sessions, event_filters=events
        )
        assert page.items

    return search


def _plainly_filtered(word: str, where: str, plain: PlainSearch) -> None:
    assert plain.search_sessions(word, where=where)


async def _titles(stored: Stored, query: SessionQuery, db: apsw.Connection, rounds: int) -> Row:
    step = max(stored.corpus.sessions // _TITLES, 1)
    ids = [stored.corpus.header(number).id for number in range(0, step * _TITLES, step)]

    async def read() -> None:
        titles = await query.read_titles(ids)
        assert all(one.title is not None for one in titles)

    ours, limit = await paired(read, lambda: limits.titles(db, ids), rounds)
    plain = plainly(stored, lambda plain: plain.titles(ids))
    note = f"{TOLD}; limit: 100 rows by id"
    ok = ours <= 2
    return row("titles of 100 hits", "ms", ours, limit, plain, budget="≤ 2 ms", ok=ok, note=note)


async def _listing(stored: Stored, query: SessionQuery, rounds: int) -> Row:
    spent = [await timed_async(query.list_sessions) for _ in range(rounds)]
    plain = plainly(stored, PlainSearch.listing)
    return row("listing of all sessions, again", "ms", median(spent), None, plain, note=TOLD)


async def _lineage(stored: Stored, query: SessionQuery, rounds: int) -> Row:
    session_id = stored.corpus.header(0).id
    spent = [await timed_async(lambda: query.trace_session(session_id)) for _ in range(rounds)]
    plain = plainly(stored, PlainSearch.listing)
    note = f"{TOLD}; plain: the listing alone"
    return row("lineage of one session", "ms", median(spent), None, plain, note=note)
