"""Filtering through the service: what is read for it, what is shown, and whose workspace counts."""

from __future__ import annotations

import attrs
import pytest
import trio
from actor_world import Hang, message, replacement
from builders import Log, header
from faulty_store import FaultyStore
from inline_runtime import InlineRuntime
from service_world import CountingStore, events_of, refused, session, sessions_of, store_of

from session_query import (
    AvailabilityIn,
    Cwd,
    Ids,
    IndexConfig,
    MemoryStore,
    QueryConfig,
    SeqRange,
    SessionLog,
    SessionQuery,
    SurfaceIn,
    Text,
    TypeIn,
    open_session_query,
)
from session_query.messages.errors import ErrorCode
from session_query.messages.filters import EventFilter, SessionFilter
from session_query.messages.json import Json, text_member
from session_query.messages.records import Surface
from session_query.storage.contract import StoreFailed


async def filtered(query: SessionQuery, *filters: SessionFilter) -> list[str]:
    return [record.header.id for record in (await query.filter_sessions(filters)).sessions]


async def test_sessions_are_filtered_in_the_order_of_the_listing() -> None:
    store = store_of(*(session(name, "x", created_at=9 - n) for n, name in enumerate("cab")))
    async with (
        open_session_query(store=store) as query,
        query.sessions.create(id="live", cwd="/work", created_at=5),
    ):
        assert await filtered(query) == ["c", "a", "b", "live"]
        assert await filtered(query, Ids(["b", "c", "nowhere"])) == ["c", "b"]
        assert await filtered(query, AvailabilityIn(["live"])) == ["live"]
        assert await filtered(query, AvailabilityIn(["persisted"])) == ["c", "a", "b"]
        assert store.calls == {"sweep": 4}


async def test_filters_belong_to_the_call_from_its_first_moment() -> None:
    values = ["s"]
    filters = [Ids(values)]
    async with open_session_query(store=store_of(session("s", "a"), session("t", "b"))) as query:
        found: list[str] = []

        async def ask() -> None:
            found.extend(
                record.header.id for record in (await query.filter_sessions(filters)).sessions
            )

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            values.append("t")
            filters.clear()
    assert found == ["s"]


async def test_what_a_listing_leaves_out_a_filtered_one_names_too() -> None:
    async with open_session_query(store=store_of()) as query:
        assert (await query.filter_sessions([])) == (await query.list_sessions())


async def test_events_are_filtered_with_their_texts() -> None:
    log = Log()
    log.turn_start()
    log.user("Alpha  beta")
    log.call("c", "grep", '{"q": "alpha beta"}')
    log.user("gamma")
    log.replace(1, 3, [1, 3], "alpha\nbeta in short")
    async with open_session_query(store=MemoryStore([(header("s"), log.events)])) as query:
        everything = await query.filter_events("s", [])
        assert [(document.seq, document.surface.value) for document in everything] == [
            (1, "shadowed"),
            (2, "log-only"),
            (3, "shadowed"),
            (4, "current"),
            (5, "log-only"),  # closers are events as well
        ]
        assert everything[1].text == 'grep\n{"q": "alpha beta"}'
        both: list[EventFilter] = [Text("ALPHA BETA"), TypeIn(["user/message"])]
        assert [document.seq for document in await query.filter_events("s", both)] == [1, 4]
        shadowed = [*both, SurfaceIn([Surface.SHADOWED]), SeqRange(0, 3)]
        assert await query.filter_events("s", shadowed) == (everything[0],)
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            everything[0].text = "changed"  # type: ignore[misc]


async def test_events_of_a_live_session_are_filtered_as_they_are_now() -> None:
    async with open_session_query() as query, query.sessions.create(id="s") as live:
        assert await query.filter_events("s", []) == ()
        await live.commit(message("alpha"))
        (before,) = await query.filter_events("s", [Text("alpha")])
        await live.commit(replacement(0, 0, 0))
        (after,) = await query.filter_events("s", [Text("alpha")])
        assert (before.surface, after.surface) == (Surface.CURRENT, Surface.SHADOWED)


