"""Rows of live sessions: a search right after a commit, by length and by number of sessions."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from typing import Final

from corpus import Corpus, long_log, user_message
from measure import Row, a_few, row, timed_async
from plain import PlainSearch
from stored import told

from session_query import EventDraft, LiveSession
from session_query.messages.event import Event
from session_query.messages.header import SessionHeader

LENGTHS: Final = (1_000, 10_000, 50_000)
FASTER: Final = {1_000: 25, 50_000: 1_000}
"""How many times faster than the plain way a search has to be, by length."""
EVENTS_OF_EACH: Final = 100
"""Events of each of many live sessions."""

_BATCH: Final = 1_000
_WORD: Final = "plumbline"


async def after_commit(
    folder: Path, corpus: Corpus, rounds: int, counts: Sequence[int]
) -> list[Row]:
    """A search right after one commit, beside an empty store that tells of changes."""
    rows: list[Row] = []
    ours: dict[int, float] = {}
    for length in LENGTHS:
        events = long_log(corpus, length)
        ours[length], unchanged = await _search_after_commit(folder, [events], rounds)
        plain, faster = _plainly([events]), FASTER.get(length)
        rows.append(
            row(
                f"search after a commit, {length:,} events",
                "ms",
                ours[length],
                unchanged,
                plain,
                budget=f"≤ 1/{faster:,} of plain" if faster else "",
                ok=ours[length] * faster <= plain if faster else None,
                note="limit: the next search, nothing committed",
                family="search after a commit, by events of the session",
                size=length,
            )
        )
    first, last = ours[LENGTHS[0]], ours[LENGTHS[-1]]
    flat = f"search after a commit, {LENGTHS[-1]:,} over {LENGTHS[0]:,}"
    rows.append(row(flat, "ms", last, first, budget="≤ 1.5 ×", ok=last <= 1.5 * first))
    for count in counts:
        logs = [long_log(corpus, EVENTS_OF_EACH)] * count
        spent, unchanged = await _search_after_commit(folder, logs, rounds)
        rows.append(
            row(
                f"search after a commit, {count:,} live sessions",
                "ms",
                spent,
                unchanged,
                _plainly(logs),
                note=f"{EVENTS_OF_EACH} events each; limit: the next search",
                family="search after a commit, by live sessions",
                size=count,
            )
        )
    return rows


async def _search_after_commit(
    folder: Path, logs: Sequence[tuple[Event, ...]], rounds: int
) -> tuple[float, float]:
    """Medians in ms of a search behind a commit, and of the next one."""
    store = folder / "empty"
    store.mkdir(exist_ok=True)
    index = folder / f"live-{len(logs)}-{len(logs[0])}.db"
    after, unchanged = [], []
    async with told(store, index) as query, AsyncExitStack() as stack:
        for log in logs:
            live = await stack.enter_async_context(query.sessions.create(durable=False))
            await _commit(live, log)
        await query.refresh()
        for number in range(rounds):
            await _commit(live, [user_message(0, f"{_WORD} {number}")])

            async def search(query_text: str = f"{_WORD} {number}") -> None:
                page = await query.search_sessions(query_text)
                assert page.items[0].best_match.seq == live.length - 1

            after.append(await timed_async(search))
            unchanged.append(await timed_async(search))
    return median(after), median(unchanged)


async def _commit(live: LiveSession, events: Sequence[Event]) -> None:
    drafts = [EventDraft(one.type, one.data, surface_op=one.surface_op) for one in events]
    for at in range(0, len(drafts), _BATCH):
        await live.commit(*drafts[at : at + _BATCH])


def _plainly(logs: Sequence[tuple[Event, ...]]) -> float:
    """Milliseconds of the same search, the plain way."""
    plain = PlainSearch(Path("nowhere"))
    for number, log in enumerate(logs):
        header = SessionHeader(f"live-{number}", number)
        plain.live[header.id] = (header, list(log))
    plain.bring_up_to_date()
    events = plain.live["live-0"][1]

    def search() -> None:
        events.append(user_message(len(events), _WORD))
        assert plain.search_sessions(_WORD)

    try:
        return a_few(search)
    finally:
        plain.close()
