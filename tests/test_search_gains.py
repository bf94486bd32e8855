"""A search right after a few commits follows them itself, in the visit that opens its view."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import trio
from actor_world import Hang, message
from attrs import define, field
from inline_runtime import InlineRuntime
from service_world import sessions_of, store_of
from trio.testing import wait_all_tasks_blocked

from session_query.actors import reconciler, reconciliation
from session_query.actors.composition import open_session_query
from session_query.actors.live_session import LiveSession
from session_query.actors.service import SessionQuery
from session_query.messages.config import IndexConfig, QueryConfig
from session_query.storage import index
from session_query.storage.contract import SessionStore
from session_query.storage.jsonl import JsonlStore

FOLLOW = "follow_and_open"


@define(eq=False)
class World:
    """A service whose index agrees with its one live session, ``"s"``."""

    query: SessionQuery
    live: LiveSession
    hang: Hang
    calls: list[str] = field(factory=list)
    """What ran on worker threads since the agreement, in order."""

    async def search(self, word: str, found: list[list[str]]) -> None:
        found.append(await sessions_of(self.query, word))


@asynccontextmanager
async def world(
    store: SessionStore | None = None,
    *,
    path: str = ":memory:",
    hangs: str = "",
    concurrency: int = 1,
) -> AsyncIterator[World]:
    calls, hang = list[str](), Hang("")

    def observe(moment: str, fn: Callable[..., object]) -> None:
        if moment == "begin":
            calls.append(getattr(getattr(fn, "func", fn), "__name__", ""))

    async with (
        open_session_query(
            store=store,
            index=IndexConfig(path=path),
            config=QueryConfig(search_concurrency=concurrency),
            runtime=InlineRuntime(pace=hang, observe=observe),
        ) as query,
        query.sessions.create(id="s", durable=False) as live,
    ):
        await live.commit(message("first"))
        assert await sessions_of(query, "first") == ["s"]
        await wait_all_tasks_blocked()
        calls.clear()
        hang.operation = hangs
        yield World(query, live, hang, calls)


async def test_a_search_after_a_commit_visits_one_worker_thread() -> None:
    async with world() as here:
        await here.live.commit(message("second"))
        assert await sessions_of(here.query, "second") == ["s"]
        assert here.calls == [FOLLOW, "_scan"]


async def test_so_it_does_where_the_store_tells_what_changes(tmp_path: Path) -> None:
    async with world(JsonlStore(tmp_path)) as here:
        assert here.query.statistics().notified
        await here.live.commit(message("second"))
        assert await sessions_of(here.query, "second") == ["s"]
        assert here.calls == [FOLLOW, "_scan"]


async def test_a_store_that_does_not_tell_is_swept_by_a_pass() -> None:
    async with world(store_of()) as here:
        await here.live.commit(message("second"))
        assert await sessions_of(here.query, "second") == ["s"]
        assert here.calls == ["sweep", "follow", "_view", "_scan"]


async def test_a_search_after_nothing_visits_one_worker_thread() -> None:
    async with world() as here:
        assert await sessions_of(here.query, "first") == ["s"]
        assert here.calls == ["_view", "_scan"]


async def test_what_is_committed_while_a_search_follows_is_found_by_the_next() -> None:
    found = list[list[str]]()
    async with world(hangs=FOLLOW) as here, trio.open_nursery() as nursery:
        await here.live.commit(message("second"))
        nursery.start_soon(here.search, "second", found)
        await wait_all_tasks_blocked()
        await here.live.commit(message("third"))
        here.hang.over.set()
        await wait_all_tasks_blocked()
        assert found == [["s"]]
        assert await sessions_of(here.query, "third") == ["s"]


async def test_a_search_that_begins_while_another_follows_waits_for_its_own_commit() -> None:
    found = list[list[str]]()
    async with (
        world(hangs=FOLLOW, concurrency=2) as here,
        trio.open_nursery() as nursery,
    ):
        await here.live.commit(message("second"))
        nursery.start_soon(here.search, "second", found)
        await wait_all_tasks_blocked()
        await here.live.commit(message("third"))
        nursery.start_soon(here.search, "third", found)
        await wait_all_tasks_blocked()
        assert found == []
        here.hang.over.set()
        await wait_all_tasks_blocked()
        assert found == [["s"], ["s"]]


async def test_what_a_search_has_followed_it_scans_without_keeping_others_from_following(
    tmp_path: Path,
) -> None:
    found = list[list[str]]()
    async with (
        world(path=str(tmp_path / "index"), hangs="_scan") as here,
        trio.open_nursery() as nursery,
    ):
        await here.live.commit(message("second"))
        nursery.start_soon(here.search, "second", found)
        await wait_all_tasks_blocked()
        assert here.calls == [FOLLOW, "_scan"]
        await here.live.commit(message("third"))
        await here.query.refresh()
        assert found == []
        here.hang.over.set()


async def test_a_search_that_is_cancelled_while_it_follows_leaves_the_rest_to_the_next() -> None:
    async with world(hangs=FOLLOW) as here:
        await here.live.commit(message("second"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(here.search, "second", [])
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
            here.hang.over.set()
        here.calls.clear()
        assert await sessions_of(here.query, "second") == ["s"]
        assert "_scan" in here.calls


async def test_a_pass_follows_what_is_more_than_a_search_takes_upon_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reconciliation, "GAINED_EVENTS", 2)
    async with world() as here:
        await here.live.commit(*(message("second") for _ in range(3)))
        assert await sessions_of(here.query, "second") == ["s"]
        assert FOLLOW not in here.calls
        await here.live.commit(*(message("third") for _ in range(2)))
        assert await sessions_of(here.query, "third") == ["s"]
        assert FOLLOW in here.calls


async def test_a_pass_follows_more_sessions_than_a_search_takes_upon_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reconciliation, "GAINING_SESSIONS", 1)
    async with world() as here, AsyncExitStack() as stack:
        other = await stack.enter_async_context(here.query.sessions.create(id="o", durable=False))
        await other.commit(message("first"))
        assert sorted(await sessions_of(here.query, "first")) == ["o", "s"]
        await other.commit(message("second"))
        await here.live.commit(message("second"))
        assert sorted(await sessions_of(here.query, "second")) == ["o", "s"]
        assert FOLLOW not in here.calls


async def test_a_session_that_began_anew_under_its_id_is_none_that_gained() -> None:
    async with world() as here:
        async with here.query.sessions.create(id="t", durable=False) as before:
            await before.commit(message("before"))
            assert await sessions_of(here.query, "before") == ["t"]
        async with here.query.sessions.create(id="t", durable=False) as after:
            await after.commit(message("after"))
            assert await sessions_of(here.query, "after") == ["t"]
            assert await sessions_of(here.query, "before") == []


async def test_whoever_waits_for_a_generation_hears_of_what_a_search_followed(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with world() as here:
        before, heard = here.query.generation, list[int]()

        async def wait() -> None:
            heard.append(await here.query.wait_for_generation(before))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await wait_all_tasks_blocked()
            await here.live.commit(message("second"))
            assert await sessions_of(here.query, "second") == ["s"]
            await wait_all_tasks_blocked()
            assert heard == [before + 1]
        assert trio.current_time() < 0.25


async def test_upkeep_is_thought_of_though_no_pass_is_wanted(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciler, "UNKEPT_EVENTS", 4)
    monkeypatch.setattr(index, "_MERGE_RECENT_AFTER", 3)
    async with world() as here:
        await trio.sleep(1)
        here.calls.clear()
        for number in range(3):
            await here.live.commit(message(f"word {number}"))
            assert await sessions_of(here.query, f"word {number}") == ["s"]
        await trio.sleep(1)
        assert here.calls == [FOLLOW, "_scan"] * 3
        await here.live.commit(message("word 3"))
        assert await sessions_of(here.query, "word 3") == ["s"]
        await trio.sleep(1)
        assert here.calls[-1] == "merge"
