"""The reader pool: exact reads, tails and batches, each failure kept to its own request."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from builders import Log, header
from faulty_store import FaultyStore
from inline_runtime import InlineRuntime, lasting
from trio.testing import MockClock, wait_all_tasks_blocked

from session_query.actors.binding import StoreBinding
from session_query.actors.mailbox import MailboxClosed, running
from session_query.actors.reader_pool import LogReaderPool
from session_query.actors.runtime import Runtime, TrioRuntime
from session_query.messages.event import Event
from session_query.storage.contract import NotFound, StoredLog, StoreFailed, Sweep
from session_query.storage.memory import MemoryStore


def log_of(*texts: str) -> tuple[Event, ...]:
    log = Log()
    for text in texts:
        log.user(text)
    return tuple(log.events)


def store_of(*session_ids: str) -> FaultyStore:
    """Sessions with one event each."""
    return FaultyStore(MemoryStore((header(name), log_of(name)) for name in session_ids))


@asynccontextmanager
async def pool_over(
    store: FaultyStore | None, *, workers: int = 4, runtime: Runtime | None = None
) -> AsyncIterator[LogReaderPool]:
    binding = StoreBinding(store)
    async with running(LogReaderPool(binding, runtime or TrioRuntime(), workers)) as pool:
        yield pool
    assert store is None or store.open_handles == 0


def length(log: StoredLog) -> int:
    return len(log.events)


async def test_a_whole_log_is_read() -> None:
    async with pool_over(store_of("a")) as pool:
        log = await pool.read_log("a")
    assert log.snapshot.header == header("a")
    assert [event.type for event in log.events] == ["user/message"]


async def test_a_log_is_folded_by_the_worker() -> None:
    async with pool_over(store_of("a")) as pool:
        assert await pool.project("a", length) == 1


async def test_a_visit_does_one_piece_of_reading_with_the_bound_store() -> None:
    store = store_of("a")
    async with pool_over(store) as pool:
        mark = await pool.visit(lambda bound: bound.read_tail("a", None).mark)
        with store.inner.open("a", "write") as writer:
            writer.append(log_of("first", "second")[1:])
        tail = await pool.visit(lambda bound: bound.read_tail("a", mark))
    assert [event.seq for event in tail.events] == [1]


async def test_the_store_is_swept_and_looked_at() -> None:
    async with pool_over(store_of("a", "b")) as pool:
        sweep = await pool.sweep()
        assert [snapshot.header.id for snapshot in sweep.snapshots] == ["a", "b"]
        assert await pool.stat("b") == sweep.snapshots[1]
        assert await pool.stat("c") is None


async def test_without_a_store_the_corpus_is_empty() -> None:
    async with pool_over(None) as pool:
        assert await pool.sweep() == Sweep(())
        assert await pool.stat("a") is None
        with pytest.raises(NotFound, match="no store is mounted"):
            await pool.read_log("a")
        with pytest.raises(NotFound, match="no store is mounted"):
            await pool.visit(id)


async def test_a_request_reads_the_store_that_is_bound_when_it_begins() -> None:
    async with pool_over(store_of("a")) as pool:
        pool.binding.mount(store_of("b"))
        assert await pool.project("b", length) == 1
        with pytest.raises(NotFound):
            await pool.project("a", length)
        assert pool.binding.epoch == 1


async def test_a_failed_read_is_the_reply_to_that_request_alone() -> None:
    store = store_of("a")
    store.read_failures.append(StoreFailed("the disk is gone"))
    async with pool_over(store) as pool:
        with pytest.raises(StoreFailed, match="the disk is gone"):
            await pool.read_log("a")
        assert await pool.project("a", length) == 1


async def test_a_fold_that_fails_does_not_stop_the_pool() -> None:
    def spoil(_log: StoredLog) -> int:
        raise ZeroDivisionError

    async with pool_over(store_of("a")) as pool:
        with pytest.raises(ZeroDivisionError):
            await pool.project("a", spoil)
        assert await pool.project("a", length) == 1


async def test_a_batch_answers_each_id_once_in_the_order_of_first_occurrence() -> None:
    async with pool_over(store_of("a", "b", "c"), workers=2) as pool:
        answers = await pool.project_many(["c", "a", "c", "x", "b", "a"], length)
    assert list(answers) == ["c", "a", "x", "b"]
    missing = answers.pop("x")
    assert isinstance(missing, NotFound)
    assert answers == {"c": 1, "a": 1, "b": 1}


async def test_an_empty_batch_has_no_answers() -> None:
    async with pool_over(store_of()) as pool:
        assert await pool.project_many([], length) == {}


@pytest.mark.parametrize(("concurrency", "seconds"), [(None, 2), (3, 2), (2, 3), (1, 6)])
async def test_a_batch_keeps_to_its_concurrency(
    autojump_clock: MockClock, concurrency: int | None, seconds: int
) -> None:
    store = store_of(*"abcdef")
    async with pool_over(store, workers=3, runtime=InlineRuntime(lasting(1))) as pool:
        await pool.project_many("abcdef", length, concurrency=concurrency)
        assert trio.current_time() == seconds


async def test_an_exact_read_waits_for_one_log_while_a_batch_leaves_a_worker_free(
    autojump_clock: MockClock,
) -> None:
    store = store_of(*"abcdefgh")
    async with pool_over(store, workers=2, runtime=InlineRuntime(lasting(1))) as pool:

        async def batch() -> None:
            await pool.project_many("abcdefgh", length, concurrency=1)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(batch)
            await trio.sleep(0.5)
            await pool.read_log("h")
            assert trio.current_time() == 1.5


async def test_a_cancelled_batch_starts_nothing_more_and_awaits_what_has_started(
    autojump_clock: MockClock,
) -> None:
    folded: list[str] = []

    def remember(log: StoredLog) -> None:
        folded.append(log.snapshot.header.id)

    runtime = InlineRuntime(lasting(1))
    async with pool_over(store_of(*"abcdef"), workers=2, runtime=runtime) as pool:
        with trio.move_on_after(1.5) as scope:
            await pool.project_many("abcdef", remember)
        assert scope.cancelled_caught
        assert trio.current_time() == 2
        assert runtime.calls == 0
        await trio.sleep(10)
    assert sorted(folded) == ["a", "b", "c", "d"]


async def test_a_cancelled_read_gives_no_late_value(autojump_clock: MockClock) -> None:
    async with pool_over(store_of("a"), runtime=InlineRuntime(lasting(1))) as pool:
        with trio.move_on_after(0.5) as scope:
            await pool.read_log("a")
        assert scope.cancelled_caught
        assert trio.current_time() == 1


async def test_a_batch_is_cancelled_bare(autojump_clock: MockClock) -> None:
    async with pool_over(store_of(*"abc"), runtime=InlineRuntime(lasting(1))) as pool:
        with trio.move_on_after(0.5), pytest.raises(trio.Cancelled):
            await pool.project_many("abc", length)


async def test_closing_answers_what_was_accepted_and_refuses_the_rest_of_a_batch(
    autojump_clock: MockClock,
) -> None:
    results: list[object] = []
    async with trio.open_nursery() as nursery:
        runtime = InlineRuntime(lasting(1))
        async with pool_over(store_of(*"abcdef"), workers=2, runtime=runtime) as pool:

            async def read() -> None:
                results.append(await pool.project("a", length))

            async def batch() -> None:
                with pytest.raises(MailboxClosed):
                    await pool.project_many("bcdef", length, concurrency=1)
                results.append("refused")

            nursery.start_soon(read)
            nursery.start_soon(batch)
            await wait_all_tasks_blocked()
    assert results == [1, "refused"] or results == ["refused", 1]
