"""Measuring: rows, medians taken side by side, fresh processes, and the table of a run."""

from __future__ import annotations

import gc
import hashlib
import json
import multiprocessing
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Final, ParamSpec, TypeVar

from attrs import asdict, frozen

P = ParamSpec("P")
R = TypeVar("R")

MS: Final = 1000.0
_LONG_MS: Final = 3_000.0
"""After as much time nothing is measured again."""
_BUFFER: Final = bytes(8 * 1024 * 1024)


@frozen
class Row:
    """One line of a run."""

    name: str
    ours: float
    limit: float | None
    """The bare limit in the same unit, where there is one."""
    plain: float | None
    """The plain way to the same answer, in the same unit, where there is one."""
    unit: str
    ratio: float | None
    """``ours / limit``."""
    budget: str
    """What is wanted (design), empty for a row that only informs."""
    ok: bool | None
    """Whether the budget is met, where there is one."""
    note: str = ""
    family: str = ""
    """The curve that this row is a point of, for the plot."""
    size: int | None = None
    """Where on the curve."""


def row(
    name: str,
    unit: str,
    ours: float,
    limit: float | None = None,
    plain: float | None = None,
    *,
    budget: str = "",
    ok: bool | None = None,
    note: str = "",
    family: str = "",
    size: int | None = None,
) -> Row:
    """A row with its ratio."""
    ratio = None if not limit else ours / limit
    return Row(name, ours, limit, plain, unit, ratio, budget, ok, note, family, size)


def timed(work: Callable[[], object]) -> float:
    """Milliseconds of one call."""
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * MS


async def timed_async(work: Callable[[], Awaitable[object]]) -> float:
    """Milliseconds of one awaited call."""
    start = time.perf_counter()
    await work()
    return (time.perf_counter() - start) * MS


async def paired(
    ours: Callable[[], Awaitable[object]], limit: Callable[[], object], rounds: int
) -> tuple[float, float]:
    """Medians in ms of two works done by turns, so that both meet the same noise."""
    await ours()
    limit()
    pairs = []
    gc.collect()
    for _ in range(rounds):
        pairs.append((await timed_async(ours), timed(limit)))
    return median(pair[0] for pair in pairs), median(pair[1] for pair in pairs)


def a_few(work: Callable[[], object]) -> float:
    """Median in ms of up to three calls of a work that may take long."""
    spent: list[float] = []
    while len(spent) < 3 and sum(spent) < _LONG_MS:
        spent.append(timed(work))
    return median(spent)


def percentile(values: Iterable[float], share: float) -> float:
    """The value that ``share`` of all do not exceed."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def in_child(work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """The result of ``work`` in a process of its own, so that its memory is nobody else's."""
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=fresh) as pool:
        return pool.submit(work, *args, **kwargs).result()


def peak_mb() -> float:
    """Peak resident memory of this process in MB (not ``ru_maxrss``: that counts the parent's)."""
    return _status("VmHWM") / 1e3


def resident_kb() -> float:
    """Resident memory of this process in kB."""
    return _status("VmRSS")


def _status(name: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return int(value.split()[0]) * 1.024
    raise LookupError(name)


def hash_buffer() -> None:
    """Some milliseconds of C code that holds no interpreter lock: the control for threads."""
    hashlib.sha256(_BUFFER).digest()


def control_scaling(threads: int, rounds: int) -> float:
    """How many times the work of one thread that many threads do, in C code alone."""

    def work(_number: int) -> None:
        for _ in range(rounds):
            hash_buffer()

    one = timed(lambda: work(0))
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(threads)))
        many = timed(lambda: list(pool.map(work, range(threads))))
    return threads * one / many


def as_json(line: Row) -> str:
    """A row as one JSON object."""
    return json.dumps(asdict(line), ensure_ascii=False)


HEADINGS: Final = ("row", "ours", "limit", "plain", "unit", "ratio", "budget", "ok", "")


def as_table(rows: Sequence[Row]) -> str:
    """Rows for people."""
    lines = [HEADINGS, *(_cells(line) for line in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _cells(line: Row) -> tuple[str, ...]:
    verdict = {True: "yes", False: "NO", None: "-"}[line.ok]
    return (
        line.name,
        _figure(line.ours),
        _figure(line.limit),
        _figure(line.plain),
        line.unit,
        _figure(line.ratio),
        line.budget or "-",
        verdict,
        line.note,
    )


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"
