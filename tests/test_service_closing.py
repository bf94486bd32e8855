"""What is under way as the service is cancelled ends first, and who waits is told nothing else."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

import pytest
import trio
from service_world import refused, session
from trio.testing import wait_all_tasks_blocked

from session_query import ErrorCode, MemoryStore, QueryConfig, SessionQuery, open_session_query
from session_query.messages.config import MEMORY, IndexConfig
from session_query.storage.index import SearchIndex
from session_query.storage.index_view import View


class HangingStore(MemoryStore):
    """A store whose first opening takes until it is let go."""

    def __init__(self) -> None:
        super().__init__([session("slow", "word"), session("s", "word")])
        self.let_go = threading.Event()

    def open(self, session_id: str, access: Literal["read", "write"]) -> Any:
        if session_id == "slow":
            self.let_go.wait(30)
        return super().open(session_id, access)


async def observe(query: SessionQuery) -> None:
    async with query.observe_session("s"):
        pass


async def copy(query: SessionQuery) -> None:
    async with query.copy_log("s"):
        pass


READS: list[Callable[[SessionQuery], Awaitable[object]]] = [
    lambda query: query.read_session("s"),
    lambda query: query.read_title("s"),
    lambda query: query.project_many(["s"], lambda log: log),
    observe,
    copy,
]


@pytest.mark.parametrize("read", READS)
async def test_a_read_that_waits_as_the_service_is_cancelled_is_aborted(
    read: Callable[[SessionQuery], Awaitable[object]],
) -> None:
    store = HangingStore()

    async def waiting(query: SessionQuery) -> None:
        with refused(ErrorCode.ABORTED):
            await read(query)

    async with trio.open_nursery() as nursery:
        config = QueryConfig(persisted_read_concurrency=1)
        with trio.CancelScope() as host:
            async with open_session_query(store=store, config=config) as query:
                nursery.start_soon(query.read_session, "slow")
                await wait_all_tasks_blocked()
                nursery.start_soon(waiting, query)
                await wait_all_tasks_blocked()
                nursery.start_soon(release_when_all_wait, store)
                host.cancel()


async def release_when_all_wait(store: HangingStore) -> None:
    await wait_all_tasks_blocked()
    store.let_go.set()


@pytest.mark.parametrize("in_memory", [True, False])
async def test_a_cancelled_service_closes_its_index_behind_the_searches_that_use_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_memory: bool
) -> None:
    """Both are cancelled at once, and only threads can tell which of them is done first."""
    steps, begun, let_go = list[str](), threading.Event(), threading.Event()
    open_view, close = SearchIndex.open_view, SearchIndex.close

    def slowly_opened(index: SearchIndex, *args: Any, **options: Any) -> View:
        begun.set()
        assert let_go.wait(30)
        view = open_view(index, *args, **options)
        steps.append("opened")
        return view

    def closed(index: SearchIndex) -> None:
        steps.append("closed")
        close(index)

    monkeypatch.setattr(SearchIndex, "open_view", slowly_opened)
    monkeypatch.setattr(SearchIndex, "close", closed)
    index = IndexConfig(path=MEMORY if in_memory else str(tmp_path / "index"))
    async with trio.open_nursery() as outside:
        with trio.CancelScope() as scope:
            async with open_session_query(index=index) as query, trio.open_nursery() as nursery:
                nursery.start_soon(query.search_sessions, "word")
                while not begun.is_set():
                    await trio.lowlevel.checkpoint()
                outside.start_soon(_let_go_once_all_wait, let_go)
                scope.cancel()
    assert steps == ["opened", "closed"]
    async with open_session_query(index=index):
        pass


async def _let_go_once_all_wait(let_go: threading.Event) -> None:
    await wait_all_tasks_blocked()
    let_go.set()
