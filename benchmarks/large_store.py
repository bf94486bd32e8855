"""Large stores of several shapes: how fast they are indexed, and in how much memory.

``python benchmarks/large_store.py [--gigabytes 5] [--shape NAME ...] [--json]``

Each shape is a store of its own in a temporary directory, indexed by a process of its own; `mixed`
is one store of all of them. The store and its index take about twice the size on disk.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count, cycle
from pathlib import Path
from typing import Final

import trio
from attrs import evolve, frozen
from corpus import USER, Corpus, long_log
from measure import Row, as_json, as_table, in_child, peak_mb, row

from session_query import IndexConfig, JsonlStore, open_session_query
from session_query.messages.json import encode
from session_query.storage.header_line import render_header
from session_query.storage.layout import encode_segment, log_name, project_name
from session_query.storage.records import render_event

RECORD_BYTES: Final = 64 * 1024 * 1024
BUDGET_MB: Final = 200 + (3 * RECORD_BYTES + 64 * 1024 * 1024) / 1e6
"""A cold build of ordinary logs, and for reading three of the longest records and 64 MiB."""
SESSION_BYTES: Final = 2_100
"""On top of that for each session: what is known of it while the store tells what changes."""

_SMALL_SESSIONS: Final = 200
"""Sessions that differ; beyond them their logs repeat under other ids."""
_LOG_EVENTS: Final = 20_000

Lines = Iterator[bytes]
Logs = Iterator[Lines]


@frozen
class Measured:
    """What a process reports that indexed a store."""

    seconds: float
    peak_mb: float
    sessions: int
    documents: int
    unreadable: int


def many_small_sessions(corpus: Corpus) -> Logs:
    """Logs of about 40 kB."""
    bodies = [b"".join(map(render_event, corpus.events(n))) for n in range(_SMALL_SESSIONS)]
    return (iter([body]) for body in cycle(bodies))


def few_huge_logs(corpus: Corpus) -> Logs:
    """Logs without an end."""
    events = long_log(corpus, _LOG_EVENTS)

    def lines() -> Lines:
        for first in count(step=len(events)):
            for event in events:
                yield _line(event.type, first + event.seq, event.raw, placed=bool(event.surface_op))

    return (lines() for _ in count())


def records_of_tens_of_megabytes(corpus: Corpus) -> Logs:
    """Logs of eight messages of 8 to 36 MB."""
    words = _words(corpus)
    return (
        (_line("user/message", seq, _message(words, 4_000_000 * (seq + 2))) for seq in range(8))
        for _ in count()
    )


def records_below_the_bound(corpus: Corpus) -> Logs:
    """Logs of two messages of almost 64 MiB, one of them all Chinese."""
    texts = [_words(corpus), "用户登录超时，请稍后重试。".encode()]
    return (
        (
            _line("user/message", seq, _message(text, RECORD_BYTES - 4096))
            for seq, text in enumerate(texts)
        )
        for _ in count()
    )


def records_of_tiny_lists(corpus: Corpus) -> Logs:
    """Logs in which a message and an attempt hold millions of values that nothing reads."""
    message = _message(_words(corpus), 2_000)
    lists = b"[" + b"[]," * ((RECORD_BYTES - 256 * 1024) // 3) + b"[]]"

    def lines() -> Lines:
        yield _line("user/message", 0, message)
        yield _line(
            "assistant/attempt", 1, b'{"turn":1,"step":1,"stream":%s}' % lists, placed=False
        )
        yield _line("user/message", 2, message[:-1] + b',"meta":%s}' % lists)

    return (lines() for _ in count())


SHAPES: Final[dict[str, Callable[[Corpus], Logs]]] = {
    "small": many_small_sessions,
    "huge": few_huge_logs,
    "tens": records_of_tens_of_megabytes,
    "bound": records_below_the_bound,
    "lists": records_of_tiny_lists,
}

MIXED: Final = {"small": 0.45, "huge": 0.3, "tens": 0.1, "bound": 0.1, "lists": 0.05}
"""The share of each shape in a mixed store."""

_HUGE_LOGS: Final = 3


def write(root: Path, shape: str, size: float) -> int:
    """Write about ``size`` bytes of logs of this shape below ``root``; how many it became."""
    longest = size / _HUGE_LOGS if shape == "huge" else size
    corpus = Corpus(_SMALL_SESSIONS)
    written = 0
    for number, lines in enumerate(SHAPES[shape](corpus)):
        header = evolve(corpus.header(number), id=f"{shape}-{number:06}")
        folder = root / project_name(header.cwd) / encode_segment(header.id)
        folder.mkdir(parents=True)
        with open(folder / log_name(header.version), "wb") as log:
            log.write(render_header(header))
            for line in lines:
                log.write(line)
                if log.tell() >= longest:
                    break
            written += log.tell()
        if written >= size:
            break
    return written


def index(root: Path, path: Path) -> Measured:
    """Index a store from nothing."""
    start = time.perf_counter()

    async def build() -> tuple[int, int, int]:
        config = IndexConfig(path=str(path))
        async with open_session_query(store=JsonlStore(root), index=config) as query:
            await query.refresh()
            status = await query.index_status()
            page = await query.search_sessions("login", limit=1)
            return status.sessions, status.documents, len(page.skipped)

    sessions, documents, unreadable = trio.run(build)
    return Measured(time.perf_counter() - start, peak_mb(), sessions, documents, unreadable)


def rows(shape: str, size: float) -> list[Row]:
    """Write a store of one shape, index it and remove it."""
    shares = MIXED if shape == "mixed" else {shape: 1.0}
    with tempfile.TemporaryDirectory(prefix="session-query-large-") as name:
        folder = Path(name)
        written = sum(write(folder / "store", one, size * part) for one, part in shares.items())
        found = in_child(index, folder / "store", folder / "index.db")
    size_mb = written / 1e6
    note = (
        f"{size_mb:,.0f} MB, {found.sessions:,} sessions, {found.documents:,} documents,"
        f" {found.unreadable} left out"
    )
    budget = BUDGET_MB + found.sessions * SESSION_BYTES / 1e6
    return [
        row(f"{shape}: cold index", "s", found.seconds, note=note),
        row(f"{shape}: rate", "MB/s", size_mb / found.seconds),
        row(
            f"{shape}: peak memory",
            "MB",
            found.peak_mb,
            budget=f"<= {budget:.0f}",
            ok=found.peak_mb <= budget,
        ),
    ]


def main(arguments: list[str]) -> int:
    """Measure what is asked for; the exit status is 0 whatever the figures say."""
    parser = argparse.ArgumentParser(description="Index large stores of several shapes.")
    parser.add_argument("--gigabytes", type=float, default=5.0, help="size of each store")
    parser.add_argument("--shape", nargs="+", choices=[*SHAPES, "mixed"], default=["mixed"])
    parser.add_argument("--json", action="store_true", help="one object a line")
    options = parser.parse_args(arguments)
    measured = [line for shape in options.shape for line in rows(shape, options.gigabytes * 1e9)]
    print("\n".join(map(as_json, measured)) if options.json else as_table(measured))
    return 0


def _line(kind: str, seq: int, raw: bytes, *, placed: bool = True) -> bytes:
    op = b',"surfaceOp":"append"' if placed else b""
    return b'{"type":"%s","seq":%d,"time":%d,"data":%s%s}\n' % (kind.encode(), seq, seq, raw, op)


def _message(text: bytes, size: int) -> bytes:
    """The payload of a message of ``size`` bytes of text."""
    block = b'{"type":"text","text":"%s"}' % (text * max(size // len(text), 1))
    return b'{"id":"m","role":"user","content":[%s],"source":%s}' % (block, encode(USER))


def _words(corpus: Corpus) -> bytes:
    """Some kilobytes of words."""
    texts = [document.text for document in corpus.documents_of(0) if document.text.isascii()]
    return " ".join(texts).replace("\n", " ").encode()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
