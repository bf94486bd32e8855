"""Which live sessions a search looks at: those that changed, however many there are beside them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from unittest import mock

import pytest
import trio
from actor_world import Hang, message
from inline_runtime import InlineRuntime
from service_world import refused, session, sessions_of, store_of
from trio.testing import wait_all_tasks_blocked

from session_query.actors import registry
from session_query.actors.composition import open_session_query
from session_query.actors.live_session import LiveSession
from session_query.actors.service import SessionQuery
from session_query.messages.errors import ErrorCode, SessionQueryError
from session_query.messages.records import SessionSearchPage
from session_query.storage.contract import SessionStore
from session_query.storage.index import SearchIndex
from session_query.storage.live_arm import LiveArm, LiveSnapshot
from session_query.storage.memory import MemoryStore

MANY = 1_000


@asynccontextmanager
async def crowd(
    count: int, store: SessionStore | None = None
) -> AsyncIterator[tuple[SessionQuery, list[LiveSession]]]:
    """A service with so many live sessions, all of them indexed."""
    async with (
        open_session_query(store=store, runtime=InlineRuntime()) as query,
        AsyncExitStack() as stack,
    ):
        sessions = [
            await stack.enter_async_context(query.sessions.create(id=f"{at:04}", durable=False))
            for at in range(count)
        ]
        for one in sessions:
            await one.commit(message("crowd"))
        await query.refresh()
        yield query, sessions


def runtime_of(query: SessionQuery) -> InlineRuntime:
    """The runtime of such a service."""
    runtime = query.sessions._runtime
    assert isinstance(runtime, InlineRuntime)
    return runtime


@contextmanager
def looks() -> Iterator[set[str]]:
    """Ids of the live sessions whose events or stored state anybody asks for within the block."""
    seen: set[str] = set()

    def watched(name: str) -> property:
        getter = getattr(LiveSession, name).fget

        def get(one: LiveSession) -> object:
            seen.add(one.id)
            value: object = getter(one)
            return value

        return property(get)

    needs = LiveArm.needs

    def asked(arm: LiveArm, snapshot: LiveSnapshot) -> bool:
        seen.add(snapshot.source.header.id)
        return needs(arm, snapshot)

    with ExitStack() as patches:
        for name in ("events", "length", "stored"):
            patches.enter_context(mock.patch.object(LiveSession, name, watched(name)))
        patches.enter_context(mock.patch.object(LiveArm, "needs", asked))
        yield seen


@pytest.mark.parametrize("store", [store_of(), None], ids=["stored", "unmounted"])
async def test_a_search_looks_at_the_one_of_a_thousand_live_sessions_that_changed(
    store: SessionStore | None,
) -> None:
    async with crowd(MANY, store) as (query, sessions):
        await sessions[500].commit(message("needle"))
        with looks() as seen:
            assert await sessions_of(query, "needle") == ["0500"]
        assert seen == {"0500"}
        with looks() as seen:
            assert await sessions_of(query, "needle") == ["0500"]
        assert seen == set()


async def test_a_search_looks_at_the_sessions_that_began_and_at_no_other() -> None:
    async with (
        crowd(20) as (query, sessions),
        query.sessions.create(id="new", durable=False) as new,
        query.sessions.fork(sessions[3], new_id="child", durable=False),
    ):
        await new.commit(message("needle"))
        with looks() as seen:
            assert await sessions_of(query, "needle") == ["new"]
        assert seen == {"new", "child"}
        assert "child" in await sessions_of(query, "crowd", limit=50)


async def test_a_search_looks_at_no_session_but_the_one_that_ended() -> None:
    async with crowd(20, store_of()) as (query, _):
        async with query.sessions.create(id="brief") as brief:
            await brief.commit(message("needle"))
            assert await sessions_of(query, "needle") == ["brief"]
        with looks() as seen:
            page = await query.search_sessions("needle")
        assert [(hit.live, hit.persisted) for hit in page.items] == [(False, True)]
        assert seen == {"brief"}


async def test_a_session_that_the_store_begins_to_list_is_looked_at() -> None:
    async with crowd(20, store_of()) as (query, _), query.sessions.create(id="one") as one:
        await one.commit(message("needle"))
        page = await query.search_sessions("needle")
        assert not page.items[0].persisted
        await one.flush()
        with looks() as seen:
            page = await query.search_sessions("needle")
        assert page.items[0].persisted
        assert seen <= {"one"}


@pytest.mark.parametrize("step", ["sweep", "follow"])
async def test_what_a_cancelled_pass_saw_is_looked_at_again(step: str) -> None:
    async with crowd(20, store_of()) as (query, sessions):
        await sessions[1].commit(message("first"))
        slow = Hang(step)
        with mock.patch.object(runtime_of(query), "pace", slow):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(query.search_sessions, "first")
                await wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()
                slow.over.set()
        await sessions[2].commit(message("second"))
        assert await sessions_of(query, "second") == ["0002"]
        assert await sessions_of(query, "first") == ["0001"]


async def test_what_a_failed_pass_saw_is_looked_at_again() -> None:
    async with crowd(20) as (query, sessions):
        await sessions[1].commit(message("first"))
        failure = SessionQueryError(ErrorCode.INDEX_FAILED, "the disk is full")
        with (
            mock.patch.object(SearchIndex, "follow", side_effect=failure),
            refused(ErrorCode.INDEX_FAILED, "the disk is full"),
        ):
            await query.search_sessions("first")
        await sessions[2].commit(message("second"))
        assert await sessions_of(query, "second") == ["0002"]
        assert await sessions_of(query, "first") == ["0001"]


async def test_more_changes_than_are_remembered_are_found_all_the_same() -> None:
    with mock.patch.object(registry, "KEPT_CHANGES", 3):
        async with crowd(20) as (query, sessions):
            for one in sessions[:10]:
                await one.commit(message("needle"))
            found = await sessions_of(query, "needle", limit=50)
            assert sorted(found) == [one.id for one in sessions[:10]]


async def test_no_search_sees_a_session_later_than_the_others() -> None:
    """Not even one that only the store tells of, and that goes on while the store is looked at."""
    store = MemoryStore([session("s", "alpha")])
    async with crowd(1, store) as (query, (other,)), query.sessions.resume("s") as live:
        assert await sessions_of(query, "alpha") == ["s"]
        stored = store._sessions.pop("s")
        looking, pages = Hang("sweep"), list[SessionSearchPage]()

        async def search(words: str) -> None:
            pages.append(await query.search_sessions(words))

        with mock.patch.object(runtime_of(query), "pace", looking):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(search, "alpha")
                nursery.start_soon(search, "needle")
                await wait_all_tasks_blocked()
                await live.commit(message("needle"))
                await other.commit(message("needle"))
                looking.over.set()
        store._sessions["s"] = stored
        found = sorted([(hit.header.id, hit.persisted) for hit in page.items] for page in pages)
        assert found == [[], [("s", False)]]
        assert sorted(await sessions_of(query, "needle")) == ["0000", "s"]
