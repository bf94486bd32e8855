"""Benchmarks: measured against bare limits and against the plain way. Never tests.

``python benchmarks/run.py [--quick] [--json] [--plot FILE] [--only NAME ...]``
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import actor_rows
import build_rows
import busy_rows
import cancel_rows
import live_rows
import log_rows
import search_rows
import size_rows
import trio
from attrs import evolve, frozen
from corpus import Corpus
from measure import Row, as_json, as_table
from plot import pyplot, write_plot
from stored import Stored


@frozen
class Scale:
    """How much a run measures."""

    sessions: int
    documents: int
    rounds: int
    transactions: int
    short: tuple[int, ...]
    """Numbers of short sessions."""
    live: tuple[int, ...]
    """Numbers of live sessions with events."""
    idle: int
    """Live sessions without any."""


FULL: Final = Scale(
    10_000, 60, 21, 9_000, (100, 1_000, 10_000, 100_000), (1, 10, 100, 1_000), 10_000
)
QUICK: Final = Scale(400, 60, 7, 1_500, (100, 1_000), (1, 10, 100), 1_000)


class Bench:
    """One run: a folder, a scale, and the corpus as soon as something needs it."""

    def __init__(self, folder: Path, scale: Scale) -> None:
        self.folder = folder
        self.scale = scale
        self.corpus = Corpus(scale.sessions, scale.documents)
        self._stored: Stored | None = None
        self._built: list[Row] | None = None

    def build(self) -> list[Row]:
        """Write the corpus and index it, once."""
        if self._built is None:
            self._stored = Stored(self.folder, self.corpus)
            self._built = build_rows.cold_build(self._stored)
        return self._built

    @property
    def stored(self) -> Stored:
        """The indexed corpus."""
        self.build()
        assert self._stored is not None
        return self._stored


BENCHMARKS: Final[dict[str, Callable[[Bench], list[Row]]]] = {
    "build": Bench.build,
    "stages": lambda bench: build_rows.stages(bench.stored),
    "search": lambda bench: trio.run(search_rows.searches, bench.stored, bench.scale.rounds),
    "parallel": lambda bench: trio.run(busy_rows.side_by_side, bench.stored, bench.scale.rounds),
    "writers": lambda bench: trio.run(busy_rows.while_writing, bench.stored, bench.scale.rounds),
    "cancel": lambda bench: trio.run(cancel_rows.cancelling, bench.stored, 2 * bench.scale.rounds),
    "stall": lambda bench: actor_rows.commit_stall(bench.stored, bench.scale.transactions),
    "commit": lambda bench: trio.run(
        live_rows.after_commit, bench.folder, bench.corpus, bench.scale.rounds, bench.scale.live
    ),
    "append": lambda bench: trio.run(
        log_rows.changed_logs, bench.folder, bench.corpus, bench.scale.rounds
    ),
    "read": lambda bench: trio.run(log_rows.exact_reads, bench.folder, bench.corpus),
    "busy": lambda bench: trio.run(busy_rows.busy, bench.folder, bench.scale.rounds),
    "ask": lambda _bench: trio.run(actor_rows.asking, 500),
    "idle": lambda bench: actor_rows.idle_sessions(bench.scale.idle),
    "sizes": lambda bench: trio.run(
        size_rows.growth, bench.folder, bench.scale.short, bench.scale.rounds
    ),
}


def measured(names: list[str], scale: Scale) -> Iterator[Row]:
    """The rows of these benchmarks, as they come."""
    with tempfile.TemporaryDirectory(prefix="session-query-bench-") as folder:
        bench = Bench(Path(folder), scale)
        for name in names:
            print(f"measuring {name}", file=sys.stderr, flush=True)
            yield from BENCHMARKS[name](bench)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure session-query against its limits.")
    parser.add_argument("--quick", action="store_true", help="a small corpus, under a minute")
    parser.add_argument("--sessions", type=int, help="sessions of the corpus")
    parser.add_argument("--documents", type=int, help="documents of each, by tens")
    parser.add_argument("--json", action="store_true", help="one object a line")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the rows that have sizes")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=BENCHMARKS,
        metavar="NAME",
        default=list(BENCHMARKS),
        help=f"some of {', '.join(BENCHMARKS)}",
    )
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Run what is asked for; the exit status is 0 whatever the figures say."""
    options = _options(arguments)
    if options.plot is not None:
        pyplot()  # what is missing is said before anything is measured
    scale = QUICK if options.quick else FULL
    scale = evolve(
        scale,
        sessions=options.sessions or scale.sessions,
        documents=options.documents or scale.documents,
    )
    rows: list[Row] = []
    for line in measured(options.only, scale):
        rows.append(line)
        if options.json:
            print(as_json(line), flush=True)
    if not options.json:
        print(as_table(rows))
    if options.plot is not None:
        write_plot(rows, options.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