async def test_bad_filters_are_told_before_a_session_is_looked_for() -> None:
    store = store_of()
    async with open_session_query(store=store) as query:
        with refused(ErrorCode.INVALID_FILTER, "blank"):
            await query.filter_events("nowhere", [Text(" ")])
        with refused(ErrorCode.INVALID_FILTER, "one of Ids"):
            await query.filter_sessions([Text("x")])  # type: ignore[list-item]
        with refused(ErrorCode.INVALID_FILTER, "list of filters"):
            await query.filter_events("nowhere", "x")  # type: ignore[arg-type]
        assert not store.calls
        with refused(ErrorCode.SESSION_NOT_FOUND):
            await query.filter_events("nowhere", [])


async def test_text_of_own_event_types_is_filtered_and_shown_redacted() -> None:
    def extract(event_type: str, data: Json) -> str:
        return text_member(data, "note") if event_type == "host/note" else ""

    log = Log()
    log.add("host/note", {"note": "the secret plan"}, ignorable=True)
    config = QueryConfig(extract=extract, redact=lambda text: text.replace("secret", "•••"))
    store = MemoryStore([(header("s"), log.events)])
    async with open_session_query(store=store, config=config) as query:
        (document,) = await query.filter_events("s", [Text("secret")])
        assert document.text == "the ••• plan"
        assert await events_of(query, "s", "plan") == [0]


# -- surfaces -------------------------------------------------------------------------------------


async def test_a_surface_is_in_its_own_order_and_says_through_which_seq() -> None:
    log = Log()
    for text in "abc":
        log.user(text)
    log.replace(0, 1, [0, 1], "sum")
    log.turn_end()
    async with open_session_query(store=MemoryStore([(header("s"), log.events)])) as query:
        found = await query.read_surface("s")
        assert [event.seq for event in found.events] == [3, 2]
        assert found.captured_through_seq == 4
        assert found.header == header("s")
        data = found.events[0].data
        assert isinstance(data, dict)
        data.clear()
        assert found.events[0].data == log.events[3].data


async def test_a_session_without_events_has_an_empty_surface_through_no_seq() -> None:
    async with (
        open_session_query(store=MemoryStore([(header("stored"), ())])) as query,
        query.sessions.create(id="live"),
    ):
        for session_id in ("stored", "live"):
            found = await query.read_surface(session_id)
            assert (found.events, found.captured_through_seq) == ((), None)


async def test_a_surface_stays_as_it_was_captured() -> None:
    async with open_session_query() as query, query.sessions.create(id="s") as live:
        await live.commit(message("a"))
        before = await query.read_surface("s")
        await live.commit(replacement(0, 0, 0))
        assert [event.seq for event in before.events] == [0]
        assert [event.seq for event in (await query.read_surface("s")).events] == [1]


# -- workspaces -----------------------------------------------------------------------------------


def plain(cwd: str) -> str:
    """Directories whose case and last slash do not matter."""
    return cwd.lower().rstrip("/")


def workspaces() -> CountingStore:
    return store_of(
        session("a", "word", cwd="/Work"),
        session("b", "word", cwd="/work/"),
        session("c", "word", cwd="/other"),
        session("d", "word", cwd=None),
    )


@pytest.mark.parametrize("tokenizer", ["cjk", "unicode61"])
@pytest.mark.parametrize(
    ("values", "found"),
    [
        (["/WORK"], "ab"),
        (["/work"], "ab"),
        (["/work", "/OTHER/"], "abc"),
        ([None], "d"),
        ([None, "/Other"], "cd"),
        (["/nowhere"], ""),
        ([], ""),
    ],
)
async def test_a_workspace_is_told_by_its_canonical_form_in_every_operation(
    tokenizer: str, values: list[str | None], found: str
) -> None:
    index = IndexConfig(path=":memory:", tokenizer=tokenizer)
    config = QueryConfig(canonical_cwd=plain)
    clause = [Cwd(values)]
    async with open_session_query(store=workspaces(), index=index, config=config) as query:
        assert sorted(await filtered(query, *clause)) == [*found]
        assert sorted(await sessions_of(query, "word", session_filters=clause)) == [*found]


async def test_without_a_canonical_form_directories_are_compared_as_they_are() -> None:
    async with open_session_query(store=workspaces()) as query:
        assert await filtered(query, Cwd(["/work"])) == []
        assert await sessions_of(query, "word", session_filters=[Cwd(["/Work"])]) == ["a"]


