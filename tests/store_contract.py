"""What every session store must do, as suites: a store's own tests subclass one of them.

``ReadingContract`` is for all, ``StoreContract`` for those that also write.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from attrs import evolve
from builders import Log, header
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import logs

from session_query.messages.event import Event
from session_query.messages.header import SessionHeader
from session_query.storage.contract import (
    AlreadyExists,
    AlreadyOwned,
    HandleClosed,
    NotFound,
    ReadHandle,
    SessionStore,
)

SHARED_BY_STORES = [HealthCheck.function_scoped_fixture, HealthCheck.differing_executors]
"""``make`` gives a fresh store at every call, and the suite is meant for several classes."""


def turns(count: int) -> tuple[Event, ...]:
    """A log of ``count`` events that opens and closes turns."""
    log = Log()
    for number in range(count):
        if number % 2:
            log.turn_end(number // 2 + 1)
        else:
            log.turn_start(number // 2 + 1)
    return tuple(log.events)


def seeded_log() -> tuple[Event, ...]:
    """A forked log that inherits its first two events."""
    log = Log()
    log.user("hello")
    log.user("again")
    log.add("session/end-seed", {"inherited": True})
    log.add("session/end-seed", {})
    return tuple(log.events)


def store_session(
    store: SessionStore, events: tuple[Event, ...], head: SessionHeader | None = None
) -> None:
    """Store a session in one batch."""
    with store.create(head or header()) as writer:
        writer.append(events)


def tail_events(store: SessionStore, session_id: str, limit: int) -> tuple[Event, ...]:
    """A whole log, read through tails of about ``limit`` bytes."""
    tail = store.read_tail(session_id, None, limit)
    events = list(tail.events)
    while not tail.complete:
        tail = store.read_tail(session_id, tail.mark, limit)
        assert tail.appended
        events += tail.events
    return tuple(events)


def follow(corpus: Corpus, count: int) -> tuple[Event, ...]:
    """Read a growing session by its tails until it has ``count`` events."""
    events: list[Event] = []
    mark: bytes | None = None
    while len(events) < count:
        [seen] = corpus.store.sweep().snapshots
        assert seen.header == corpus.header("s")
        tail = corpus.store.read_tail("s", mark)
        assert tail.appended or mark is None
        events += tail.events
        mark = tail.mark
    return tuple(events)


class Corpus(ABC):
    """Sessions in a store, written by whoever writes there; each is a log of as many events."""

    def __init__(self, store: SessionStore) -> None:
        self.store = store

    @abstractmethod
    def put(self, session_id: str, begin: int, end: int) -> None:
        """Store the events from ``begin`` to ``end``; those before ``begin`` are there."""

    @abstractmethod
    def events(self, session_id: str, count: int) -> tuple[Event, ...]:
        """The first ``count`` events of a session, as they must be read."""

    @abstractmethod
    def header(self, session_id: str) -> SessionHeader:
        """The header of a session, as it must be read."""


class WrittenCorpus(Corpus):
    """Sessions written through the store itself."""

    def put(self, session_id: str, begin: int, end: int) -> None:
        with (
            self.store.open(session_id, "write")
            if begin
            else self.store.create(self.header(session_id)) as writer
        ):
            writer.append(turns(end)[begin:])

    def events(self, session_id: str, count: int) -> tuple[Event, ...]:
        return turns(count)

    def header(self, session_id: str) -> SessionHeader:
        return header(session_id)


class ReadingContract:
    """What every store must do for its readers.

    Subclasses give ``corpus``, a fixture with an empty store.
    """

    def test_an_empty_store_has_no_sessions(self, corpus: Corpus) -> None:
        assert corpus.store.sweep().snapshots == ()
        assert corpus.store.sweep().damaged == ()
        assert corpus.store.stat("s") is None

    def test_an_absent_session_is_not_found(self, corpus: Corpus) -> None:
        with pytest.raises(NotFound, match="'nowhere'"):
            corpus.store.open("nowhere", "read")
        with pytest.raises(NotFound, match="'nowhere'"):
            corpus.store.open("nowhere", "write")
        with pytest.raises(NotFound, match="'nowhere'"):
            corpus.store.read_tail("nowhere", None)

    def test_the_empty_id_is_absent(self, corpus: Corpus) -> None:
        assert corpus.store.stat("") is None

    def test_what_was_stored_is_read_back(self, corpus: Corpus) -> None:
        corpus.put("s", 0, 2)
        corpus.put("s", 2, 5)
        with corpus.store.open("s", "read") as reader:
            assert reader.header == corpus.header("s")
            assert reader.read() == corpus.events("s", 5)
            log = reader.read_log()
        assert log.events == corpus.events("s", 5)
        assert (log.inherited_event_count, log.left_out) == (0, None)

    def test_every_stored_session_is_swept_and_looked_at(self, corpus: Corpus) -> None:
        corpus.put("s", 0, 2)
        corpus.put("t", 0, 4)
        swept = {snapshot.header.id: snapshot for snapshot in corpus.store.sweep().snapshots}
        assert {key: found.header for key, found in swept.items()} == {
            "s": corpus.header("s"),
            "t": corpus.header("t"),
        }
        seen = corpus.store.stat("t")
        assert seen is not None
        assert (seen.header, seen.revision) == (corpus.header("t"), swept["t"].revision)

    def test_an_open_reader_sees_what_is_appended(self, corpus: Corpus) -> None:
        corpus.put("s", 0, 1)
        with corpus.store.open("s", "read") as reader:
            assert reader.read() == corpus.events("s", 1)
            corpus.put("s", 1, 3)
            assert reader.read() == corpus.events("s", 3)

    @pytest.mark.parametrize(
        ("offset", "length"), [(0, 0), (0, 2), (1, 2), (3, None), (5, None), (9, 4), (2, 90)]
    )
    def test_a_read_gives_the_slice_that_was_asked_for(
        self, corpus: Corpus, offset: int, length: int | None
    ) -> None:
        corpus.put("s", 0, 5)
        with corpus.store.open("s", "read") as reader:
            end = None if length is None else offset + length
            assert reader.read(offset, length) == corpus.events("s", 5)[offset:end]

    @pytest.mark.parametrize(
        ("offset", "length"), [(-1, None), (0, -1), (1.0, None), (True, 1), (0, "1"), (2**53, 1)]
    )
    def test_a_bound_that_is_no_count_is_refused(
        self, corpus: Corpus, offset: int, length: int | None
    ) -> None:
        corpus.put("s", 0, 1)
        reader = corpus.store.open("s", "read")
        with reader, pytest.raises(ValueError, match="whole number"):
            reader.read(offset, length)

    def test_a_closed_reader_refuses_everything_first(self, corpus: Corpus) -> None:
        corpus.put("s", 0, 1)
        reader = corpus.store.open("s", "read")
        reader.close()
        reader.close()
        with pytest.raises(HandleClosed):
            reader.read(-1)
        with pytest.raises(HandleClosed):
            reader.read_log()

    def test_the_revision_changes_when_the_log_does(self, corpus: Corpus) -> None:
        corpus.put("s", 0, 1)
        first = corpus.store.stat("s")
        assert first is not None
        assert corpus.store.read_tail("s", None).snapshot.revision == first.revision
        corpus.put("s", 1, 2)
        second = corpus.store.stat("s")
        assert second is not None
        assert second.revision != first.revision
        with corpus.store.open("s", "read") as reader:
            assert reader.read_log().snapshot.revision == second.revision

    def test_a_tail_from_nowhere_is_the_whole_log(self, corpus: Corpus) -> None:
        corpus.put("s", 0, 3)
        tail = corpus.store.read_tail("s", None)
        assert (tail.events, tail.appended, tail.complete) == (corpus.events("s", 3), False, True)
        assert tail.snapshot.header == corpus.header("s")

    def test_a_tail_holds_only_what_came_behind_its_mark(self, corpus: Corpus) -> None:
        corpus.put("s", 0, 2)
        mark = corpus.store.read_tail("s", None).mark
        corpus.put("s", 2, 5)
        tail = corpus.store.read_tail("s", mark)
        events = corpus.events("s", 5)[2:]
        assert (tail.events, tail.appended, tail.complete) == (events, True, True)
        seen = corpus.store.stat("s")
        assert seen is not None
        assert tail.snapshot.revision == seen.revision
        again = corpus.store.read_tail("s", tail.mark)
        assert (again.events, again.appended, again.complete) == ((), True, True)

    def test_a_small_limit_gives_one_event_at_a_time(self, corpus: Corpus) -> None:
        corpus.put("s", 0, 3)
        tail = corpus.store.read_tail("s", None, 1)
        assert tail.events == corpus.events("s", 1)
        assert not tail.complete
        assert tail_events(corpus.store, "s", 1) == corpus.events("s", 3)

    @pytest.mark.parametrize(
        "mark", [b"", b"not a mark", b"\x92\x01", b"\x97\x01\x01\x01\x01\x01\xc4\x00\xc4\x00"]
    )
    def test_a_mark_of_another_log_begins_again(self, corpus: Corpus, mark: bytes) -> None:
        corpus.put("s", 0, 2)
        tail = corpus.store.read_tail("s", mark)
        assert (tail.events, tail.appended) == (corpus.events("s", 2), False)

    def test_the_mark_of_one_session_does_not_fit_another(self, corpus: Corpus) -> None:
        corpus.put("a", 0, 1)
        corpus.put("b", 0, 3)
        tail = corpus.store.read_tail("b", corpus.store.read_tail("a", None).mark)
        assert (tail.events, tail.appended) == (corpus.events("b", 3), False)

    def test_threads_may_look_and_read_while_another_writes(self, corpus: Corpus) -> None:
        corpus.put("s", 0, 1)
        with ThreadPoolExecutor(3) as threads:
            readers = [threads.submit(follow, corpus, 30) for _ in range(3)]
            for seq in range(1, 30):
                corpus.put("s", seq, seq + 1)
            for reader in readers:
                assert reader.result() == corpus.events("s", 30)


class StoreContract(ReadingContract):
    """Subclasses give ``make``, a fixture that makes empty stores, each on a medium of its own."""

    @pytest.fixture
    def corpus(self, make: Callable[[], SessionStore]) -> Corpus:
        return WrittenCorpus(make())

    @pytest.fixture
    def store(self, make: Callable[[], SessionStore]) -> SessionStore:
        return make()

    def test_what_was_appended_is_read_back(self, store: SessionStore) -> None:
        events = turns(5)
        with store.create(header()) as writer:
            writer.append(events[:2])
            writer.append(events[2:])
        with store.open("s", "read") as reader:
            assert reader.header == header()
            assert reader.read() == events
            log = reader.read_log()
        assert (log.events, log.inherited_event_count, log.left_out) == (events, 0, None)

    @given(events=logs(), limit=st.integers(1, 3000), cut=st.integers(0, 30))
    @settings(max_examples=25, suppress_health_check=SHARED_BY_STORES)
    def test_any_log_survives_in_any_batches_and_tails(
        self,
        make: Callable[[], SessionStore],
        events: tuple[Event, ...],
        limit: int,
        cut: int,
    ) -> None:
        store = make()
        with store.create(header()) as writer:
            writer.append(events[:cut])
            writer.append(events[cut:])
            writer.flush()
        with store.open("s", "read") as reader:
            assert reader.read() == events
        assert tail_events(store, "s", limit) == events

    def test_the_exact_bytes_of_a_payload_are_kept(self, store: SessionStore) -> None:
        raw = b'{"a":1.0,"b":1e2,"c":123456789012345678901234567890,"d":"\\ud83d \\u00e9"}'
        store_session(store, (Event("demo/x", 0, -5, raw, ignorable=True),))
        with store.open("s", "read") as reader:
            assert reader.read() == (Event("demo/x", 0, -5, raw, ignorable=True),)

    def test_a_stored_session_is_swept_and_looked_at(self, store: SessionStore) -> None:
        other = evolve(header("t"), created_at=7, cwd=None, parent_session="s", origin="subagent")
        store_session(store, turns(2))
        store_session(store, turns(4), other)
        swept = {snapshot.header.id: snapshot for snapshot in store.sweep().snapshots}
        assert {key: found.header for key, found in swept.items()} == {"s": header(), "t": other}
        seen = store.stat("t")
        assert seen is not None
        assert (seen.header, seen.revision) == (other, swept["t"].revision)

    @pytest.mark.parametrize(
        "session_id", ["a/b", "..", ".", "~", "é\ud800💡", "a b", "A", "x" * 85]
    )
    def test_any_id_can_be_stored(self, store: SessionStore, session_id: str) -> None:
        store_session(store, turns(1), header(session_id))
        assert [snapshot.header.id for snapshot in store.sweep().snapshots] == [session_id]
        with store.open(session_id, "read") as reader:
            assert reader.read() == turns(1)

    def test_nothing_is_stored_before_the_first_batch(self, store: SessionStore) -> None:
        with store.create(header()) as writer:
            assert writer.read() == ()
            writer.append(())
        assert store.stat("s") is None
        assert store.sweep().snapshots == ()

    def test_a_seeded_session_can_be_read_before_its_seed_is_there(
        self, store: SessionStore
    ) -> None:
        with store.create(header(seeded=True), inherited_event_count=2) as writer:
            assert writer.read_log().events == ()
            writer.flush()
            assert writer.read_log().inherited_event_count == 0
            writer.append(seeded_log())
            assert writer.read_log().inherited_event_count == 2

    def test_a_flush_stores_a_session_without_events(self, store: SessionStore) -> None:
        with store.create(header()) as writer:
            revision = writer.flush()
            assert writer.flush() == revision
        seen = store.stat("s")
        assert seen is not None
        assert (seen.header, seen.revision) == (header(), revision)
        with store.open("s", "read") as reader:
            assert reader.read() == ()

    def test_flushing_the_store_flushes_every_writer(self, store: SessionStore) -> None:
        with store.create(header("a")), store.create(header("b")):
            store.flush()
            assert store.stat("a") is not None
            assert store.stat("b") is not None

    def test_an_id_that_is_taken_cannot_be_created(self, store: SessionStore) -> None:
        writer = store.create(header())
        with pytest.raises(AlreadyExists):
            store.create(header())
        writer.append(turns(1))
        writer.close()
        with pytest.raises(AlreadyExists):
            store.create(evolve(header(), cwd="/elsewhere"))

    def test_an_id_that_was_never_written_is_free_again(self, store: SessionStore) -> None:
        store.create(header()).close()
        store_session(store, turns(1))
        assert store.stat("s") is not None

    @pytest.mark.parametrize(
        "head",
        [
            header(""),
            evolve(header(), created_at=-1),
            evolve(header(), created_at=1.5),  # type: ignore[arg-type]
            evolve(header(), cwd="relative"),
            header(version=1),
            header(version=3),
            evolve(header(), delegation_depth=-1),
        ],
    )
    def test_a_header_that_no_log_can_have_is_refused(
        self, store: SessionStore, head: SessionHeader
    ) -> None:
        with pytest.raises(ValueError, match=r"."):
            store.create(head)
        assert store.sweep().snapshots == ()

    def test_a_refused_header_does_not_reserve_its_id(self, store: SessionStore) -> None:
        with pytest.raises(ValueError, match="createdAt"):
            store.create(evolve(header(), created_at=-1))
        store.create(header()).close()

    def test_only_a_seeded_session_inherits_events(self, store: SessionStore) -> None:
        with pytest.raises(ValueError, match="is_seeded"):
            store.create(header(), inherited_event_count=1)

    def test_the_last_tagged_marker_tells_what_was_inherited(self, store: SessionStore) -> None:
        with store.create(header(seeded=True), inherited_event_count=2) as writer:
            writer.append(seeded_log())
        with store.open("s", "read") as reader:
            assert reader.read_log().inherited_event_count == 2

    def test_a_batch_must_continue_the_log(self, store: SessionStore) -> None:
        events = turns(4)
        with store.create(header()) as writer:
            with pytest.raises(ValueError, match="seq 1 where seq 0"):
                writer.append(events[1:2])
            writer.append(events[:2])
            with pytest.raises(ValueError, match="seq 0 where seq 2"):
                writer.append(events[:1])
            with pytest.raises(ValueError, match="seq 3 where seq 2"):
                writer.append(events[3:])
            with pytest.raises(ValueError, match="seq 2 where seq 3"):
                writer.append((events[2], events[2]))
            assert writer.read() == events[:2]
            writer.append(events[2:])
            assert writer.read() == events

    def test_an_empty_batch_changes_nothing(self, store: SessionStore) -> None:
        with store.create(header()) as writer:
            revision = writer.append(turns(1))
            assert writer.append(()) == revision

    def test_a_stored_session_can_be_continued(self, store: SessionStore) -> None:
        events = turns(6)
        store_session(store, events[:3])
        with store.open("s", "write") as writer:
            assert writer.read() == events[:3]
            writer.append(events[3:])
        with store.open("s", "read") as reader:
            assert reader.read() == events

    def test_a_session_has_one_writer_at_a_time(self, store: SessionStore) -> None:
        writer = store.create(header())
        writer.append(turns(1))
        with pytest.raises(AlreadyOwned):
            store.open("s", "write")
        writer.close()
        store.open("s", "write").close()

    def test_readers_work_beside_a_writer_and_see_what_it_appended(
        self, store: SessionStore
    ) -> None:
        events = turns(3)
        with store.create(header()) as writer:
            writer.append(events[:1])
            with store.open("s", "read") as reader:
                assert reader.read() == events[:1]
                writer.append(events[1:])
                assert reader.read() == events

    def test_a_closed_handle_refuses_everything_first(self, store: SessionStore) -> None:
        writer = store.create(header())
        writer.append(turns(1))
        reader = store.open("s", "read")
        for _ in range(2):
            writer.close()
            reader.close()
        handles: list[ReadHandle] = [writer, reader]
        for handle in handles:
            with pytest.raises(HandleClosed):
                handle.read(-1)
            with pytest.raises(HandleClosed):
                handle.read_log()
        with pytest.raises(HandleClosed):
            writer.append(turns(9)[7:])
        with pytest.raises(HandleClosed):
            writer.flush()

    def test_closing_an_old_handle_leaves_the_new_owner_alone(self, store: SessionStore) -> None:
        first = store.create(header())
        first.append(turns(1))
        first.close()
        with store.open("s", "write"):
            first.close()
            with pytest.raises(AlreadyOwned):
                store.open("s", "write")

    def test_the_revision_changes_with_an_append_and_only_then(self, store: SessionStore) -> None:
        events = turns(2)
        with store.create(header()) as writer:
            first = writer.append(events[:1])
            seen = store.stat("s")
            assert seen is not None
            assert seen.revision == first
            store.open("s", "read").close()
            assert writer.flush() == first
            second = writer.append(events[1:])
        assert second != first
        with store.open("s", "read") as reader:
            assert reader.read_log().snapshot.revision == second
