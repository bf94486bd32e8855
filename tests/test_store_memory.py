"""The store in memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from builders import header
from store_contract import StoreContract, turns

from session_query.storage.contract import CorruptLog, SessionStore
from session_query.storage.memory import MemoryStore


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def make(self) -> Callable[[], SessionStore]:
        return MemoryStore


def test_a_store_can_begin_with_sessions_of_any_format() -> None:
    old = header("old", version=0, seeded=True)
    store = MemoryStore([(old, turns(3)), (header("new"), ())])
    assert {found.header.id for found in store.sweep().snapshots} == {"old", "new"}
    with store.open("old", "read") as reader:
        assert reader.read_log().inherited_event_count == 1
    with store.open("new", "write") as writer:
        writer.append(turns(1))
        assert writer.read() == turns(1)


def test_preloaded_sessions_must_be_whole_and_distinct() -> None:
    with pytest.raises(ValueError, match="seq 1 where seq 0"):
        MemoryStore([(header(), turns(2)[1:])])
    with pytest.raises(ValueError, match="twice"):
        MemoryStore([(header(), ()), (header(), ())])


def test_a_seeded_session_without_a_marker_is_corrupt() -> None:
    store = MemoryStore([(header(seeded=True), turns(2))])
    with store.open("s", "read") as reader, pytest.raises(CorruptLog, match="end-seed"):
        reader.read_log()
