"""Closing an interrupted turn (session-model.md §10, reference-tests.md B)."""

from __future__ import annotations

from builders import START, Log, interrupted_turn_closers, text, tool_call
from hypothesis import given, settings
from strategies import logs

from session_query.history.replay import validate_log
from session_query.history.turns import OpenTurn, PendingCall
from session_query.messages.event import Event
from session_query.messages.header import SessionHeader
from session_query.messages.json import Json, member


def shown(events: tuple[Event, ...]) -> list[tuple[str, str | None]]:
    """Type and, for results, the error code."""
    codes = (member(event.data, "error", "code") for event in events)
    return [
        (event.type, code if isinstance(code, str) else None)
        for event, code in zip(events, codes, strict=True)
    ]


def test_an_empty_log_needs_no_closers() -> None:
    assert interrupted_turn_closers([]) == ()


def test_a_balanced_log_needs_no_closers() -> None:
    log = Log()
    log.turn_start()
    log.step_start()
    log.step_end()
    log.turn_end()
    log.user("afterwards")
    assert interrupted_turn_closers(log.events) == ()


def test_an_open_turn_without_a_step_only_gets_its_end() -> None:
    log = Log()
    log.turn_start(4)
    (end,) = interrupted_turn_closers(log.events)
    assert (end.type, end.seq, end.time) == ("turn/end", 1, START)
    assert end.data == {"turn": 4, "reason": {"kind": "interrupted"}}
    assert end.surface_op is None


def test_an_open_step_is_ended_before_its_turn() -> None:
    log = Log()
    log.turn_start(2)
    log.step_start(2, 3)
    step, turn = interrupted_turn_closers(log.events)
    assert (step.type, step.data) == ("step/end", {"turn": 2, "step": 3})
    assert turn.type == "turn/end"


def test_a_request_that_was_never_started_gets_a_result_without_citation() -> None:
    log = Log()
    log.turn_start(1)
    log.step_start(1, 2)
    log.assistant(tool_call("c1"), step=2)
    result = interrupted_turn_closers(log.events)[0]
    assert (result.type, result.seq, result.surface_op) == ("tool/result", 3, "append")
    assert result.source_event_seqs is None
    block: dict[str, Json] = {"type": "tool-result", "toolCallId": "c1", "isError": True}
    wording = member(result.data, "message", "content")
    assert isinstance(wording, list)
    assert result.data == {
        "turn": 1,
        "step": 2,
        "message": {
            "id": "interrupted-tool-result-c1-3",
            "role": "user",
            "source": {"kind": "tool", "callId": "c1"},
            "content": [{**block, "content": member(wording[0], "content")}],
        },
        "error": {"name": "ToolNotStartedError", "code": "TOOL_NOT_STARTED"},
    }


def test_a_recorded_call_without_a_result_has_an_unknown_outcome_and_is_cited() -> None:
    log = Log()
    log.turn_start()
    log.step_start()
    log.assistant(tool_call("c1"))
    log.call("c1")
    result = interrupted_turn_closers(log.events)[0]
    assert result.source_event_seqs == (3,)
    assert member(result.data, "error") == {
        "name": "ToolOutcomeUnknownError",
        "code": "TOOL_OUTCOME_UNKNOWN",
    }
    assert member(result.data, "message", "id") == "interrupted-tool-result-c1-4"


def test_an_answered_call_gets_no_result() -> None:
    log = Log()
    log.turn_start()
    log.step_start()
    log.assistant(tool_call("c1"))
    log.call("c1")
    log.result("c1", "done")
    assert shown(interrupted_turn_closers(log.events)) == [("step/end", None), ("turn/end", None)]


def test_calls_of_a_step_that_has_ended_get_no_result() -> None:
    log = Log()
    log.turn_start()
    log.step_start()
    log.assistant(tool_call("c1"))
    log.step_end()
    assert shown(interrupted_turn_closers(log.events)) == [("turn/end", None)]


def test_only_the_open_turn_is_repaired() -> None:
    log = Log()
    log.turn_start(1)
    log.assistant(tool_call("c1"))
    log.turn_end(1)
    log.turn_start(2)
    assert shown(interrupted_turn_closers(log.events)) == [("turn/end", None)]


def test_a_new_turn_forgets_what_an_unfinished_one_left_open() -> None:
    log = Log()
    log.turn_start(1)
    log.step_start(1)
    log.assistant(tool_call("c1"))
    log.turn_start(2)
    (end,) = interrupted_turn_closers(log.events)
    assert end.data == {"turn": 2, "reason": {"kind": "interrupted"}}


def test_results_follow_the_order_of_the_requests() -> None:
    log = Log()
    log.turn_start()
    log.step_start()
    log.assistant(tool_call("c2"), text("and"), tool_call("c1"), tool_call("c3"))
    log.call("c1")
    log.call("c3")
    log.result("c3", "done")
    closers = interrupted_turn_closers(log.events)
    results = [member(event.data, "message", "source", "callId") for event in closers]
    assert results == ["c2", "c1", None, None]
    assert shown(closers)[:2] == [
        ("tool/result", "TOOL_NOT_STARTED"),
        ("tool/result", "TOOL_OUTCOME_UNKNOWN"),
    ]


def test_requests_of_several_messages_of_a_step_are_all_pending() -> None:
    log = Log()
    log.turn_start()
    log.step_start()
    log.assistant(tool_call("c1"))
    log.assistant(tool_call("c2"), tool_call("c1"))
    closers = interrupted_turn_closers(log.events)
    results = [member(event.data, "message", "source", "callId") for event in closers]
    assert results == ["c1", "c2", None, None]


def test_a_recorded_call_that_no_message_asked_for_is_ignored() -> None:
    log = Log()
    log.turn_start()
    log.step_start()
    log.call("c1")
    assert shown(interrupted_turn_closers(log.events)) == [("step/end", None), ("turn/end", None)]


def test_closers_continue_the_seqs_and_share_the_last_time() -> None:
    log = Log()
    log.turn_start()
    log.step_start()
    log.assistant(tool_call("c1"), tool_call("c2"))
    log.add("demo/note", ignorable=True, time=-7)
    closers = interrupted_turn_closers(log.events)
    assert [event.seq for event in closers] == [4, 5, 6, 7]
    assert {event.time for event in closers} == {-7}


def test_a_malformed_turn_number_opens_nothing() -> None:
    log = Log()
    log.add("turn/start", {"turn": "one"})
    assert interrupted_turn_closers(log.events) == ()


def test_the_state_is_a_value_that_steps_do_not_change() -> None:
    log = Log()
    log.assistant(tool_call("c1"))
    before = OpenTurn(turn=1, step=1)
    after = before.after(log.events[0], log.events[0].data)
    assert before == OpenTurn(turn=1, step=1)
    assert after == OpenTurn(1, 1, (PendingCall("c1", 1),))


@given(logs())
@settings(max_examples=60)
def test_a_repaired_log_is_valid_and_needs_no_further_repair(events: tuple[Event, ...]) -> None:
    closers = interrupted_turn_closers(events)
    assert closers == interrupted_turn_closers(events)
    repaired = (*events, *closers)
    assert interrupted_turn_closers(repaired) == ()
    assert validate_log(SessionHeader("s", 0), repaired) == 0
