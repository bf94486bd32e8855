"""Recalled text made harmless for a terminal: nothing in it moves a cursor or turns the reading.

Every character is replaced by exactly one, so that offsets stay right: control characters by their
pictures, direction marks and lone surrogates by U+FFFD.
"""

from __future__ import annotations

from typing import Final

_UNKNOWN: Final = "\N{REPLACEMENT CHARACTER}"

_BLOCK: Final[dict[int, str]] = {
    **{code: chr(0x2400 + code) for code in range(0x20)},
    0x7F: "\N{SYMBOL FOR DELETE}",
    **dict.fromkeys(range(0x80, 0xA0), _UNKNOWN),
    **dict.fromkeys((0x061C, 0x200E, 0x200F), _UNKNOWN),
    **dict.fromkeys(range(0x2028, 0x202F), _UNKNOWN),
    **dict.fromkeys(range(0x2066, 0x206A), _UNKNOWN),
    **dict.fromkeys(range(0xD800, 0xE000), _UNKNOWN),
    ord("\n"): "\n",
    ord("\t"): "\t",
}
_LINE: Final[dict[int, str]] = {
    **_BLOCK,
    **dict.fromkeys(map(ord, "\t\n\r\u2028\u2029"), " "),
}


def one_line(text: str) -> str:
    """The text as a single line of the same length."""
    return text.translate(_LINE)


def block(text: str) -> str:
    """The text with its own lines and tabs; a carriage return before a line feed is dropped."""
    return text.replace("\r\n", "\n").translate(_BLOCK)
