"""The store in memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from builders import Log, header
from store_contract import StoreContract, turns

from session_query.messages.header import SessionHeader
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


def test_two_stores_give_a_log_one_revision_and_other_logs_others() -> None:
    """An index file outlives a store in memory, and may meet another one."""

    def revision(head: SessionHeader, *texts: str) -> str:
        log = Log()
        for each in texts:
            log.user(each)
        seen = MemoryStore([(head, log.events)]).stat(head.id)
        assert seen is not None
        return seen.revision

    assert revision(header("s"), "a", "b") == revision(header("s"), "a", "b")
    others = [
        revision(header("s"), "a"),
        revision(header("s"), "a", "c"),
        revision(header("s"), "b", "a"),
        revision(header("s", seeded=True), "a", "b"),
    ]
    assert len({revision(header("s"), "a", "b"), *others}) == 5


def test_a_mark_of_another_store_is_one_only_where_the_log_begins_alike() -> None:
    before, like, unlike = Log(), Log(), Log()
    before.user("a")
    for log, first in ((like, "a"), (unlike, "b")):
        log.user(first)
        log.user("c")
    mark = MemoryStore([(header("s"), before.events)]).read_tail("s", None).mark
    tail = MemoryStore([(header("s"), like.events)]).read_tail("s", mark)
    assert (tail.appended, tail.events) == (True, tuple(like.events[1:]))
    assert not MemoryStore([(header("s"), unlike.events)]).read_tail("s", mark).appended
