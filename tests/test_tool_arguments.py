"""What a model may ask: faults are told before anything is asked, instants are exact."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from service_world import session, store_of
from tool_world import clauses, tool_named, watched

from session_query.actors.composition import open_session_query
from session_query.messages.errors import ErrorCode, SessionError
from session_query.tools.definition import Caller, ToolError, ToolErrorCode
from session_query.tools.instants import Instant, parse_instant, show_instant
from session_query.tools.schema import fault

CALLER = Caller("mine", "/work", step_start=lambda: 5)


async def refusal(name: str, arguments: Any, caller: Caller | None = CALLER) -> tuple[str, str]:
    """Code and message of a call that is refused before anything is asked."""
    async with open_session_query(store=store_of(session("mine"))) as query:
        recall = watched(query)
        with pytest.raises(ToolError) as error:
            await tool_named(recall, name).run(caller, arguments)
        assert recall.calls == []
        return error.value.code, str(error.value)


@pytest.mark.parametrize("query", ["", " ", "\u3000\ufeff\u2028", "a\0b"])
async def test_a_blank_query_is_refused(query: str) -> None:
    code, message = await refusal("session_search", {"query": query})
    assert code == ErrorCode.INVALID_QUERY
    assert message.startswith("query ")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"session_ids": []}, "session_ids"),
        ({"parent_session_ids": []}, "parent_session_ids"),
        ({"availability": []}, "availability"),
        ({"event_types": []}, "event_types"),
        ({"event_surfaces": []}, "event_surfaces"),
        ({"event_seq_from": -1}, "event_seq_from"),
        ({"event_seq_to": 2**53}, "event_seq_to"),
        ({"event_seq_to": 1e300}, "event_seq_to"),
        ({"event_seq_from": 2, "event_seq_to": 1}, "event_seq_from lies after event_seq_to"),
        ({"created_at_from": "2026-09-15"}, "created_at_from"),
        ({"event_time_to": "2026-09-15T00:00:00"}, "event_time_to"),
        (
            {
                "created_at_from": "2026-01-01T00:00:00.0001Z",
                "created_at_to": "2026-01-01T00:00:00.00009Z",
            },
            "created_at_from lies after created_at_to",
        ),
    ],
)
async def test_a_filter_that_cannot_hold_is_named(arguments: Any, named: str) -> None:
    code, message = await refusal("session_search", {"query": "x", **arguments})
    assert code == ErrorCode.INVALID_FILTER
    assert named in message


async def test_a_time_without_an_offset_is_refused_with_the_right_form() -> None:
    _code, message = await refusal("session_search", {"query": "x", "created_at_to": "2026-09-15"})
    assert "2026-03-02T09:14:00Z" in message
    assert '"2026-09-15"' in message


@pytest.mark.parametrize(
    ("name", "arguments", "named"),
    [
        ("session_search", {}, "query is missing"),
        ("session_search", {"query": 1}, "query must be text, got 1"),
        ("session_search", {"query": None}, "query must be text, got null"),
        ("session_search", {"query": "x", "availability": ["gone"]}, "availability[0] must be one"),
        ("session_search", {"query": "x", "include_root_sessions": 1}, "true or false"),
        ("session_search", {"query": "x", "event_seq_from": 1.5}, "a whole number"),
        ("session_search", {"query": "x", "event_seq_from": True}, "a whole number"),
        ("session_event_read", {"seq": 0, "before": None}, "before must be a whole number"),
        ("session_trace", [], "arguments must be an object"),
    ],
)
async def test_a_fault_of_the_schema_comes_before_a_missing_agent(
    name: str, arguments: Any, named: str
) -> None:
    code, message = await refusal(name, arguments, caller=None)
    assert code == ToolErrorCode.INVALID_ARGS
    assert message.startswith(f"{name}: ")
    assert named in message


@pytest.mark.parametrize("name", ["session_search", "session_event_search", "session_trace"])
async def test_without_an_agent_nothing_is_answered(name: str) -> None:
    code, _message = await refusal(name, {"query": "x"}, caller=None)
    assert code == ToolErrorCode.MISSING_AGENT


async def test_a_refused_text_is_repeated_in_part_and_on_one_line() -> None:
    value = "x\n" * 1000
    _code, message = await refusal("session_search", {"query": "x", "created_at_to": value})
    assert len(message) < 400
    assert "\n" not in message


async def test_a_session_without_a_step_cannot_be_searched_by_itself() -> None:
    code, message = await refusal("session_event_search", {"query": "x"}, Caller("mine", "/work"))
    assert code == ToolErrorCode.NO_CURRENT_STEP
    assert "session_id" in message


async def test_filters_are_asked_for_in_order_and_the_workspace_last() -> None:
    async with open_session_query(store=store_of(session("mine"), session("p"))) as query:
        recall = watched(query)
        await tool_named(recall, "session_search").run(
            CALLER,
            {
                "query": " two\n words ",
                "event_surfaces": ["current"],
                "event_types": ["user/message"],
                "event_time_to": "2026-01-01T00:00Z",
                "event_seq_from": 2.0,
                "include_root_sessions": True,
                "parent_session_ids": ["p", "gone", "p", "mine"],
                "availability": ["live"],
                "created_at_from": "1970-01-01T00:00:00.0001Z",
                "session_ids": ["b", "a"],
                "unknown": {},
            },
        )
        _visible, search, _titles = recall.calls
        words, sessions, events, _cursor = search.arguments
        assert words == "two words"
        assert [clause["kind"] for clause in clauses(sessions)] == [
            *("id", "created-at", "availability", "parent", "cwd")
        ]
        assert clauses(sessions)[1]["from"] == 5e-324
        assert clauses(sessions)[3:] == [
            {"kind": "parent", "values": ["p", "mine", None]},
            {"kind": "cwd", "values": ["/work"]},
        ]
        assert [clause["kind"] for clause in clauses(events)] == ["seq", "time", "type", "surface"]


@pytest.mark.parametrize(
    "text",
    [
        *("2026-02-30T00:00Z", "2100-02-29T00:00Z", "2026-04-31T00:00Z", "2026-00-01T00:00Z"),
        *("2026-01-01T24:00Z", "2026-01-01T00:60Z", "2026-01-01T00:00:60Z", "2026-01-01 00:00Z"),
        *("2026-01-01T00:00+24:00", "2026-01-01T00:00+00:60", "2026-01-01T00:00", "2026-01-01"),
        *("2026-01-01t00:00Z", "2026-01-01T00:00z", "2026-01-01T00:00Z\n", "２026-01-01T00:00Z"),
        *("02026-01-01T00:00Z", "2026-01-01T00:00:00.Z", "2026-01-01T00:00+0100", ""),
    ],
)
def test_what_is_no_time_is_none(text: str) -> None:
    assert parse_instant(text) is None


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("1970-01-01T00:00Z", Instant(0)),
        ("1969-12-31T23:59:59.9999Z", Instant(-1, "9")),
        ("2024-02-29T12:00:00.5+02:00", Instant(1_709_200_800_500)),
        ("1970-01-01T00:00:00.123400Z", Instant(123, "4")),
        ("0000-01-01T00:00:00Z", Instant(-62_167_219_200_000)),
        ("0000-01-01T00:00:00+00:01", Instant(-62_167_219_260_000)),
    ],
)
def test_a_time_is_exact(text: str, instant: Instant) -> None:
    assert parse_instant(text) == instant


def test_bounds_below_a_millisecond_are_the_next_numbers() -> None:
    above, below = Instant(0, "1"), Instant(-1, "9")
    assert (above.as_lower_bound, below.as_upper_bound) == (5e-324, -5e-324)
    assert (Instant(7).as_lower_bound, Instant(7).as_upper_bound) == (7, 7)
    assert 123 < Instant(123, "4").as_lower_bound <= Instant(123, "4").as_upper_bound < 124


def test_instants_compare_digit_by_digit() -> None:
    assert Instant(1, "09") < Instant(1, "1") < Instant(1, "11") < Instant(2)


@settings(max_examples=200)
@given(st.integers(-62_135_596_800_000, 253_402_300_799_999))
@example(0)
def test_a_shown_time_is_that_of_the_calendar_and_reads_back(ms: int) -> None:
    expected = datetime(1970, 1, 1) + timedelta(milliseconds=ms)  # noqa: DTZ001
    assert show_instant(ms) == expected.isoformat(timespec="milliseconds") + "Z"
    assert parse_instant(show_instant(ms)) == Instant(ms)


@pytest.mark.parametrize(
    ("ms", "shown"),
    [
        (8_640_000_000_000_000, "+275760-09-13T00:00:00.000Z"),
        (8_640_000_000_000_001, "8640000000000001"),
        (-62_167_219_200_001, "-000001-12-31T23:59:59.999Z"),
    ],
)
def test_a_time_outside_four_digit_years_is_shown(ms: int, shown: str) -> None:
    assert show_instant(ms) == shown


def test_a_schema_looks_into_lists_and_nested_objects() -> None:
    schema: Any = {
        "type": "object",
        "properties": {"a": {"type": "array", "items": {"type": ["integer", "null"]}}},
    }
    assert fault({"a": [1, None, 2.0]}, schema) is None
    assert fault({"a": [1, "x"]}, schema) == "a[1] must be a whole number or null, got text"


def test_every_error_of_a_tool_is_one_of_the_library() -> None:
    assert issubclass(ToolError, SessionError)
    assert str(ToolError("X", "lone \ud800")) == "lone \ufffd"
