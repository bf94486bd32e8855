"""Rows of a running search: how fast it is stopped, and how it lets the event loop run."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from statistics import median

import trio
from busy_rows import SIDE_BY_SIDE
from measure import MS, Row, hash_buffer, percentile, row, timed_async
from search_rows import plainly
from stored import Stored, spellings, swept, told


async def cancelling(stored: Stored, rounds: int) -> list[Row]:
    """How fast a running search is stopped, and how it lets the event loop run meanwhile."""
    # A phrase of the two commonest words is what takes longest.
    phrase = " ".join(stored.corpus.vocabulary[:2])
    phrases, rng = spellings(phrase), random.Random(stored.corpus.seed)
    # A statement of the plain way runs to its end: it is left when it is done.
    plain = plainly(stored, lambda plain: plain.search_sessions(phrase))
    rows = []
    for name, service in (
        ("cancel a running search", told),
        ("cancel a running search, with a sweep", swept),
    ):
        async with service(stored.root, stored.index) as query:
            stops = await _stops(lambda: query.search_sessions(next(phrases)), rounds, rng)
        stop = percentile(stops, 0.95)
        note = f"{len(stops)} of {rounds} were running; plain: the whole search"
        ok = stop <= 10
        rows.append(row(name, "ms", stop, None, plain, budget="p95 ≤ 10", ok=ok, note=note))
    async with told(stored.root, stored.index) as query:
        one = await _lag(lambda: query.search_sessions(next(phrases)), 1)
        four = await _lag(lambda: query.search_sessions(next(phrases)), SIDE_BY_SIDE)
        hashing = await _lag(_hash_in_thread, SIDE_BY_SIDE)
    lag = "p99 of a 1 ms ticker"
    control = f"{lag}; limit: SHA-256 on four threads"
    ok = four <= 3 * hashing
    return [
        *rows,
        row("event-loop lag, one search", "ms", one, budget="p99 ≤ 5", ok=one <= 5, note=lag),
        row("event-loop lag, four", "ms", four, hashing, budget="≤ 3 ×", ok=ok, note=control),
    ]


async def _stops(
    search: Callable[[], Awaitable[object]], rounds: int, rng: random.Random
) -> list[float]:
    """Milliseconds from the cancellation of a running search until it has left, for each."""
    await search()
    length = median([await timed_async(search) for _ in range(3)]) / MS
    stops: list[float] = []
    while not stops:
        for _ in range(rounds):
            with trio.move_on_after(rng.uniform(0.1, 0.9) * length) as scope:
                await search()
            if scope.cancelled_caught:
                stops.append((trio.current_time() - scope.deadline) * MS)
    return stops


async def _hash_in_thread() -> None:
    await trio.to_thread.run_sync(hash_buffer)


async def _loop(work: Callable[[], Awaitable[object]]) -> None:
    while True:
        await work()


async def _lag(work: Callable[[], Awaitable[object]], tasks: int) -> float:
    """p99 in ms of how late a task wakes up that sleeps for 1 ms at a time."""
    late = []
    async with trio.open_nursery() as nursery:
        for _ in range(tasks):
            nursery.start_soon(_loop, work)
        for _ in range(500):
            due = trio.current_time() + 0.001
            await trio.sleep_until(due)
            late.append((trio.current_time() - due) * MS)
        nursery.cancel_scope.cancel()
    return percentile(late, 0.99)
