"""Merging: full text is kept in few segments, whether it came in a build or a commit at a time."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from actor_world import message
from builders import Log, header
from service_world import append, sessions_of, store_of
from service_world import session as stored_session

from session_query import IndexConfig, MemoryStore, SessionQuery, open_session_query
from session_query.actors import reconciliation
from session_query.messages.config import no_text
from session_query.storage import index as index_module
from session_query.storage.full_text import FAN_IN
from session_query.storage.index import _MERGE_PAGES, SearchIndex
from session_query.storage.log_slices import read_slices

INDEX = IndexConfig(path=":memory:")


def index_of(query: SessionQuery) -> SearchIndex:
    reconciler = query._reconciler
    assert reconciler is not None
    assert reconciler._lane is not None
    return reconciler._lane.index


def segments(index: SearchIndex, table: str = "fts") -> int:
    """Segments of the full text in the file, or of ``recent_fts``, as FTS5 itself numbers them."""
    found = index._db.execute(f"SELECT count(DISTINCT segid) FROM {table}_idx").get
    assert isinstance(found, int)
    return found


async def test_a_build_of_many_transactions_leaves_few_segments(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reconciliation, "SLICE_EVENTS", 1)
    store = store_of(*(stored_session(f"s{number}", f"word {number}") for number in range(150)))
    async with open_session_query(store=store, index=INDEX) as query:
        await query.refresh()
        assert not index_of(query).is_overdue
        assert segments(index_of(query)) < 10
        assert len(await sessions_of(query, "word")) == 20


async def test_commits_without_a_pause_do_not_pile_up_segments(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(index_module, "_MERGE_AFTER", 8)
    async with (
        open_session_query(store=MemoryStore(), index=INDEX) as query,
        query.sessions.create(id="live") as live,
    ):
        for number in range(60):
            await live.commit(message(f"word {number}"))
            assert await sessions_of(query, "word") == ["live"]
            assert index_of(query)._tables.filed_text.unmerged <= 12


# -- passes over many sessions --------------------------------------------------------------------

SESSIONS = 40


async def test_what_many_live_sessions_gained_is_one_segment() -> None:
    async with (
        open_session_query(store=MemoryStore(), index=INDEX) as query,
        AsyncExitStack() as stack,
    ):
        live = [
            await stack.enter_async_context(query.sessions.create(id=f"live{number}"))
            for number in range(SESSIONS)
        ]
        await sessions_of(query, "word")
        for passes in range(1, 6):
            for session in reversed(live):
                await session.commit(message(f"word{passes}"))
            found = await sessions_of(query, f"word{passes}", limit=SESSIONS)
            assert sorted(found) == sorted(session.header.id for session in live)
            index = index_of(query)
            assert segments(index, "recent_fts") == passes == index._tables.recent_text.unmerged


@pytest.mark.parametrize("turns", [0, 1], ids=["between turns", "inside a turn"])
async def test_what_many_stored_sessions_gained_is_few_segments(turns: int) -> None:
    log = Log()
    for _ in range(turns):
        log.turn_start()
    log.user("word")
    ids = [f"s{number}" for number in range(SESSIONS)]
    store = store_of(*((header(session_id), log.events) for session_id in ids))
    async with open_session_query(store=store, index=INDEX) as query:
        await sessions_of(query, "word")
        for passes in range(1, 6):
            before = segments(index_of(query))
            for session_id in reversed(ids):
                append(store, session_id, f"word{passes}", "other")
            found = await sessions_of(query, f"word{passes}", limit=SESSIONS)
            assert sorted(found) == sorted(ids)
            # Inside a turn, what said that the log ends there goes as well.
            assert segments(index_of(query)) <= before + 1 + turns


def test_segments_are_counted_as_they_are_written_and_merged_in_time() -> None:
    index = SearchIndex(INDEX, no_text)
    # With hardly any memory to gather in, each document is a segment of its own.
    index._db.execute("INSERT INTO fts(fts, rank) VALUES ('hashsize', 1)")
    most, merges = 0, 0
    for number in range(40):
        written(index, *(f"word{number}x{place}" for place in range(50)))
        assert index._tables.filed_text.count() == segments(index) >= 50
        most = max(most, segments(index))
        if index.is_overdue:
            index.merge()
            merges += 1
    assert merges > 10
    assert most < 400
    index.close()


# -- what one piece writes ------------------------------------------------------------------------


def written(index: SearchIndex, *texts: str) -> None:
    """Index a session of these texts, in one transaction."""
    store = store_of(stored_session(f"s{index.generation}", *texts))
    (snapshot,) = store.sweep().snapshots
    index.write([*read_slices(store, snapshot, None, no_text)])


def built(index: SearchIndex, transactions: int) -> None:
    """Index so many sessions and merge them, as a build does."""
    for number in range(transactions):
        written(index, *(f"word{number} word{number}x{place}" for place in range(20)))
    while index.merge_build():
        pass


def content(index: SearchIndex) -> dict[int, tuple[int, int]]:
    """Pages and bytes of each segment of the file's full text."""
    return {
        segment: (pages, size)
        for segment, pages, size in index._db.execute(
            "SELECT id >> 37, count(*), sum(length(block)) FROM fts_data WHERE id >= 1 << 37 "
            "GROUP BY 1 ORDER BY 1"
        )
        if isinstance(segment, int) and isinstance(pages, int) and isinstance(size, int)
    }


def largest(index: SearchIndex) -> tuple[int, int]:
    return max(content(index).values())


def test_commits_behind_a_first_build_do_not_write_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(index_module, "_MERGE_AFTER", FAN_IN)
    index = SearchIndex(INDEX, no_text)
    built(index, 40)
    (build,) = content(index).values()
    for _ in range(2 * FAN_IN * FAN_IN):
        written(index, "word")
        if index.is_overdue:
            index.merge()
    assert build in content(index).values()
    assert len(content(index)) < 4 * FAN_IN
    index.close()


def test_a_build_is_merged_with_what_was_there_before_only_where_that_is_less() -> None:
    index = SearchIndex(INDEX, no_text)
    built(index, 40)
    first = largest(index)
    built(index, 20)
    assert largest(index) == first
    built(index, 80)
    assert len(content(index)) == 1
    index.close()


def test_a_merge_behind_a_commit_writes_a_bounded_part(tmp_path: Path) -> None:
    index = SearchIndex(IndexConfig(path=str(tmp_path / "index.db")), no_text)
    number = 0
    while not index.is_overdue:
        # Several pages a segment, no word of which stands in another.
        written(index, *(f"{number}x{place}" for place in range(1_000)))
        number += 1
    segments, pieces = len(content(index)), 0
    while index.is_overdue:
        index.log.copy()
        before = index.log.pages
        index.merge()
        pieces += 1
        # The pages that are written, and the first of each segment that are cut.
        assert index.log.pages - before <= 3 * _MERGE_PAGES + 2 * segments
    assert pieces > 3
    assert len(content(index)) < segments
    index.close()


def test_segments_that_another_process_left_count_as_not_merged(tmp_path: Path) -> None:
    config = IndexConfig(path=str(tmp_path / "index.db"))
    left = 0
    while left <= index_module._MERGE_AFTER:
        index = SearchIndex(config, no_text)
        assert not index.is_overdue
        for _ in range(50):
            written(index, "word")
        left = len(content(index))
        index.close()
    index = SearchIndex(config, no_text)
    assert index.is_overdue
    while index.is_overdue:
        index.merge()
    assert len(content(index)) < FAN_IN
    index.close()
