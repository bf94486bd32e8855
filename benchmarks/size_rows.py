"""Rows on stores of short sessions, by how many there are: what grows, and what stays."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Final

import apsw
import limits
from build_rows import built
from corpus import RARE, RARE_DOCUMENTS, Corpus
from measure import MS, Row, a_few, in_child, paired, row, timed, timed_async
from plain import PlainSearch, build
from stored import TOLD, spellings, told

from session_query import JsonlStore

_TITLES: Final = 100
_SCRIPT: Final = Path(__file__).with_name("first_answer.py")


class Short:
    """A store of short sessions and its two indexes."""

    def __init__(self, folder: Path, sessions: int) -> None:
        self.corpus = Corpus(sessions, documents=2)
        self.root, self.index, self.plain = (
            folder / "store",
            folder / "ours.db",
            folder / "plain.db",
        )
        folder.mkdir()
        self.corpus.write_short(self.root)
        self.sessions = sessions

    def point(
        self,
        family: str,
        unit: str,
        ours: float,
        limit: float | None,
        plain: float | None,
        note: str,
    ) -> Row:
        """A point of a curve over the number of sessions."""
        return row(
            f"{family}, {self.sessions:,} sessions",
            unit,
            ours,
            limit,
            plain,
            note=note,
            family=f"{family}, by sessions",
            size=self.sessions,
        )


async def growth(folder: Path, sizes: Sequence[int], rounds: int) -> list[Row]:
    """The same questions to larger and larger stores."""
    rows: list[Row] = []
    for sessions in sizes:
        rows += await _of(Short(folder / f"short-{sessions}", sessions), rounds)
    return sorted(rows, key=lambda one: one.family)


async def _of(short: Short, rounds: int) -> list[Row]:
    seconds, _ = in_child(built, short.root, short.index)
    plain_seconds, _, _ = in_child(build, short.root, short.plain)
    plain, db = PlainSearch(short.root, short.plain), apsw.Connection(str(short.index))
    ids = [short.corpus.header(number).id for number in range(_TITLES)]
    words, store = spellings(RARE), JsonlStore(short.root)
    listed = a_few(plain.listing)
    try:
        sweep = median(timed(store.sweep) for _ in range(3))
        bare_sweep = median(timed(lambda: limits.bare_sweep(short.root)) for _ in range(3))
        async with told(short.root, short.index) as query:

            async def search() -> None:
                assert len((await query.search_sessions(next(words))).items) == RARE_DOCUMENTS

            async def titles() -> None:
                assert all(one.title is not None for one in await query.read_titles(ids))

            found, counted = await paired(search, lambda: limits.count_matches(db, RARE), rounds)
            titled, by_id = await paired(titles, lambda: limits.titles(db, ids), rounds)
            await query.list_sessions()
            listing = median([await timed_async(query.list_sessions) for _ in range(5)])
        searched = a_few(lambda: plain.search_sessions(RARE))
        plain_titles = a_few(lambda: plain.titles(ids))
    finally:
        plain.close()
        db.close()
    answer, bare, plainly = (
        _process(mode, short.root, index)
        for mode, index in (
            ("library", short.index),
            ("limit", short.index),
            ("plain", short.plain),
        )
    )
    return [
        short.point(
            "first build", "ms", seconds * MS, None, plain_seconds * MS, "two documents each"
        ),
        short.point("sweep", "ms", sweep, bare_sweep, listed, "limit: scandir and stat"),
        short.point("listing again", "ms", listing, sweep, listed, f"{TOLD}; limit: our sweep"),
        short.point(
            "search, unchanged", "ms", found, counted, searched, f"{TOLD}; limit: count(*)"
        ),
        short.point("titles of 100", "ms", titled, by_id, plain_titles, f"{TOLD}; limit: by id"),
        short.point(
            "first answer of a process",
            "ms",
            answer,
            bare,
            plainly,
            "limit: bare sweep and count(*)",
        ),
    ]


def _process(mode: str, root: Path, index: Path) -> float:
    command = [sys.executable, str(_SCRIPT), mode, str(root), str(index), RARE]
    return a_few(lambda: subprocess.run(command, check=True))
