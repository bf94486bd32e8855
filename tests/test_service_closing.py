"""Who waits for a reader as the service is cancelled is told that, and nothing of the session."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import pytest
import trio
from service_world import refused, session
from trio.testing import wait_all_tasks_blocked

from session_query import ErrorCode, MemoryStore, QueryConfig, SessionQuery, open_session_query


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
