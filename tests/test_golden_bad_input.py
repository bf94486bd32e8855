"""What the reference refuses, and with which code: ours refuses it alike, before it reads anything.

An input that the reference let through by accident, or met with an error of no code, has here the
code that a reader would expect.
"""

from __future__ import annotations

import math
import tarfile
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import frozen
from service_world import CountingStore

from session_query.actors.composition import open_session_query
from session_query.actors.service import SessionQuery
from session_query.messages.config import IndexConfig, QueryConfig
from session_query.messages.errors import ErrorCode, SessionQueryError
from session_query.messages.filters import event_filter_from_json, session_filter_from_json
from session_query.messages.json import Json, decode, encode, member
from session_query.storage.jsonl import JsonlStore
from session_query.storage.memory import MemoryStore

GOLDEN = Path(__file__).parent / "data" / "golden"
CASES = [decode(line) for line in (GOLDEN / "bad_inputs.jsonl").read_bytes().splitlines()]
CONFIGS = [decode(line) for line in (GOLDEN / "configs.jsonl").read_bytes().splitlines()]

EXPECTED_WHERE_THE_REFERENCE_HAS_NO_CODE = {
    "cursor": "SESSION_QUERY_INVALID_CURSOR",
    "sessionFilters": "SESSION_QUERY_INVALID_FILTER",
    "eventFilters": "SESSION_QUERY_INVALID_FILTER",
    "filters": "SESSION_QUERY_INVALID_FILTER",
}
"""By the faulty member of the request; filter lists that are no member are told by their type."""

READS_FIRST = {
    "SESSION_QUERY_SESSION_NOT_FOUND",
    "SESSION_QUERY_EVENT_NOT_FOUND",
}
"""Codes that only a read can find out."""


def value(given: Json) -> Any:
    """An argument of the vectors as Python has it."""
    match given:
        case {"$undefined": True}:
            return ...  # no value that Python has a use for
        case {"$number": str(name)}:
            return math.nan if name == "NaN" else math.inf
        case dict():
            return {key: value(item) for key, item in given.items()}
        case list():
            return [value(item) for item in given]
    return given


def clauses(given: Any, build: Callable[[Json], object]) -> Any:
    """The clauses of a list; what is no list goes to the service as it is."""
    return [build(clause) for clause in given] if isinstance(given, list) else given


async def call(query: SessionQuery, method: str, arguments: list[Any]) -> object:
    """Call our side of a recorded method."""
    match method, arguments:
        case "searchSessions", [request]:
            options = {
                name: request[key]
                for name, key in {"limit": "limit", "cursor": "cursor"}.items()
                if key in request
            }
            for name, key, build in (
                ("session_filters", "sessionFilters", session_filter_from_json),
                ("event_filters", "eventFilters", event_filter_from_json),
            ):
                if request.get(key) is not None:
                    options[name] = clauses(request[key], build)
            return await query.search_sessions(request["query"], **options)
        case "searchEvents", [request]:
            options = {key: request[key] for key in ("limit", "cursor") if key in request}
            if request.get("filters") is not None:
                options["filters"] = clauses(request["filters"], event_filter_from_json)
            return await query.search_events(request["sessionId"], request["query"], **options)
        case "filterSessions", [filters]:
            return await query.filter_sessions(clauses(filters, session_filter_from_json))
        case "filterEvents", [session_id, filters]:
            filters = clauses(filters, event_filter_from_json)
            return await query.filter_events(session_id, filters)
        case "readEvent", [request]:
            window = {key: request[key] for key in ("before", "after") if key in request}
            return await query.read_event(request["sessionId"], request["seq"], **window)
        case "traceEvent", [request]:
            return await query.trace_event(request["sessionId"], request["seq"])
        case "listEvents", [session_id]:
            return await query.list_events(session_id)
        case "readSurface", [session_id]:
            return await query.read_surface(session_id)
        case "traceSession", [session_id]:
            return await query.trace_session(session_id)
    raise AssertionError(f"no call for {method} with {arguments}")


def recorded_code(case: Json) -> str | None:
    """The code that is expected of a case; ``None`` where it is answered."""
    assert isinstance(case, dict)
    if "error" not in case:
        return None
    code = member(case, "error", "code")
    if isinstance(code, str):
        return code
    (arguments,) = [argument for argument in value(case["args"]) if not isinstance(argument, str)]
    if isinstance(arguments, list):
        return "SESSION_QUERY_INVALID_FILTER"
    (faulty,) = set(arguments) & set(EXPECTED_WHERE_THE_REFERENCE_HAS_NO_CODE)
    return EXPECTED_WHERE_THE_REFERENCE_HAS_NO_CODE[faulty]


def departure(case: Json) -> str | None:
    """Why a case is another one here, where it is."""
    if member(case, "method") in ("searchSessions", "searchEvents"):
        request = member(case, "args")
        assert isinstance(request, list)
        (given,) = request
        assert isinstance(given, dict)
        if given.get("cursor", "") is None:
            return "None is Python's absent cursor: the first page"
    return None


