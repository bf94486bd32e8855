"""Older shapes of formats 0 and 1 (session-model.md §12)."""

from __future__ import annotations

import pytest
from builders import assistant_data, result_data, text, user_data

from session_query.history.legacy import message_id, modernise, needs_modernising
from session_query.messages.errors import ReplayError, UnsupportedFormat
from session_query.messages.event import Event, Replace, SurfaceOp
from session_query.messages.json import Json, decode, encode


def modern(
    event_type: str, data: Json, op: SurfaceOp | None = None, known: dict[int, str] | None = None
) -> tuple[str, Json]:
    """Type and payload after modernising event 7 of session ``s``."""
    assert needs_modernising(event_type)
    found = (known or {}).get
    new_type, raw = modernise("s", event_type, 7, encode(data), op, found)
    return new_type, decode(raw)


SOURCE: dict[str, Json] = {"kind": "user"}
BARE: dict[str, Json] = {"content": [text("A")], "source": SOURCE}
WRAPPED: dict[str, Json] = {**BARE, "id": "legacy-message:s:7", "role": "user"}


def test_a_steering_message_with_parts_becomes_a_user_message() -> None:
    assert modern("steering/message", {"turn": 1, **BARE}) == ("user/message", WRAPPED)


def test_a_steering_message_with_a_message_becomes_that_message() -> None:
    data: Json = {"turn": 1, "message": user_data("A")}
    assert modern("steering/message", data) == ("user/message", user_data("A"))


def test_a_bare_user_message_gets_a_deterministic_id() -> None:
    assert modern("user/message", BARE) == ("user/message", WRAPPED)


def test_a_bare_assistant_message_is_wrapped_with_its_provenance_as_source() -> None:
    data: Json = {
        "turn": 1,
        "step": 2,
        "content": [text("A")],
        "provenance": {"provider": "p", "model": "m"},
        "usage": {"inputTokens": 1},
    }
    assert modern("assistant/message", data) == (
        "assistant/message",
        {
            "turn": 1,
            "step": 2,
            "message": {
                "id": "legacy-message:s:7",
                "role": "assistant",
                "content": [text("A")],
                "source": {"kind": "model", "provider": "p", "model": "m"},
            },
            "usage": {"inputTokens": 1},
        },
    )


BARE_RESULT: dict[str, Json] = {
    "turn": 1,
    "step": 1,
    "callId": "c",
    "content": [text("A")],
    "isError": False,
}


def wrapped_result(identity: str) -> Json:
    block: Json = {
        "type": "tool-result",
        "toolCallId": "c",
        "content": [text("A")],
        "isError": False,
    }
    message: Json = {
        "id": identity,
        "role": "user",
        "content": [block],
        "source": {"kind": "tool", "callId": "c"},
    }
    return {"turn": 1, "step": 1, "message": message}


def test_a_bare_tool_result_is_wrapped_in_a_block() -> None:
    assert modern("tool/result", BARE_RESULT, "append", {3: "old"}) == (
        "tool/result",
        wrapped_result("legacy-message:s:7"),
    )


def test_a_bare_tool_result_that_replaces_another_inherits_its_message_id() -> None:
    op = Replace(3, 3)
    expected = ("tool/result", wrapped_result("old"))
    assert modern("tool/result", BARE_RESULT, op, {3: "old"}) == expected
    unknown = ("tool/result", wrapped_result("legacy-message:s:7"))
    assert modern("tool/result", BARE_RESULT, op) == unknown


@pytest.mark.parametrize("name", ["start", "end", "summary", "prune"])
def test_compact_events_are_renamed(name: str) -> None:
    assert modern(f"compact/{name}", {"turn": 1}) == (f"compaction/{name}", {"turn": 1})


def test_a_turn_start_loses_its_trigger() -> None:
    assert modern("turn/start", {"turn": 1, "trigger": {"kind": "user"}})[1] == {"turn": 1}


