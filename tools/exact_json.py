"""The exact JSON of an event, indented for reading, and with its texts redacted where wanted.

Numbers, keys and escapes keep the spelling that they were stored with.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import msgspec

from ..messages.event import Event
from ..messages.json import decode, encode
from ..storage.records import render_plainly

_ESCAPES: Final = re.compile(
    rb"\\\\|\\u[dD][89abAB]..\\u[dD][c-fC-F]..|(\\u[dD][89a-fA-F]..|\\u[fF]{3}[dD])"
)
"""Escapes of a backslash, of a surrogate pair, and, captured, those that stand for no character."""

_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*+"', re.DOTALL)


def event_json(event: Event) -> str:
    """The whole event under the names of the log, two spaces a level.

    Raises:
        ValueError: it is no record that a store could hold.
    """
    line = render_plainly(event)
    try:
        return _indented(line)
    except msgspec.DecodeError:
        # The formatter refuses lone surrogates. They change places with an escape of their length.
        kept = iter([found[1] for found in _ESCAPES.finditer(line) if found[1]])
        text = _indented(_ESCAPES.sub(lambda found: b"\\ufffd" if found[1] else found[0], line))
        restored = _ESCAPES.sub(lambda found: next(kept) if found[1] else found[0], text.encode())
        return restored.decode()


def _indented(line: bytes) -> str:
    return msgspec.json.format(line, indent=2).decode(errors="replace")


def redacted_json(text: str, redact: Callable[[str], str]) -> str:
    """JSON text with ``redact`` applied to each string; what it leaves alone is not touched."""

    def replaced(found: re.Match[str]) -> str:
        value = decode(found[0])
        assert isinstance(value, str)
        shown = redact(value)
        return found[0] if shown == value else encode(shown).decode()

    return _STRING.sub(replaced, text)
