"""Rows on the big corpus: building, sweeping, searching, titles, side by side, cancelling."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from statistics import median
from typing import Final

import apsw
import limits
import trio
from corpus import RARE, Corpus
from measure import (
    MS,
    Row,
    control_scaling,
    hash_buffer,
    in_child,
    paired,
    peak_mb,
    percentile,
    row,
    timed_async,
)

from session_query import IndexConfig, JsonlStore, SessionQuery, open_session_query
from session_query.messages.config import no_text
from session_query.storage.contract import Sweep
from session_query.storage.log_slices import SessionSlice, read_slices

SIDE_BY_SIDE: Final = 4
_PAGE: Final = 20
_TITLES: Final = 100

STILL: Final = "no sweep"
"""How notes say that the store was a ``StillStore``."""


class Stored:
    """A corpus on disk, and where its index is."""

    def __init__(self, folder: Path, corpus: Corpus) -> None:
        self.corpus = corpus
        self.root = folder / "store"
        self.index = folder / "index" / "sessions.db"
        self.folder = folder
        corpus.write(self.root)
        self.common = corpus.common_word()

    def service_config(self) -> IndexConfig:
        """How the rows open the index."""
        return IndexConfig(path=str(self.index))

    def logs(self) -> list[Path]:
        """Every log, in the order of names."""
        return sorted(self.root.glob("*/*/*.jsonl"))


class StillStore(JsonlStore):
    """A store that is known not to change: its first sweep is every later one too."""

    _first: Sweep | None = None

    def sweep(self) -> Sweep:
        self._first = self._first or super().sweep()
        return self._first


def spellings(phrase: str) -> Iterator[str]:
    """Ever other spellings of a phrase: the same matches, and no ranking that is still kept."""
    letters = [at for at, letter in enumerate(phrase) if letter.isalpha()]
    for number in count():
        raised = {at for bit, at in enumerate(letters) if number >> bit & 1}
        yield "".join(
            letter.upper() if at in raised else letter for at, letter in enumerate(phrase)
        )


def cold_build(stored: Stored) -> list[Row]:
    """From JSONL files to a searchable index, in a fresh process each."""
    seconds, peak = in_child(_build, stored.root, stored.index)
    ours = stored.corpus.total / seconds
    bare = in_child(limits.raw_insert, stored.corpus, stored.folder / "raw.db")
    return [
        row("cold build", "docs/s", ours, bare, budget="≥ 0.6 ×", ok=ours >= 0.6 * bare),
        row("cold build, peak memory", "MB", peak, budget="< 200", ok=peak < 200),
    ]


def _build(root: Path, index: Path) -> tuple[float, float]:
    async def build() -> float:
        start = time.perf_counter()
        async with open_session_query(
            store=JsonlStore(root), index=IndexConfig(path=str(index))
        ) as query:
            await query.refresh()
            return time.perf_counter() - start

    return trio.run(build), peak_mb()


def reading(stored: Stored) -> list[Row]:
    """Logs read, checked, folded and cut into documents, without writing any."""
    store = JsonlStore(stored.root)
    snapshots = store.sweep().snapshots[:500]
    events = 0
    start = time.perf_counter()
    for snapshot in snapshots:
        for piece in read_slices(store, snapshot, None, None, no_text):
            assert isinstance(piece, SessionSlice)
            events += piece.events
    ours = (time.perf_counter() - start) * 1e6 / events
    bare = limits.decode_lines(stored.logs()[: len(snapshots)]) * 1e3 / events
    return [row("read and fold a log", "µs/event", ours, bare, note="limit: msgspec, no checks")]


async def searches(stored: Stored, rounds: int) -> list[Row]:
    """What a search costs when nothing has changed, by how much it finds."""
    rows = [await _sweep(stored, rounds)]
    async with _service(stored, JsonlStore(stored.root)) as query:
        rows += [await _rare(stored, query, rounds)]
    db = apsw.Connection(str(stored.index))
    try:
        async with _service(stored, StillStore(stored.root)) as query:
            rows += [await _rare_alone(query, rounds)]
            rows += await _common(stored, query, db, rounds)
            rows += [await _titles(stored, query, db, rounds)]
    finally:
        db.close()
    return rows


@asynccontextmanager
async def _service(stored: Stored, store: JsonlStore) -> AsyncIterator[SessionQuery]:
    """A service whose index is up to date."""
    async with open_session_query(store=store, index=stored.service_config()) as query:
        await query.refresh()
        yield query


async def _sweep(stored: Stored, rounds: int) -> Row:
    store = JsonlStore(stored.root)

    async def sweep() -> None:
        store.sweep()

    ours, bare = await paired(sweep, lambda: limits.bare_sweep(stored.root), rounds)
    return row("sweep of the store", "ms", ours, bare, budget="≤ 1.2 ×", ok=ours <= 1.2 * bare)


async def _rare(stored: Stored, query: SessionQuery, rounds: int) -> Row:
    store, words = JsonlStore(stored.root), spellings(RARE)

    async def search() -> None:
        assert (await query.search_sessions(next(words))).items

    ours, sweep = await paired(search, store.sweep, rounds)
    ok = ours <= sweep + 1.5
    note = "limit: our sweep"
    return row("search, rare word", "ms", ours, sweep, budget="≤ + 1.5 ms", ok=ok, note=note)


async def _rare_alone(query: SessionQuery, rounds: int) -> Row:
    words = spellings(RARE)
    spent = [await timed_async(lambda: query.search_sessions(next(words))) for _ in range(rounds)]
    ours, note = median(spent), f"{STILL}: what change notification will leave"
    return row("the same, no sweep", "ms", ours, budget="≤ 1 ms", ok=ours <= 1, note=note)


async def _common(
    stored: Stored, query: SessionQuery, db: apsw.Connection, rounds: int
) -> list[Row]:
    word = stored.common
    words = spellings(word)
    share = limits.count_matches(db, word) / stored.corpus.total

    async def first_page() -> None:
        assert (await query.search_sessions(next(words))).items

    ours, bare = await paired(first_page, lambda: limits.count_matches(db, word), rounds)
    name, note = f"search, word in {share:.0%} of documents", f"{STILL}; limit: count(*)"
    rows = [row(name, "ms", ours, bare, budget="≤ 12 ×", ok=ours <= 12 * bare, note=note)]
    cursor = None
    for _ in range(4):
        cursor = (await query.search_sessions(word, limit=_PAGE, cursor=cursor)).next_cursor
    ids = limits.matching_ids(db, word, _PAGE)

    async def fifth_page() -> None:
        assert (await query.search_sessions(word, limit=_PAGE, cursor=cursor)).items

    ours, bare = await paired(fifth_page, lambda: limits.hydrate(db, ids), rounds)
    ok, note = ours <= bare + 1.5, f"{STILL}; limit: reading the rows of the page"
    return [*rows, row("the same, page 5", "ms", ours, bare, budget="≤ + 1.5 ms", ok=ok, note=note)]


async def _titles(stored: Stored, query: SessionQuery, db: apsw.Connection, rounds: int) -> Row:
    step = max(stored.corpus.sessions // _TITLES, 1)
    ids = [stored.corpus.header(number).id for number in range(0, step * _TITLES, step)]

    async def read() -> None:
        titles = await query.read_titles(ids)
        assert all(one.title is not None for one in titles)

    def bare() -> None:
        for session_id in ids:
            db.execute("SELECT title FROM session WHERE id = ?", (session_id.encode(),)).fetchone()

    ours, limit = await paired(read, bare, rounds)
    note = "limit: 100 rows by id, no stat"
    return row("titles of 100 hits", "ms", ours, limit, budget="≤ 2 ms", ok=ours <= 2, note=note)


async def side_by_side(stored: Stored, rounds: int) -> list[Row]:
    """Four searches at a time against one, compared with C code on as many threads."""
    control = median(control_scaling(SIDE_BY_SIDE, 6) for _ in range(3))
    async with _service(stored, StillStore(stored.root)) as query:
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
            note=f"{STILL}; limit: SHA-256 on four threads",
        )
    ]


async def cancelling(stored: Stored, rounds: int) -> list[Row]:
    """How fast a running search is stopped, and how it lets the event loop run meanwhile."""
    # A phrase of the two commonest words is what takes longest.
    phrases = spellings(" ".join(stored.corpus.vocabulary[:2]))
    rng = random.Random(stored.corpus.seed)
    rows = []
    for name, store in (
        ("cancel a running search", JsonlStore(stored.root)),
        ("cancel a running search, no sweep", StillStore(stored.root)),
    ):
        async with _service(stored, store) as query:
            stops = await _stops(lambda: query.search_sessions(next(phrases)), rounds, rng)
        stop = percentile(stops, 0.95)
        note = f"{len(stops)} of {rounds} were running"
        rows.append(row(name, "ms", stop, budget="p95 ≤ 10", ok=stop <= 10, note=note))
    async with _service(stored, JsonlStore(stored.root)) as query:
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
