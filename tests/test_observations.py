"""Observations: leases on one state of a session, and the logs that stay in memory for the next."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
import trio
from actor_world import Hang, message
from attrs import define, field
from builders import Log, header
from faulty_store import FaultyStore
from inline_runtime import InlineRuntime
from jsonl_files import OsFilesAt, age
from service_world import CountingStore, append, refused, session, store_of
from trio.testing import wait_all_tasks_blocked

from session_query import (
    JsonlStore,
    MemoryStore,
    Observation,
    QueryConfig,
    SessionQuery,
    open_session_query,
)
from session_query.actors import prepared_logs
from session_query.messages.errors import ErrorCode
from session_query.messages.header import SessionHeader
from session_query.storage.contract import CorruptLog, ReadHandle, StoreFailed


def seqs(observation: Observation) -> list[int]:
    return [event.seq for event in observation.events]


def kept(query: SessionQuery) -> list[str]:
    """The logs in memory, least recently used first."""
    return list(query._corpus._prepared._entries)


def few(*names: str) -> CountingStore:
    return store_of(*(session(name, f"word {name}") for name in names))


async def test_a_stored_session_is_observed_as_prepared_with_its_closers() -> None:
    log = Log()
    log.turn_start()
    log.user("a")
    store = MemoryStore([(header("s"), log.events)])
    stored = store.stat("s")
    assert stored is not None
    async with (
        open_session_query(store=store) as query,
        query.observe_session("s") as observed,
    ):
        assert (observed.source, observed.header, observed.cursor) == ("prepared", header("s"), 2)
        assert [event.type for event in observed.events][-1] == "turn/end"
        assert observed.revision == stored.revision
        assert (observed.inherited_event_count, observed.left_out) == (0, None)


async def test_a_live_session_is_observed_as_it_is_at_that_moment() -> None:
    store = store_of()
    async with (
        open_session_query(store=store) as query,
        query.sessions.create(id="s", durable=False) as live,
        query.observe_session("s") as empty,
    ):
        await live.commit(message("a"))
        async with query.observe_session("s") as one:
            await live.commit(message("b"))
            assert (seqs(empty), empty.cursor) == ([], -1)
            assert (seqs(one), one.cursor) == ([0], 0)
            assert (one.source, one.revision) == ("live", None)
        assert not store.calls


async def test_an_observation_of_nothing_is_not_found() -> None:
    async with open_session_query(store=store_of()) as query:
        for session_id in ("nowhere", "", None):
            with refused(ErrorCode.SESSION_NOT_FOUND):
                async with query.observe_session(session_id):  # type: ignore[arg-type]
                    pass
    with refused(ErrorCode.ABORTED, "closed"):
        async with query.observe_session("nowhere"):
            pass


# -- leases ---------------------------------------------------------------------------------------


async def test_closing_a_lease_twice_is_harmless() -> None:
    async with open_session_query(store=few("s")) as query:
        async with query.observe_session("s") as observed:
            other = observed.retain()
            observed.close()
            observed.close()
        assert query._corpus._prepared._entries["s"].leases == 1
        other.close()
        assert query._corpus._prepared._entries["s"].leases == 0
        assert seqs(observed) == [0]


@pytest.mark.parametrize("live", [True, False])
async def test_a_closed_lease_cannot_be_retained_and_a_retained_one_lives_on(live: bool) -> None:
    store = few() if live else few("s")
    async with (
        open_session_query(store=store) as query,
        query.sessions.create(id="s" if live else "t"),
    ):
        async with query.observe_session("s") as observed:
            other = observed.retain()
        with refused(ErrorCode.ABORTED, "was closed"):
            observed.retain()
        with other, other.retain() as third:
            assert seqs(third) == seqs(other)
        with refused(ErrorCode.ABORTED, "was closed"):
            third.retain()


async def test_an_observation_stays_readable_after_the_service_has_closed() -> None:
    async with open_session_query(store=few("s")) as query, query.observe_session("s") as observed:
        other = observed.retain()
    assert seqs(other) == [0]
    other.close()


# -- logs in memory -------------------------------------------------------------------------------


async def test_an_unchanged_log_is_read_once_by_whatever_reads() -> None:
    store = few("s")
    async with open_session_query(store=store) as query:
        async with query.observe_session("s") as first:
            pass
        async with query.observe_session("s") as second:
            assert second.events is first.events
        await query.read_event("s", 0)
        await query.list_events("s")
        await query.read_session("s")
        assert store.calls == {"open": 1, "stat": 4}


async def test_an_event_of_a_long_log_is_read_again_without_reading_the_log() -> None:
    store = store_of(session("s", *["word"] * 5_000))
    async with open_session_query(store=store) as query:
        for seq in (0, 4_999, 17):
            assert (await query.read_event("s", seq)).target.seq == seq
        assert store.calls == {"open": 1, "stat": 2}


async def test_a_changed_log_is_read_anew_and_old_leases_keep_what_they_have() -> None:
    store = few("s")
    async with open_session_query(store=store) as query:
        async with query.observe_session("s") as before:
            append(store.inner, "s", "more")
            assert len((await query.read_session("s")).events) == 2
            async with query.observe_session("s") as after:
                assert (seqs(before), seqs(after)) == ([0], [0, 1])
                assert before.revision != after.revision
            assert store.calls["open"] == 2
        assert query._corpus._prepared._entries["s"].leases == 0


async def test_a_log_in_files_is_used_again_once_its_revision_is_final(tmp_path: Path) -> None:
    with JsonlStore(tmp_path).create(header("s")) as handle:
        handle.append(session("s", "a")[1])
    files = OsFilesAt(age(tmp_path) - 1_000_000_000)
    store = CountingStore(JsonlStore(tmp_path, files=files))
    async with open_session_query(store=store) as query:
        for _ in range(2):
            await query.read_event("s", 0)
        assert store.calls == {"open": 2}
        files.now += 1_000_000_000
        for _ in range(3):
            await query.read_event("s", 0)
        assert store.calls == {"open": 3, "stat": 2}


async def test_the_least_recently_used_logs_are_dropped_first() -> None:
    async with open_session_query(
        store=few(*"abcd"), config=QueryConfig(prepared_session_cache_size=3)
    ) as query:
        for session_id in "abcad":
            await query.read_event(session_id, 0)
        assert kept(query) == ["c", "a", "d"]


async def test_leased_logs_are_kept_beyond_the_capacity_until_they_are_released() -> None:
    store = few(*"abc")
    async with open_session_query(
        store=store, config=QueryConfig(prepared_session_cache_size=1)
    ) as query:
        async with query.observe_session("a") as a, query.observe_session("b"):
            other = a.retain()
            await query.read_event("c", 0)
            assert kept(query) == ["a", "b"]
        assert kept(query) == ["a"]
        store.forget()
        async with query.observe_session("a"):
            assert store.calls == {"stat": 1}
        other.close()
        await query.read_event("c", 0)
        assert kept(query) == ["c"]


async def test_logs_that_nobody_leased_take_a_bounded_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prepared_logs, "UNPINNED_BYTES", 2_500)
    store = store_of(*(session(name, "x" * 700) for name in "abc"), session("large", "x" * 3_000))
    async with open_session_query(store=store) as query:
        for session_id in "abc":
            await query.read_event(session_id, 0)
        assert kept(query) == ["b", "c"]
        async with query.observe_session("large"):
            assert kept(query) == ["b", "c", "large"]
        assert kept(query) == []


async def test_of_several_who_want_a_log_one_reads_it() -> None:
    store, hang = few("s"), Hang("_project")
    runtime = InlineRuntime(pace=hang)
    lengths: list[int] = []

    async def observe(query: SessionQuery) -> None:
        async with query.observe_session("s") as observed:
            lengths.append(len(observed.events))

    async with (
        open_session_query(store=store, runtime=runtime) as query,
        trio.open_nursery() as nursery,
    ):
        for _ in range(3):
            nursery.start_soon(observe, query)
        nursery.start_soon(query.read_event, "s", 0)
        await wait_all_tasks_blocked()
        hang.over.set()
    assert lengths == [1, 1, 1]
    assert store.calls["open"] == 1
    assert not query._corpus._prepared._reading


async def test_whoever_waits_reads_where_the_reader_was_cancelled() -> None:
    store, hang = few("s"), Hang("_project")
    async with (
        open_session_query(store=store, runtime=InlineRuntime(pace=hang)) as query,
        trio.open_nursery() as nursery,
    ):
        with trio.CancelScope() as first:
            nursery.start_soon(cancelled_read, query, first)
            await wait_all_tasks_blocked()
            nursery.start_soon(query.read_event, "s", 0)
            await wait_all_tasks_blocked()
            first.cancel()
        hang.over.set()
    assert store.calls["open"] == 2
    assert not query._corpus._prepared._reading


async def cancelled_read(query: SessionQuery, scope: trio.CancelScope) -> None:
    with trio.CancelScope() as own:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(query.read_event, "s", 0)
            await wait_all_tasks_blocked()
            own.cancel()
    assert own.cancelled_caught


async def test_a_session_that_goes_live_while_it_is_read_is_observed_live() -> None:
    store, hang = few("s"), Hang("_project")
    seen: list[tuple[str, int]] = []

    async def observe(query: SessionQuery) -> None:
        async with query.observe_session("s") as observed:
            seen.append((observed.source, len(observed.events)))

    async with (
        open_session_query(store=store, runtime=InlineRuntime(pace=hang)) as query,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(observe, query)
        await wait_all_tasks_blocked()
        async with query.sessions.create(id="s", durable=False) as live:
            await live.commit(message("a"), message("b"))
            hang.over.set()
            await wait_all_tasks_blocked()
    assert seen == [("live", 2)]
    assert query._corpus._prepared._entries["s"].leases == 0


# -- what cannot be observed ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (StoreFailed("the disk is gone"), ErrorCode.PERSISTENCE_FAILED),
        (CorruptLog("line 3 is damaged"), ErrorCode.CORRUPT_SESSION),
    ],
)
async def test_a_failure_is_told_and_the_next_observation_tries_again(
    failure: Exception, code: ErrorCode
) -> None:
    store = FaultyStore(MemoryStore([session("s", "a")]), read_failures=[failure])
    async with open_session_query(store=store) as query:
        with refused(code, str(failure)):
            async with query.observe_session("s"):
                pass
        async with query.observe_session("s") as observed:
            assert seqs(observed) == [0]
        assert store.open_handles == 0


async def test_a_log_that_cannot_be_resumed_is_corrupt_though_its_events_can_be_read() -> None:
    log = Log()
    log.user("a")
    log.replace(5, 5, [0])
    async with open_session_query(store=MemoryStore([(header("s"), log.events)])) as query:
        await query.read_event("s", 1)
        for _ in range(2):
            with refused(ErrorCode.CORRUPT_SESSION):
                async with query.observe_session("s"):
                    pass
        assert query._corpus._prepared._entries["s"].leases == 0


@define(eq=False)
class ForgetfulStore(CountingStore):
    """Opens another session than it was asked for."""

    other: SessionHeader = field(kw_only=True)

    def open(self, session_id: str, access: object) -> ReadHandle:  # type: ignore[override]
        return self.inner.open(self.other.id, "read")


async def test_a_store_that_gives_another_session_is_in_conflict() -> None:
    store = ForgetfulStore(MemoryStore([session("s", "a"), session("t", "b")]), other=header("t"))
    async with open_session_query(store=store) as query:
        with refused(ErrorCode.SOURCE_CONFLICT, "'t'"):
            async with query.observe_session("s"):
                pass


async def test_what_is_observed_cannot_be_changed() -> None:
    async with open_session_query(store=few("s")) as query, query.observe_session("s") as observed:
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            observed.header.id = "t"  # type: ignore[misc]
        data = observed.events[0].data
        assert isinstance(data, dict)
        data.clear()
        assert observed.events[0].data != {}


async def test_a_log_of_another_store_is_never_used_again() -> None:
    first, second = few("s"), few("s")
    async with open_session_query(store=first) as query:
        await query.read_event("s", 0)
        query.mount(second)
        await query.read_event("s", 0)
        assert second.calls == {"open": 1}
