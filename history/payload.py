"""Decoding a payload once, with a bound on its nesting."""

from __future__ import annotations

import re
from typing import Final

from ..messages.errors import InvalidJson, UnsupportedFormat
from ..messages.event import Event
from ..messages.json import MAX_DEPTH, Json, decode

_strings: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_brackets: Final = re.compile(rb"[\[\]{}]")


def payload(event: Event) -> Json:
    """The payload of ``event``, decoded afresh.

    Raises:
        InvalidJson: it is not JSON.
        UnsupportedFormat: it is nested more than ``MAX_DEPTH`` levels deep.
    """
    raw = event.raw
    if len(raw) > 2 * MAX_DEPTH and nesting(raw) > MAX_DEPTH:
        raise UnsupportedFormat(
            f"event {event.seq}: its payload is nested more than {MAX_DEPTH} levels deep"
        )
    try:
        return decode(raw)
    except InvalidJson as error:
        raise InvalidJson(f"event {event.seq}: its payload is {error}") from error


def nesting(raw: bytes) -> int:
    """An upper bound of the levels of nesting of a JSON text; exact where it exceeds the limit."""
    opened = raw.count(b"{") + raw.count(b"[")
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
