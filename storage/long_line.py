"""A long line of a log as a JSON object that is checked whole and decoded member by member.

What a value takes in memory once it is decoded may be twenty times its text. Here a line of any
content costs two more of itself: its syntax is checked by a decoder that builds nothing, depth and
numbers by a walk over its tokens.
"""

from __future__ import annotations

import codecs
import math
import re
from typing import Final

import msgspec

from ..history.long_payload import paired_surrogates
from ..messages.json import MAX_DEPTH

_SLICE_BYTES: Final = 1024 * 1024
_INTEGER_DIGITS: Final = 4300
"""More digits than this Python refuses to convert."""

# What is neither a bracket nor a number that may be beyond a double or an int.
_HARMLESS: Final = (
    rb'[^"\[\]{}0-9]++|"(?:[^"\\]++|\\.)*+"'
    rb"|[0-9]{1,200}+(?![0-9])(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]{1,2}+(?![0-9]))?+(?![eE])"
)
_SKIPPED_LEVELS: Final = 2


def _skipped(levels: int) -> bytes:
    """A pattern of anything harmless, in at most so many levels of nesting."""
    if not levels:
        return rb"(?:%s)*+" % _HARMLESS
    inner = _skipped(levels - 1)
    return rb"(?:%s|\[%s\]|\{%s\})*+" % (_HARMLESS, inner, inner)


_FLAT: Final = re.compile(_skipped(0), re.DOTALL)
_SHALLOW: Final = re.compile(_skipped(_SKIPPED_LEVELS), re.DOTALL)
_BRACKETS: Final = re.compile(rb"[\[{]++|[\]}]++")
_NUMBER: Final = re.compile(rb"[0-9.]++(?:[eE][+-]?[0-9]++)?+")
_decode: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class BadSyntax(Exception):
    """No JSON object."""


class TooMuch(Exception):
    """JSON that is nested too deeply, or with a number beyond what can be decoded."""


def read_members(line: bytes, longest: int) -> dict[str, bytes]:
    """The text of every member of a line, the last one where a name repeats.

    Invalid UTF-8 is replaced; ``longest`` is what the line may grow to by that.

    Raises:
        BadSyntax, TooMuch
    """
    text = _repaired(line, longest)
    try:
        members = {name: bytes(raw) for name, raw in _decode(text).items()}
    except RecursionError as error:
        raise _too_deep(line) from error
    except (msgspec.MsgspecError, UnicodeError) as error:
        members = _with_lone_surrogates(text, error)
    _check_tokens(text)
    return members


def _repaired(line: bytes, longest: int) -> bytes:
    """A line with U+FFFD in the place of bytes that are no UTF-8."""
    strict = codecs.getincrementaldecoder("utf-8")()
    try:
        for start in range(0, len(line), _SLICE_BYTES):
            strict.decode(line[start : start + _SLICE_BYTES])
        strict.decode(b"", final=True)
        return line
    except UnicodeDecodeError:
        pass
    lenient = codecs.getincrementaldecoder("utf-8")("replace")
    repaired = bytearray()
    for start in range(0, len(line) + 1, _SLICE_BYTES):
        piece = line[start : start + _SLICE_BYTES]
        repaired += lenient.decode(piece, final=len(piece) < _SLICE_BYTES).encode()
        if len(repaired) > longest:
            raise TooMuch(f"{len(line)} bytes, too many of them no UTF-8")
    return bytes(repaired)


def _with_lone_surrogates(text: bytes, refusal: Exception) -> dict[str, bytes]:
    """The members of a line in which escapes of surrogates stand alone, as they are written."""
    paired = paired_surrogates(text)
    try:
        found = _decode(paired)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise BadSyntax(f"not JSON, {error or refusal}") from refusal
    except RecursionError as error:
        raise _too_deep(text) from error
    return {name: _original(text, paired, name, memoryview(raw)) for name, raw in found.items()}


def _original(text: bytes, paired: bytearray, name: str, member: memoryview) -> bytes:
    """What stands in ``text`` where a member stands in ``paired``, which is as long."""
    quoted = msgspec.json.encode(name)
    for separator in re.finditer(rb"[ \t\r\n]*:[ \t\r\n]*", paired):
        if paired.endswith(quoted, 0, separator.start()):
            start = separator.end()
            if paired.startswith(member, start):
                return text[start : start + len(member)]
    return bytes(member)


def _check_tokens(text: bytes) -> None:
    """Check how deep a line is nested and whether its numbers can be decoded."""
    # The envelope is one level of its own.
    depth, deepest = 0, MAX_DEPTH + 1
    at = 0
    while at < len(text):
        skip = _SHALLOW if depth + _SKIPPED_LEVELS <= deepest else _FLAT
        if harmless := skip.match(text, at):
            at = harmless.end()
        if brackets := _BRACKETS.match(text, at):
            length = brackets.end() - at
            depth += length if text[at] in b"[{" else -length
            if depth > deepest:
                raise _too_deep(text)
            at = brackets.end()
        elif at < len(text):
            at = _check_number(text, at)


def _check_number(text: bytes, at: int) -> int:
    """Check the number that stands at a place; where it ends."""
    found = _NUMBER.match(text, at)
    assert found is not None
    number = found[0]
    whole = number.isdigit()
    if len(number) > _INTEGER_DIGITS if whole else math.isinf(float(number)):
        raise TooMuch(f"{len(text)} bytes with a number out of range: {number[:40].decode()}")
    return found.end()


def _too_deep(line: bytes) -> TooMuch:
    return TooMuch(f"{len(line)} bytes, nested more than {MAX_DEPTH} levels deep")
