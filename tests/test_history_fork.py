"""Fork boundaries and derived messages (session-model.md §9 and §11, reference-tests.md C)."""

from __future__ import annotations

import pytest
from builders import Log, assistant_data, text, user_data
from hypothesis import given, settings
from strategies import logs

from session_query.history.derive import derive_messages
from session_query.history.fold import fold_surface
from session_query.history.fork import fork_length
from session_query.messages.errors import LiveErrorCode, LiveSessionError
from session_query.messages.event import Event
from session_query.messages.json import Json, member


def refused(events: list[Event], boundary: object) -> LiveErrorCode:
    with pytest.raises(LiveSessionError) as caught:
        fork_length(events, boundary)
    return caught.value.code


def two_turns() -> list[Event]:
    log = Log()
    log.turn_start(1)
    log.user("A")
    log.turn_end(1)
    log.title("log-only tail")
    log.turn_start(2)
    log.step_start(2)
    return log.events


def test_an_empty_source_gives_an_empty_child() -> None:
    assert fork_length([]) == 0


def test_the_default_boundary_is_the_last_event() -> None:
    events = two_turns()[:4]
    assert fork_length(events) == 4


def test_an_earlier_boundary_works_while_the_tail_is_open() -> None:
    assert fork_length(two_turns(), 2) == 3


def test_log_only_events_behind_a_closed_turn_may_be_included() -> None:
    assert fork_length(two_turns(), 3) == 4


def test_a_log_without_turns_can_be_forked_anywhere() -> None:
    log = Log()
    log.user("A")
    log.user("B")
    assert fork_length(log.events, 0) == 1


@pytest.mark.parametrize(
    "kind", ["completed", "blocked", "max-tokens", "interrupted", "aborted", "error", "novel"]
)
def test_a_turn_may_have_ended_for_any_reason(kind: str) -> None:
    log = Log()
    log.turn_start()
    log.turn_end(kind=kind)
    assert fork_length(log.events, 1) == 2


@pytest.mark.parametrize("boundary", [None, 0, 1, 4, 5])
def test_a_boundary_inside_an_open_turn_is_refused(boundary: int | None) -> None:
    assert refused(two_turns(), boundary) is LiveErrorCode.OPEN_TURN


@pytest.mark.parametrize("boundary", [-1, 6, 2**60, 1.0, 2.5, True, "2"])
def test_a_boundary_that_is_no_seq_of_the_log_is_refused(boundary: object) -> None:
    assert refused(two_turns(), boundary) is LiveErrorCode.INVALID_BOUNDARY


def test_an_empty_source_has_no_explicit_boundary() -> None:
    assert refused([], 0) is LiveErrorCode.INVALID_BOUNDARY


def test_a_boundary_whose_event_has_another_seq_is_refused() -> None:
    assert refused(two_turns()[2:], 1) is LiveErrorCode.INVALID_BOUNDARY


def test_only_current_nodes_become_messages_in_surface_order() -> None:
    log = Log()
    log.turn_start()
    log.user("A")
    log.assistant(text("B"))
    log.user("C")
    log.replace(1, 2, [1, 2], "S")
    log.result("c", "D")
    messages = derive_messages(log.events, 2)
    assert [member(message, "id") for message in messages] == ["m4", "m3", "result-c"]
    assert messages[0] == user_data("S", "m4")


def test_an_assistant_message_without_content_becomes_no_message() -> None:
    log = Log()
    log.assistant()
    log.assistant(text("B"))
    expected = assistant_data(text("B"), identity="a1")["message"]
    assert derive_messages(log.events, 2) == (expected,)


def test_derived_messages_are_detached_from_the_log() -> None:
    log = Log()
    log.user("A")
    (message,) = derive_messages(log.events, 2)
    assert isinstance(message, dict)
    message["role"] = "forged"
    assert derive_messages(log.events, 2) == (user_data("A", "m0"),)


@given(logs())
@settings(max_examples=40)
def test_the_same_log_derives_the_same_messages_of_known_roles(events: tuple[Event, ...]) -> None:
    messages = derive_messages(events, 2)
    assert messages == derive_messages(list(events), 2)
    assert {member(message, "role") for message in messages} <= {"user", "assistant"}


@given(logs())
@settings(max_examples=40)
def test_log_only_events_never_change_the_messages(events: tuple[Event, ...]) -> None:
    nodes = fold_surface(events, 2).nodes
    expected: list[Json] = []
    for seq in nodes:
        data = events[seq].data
        expected.append(data if events[seq].type == "user/message" else member(data, "message"))
    assert list(derive_messages(events, 2)) == expected
