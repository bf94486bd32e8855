"""Rows of searches beside other work: each other, commits, and another process that appends."""

from __future__ import annotations

import multiprocessing
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.synchronize import Event as Signal
from pathlib import Path
from statistics import median
from typing import Final

import apsw
import limits
import trio
from corpus import Corpus, long_log, user_message, write_log
from measure import MS, Row, control_scaling, percentile, row, timed, timed_async
from stored import TOLD, Stored, spellings, told

from session_query import (
    EventDraft,
    IndexConfig,
    JsonlStore,
    LiveSession,
    SessionQuery,
    SessionQueryError,
    open_session_query,
)
from session_query.messages.header import SessionHeader

SIDE_BY_SIDE: Final = 4
CONCURRENT: Final = (1, 2, 4, 8)
COMMIT_SECONDS: Final = 0.01
_WRITERS: Final = 2

SESSIONS: Final = 1_000
SEARCHES: Final = 12
APPEND_SECONDS: Final = 0.05
_EVENTS: Final = 20_000


async def busy(folder: Path, rounds: int) -> list[Row]:
    """Search a store of 1 000 sessions while one of them gains an event every 50 ms."""
    root = folder / "busy"
    corpus = Corpus(SESSIONS)
    corpus.write(root)
    header = SessionHeader("busy", corpus.header(0).created_at, cwd="/busy")
    log = write_log(root, header, long_log(corpus, 10))
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    writer = context.Process(target=_append, args=(str(log), str(folder / "more"), stop))
    word, answered, times = corpus.common_word(), 0, list[float]()
    index = IndexConfig(path=str(folder / "busy.db"))
    async with open_session_query(store=JsonlStore(root), index=index) as query:
        await query.refresh()
        writer.start()
        try:
            for _ in range(max(SEARCHES, rounds)):
                try:
                    times.append(await timed_async(lambda: query.search_sessions(word)))
                    answered += 1
                except SessionQueryError:
                    times.append(float("nan"))
        finally:
            stop.set()
            writer.join()
    asked = len(times)
    return [
        row(
            f"searches answered of {asked}, an append every 50 ms",
            "searches",
            answered,
            float(asked),
            budget="all",
            ok=answered == asked,
            note=f"{SESSIONS:,} sessions; median {median(times):.1f} ms",
        )
    ]


async def side_by_side(stored: Stored, rounds: int) -> list[Row]:
    """Four searches at a time against one, compared with C code on as many threads."""
    control = median(control_scaling(SIDE_BY_SIDE, 6) for _ in range(3))
    async with told(stored.root, stored.index) as query:
        words = spellings(stored.common)

        async def search(times: int) -> None:
            for _ in range(times):
                assert (await query.search_sessions(next(words))).items

        async def four() -> None:
            async with trio.open_nursery() as nursery:
                for _ in range(SIDE_BY_SIDE):
                    nursery.start_soon(search, rounds)

        await four()
        scalings = []
        for _ in range(3):
            one = await timed_async(lambda: search(rounds))
            scalings.append(SIDE_BY_SIDE * one / await timed_async(four))
    ours = median(scalings)
    return [
        row(
            "four searches side by side",
            "× one",
            ours,
            control,
            budget="≥ 0.9 ×",
            ok=ours >= 0.9 * control,
            note=f"{TOLD}; limit: SHA-256 on four threads",
        )
    ]


async def while_writing(stored: Stored, rounds: int) -> list[Row]:
    """Searches a second, by how many are asked at once, while two live sessions commit."""
    plain = stored.plain_common
    rows = []
    async with told(stored.root, stored.index) as query, trio.open_nursery() as nursery:
        for _ in range(_WRITERS):
            nursery.start_soon(_commit_for_ever, query)
        for tasks in CONCURRENT:
            ours, slow = await _searches_a_second(query, stored.common, tasks, rounds)
            bare = _counts_a_second(stored, tasks, rounds)
            rows.append(
                row(
                    f"searches asked {tasks} at once, while sessions commit",
                    "/s",
                    ours,
                    bare,
                    MS / plain if plain else None,
                    note=f"p95 {slow:.0f} ms; limit: count(*) on as many threads, no commits",
                    family="searches at once, while sessions commit",
                    size=tasks,
                )
            )
        nursery.cancel_scope.cancel()
    return rows


async def _commit_for_ever(query: SessionQuery) -> None:
    async with query.sessions.create(durable=False) as live:
        while True:
            await _commit(live)
            await trio.sleep(COMMIT_SECONDS)


async def _commit(live: LiveSession) -> None:
    event = user_message(live.length, "one more line of a session that goes on")
    await live.commit(EventDraft(event.type, event.data, surface_op=event.surface_op))


async def _searches_a_second(
    query: SessionQuery, word: str, tasks: int, rounds: int
) -> tuple[float, float]:
    """Searches a second, and p95 of one in ms."""
    words, spent = spellings(word), list[float]()

    async def ask() -> None:
        for _ in range(rounds):
            spent.append(await timed_async(lambda: query.search_sessions(next(words))))

    async def ask_all() -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(tasks):
                nursery.start_soon(ask)

    total = await timed_async(ask_all)
    return tasks * rounds * MS / total, percentile(spent, 0.95)


def _counts_a_second(stored: Stored, tasks: int, rounds: int) -> float:
    connections = [apsw.Connection(str(stored.index)) for _ in range(tasks)]

    def count(db: apsw.Connection) -> None:
        for _ in range(rounds):
            limits.count_matches(db, stored.common)

    try:
        with ThreadPoolExecutor(tasks) as pool:
            total = timed(lambda: list(pool.map(count, connections)))
    finally:
        for db in connections:
            db.close()
    return tasks * rounds * MS / total


def _append(log: str, scratch: str, stop: Signal) -> None:
    """Append the lines of a longer log of the same session, one at a time."""
    path = Path(log)
    written = len(path.read_bytes().splitlines())
    longer = write_log(
        Path(scratch), SessionHeader("busy", 0, cwd="/busy"), long_log(Corpus(1), _EVENTS)
    )
    with path.open("ab", buffering=0) as file:
        for line in longer.read_bytes().splitlines(keepends=True)[written:]:
            if stop.is_set():
                return
            file.write(line)
            time.sleep(APPEND_SECONDS)
