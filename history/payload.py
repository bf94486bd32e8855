"""Decoding a payload once, with a bound on its nesting and on what a long one may take."""

from __future__ import annotations

import re
from typing import Final

from ..messages.errors import InvalidJson, UnsupportedFormat
from ..messages.event import Event
from ..messages.json import MAX_DEPTH, Json, decode
from .long_payload import LONG_BYTES, needed

_strings: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_brackets: Final = re.compile(rb"[\[\]{}]")


def payload(event: Event, text_chars: int | None = None) -> Json:
    """The payload of ``event``, decoded afresh; of a long one only what a fold reads.

    ``text_chars`` is how many code points of text are wanted, all of them by default; shorter
    payloads are whole all the same.

    Raises:
        InvalidJson: it is not JSON.
        UnsupportedFormat: it is nested more than ``MAX_DEPTH`` levels deep, or is long and takes
            too much memory in what has to be read.
    """
    raw = event.raw
    if len(raw) > LONG_BYTES:
        try:
            return needed(event.type, raw, text_chars)
        except (InvalidJson, UnsupportedFormat) as error:
            raise type(error)(
                f"event {event.seq} ({len(raw)} bytes): its payload is {error}"
            ) from error
    if len(raw) > 2 * MAX_DEPTH and nesting(raw) > MAX_DEPTH:
        raise UnsupportedFormat(
            f"event {event.seq}: its payload is nested more than {MAX_DEPTH} levels deep"
        )
    try:
        return decode(raw)
    except InvalidJson as error:
        raise InvalidJson(f"event {event.seq}: its payload is {error}") from error


def brackets(text: bytes) -> int:
    """How many opening brackets and braces stand in a text."""
    # Counting looks at each byte; replacing leaps from one to the next.
    return 2 * len(text) - len(text.replace(b"[", b"")) - len(text.replace(b"{", b""))


def nesting(raw: bytes) -> int:
    """An upper bound of the levels of nesting of a JSON text; exact where it exceeds the limit."""
    opened = brackets(raw)
    if opened <= MAX_DEPTH:
        return opened
    depth = deepest = 0
    for bracket in _brackets.finditer(_strings.sub(b"", raw)):
        if bracket[0] in b"{[":
            depth += 1
            deepest = max(deepest, depth)
        else:
            depth -= 1
    return deepest
