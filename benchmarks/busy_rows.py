"""The row of a busy store: searches while another process goes on appending to one of its logs."""

from __future__ import annotations

import multiprocessing
import time
from multiprocessing.synchronize import Event as Signal
from pathlib import Path
from statistics import median
from typing import Final

from corpus import Corpus, long_log, write_log
from measure import Row, row, timed_async

from session_query import IndexConfig, JsonlStore, SessionQueryError, open_session_query
from session_query.messages.header import SessionHeader

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