@frozen
class Outcome:
    """What one call gave, and what it took from the store."""

    code: str | None
    count: int | None
    calls: Counter[str]


async def outcome(query: SessionQuery, store: CountingStore, case: Json) -> Outcome:
    store.forget()
    arguments = [value(argument) for argument in value(member(case, "args"))]
    try:
        answer: Any = await call(query, str(member(case, "method")), arguments)
    except SessionQueryError as error:
        return Outcome(error.code.value, None, store.calls.copy())
    items = getattr(answer, "items", None) or getattr(answer, "sessions", None) or answer
    count = len(items) if isinstance(items, tuple) else 0
    return Outcome(None, count, store.calls.copy())


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> list[Outcome]:
    root = tmp_path_factory.mktemp("golden")
    with tarfile.open(GOLDEN / "corpus.tar.gz") as archive:
        archive.extractall(root, filter="data")
    store = CountingStore(JsonlStore(root / "store"))

    async def main() -> list[Outcome]:
        index = IndexConfig(path=":memory:", tokenizer="unicode61")
        async with open_session_query(store=store, index=index) as query:
            return [await outcome(query, store, case) for case in CASES]

    return trio.run(main)


def test_every_bad_input_has_the_recorded_code(outcomes: list[Outcome]) -> None:
    wrong = [
        (case, found.code)
        for case, found in zip(CASES, outcomes, strict=True)
        if departure(case) is None and found.code != recorded_code(case)
    ]
    assert wrong == []


def test_every_input_that_is_good_after_all_is_answered(outcomes: list[Outcome]) -> None:
    wrong = [
        (case, found)
        for case, found in zip(CASES, outcomes, strict=True)
        if isinstance(count := member(case, "count"), int) and found.count != count
    ]
    assert wrong == []


def test_the_departures_are_these(outcomes: list[Outcome]) -> None:
    departed = [
        (encode(case), found.code)
        for case, found in zip(CASES, outcomes, strict=True)
        if departure(case) is not None
    ]
    assert len(departed) == 2
    assert all(b'"cursor":null' in case and code is None for case, code in departed)


def test_what_is_wrong_in_itself_is_refused_before_anything_is_read(
    outcomes: list[Outcome],
) -> None:
    checked = 0
    for case, found in zip(CASES, outcomes, strict=True):
        if found.code in READS_FIRST or found.code is None:
            continue
        if found.code == ErrorCode.INVALID_CURSOR and found.calls:
            continue  # text that only the index can tell from a cursor
        checked += 1
        assert found.calls == Counter(), case
    assert checked > 150


CONFIG_NAMES = {
    "path": "path",
    "openAt": "open_at",
    "journalMode": "journal_mode",
    "defaultLimit": "default_limit",
    "maxLimit": "max_limit",
    "snippetChars": "snippet_chars",
}
QUERY_CONFIG_NAMES = {
    "readWindowMax": "read_window_max",
    "persistedInspectConcurrency": "persisted_read_concurrency",
}


def configs(case: Json) -> tuple[IndexConfig, QueryConfig]:
    given = member(case, "config")
    assert isinstance(given, dict)
    index: dict[str, Any] = {
        ours: given[name] for name, ours in CONFIG_NAMES.items() if name in given
    }
    query: dict[str, Any] = {
        ours: given[name] for name, ours in QUERY_CONFIG_NAMES.items() if name in given
    }
    return IndexConfig(**index), QueryConfig(**query)


REFUSED = [case for case in CONFIGS if isinstance(case, dict) and "error" in case]
ACCEPTED = [case for case in CONFIGS if isinstance(case, dict) and "ok" in case]


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refused_configuration_is_invalid_and_names_its_value(case: Json) -> None:
    given = member(case, "config")
    if given == {}:
        with pytest.raises(TypeError, match="path"):  # as every missing argument in Python
            configs(case)
        return
    with pytest.raises(SessionQueryError) as refused:
        configs(case)
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    assert isinstance(given, dict)
    names = {**CONFIG_NAMES, **QUERY_CONFIG_NAMES}
    assert any(names[name] in str(refused.value) for name in given)


@pytest.mark.parametrize("case", ACCEPTED, ids=str)
async def test_an_accepted_configuration_answers_as_recorded(case: Json) -> None:
    index, config = configs(case)
    async with open_session_query(store=MemoryStore(), index=index, config=config) as query:

        async def code_of(answer: Awaitable[object]) -> Json:
            try:
                await answer
            except SessionQueryError as error:
                return {"code": error.code.value}
            return {"items": 0}

        found = {
            "search": await code_of(query.search_sessions("needle")),
            "searchInvalidQuery": await code_of(query.search_sessions("")),
            "searchLimit": await code_of(query.search_sessions("needle", limit=30)),
            "readBefore30": await code_of(query.read_event("nope", 0, before=30)),
        }
    assert found == {name: member(case, name) for name in found}
