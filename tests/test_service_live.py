"""Searches over sessions that are live, close, are resumed and grow: nothing is read twice."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from actor_world import message, replacement, turn
from builders import START, Log, header
from service_world import CountingStore, append, events_of, session, sessions_of, store_of

from session_query.actors.composition import open_session_query
from session_query.actors.service import SessionQuery
from session_query.messages.config import MEMORY, IndexConfig
from session_query.messages.records import EventSearchPage, Progress, SessionSearchPage, Surface
from session_query.storage.contract import Sweep
from session_query.storage.memory import MemoryStore


@pytest.fixture(params=["wal", "delete", MEMORY])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> IndexConfig:
    if request.param == MEMORY:
        return IndexConfig(path=MEMORY)
    return IndexConfig(path=str(tmp_path / "index.db"), journal_mode=request.param)


Hits = list[tuple[str, int, Surface, str]]


def hits_of(page: SessionSearchPage | EventSearchPage) -> Hits:
    """What a page shows, but for whether the sessions are live."""
    events = (
        [hit.best_match for hit in page.items]
        if isinstance(page, SessionSearchPage)
        else list(page.items)
    )
    return [(hit.session_id, hit.seq, hit.surface, hit.snippet) for hit in events]


async def everything(query: SessionQuery, session_id: str) -> Hits:
    return [
        *hits_of(await query.search_sessions("word")),
        *hits_of(await query.search_events(session_id, "word")),
    ]


async def test_a_commit_is_found_by_the_very_next_search(index: IndexConfig) -> None:
    store = store_of()
    async with (
        open_session_query(store=store, index=index) as query,
        query.sessions.create(id="s") as live,
    ):
        for count in range(1, 5):
            await live.commit(message(f"word {count}"))
            assert sorted(await events_of(query, "s", "word")) == list(range(count))
            (hit,) = (await query.search_sessions(str(count))).items
            assert (hit.live, hit.best_match.seq) == (True, count - 1)


async def test_a_session_that_is_live_and_stored_is_found_once(index: IndexConfig) -> None:
    store = store_of(session("s", "word stored"))
    async with open_session_query(store=store, index=index) as query:
        assert await sessions_of(query, "word") == ["s"]
        async with query.sessions.resume("s") as live:
            await live.commit(message("word live word"))
            page = await query.search_sessions("word")
            assert hits_of(page) == [("s", 2, Surface.CURRENT, "word live word")]
            assert page.items[0].live
            await live.flush()
            assert hits_of(await query.search_sessions("word")) == hits_of(page)


async def test_a_live_session_hides_the_stored_one_of_its_id(index: IndexConfig) -> None:
    store = store_of(session("s", "word stored"))
    async with open_session_query(store=store, index=index) as query:
        await query.refresh()
        async with query.sessions.create(
            id="s", created_at=START, cwd="/work", durable=False
        ) as live:
            assert await sessions_of(query, "word") == []
            await live.commit(message("word live"))
            assert await events_of(query, "s", "live") == [0]
            assert await events_of(query, "s", "stored") == []
        assert await events_of(query, "s", "live") == []
        assert await events_of(query, "s", "stored") == [0]


async def test_what_was_never_stored_is_gone_with_its_session(index: IndexConfig) -> None:
    store = store_of()
    async with open_session_query(store=store, index=index) as query:
        async with query.sessions.create(id="s", durable=False) as live:
            await live.commit(message("word"))
            assert await sessions_of(query, "word") == ["s"]
        assert await sessions_of(query, "word") == []
        assert store.logs_read == 0


@pytest.mark.parametrize("searched_before_the_end", [True, False])
async def test_a_closed_session_is_found_as_before_without_reading_its_log(
    index: IndexConfig, searched_before_the_end: bool
) -> None:
    store = store_of(session("other", "word other"))
    async with open_session_query(store=store, index=index) as query:
        await query.refresh()
        async with query.sessions.create(id="s", created_at=START) as live:
            await live.commit(message("word one"), message("word two"))
            await query.refresh()
            await live.commit(replacement(0, 0, 0), message("the last word"))
            if searched_before_the_end:
                before = await everything(query, "s")
        store.forget()
        after = await everything(query, "s")
        if searched_before_the_end:
            assert after == before
        assert [(seq, surface) for _, seq, surface, _ in after[2:]] == [
            (1, Surface.CURRENT),
            (0, Surface.SHADOWED),
            (3, Surface.CURRENT),
        ]
        assert store.logs_read == 0


async def test_a_session_that_no_search_saw_live_is_read_once_after_its_end(
    index: IndexConfig,
) -> None:
    store = store_of()
    async with open_session_query(store=store, index=index) as query:
        await query.refresh()
        async with query.sessions.create(id="s") as live:
            await live.commit(message("word"))
        assert await events_of(query, "s", "word") == [0]
        assert store.tails == [("s", 1)]


async def test_a_session_that_ends_inside_a_turn_is_found_with_its_closers(
    index: IndexConfig,
) -> None:
    async with open_session_query(store=store_of(), index=index) as query:
        async with query.sessions.create(id="s") as live:
            await live.commit(turn("start"), message("word"))
            assert await events_of(query, "s", "interrupted") == []
        assert await events_of(query, "s", "interrupted") == [2]
        async with query.sessions.resume("s") as live:
            # The closer is now an event of the log, and stands there once.
            assert await events_of(query, "s", "interrupted") == [2]
            await live.commit(message("word again"))
        assert await events_of(query, "s", "interrupted") == [2]


async def test_the_rows_of_a_resumed_session_are_used_again(index: IndexConfig) -> None:
    texts = [f"word {number}" for number in range(30)]
    store = store_of(session("s", *texts))
    async with open_session_query(store=store, index=index) as query:
        await query.refresh()
        async with query.sessions.resume("s") as live:
            store.forget()
            await live.commit(message("word new"), replacement(3, 4, 3, 4))
            found = await query.search_events("s", "word", limit=100)
            assert len(found.items) == 31
            assert store.logs_read == 0
            assert {hit.seq for hit in found.items if hit.surface is Surface.SHADOWED} == {3, 4}
        again = await query.search_events("s", "word", limit=100)
        assert again.items == found.items
        assert store.logs_read == 0


async def test_the_rows_are_used_again_after_a_restart_too(tmp_path: Path) -> None:
    index = IndexConfig(path=str(tmp_path / "index.db"))
    store = store_of(session("s", *[f"word {number}" for number in range(100)]))
    async with open_session_query(store=store, index=index) as query:
        await query.refresh()
        append(store, "s", "word last")
        await query.refresh()
    async with (
        open_session_query(store=store, index=index) as query,
        query.sessions.resume("s") as live,
    ):
        store.forget()
        await live.commit(replacement(0, 98, *range(99)))
        shadowed = [
            hit.seq
            for hit in (await query.search_events("s", "word", limit=100)).items
            if hit.surface is Surface.SHADOWED
        ]
        assert sorted(shadowed) == list(range(99))
        assert store.logs_read == 0


async def test_an_append_costs_its_tail_alone(index: IndexConfig) -> None:
    store = store_of(session("a", *["word"] * 50), session("b", *["word"] * 50))
    async with open_session_query(store=store, index=index) as query:
        await query.refresh()
        for count in range(1, 4):
            store.forget()
            append(store, "a", f"fresh{count}")
            calls = store.logs_read
            assert await events_of(query, "a", f"fresh{count}") == [49 + count]
            assert store.tails == [("a", 1)]
            assert store.logs_read == calls + 1


async def test_an_append_costs_its_tail_alone_after_a_restart(tmp_path: Path) -> None:
    index = IndexConfig(path=str(tmp_path / "index.db"))
    store = store_of(session("a", *["word"] * 50))
    async with open_session_query(store=store, index=index) as query:
        await query.refresh()
    store.forget()
    append(store, "a", "fresh")
    async with open_session_query(store=store, index=index) as query:
        assert await events_of(query, "a", "fresh") == [50]
    assert store.tails == [("a", 1)]


async def test_an_append_can_take_an_earlier_event_off_the_surface(index: IndexConfig) -> None:
    store = store_of(session("s", "word one", "word two"))
    async with open_session_query(store=store, index=index) as query:
        assert await sessions_of(query, "word") == ["s"]
        log = Log()
        log.user("word one")
        log.user("word two")
        log.replace(0, 0, [0], "summary")
        with store.open("s", "write") as handle:
            handle.append((log.events[2],))
        found = {hit.seq: hit.surface for hit in (await query.search_events("s", "word")).items}
        assert found == {0: Surface.SHADOWED, 1: Surface.CURRENT}


async def test_an_append_replaces_the_closers_of_an_interrupted_turn(index: IndexConfig) -> None:
    log = Log()
    log.turn_start()
    log.user("word")
    store = store_of((header("s"), log.events))
    async with open_session_query(store=store, index=index) as query:
        assert await events_of(query, "s", "interrupted") == [2]
        log.user("word again")
        log.turn_end(1, "aborted")
        with store.open("s", "write") as handle:
            handle.append(tuple(log.events[2:]))
        assert await events_of(query, "s", "interrupted") == []
        assert await events_of(query, "s", "aborted") == [3]
        assert sorted(await events_of(query, "s", "word")) == [1, 2]


async def test_an_unchanged_corpus_is_swept_and_nothing_else(index: IndexConfig) -> None:
    store = store_of(*(session(f"s{number}", "word") for number in range(9)))
    async with open_session_query(store=store, index=index) as query:
        first = await query.search_sessions("word")
        store.forget()
        assert await query.search_sessions("word") == first
        assert store.calls == {"sweep": 1}


async def test_a_session_that_is_rewritten_is_read_anew(index: IndexConfig) -> None:
    store = store_of(session("s", "word old"))
    async with open_session_query(store=store, index=index) as query:
        assert await events_of(query, "s", "old") == [0]
        # A new incarnation, longer than the old one: growth is no proof of append.
        replaced = MemoryStore([session("t"), session("s", "word new", "word more")])
        store.inner = replaced
        assert await events_of(query, "s", "old") == []
        assert sorted(await events_of(query, "s", "word")) == [0, 1]


async def test_a_fork_is_found_with_what_it_inherited(index: IndexConfig) -> None:
    async with (
        open_session_query(store=store_of(), index=index) as query,
        query.sessions.create(id="s", created_at=START, cwd="/work") as live,
    ):
        await live.commit(message("word"))
        async with query.sessions.fork("s", new_id="child") as child:
            await child.commit(message("word of the child"))
            assert sorted(await events_of(query, "child", "word")) == [0, 2]
            assert sorted(await sessions_of(query, "word")) == ["child", "s"]
        (hit,) = (await query.search_events("child", "child")).items
        assert (hit.seq, (await query.read_session("child")).inherited_event_count) == (2, 1)


async def test_a_corpus_that_others_write_all_the_time_stays_searchable(
    index: IndexConfig,
) -> None:
    store = store_of(*(session(f"s{number}", "word") for number in range(20)))

    class Busy(CountingStore):
        """Each sweep is outdated before it is used."""

        def sweep(self) -> Sweep:
            seen = super().sweep()
            append(self, "s3", f"word {self.calls['sweep']}")
            return seen

    busy = Busy(store.inner)
    async with open_session_query(store=busy, index=index) as query:
        for _ in range(5):
            assert len(await sessions_of(query, "word")) == 20
        # The search reads what its own sweep saw or later, never less.
        assert len(await events_of(query, "s3", "word", limit=100)) >= 6


async def test_live_sessions_that_write_while_others_search_are_never_torn(
    index: IndexConfig,
) -> None:
    """Two sessions are committed to in turn; no search sees the second ahead of the first."""
    async with (
        open_session_query(store=store_of(), index=index) as query,
        query.sessions.create(id="a", created_at=START) as first,
        query.sessions.create(id="b", created_at=START) as second,
        trio.open_nursery() as nursery,
    ):

        async def write() -> None:
            for _ in range(60):
                await first.commit(message("word"))
                await second.commit(message("word"))

        async def search() -> None:
            while True:
                before = second.length
                page = await query.search_sessions("word", limit=100)
                assert len(page.items) == 2 or not before
                ahead = await events_of(query, "b", "word", limit=100)
                behind = await events_of(query, "a", "word", limit=100)
                assert len(behind) >= len(ahead) >= before

        async def stop() -> None:
            await write()
            nursery.cancel_scope.cancel()

        nursery.start_soon(search)
        nursery.start_soon(stop)


async def test_statistics_tell_what_is_open(index: IndexConfig) -> None:
    async with open_session_query(store=store_of(session("s", "word")), index=index) as query:
        assert query.statistics().live_sessions == 0
        generation = await query.refresh()
        assert generation == query.generation == query.statistics().generation > 0
        assert await query.refresh() == generation
        async with query.sessions.create():
            assert query.statistics().live_sessions == 1
        await query.search_sessions("word")
        assert query.statistics().pinned_views == 0


async def test_progress_tells_how_far_a_build_has_come() -> None:
    store = store_of(*(session(f"s{number}", "word", "word") for number in range(150)))
    seen: list[tuple[int, int, int]] = []

    def note(progress: Progress) -> None:
        seen.append((progress.sessions_done, progress.sessions_total, progress.events_done))

    async with open_session_query(store=store) as query:
        await query.refresh(note)
        assert seen[0] == (0, 150, 0)
        assert seen[-1] == (150, 150, 300)
        assert seen == sorted(seen)
        seen.clear()
        await query.refresh(note)
        assert seen == []


async def test_a_progress_callback_that_fails_does_not_stop_the_build(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls: list[Progress] = []

    def fail(progress: Progress) -> None:
        calls.append(progress)
        raise RuntimeError("no screen")

    async with open_session_query(store=store_of(session("s", "word"))) as query:
        await query.refresh(fail)
        assert await sessions_of(query, "word") == ["s"]
    assert len(calls) == 1
    assert "progress callback" in caplog.text
