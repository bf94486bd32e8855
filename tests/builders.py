"""Small builders of events and logs for tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from session_query.history.turns import OpenTurn, closers
from session_query.messages.event import Event, Replace, SurfaceOp
from session_query.messages.header import SessionHeader
from session_query.messages.json import Json, encode

START = 1_760_000_000_000
"""The time of the first event of a built log, in ms since the epoch."""


def header(session_id: str = "s", *, version: int = 2, seeded: bool = False) -> SessionHeader:
    """A valid header; a seeded one of format 0 or 1 inherits one event."""
    seed_length = 1 if seeded and version < 2 else None
    return SessionHeader(
        session_id, START, version, cwd="/work", is_seeded=seeded, seed_length=seed_length
    )


def text(value: str) -> Json:
    return {"type": "text", "text": value}


def tool_call(call_id: str, name: str = "read", arguments: str = "{}") -> Json:
    return {"type": "tool-call", "id": call_id, "name": name, "arguments": arguments}


def user_data(value: str, identity: str = "m") -> dict[str, Json]:
    return {
        "id": identity,
        "role": "user",
        "content": [text(value)],
        "source": {"kind": "user"},
    }


def assistant_data(*blocks: Json, identity: str = "a", step: int = 1) -> dict[str, Json]:
    message: Json = {
        "id": identity,
        "role": "assistant",
        "content": list(blocks),
        "source": {"kind": "model", "provider": "p", "model": "m"},
    }
    return {"turn": 1, "step": step, "message": message}


def result_data(call_id: str, value: str, **more: Json) -> dict[str, Json]:
    """A tool result; ``is_error`` sets the block's flag, other names become payload members."""
    flag: dict[str, Json] = {"isError": more.pop("is_error")} if "is_error" in more else {}
    block: Json = {
        "type": "tool-result",
        "toolCallId": call_id,
        "content": [text(value)],
        **flag,
    }
    message: Json = {
        "id": f"result-{call_id}",
        "role": "user",
        "content": [block],
        "source": {"kind": "tool", "callId": call_id},
    }
    return {"turn": 1, "step": 1, "message": message, **more}


class Log:
    """A growing log; every method appends one event and returns its seq."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def add(
        self,
        event_type: str,
        data: Json = None,
        *,
        op: SurfaceOp | None = None,
        sources: Sequence[int] | None = None,
        ignorable: bool = False,
        time: int | None = None,
    ) -> int:
        seq = len(self.events)
        self.events.append(
            Event(
                event_type,
                seq,
                START + seq if time is None else time,
                encode({} if data is None else data),
                op,
                None if sources is None else tuple(sources),
                ignorable,
            )
        )
        return seq

    def user(
        self, value: str, op: SurfaceOp = "append", sources: Sequence[int] | None = None
    ) -> int:
        data = user_data(value, f"m{len(self.events)}")
        return self.add("user/message", data, op=op, sources=sources)

    def replace(self, start: int, end: int, sources: Sequence[int], value: str = "summary") -> int:
        return self.user(value, Replace(start, end), sources)

    def assistant(self, *blocks: Json, step: int = 1) -> int:
        data = assistant_data(*blocks, identity=f"a{len(self.events)}", step=step)
        return self.add("assistant/message", {**data, "stream": []}, op="append")

    def call(self, call_id: str, name: str = "read", arguments: str = "{}") -> int:
        data: Json = {
            "turn": 1,
            "step": 1,
            "callId": call_id,
            "name": name,
            "arguments": arguments,
        }
        return self.add("tool/call", data)

    def result(self, call_id: str, value: str, **more: Json) -> int:
        return self.add("tool/result", result_data(call_id, value, **more), op="append")

    def rewrite(self, seq: int, call_id: str, value: str, **more: Json) -> int:
        data = result_data(call_id, value, **more)
        return self.add("tool/result", data, op=Replace(seq, seq), sources=[seq])

    def turn_start(self, turn: int = 1) -> int:
        return self.add("turn/start", {"turn": turn})

    def turn_end(self, turn: int = 1, kind: str = "completed") -> int:
        return self.add("turn/end", {"turn": turn, "reason": {"kind": kind}})

    def step_start(self, turn: int = 1, step: int = 1) -> int:
        return self.add("step/start", {"turn": turn, "step": step})

    def step_end(self, turn: int = 1, step: int = 1) -> int:
        return self.add("step/end", {"turn": turn, "step": step})

    def title(self, value: str) -> int:
        data: Json = {"title": value, "messageSeqs": [], "source": {"kind": "user"}}
        return self.add("session/title", data)


def interrupted_turn_closers(events: Iterable[Event]) -> tuple[Event, ...]:
    """The closers of a whole log, whatever else is wrong with it."""
    state, last = OpenTurn(), None
    for last in events:
        state = state.after(last, last.data)
    return () if last is None else closers(state, last.seq + 1, last.time)
