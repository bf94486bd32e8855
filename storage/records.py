"""One line of a log, read as a header or an event and written from one, byte by byte.

The usual line is decoded by two strict passes in C. A line they refuse is examined slowly: it may
be fine all the same (a lone surrogate escape, invalid UTF-8, ``4.0`` for a seq), and if it is not,
the kind of refusal decides what becomes of the log.
"""

from __future__ import annotations

import json
import math
import re
from itertools import accumulate, pairwise
from sys import intern
from typing import Any, Final, Literal, NoReturn

import msgspec

from ..history.replay import check_header
from ..messages.errors import InvalidJson, ReplayError
from ..messages.event import Event, Replace, SurfaceOp
from ..messages.header import FORMAT_VERSION, SessionHeader, header_to_json
from ..messages.json import MAX_DEPTH, MAX_SAFE_INTEGER, Json, decode, encode, is_safe_integer
from .packing import ROW_PREFIXES, MalformedRow, is_packed, unpack

RECORD_BYTES: Final = 64 * 1024 * 1024
"""The longest line, its line end left out, that is decoded."""

READABLE: Final = frozenset({0, 1, 2, 3})
"""The formats this version reads; 3 as far as it is known."""

WRITABLE: Final = frozenset({0, 1, 2})
"""The formats that a log may be continued in."""

_RETIRED_HEADER_KEYS: Final = ("sandboxMode", "approvalPolicy")
_EVENT_KEYS: Final = frozenset(
    {"type", "seq", "time", "data", "ignorable", "surfaceOp", "sourceEventSeqs"}
)


class NotARecord(Exception):
    """A line that is no record, as a torn write leaves it; the torn-tail rule decides."""


class BadRecord(Exception):
    """A whole record that breaks a rule; no torn write looks like that."""


class UnsupportedRecord(Exception):
    """A line that this version does not decode: too long, too deep, or with endless numbers."""


class NotAHeader(Exception):
    """A first line that is no session header at all."""


class BadHeader(Exception):
    """A session header with a field of the wrong shape."""


class UnsupportedHeader(Exception):
    """A session header that is intact and not readable by this version."""


class ForeignHeader(UnsupportedHeader):
    """A session header of a format that this version does not read."""

    def __init__(self, message: str, header: SessionHeader | None) -> None:
        super().__init__(message)
        self.header = header
        """What it says if its fields mean what they mean today."""


# --- reading events


class _Op(msgspec.Struct, forbid_unknown_fields=True, gc=False, tag_field="op", tag="replace"):
    start: int
    end: int


