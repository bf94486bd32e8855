"""Nobody sees another workspace: a guess of what is there answers just as one of what is not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from actor_world import message
from attrs import evolve
from service_world import CountingStore, session, store_of
from tool_world import Call, tool_named, watched

from session_query.actors.composition import open_session_query
from session_query.actors.service import SessionQuery
from session_query.messages.config import QueryConfig
from session_query.messages.filters import Ids, Parent
from session_query.storage.jsonl import JsonlStore
from session_query.tools.boundary import UNAUTHORIZED
from session_query.tools.definition import Caller, ToolError, ToolErrorCode
from session_query.tools.session_tools import workspace_tools

CALLER = Caller("mine", "/work", step_start=lambda: 1)

HIDDEN = ["foreign", "foreign-child", "no-cwd", "circle-a", "circle-b", "above-mine", "below-mine"]
MISSING = "never-written"


def world() -> CountingStore:
    """Sessions of the workspace among, above and below others."""
    return store_of(
        session("above-mine", "harbour lantern", cwd="/else"),
        session("mine", "harbour lantern", "harbour", parent_session="above-mine"),
        session("child", "harbour lantern", parent_session="mine"),
        session("below-mine", "harbour lantern", cwd="/else", parent_session="mine"),
        session("under-hidden", "harbour lantern", parent_session="below-mine"),
        session("orphan", "harbour lantern", parent_session="gone"),
        session("foreign", "harbour lantern", cwd="/else"),
        session("foreign-child", "harbour lantern", cwd="/else", parent_session="foreign"),
        session("no-cwd", "harbour lantern", cwd=None),
        session("circle-a", "harbour lantern", cwd="/else", parent_session="circle-b"),
        session("circle-b", "harbour lantern", cwd="/else", parent_session="circle-a"),
    )


async def outcome(
    query: SessionQuery,
    name: str,
    arguments: dict[str, Any],
    guess: str,
    caller: Caller = CALLER,
    before: Callable[[str], Awaitable[None]] | None = None,
) -> tuple[Any, list[Any]]:
    """All that a caller can tell of a call: its answer or refusal, and what was asked for it."""

    async def disturb(method: str, _number: int, call: Callable[[], Awaitable[Any]]) -> Any:
        if before is not None:
            await before(method)
        return await call()

    recall = watched(query, disturb)
    answer: Any
    try:
        result = await tool_named(recall, name).run(caller, arguments)
        answer = (result.text.replace(guess, "X"), result.structured)
    except ToolError as error:
        answer = (error.code, str(error))
    return answer, [shape(call) for call in recall.calls]


def shape(call: Call) -> Any:
    """The method of a call, and its arguments without the values in them."""

    def of(value: Any) -> Any:
        if isinstance(value, (Ids, Parent)):
            return (value.kind, len(value.values))
        if isinstance(value, (list, tuple)):
            return [of(item) for item in value]
        return type(value).__name__

    return (call.method, [of(argument) for argument in call.arguments])


GUESSES: dict[str, Callable[[str], dict[str, Any]]] = {
    "session_event_search": lambda guess: {"query": "harbour", "session_id": guess},
    "session_trace": lambda guess: {"session_id": guess},
    "session_event_trace": lambda guess: {"session_id": guess, "seq": 0},
    "session_event_read": lambda guess: {"session_id": guess, "seq": 0, "before": 3},
}
SEARCHES: dict[str, Callable[[str], dict[str, Any]]] = {
    "ids": lambda guess: {"query": "harbour", "session_ids": [guess]},
    "parents": lambda guess: {"query": "harbour", "parent_session_ids": [guess]},
    "parents and roots": lambda guess: {
        "query": "harbour",
        "parent_session_ids": [guess],
        "include_root_sessions": True,
    },
    "parents among mine": lambda guess: {
        "query": "harbour",
        "parent_session_ids": ["child", guess, "mine"],
    },
}


@pytest.mark.parametrize("name", GUESSES)
async def test_a_hidden_session_is_refused_as_a_missing_one(name: str) -> None:
    async with open_session_query(store=world()) as query:
        missing = await outcome(query, name, GUESSES[name](MISSING), MISSING)
        assert missing[0] == (ToolErrorCode.UNAUTHORIZED, UNAUTHORIZED)
        for guess in HIDDEN:
            assert await outcome(query, name, GUESSES[name](guess), guess) == missing, guess


@pytest.mark.parametrize("kind", SEARCHES)
async def test_a_search_by_hidden_ids_answers_as_by_missing_ones(kind: str) -> None:
    async with open_session_query(store=world()) as query:
        missing = await outcome(query, "session_search", SEARCHES[kind](MISSING), MISSING)
        for guess in HIDDEN:
            found = await outcome(query, "session_search", SEARCHES[kind](guess), guess)
            assert found == missing, guess


async def test_a_guessed_parent_alone_starts_no_search() -> None:
    async with open_session_query(store=world()) as query:
        for guess in (*HIDDEN, MISSING):
            _answer, calls = await outcome(
                query, "session_search", SEARCHES["parents"](guess), guess
            )
            assert [method for method, _arguments in calls] == ["filter_sessions"]


@pytest.mark.parametrize("name", GUESSES)
async def test_a_caller_without_a_workspace_sees_itself_alone(name: str) -> None:
    caller = Caller("no-cwd", None, step_start=lambda: 1)
    async with open_session_query(store=world()) as query:
        missing = await outcome(query, name, GUESSES[name](MISSING), MISSING, caller)
        assert missing == ((ToolErrorCode.UNAUTHORIZED, UNAUTHORIZED), [])
        for guess in ("mine", "foreign"):
            assert await outcome(query, name, GUESSES[name](guess), guess, caller) == missing
        own, _calls = await outcome(query, name, GUESSES[name]("no-cwd"), "no-cwd", caller)
        assert own[0] != ToolErrorCode.UNAUTHORIZED


async def test_a_caller_without_a_workspace_cannot_search_across() -> None:
    async with open_session_query(store=world()) as query:
        answer = await outcome(
            query, "session_search", {"query": "harbour"}, "", Caller("no-cwd", None)
        )
        assert answer == ((ToolErrorCode.UNAUTHORIZED, UNAUTHORIZED), [])


@pytest.mark.parametrize("name", GUESSES)
@pytest.mark.parametrize("at", ["filter_sessions", "payload", "read_titles"])
async def test_a_session_that_moves_away_meanwhile_is_refused(name: str, at: str) -> None:
    async with (
        open_session_query() as query,
        query.sessions.create(id="mine", cwd="/work", durable=False),
    ):
        moved = False

        async def disturb(method: str, _number: int, call: Callable[[], Awaitable[Any]]) -> Any:
            nonlocal moved
            payload = method not in ("filter_sessions", "read_titles")
            moved = moved or method == at or (payload and at == "payload")
            cwd = "/else" if moved else "/work"
            async with query.sessions.create(id="target", cwd=cwd, durable=False) as live:
                await live.commit(message("harbour"), message("lantern"))
                return await call()

        recall = watched(query, disturb)
        with pytest.raises(ToolError) as error:
            await tool_named(recall, name).run(CALLER, GUESSES[name]("target"))
        assert (error.value.code, str(error.value)) == (ToolErrorCode.UNAUTHORIZED, UNAUTHORIZED)


@pytest.mark.parametrize("name", ["session_event_trace", "session_event_read"])
async def test_what_is_wrong_with_a_session_that_has_moved_away_is_not_told(name: str) -> None:
    async with open_session_query() as query:

        async def disturb(method: str, number: int, call: Callable[[], Awaitable[Any]]) -> Any:
            there = method == "filter_sessions" and number == 1
            cwd = "/work" if there else "/else"
            async with query.sessions.create(id="target", cwd=cwd, durable=False):
                return await call()

        arguments = {"session_id": "target", "seq": 5}
        with pytest.raises(ToolError) as error:
            await tool_named(watched(query, disturb), name).run(CALLER, arguments)
        assert (error.value.code, str(error.value)) == (ToolErrorCode.UNAUTHORIZED, UNAUTHORIZED)


@pytest.mark.parametrize("name", GUESSES)
async def test_the_own_session_is_refused_once_it_has_moved(name: str) -> None:
    async with open_session_query(store=world()) as query:
        caller = evolve(CALLER, cwd="/moved")
        answer, _calls = await outcome(query, name, GUESSES[name]("mine"), "mine", caller)
        assert answer == (ToolErrorCode.UNAUTHORIZED, UNAUTHORIZED)


async def test_a_family_shows_no_id_beyond_the_workspace() -> None:
    async with open_session_query(store=world()) as query:
        (text, data), _calls = await outcome(query, "session_trace", {}, "-")
        assert data["boundary"]
        assert [
            below["session"] and below["session"]["session_id"] for below in data["descendants"]
        ] == [
            None,
            "child",
        ]
        for hidden in ("above", "below", "under", "else"):
            assert hidden not in text + str(data)


async def test_a_hidden_parent_looks_as_a_missing_one() -> None:
    async with open_session_query(store=world()) as query:
        traced = [
            (await outcome(query, "session_trace", {"session_id": own}, own))[0]
            for own in ("under-hidden", "orphan")
        ]
        assert traced[0][0].replace("X", "") == traced[1][0].replace("X", "")
        (_text, data), _calls = await outcome(query, "session_search", {"query": "lantern"}, "-")
        parents = {hit["session_id"]: hit["parent"] for hit in data["hits"]}
        assert parents["under-hidden"] == parents["orphan"]
        assert parents["child"] == {"kind": "session", "session_id": "mine"}


async def test_a_circle_beyond_the_workspace_looks_as_a_missing_parent() -> None:
    store = store_of(
        session("into-circle", "x", parent_session="circle-a"),
        session("circle-a", "x", cwd="/else", parent_session="circle-b"),
        session("circle-b", "x", cwd="/else", parent_session="circle-a"),
        session("in-a-circle", "x", parent_session="theirs"),
        session("theirs", "x", cwd="/else", parent_session="in-a-circle"),
        session("orphan", "x", parent_session="gone"),
    )
    async with open_session_query(store=store) as query:
        found = {}
        for own in ("into-circle", "in-a-circle", "orphan"):
            answer, calls = await outcome(query, "session_trace", {"session_id": own}, own)
            found[own] = (answer[0], {**answer[1], "target": answer[1]["target"]["title"]}, calls)
        assert found["into-circle"] == found["orphan"]
        # Here a child beyond the workspace is marked, as every such child is.
        _text, data, calls = found["in-a-circle"]
        assert data["descendants"].pop()["session"] is None
        assert (data, calls) == found["orphan"][1:]


async def test_only_skipped_sessions_of_the_workspace_are_counted(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    for header, events in (
        session("mine", "harbour"),
        session("damaged", "harbour", "lantern"),
        session("damaged-else", "harbour", "lantern", cwd="/else"),
    ):
        with store.create(header) as handle:
            handle.append(events)
    for path in sorted(tmp_path.rglob("damaged*/*.jsonl")):
        path.write_bytes(path.read_bytes().replace(b"user/message", b"no/such"))
    async with open_session_query(store=JsonlStore(tmp_path)) as query:
        page = await query.search_sessions("harbour")
        assert len(page.skipped) == 2
        (text, data), _calls = await outcome(query, "session_search", {"query": "harbour"}, "-")
        assert data["skipped"] == 1
        assert "1 session of this workspace could not be read" in text
        assert "damaged" not in text


async def test_spellings_of_one_workspace_count_as_one_where_the_host_says_so() -> None:
    store = store_of(session("mine", "x"), session("other", "harbour", cwd="/work/"))
    config = QueryConfig(canonical_cwd=lambda cwd: cwd.rstrip("/"))
    async with open_session_query(store=store) as query:
        (_text, data), _calls = await outcome(query, "session_search", {"query": "harbour"}, "-")
        assert data["hits"] == []
    async with open_session_query(store=store, config=config) as query:
        (_text, data), _calls = await outcome(query, "session_search", {"query": "harbour"}, "-")
        assert [hit["session_id"] for hit in data["hits"]] == ["other"]
        arguments = GUESSES["session_event_read"]("other")
        (_text, data), _calls = await outcome(query, "session_event_read", arguments, "-")
        assert data["session_id"] == "other"


async def test_a_workspace_searches_without_a_session_of_its_own() -> None:
    async with open_session_query(store=world()) as query:
        tools = {tool.name: tool for tool in workspace_tools(query)}
        caller = Caller.of_workspace("/work")
        found = await tools["session_search"].run(caller, {"query": "harbour"})
        assert {hit["session_id"] for hit in found.structured["hits"]} >= {"mine", "child"}  # type: ignore
        for name in GUESSES:
            with pytest.raises(ToolError, match="session_id is missing") as error:
                await tools[name].run(caller, {"query": "harbour", "seq": 0})
            assert error.value.code == ToolErrorCode.INVALID_ARGS
        event = await tools["session_event_search"].run(
            caller, GUESSES["session_event_search"]("mine")
        )
        assert event.structured["searched_to"] is None
        with pytest.raises(ToolError, match="session_id is missing"):
            await tool_named(query.recall(), "session_trace").run(caller, {})
