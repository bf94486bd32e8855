"""The open turn of a log, and the events that close it after an interruption.

``OpenTurn`` is a value that follows the log event by event; ``closers`` turns it into the events
which a reader appends in memory to a stored log that ends inside a turn (session-model §10).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from ..messages.event import Event, SurfaceOp
from ..messages.json import Json, child, encode, member

_UNKNOWN_TEXT: Final = (
    "The turn was interrupted while this tool was running, so its outcome is unknown. Find out"
    " what it has already done, and call it again only where a repetition does no harm."
)
_NOT_STARTED_TEXT: Final = (
    "The turn was interrupted before this tool was started. It has done nothing and can be called"
    " again."
)


class PendingCall(msgspec.Struct, frozen=True, gc=False):
    """A tool call that the model asked for and that has no result yet."""

    call_id: str
    step: int | None
    """The step of the message that asked."""
    seq: int | None = None
    """Where the call itself was recorded, once it is."""


class OpenTurn(msgspec.Struct, frozen=True, gc=False):
    """What is open at some point of a log: nothing, a turn, or a turn with a step and calls.

    (A Struct because there is one for every turn and step.)
    """

    turn: int | None = None
    step: int | None = None
    pending: tuple[PendingCall, ...] = ()
    """In the order of the requests."""

    def after(self, event: Event, data: Json) -> OpenTurn:
        """The state behind ``event``; ``data`` is its decoded payload."""
        transition = _TRANSITIONS.get(event.type)
        return self if transition is None else transition(self, event, data)


def closers(state: OpenTurn, next_seq: int, last_time: int) -> tuple[Event, ...]:
    """The events that close ``state``, from ``next_seq`` on and all at ``last_time`` (ms).

    A result for each pending call in request order, the end of the step, the end of the turn;
    nothing where no turn is open.
    """
    if state.turn is None:
        return ()
    closing: list[Event] = []
    for seq, call in enumerate(state.pending, next_seq):
        closing.append(_interrupted_result(state.turn, call, seq, last_time))
    seq = next_seq + len(closing)
    if state.step is not None:
        ended: Json = {"turn": state.turn, "step": state.step}
        closing.append(Event("step/end", seq, last_time, encode(ended)))
        seq += 1
    reason: Json = {"turn": state.turn, "reason": {"kind": "interrupted"}}
    closing.append(Event("turn/end", seq, last_time, encode(reason)))
    return tuple(closing)


def _interrupted_result(turn: int, call: PendingCall, seq: int, time: int) -> Event:
    if call.seq is None:
        text, name, code = _NOT_STARTED_TEXT, "ToolNotStartedError", "TOOL_NOT_STARTED"
    else:
        text, name, code = _UNKNOWN_TEXT, "ToolOutcomeUnknownError", "TOOL_OUTCOME_UNKNOWN"
    block: Json = {
        "type": "tool-result",
        "toolCallId": call.call_id,
        "isError": True,
        "content": [{"type": "text", "text": text}],
    }
    step: dict[str, Json] = {} if call.step is None else {"step": call.step}
    data: Json = {
        "turn": turn,
        **step,
        "message": {
            "id": f"interrupted-tool-result-{call.call_id}-{seq}",
            "role": "user",
            "source": {"kind": "tool", "callId": call.call_id},
            "content": [block],
        },
        "error": {"name": name, "code": code},
    }
    append: SurfaceOp = "append"
    sources = None if call.seq is None else (call.seq,)
    return Event("tool/result", seq, time, encode(data), append, sources)


def _turn_start(_state: OpenTurn, _event: Event, data: Json) -> OpenTurn:
    return OpenTurn(_number(data, "turn"))


def _turn_end(_state: OpenTurn, _event: Event, _data: Json) -> OpenTurn:
    return OpenTurn()


def _step_start(state: OpenTurn, _event: Event, data: Json) -> OpenTurn:
    return OpenTurn(state.turn, _number(data, "step"), state.pending)


def _step_end(state: OpenTurn, _event: Event, _data: Json) -> OpenTurn:
    return OpenTurn(state.turn)


def _assistant_message(state: OpenTurn, _event: Event, data: Json) -> OpenTurn:
    calls = requested_calls(data)
    if not calls:
        return state
    step = _number(data, "step")
    pending = {call.call_id: call for call in state.pending}
    pending.update((call_id, PendingCall(call_id, step)) for call_id, _name in calls)
    return OpenTurn(state.turn, state.step, tuple(pending.values()))


def _tool_call(state: OpenTurn, event: Event, data: Json) -> OpenTurn:
    if not state.pending:
        return state
    call_id = child(data, "callId")
    pending = [
        PendingCall(call.call_id, call.step, event.seq) if call.call_id == call_id else call
        for call in state.pending
    ]
    return OpenTurn(state.turn, state.step, tuple(pending))


def _tool_result(state: OpenTurn, _event: Event, data: Json) -> OpenTurn:
    if not state.pending:
        return state
    call_id = member(data, "message", "source", "callId")
    pending = [call for call in state.pending if call.call_id != call_id]
    return OpenTurn(state.turn, state.step, tuple(pending))


def requested_calls(data: Json) -> list[tuple[str, str]]:
    """Id and name of each tool call block of an ``assistant/message``, in block order."""
    calls: list[tuple[str, str]] = []
    content = child(child(data, "message"), "content")
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and block.get("type") == "tool-call":
            call_id, name = block.get("id"), block.get("name")
            if isinstance(call_id, str):
                calls.append((call_id, name if isinstance(name, str) else ""))
    return calls


def _number(data: Json, key: str) -> int | None:
    value = child(data, key)
    if type(value) is int:
        return value
    return int(value) if isinstance(value, float) and value.is_integer() else None


_TRANSITIONS: Final[dict[str, Callable[[OpenTurn, Event, Json], OpenTurn]]] = {
    "turn/start": _turn_start,
    "turn/end": _turn_end,
    "step/start": _step_start,
    "step/end": _step_end,
    "assistant/message": _assistant_message,
    "tool/call": _tool_call,
    "tool/result": _tool_result,
}
