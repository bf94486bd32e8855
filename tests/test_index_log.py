"""The index's write-ahead log: copied beside commits, never within one, and bounded in any case."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import apsw
import pytest
import trio
from inline_runtime import InlineRuntime
from service_world import CountingStore, append, session, sessions_of, store_of
from trio.testing import MockClock

from session_query import IndexConfig, SessionQuery, open_session_query
from session_query.actors.log_keeper import HOLD_SECONDS
from session_query.messages.config import no_text
from session_query.simulations.index_vfs import watched_index
from session_query.storage import write_ahead
from session_query.storage.index import SearchIndex
from session_query.storage.index_file import IndexDamaged, index_failed
from session_query.storage.log_slices import read_slices

A_COMMIT = 40
"""Pages that none of the transactions here exceeds."""

_numbers = count()


def write(index: SearchIndex, times: int = 1) -> None:
    """So many transactions, a new session each."""
    for _ in range(times):
        store = store_of(session(f"s{next(_numbers)}", "word"))
        (snapshot,) = store.sweep().snapshots
        index.write([*read_slices(store, snapshot, None, no_text)])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "index.db"


@pytest.fixture
def index(path: Path) -> Iterator[SearchIndex]:
    with_file = SearchIndex(IndexConfig(path=str(path)), no_text)
    yield with_file
    with_file.close()


def index_of(query: SessionQuery) -> SearchIndex:
    reconciler = query._reconciler
    assert reconciler is not None
    assert reconciler._lane is not None
    return reconciler._lane.index


async def commit(query: SessionQuery, store: CountingStore) -> None:
    """An append by another process, and the search that indexes it."""
    append(store, "s", "word")
    assert await sessions_of(query, "word") == ["s"]


def test_no_transaction_writes_to_the_file_itself(path: Path) -> None:
    written: list[str] = []
    with watched_index(written.append):
        index = SearchIndex(IndexConfig(path=str(path)), no_text)
        written.clear()
        while index.log.pages < 2 * write_ahead.LOG_PAGES:
            write(index)
        assert f"{path}-wal" in written
        assert str(path) not in written
        index.copy_log()
        assert str(path) in written
        index.close()


def test_a_log_that_was_copied_begins_anew(index: SearchIndex) -> None:
    while not index.log.is_long:
        write(index)
    index.copy_log()
    assert not index.log.is_long
    write(index)
    assert index.log.pages <= A_COMMIT


def test_what_a_copy_leaves_in_the_log_is_what_readers_of_the_file_still_need(
    index: SearchIndex,
) -> None:
    write(index)
    reader = index.open_reader()
    pinned = reader.pin()
    write(index, 20)
    index.copy_log()
    rows = reader.connection.execute("SELECT count(*) FROM session").get
    assert (rows, reader.pinned, pinned[0]) == (1, True, 1)
    reader.close()


def test_the_writer_copies_between_transactions_where_nobody_else_does(
    monkeypatch: pytest.MonkeyPatch, path: Path
) -> None:
    monkeypatch.setattr(write_ahead, "MOST_PAGES", 100)
    index = SearchIndex(IndexConfig(path=str(path)), no_text)
    for _ in range(100):
        write(index)
        assert index.log.pages <= 100 + A_COMMIT
    index.close()


def test_a_log_that_a_reader_needs_begins_anew_once_it_has_left(
    monkeypatch: pytest.MonkeyPatch, path: Path
) -> None:
    monkeypatch.setattr(write_ahead, "HELD_PAGES", 100)
    index = SearchIndex(IndexConfig(path=str(path)), no_text)
    write(index)
    reader = index.open_reader()
    reader.pin()
    while not index.log.is_held:
        write(index)
    assert not index.restart_log()
    index.log.bear()
    assert not index.log.is_held
    held = index.log.pages
    while not index.log.is_held:
        write(index)
    assert index.log.pages >= 2 * held
    reader.close()
    assert index.restart_log()
    write(index)
    assert index.log.pages <= A_COMMIT
    index.close()


async def test_commits_without_a_pause_keep_the_log_short(
    monkeypatch: pytest.MonkeyPatch, path: Path
) -> None:
    monkeypatch.setattr(write_ahead, "LOG_PAGES", 60)
    store = store_of(session("s", "word"))
    longest = total = 0
    runtime, config = InlineRuntime(), IndexConfig(path=str(path))
    async with open_session_query(store=store, index=config, runtime=runtime) as query:
        for _ in range(60):
            before = index_of(query).log.pages if query.generation else 0
            await commit(query, store)
            pages = index_of(query).log.pages
            longest, total = max(longest, pages), total + max(pages - before, 0)
    assert longest <= 60 + 2 * A_COMMIT
    assert total > 3 * longest


async def test_a_pass_waits_a_while_for_readers_that_hold_a_long_log(
    monkeypatch: pytest.MonkeyPatch, path: Path, autojump_clock: MockClock
) -> None:
    monkeypatch.setattr(write_ahead, "HELD_PAGES", 60)
    store, config = store_of(session("s", "word")), IndexConfig(path=str(path))
    async with open_session_query(store=store, index=config, runtime=InlineRuntime()) as query:
        await commit(query, store)
        other = apsw.Connection(str(path))
        other.execute("BEGIN; SELECT * FROM meta").fetchall()
        log = index_of(query).log
        while not log.is_held:
            await commit(query, store)
        start = trio.current_time()
        await commit(query, store)
        assert trio.current_time() - start >= HOLD_SECONDS
        start = trio.current_time()
        await commit(query, store)
        assert trio.current_time() - start < HOLD_SECONDS
        while not log.is_held:
            await commit(query, store)
        other.close()
        await commit(query, store)
        assert log.pages <= A_COMMIT


async def test_damage_that_is_met_in_copying_is_mended(
    monkeypatch: pytest.MonkeyPatch, path: Path
) -> None:
    def damaged(_index: SearchIndex) -> None:
        monkeypatch.undo()
        raise IndexDamaged("a page is not what was written")

    monkeypatch.setattr(write_ahead, "LOG_PAGES", 1)
    monkeypatch.setattr(SearchIndex, "copy_log", damaged)
    store, config = store_of(session("s", "word")), IndexConfig(path=str(path))
    async with open_session_query(store=store, index=config, runtime=InlineRuntime()) as query:
        await commit(query, store)
        await trio.testing.wait_all_tasks_blocked()
        assert index_of(query).incarnation == 1
        await commit(query, store)


@pytest.mark.parametrize("met_by", ["copy_log", "tidy"])
async def test_damage_that_cannot_be_mended_at_once_leaves_the_service_as_it_is(
    monkeypatch: pytest.MonkeyPatch, path: Path, autojump_clock: MockClock, met_by: str
) -> None:
    failures = list[str]()

    def damaged(*_arguments: object) -> None:
        failures.append(met_by)
        raise IndexDamaged("a page is not what was written")

    def full(*_arguments: object) -> None:
        failures.append("rebuild")
        monkeypatch.undo()
        raise index_failed("the disk is full")

    monkeypatch.setattr(write_ahead, "LOG_PAGES", 1)
    monkeypatch.setattr(SearchIndex, "needs_tidying", lambda _index, _events: met_by == "tidy")
    monkeypatch.setattr(SearchIndex, met_by, damaged)
    monkeypatch.setattr(SearchIndex, "rebuild", full)
    store, config = store_of(session("s", "word")), IndexConfig(path=str(path))
    async with open_session_query(store=store, index=config, runtime=InlineRuntime()) as query:
        await commit(query, store)
        await trio.sleep(10)
        assert failures == [met_by, "rebuild"]
        await commit(query, store)
        assert await sessions_of(query, "word") == ["s"]
