"""Rows on growing logs and on the actors: commits, appends, stalls, asks, idle sessions."""

from __future__ import annotations

import gc
import time
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from typing import Final

import limits
import trio
import trio.testing
from attrs import define, field, frozen
from corpus import RARE, Corpus, long_log, user_message, write_log
from measure import MS, Row, in_child, resident_kb, row, timed, timed_async
from stored_rows import Stored, spellings

from session_query import EventDraft, IndexConfig, JsonlStore, open_session_query
from session_query.actors.mailbox import Mailbox, Request, running
from session_query.actors.reconciler import MOVABLE_EVENTS
from session_query.history.projection import SessionProjection
from session_query.messages.config import no_text
from session_query.messages.event import Event
from session_query.storage.contract import Snapshot
from session_query.storage.index import SearchIndex
from session_query.storage.log_slices import SessionSlice, fold_events
from session_query.storage.records import render_event

LIVE_LENGTHS: Final = (1_000, 10_000, 50_000)
LONG: Final = 50_000
IDLE_SESSIONS: Final = 2_000

_SETTLED: Final = 0.03
"""Seconds after which a changed file is no longer taken for one that may change unseen."""

_WORD: Final = "plumbline"


async def after_commit(folder: Path, corpus: Corpus, rounds: int) -> list[Row]:
    """A search right after one commit to a live session, against rewriting the session's rows."""
    rows: list[Row] = []
    ours: dict[int, float] = {}
    for length in LIVE_LENGTHS:
        events = long_log(corpus, length)
        ours[length] = await _search_after_commit(folder, events, rounds)
        bare = _rewriting(folder, events, max(1, rounds * LIVE_LENGTHS[0] // length))
        faster = {LIVE_LENGTHS[0]: 25, LIVE_LENGTHS[-1]: 1_000}.get(length)
        rows.append(
            row(
                f"search after a commit, {length:,} events",
                "ms",
                ours[length],
                bare,
                budget=f"≤ 1/{faster:,}" if faster else "",
                ok=ours[length] * faster <= bare if faster else None,
                note="an otherwise empty corpus; limit: rewriting the rows of the session",
            )
        )
    first, last = ours[LIVE_LENGTHS[0]], ours[LIVE_LENGTHS[-1]]
    flat = f"search after a commit, {LIVE_LENGTHS[-1]:,} over {LIVE_LENGTHS[0]:,}"
    return [*rows, row(flat, "ms", last, first, budget="≤ 1.5 ×", ok=last <= 1.5 * first)]


async def _search_after_commit(folder: Path, events: tuple[Event, ...], rounds: int) -> float:
    store = JsonlStore(folder / "empty")
    index = IndexConfig(path=str(folder / f"live-{len(events)}.db"))
    spent = []
    async with (
        open_session_query(store=store, index=index) as query,
        query.sessions.create(durable=False) as live,
    ):
        for at in range(0, len(events), 1_000):
            await live.commit(*map(_draft, events[at : at + 1_000]))
        await query.refresh()
        for number in range(rounds):
            await live.commit(_draft(user_message(0, f"{_WORD} {number}")))

            async def search(query_text: str = f"{_WORD} {number}") -> None:
                page = await query.search_sessions(query_text)
                assert page.items[0].best_match.seq == live.length - 1

            spent.append(await timed_async(search))
    return median(spent)


def _draft(event: Event) -> EventDraft:
    return EventDraft(event.type, event.data, surface_op=event.surface_op)


def _rewriting(folder: Path, events: tuple[Event, ...], rounds: int) -> float:
    plain = limits.Rewriting(folder / f"rewriting-{len(events)}.db", events)
    try:
        return median(
            timed(lambda: plain.search_after(user_message(len(plain.events), _WORD), _WORD))
            for _ in range(rounds)
        )
    finally:
        plain.close()


async def long_log_rows(folder: Path, corpus: Corpus, rounds: int) -> list[Row]:
    """A stored log of 50 000 events that another process appends to, and one event read from it."""
    events, header = long_log(corpus, LONG), corpus.header(0)
    root = folder / "long"
    path = write_log(root, header, events)
    length = len(events)
    index = IndexConfig(path=str(folder / "long.db"))
    appended, unchanged, reads = [], [], []
    async with open_session_query(store=JsonlStore(root), index=index) as query:
        words = spellings(RARE)

        async def search() -> None:
            await query.search_sessions(next(words))

        await query.refresh()
        for number in range(rounds):
            tail = [user_message(seq, f"{RARE} {number}") for seq in range(length, length + 10)]
            length += len(tail)
            with path.open("ab") as file:
                file.write(b"".join(map(render_event, tail)))
            await trio.sleep(_SETTLED)
            appended.append(await timed_async(search))
            unchanged.append(await timed_async(search))
        for _ in range(20):
            reads.append(await timed_async(lambda: query.read_event(header.id, LONG // 2)))
    ours, limit, read = median(appended), median(unchanged), median(reads[1:])
    return [
        row(
            "search after 10 events appended to 50,000",
            "ms",
            ours,
            limit,
            budget="≤ + 2 ms",
            ok=ours <= limit + 2,
            note="limit: the next search, nothing appended",
        ),
        row(
            "one event of 50,000, read again",
            "ms",
            read,
            budget="≤ 0.3 ms",
            ok=read <= 0.3,
            note="a fresh stat each time, no log read",
        ),
    ]


def commit_stall(stored: Stored, transactions: int) -> list[Row]:
    """The longest that the index writer is busy with one of many small transactions."""
    index = SearchIndex(stored.service_config(), no_text)
    projection = SessionProjection(stored.corpus.header(stored.corpus.sessions), no_text)
    writes, upkeep = [], []
    gc.collect()
    gc.freeze()  # the corpus must not be walked while the writer is timed
    try:
        for seq in range(transactions):
            piece = _piece(projection, user_message(seq, " ".join(_some_words(stored, seq))))
            start = time.thread_time()
            index.write([piece])
            if index.is_overdue:  # what the service does behind such a commit
                index.tidy(MOVABLE_EVENTS)
            writes.append((time.thread_time() - start) * MS)
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
    ]


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


def idle_sessions() -> list[Row]:
    """What a live session without events costs in memory."""
    ours = in_child(_idle)
    return [row("idle live session", "kB", ours, budget="≤ 12 kB", ok=ours <= 12)]


def _idle() -> float:
    async def hold() -> float:
        async with open_session_query() as query, AsyncExitStack() as stack:
            for _ in range(100):
                await stack.enter_async_context(query.sessions.create(durable=False))
            before = resident_kb()
            for _ in range(IDLE_SESSIONS):
                await stack.enter_async_context(query.sessions.create(durable=False))
            await trio.testing.wait_all_tasks_blocked()
            return (resident_kb() - before) / IDLE_SESSIONS

    return trio.run(hold)
