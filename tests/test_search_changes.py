"""Searches after single changes that are rare enough to need a test of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from unittest import mock

import apsw
import pytest
from actor_world import message, replacement
from builders import Log, header
from inline_runtime import InlineRuntime
from search_corpus import MemoryHand

from session_query.actors import reconciler, reconciliation
from session_query.actors.composition import open_session_query
from session_query.actors.service import SessionQuery
from session_query.history.request import session_search
from session_query.messages.config import IndexConfig, no_text
from session_query.messages.event import Event
from session_query.messages.filters import CreatedAt, SeqRange, SurfaceIn, TimeRange
from session_query.messages.records import Surface
from session_query.storage import index, index_tables
from session_query.storage.index import SearchIndex
from session_query.storage.index_scan import scan
from session_query.storage.log_slices import Piece, read_slices
from session_query.storage.memory import MemoryStore

CONFIG = IndexConfig(path=":memory:", max_limit=100)


def events(*texts: str) -> tuple[Event, ...]:
    log = Log()
    for text in texts:
        log.user(text)
    return tuple(log.events)


@asynccontextmanager
async def service(store: MemoryStore) -> AsyncIterator[SessionQuery]:
    async with open_session_query(store=store, index=CONFIG, runtime=InlineRuntime()) as query:
        yield query


async def found(query: SessionQuery, words: str) -> list[str]:
    page = await query.search_sessions(words)
    return [hit.best_match.snippet for hit in page.items]


@pytest.mark.parametrize("bound", [10**30, 2**63, 2.0**80, 1e308])
async def test_bounds_of_any_size_are_compared(bound: float) -> None:
    async with service(MemoryStore([(header(), events("alpha"))])) as query:
        for clause in (CreatedAt(-bound, bound), CreatedAt(None, bound)):
            assert (await query.search_sessions("alpha", session_filters=[clause])).items
        for far in (SeqRange(bound), TimeRange(bound), TimeRange(None, -bound)):
            assert not (await query.search_events("s", "alpha", filters=[far])).items


async def test_a_session_that_was_mended_and_resumed_is_skipped_no_longer() -> None:
    hand = MemoryHand()
    hand.write(header(), events("alpha"))
    hand.damage("s")
    async with service(hand.store) as query:  # type: ignore[arg-type]
        assert len((await query.search_sessions("alpha")).skipped) == 1
        hand.write(header(), events("beta"))
        async with query.sessions.resume("s"):
            pass
        page = await query.search_sessions("beta")
        assert (len(page.items), page.skipped) == (1, ())


async def test_another_store_with_the_same_revisions_is_read_anew() -> None:
    async with service(MemoryStore([(header(), events("alpha"))])) as query:
        assert await found(query, "alpha") == ["alpha"]
        query.mount(MemoryStore([(header(), events("beta"))]))
        assert await found(query, "alpha") == []
        assert await found(query, "beta") == ["beta"]


async def test_a_flip_of_a_filed_row_shows_though_the_session_catches_up_in_slices() -> None:
    async with service(MemoryStore()) as query, query.sessions.create(id="s") as live:
        await live.commit(message("alpha"), message("beta"))
        await live.flush()
        with (
            mock.patch.object(reconciler, "MOVABLE_EVENTS", 1),
            mock.patch.object(reconciliation, "SLICE_EVENTS", 1),
            mock.patch.object(index, "SLICE_EVENTS", 1),
        ):
            await query.refresh()
            await query.refresh()
            await live.commit(replacement(0, 0, 0), message("gamma"))
            shadowed = SurfaceIn((Surface.SHADOWED,))
            page = await query.search_events("s", "alpha", filters=[shadowed])
        assert [hit.seq for hit in page.items] == [0]


async def test_all_pages_of_a_live_session_are_shown_whatever_blocks_its_rows_stand_in() -> None:
    async with service(MemoryStore()) as query:
        with mock.patch.object(index_tables, "_MIN_BLOCK", 1):
            async with (
                query.sessions.create(id="s", durable=False) as one,
                query.sessions.create(id="t", durable=False) as other,
            ):
                for number in range(40):
                    await one.commit(message(f"alpha {number}"))
                    await other.commit(message(f"beta {number}"))
                    await query.refresh()
                seqs: list[int] = []
                cursor: str | None = None
                while not seqs or cursor is not None:
                    page = await query.search_events("s", "alpha", limit=1, cursor=cursor)
                    seqs += [hit.seq for hit in page.items]
                    cursor = page.next_cursor
        assert sorted(seqs) == list(range(40))


def pieces(store: MemoryStore) -> list[Piece]:
    (snapshot,) = store.sweep().snapshots
    return list(read_slices(store, snapshot, None, no_text))


def searched(subject: SearchIndex) -> int:
    """How many sessions a search finds, read as a service reads."""
    request = session_search("alpha", (), (), None, None, subject.config)
    reader = subject.open_reader()
    try:
        view = subject.open_view(
            reader,
            request,
            instance="i",
            epoch=0,
            store_bound=True,
            ranking=None,
            skipped=(),
        )
        return len(scan(reader, view, subject.config, lambda text: text).sessions)
    finally:
        reader.release()
        reader.close()


def interrupting(subject: SearchIndex, at: int) -> Callable[[], bool]:
    """A progress handler that interrupts the index at its call number ``at``, and from then on."""
    calls = count(1)

    def must_stop() -> bool:
        if next(calls) == at:
            subject.interrupt()
        return subject._must_stop()

    return must_stop


def test_a_write_that_is_interrupted_anywhere_is_done_or_can_be_repeated(tmp_path: Path) -> None:
    store = MemoryStore([(header(), events("alpha", "beta"))])
    subject = SearchIndex(IndexConfig(path=str(tmp_path / "index.db")), no_text)
    outcomes: list[bool] = []
    try:
        for at in range(1, 2_000):
            subject._db.set_progress_handler(interrupting(subject, at), 1)
            try:
                subject.write(pieces(store))
                outcomes.append(True)
            except apsw.InterruptError:
                outcomes.append(False)
            subject._db.set_progress_handler(None)
            subject.arm()
            assert searched(subject) == (1 if outcomes[-1] else 0)
            if outcomes[-20:] == [True] * 20:
                break
            if outcomes[-1]:
                subject.forget(["s"])
        assert outcomes[-1] and not all(outcomes)
    finally:
        subject.close()