def test_a_request_header_loses_its_message_prefix() -> None:
    header: dict[str, Json] = {"config": {}, "tools": []}
    data: Json = {"header": {**header, "messagePrefix": []}, "reason": "initial"}
    assert modern("request/header", data)[1] == {"header": header, "reason": "initial"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"kind": "aborted"}, {"kind": "aborted", "reason": {"kind": "legacy"}}),
        ({"kind": "disposed"}, {"kind": "aborted", "reason": {"kind": "disposed"}}),
        (
            {"kind": "error", "step": 1, "failure": {"message": "x", "code": "C", "status": 500}},
            {"kind": "error", "error": {"message": "x", "code": "C", "status": 500}},
        ),
        (
            {"kind": "error", "step": 1, "message": "x", "code": "C"},
            {"kind": "error", "error": {"message": "x", "code": "C"}},
        ),
        (
            {"kind": "error", "step": 1, "message": "x"},
            {"kind": "error", "error": {"message": "x", "code": "UNKNOWN"}},
        ),
    ],
)
def test_an_older_reason_of_a_turn_end_is_rewritten(old: Json, new: Json) -> None:
    assert modern("turn/end", {"turn": 2, "reason": old})[1] == {"turn": 2, "reason": new}


@pytest.mark.parametrize(
    ("event_type", "raw"),
    [
        ("user/message", encode(user_data("A"))),
        ("assistant/message", encode(assistant_data(text("A")))),
        ("tool/result", encode(result_data("c", "A"))),
        ("turn/start", b'{ "turn": 1 }'),
        ("turn/end", b'{"turn":1, "reason":{"kind":"completed"}}'),
        ("turn/end", b'{"turn":1,"reason":{"kind":"aborted","reason":{"kind":"user"}}}'),
        ("turn/end", b'{"turn":1,"reason":{"kind":"error","error":{}}}'),
        ("turn/end", b'{"turn":1,"reason":{"kind":"novel","detail":1}}'),
        ("request/header", b'{"header":{"config":{"temperature":1.0}}}'),
        ("user/message", b'{"id":"m","role":"user","content":[{"text":"\\ud800"}]}'),
        ("assistant/message", b'{"message":{"content":[{"text":"\\ud800"}]}}'),
        ("user/message", b'"no object"'),
        ("tool/result", b"[]"),
    ],
)
def test_a_modern_or_unrecognised_shape_keeps_its_bytes(event_type: str, raw: bytes) -> None:
    assert modernise("s", event_type, 7, raw, None, lambda _seq: None) == (event_type, raw)


@pytest.mark.parametrize("event_type", ["request/header-delta", "mode/set"])
def test_a_retired_type_is_unsupported(event_type: str) -> None:
    with pytest.raises(UnsupportedFormat, match="retired"):
        modern(event_type, {})


@pytest.mark.parametrize(
    ("event_type", "data"),
    [
        ("turn/start", {}),
        ("turn/start", {"turn": 0}),
        ("turn/start", {"turn": 1, "extra": 1}),
        ("turn/start", {"turn": 1, "trigger": 5}),
        ("turn/end", {"turn": 1}),
        ("turn/end", {"turn": 0, "reason": {"kind": "completed"}}),
        ("turn/end", {"turn": 1, "reason": {"kind": "completed"}, "extra": 1}),
        ("turn/end", {"turn": 1, "reason": {"kind": "completed", "x": 1}}),
        ("turn/end", {"turn": 1, "reason": {"kind": "aborted", "reason": {"kind": "whim"}}}),
        ("turn/end", {"turn": 1, "reason": {"kind": "error"}}),
        ("turn/end", {"turn": 1, "reason": {"kind": "error", "step": -1, "message": "x"}}),
        ("turn/end", {"turn": 1, "reason": {"kind": "error", "error": "x"}}),
        ("turn/end", {"turn": 1, "reason": {"kind": "error", "step": 1, "failure": 1}}),
        ("turn/end", {"turn": 1, "reason": {"kind": "error", "step": 1, "code": "C"}}),
        ("turn/end", []),
    ],
)
def test_a_malformed_turn_boundary_is_damage(event_type: str, data: Json) -> None:
    with pytest.raises(ReplayError, match="event 7"):
        modern(event_type, data)


def test_types_without_an_older_shape_need_no_modernising() -> None:
    assert not any(map(needs_modernising, ["assistant/chunk", "tool/call", "step/end", "x/y"]))


def test_the_message_id_is_found_wherever_the_message_sits() -> None:
    events = [
        Event("user/message", 0, 0, encode(user_data("A", "m1"))),
        Event("tool/result", 0, 0, encode(result_data("c", "A"))),
        Event("turn/start", 0, 0, b"{}"),
    ]
    assert [message_id(event) for event in events] == ["m1", "result-c", None]
