"""Large records are read one at a time in the whole process, and nobody waits for more than that.

The threads here are real ones; what they wait for is told by the line that they stand in.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import TypeAlias

import pytest
import trio
from builders import header
from inline_runtime import InlineRuntime
from service_world import messages, sessions_of

from session_query.actors.composition import open_session_query
from session_query.actors.service import SessionQuery
from session_query.storage import large_records
from session_query.storage.jsonl import JsonlStore
from session_query.storage.large_records import LARGE_BYTES, GaveUp, Turn, reading, wait_for_turn

PATIENCE = 20.0
"""Seconds after which a test has failed."""

Call: TypeAlias = Callable[[SessionQuery], Awaitable[object]]


@pytest.fixture(autouse=True)
def _line_ends_empty() -> Iterator[None]:
    yield
    assert not large_records._line


@pytest.fixture
def store(tmp_path: Path) -> JsonlStore:
    """A session with a large record, and one without."""
    found = JsonlStore(tmp_path)
    for session_id, text in (("large", "word " * (LARGE_BYTES // 4)), ("small", "word")):
        with found.create(header(session_id)) as handle:
            handle.append(messages(text))
    return found


@contextmanager
def elsewhere(workers: int = 1) -> Iterator[ThreadPoolExecutor]:
    """Other threads, and a large record in this one."""
    with ThreadPoolExecutor(workers) as pool, reading():
        wait_for_turn()
        yield pool


def waiting(length: int) -> bool:
    """Whether so many stand in line, the one whose turn it is included."""
    return len(large_records._line) >= length


def until_waiting(future: Future[object]) -> None:
    while not waiting(2):
        assert not future.done()


def read(store: JsonlStore, session_id: str) -> int:
    with store.open(session_id, "read") as handle:
        return len(handle.read())


def test_large_records_are_held_one_at_a_time() -> None:
    inside, most = 0, 0

    def work() -> None:
        nonlocal inside, most
        wait_for_turn()
        wait_for_turn()
        inside += 1
        most = max(most, inside)
        Event().wait(0.001)
        inside -= 1

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(Turn().doing(work)) for _ in range(40)]:
            done.result()
    assert (inside, most) == (0, 1)


def test_a_reader_of_a_large_record_waits_for_its_turn(store: JsonlStore) -> None:
    with ThreadPoolExecutor(1) as pool:
        with reading():
            wait_for_turn()
            future: Future[object] = pool.submit(read, store, "large")
            until_waiting(future)
        assert future.result(PATIENCE) == 1


def test_small_records_wait_for_nobody(store: JsonlStore) -> None:
    with elsewhere() as pool:
        assert pool.submit(read, store, "small").result(PATIENCE) == 1
        assert len(pool.submit(store.sweep).result(PATIENCE).snapshots) == 2


def test_what_reads_within_a_turn_reads_in_that_turn(store: JsonlStore) -> None:
    with reading(), reading():
        wait_for_turn()
        assert read(store, "large") == 1
        assert Turn().doing(read)(store, "large") == 1
        assert len(large_records._line) == 1


def test_a_turn_that_is_given_up_waits_no_longer(store: JsonlStore) -> None:
    turn = Turn()
    with elsewhere() as pool:
        future: Future[object] = pool.submit(turn.doing(read), store, "large")
        until_waiting(future)
        turn.give_up()
        with pytest.raises(GaveUp):
            future.result(PATIENCE)


def test_a_turn_that_was_given_up_before_it_had_to_wait_does_not_begin_to(
    store: JsonlStore,
) -> None:
    turn = Turn()
    turn.give_up()
    with elsewhere() as pool, pytest.raises(GaveUp):
        pool.submit(turn.doing(read), store, "large").result(PATIENCE)
    assert turn.doing(read)(store, "large") == 1


def test_a_turn_ends_with_the_error_of_its_work(store: JsonlStore) -> None:
    def fail() -> None:
        wait_for_turn()
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        Turn().doing(fail)()
    assert read(store, "large") == 1


async def resume(query: SessionQuery) -> None:
    async with query.sessions.resume("large"):
        pass


CALLS: dict[str, Call] = {
    "refresh": lambda query: query.refresh(),
    "search_sessions": lambda query: query.search_sessions("word"),
    "list_events": lambda query: query.list_events("large"),
    "read_title": lambda query: query.read_title("large"),
    "read_titles": lambda query: query.read_titles(["small", "large"]),
    "resume": resume,
}


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_waits_for_its_turn_and_leaves_at_once_when_it_is_cancelled(
    store: JsonlStore, name: str
) -> None:
    with trio.fail_after(PATIENCE):
        async with open_session_query(store=store) as query:
            with reading():
                wait_for_turn()
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(CALLS[name], query)
                    while not waiting(2):
                        await trio.lowlevel.checkpoint()
                    nursery.cancel_scope.cancel()
                assert not waiting(2)
            await CALLS[name](query)


async def test_calls_on_one_thread_never_wait_for_each_other(store: JsonlStore) -> None:
    async with (
        open_session_query(store=store, runtime=InlineRuntime()) as query,
        trio.open_nursery() as nursery,
    ):
        for call in CALLS.values():
            if call is not resume:
                nursery.start_soon(call, query)
        assert await sessions_of(query, "word") == ["large", "small"]
