"""Exact reads through the service: live wins over stored, answers are detached, ends are clear."""

from __future__ import annotations

import attrs
import pytest
import trio
import trio.testing
from actor_world import Hang, message, replacement
from builders import START, Log, header
from inline_runtime import InlineRuntime
from service_world import refused, session, sessions_of, store_of

from session_query.actors.composition import open_session_query
from session_query.actors.service import SessionQuery
from session_query.messages.config import QueryConfig
from session_query.messages.errors import ErrorCode
from session_query.messages.records import Surface
from session_query.storage.memory import MemoryStore


async def test_sessions_are_listed_newest_first_and_then_by_code_point() -> None:
    store = store_of(
        session("b", created_at=5),
        session("é", created_at=5),
        session("B", created_at=5),
        session("old", created_at=4),
        session("new", created_at=6),
    )
    async with open_session_query(store=store) as query:
        listed = (await query.list_sessions()).sessions
    assert [record.header.id for record in listed] == ["new", "B", "b", "é", "old"]
    assert {(record.live, record.persisted) for record in listed} == {(False, True)}


async def test_a_session_that_is_live_and_stored_is_listed_once() -> None:
    async with open_session_query(store=store_of()) as query:
        async with query.sessions.create(id="s") as live:
            await live.commit(message("alpha"))
            (record,) = (await query.list_sessions()).sessions
            assert (record.live, record.persisted) == (True, False)
            await live.flush()
            (record,) = (await query.list_sessions()).sessions
            assert (record.live, record.persisted) == (True, True)
        (record,) = (await query.list_sessions()).sessions
        assert (record.live, record.persisted) == (False, True)


async def test_the_reads_of_a_live_session_do_not_touch_the_store() -> None:
    store = store_of()
    async with (
        open_session_query(store=store) as query,
        query.sessions.create(id="s", cwd="/work") as live,
    ):
        await live.commit(message("alpha"), message("beta"), replacement(0, 0, 0))
        store.forget()
        log = await query.read_session("s")
        assert [event.seq for event in log.events] == [0, 1, 2]
        assert [record.surface for record in await query.list_events("s")] == [
            Surface.SHADOWED,
            Surface.CURRENT,
            Surface.CURRENT,
        ]
        window = await query.read_event("s", 1, before=5, after=1)
        assert (window.start_seq, window.end_seq, window.target.seq) == (0, 2, 1)
        assert await query.read_title("s") is None
    assert not store.calls


async def test_a_stored_log_that_ends_inside_a_turn_is_read_with_its_closers() -> None:
    log = Log()
    log.turn_start()
    log.user("alpha")
    async with open_session_query(store=store_of((header("s"), log.events))) as query:
        read = await query.read_session("s")
        assert [event.type for event in read.events] == ["turn/start", "user/message", "turn/end"]
        assert len(await query.list_events("s")) == 3


async def test_what_was_read_from_a_live_session_never_changes() -> None:
    async with (
        open_session_query(store=store_of()) as query,
        query.sessions.create(id="s") as live,
    ):
        await live.commit(message("alpha"))
        listing, log = await query.list_sessions(), await query.read_session("s")
        records = await query.list_events("s")
        page = await query.search_sessions("alpha")
        await live.commit(message("beta"), replacement(0, 0, 0))
        await live.flush()
        assert len(log.events) == len(records) == 1
        assert records[0].surface is Surface.CURRENT
        assert not listing.sessions[0].persisted
        assert page.items[0].best_match.surface is Surface.CURRENT
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            page.items[0].live = False  # type: ignore[misc]


async def test_a_changed_payload_of_a_result_changes_no_other_result() -> None:
    async with open_session_query(store=store_of(session("s", "alpha"))) as query:
        data = (await query.read_event("s", 0)).target.data
        assert isinstance(data, dict)
        data["content"] = "changed"
        again = (await query.read_event("s", 0)).target
        assert again.data != data


async def test_an_event_is_read_with_the_neighbours_that_there_are() -> None:
    async with open_session_query(store=store_of(session("s", *"abcde"))) as query:
        window = await query.read_event("s", 1, before=3, after=2)
        assert [event.seq for event in window.events] == [0, 1, 2, 3]
        assert window.target is window.events[1]


@pytest.mark.parametrize("seq", [-1, 2, 0.5, 2**63, "0", None, True])
async def test_an_event_that_is_not_there_is_not_found(seq: object) -> None:
    async with open_session_query(store=store_of(session("s", "a", "b"))) as query:
        with refused(ErrorCode.EVENT_NOT_FOUND):
            await query.read_event("s", seq)  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [-1, 4, 1.5, "1", None, True])
