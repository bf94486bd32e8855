"""Rows of one long stored log: appended to, rewritten, read exactly and traced."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Final

import limits
import trio
from corpus import RARE, Corpus, long_log, user_message, write_log
from measure import Row, a_few, row, timed_async
from plain import PlainSearch, with_plain
from stored import spellings, told

from session_query import JsonlStore, SessionQuery, open_session_query
from session_query.history.documents import search_documents
from session_query.messages.event import Event
from session_query.messages.header import SessionHeader
from session_query.storage.header_line import render_header
from session_query.storage.records import render_event

LONG: Final = 50_000
TAIL: Final = 10
_SETTLED: Final = 0.03
"""Seconds after which a changed file is no longer taken for one that may change unseen."""


class LongLog:
    """A stored log of 50 000 events that another process changes."""

    def __init__(self, folder: Path, corpus: Corpus) -> None:
        self.root = folder / "long"
        self.index = folder / "long.db"
        self.header: SessionHeader = corpus.header(0)
        self.events: list[Event] = list(long_log(corpus, LONG))
        self.path = write_log(self.root, self.header, tuple(self.events))
        self._changes = 0

    def append(self) -> None:
        """Add ten messages."""
        tail = [self._message(len(self.events) + place) for place in range(TAIL)]
        self.events += tail
        with self.path.open("ab") as file:
            file.write(b"".join(map(render_event, tail)))

    def rewrite(self) -> None:
        """Put a log in its place whose first message is another."""
        first = next(at for at, one in enumerate(self.events) if one.type == "user/message")
        self.events[first] = self._message(first)
        beside = self.path.with_suffix(".new")
        beside.write_bytes(render_header(self.header) + b"".join(map(render_event, self.events)))
        os.replace(beside, self.path)

    def _message(self, seq: int) -> Event:
        self._changes += 1
        return user_message(seq, f"{RARE} {self._changes}")


async def changed_logs(folder: Path, corpus: Corpus, rounds: int) -> list[Row]:
    """A search behind what another process did to the log."""
    log = LongLog(folder, corpus)

    def plainly(change: Callable[[], None]) -> float:
        def search(plain: PlainSearch) -> None:
            change()
            assert plain.search_sessions(RARE)

        return with_plain(
            log.root, folder / "long-plain.db", lambda one: a_few(lambda: search(one))
        )

    async with told(log.root, log.index) as query:

        async def behind(change: Callable[[], None], times: int) -> tuple[float, float]:
            changed, unchanged, words = [], [], spellings(RARE)
            for _ in range(times):
                change()
                await trio.sleep(_SETTLED)
                changed.append(await timed_async(lambda: query.search_sessions(next(words))))
                await trio.sleep(_SETTLED)  # whatever a pause costs, both have had one
                unchanged.append(await timed_async(lambda: query.search_sessions(next(words))))
            return median(changed), median(unchanged)

        await behind(log.append, 1)
        appended, limit = await behind(log.append, rounds)
        rewritten, _ = await behind(log.rewrite, 3)
    return [
        row(
            f"search after {TAIL} events appended to {LONG:,}",
            "ms",
            appended,
            limit,
            plainly(log.append),
            budget="≤ + 2 ms",
            ok=appended <= limit + 2,
            note="limit: the next search, nothing appended",
        ),
        row(
            f"search after a log of {LONG:,} was replaced",
            "ms",
            rewritten,
            limits.decode_lines([log.path]),
            plainly(log.rewrite),
            note="limit: decoding its lines, no checks",
        ),
    ]


async def exact_reads(folder: Path, corpus: Corpus) -> list[Row]:
    """Reads of the log that go past the index, the first time and again."""
    log = LongLog(folder / "exact", corpus)
    session_id, seq = log.header.id, LONG // 2
    decoding = limits.decode_lines([log.path])
    reads: dict[str, tuple[Callable[[SessionQuery], Awaitable[object]], bool]] = {
        "one event": (lambda query: query.read_event(session_id, seq), False),
        "the whole log": (lambda query: query.read_session(session_id), False),
        "the records of all events": (lambda query: query.list_events(session_id), True),
        "the surface": (lambda query: query.read_surface(session_id), True),
        "the trace of one event": (lambda query: query.trace_event(session_id, seq), True),
        "the title": (lambda query: query.read_title(session_id), False),
    }
    plain = PlainSearch(log.root)
    whole = a_few(lambda: plain.log(session_id))
    folded = a_few(lambda: search_documents(plain.log(session_id), 2))
    plain.close()
    rows = []
    for name, (read, folds) in reads.items():
        async with open_session_query(store=JsonlStore(log.root)) as query:
            first = await timed_async(lambda: read(query))  # noqa: B023 - called before the next
            again = median([await timed_async(lambda: read(query)) for _ in range(20)])  # noqa: B023
        note = "limit: decoding its lines; plain: reading it" + " and folding it" * folds
        plainly = folded if folds else whole
        of = f"{name}, {LONG:,} events"
        ok = again <= 0.3 if name == "one event" else None
        budget = "≤ 0.3 ms" if name == "one event" else ""
        rows += [
            row(f"read {of}, first time", "ms", first, decoding, plainly, note=note),
            row(f"read {of}, again", "ms", again, None, plainly, budget=budget, ok=ok),
        ]
    return rows
