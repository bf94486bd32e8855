"""The corpus on disk that most rows share, and services over it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Final

import trio
from corpus import Corpus
from measure import a_few, in_child
from plain import PlainSearch, build

from session_query import IndexConfig, JsonlStore, QueryConfig, SessionQuery, open_session_query

TOLD: Final = "told"
"""How notes say that the store tells what changes."""

PLAIN_DOCUMENTS: Final = 1_000_000
"""Of a larger corpus the plain way is not asked: it would take most of the run."""


class Stored:
    """A corpus on disk, and where its index is."""

    def __init__(self, folder: Path, corpus: Corpus) -> None:
        self.corpus = corpus
        self.root = folder / "store"
        self.index = folder / "index" / "sessions.db"
        self.folder = folder
        self.events = corpus.write(self.root)
        self.bytes = sum(log.stat().st_size for log in self.logs())
        self.common = corpus.common_word()

    def service_config(self) -> IndexConfig:
        """How the rows open the index."""
        return IndexConfig(path=str(self.index))

    def logs(self) -> list[Path]:
        """Every log, in the order of names."""
        return sorted(self.root.glob("*/*/*.jsonl"))

    @property
    def has_plain(self) -> bool:
        """Whether the plain way is asked of this corpus."""
        return self.corpus.total <= PLAIN_DOCUMENTS

    @cached_property
    def plain_build(self) -> tuple[float, float, int]:
        """Seconds, peak memory in MB and bytes of the plain index, built in a fresh process."""
        return in_child(build, self.root, self.folder / "plain.db")

    @cached_property
    def plain(self) -> PlainSearch | None:
        """The plain index, if it is asked of this corpus."""
        if not self.has_plain:
            return None
        assert self.plain_build
        return PlainSearch(self.root, self.folder / "plain.db")

    @cached_property
    def plain_common(self) -> float | None:
        """Milliseconds of a search for the common word, the plain way, if it is asked."""
        plain = self.plain
        return a_few(lambda: plain.search_sessions(self.common)) if plain is not None else None


def spellings(phrase: str) -> Iterator[str]:
    """Ever other spellings of a phrase: the same matches, and no ranking that is still kept."""
    letters = [at for at, letter in enumerate(phrase) if letter.isalpha()]
    for number in count():
        raised = {at for bit, at in enumerate(letters) if number >> bit & 1}
        yield "".join(
            letter.upper() if at in raised else letter for at, letter in enumerate(phrase)
        )


@asynccontextmanager
async def swept(root: Path, index: Path) -> AsyncIterator[SessionQuery]:
    """A service whose index is up to date and whose store is swept for each search."""
    config = QueryConfig(notify=False)
    store, place = JsonlStore(root), IndexConfig(path=str(index))
    async with open_session_query(store=store, index=place, config=config) as query:
        await query.refresh()
        yield query


@asynccontextmanager
async def told(root: Path, index: Path) -> AsyncIterator[SessionQuery]:
    """A service whose index is up to date and whose store tells what changes."""
    store, place = JsonlStore(root), IndexConfig(path=str(index))
    async with open_session_query(store=store, index=place) as query:
        await query.refresh()
        await until_told(query)
        yield query


async def until_told(query: SessionQuery) -> None:
    """Wait until the store of a service tells what changes."""
    with trio.fail_after(60):
        while not query.statistics().notified:  # noqa: ASYNC110 - nobody tells
            await trio.sleep(0.01)
