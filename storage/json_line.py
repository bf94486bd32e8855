"""One line of a log as a JSON object, read as leniently as JSON allows.

What strict decoders refuse is read here: lone surrogate escapes are kept, invalid UTF-8 becomes
U+FFFD, whole numbers count however they are spelled. What is refused is told apart: no JSON object,
or JSON that this version does not decode.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from typing import Final, NoReturn

from ..history.long_payload import LONG_BYTES
from ..history.payload import brackets
from ..messages.json import MAX_DEPTH, MAX_SAFE_INTEGER, Json
from .long_line import BadSyntax, TooMuch, read_members

RECORD_BYTES: Final = 64 * 1024 * 1024
"""The longest line, its line end left out, that is decoded."""


_DECODED_BYTES: Final = 1024 * 1024


class NotARecord(Exception):
    """A line that is no record, as a torn write leaves it; the torn-tail rule decides."""


class UnsupportedRecord(Exception):
    """A line that this version does not decode: too long, too deep, or with endless numbers."""


def read_object(line: bytes) -> dict[str, Json]:
    """A line as a plain object, whether or not it is an event.

    Of a long line only the shortest members are decoded; the others are left out.

    Raises:
        NotARecord, UnsupportedRecord
    """
    if len(line) > LONG_BYTES:
        return short_members(long_members(line))
    return decode_object(line)


def decode_object(line: bytes) -> dict[str, Json]:
    """A line as an object with all that is in it, however much memory that takes.

    Raises:
        NotARecord, UnsupportedRecord
    """
    try:
        value: Json = _decoder.decode(_text(line))
    except json.JSONDecodeError as error:
        raise NotARecord(f"not JSON, {error.msg} at {error.pos}") from error
    except ValueError as error:
        raise UnsupportedRecord(f"{len(line)} bytes with a number out of range: {error}") from error
    except RecursionError as error:
        raise _too_deep(line) from error
    if not isinstance(value, dict):
        raise NotARecord("not a JSON object")
    # The envelope is one level of its own.
    if has_many_brackets(line) and deeper_than(value, MAX_DEPTH + 1):
        raise _too_deep(line)
    return value


def long_members(line: bytes) -> dict[str, bytes]:
    """The exact text of every member of a long line; invalid UTF-8 is replaced.

    Raises:
        NotARecord, UnsupportedRecord
    """
    if len(line) > RECORD_BYTES:
        raise UnsupportedRecord(f"{len(line)} bytes is longer than the limit of {RECORD_BYTES}")
    try:
        return read_members(line, RECORD_BYTES)
    except BadSyntax as error:
        raise NotARecord(str(error)) from error
    except TooMuch as error:
        raise UnsupportedRecord(str(error)) from error


def short_members(members: dict[str, bytes]) -> dict[str, Json]:
    """The members of a long line, decoded as far as ``_DECODED_BYTES`` of them go."""
    decoded: dict[str, Json] = {}
    budget = _DECODED_BYTES
    for name, text in sorted(members.items(), key=lambda member: len(member[1])):
        budget -= len(text)
        if budget >= 0:
            decoded[name] = _decoder.decode(text.decode())
    return decoded


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace")


def _too_deep(line: bytes) -> UnsupportedRecord:
    return UnsupportedRecord(f"{len(line)} bytes, nested more than {MAX_DEPTH} levels deep")


def has_many_brackets(text: bytes) -> bool:
    """Whether a JSON text can be too deep at all, which only a look at its values can tell."""
    # What is opened is closed as well.
    return len(text) > 2 * MAX_DEPTH and brackets(text) > MAX_DEPTH


def deeper_than(value: object, limit: int) -> bool:
    """Whether a decoded value has more than ``limit`` levels of nesting."""
    level = [value]
    for _ in range(limit):
        level = [inner for outer in level for inner in _children(outer)]
        if not level:
            return False
    return any(isinstance(inner, dict | list) for inner in level)


def _children(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def whole_number(value: Json, *, signed: bool = False) -> int | None:
    """A JSON number as the whole number it is, however it is spelled, or ``None``."""
    if type(value) is float and value.is_integer() and (value or math.copysign(1, value) > 0):
        value = int(value)
    if type(value) is int and (0 if not signed else -MAX_SAFE_INTEGER) <= value <= MAX_SAFE_INTEGER:
        return value
    return None


def member_text(line: bytes, name: str) -> bytes:
    """The exact text of a member of a line that ``read_object`` accepts.

    The last one where the name repeats; invalid UTF-8 is replaced.
    """
    text = _text(line)
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
            return found.encode()
        at += 1


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


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