async def test_the_workspace_of_a_live_session_counts_alike(tmp_path: object) -> None:
    index = IndexConfig(path=f"{tmp_path}/index.db")
    config = QueryConfig(canonical_cwd=plain)
    clause = [Cwd(["/WORK"])]
    async with (
        open_session_query(store=workspaces(), index=index, config=config) as query,
        query.sessions.create(id="live", cwd="/wORK") as live,
    ):
        await live.commit(message("word"))
        found = await sessions_of(query, "word", session_filters=clause)
        assert sorted(found) == ["a", "b", "live"]
        assert sorted(await filtered(query, *clause)) == ["a", "b", "live"]


async def test_headers_are_shown_as_they_are_stored() -> None:
    config = QueryConfig(canonical_cwd=plain)
    async with open_session_query(store=workspaces(), config=config) as query:
        page = await query.search_sessions("word", session_filters=[Cwd(["/work"])])
        assert {hit.header.cwd for hit in page.items} == {"/Work", "/work/"}


async def test_pages_of_a_workspace_follow_each_other() -> None:
    config = QueryConfig(canonical_cwd=plain)
    async with open_session_query(store=workspaces(), config=config) as query:
        clause = [Cwd(["/work"])]
        first = await query.search_sessions("word", session_filters=clause, limit=1)
        assert first.next_cursor is not None
        second = await query.search_sessions(
            "word", session_filters=clause, limit=1, cursor=first.next_cursor
        )
        assert {hit.header.id for hit in (*first.items, *second.items)} == {"a", "b"}
        assert second.next_cursor is None


# -- many logs ------------------------------------------------------------------------------------


async def test_a_fold_of_many_logs_isolates_what_fails() -> None:
    def length(log: SessionLog) -> int:
        return len(log.events) // (0 if log.header.id == "b" else 1)

    store = store_of(session("a", "x", "y"), session("b", "x"))
    async with open_session_query(store=store) as query, query.sessions.create(id="live"):
        found = await query.project_many(["a", "live", "nowhere", "b", "a"], length)
    assert [result.session_id for result in found] == ["a", "live", "nowhere", "b"]
    assert [result.value for result in found] == [2, 0, None, None]
    assert found[0].error is None
    assert getattr(found[2].error, "code", None) is ErrorCode.SESSION_NOT_FOUND
    assert isinstance(found[3].error, ZeroDivisionError)
    assert store.calls == {"open": 3}


async def test_a_fold_of_live_logs_touches_no_store() -> None:
    store = store_of()
    async with open_session_query(store=store) as query:
        async with query.sessions.create(id="s", durable=False) as live:
            await live.commit(message("a"))
            (result,) = await query.project_many(["s"], lambda log: log)
        assert not store.calls
        assert result.value is not None
        assert (result.value.header.id, len(result.value.events)) == ("s", 1)


async def test_a_session_that_ends_or_goes_live_while_many_are_read_is_answered() -> None:
    store, hang = store_of(session("cold", "a"), session("late", "b")), Hang("_project")
    lengths: dict[str, int | None] = {}

    async def project(query: SessionQuery) -> None:
        found = await query.project_many(["early", "cold", "late"], lambda log: len(log.events))
        lengths.update({result.session_id: result.value for result in found})

    async with (
        open_session_query(store=store, runtime=InlineRuntime(pace=hang)) as query,
        trio.open_nursery() as nursery,
    ):
        async with query.sessions.create(id="early", durable=False) as early:
            await early.commit(message("a"), message("b"))
            nursery.start_soon(project, query)
            await trio.testing.wait_all_tasks_blocked()
        async with query.sessions.create(id="late", durable=False) as late:
            await late.commit(message("a"), message("b"), message("c"))
            hang.over.set()
            await trio.testing.wait_all_tasks_blocked()
    assert lengths == {"early": 2, "cold": 1, "late": 3}


async def test_live_sessions_are_read_whatever_ails_the_store() -> None:
    broken = FaultyStore(read_failures=[StoreFailed("the disk is gone")] * 20)
    async with (
        open_session_query(store=broken) as query,
        query.sessions.create(id="s", durable=False) as live,
    ):
        await live.commit(message("a"))
        assert len(await query.filter_events("s", [])) == 1
        assert (await query.read_surface("s")).captured_through_seq == 0
        assert (await query.trace_event("s", 0)).target.seq == 0
        assert (await query.project_many(["s"], lambda log: len(log.events)))[0].value == 1
        async with query.observe_session("s") as observed:
            assert observed.cursor == 0
        assert len(broken.read_failures) == 20
        with refused(ErrorCode.PERSISTENCE_FAILED, "the disk is gone"):
            await query.filter_sessions([])