async def test_a_window_is_checked_before_the_session_is_looked_for(count: object) -> None:
    store = store_of()
    async with open_session_query(store=store, config=QueryConfig(read_window_max=3)) as query:
        with refused(ErrorCode.INVALID_WINDOW, "0 to 3"):
            await query.read_event("nowhere", 0, before=count)  # type: ignore[arg-type]
        with refused(ErrorCode.INVALID_WINDOW, "0 to 3"):
            await query.read_event("nowhere", 0, after=count)  # type: ignore[arg-type]
        assert not store.calls
        with refused(ErrorCode.SESSION_NOT_FOUND):
            await query.read_event("nowhere", 0, before=3, after=3)


async def test_a_session_that_is_nowhere_is_not_found() -> None:
    async with open_session_query(store=store_of()) as query:
        with refused(ErrorCode.SESSION_NOT_FOUND):
            await query.read_session("s")
        with refused(ErrorCode.SESSION_NOT_FOUND):
            await query.list_events("s")
        with refused(ErrorCode.SESSION_NOT_FOUND):
            await query.read_title("s")
        with refused(ErrorCode.SESSION_NOT_FOUND):
            await query.search_events("s", "alpha")


async def test_without_a_store_there_are_live_sessions_alone() -> None:
    async with open_session_query() as query:
        assert (await query.list_sessions()).sessions == ()
        with refused(ErrorCode.SESSION_NOT_FOUND):
            await query.read_session("s")
        async with query.sessions.create(id="s") as live:
            await live.commit(message("alpha"))
            (hit,) = (await query.search_sessions("alpha")).items
            assert (hit.live, hit.persisted) == (True, False)
        assert await sessions_of(query, "alpha") == []


async def test_a_live_session_that_is_stored_under_another_header_is_a_conflict() -> None:
    store = store_of(session("s", "alpha", cwd="/elsewhere"))
    async with (
        open_session_query(store=store) as query,
        query.sessions.create(id="s", cwd="/work", durable=False),
    ):
        with refused(ErrorCode.SOURCE_CONFLICT):
            await query.list_sessions()
        with refused(ErrorCode.SOURCE_CONFLICT):
            await query.search_sessions("alpha")
        assert (await query.read_session("s")).header.cwd == "/work"


async def test_a_log_with_an_invalid_surface_is_read_event_by_event_alone() -> None:
    log = Log()
    log.user("alpha")
    log.replace(5, 5, [0])
    async with open_session_query(store=MemoryStore([(header("s"), log.events)])) as query:
        assert (await query.read_event("s", 1)).target.seq == 1
        with refused(ErrorCode.INVALID_SURFACE):
            await query.list_events("s")


async def test_after_its_end_a_service_refuses_reads_and_searches_each_in_its_way() -> None:
    async with open_session_query(store=store_of(session("s", *"abc"))) as query:
        await query.search_sessions("a")
    assert query.statistics().closed
    for read in (
        query.list_sessions,
        lambda: query.read_session("s"),
        lambda: query.list_events("s"),
        lambda: query.read_event("s", 0),
        lambda: query.read_title("s"),
        lambda: query.read_titles(["s"]),
    ):
        with refused(ErrorCode.ABORTED, "closed"):
            await read()
    with refused(ErrorCode.INDEX_FAILED, "closed"):
        await query.search_sessions("a")
    with refused(ErrorCode.INDEX_FAILED, "closed"):
        await query.search_events("s", "a")
    with refused(ErrorCode.INDEX_FAILED, "closed"):
        await query.refresh()


async def test_after_its_end_a_service_still_checks_arguments_first() -> None:
    async with open_session_query(store=store_of()) as query:
        pass
    with refused(ErrorCode.INVALID_WINDOW):
        await query.read_event("s", 0, before=-1)
    with refused(ErrorCode.INVALID_QUERY):
        await query.search_sessions(" ")


async def test_a_read_of_a_session_that_goes_live_meanwhile_is_answered_live() -> None:
    hang = Hang("_project")
    store, runtime = store_of(session("s", "alpha")), InlineRuntime(pace=hang)
    lengths: list[int] = []

    async def read(query: SessionQuery) -> None:
        lengths.append(len((await query.read_session("s")).events))

    async with (
        open_session_query(store=store, runtime=runtime) as query,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(read, query)
        await trio.testing.wait_all_tasks_blocked()
        async with query.sessions.create(
            id="s", created_at=START, cwd="/work", durable=False
        ) as live:
            await live.commit(message("beta"), message("gamma"))
            hang.over.set()
            await trio.testing.wait_all_tasks_blocked()
    assert lengths == [2]