class _Row(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    type: str
    seq: int
    time: int
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
    try:
        if version < FORMAT_VERSION and line.startswith(ROW_PREFIXES):
            return _unpacked(_decode_object(line), next_seq)
        row = _decode_row(line)
        raw = bytes(row.data)
        _decode_any(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return _examine(line, version, next_seq)
    if row.seq != next_seq:
        raise _wrong_seq(row.seq, next_seq)
    if (
        row.ignorable is False
        or abs(row.time) > MAX_SAFE_INTEGER
        or _too_deep(raw)
        # Negative zero is no seq, and decodes to zero.
        or (not next_seq and b"-0" in line)
    ):
        return _examine(line, version, next_seq)
    op, sources = row.surfaceOp, row.sourceEventSeqs
    return [
        Event(
            intern(row.type),
            row.seq,
            row.time,
            raw,
            Replace(op.start, op.end) if isinstance(op, _Op) else op or None,
            None if sources is msgspec.UNSET else expand_sources(sources, row.seq),
            row.ignorable is True,
        )
    ]


def read_object(line: bytes) -> dict[str, Json]:
    """A line as a plain object, whether or not it is an event.

    Raises:
        NotARecord, UnsupportedRecord
    """
    if len(line) > RECORD_BYTES:
        raise UnsupportedRecord(f"{len(line)} bytes is longer than the limit of {RECORD_BYTES}")
    # The envelope is one level of its own.
    if _too_deep(line, MAX_DEPTH + 1):
        raise UnsupportedRecord(f"{len(line)} bytes, nested more than {MAX_DEPTH} levels deep")
    try:
        value: Json = _decoder.decode(_text(line))
    except json.JSONDecodeError as error:
        raise NotARecord(f"not JSON, {error.msg} at {error.pos}") from error
    except ValueError as error:
        raise UnsupportedRecord(f"{len(line)} bytes with a number out of range: {error}") from error
    if not isinstance(value, dict):
        raise NotARecord("not a JSON object")
    return value


def _unpacked(row: dict[str, Json], next_seq: int) -> list[Event]:
    try:
        events = unpack(row)
    except MalformedRow as error:
        raise NotARecord(str(error)) from error
    if events[0].seq != next_seq:
        raise _wrong_seq(events[0].seq, next_seq)
    return events


def _wrong_seq(seq: Json, next_seq: int) -> NotARecord:
    return NotARecord(f"seq {seq!r:.80} where {next_seq} was due")


def _examine(line: bytes, version: int, next_seq: int) -> list[Event]:
    row = read_object(line)
    if is_packed(row):
        return _unpacked(row, next_seq)
    seq = _integer(row.get("seq"))
    if seq != next_seq:
        raise _wrong_seq(row.get("seq"), next_seq)
    kind, ignorable = row.get("type"), row.get("ignorable")
    time = _integer(row.get("time"), signed=True)
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
    raw = _member_text(_text(line), "data").encode()
    op = _surface_op(row["surfaceOp"], seq, version) if "surfaceOp" in row else None
    sources = _sources(row["sourceEventSeqs"], seq) if "sourceEventSeqs" in row else None
    return [Event(kind, seq, time, raw, op, sources, ignorable is True)]


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
            start, end = _integer(value[first]), _integer(value[last])
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
        ends = [_integer(end) for end in item] if isinstance(item, list) else [_integer(item)]
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
        NotARecord: a run is backwards, the list names more seqs than there can be before ``seq``,
            or a list with runs does not rise.
    """
    total = sum(item[1] - item[0] + 1 if type(item) is tuple else 1 for item in items)
    if total > max(seq, len(items)):
        raise NotARecord(f"event {seq} cites {total} events")
    expanded: list[int] = []
    runs = 0
    for item in items:
        if type(item) is tuple:
            if not 0 <= item[0] <= item[1]:
                raise NotARecord(f"event {seq} cites the backward range {list(item)}")
            expanded.extend(range(item[0], item[1] + 1))
            runs += 1
        elif type(item) is int:
            expanded.append(item)
    if runs and any(later <= earlier for earlier, later in pairwise(expanded)):
        raise NotARecord(f"event {seq} cites ranges that do not rise")
    return tuple(expanded)


# --- text and numbers of a line that the strict decoder refused


def _parse_int(text: str) -> int | float:
    # Whole numbers have no negative zero in Python; keep it apart from zero as a float.
    return -0.0 if text == "-0" else int(text)


def _parse_float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text:.40} is beyond a double")
    return value


def _parse_constant(name: str) -> NoReturn:
    raise json.JSONDecodeError(f"{name} is not JSON", name, 0)


_decoder = json.JSONDecoder(
    parse_int=_parse_int,
    parse_float=_parse_float,
    parse_constant=_parse_constant,
)
_SPACE = re.compile(r"[ \t\r\n]*")
_STRING = re.compile(rb'"(?:[^"\\]+|\\.)*"', re.DOTALL)
_BRACKETS: Final = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NOT_BRACKETS: Final = bytes(byte for byte in range(256) if byte not in _BRACKETS)


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace")


def _too_deep(text: bytes, limit: int = MAX_DEPTH) -> bool:
    if len(text) <= limit or text.count(b"[") + text.count(b"{") <= limit:
        return False
    brackets = _STRING.sub(b"", text).translate(None, _NOT_BRACKETS)
    return max(accumulate(_BRACKETS[byte] for byte in brackets), default=0) > limit


def _integer(value: Json, *, signed: bool = False) -> int | None:
    """A JSON number as the whole number it is, however it is spelled, or ``None``."""
    if type(value) is float and value.is_integer() and (value or math.copysign(1, value) > 0):
        value = int(value)
    if type(value) is int and (0 if not signed else -MAX_SAFE_INTEGER) <= value <= MAX_SAFE_INTEGER:
        return value
    return None


def _member_text(text: str, name: str) -> str:
    """The exact text of a member of a valid JSON object, the last one where a name repeats."""
    found = ""
    at = text.index("{") + 1
    while True:
        key, at = _decoder.raw_decode(text, _after_space(text, at))
        start = _after_space(text, text.index(":", at) + 1)
        _, end = _decoder.raw_decode(text, start)
        if key == name:
            found = text[start:end]
        at = _after_space(text, end)
        if text[at] == "}":
            return found
        at += 1


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


# --- writing events


def render_event(event: Event) -> bytes:
    """The stored line of an event, its payload as the bytes it has, with the line end.

    Raises:
        ValueError: the payload is no JSON, or the line is longer or deeper than a reader accepts.
    """
    try:
        decode(event.raw)
    except InvalidJson as error:
        raise ValueError(f"event {event.seq} ({event.type}): data is {error}") from error
    if _too_deep(event.raw):
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
        line += b',"sourceEventSeqs":' + encode(pack_sources(event.source_event_seqs))
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


# --- headers


def read_header(line: bytes, file_version: int) -> SessionHeader:
    """The header in the first line of a log; ``file_version`` is the format its name tells.

    The format is looked at before any other field. Unknown keys are ignored.

    Raises:
        NotAHeader, BadHeader, UnsupportedHeader
    """
    fields = _header_fields(line)
    version = _integer(fields.get("version"), signed=True)
    if version is None:
        raise NotAHeader("the session header has no format version")
    if version not in READABLE or file_version not in READABLE:
        raise _foreign(fields, version)
    header = _header(fields, version)
    for key in _RETIRED_HEADER_KEYS:
        if key in fields:
            raise UnsupportedHeader(f"the header holds {key}, which was retired")
    if version != file_version:
        raise BadHeader(f"the header says format {version}, the file name format {file_version}")
    return header


def _foreign(fields: dict[str, Json], version: int) -> ForeignHeader:
    try:
        header = _header(fields, version)
    except (NotAHeader, BadHeader):
        header = None
    return ForeignHeader(f"format {version} is not one of 0 to 3, which can be read", header)


def _header(fields: dict[str, Json], version: int) -> SessionHeader:
    created_at, depth = _integer(fields.get("createdAt")), _integer(fields.get("delegationDepth"))
    session_id = fields.get("id")
    if not isinstance(session_id, str) or created_at is None or depth is None:
        raise NotAHeader("a session header needs id, createdAt and delegationDepth")
    if version >= FORMAT_VERSION and not isinstance(fields.get("isSeeded"), bool):
        raise NotAHeader(f"a session header of format {version} needs isSeeded")
    origin, preset = fields.get("origin"), fields.get("agentPreset")
    if not isinstance(fields.get("origin", "subagent"), str) or origin not in (None, "subagent"):
        raise NotAHeader(f"origin {origin!r:.80} is of no known kind")
    if not isinstance(fields.get("agentPreset", ""), str):
        raise NotAHeader(f"agentPreset {preset!r:.80} is not text")
    return SessionHeader(
        id=session_id,
        created_at=created_at,
        version=version,
        cwd=_optional_text(fields, "cwd"),
        parent_session=_optional_text(fields, "parentSession"),
        is_seeded="seedLength" in fields
        if version < FORMAT_VERSION
        else fields["isSeeded"] is True,
        seed_length=_seed_length(fields, version),
        origin="subagent" if origin == "subagent" else None,
        delegation_depth=depth,
        agent_preset=preset if isinstance(preset, str) else None,
    )


def _header_fields(line: bytes) -> dict[str, Json]:
    try:
        fields = read_object(line.removeprefix(b"\xef\xbb\xbf"))
    except UnsupportedRecord as error:
        raise UnsupportedHeader(str(error)) from error
    except NotARecord as error:
        raise NotAHeader(f"the first line is {error}") from error
    if fields.get("type") != "session":
        raise NotAHeader(
            f"the first line is no session header, its type is {fields.get('type')!r:.80}"
        )
    return fields


def _optional_text(fields: dict[str, Json], key: str) -> str | None:
    value = fields.get(key)
    if key in fields and not isinstance(value, str):
        raise BadHeader(f"{key} {value!r:.80} in the header is not text")
    return value if isinstance(value, str) else None


def _seed_length(fields: dict[str, Json], version: int) -> int | None:
    if "seedLength" not in fields:
        return None
    length = _integer(fields["seedLength"])
    if version >= FORMAT_VERSION or "isSeeded" in fields:
        raise BadHeader("a header holds either seedLength or isSeeded")
    if length is None:
        raise BadHeader(f"seedLength {fields['seedLength']!r:.80} is not a whole number")
    return length


def render_header(header: SessionHeader) -> bytes:
    """The first line of a log, with its line end."""
    return encode({"type": "session", **header_to_json(header)}) + b"\n"


def check_new(header: SessionHeader, inherited_event_count: int) -> None:
    """Refuse a header that no new log can begin with.

    Raises:
        ValueError: naming the field at fault.
    """
    if header.version != FORMAT_VERSION:
        raise ValueError(f"new logs have format {FORMAT_VERSION}, not {header.version!r}")
    try:
        check_header(header)
    except ReplayError as error:
        raise ValueError(str(error)) from error
    count = inherited_event_count
    if not is_safe_integer(count) or (count and not header.is_seeded):
        raise ValueError(
            f"inherited_event_count {count!r} does not fit is_seeded {header.is_seeded}"
        )
