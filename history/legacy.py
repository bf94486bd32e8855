"""Shapes of formats 0 and 1 that later became others, rewritten one event at a time.

The decoder of a log of format 0 or 1 calls, for each event::

    if needs_modernising(event_type):
        event_type, raw = modernise(session_id, event_type, seq, raw, surface_op, message_id_at)

``raw`` is the JSON text of the payload. The same object comes back where the shape is modern, so
that the exact spelling is kept. ``message_id_at(seq)`` gives the message id of an earlier,
already modernised event (``message_id`` reads it), or ``None``; it is asked only for a bare tool
result that replaces another. Seqs never change (session-model §12).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from ..messages.errors import ReplayError, UnsupportedFormat
from ..messages.event import Event, Replace, SurfaceOp
from ..messages.json import Json, decode, encode, is_safe_integer, member
from .long_payload import LONG_BYTES, affordable
from .payload import payload

RETIRED_TYPES: Final = frozenset({"request/header-delta", "mode/set"})
"""Types that no reader of today understands, not even where they are marked ignorable."""

_RENAMED: Final = {
    "compact/start": "compaction/start",
    "compact/end": "compaction/end",
    "compact/summary": "compaction/summary",
    "compact/prune": "compaction/prune",
}

_BARE_REASONS: Final = frozenset({"completed", "blocked", "max-tokens", "interrupted"})

_ABORT_CAUSES: Final = frozenset({"user", "parent", "disposed", "legacy", "hook"})


def needs_modernising(event_type: str) -> bool:
    """Whether events of this type can have an older shape; the payloads of others stay as is."""
    return event_type in _MODERNISERS or event_type in _RENAMED or event_type in RETIRED_TYPES


def modernise(
    session_id: str,
    event_type: str,
    seq: int,
    raw: bytes,
    op: SurfaceOp | None,
    message_id_at: Callable[[int], str | None],
) -> tuple[str, bytes]:
    """Return the type and payload of an event in the shape that format 2 gives them.

    Raises:
        ReplayError: a ``turn/start`` or ``turn/end`` of no known shape.
        UnsupportedFormat: a retired type, or a payload that had to be decoded and is too large.
        InvalidJson: the payload had to be decoded and is not JSON.
    """
    if event_type in RETIRED_TYPES:
        raise UnsupportedFormat(f"event {seq}: type {event_type!r} is retired")
    if event_type in _RENAMED:
        return _RENAMED[event_type], raw
    if event_type == "steering/message":
        data = _decoded(raw, seq)
        return "user/message", encode(_steering(data, _legacy_id(session_id, seq), seq))
    if _looks_modern(event_type, raw):
        return event_type, raw
    data = _decoded(raw, seq)
    if event_type == "tool/result" and isinstance(op, Replace):
        identity = message_id_at(op.start) or _legacy_id(session_id, seq)
    else:
        identity = _legacy_id(session_id, seq)
    modern = _MODERNISERS[event_type](data, identity, seq)
    return event_type, raw if modern is data else encode(modern)


def message_id(event: Event) -> str | None:
    """The id of the message an event carries, or ``None``."""
    data = payload(event, 0)
    found = member(data, "id" if event.type == "user/message" else "message")
    if event.type != "user/message":
        found = member(found, "id")
    return found if isinstance(found, str) else None


def _decoded(raw: bytes, seq: int) -> Json:
    if len(raw) > LONG_BYTES and not affordable(raw):
        raise UnsupportedFormat(f"event {seq}: {len(raw)} bytes of an older shape are too large")
    return decode(raw)


def _legacy_id(session_id: str, seq: int) -> str:
    return f"legacy-message:{session_id}:{seq}"


class _Probe(msgspec.Struct):
    """The keys that tell a modern message from a bare one, at the top of the payload only."""

    id: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    role: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    message: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_probe = msgspec.json.Decoder(_Probe)


def _looks_modern(event_type: str, raw: bytes) -> bool:
    """Whether a look at the keys settles that nothing is to be done, without a full decode."""
    if event_type == "request/header":
        return b'"messagePrefix"' not in raw
    if event_type.startswith("turn/"):
        return False
    try:
        keys = _probe.decode(raw)
    except msgspec.MsgspecError:
        return False
    if event_type == "user/message":
        return keys.id is not msgspec.UNSET or keys.role is not msgspec.UNSET
    return keys.message is not msgspec.UNSET


def _steering(data: Json, identity: str, seq: int) -> Json:
    if not isinstance(data, dict):
        return data
    if "message" in data:
        return data["message"]
    bare: Json = {key: value for key, value in data.items() if key != "turn"}
    return _user_message(bare, identity, seq)


def _user_message(data: Json, identity: str, _seq: int) -> Json:
    if not isinstance(data, dict) or "id" in data or "role" in data:
        return data
    return {**data, "id": identity, "role": "user"}


def _assistant_message(data: Json, identity: str, _seq: int) -> Json:
    if not isinstance(data, dict) or "message" in data or "content" not in data:
        return data
    provenance = data.get("provenance")
    message: Json = {
        "id": identity,
        "role": "assistant",
        "content": data["content"],
        "source": {"kind": "model", **(provenance if isinstance(provenance, dict) else {})},
    }
    return _with_message(data, message, {"content", "provenance"})


def _tool_result(data: Json, identity: str, _seq: int) -> Json:
    if not isinstance(data, dict) or "message" in data or "callId" not in data:
        return data
    block: dict[str, Json] = {
        "type": "tool-result",
        "toolCallId": data["callId"],
        "content": data.get("content"),
    }
    if "isError" in data:
        block["isError"] = data["isError"]
    message: Json = {
        "id": identity,
        "role": "user",
        "content": [block],
        "source": {"kind": "tool", "callId": data["callId"]},
    }
    return _with_message(data, message, {"callId", "content", "isError"})


def _with_message(data: dict[str, Json], message: Json, dropped: set[str]) -> Json:
    place: dict[str, Json] = {key: data[key] for key in ("turn", "step") if key in data}
    rest = {key: data[key] for key in data if key not in dropped and key not in place}
    return {**place, "message": message, **rest}


def _request_header(data: Json, _identity: str, _seq: int) -> Json:
    if not isinstance(data, dict):
        return data
    modern = {key: value for key, value in data.items() if key != "messagePrefix"}
    header = modern.get("header")
    if isinstance(header, dict):
        modern["header"] = {key: header[key] for key in header if key != "messagePrefix"}
    return modern


def _turn_start(data: Json, _identity: str, seq: int) -> Json:
    if not _is_turn(data, {"turn", "trigger"}):
        raise ReplayError(f"event {seq}: turn/start must hold its turn number, got {data!r:.200}")
    assert isinstance(data, dict)
    if "trigger" not in data:
        return data
    if not isinstance(data["trigger"], dict):
        raise ReplayError(f"event {seq}: trigger of turn/start must be an object")
    return {"turn": data["turn"]}


def _turn_end(data: Json, _identity: str, seq: int) -> Json:
    reason = member(data, "reason")
    if not _is_turn(data, {"turn", "reason"}) or not isinstance(member(reason, "kind"), str):
        raise ReplayError(
            f"event {seq}: turn/end must hold its turn number and a reason, got {data!r:.200}"
        )
    assert isinstance(data, dict) and isinstance(reason, dict)
    modern = _turn_end_reason(reason)
    if modern is None:
        raise ReplayError(f"event {seq}: turn/end has a malformed reason {reason!r:.200}")
    return data if modern is reason else {**data, "reason": modern}


def _is_turn(data: Json, allowed: set[str]) -> bool:
    return (
        isinstance(data, dict)
        and is_safe_integer(data.get("turn"), minimum=1)
        and data.keys() <= allowed
    )


def _turn_end_reason(reason: dict[str, Json]) -> dict[str, Json] | None:
    """The modern form of a reason, the same object where it is modern, ``None`` if malformed."""
    kind, details = reason["kind"], reason.keys() - {"kind"}
    if kind in _BARE_REASONS:
        return None if details else reason
    if kind == "disposed":
        return None if details else {"kind": "aborted", "reason": {"kind": "disposed"}}
    if kind == "aborted":
        if not details:
            return {"kind": "aborted", "reason": {"kind": "legacy"}}
        cause = member(reason, "reason", "kind")
        return reason if details == {"reason"} and cause in _ABORT_CAUSES else None
    if kind == "error":
        return _error_reason(reason, details)
    return reason


def _error_reason(reason: dict[str, Json], details: set[str]) -> dict[str, Json] | None:
    if details == {"error"}:
        return reason if isinstance(reason["error"], dict) else None
    if not is_safe_integer(reason.get("step"), minimum=1):
        return None
    if details == {"step", "failure"}:
        failure = reason["failure"]
        return {"kind": "error", "error": failure} if isinstance(failure, dict) else None
    if not {"step", "message"} <= details <= {"step", "message", "code"}:
        return None
    error: Json = {"message": reason["message"], "code": reason.get("code", "UNKNOWN")}
    return {"kind": "error", "error": error}


_MODERNISERS: Final[dict[str, Callable[[Json, str, int], Json]]] = {
    "steering/message": _steering,
    "user/message": _user_message,
    "assistant/message": _assistant_message,
    "tool/result": _tool_result,
    "request/header": _request_header,
    "turn/start": _turn_start,
    "turn/end": _turn_end,
}
