"""Benchmarks: measured ratios against bare limits within one run. Never tests.

``python benchmarks/run.py [--quick] [--json] [--only NAME ...]``
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import busy_rows
import live_rows
import stored_rows
import trio
from attrs import frozen
from corpus import Corpus
from measure import Row, as_json, as_table
from stored_rows import Stored


@frozen
class Scale:
    """How much a run measures."""

    sessions: int
    rounds: int
    transactions: int


FULL: Final = Scale(10_000, 21, 9_000)
QUICK: Final = Scale(400, 15, 1_500)


class Bench:
    """One run: a folder, a scale, and the corpus as soon as something needs it."""

    def __init__(self, folder: Path, scale: Scale) -> None:
        self.folder = folder
        self.scale = scale
        self.corpus = Corpus(scale.sessions)
        self._stored: Stored | None = None
        self._built: list[Row] | None = None

    def build(self) -> list[Row]:
        """Write the corpus and index it, once."""
        if self._built is None:
            self._stored = Stored(self.folder, self.corpus)
            self._built = stored_rows.cold_build(self._stored)
        return self._built

    @property
    def stored(self) -> Stored:
        """The indexed corpus."""
        self.build()
        assert self._stored is not None
        return self._stored


BENCHMARKS: Final[dict[str, Callable[[Bench], list[Row]]]] = {
    "build": Bench.build,
    "read": lambda bench: stored_rows.reading(bench.stored),
    "search": lambda bench: trio.run(stored_rows.searches, bench.stored, bench.scale.rounds),
    "parallel": lambda bench: trio.run(stored_rows.side_by_side, bench.stored, bench.scale.rounds),
    "cancel": lambda bench: trio.run(stored_rows.cancelling, bench.stored, 2 * bench.scale.rounds),
    "commit": lambda bench: trio.run(
        live_rows.after_commit, bench.folder, bench.corpus, bench.scale.rounds
    ),
    "append": lambda bench: trio.run(
        live_rows.long_log_rows, bench.folder, bench.corpus, bench.scale.rounds
    ),
    "busy": lambda bench: trio.run(busy_rows.busy, bench.folder, bench.scale.rounds),
    "stall": lambda bench: live_rows.commit_stall(bench.stored, bench.scale.transactions),
    "ask": lambda _bench: trio.run(live_rows.asking, 500),
    "idle": lambda _bench: live_rows.idle_sessions(),
}


def measured(names: list[str], scale: Scale) -> Iterator[Row]:
    """The rows of these benchmarks, as they come."""
    with tempfile.TemporaryDirectory(prefix="session-query-bench-") as folder:
        bench = Bench(Path(folder), scale)
        for name in names:
            print(f"measuring {name}", file=sys.stderr, flush=True)
            yield from BENCHMARKS[name](bench)


def main(arguments: list[str]) -> int:
    """Run what is asked for; the exit status is 0 whatever the figures say."""
    parser = argparse.ArgumentParser(description="Measure session-query against bare limits.")
    parser.add_argument("--quick", action="store_true", help="a small corpus, under a minute")
    parser.add_argument("--json", action="store_true", help="one object a line")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=BENCHMARKS,
        metavar="NAME",
        default=None,
        help=f"some of {', '.join(BENCHMARKS)}",
    )
    options = parser.parse_args(arguments)
    rows = measured(options.only or list(BENCHMARKS), QUICK if options.quick else FULL)
    if options.json:
        for line in rows:
            print(as_json(line), flush=True)
    else:
        print(as_table(list(rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
