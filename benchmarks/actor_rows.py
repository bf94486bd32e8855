"""Rows of the actors and the writer: commit stalls, questions to an actor, idle live sessions."""

from __future__ import annotations

import gc
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AsyncExitStack
from statistics import median
from typing import Final

import trio
import trio.testing
from attrs import define, field, frozen
from corpus import user_message
from measure import MS, Row, in_child, resident_kb, row
from stored import Stored

from session_query import open_session_query
from session_query.actors.mailbox import Mailbox, Request, running
from session_query.history.projection import SessionProjection
from session_query.messages.config import no_text
from session_query.messages.event import Event
from session_query.storage.contract import Snapshot
from session_query.storage.index import SearchIndex
from session_query.storage.log_slices import SessionSlice, fold_events

_ONES_BEFORE: Final = 100
"""Sessions whose memory is not counted: it is that of the first of everything."""


def commit_stall(stored: Stored, transactions: int) -> list[Row]:
    """The longest that the index writer is busy with one of many small transactions."""
    index = SearchIndex(stored.service_config(), no_text)
    projection = SessionProjection(stored.corpus.header(stored.corpus.sessions), no_text)
    writes, upkeep = [], []
    copies: list[Future[float]] = []
    gc.collect()
    gc.freeze()  # the corpus must not be walked while the writer is timed
    try:
        with ThreadPoolExecutor(1) as beside:
            for seq in range(transactions):
                piece = _piece(projection, user_message(seq, " ".join(_some_words(stored, seq))))
                start = time.thread_time()
                index.write([piece])
                if index.is_overdue:  # what the service does behind such a commit
                    index.merge()
                writes.append((time.thread_time() - start) * MS)
                if index.log.is_long and (not copies or copies[-1].done()):
                    copies.append(beside.submit(_copy_log, index))
        index.forget([projection.header.id])
        more = True
        while more:
            start = time.thread_time()
            more = index.tidy(0)
            upkeep.append((time.thread_time() - start) * MS)
    finally:
        gc.unfreeze()
        index.close()
    worst = max(writes)
    return [
        row(
            f"worst stall in {transactions:,} small commits",
            "ms CPU",
            worst,
            median(writes),
            budget="≤ 10 ms",
            ok=worst <= 10,
            note="the merge that is due behind some of them included; limit: the median commit",
        ),
        row(
            "longest piece of the upkeep afterwards",
            "ms CPU",
            max(upkeep),
            note="begins after a quiet time; the next search interrupts it",
        ),
        row(
            "longest copy of the log into the file",
            "ms CPU",
            max((copy.result() for copy in copies), default=0.0),
            note="on a thread of its own, beside the writer",
        ),
    ]


def _copy_log(index: SearchIndex) -> float:
    start = time.thread_time()
    index.copy_log()
    return (time.thread_time() - start) * MS


def _some_words(stored: Stored, seq: int) -> list[str]:
    words = stored.corpus.vocabulary
    return [words[(seq * 37 + place * place * 101) % len(words)] for place in range(40)]


def _piece(projection: SessionProjection, event: Event) -> SessionSlice:
    folded = fold_events(projection, [event])
    return SessionSlice(
        snapshot=Snapshot(projection.header, f"revision-{event.seq}"),
        begins=event.seq == 0,
        completes=True,
        documents=folded.documents,
        shadowed=(),
        projection=projection,
        mark=b"mark",
        events=1,
    )


@frozen
class _Ping(Request[int]):
    number: int


@define
class _Echo:
    mailbox: Mailbox = field(factory=lambda: Mailbox("echo", 0))

    async def run(self) -> None:
        await self.mailbox.serve(self._answer)

    async def _answer(self, request: _Ping) -> int:
        return request.number


async def asking(rounds: int) -> list[Row]:
    """One question to an actor and its answer."""
    spent = []
    async with running(_Echo()) as echo:
        for _ in range(20):
            start = time.perf_counter()
            for number in range(rounds):
                await echo.mailbox.ask(_Ping(number))
            spent.append((time.perf_counter() - start) / rounds * 1e6)
    ours, bare = median(spent), await _channels(rounds)
    note = "limit: there and back over two bare channels"
    return [row("ask round trip", "µs", ours, bare, budget="≤ 40 µs", ok=ours <= 40, note=note)]


async def _channels(rounds: int) -> float:
    ask, asked = trio.open_memory_channel[int](1)
    answer, answered = trio.open_memory_channel[int](1)
    spent = []

    async def serve() -> None:
        async for number in asked:
            await answer.send(number)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        for _ in range(20):
            start = time.perf_counter()
            for number in range(rounds):
                await ask.send(number)
                await answered.receive()
            spent.append((time.perf_counter() - start) / rounds * 1e6)
        ask.close()
    return median(spent)


def idle_sessions(sessions: int) -> list[Row]:
    """What a live session without events costs in memory."""
    ours, bare = in_child(_idle, sessions), in_child(_sleeping, sessions)
    name, note = f"idle live session, of {sessions:,}", "limit: a task that sleeps"
    return [row(name, "kB", ours, bare, budget="≤ 12 kB", ok=ours <= 12, note=note)]


def _idle(sessions: int) -> float:
    async def hold() -> float:
        async with open_session_query() as query, AsyncExitStack() as stack:

            async def more(count: int) -> None:
                for _ in range(count):
                    await stack.enter_async_context(query.sessions.create(durable=False))

            return await _kilobytes_each(more, sessions)

    return trio.run(hold)


def _sleeping(tasks: int) -> float:
    async def hold() -> float:
        async with trio.open_nursery() as nursery:

            async def more(count: int) -> None:
                for _ in range(count):
                    nursery.start_soon(trio.sleep_forever)

            each = await _kilobytes_each(more, tasks)
            nursery.cancel_scope.cancel()
        return each

    return trio.run(hold)


async def _kilobytes_each(more: Callable[[int], Awaitable[None]], count: int) -> float:
    await more(_ONES_BEFORE)
    await trio.testing.wait_all_tasks_blocked()
    before = resident_kb()
    await more(count)
    await trio.testing.wait_all_tasks_blocked()
    return (resident_kb() - before) / count
