"""Transactions of the index that are interrupted: done whole or not at all, in file and memory."""

from __future__ import annotations

from itertools import count
from typing import ClassVar, Literal

import apsw
import pytest
from service_world import session, store_of

from session_query.history.request import event_search
from session_query.messages.config import MEMORY, IndexConfig, identity, no_text
from session_query.storage import index
from session_query.storage.index import SearchIndex
from session_query.storage.index_scan import scan
from session_query.storage.log_slices import Piece, read_slices

CONFIG = IndexConfig(path=MEMORY)


class StoppedIndex(SearchIndex):
    """Is interrupted at one of the looks that SQLite takes at whether it has to stop."""

    looks_left: ClassVar[int] = 0
    by: ClassVar[Literal["flag", "thread"]] = "flag"

    def _must_stop(self) -> bool:
        StoppedIndex.looks_left -= 1
        if StoppedIndex.looks_left == 0:
            if self.by == "flag":
                self._interrupted = True
            else:
                self._db.interrupt()
        return super()._must_stop()

    @property
    def stored_generation(self) -> object:
        return self._db.execute("SELECT value FROM meta WHERE key = 'generation'").get

    @property
    def session_numbers(self) -> list[object]:
        return [no for (no,) in self._db.execute("SELECT no FROM session ORDER BY no")]


def pieces_of(*texts: str) -> list[Piece]:
    store = store_of(session("s", *texts))
    (snapshot,) = store.sweep().snapshots
    return [*read_slices(store, snapshot, None, no_text)]


@pytest.mark.parametrize("by", ["flag", "thread"])
def test_an_interrupted_write_is_done_or_undone_just_as_it_says(
    monkeypatch: pytest.MonkeyPatch, by: Literal["flag", "thread"]
) -> None:
    monkeypatch.setattr(index, "_INTERRUPT_CHECK", 1)
    monkeypatch.setattr(StoppedIndex, "by", by)
    interruptions = 0
    for looks in count(1):
        StoppedIndex.looks_left = 0
        searched = StoppedIndex(CONFIG, no_text)
        searched.write(pieces_of("old"))
        StoppedIndex.looks_left = looks
        try:
            searched.write(pieces_of("word", "word"))
        except apsw.InterruptError:
            interruptions += 1
            assert searched.generation == 1
        else:
            assert searched.generation == 2
        missed, StoppedIndex.looks_left = StoppedIndex.looks_left > 0, 0
        searched.arm()
        assert searched.stored_generation == searched.generation
        assert searched.session_numbers == [entry.no for entry in searched.stored.entries.values()]
        assert texts_found(searched, "word") == ([1, 0] if searched.generation == 2 else [])
        searched.write(pieces_of("word", "word", "word"))
        assert texts_found(searched, "word") == [2, 1, 0]
        searched.close()
        if missed:
            break
    assert interruptions > 100


def texts_found(searched: SearchIndex, words: str) -> list[int]:
    request = event_search("s", words, (), None, None, CONFIG)
    reader = searched.open_reader()
    view = searched.open_view(
        reader, request, instance="", epoch=0, store_bound=True, ranking=None, skipped=()
    )
    return [hit.seq for hit in scan(reader, view, CONFIG, identity).events]
