"""What makes a log damaged or unsupported (session-model.md §7)."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve
from builders import Log, assistant_data, header, result_data, text, user_data

from session_query.history.payload import nesting, payload
from session_query.history.replay import check_header, validate_log
from session_query.messages.errors import InvalidJson, ReplayError, SurfaceError, UnsupportedFormat
from session_query.messages.event import Event
from session_query.messages.header import SessionHeader
from session_query.messages.json import MAX_DEPTH, Json, encode


def changed(**fields: Any) -> SessionHeader:
    """A valid header with some values replaced by ones of any type."""
    return evolve(header(), **fields)


def one(event_type: str, data: Json, **fields: object) -> list[Event]:
    return [Event(event_type, 0, 0, encode(data), **fields)]  # type: ignore[arg-type]


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_a_valid_header_passes_in_every_readable_format(version: int) -> None:
    check_header(header(version=version))
    check_header(header(version=version, seeded=True))


@pytest.mark.parametrize("version", [-1, 4, 99, True, "2"])
def test_another_format_is_unsupported_before_anything_else_is_looked_at(version: object) -> None:
    with pytest.raises(UnsupportedFormat, match="format"):
        check_header(changed(version=version, id="", created_at=-1))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("id", ""),
        ("id", 7),
        ("created_at", -1),
        ("created_at", 1.5),
        ("created_at", 2**53),
        ("cwd", "relative/path"),
        ("cwd", ""),
        ("cwd", 1),
        ("parent_session", 1),
        ("origin", "robot"),
        ("delegation_depth", -1),
        ("delegation_depth", True),
        ("agent_preset", 3),
        ("is_seeded", None),
        ("seed_length", 1),
    ],
)
def test_a_header_value_out_of_its_domain_is_damage(name: str, value: object) -> None:
    with pytest.raises(ReplayError, match="header: "):
        check_header(changed(**{name: value}))


@pytest.mark.parametrize("cwd", ["/", "/srv/a b", "C:\\work", "\\\\host\\share\\x"])
def test_absolute_paths_of_every_system_are_accepted(cwd: str) -> None:
    check_header(evolve(header(), cwd=cwd))


@pytest.mark.parametrize(("seeded", "length"), [(True, None), (False, 0), (True, -1), (True, 1.5)])
def test_an_old_header_is_seeded_exactly_when_it_has_a_length(
    seeded: bool, length: int | None
) -> None:
    with pytest.raises(ReplayError, match="seed"):
        check_header(evolve(header(version=0), is_seeded=seeded, seed_length=length))


def test_a_whole_valid_log_passes() -> None:
    log = Log()
    log.turn_start()
    log.user("A")
    log.call("c")
    log.result("c", "B", error={"name": "E", "code": "C"})
    log.turn_end()
    assert validate_log(header(), log.events) == 0


def test_a_gap_in_the_seqs_is_damage() -> None:
    log = Log()
    log.turn_start()
    log.turn_end()
    with pytest.raises(ReplayError, match="seq 0 is due"):
        validate_log(header(), log.events[1:])


def test_a_fold_violation_stays_a_surface_error() -> None:
    with pytest.raises(SurfaceError):
        validate_log(header(), one("user/message", user_data("A")))


@pytest.mark.parametrize("time", [1.5, "1", None, True, 2**53])
def test_a_time_that_is_no_whole_number_is_damage(time: object) -> None:
    event = Event("plan/mode", 0, time, b"{}")  # type: ignore[arg-type]
    with pytest.raises(ReplayError, match="time"):
        validate_log(header(), [event])


def test_an_unknown_type_is_unsupported_unless_it_may_be_ignored() -> None:
    assert validate_log(header(), one("demo/note", None, ignorable=True)) == 0
    with pytest.raises(UnsupportedFormat, match="'demo/note'"):
        validate_log(header(), one("demo/note", None))


@pytest.mark.parametrize(
    ("event_type", "versions"),
    [
        ("assistant/chunk", {0, 1}),
        ("assistant/attempt", {2, 3}),
        ("model/selection", {2, 3}),
        ("tool/ptc-dispatch", {3}),
        ("plan/mode", {0, 1, 2, 3}),
    ],
)
def test_each_format_knows_its_own_types(event_type: str, versions: set[int]) -> None:
    for version in range(4):
        events = one(event_type, {"stream": []})
        if version in versions:
            assert validate_log(header(version=version), events) == 0
        else:
            with pytest.raises(UnsupportedFormat):
                validate_log(header(version=version), events)


@pytest.mark.parametrize("event_type", ["request/header-delta", "mode/set"])
def test_a_retired_type_is_unsupported_even_if_marked_ignorable(event_type: str) -> None:
    with pytest.raises(UnsupportedFormat, match="retired"):
        validate_log(header(version=0), one(event_type, {}, ignorable=True))


def test_the_type_of_an_event_is_judged_before_its_surface() -> None:
    with pytest.raises(UnsupportedFormat):
        validate_log(header(), one("demo/note", None, surface_op="append"))


USER = user_data("A")
MODEL: dict[str, Json] = {"kind": "model", "provider": "p", "model": "m"}


def assistant_with(**changes: Json) -> Json:
    data = assistant_data(text("A"))
    message = data["message"]
    assert isinstance(message, dict)
    return {**data, "message": {**message, **changes}}


def result_with(**changes: Json) -> Json:
    data = result_data("c", "A")
    message = data["message"]
    assert isinstance(message, dict)
    return {**data, "message": {**message, **changes}}


BLOCK: Json = {"type": "tool-result", "toolCallId": "c", "content": []}


@pytest.mark.parametrize(
    ("event_type", "data"),
    [
        ("user/message", None),
        ("user/message", {**USER, "id": ""}),
        ("user/message", {**USER, "id": 1}),
        ("user/message", {**USER, "role": "assistant"}),
        ("user/message", {**USER, "content": "A"}),
        ("user/message", {**USER, "source": None}),
        ("user/message", {**USER, "source": {"kind": ""}}),
        ("assistant/message", {"message": None}),
        ("assistant/message", assistant_with(role="user")),
        ("assistant/message", assistant_with(source={"kind": "model", "provider": "p"})),
        ("assistant/message", assistant_with(source={**MODEL, "provider": ""})),
        ("assistant/message", assistant_with(source={**MODEL, "kind": "user"})),
        ("tool/result", {}),
        ("tool/result", result_with(role="assistant")),
        ("tool/result", result_with(source={"kind": "user"})),
        ("tool/result", result_with(source={"kind": "tool", "callId": ""})),
        ("tool/result", result_with(source={"kind": "tool", "callId": "d"})),
        ("tool/result", result_with(content=[])),
        ("tool/result", result_with(content=[BLOCK, BLOCK])),
        ("tool/result", result_with(content=[None])),
        ("tool/result", result_with(content=[text("A")])),
        ("tool/result", result_with(content=[{"type": "tool-result", "toolCallId": "c"}])),
    ],
)
def test_a_malformed_message_is_damage(event_type: str, data: Json) -> None:
    with pytest.raises(ReplayError, match=event_type):
        validate_log(header(), one(event_type, data, surface_op="append"))


@pytest.mark.parametrize("content", [[], [None], [{"type": "hologram"}], [{"type": "text"}]])
def test_blocks_of_any_kind_are_accepted(content: Json) -> None:
    data: Json = {**USER, "content": content, "source": {"kind": "robot"}}
    assert validate_log(header(), one("user/message", data, surface_op="append")) == 0


CONFIG: dict[str, Json] = {"provider": "p", "model": "m"}


@pytest.mark.parametrize(
    "data",
    [
        {"header": {"config": {"provider": "p"}}, "reason": "initial"},
        {"header": {"config": {"provider": "", "model": "m"}}, "reason": "initial"},
        {"header": {}, "reason": "initial"},
        {"header": {"config": {**CONFIG, "reasoningEffort": ""}}, "reason": "initial"},
        {"header": {"config": {**CONFIG, "reasoningEffort": None}}, "reason": "initial"},
        {
            "header": {"config": CONFIG, "adapterDefaults": {"maxTokens": True}},
            "reason": "initial",
        },
        {
            "header": {
                "config": {**CONFIG, "maxTokens": 1},
                "adapterDefaults": {"maxTokens": 1},
            },
            "reason": "initial",
        },
        {
            "header": {"config": {**CONFIG, "stop": []}, "adapterDefaults": {"stop": True}},
            "reason": "initial",
        },
        {"header": {"config": CONFIG, "adapterDefaults": []}, "reason": "initial"},
        {"header": {"config": CONFIG}, "reason": "whim"},
        {"header": {"config": CONFIG}, "reason": ["initial"]},
        {"header": {"config": CONFIG}},
        {"header": {"config": CONFIG}, "reason": "change", "startsSeries": False},
    ],
)
def test_a_malformed_request_header_is_damage(data: Json) -> None:
    with pytest.raises(ReplayError, match="request/header"):
        validate_log(header(), one("request/header", data))


@pytest.mark.parametrize("reason", ["initial", "resume", "change", "series"])
def test_a_request_header_passes_with_each_known_reason(reason: str) -> None:
    config: Json = {**CONFIG, "reasoningEffort": "high", "maxTokens": 10}
    defaults: Json = {"reasoningEffort": True, "maxTokens": True}
    data: Json = {
        "header": {"config": config, "adapterDefaults": defaults, "system": "S"},
        "reason": reason,
        "startsSeries": True,
    }
    for version in range(4):
        assert validate_log(header(version=version), one("request/header", data)) == 0


@pytest.mark.parametrize("version", [0, 2])
def test_the_retired_reason_of_a_request_header_is_unsupported(version: int) -> None:
    data: Json = {"header": {"config": CONFIG}, "reason": "fallback"}
    with pytest.raises(UnsupportedFormat, match="reason"):
        validate_log(header(version=version), one("request/header", data))


def seeded_log(*markers: Json) -> list[Event]:
    log = Log()
    log.user("A")
    for marker in markers:
        log.add("session/end-seed", marker)
    return log.events


INHERITED: Json = {"inherited": True}


@pytest.mark.parametrize(
    ("markers", "count"),
    [([INHERITED], 1), ([INHERITED, {}], 1), ([INHERITED, {}, INHERITED], 3)],
)
def test_the_last_tagged_marker_tells_the_inherited_count(markers: list[Json], count: int) -> None:
    assert validate_log(header(seeded=True), seeded_log(*markers)) == count


def test_a_seeded_header_needs_a_tagged_marker() -> None:
    with pytest.raises(ReplayError, match="no session/end-seed"):
        validate_log(header(seeded=True), seeded_log({}))


def test_an_unseeded_header_tolerates_plain_markers_only() -> None:
    assert validate_log(header(), seeded_log({})) == 0
    with pytest.raises(ReplayError, match="not seeded"):
        validate_log(header(), seeded_log(INHERITED))


@pytest.mark.parametrize(("length", "count"), [(0, 0), (1, 1), (99, 2)])
def test_an_old_log_takes_the_inherited_count_from_its_header(length: int, count: int) -> None:
    old = evolve(header(version=0), is_seeded=True, seed_length=length)
    assert validate_log(old, seeded_log({})) == count


def test_a_payload_that_is_not_json_is_refused_with_its_seq() -> None:
    with pytest.raises(InvalidJson, match="event 0"):
        validate_log(header(), [Event("plan/mode", 0, 0, b"{")])


@pytest.mark.parametrize("levels", [1, 255, 256])
def test_a_payload_may_be_nested_up_to_the_limit(levels: int) -> None:
    raw = b'{"[":' * (levels - 1) + b'"[{\\"[{"'.join([b"[", b"]"]) + b"}" * (levels - 1)
    assert nesting(raw) >= levels
    assert payload(Event("plan/mode", 0, 0, raw)) is not None


@pytest.mark.parametrize("levels", [257, 5_000, 100_000])
def test_a_deeper_payload_is_unsupported(levels: int) -> None:
    raw = b"[" * levels + b"]" * levels
    with pytest.raises(UnsupportedFormat, match="256 levels"):
        payload(Event("plan/mode", 0, 0, raw))


def test_brackets_inside_strings_are_no_nesting() -> None:
    raw = encode(["[" * 5_000 + '\\"{', {"a": "{" * 400}])
    assert payload(Event("plan/mode", 0, 0, raw)) == ["[" * 5_000 + '\\"{', {"a": "{" * 400}]


def test_many_containers_side_by_side_are_no_nesting() -> None:
    raw = encode([[] for _ in range(MAX_DEPTH * 4)])
    assert payload(Event("plan/mode", 0, 0, raw)) == [[]] * (MAX_DEPTH * 4)
