"""Stores that are mounted, taken away and exchanged while the service runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from actor_world import Hang, message, title
from builders import START, Log, header
from inline_runtime import InlineRuntime
from service_world import (
    CountingStore,
    append,
    events_of,
    messages,
    refused,
    session,
    sessions_of,
    store_of,
)
from trio.testing import MockClock, wait_all_tasks_blocked

from session_query.actors import reconciler
from session_query.actors.composition import open_session_query
from session_query.actors.service import SessionQuery
from session_query.messages.config import MEMORY, IndexConfig, QueryConfig
from session_query.messages.errors import (
    ErrorCode,
    LiveErrorCode,
    LiveSessionError,
    SessionQueryError,
)
from session_query.storage import memory
from session_query.storage.contract import SessionStore, StoreFailed, Tail

Read = Callable[[SessionQuery], Awaitable[object]]


def titled(name: str) -> CountingStore:
    """A store with a session ``s`` whose only message and title are ``name``."""
    log = Log()
    log.user(name)
    log.title(name)
    return store_of((header("s"), log.events))


async def listed(query: SessionQuery) -> object:
    return [record.header.id for record in (await query.list_sessions()).sessions]


async def text_of_event(query: SessionQuery) -> object:
    return (await query.read_event("s", 0)).target.raw


async def text_of_surface(query: SessionQuery) -> object:
    return (await query.read_surface("s")).events[0].raw


async def text_of_observation(query: SessionQuery) -> object:
    async with query.observe_session("s") as observed:
        return observed.events[0].raw


async def text_of_projection(query: SessionQuery) -> object:
    (result,) = await query.project_many(["s"], lambda log: log.events[0].raw)
    return result.value


async def title_of_session(query: SessionQuery) -> object:
    found = await query.read_title("s")
    return found and found.title


async def snippet(query: SessionQuery) -> object:
    page = await query.search_events("s", "common")
    return [hit.snippet for hit in page.items]


ANSWERS: dict[str, Read] = {
    read.__name__: read
    for read in (
        text_of_event,
        text_of_surface,
        text_of_observation,
        text_of_projection,
        title_of_session,
        snippet,
    )
}


# -- mounting, unmounting, replacing --------------------------------------------------------------


async def test_what_is_mounted_is_listed_read_and_found_and_hidden_again_without_it() -> None:
    store = store_of(session("s", "alpha"))
    async with open_session_query() as query:
        assert await listed(query) == []
        assert await sessions_of(query, "alpha") == []
        query.mount(store)
        assert await listed(query) == ["s"]
        assert await sessions_of(query, "alpha") == ["s"]
        assert len(await query.list_events("s")) == 1
        query.unmount()
        assert await listed(query) == []
        assert await sessions_of(query, "alpha") == []
        for read in (query.list_events("s"), query.read_title("s"), query.trace_session("s")):
            with refused(ErrorCode.SESSION_NOT_FOUND):
                await read
        with refused(ErrorCode.SESSION_NOT_FOUND):
            await query.search_events("s", "alpha")


async def test_a_store_that_is_mounted_again_is_not_read_again() -> None:
    store = store_of(session("s", "alpha"), session("t", "alpha"))
    async with open_session_query(store=store) as query:
        await query.refresh()
        query.unmount()
        assert await sessions_of(query, "alpha") == []
        append(store, "t", "alpha")
        store.forget()
        query.mount(store)
        assert await sessions_of(query, "alpha") == ["t", "s"]
        assert store.tails == [("t", 1)]


@pytest.mark.parametrize("name", ANSWERS)
async def test_a_store_is_never_answered_for_by_the_one_before(name: str) -> None:
    """Both have the same session under the same revision."""
    first, second = titled("common first"), titled("common second")
    read = ANSWERS[name]
    async with open_session_query(store=first) as query, open_session_query(store=second) as other:
        await query.refresh()
        before, right = await read(query), await read(other)
        query.mount(second)
        assert await read(query) == right != before
        query.mount(first)
        assert await read(query) == before


async def test_a_skipped_session_of_one_store_is_not_skipped_in_another() -> None:
    broken = Log()
    broken.add("user/message", {}, op="append")
    async with open_session_query(store=store_of((header("s"), broken.events))) as query:
        assert [left.session_id for left in (await query.search_sessions("a")).skipped] == ["s"]
        query.mount(store_of(session("s", "a")))
        page = await query.search_sessions("a")
        assert ([hit.header.id for hit in page.items], page.skipped) == (["s"], ())
        query.unmount()
        assert (await query.search_sessions("a")).skipped == ()


async def test_only_a_store_can_be_mounted() -> None:
    async with open_session_query(store=store_of(session("s", "a"))) as query:
        for other in (None, "sessions", Path(), SessionStore):
            with refused(ErrorCode.INVALID_CONFIG, "SessionStore"):
                query.mount(other)  # type: ignore[arg-type]
        assert await listed(query) == ["s"]
    with refused(ErrorCode.INVALID_CONFIG):
        query.mount(None)  # type: ignore[arg-type]
    with refused(ErrorCode.ABORTED, "closed"):
        query.mount(store_of())
    with refused(ErrorCode.ABORTED, "closed"):
        query.unmount()


async def test_unmounting_nothing_changes_nothing() -> None:
    async with open_session_query() as query, query.sessions.create(id="s") as live:
        await live.commit(message("word"), message("word"))
        cursor = (await query.search_sessions("word", limit=1)).next_cursor
        generation = await query.refresh()
        query.unmount()
        assert await query.refresh() == generation
        assert cursor is None


# -- calls that are under way ---------------------------------------------------------------------

STEPS: dict[Read, str] = {
    text_of_event: "_project",
    text_of_surface: "_project",
    text_of_observation: "_project",
    text_of_projection: "_project",
    title_of_session: "_project",
    listed: "sweep",
}
"""What each read does on a worker thread."""


@pytest.mark.parametrize("read", STEPS, ids=lambda read: read.__name__)
async def test_a_read_that_has_begun_goes_on_with_the_store_that_it_began_with(read: Read) -> None:
    hang = Hang(STEPS[read])
    answers: list[object] = []

    async def ask() -> None:
        answers.append(await read(query))

    never = IndexConfig(path=MEMORY, open_at="never")
    first, runtime = titled("first"), InlineRuntime(pace=hang)
    async with (
        open_session_query(store=first, index=never) as before,
        open_session_query(store=first, index=never, runtime=runtime) as query,
        trio.open_nursery() as nursery,
    ):
        right = await read(before)
        nursery.start_soon(ask)
        await wait_all_tasks_blocked()
        query.mount(store_of(session("t", "second")))
        hang.over.set()
        await wait_all_tasks_blocked()
        assert answers == [right]
        assert await listed(query) == ["t"]


async def test_a_batch_is_of_one_store_though_another_is_mounted_between_its_logs() -> None:
    """Two of the three logs still wait for a worker when the store is exchanged."""
    hang = Hang("_project")
    config = QueryConfig(persisted_read_concurrency=1)
    texts: list[object] = []

    async def ask() -> None:
        results = await query.project_many("abc", lambda log: log.events[0].data)
        texts.extend("first" in str(result.value) for result in results)

    first = store_of(*(session(each, "first") for each in "abc"))
    async with (
        open_session_query(store=first, config=config, runtime=InlineRuntime(pace=hang)) as query,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(ask)
        await wait_all_tasks_blocked()
        query.mount(store_of(*(session(each, "second") for each in "abc")))
        hang.over.set()
        await wait_all_tasks_blocked()
    assert texts == [True] * 3


async def test_a_log_that_was_read_late_from_the_old_store_is_not_kept() -> None:
    hang = Hang("_project")
    async with (
        open_session_query(store=titled("first"), runtime=InlineRuntime(pace=hang)) as query,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(text_of_event, query)
        await wait_all_tasks_blocked()
        query.mount(titled("second"))
        hang.over.set()
        await wait_all_tasks_blocked()
        assert "second" in str(await text_of_event(query))


async def test_an_observation_outlives_its_store() -> None:
    first, second = titled("first"), titled("second")
    async with (
        open_session_query(store=first) as query,
        query.observe_session("s") as observed,
    ):
        query.mount(second)
        async with query.observe_session("s") as now:
            assert "first" in str(observed.events[0].data)
            assert "second" in str(now.events[0].data)
        query.unmount()
        with observed.retain() as kept:
            assert kept.events == observed.events


@pytest.mark.parametrize("operation", ["sweep", "_take", "write"])
async def test_a_store_exchanged_in_the_middle_of_a_pass_is_observed_again(operation: str) -> None:
    hang = Hang(operation)
    found: list[list[str]] = []

    async def search() -> None:
        found.append(await sessions_of(query, "word"))

    first = store_of(session("a", "word"), session("b", "word"))
    async with (
        open_session_query(store=first, runtime=InlineRuntime(pace=hang)) as query,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(search)
        await wait_all_tasks_blocked()
        assert not found
        query.mount(store_of(session("a", "other"), session("c", "word")))
        hang.over.set()
        await wait_all_tasks_blocked()
        assert found == [["c"]]
        assert await sessions_of(query, "other") == ["a"]


@pytest.mark.parametrize("operation", ["sweep", "_take"])
async def test_what_fails_in_a_store_that_was_taken_away_is_no_failure(operation: str) -> None:
    class Gone(CountingStore):
        """Fails once it is no longer wanted."""

        def sweep(self):  # type: ignore[no-untyped-def]
            self.check()
            return super().sweep()

        def read_tail(self, session_id: str, mark: bytes | None, limit: int = 1 << 20) -> Tail:
            self.check()
            return super().read_tail(session_id, mark, limit)

        def check(self) -> None:
            if hang.over.is_set():
                raise StoreFailed("gone")

    hang = Hang(operation)
    found: list[list[str]] = []

    async def search() -> None:
        found.append(await sessions_of(query, "word"))

    gone = Gone(store_of(session("s", "word")).inner)
    async with (
        open_session_query(store=gone, runtime=InlineRuntime(pace=hang)) as query,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(search)
        await wait_all_tasks_blocked()
        assert not found
        query.unmount()
        hang.over.set()
        await wait_all_tasks_blocked()
    assert found == [[]]


# -- live sessions --------------------------------------------------------------------------------


@pytest.fixture(params=[MEMORY, "file"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> IndexConfig:
    path = MEMORY if request.param == MEMORY else str(tmp_path / "index.db")
    return IndexConfig(path=path)


async def test_a_live_session_goes_on_in_the_store_that_it_was_created_in() -> None:
    first, second = store_of(), store_of()
    async with open_session_query(store=first) as query:
        async with query.sessions.create(id="s") as live:
            assert live.store is first
            await live.commit(message("alpha"))
            query.mount(second)
            await live.flush()
            assert (first.inner.stat("s"), second.inner.stat("s")) != (None, None)
            assert second.inner.stat("s") is None
            await live.commit(message("beta"))
            assert await sessions_of(query, "beta") == ["s"]
            (record,) = (await query.list_sessions()).sessions
            assert (record.live, record.persisted) == (True, False)
        with first.inner.open("s", "read") as handle:
            assert len(handle.read()) == 2
        assert await sessions_of(query, "beta") == []
        query.mount(first)
        assert await sessions_of(query, "beta") == ["s"]


async def test_a_fork_is_stored_where_it_began_though_another_store_is_mounted_meanwhile() -> None:
    first, second, inheriting = store_of(), store_of(), Hang("_inherit")
    runtime = InlineRuntime(pace=inheriting)
    async with (
        open_session_query(store=first, runtime=runtime) as query,
        query.sessions.create(id="parent") as parent,
        trio.open_nursery() as nursery,
    ):
        await parent.commit(message("alpha"))

        async def fork() -> None:
            async with query.sessions.fork("parent", new_id="child"):
                pass

        nursery.start_soon(fork)
        await wait_all_tasks_blocked()
        query.mount(second)
        inheriting.over.set()
    assert "child" in {found.header.id for found in first.sweep().snapshots}
    assert second.sweep().snapshots == ()


async def test_a_session_can_be_resumed_from_the_store_that_is_mounted_alone() -> None:
    async with open_session_query(store=store_of(session("s", "a"))) as query:
        query.unmount()
        with pytest.raises(LiveSessionError) as error:
            async with query.sessions.resume("s"):
                pass
        assert error.value.code is LiveErrorCode.NOT_FOUND
        query.mount(store_of(session("t", "a")))
        async with query.sessions.resume("t") as live:
            assert live.durable


@pytest.mark.parametrize("moved", [False, True])
async def test_a_session_that_outlives_its_store_is_not_taken_for_one_of_the_next(
    index: IndexConfig, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock, moved: bool
) -> None:
    """The next store has a session of its id, header, length and revision, with other words."""
    monkeypatch.setattr(reconciler, "MOVABLE_EVENTS", 1 if moved else 512)
    # Revisions that tell no more than the length, as another kind of store may have them.
    monkeypatch.setattr(memory, "_digest", lambda before, *_: before + b"1")
    first, second = store_of(), store_of((header("s"), messages("other")))
    runtime = InlineRuntime()
    async with open_session_query(store=first, index=index, runtime=runtime) as query:
        async with query.sessions.create(id="s", created_at=START, cwd="/work") as live:
            await live.commit(message("word"))
            await live.flush()
            await query.refresh()
            await trio.sleep(1)  # moving begins when nobody has searched for a while
            query.mount(second)
            assert await events_of(query, "s", "word") == [0]
            assert await events_of(query, "s", "other") == []
            assert live.stored.revision == second.inner.stat("s").revision  # type: ignore[union-attr]
        assert await events_of(query, "s", "word") == []
        assert await events_of(query, "s", "other") == [0]
        query.mount(first)
        assert await events_of(query, "s", "word") == [0]


async def test_a_session_that_ends_while_its_store_is_away_is_not_read_when_it_comes_back(
    index: IndexConfig,
) -> None:
    store = store_of()
    async with open_session_query(store=store, index=index) as query:
        async with query.sessions.create(id="s") as live:
            await live.commit(message("word"))
            await query.refresh()
            query.unmount()
        assert await sessions_of(query, "word") == []
        store.forget()
        query.mount(store)
        assert await sessions_of(query, "word") == ["s"]
        assert store.logs_read == 0


async def test_the_first_move_of_a_live_session_beside_older_rows_is_no_news(
    index: IndexConfig, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    monkeypatch.setattr(reconciler, "MOVABLE_EVENTS", 1)
    store = store_of(session("s", "word", "word"))
    async with open_session_query(store=store, index=index, runtime=InlineRuntime()) as query:
        await query.refresh()
        append(store, "s", "word")
        async with query.sessions.resume("s") as live:
            await live.flush()
            cursor = (await query.search_sessions("word", limit=1)).next_cursor
            page = await query.search_events("s", "word", limit=1)
            generation = await query.refresh()
            assert query._reconciler is not None
            (entry,) = (await query._reconciler.open()).index.live.entries.values()
            assert not entry.in_file
            await trio.sleep(1)
            assert entry.in_file
            assert await query.refresh() == generation
            assert await query.changed_sessions(generation) == ()
            assert cursor is None
            await query.search_events("s", "word", limit=1, cursor=page.next_cursor)


# -- cursors and generations ----------------------------------------------------------------------


class Scene:
    """A service with a stored and two live sessions, and a cursor of each kind of search."""

    def __init__(self, query: SessionQuery, store: CountingStore) -> None:
        self.query = query
        self.store = store
        self.cursors: dict[str, str | None] = {}

    async def take_cursors(self) -> None:
        self.cursors[""] = (await self.query.search_sessions("word", limit=1)).next_cursor
        for name in ("stored", "saved", "unsaved"):
            page = await self.query.search_events(name, "word", limit=1)
            self.cursors[name] = page.next_cursor
        assert None not in self.cursors.values()

    async def outcomes(self) -> dict[str, str]:
        """How each cursor fares; the empty name is that of the session search."""
        found: dict[str, str] = {}
        for name, cursor in self.cursors.items():
            try:
                if name:
                    await self.query.search_events(name, "word", limit=1, cursor=cursor)
                else:
                    await self.query.search_sessions("word", limit=1, cursor=cursor)
            except SessionQueryError as error:
                found[name] = error.code.value.removeprefix("SESSION_QUERY_")
            else:
                found[name] = "VALID"
        return found


@asynccontextmanager
async def scene(index: IndexConfig) -> AsyncIterator[Scene]:
    store = store_of(session("stored", "word", "word"))
    async with (
        open_session_query(store=store, index=index) as query,
        query.sessions.create(id="saved") as saved,
        query.sessions.create(id="unsaved", durable=False) as unsaved,
    ):
        for live in (saved, unsaved):
            await live.commit(message("word"), message("word"))
            await live.flush()
        there = Scene(query, store)
        await there.take_cursors()
        yield there


async def unmount(there: Scene) -> None:
    there.query.unmount()


async def remount(there: Scene) -> None:
    there.query.unmount()
    there.query.mount(there.store)


async def remount_seen(there: Scene) -> None:
    there.query.unmount()
    await there.query.refresh()
    there.query.mount(there.store)


async def replace(there: Scene) -> None:
    there.query.mount(store_of(session("stored", "word", "word")))


async def mount_the_same(there: Scene) -> None:
    there.query.mount(there.store)


VALID, STALE, GONE = "VALID", "STALE_CURSOR", "SESSION_NOT_FOUND"


@pytest.mark.parametrize(
    ("change", "everywhere", "stored", "saved"),
    [
        (unmount, STALE, GONE, STALE),
        (remount, STALE, STALE, VALID),
        (remount_seen, STALE, STALE, STALE),
        (replace, STALE, STALE, STALE),
        (mount_the_same, STALE, STALE, VALID),
    ],
)
async def test_a_change_of_the_store_makes_stale_what_goes_through_it(
    index: IndexConfig,
    change: Callable[[Scene], Awaitable[None]],
    everywhere: str,
    stored: str,
    saved: str,
) -> None:
    """The live session that is stored is stale only where its ``persisted`` has changed."""
    async with scene(index) as there:
        await change(there)
        assert await there.outcomes() == {
            "": everywhere,
            "stored": stored,
            "saved": saved,
            "unsaved": VALID,
        }


async def test_a_change_of_the_store_is_a_new_generation_and_looking_at_it_again_is_none() -> None:
    store = store_of(session("s", "word"))
    async with open_session_query(store=store) as query:
        generations = [await query.refresh(), await query.refresh()]
        query.unmount()
        generations += [await query.refresh(), await query.refresh()]
        query.mount(store)
        generations += [await query.refresh(), await query.refresh()]
    first, _, second, _, third, _ = generations
    assert first < second < third
    assert generations == sorted(generations)
    assert [generations[n] == generations[n + 1] for n in (0, 2, 4)] == [True] * 3


async def test_a_title_that_is_committed_after_a_swap_is_that_of_the_live_session() -> None:
    async with open_session_query(store=store_of()) as query:
        async with query.sessions.create(id="s", created_at=START, cwd="/work") as live:
            await live.commit(title("live"))
            await query.refresh()
            query.mount(titled("stored"))
            assert await title_of_session(query) == "live"
        assert await title_of_session(query) == "stored"


# -- a store that fails for a while ---------------------------------------------------------------


async def test_a_log_that_could_not_be_read_is_tried_again_by_every_search(
    index: IndexConfig,
) -> None:
    class Failing(CountingStore):
        """Cannot read one log for a while."""

        failing: bool = True

        def read_tail(self, session_id: str, mark: bytes | None, limit: int = 1 << 20) -> Tail:
            if self.failing and session_id == "b":
                raise StoreFailed("for a while")
            return super().read_tail(session_id, mark, limit)

    store = Failing(store_of(*(session(each, "word") for each in "abc")).inner)
    async with open_session_query(store=store, index=index) as query:
        page = await query.search_sessions("word", limit=1)
        page = await query.search_sessions("word", limit=1, cursor=page.next_cursor)
        (left_out,) = page.skipped
        assert (left_out.session_id, left_out.code) == ("b", ErrorCode.PERSISTENCE_FAILED)
        store.failing = False
        assert await sessions_of(query, "word") == ["a", "b", "c"]
        assert (await query.search_sessions("word")).skipped == ()
