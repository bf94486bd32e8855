"""Packed chunk rows of formats 0 and 1: one stored row for several ``assistant/chunk`` events.

A row is ``{type, seq0, time0, data}``; member k has seq ``seq0`` + k and the time ``time0`` plus
the first k gaps of ``data.dt`` (persistence §4.1). Rows are only read: the writer stores chunks
one by one, which every reader accepts.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Final

from ..messages.event import Event
from ..messages.json import MAX_SAFE_INTEGER, Json, encode, is_safe_integer
from .json_line import whole_number

ROW_PREFIXES: Final = (
    b'{"type":"text-chunks"',
    b'{"type":"reasoning-chunks"',
    b'{"type":"tool-call-chunks"',
)
"""How a row begins as every known writer spells it."""

UNPACKED_BYTES: Final = 64 * 1024 * 1024
"""What the events of one row may take in memory: a member of two bytes becomes a whole event."""

_EVENT_BYTES: Final = 500

_ROW_KEYS: Final = {"type", "seq0", "time0", "data"}
_TEXT_KEYS: Final = {"turn", "step", "index", "dt", "texts"}
_CALL_KEYS: Final = {"turn", "step", "index", "id", "dt", "args"}
_DELTAS: Final = {"text-chunks": "text-delta", "reasoning-chunks": "reasoning-delta"}
_CALL_ROW: Final = "tool-call-chunks"


class MalformedRow(ValueError):
    """A row that breaks a rule; none of its members can be trusted."""


class OverfullRow(Exception):
    """A row whose events would take more memory than is given to one record."""


def is_packed(row: dict[str, Json]) -> bool:
    """Whether a stored object means to be a packed row."""
    return "seq0" in row and (row.get("type") in _DELTAS or row.get("type") == _CALL_ROW)


def unpack(row: dict[str, Json]) -> list[Event]:
    """The events a row stands for, at least one.

    Raises:
        MalformedRow: naming the key at fault.
        OverfullRow
    """
    kind, first, time, data = row.get("type"), row.get("seq0"), row.get("time0"), row.get("data")
    if row.keys() != _ROW_KEYS or not isinstance(data, dict):
        raise MalformedRow(f"a packed row has the keys type, seq0, time0 and data, not {[*row]}")
    members, before, after = _text_row(kind, data) if kind in _DELTAS else _call_row(data)
    if len(members) * (len(before) + _EVENT_BYTES) > UNPACKED_BYTES:
        raise OverfullRow(f"a packed row of {len(members)} events, over {UNPACKED_BYTES} bytes")
    start = whole_number(first)
    if start is None:
        raise MalformedRow(f"seq0 {first!r} is not a seq")
    if not is_safe_integer(start + len(members) - 1):
        raise MalformedRow(f"seq0 {first} leaves no exact seqs for {len(members)} members")
    times = _times(time, data["dt"], len(members))
    return [
        Event("assistant/chunk", seq, at, before + encode(member) + after)
        for seq, (member, at) in enumerate(zip(members, times, strict=True), start)
    ]


def _text_row(kind: Json, data: dict[str, Json]) -> tuple[list[Json], bytes, bytes]:
    if data.keys() != _TEXT_KEYS:
        raise MalformedRow(f"data of {kind} has the keys {sorted(data)}")
    before = _chunk(_DELTAS[str(kind)], data) + b'"text":'
    return _members(data["texts"], "texts"), before, b"}}"


def _call_row(data: dict[str, Json]) -> tuple[list[Json], bytes, bytes]:
    if data.keys() - {"name"} != _CALL_KEYS:
        raise MalformedRow(f"data of {_CALL_ROW} has the keys {sorted(data)}")
    if not isinstance(data["id"], str) or not isinstance(data.get("name", ""), str):
        raise MalformedRow("id and name of a tool-call row must be text")
    name = b'"name":' + encode(data["name"]) + b"," if "name" in data else b""
    before = b'%s"id":%s,%s"argumentsDelta":' % (
        _chunk("tool-call-delta", data),
        encode(data["id"]),
        name,
    )
    return _members(data["args"], "args"), before, b"}}"


def _chunk(delta: str, data: dict[str, Json]) -> bytes:
    turn, step, index = (_count(key, data[key]) for key in ("turn", "step", "index"))
    place = f'"turn":{turn},"step":{step}'
    return f'{{{place},"chunk":{{"type":"{delta}","index":{index},'.encode()


def _count(key: str, value: Json) -> int:
    count = whole_number(value)
    if count is None:
        raise MalformedRow(f"{key} {value!r} of a packed row is not a whole number")
    return count


def _members(value: Json, key: str) -> list[Json]:
    if not isinstance(value, list) or not value or not all(type(item) is str for item in value):
        raise MalformedRow(f"{key} of a packed row must be a list of at least one text")
    return value


def _times(first: Json, gaps: Json, count: int) -> list[int]:
    start = whole_number(first, signed=True)
    if start is None or not isinstance(gaps, list) or len(gaps) != count - 1:
        raise MalformedRow(
            f"a packed row of {count} members needs time0 and {count - 1} gaps in dt"
        )
    whole = [gap for gap in gaps if type(gap) is int]
    if len(whole) < len(gaps):
        whole = [gap for each in gaps if (gap := whole_number(each, signed=True)) is not None]
    times = list(accumulate(whole, initial=start))
    if len(whole) != len(gaps) or any(abs(at) > MAX_SAFE_INTEGER for at in times):
        raise MalformedRow("the gaps in dt of a packed row must be whole numbers of ms")
    return times
