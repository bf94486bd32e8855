"""Exact reads and cancellation: before anything is read, and while the store is at work."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
from actor_world import message
from inline_runtime import InlineRuntime, lasting
from service_world import session, store_of
from trio.testing import MockClock

from session_query import IndexConfig, JsonlStore, SessionQuery, Text, open_session_query

Read = Callable[[SessionQuery], Awaitable[object]]


async def observe(query: SessionQuery) -> object:
    async with query.observe_session("s") as observed:
        return observed


READS: dict[str, Read] = {
    "list_sessions": lambda query: query.list_sessions(),
    "filter_sessions": lambda query: query.filter_sessions([]),
    "trace_session": lambda query: query.trace_session("s"),
    "read_session": lambda query: query.read_session("s"),
    "list_events": lambda query: query.list_events("s"),
    "filter_events": lambda query: query.filter_events("s", [Text("a")]),
    "read_surface": lambda query: query.read_surface("s"),
    "read_event": lambda query: query.read_event("s", 0),
    "trace_event": lambda query: query.trace_event("s", 0),
    "read_title": lambda query: query.read_title("s"),
    "project_many": lambda query: query.project_many(["s"], lambda log: log),
    "observe_session": observe,
}
NEVER = IndexConfig(path=":memory:", open_at="never")


@pytest.mark.parametrize("name", READS)
async def test_a_read_that_is_cancelled_before_it_begins_touches_nothing(name: str) -> None:
    store = store_of(session("s", "a"))
    async with open_session_query(store=store, index=NEVER) as query:
        with trio.CancelScope() as scope:
            scope.cancel()
            await READS[name](query)
        assert scope.cancelled_caught
        assert not store.calls


@pytest.mark.parametrize("name", READS)
async def test_a_read_that_has_begun_is_awaited_and_leaves_bare(
    name: str, autojump_clock: MockClock
) -> None:
    store, runtime = store_of(session("s", "a")), InlineRuntime(pace=lasting(5))
    async with open_session_query(store=store, index=NEVER, runtime=runtime) as query:
        start = trio.current_time()
        with trio.move_on_after(1) as scope:
            await READS[name](query)
        assert scope.cancelled_caught
        assert trio.current_time() - start == 5
        assert runtime.calls == 0
        assert store.calls.total() >= 1
        await READS[name](query)


@pytest.mark.parametrize("name", READS)
async def test_every_read_is_a_checkpoint(name: str) -> None:
    async with open_session_query(store=store_of(session("s", "a")), index=NEVER) as query:
        for _ in range(2):
            with trio.testing.assert_checkpoints():
                await READS[name](query)


@pytest.mark.parametrize("name", READS)
async def test_every_read_of_a_store_that_tells_of_no_change_is_a_checkpoint(
    name: str, tmp_path: Path
) -> None:
    store = JsonlStore(tmp_path)
    async with open_session_query(store=store, index=NEVER) as query:
        async with query.sessions.create(id="s") as live:
            await live.commit(message("a"))
        await READS[name](query)
        for _ in range(2):
            with trio.testing.assert_checkpoints():
                await READS[name](query)
