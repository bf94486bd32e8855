"""One event line of a log, read and written byte by byte.

The usual line is decoded by two strict passes in C. A line they refuse is examined slowly: it may
be fine all the same (a lone surrogate escape, invalid UTF-8, ``4.0`` for a seq), and if it is not,
the kind of refusal decides what becomes of the log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from sys import intern
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET

from ..history.long_payload import LONG_BYTES
from ..history.payload import brackets
from ..messages.errors import InvalidJson
from ..messages.event import Event, Replace, SurfaceOp
from ..messages.header import FORMAT_VERSION
from ..messages.json import MAX_DEPTH, MAX_SAFE_INTEGER, Json, decode, encode
from .json_line import (
    RECORD_BYTES,
    NotARecord,
    UnsupportedRecord,
    decode_object,
    deeper_than,
    long_members,
    member_text,
    read_object,
    short_members,
    whole_number,
)
from .packing import ROW_PREFIXES, MalformedRow, OverfullRow, is_packed, unpack

_PACKED_BYTES: Final = 2 * LONG_BYTES
_EVENT_KEYS: Final = frozenset(
    {"type", "seq", "time", "data", "ignorable", "surfaceOp", "sourceEventSeqs"}
)


class BadRecord(Exception):
    """A whole record that breaks a rule; no torn write looks like that."""


class _Op(msgspec.Struct, forbid_unknown_fields=True, gc=False, tag_field="op", tag="replace"):
    start: int
    end: int


_Time: TypeAlias = Annotated[int, msgspec.Meta(ge=-MAX_SAFE_INTEGER, le=MAX_SAFE_INTEGER)]


class _Row(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    type: str
    seq: int
    time: _Time
    data: msgspec.Raw
    ignorable: bool | msgspec.UnsetType = msgspec.UNSET
    surfaceOp: Literal["append"] | _Op | msgspec.UnsetType = msgspec.UNSET
    sourceEventSeqs: list[int | tuple[int, int]] | msgspec.UnsetType = msgspec.UNSET


_decode_row = msgspec.json.Decoder(_Row).decode
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode
_decode_any = msgspec.json.Decoder().decode


def read_events(line: bytes, version: int, next_seq: int) -> list[Event]:
    """The events of one stored line from seq ``next_seq``: one, or those of a packed row.

    Raises:
        NotARecord, BadRecord, UnsupportedRecord
    """
    if len(line) > LONG_BYTES:
        return _examine_long(line, version, next_seq)
    if version < FORMAT_VERSION and line.startswith(ROW_PREFIXES):
        try:
            return _unpacked(_decode_object(line), next_seq)
        except (msgspec.MsgspecError, RecursionError, UnicodeError):
            return _examine(line, version, next_seq)
    usual = usual_event(line, next_seq)
    return [usual[0]] if usual is not None else _examine(line, version, next_seq)


def usual_event(line: bytes, next_seq: int) -> tuple[Event, Json] | None:
    """The event of a line that is no packed row, as every known writer spells it, and its payload.

    ``None`` where ``read_events`` has to say what the line is.
    """
    if len(line) > LONG_BYTES:
        return None
    try:
        row = _decode_row(line)
        raw = bytes(row.data)
        data: Json = _decode_any(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None
    if (
        row.seq != next_seq
        or row.ignorable is False
        or (len(raw) > 2 * MAX_DEPTH and brackets(raw) > MAX_DEPTH and deeper_than(data, MAX_DEPTH))
        # Negative zero is no seq, and decodes to zero.
        or (not next_seq and b"-0" in line)
    ):
        return None
    op: SurfaceOp | None = None
    if row.surfaceOp is not UNSET:
        placed = row.surfaceOp
        op = Replace(placed.start, placed.end) if isinstance(placed, _Op) else placed
    cited: tuple[int, ...] | None = None
    if row.sourceEventSeqs is not UNSET:
        try:
            # Only now: a seq that is due bounds what a run can stand for.
            cited = expand_sources(row.sourceEventSeqs, next_seq)
        except NotARecord:
            return None
    kind = intern(row.type)
    return Event(kind, next_seq, row.time, raw, op, cited, row.ignorable is True), data


def _unpacked(row: dict[str, Json], next_seq: int) -> list[Event]:
    try:
        events = unpack(row)
    except MalformedRow as error:
        raise NotARecord(str(error)) from error
    except OverfullRow as error:
        raise UnsupportedRecord(str(error)) from error
    if events[0].seq != next_seq:
        raise _wrong_seq(events[0].seq, next_seq)
    return events


def _wrong_seq(seq: Json, next_seq: int) -> NotARecord:
    return NotARecord(f"seq {seq!r:.80} where {next_seq} was due")


def _examine(line: bytes, version: int, next_seq: int) -> list[Event]:
    row = read_object(line)
    if is_packed(row):
        return _unpacked(row, next_seq)
    return [_event(row, lambda: member_text(line, "data"), version, next_seq)]


def _examine_long(line: bytes, version: int, next_seq: int) -> list[Event]:
    members = long_members(line)
    row = short_members(members)
    if is_packed(row):
        if len(line) > _PACKED_BYTES:
            raise UnsupportedRecord(f"a packed row of {len(line)} bytes, over {_PACKED_BYTES}")
        return _unpacked(decode_object(line), next_seq)
    for name in members.keys() - row.keys():
        if name != "data":
            raise UnsupportedRecord(f"{name!r:.80} alone takes {len(members[name])} bytes")
        row[name] = None
    return [_event(row, lambda: members["data"], version, next_seq)]


def _event(
    row: dict[str, Json], payload: Callable[[], bytes], version: int, next_seq: int
) -> Event:
    """The event of a decoded line, every member checked; ``payload`` gives the text of data."""
    seq = whole_number(row.get("seq"))
    if seq != next_seq:
        raise _wrong_seq(row.get("seq"), next_seq)
    kind, ignorable = row.get("type"), row.get("ignorable")
    time = whole_number(row.get("time"), signed=True)
    if unknown := sorted(row.keys() - _EVENT_KEYS):
        raise BadRecord(f"event {seq} has the unknown key {unknown[0]!r}")
    if not isinstance(kind, str):
        raise BadRecord(f"event {seq}: type {kind!r} is not text")
    if time is None:
        raise BadRecord(f"event {seq}: time {row.get('time')!r} is not a whole number of ms")
    if "data" not in row:
        raise BadRecord(f"event {seq} has no data")
    if "ignorable" in row and ignorable is not True:
        raise BadRecord(f"event {seq}: ignorable must be true or absent, got {ignorable!r}")
    op = _surface_op(row["surfaceOp"], seq, version) if "surfaceOp" in row else None
    sources = _sources(row["sourceEventSeqs"], seq) if "sourceEventSeqs" in row else None
    return Event(kind, seq, time, payload(), op, sources, ignorable is True)


def _surface_op(value: Json, seq: int, version: int) -> SurfaceOp:
    if value == "append":
        return "append"
    spellings = (
        [("start", "end")]
        if version <= FORMAT_VERSION
        else [("startSeq", "endSeq"), ("start", "end")]
    )
    for first, last in spellings:
        if isinstance(value, dict) and value.keys() == {"op", first, last}:
            start, end = whole_number(value[first]), whole_number(value[last])
            if value["op"] == "replace" and start is not None and end is not None:
                return Replace(start, end)
    raise BadRecord(
        f"event {seq}: surfaceOp must be 'append' or a replace with its range, got {value!r:.200}"
    )


def _sources(value: Json, seq: int) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise BadRecord(f"event {seq}: sourceEventSeqs must be a list, got {value!r:.200}")
    items: list[int | tuple[int, int]] = []
    for item in value:
        ends = (
            [whole_number(end) for end in item] if isinstance(item, list) else [whole_number(item)]
        )
        if any(end is None for end in ends) or (isinstance(item, list) and len(ends) != 2):
            raise BadRecord(
                f"event {seq}: sourceEventSeqs holds {item!r:.200}, no seq and no range"
            )
        whole = [end for end in ends if end is not None]
        items.append((whole[0], whole[1]) if isinstance(item, list) else whole[0])
    return expand_sources(items, seq)


def expand_sources(items: list[int | tuple[int, int]], seq: int) -> tuple[int, ...]:
    """The seqs of a stored citation, in which a pair stands for a run and includes both ends.

    Raises:
        NotARecord: a run is backwards, runs name more seqs than there can be before ``seq``, or a
            list with runs does not rise.
    """
    expanded: list[int] = []
    runs = False
    for item in items:
        if isinstance(item, int):
            expanded.append(item)
            continue
        first, last = item
        if not 0 <= first <= last or len(expanded) + last - first >= seq:
            raise NotARecord(f"event {seq} cites the impossible range [{first}, {last}]")
        expanded.extend(range(first, last + 1))
        runs = True
    if runs and any(later <= earlier for earlier, later in pairwise(expanded)):
        raise NotARecord(f"event {seq} cites ranges that do not rise")
    return tuple(expanded)


def render_event(event: Event) -> bytes:
    """The stored line of an event, its payload as the bytes it has, with the line end.

    Raises:
        ValueError: the payload is no JSON, or the line is longer or deeper than a reader accepts.
    """
    return _render(event, pack_sources)


def render_plainly(event: Event) -> bytes:
    """The line likewise, every cited seq a number of its own, as any reader takes it."""
    return _render(event, list)


def _render(event: Event, cited: Callable[[tuple[int, ...]], Sequence[int | list[int]]]) -> bytes:
    try:
        data = decode(event.raw)
    except InvalidJson as error:
        raise ValueError(f"event {event.seq} ({event.type}): data is {error}") from error
    if deeper_than(data, MAX_DEPTH):
        raise ValueError(
            f"event {event.seq} ({event.type}): data is nested more than {MAX_DEPTH} levels deep"
        )
    # A line feed inside JSON text can only be white space between tokens.
    raw = event.raw.replace(b"\n", b" ")
    line = b'{"type":%s,"seq":%d,"time":%d,"data":%s' % (
        encode(event.type),
        event.seq,
        event.time,
        raw,
    )
    if event.ignorable:
        line += b',"ignorable":true'
    if isinstance(event.surface_op, Replace):
        line += b',"surfaceOp":{"op":"replace","start":%d,"end":%d}' % (
            event.surface_op.start,
            event.surface_op.end,
        )
    elif event.surface_op is not None:
        line += b',"surfaceOp":"append"'
    if event.source_event_seqs is not None:
        line += b',"sourceEventSeqs":' + encode(cited(event.source_event_seqs))
    if len(line) >= RECORD_BYTES:
        raise ValueError(
            f"event {event.seq} ({event.type}): {len(line)} bytes is over {RECORD_BYTES}"
        )
    return line + b"}\n"


def pack_sources(sources: tuple[int, ...]) -> list[int | list[int]]:
    """A citation as it is stored: in a rising list, three or more in a row are one pair."""
    if any(later <= earlier for earlier, later in pairwise(sources)):
        return list(sources)
    packed: list[int | list[int]] = []
    start = 0
    for at in range(1, len(sources) + 1):
        if at < len(sources) and sources[at] == sources[at - 1] + 1:
            continue
        run = sources[start:at]
        packed.extend([[run[0], run[-1]]] if len(run) > 2 else run)
        start = at
    return packed
