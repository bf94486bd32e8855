"""Every code of a query error, raised through the public names, and the order of the checks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from actor_world import Hang
from builders import Log, header
from inline_runtime import InlineRuntime
from service_world import CountingStore, append, refused, session, store_of

from session_query import (
    ErrorCode,
    IndexConfig,
    JsonlStore,
    QueryConfig,
    SessionQuery,
    SessionQueryError,
    Text,
    TypeIn,
    open_session_query,
)

MEMORY: Final = ":memory:"
NEVER: Final = IndexConfig(path=MEMORY, open_at="never")


def few() -> CountingStore:
    return store_of(*(session(each, "word", "word") for each in "abc"))


# -- each code ------------------------------------------------------------------------------------


async def aborted(_directory: Path) -> None:
    async with open_session_query(store=few()) as query:
        pass
    await query.list_sessions()


async def corrupt_session(directory: Path) -> None:
    log = JsonlStore(directory)
    with log.create(header("a")) as handle:
        handle.append(session("a", "word", "word")[1])
    (path,) = directory.rglob("*.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], b"{damaged\n", b'{"type":"turn/end","seq":2}\n']))
    async with open_session_query(store=log) as query:
        await query.read_session("a")


async def event_not_found(_directory: Path) -> None:
    async with open_session_query(store=few()) as query:
        await query.read_event("a", 2)


async def index_failed(directory: Path) -> None:
    (directory / "index.db").write_bytes(b"not a database, but long enough to be taken for one")
    async with open_session_query(index=IndexConfig(path=str(directory / "index.db"))):
        pass


async def invalid_config(_directory: Path) -> None:
    IndexConfig(path=" ")


async def invalid_cursor(_directory: Path) -> None:
    async with open_session_query(store=few()) as query:
        await query.search_sessions("word", cursor="no cursor")


async def invalid_filter(_directory: Path) -> None:
    async with open_session_query(store=few()) as query:
        await query.filter_events("a", [Text(" ")])


async def invalid_limit(_directory: Path) -> None:
    async with open_session_query(store=few()) as query:
        await query.search_sessions("word", limit=0)


async def invalid_query(_directory: Path) -> None:
    async with open_session_query(store=few()) as query:
        await query.search_sessions(" ")


async def invalid_lineage(_directory: Path) -> None:
    store = store_of(session("a", parent_session="b"), session("b", parent_session="a"))
    async with open_session_query(store=store) as query:
        await query.trace_session("a")


async def invalid_surface(_directory: Path) -> None:
    log = Log()
    log.replace(9, 9, [9])
    async with open_session_query(store=store_of((header("a"), log.events))) as query:
        await query.list_events("a")


async def invalid_window(_directory: Path) -> None:
    async with open_session_query(store=few()) as query:
        await query.read_event("a", 0, before=51)


async def persistence_failed(directory: Path) -> None:
    (directory / "store").write_bytes(b"")
    async with open_session_query(store=JsonlStore(directory / "store")) as query:
        await query.list_sessions()


async def search_disabled(_directory: Path) -> None:
    async with open_session_query(store=few(), index=NEVER) as query:
        await query.search_sessions("word")


async def session_not_found(_directory: Path) -> None:
    async with open_session_query(store=few()) as query:
        await query.search_events("d", "word")


async def source_conflict(_directory: Path) -> None:
    async with (
        open_session_query(store=few()) as query,
        query.sessions.create(id="a", durable=False),
    ):
        await query.list_sessions()


async def stale_cursor(_directory: Path) -> None:
    store = few()
    async with open_session_query(store=store) as query:
        page = await query.search_sessions("word", limit=1)
        append(store, "c", "word")
        await query.search_sessions("word", limit=1, cursor=page.next_cursor)


SCENARIOS: Final = (
    aborted,
    corrupt_session,
    event_not_found,
    index_failed,
    invalid_config,
    invalid_cursor,
    invalid_filter,
    invalid_limit,
    invalid_query,
    invalid_lineage,
    invalid_surface,
    invalid_window,
    persistence_failed,
    search_disabled,
    session_not_found,
    source_conflict,
    stale_cursor,
)

CAUSED: Final = {"corrupt_session", "index_failed", "persistence_failed", "invalid_surface"}
"""Codes that tell of something that went wrong elsewhere."""


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_each_code_is_raised_where_it_belongs(
    tmp_path: Path, scenario: Callable[[Path], Awaitable[None]]
) -> None:
    with pytest.raises(SessionQueryError) as raised:
        await scenario(tmp_path)
    name = scenario.__name__
    assert raised.value.code.value == f"SESSION_QUERY_{name.upper()}"
    assert len(str(raised.value)) > 10
    assert name not in CAUSED or raised.value.__cause__ is not None


def test_there_are_seventeen_codes_and_each_has_a_scenario() -> None:
    assert {f"SESSION_QUERY_{each.__name__.upper()}" for each in SCENARIOS} == {
        code.value for code in ErrorCode
    }
    assert len(ErrorCode) == 17


# -- the order of the checks ----------------------------------------------------------------------

Call = Callable[[SessionQuery], Awaitable[object]]


async def observe(query: SessionQuery, session_id: Any = "a") -> object:
    async with query.observe_session(session_id) as observed:
        return observed


READS: Final[dict[str, tuple[Call, Call | None]]] = {
    "list_sessions": (lambda query: query.list_sessions(), None),
    "filter_sessions": (
        lambda query: query.filter_sessions([]),
        lambda query: query.filter_sessions(5),  # type: ignore[arg-type]
    ),
    "trace_session": (lambda query: query.trace_session("a"), None),
    "read_session": (
        lambda query: query.read_session("a"),
        lambda query: query.read_session(5),  # type: ignore[arg-type]
    ),
    "list_events": (
        lambda query: query.list_events("a"),
        lambda query: query.list_events(5),  # type: ignore[arg-type]
    ),
    "filter_events": (
        lambda query: query.filter_events("a", []),
        lambda query: query.filter_events("a", [Text("")]),
    ),
    "read_surface": (
        lambda query: query.read_surface("a"),
        lambda query: query.read_surface(5),  # type: ignore[arg-type]
    ),
    "read_event": (
        lambda query: query.read_event("a", 0),
        lambda query: query.read_event("a", 0, 51),
    ),
    "trace_event": (
        lambda query: query.trace_event("a", 0),
        lambda query: query.trace_event(5, 0),  # type: ignore[arg-type]
    ),
    "read_title": (lambda query: query.read_title("a"), None),
    "read_titles": (lambda query: query.read_titles(["a", "b"]), None),
    "project_many": (lambda query: query.project_many("ab", lambda log: log), None),
    "observe_session": (observe, lambda query: observe(query, 5)),
    "wait_for_session": (
        lambda query: query.wait_for_session("a"),
        lambda query: query.wait_for_session("a", "0"),  # type: ignore[arg-type]
    ),
}
"""Reads, each as it should be called and as it should not."""

SEARCHES: Final[dict[str, tuple[Call, Call | None]]] = {
    "search_sessions": (
        lambda query: query.search_sessions("word"),
        lambda query: query.search_sessions("word", event_filters=[Text("word")]),
    ),
    "search_events": (
        lambda query: query.search_events("a", "word", filters=[TypeIn(["turn/end"])]),
        lambda query: query.search_events("a", ""),
    ),
    "refresh": (lambda query: query.refresh(), None),
    "rebuild_index": (lambda query: query.rebuild_index(), None),
    "purge": (
        lambda query: query.purge("a"),
        lambda query: query.purge(5),  # type: ignore[arg-type]
    ),
    "index_status": (lambda query: query.index_status(), None),
    "changed_sessions": (
        lambda query: query.changed_sessions(0),
        lambda query: query.changed_sessions("0"),  # type: ignore[arg-type]
    ),
    "wait_for_generation": (
        lambda query: query.wait_for_generation(0),
        lambda query: query.wait_for_generation(0.5),  # type: ignore[arg-type]
    ),
}
"""What needs the index, likewise."""

CALLS: Final = {**READS, **SEARCHES}
NOT_CALLS: Final = {
    *("sessions", "generation", "generations", "statistics", "close", "mount", "unmount"),
    *("recall", "copy_log"),
}
"""What waits for nothing, or has tests of this kind with the tools and the export."""


def test_every_public_call_is_in_the_tables() -> None:
    names = {name for name in dir(SessionQuery) if not name.startswith("_")}
    assert names == {*CALLS, *NOT_CALLS}


@pytest.mark.parametrize("name", CALLS)
async def test_a_closed_service_says_so_before_it_looks_whether_the_caller_is_cancelled(
    name: str,
) -> None:
    store = few()
    async with open_session_query(store=store) as query:
        await query.refresh()
    store.forget()
    code = ErrorCode.INDEX_FAILED if name in SEARCHES else ErrorCode.ABORTED
    with trio.CancelScope() as scope:
        scope.cancel()
        with refused(code, "closed"):
            await CALLS[name][0](query)
    assert not store.calls


@pytest.mark.parametrize("name", [name for name, (_, bad) in CALLS.items() if bad is not None])
@pytest.mark.parametrize("closed", [False, True])
async def test_arguments_are_checked_before_anything_else(name: str, closed: bool) -> None:
    store, bad = few(), CALLS[name][1]
    assert bad is not None
    codes: list[ErrorCode] = []

    async def call(query: SessionQuery) -> None:
        with trio.CancelScope() as scope:
            scope.cancel()
            with pytest.raises(SessionQueryError) as error:
                await bad(query)
            codes.append(error.value.code)

    async with open_session_query(store=store) as query:
        if not closed:
            await call(query)
    if closed:
        await call(query)
    assert codes[0] not in (ErrorCode.ABORTED, ErrorCode.INDEX_FAILED)
    assert not store.calls


@pytest.mark.parametrize("name", SEARCHES)
async def test_a_disabled_search_says_so_before_it_looks_at_the_arguments(name: str) -> None:
    async with open_session_query(store=few(), index=NEVER) as query:
        pass
    for call in filter(None, SEARCHES[name]):
        with trio.CancelScope() as scope:
            scope.cancel()
            with refused(ErrorCode.SEARCH_DISABLED):
                await call(query)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("open_at", ["startup", "first-search"])
async def test_a_call_that_is_cancelled_already_does_nothing(
    tmp_path: Path, name: str, open_at: Any
) -> None:
    store, index = few(), IndexConfig(path=str(tmp_path / "i" / "index.db"), open_at=open_at)
    async with open_session_query(store=store, index=index) as query:
        with trio.CancelScope() as scope:
            scope.cancel()
            await CALLS[name][0](query)
        assert scope.cancelled_caught
        assert not store.calls
        assert (tmp_path / "i").exists() is (open_at == "startup")
        assert query.generation == 0


# -- what is reported first -----------------------------------------------------------------------


async def test_a_target_is_looked_for_before_a_cursor_and_a_cursor_before_nothing() -> None:
    """Both after the index was brought up to date: the target may have come or gone meanwhile."""
    store = few()
    async with open_session_query(store=store) as query:
        page = await query.search_events("a", "word", limit=1)
        store.inner = store_of(session("b", "word")).inner
        with refused(ErrorCode.SESSION_NOT_FOUND):
            await query.search_events("a", "word", limit=1, cursor=page.next_cursor)
        with refused(ErrorCode.INVALID_CURSOR):
            await query.search_events("b", "word", limit=1, cursor=page.next_cursor)


# -- closing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("running", ["sweep", "_scan"])
async def test_searches_that_run_or_wait_as_the_service_closes_are_answered_and_later_ones_not(
    running: str,
) -> None:
    hang, answers = Hang(running), list[int]()

    async def search() -> None:
        answers.append(len((await query.search_sessions("word")).items))

    async def go_on_once_it_closes() -> None:
        while not query.statistics().closed:
            await trio.lowlevel.checkpoint()
        with refused(ErrorCode.INDEX_FAILED):
            await query.search_sessions("word")
        assert not answers
        hang.over.set()

    async with (
        trio.open_nursery() as nursery,
        open_session_query(
            store=few(),
            config=QueryConfig(search_concurrency=1),
            runtime=InlineRuntime(pace=hang),
        ) as query,
    ):
        for _ in range(5):
            nursery.start_soon(search)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(go_on_once_it_closes)
    assert answers == [3] * 5
