"""Rows of a first build: its rate, its stages, its memory, and the size of what it leaves."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import limits
import trio
from measure import MS, Row, in_child, peak_mb, row, timed
from stored import Stored

from session_query import IndexConfig, JsonlStore, open_session_query
from session_query.history.projection import SessionProjection
from session_query.messages.config import Tokenizer, no_text
from session_query.storage.index_file import open_index_file
from session_query.storage.log_slices import fold_events
from session_query.storage.tokens import indexed_form

T = TypeVar("T")

_STAGE_LOGS: Final = 500
"""Logs that are taken through the stages one after the other."""


def cold_build(stored: Stored) -> list[Row]:
    """From JSONL files to a searchable index, in a fresh process each."""
    total = stored.corpus.total
    seconds, peak = in_child(built, stored.root, stored.index)
    bare = in_child(limits.raw_insert, stored.corpus, stored.folder / "raw.db")
    plain_seconds, plain_peak, plain_size = (
        stored.plain_build if stored.has_plain else (None, None, None)
    )
    text = bare.text_bytes
    notes = (
        f"{stored.corpus.sessions:,} sessions, {total:,} documents, {stored.bytes / 1e6:,.0f} MB"
    )

    def rate(name: str, amount: float, budget: str = "", ok: bool | None = None) -> Row:
        plain = amount / plain_seconds if plain_seconds else None
        ours, limit = amount / seconds, amount / bare.seconds
        note = notes if budget else "limit: the rate of inserting alone"
        return row(
            f"cold build, {name}", f"{name}/s", ours, limit, plain, budget=budget, ok=ok, note=note
        )

    return [
        rate("docs", total, "≥ 0.6 ×", bare.seconds >= 0.6 * seconds),
        rate("events", stored.events),
        rate("MB", stored.bytes / 1e6),
        row("cold build, peak memory", "MB", peak, None, plain_peak, budget="< 200", ok=peak < 200),
        row(
            "size of the index over its text",
            "×",
            _size(stored.index) / text,
            bare.file_bytes / text,
            plain_size / text if plain_size else None,
            note=f"{text / 1e6:,.0f} MB of text; limit: the tables alone",
        ),
    ]


def built(root: Path, index: Path) -> tuple[float, float]:
    """Seconds of a first build, and peak memory in MB."""

    async def build() -> float:
        start = time.perf_counter()
        async with open_session_query(
            store=JsonlStore(root), index=IndexConfig(path=str(index))
        ) as query:
            await query.refresh()
            return time.perf_counter() - start

    return trio.run(build), peak_mb()


def _size(index: Path) -> int:
    return sum(part.stat().st_size for part in index.parent.iterdir())


def stages(stored: Stored) -> list[Row]:
    """What each step of a build takes when it runs alone."""
    store = JsonlStore(stored.root)
    spent: dict[str, float] = {}

    def stage(name: str, work: Callable[[], T]) -> T:
        start = time.perf_counter()
        result = work()
        spent[name] = (time.perf_counter() - start) * MS
        return result

    sweep = stage("sweep", store.sweep)
    snapshots = sweep.snapshots[:_STAGE_LOGS]
    tails = stage("read", lambda: [store.read_tail(one.header.id, None) for one in snapshots])
    logs = [(tail.snapshot.header, tail.events) for tail in tails]
    projections = [(SessionProjection(header, no_text), events) for header, events in logs]
    folded = stage("fold", lambda: [fold_events(*one).documents for one in projections])
    documents = [(no, one) for no, found in enumerate(folded) for one in found]
    stage("tokens", lambda: [indexed_form(one.text, Tokenizer.CJK) for _, one in documents])
    rows = limits.Rows(documents)
    index = open_index_file(IndexConfig(path=str(stored.folder / "stages.db")))
    db = index.connection

    def insert() -> None:
        with db:
            rows.insert(db)

    stage("insert", insert)
    index.close()
    events = sum(len(found) for _, found in logs)
    decoding = limits.decode_lines(stored.logs()[:_STAGE_LOGS])
    bare_sweep = timed(lambda: limits.bare_sweep(stored.root))
    per_event, per_document = MS / events, MS / len(documents)
    return [
        row(
            "stage of a build: sweep",
            "µs/session",
            spent["sweep"] * MS / len(sweep.snapshots),
            bare_sweep * MS / len(sweep.snapshots),
            note="limit: scandir and stat",
        ),
        row(
            "stage of a build: read and check",
            "µs/event",
            spent["read"] * per_event,
            decoding * per_event,
            note="limit: msgspec, no checks",
        ),
        row("stage of a build: fold and extract", "µs/event", spent["fold"] * per_event),
        row("stage of a build: indexed form", "µs/doc", spent["tokens"] * per_document),
        row(
            "stage of a build: insert",
            "µs/doc",
            spent["insert"] * per_document,
            note="in one transaction; in a build a reader runs beside it",
        ),
    ]
