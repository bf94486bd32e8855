"""The lines of another agent's log, and the record in each, read as leniently as JSON allows.

Nobody repairs these logs, so that a line is judged alone: what is no record is passed over and
named, and whatever follows counts. Only what this version cannot decode at all (too long, too
deep, endless numbers) makes a log unsupported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec
from attrs import frozen

from ..history.foreign import DEEPEST, Record
from ..history.long_payload import LONG_BYTES, affordable, has_few_values
from ..messages.json import Json, decode
from .contract import UnsupportedLog
from .json_line import (
    RECORD_BYTES,
    NotARecord,
    UnsupportedRecord,
    decode_object,
    deeper_than,
    has_many_brackets,
    long_members,
)
from .large_records import LARGE_BYTES, wait_for_turn
from .log_text import PIECE_BYTES, LogText

_BOM: Final = b"\xef\xbb\xbf"
_PADDING: Final = b"\0 \t\r"
"""What may surround a record: a crash leaves runs of NUL where nothing was written."""

_RECOVERY_TRIES: Final = 64
"""Places in a bad line at which a whole record is looked for."""

_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode
_decode_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_items: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode


@frozen
class Line:
    """One line of a log."""

    text: bytes
    """Without its line end."""
    end: int
    """Where the next one begins, in bytes of text from where reading began."""
    ended: bool
    """False for what stands behind the last line end."""


def lines_of(text: LogText, name: str, number: int, ahead: int = PIECE_BYTES) -> Iterator[Line]:
    """The lines of ``text`` from where it is read next, which is behind line ``number``.

    ``ahead`` bytes are read for the first of them.

    Raises:
        CorruptLog
        UnsupportedLog: also for a line that is too long.
    """
    held: list[bytes] = []
    length = at = 0
    while piece := text.read(ahead):
        start, ahead = 0, PIECE_BYTES
        while (end := piece.find(b"\n", start)) >= 0:
            held.append(piece[start:end])
            length += end - start
            _check_length(length, name, number)
            at += length + 1
            line = Line(b"".join(held), at, ended=True)
            held, length = [], 0
            number += 1
            start = end + 1
            yield line
        held.append(piece[start:])
        length += len(piece) - start
        if length > LARGE_BYTES:
            wait_for_turn()
        _check_length(length, name, number)
    if length:
        yield Line(b"".join(held), at + length, ended=False)


def _check_length(length: int, name: str, number: int) -> None:
    if length > RECORD_BYTES:
        raise UnsupportedLog(
            f"{name} line {number + 1}: longer than the limit of {RECORD_BYTES} bytes"
        )


def content_of(line: bytes) -> bytes:
    """A line without what is no part of its record; empty where there is none."""
    content = line.strip(_PADDING)
    return content[len(_BOM) :].strip(_PADDING) if content.startswith(_BOM) else content


def read_record(content: bytes) -> Record:
    """The record of a line.

    Raises:
        NotARecord, UnsupportedRecord
    """
    if len(content) > LONG_BYTES:
        return _long_record(content)
    try:
        data: Mapping[str, Json] = _decode(content)
        raw = content
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        data = decode_object(content)
        # Invalid UTF-8 is replaced; everything else is kept as it is written.
        raw = content.decode("utf-8", "replace").encode()
    if has_many_brackets(content) and deeper_than(data, DEEPEST):
        raise UnsupportedRecord(f"{len(content)} bytes, nested more than {DEEPEST} levels deep")
    return Record(data, raw)


def _long_record(content: bytes) -> Record:
    """A record of which only that is decoded which stays small in memory."""
    data = {name: _affordable_parts(text) for name, text in long_members(content).items()}
    return Record(data, content.decode("utf-8", "replace").encode())


def _affordable_parts(text: bytes) -> Json:
    """A value without the strings, and the containers, that would take too much; they are null."""
    if len(text) <= LONG_BYTES or affordable(text):
        return decode(text)
    if not has_few_values(text):
        return None
    try:
        match text[:1]:
            case b"{":
                return {
                    name: _affordable_parts(bytes(part))
                    for name, part in _decode_members(text).items()
                }
            case b"[":
                return [_affordable_parts(bytes(part)) for part in _decode_items(text)]
    except (msgspec.MsgspecError, UnicodeError):
        pass
    return None


def record_in(
    line: Line, is_record: Callable[[Mapping[str, Json]], bool]
) -> Mapping[str, Json] | None:
    """The members of the record in a line, of a recovered one too; nothing of any that is refused
    when it is read."""
    content = content_of(line.text)
    try:
        return read_record(content).data if content else None
    except UnsupportedRecord:
        return None
    except NotARecord:
        recovered = recovered_record(content, is_record) if line.ended else None
        return recovered[1].data if recovered is not None else None


def recovered_record(
    content: bytes, is_record: Callable[[Mapping[str, Json]], bool]
) -> tuple[int, Record] | None:
    """The whole record behind a torn one on the same line, and how many bytes stand before it."""
    at = 0
    for _ in range(_RECOVERY_TRIES):
        at = content.find(b'{"', at + 1)
        if at < 0:
            return None
        try:
            record = read_record(content[at:])
        except (NotARecord, UnsupportedRecord):
            continue
        if is_record(record.data):
            return at, record
    return None
