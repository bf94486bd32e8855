"""What stays of a result that is too long: its beginning, its end, and where the rest is."""

from __future__ import annotations

from typing import Final

from ..storage.spill_files import Spilled

_GAP: Final = "\n[...]\n"
"""Stands where the middle is missing."""
_BLANK_LINE: Final = "\n\n"


def shortened(content: bytes, limit: int, spilled: Spilled) -> str | None:
    """A preview and a notice of at most ``limit`` UTF-8 bytes, or nothing where none fits.

    ``content`` is UTF-8 and longer than ``limit``. What the notice leaves is divided evenly between
    its two ends, cut between characters. Where it leaves nothing there is the notice alone.
    """
    whole = len(content)
    room = limit - _size(_notice(whole, spilled)) - _size(_BLANK_LINE) - _size(_GAP)
    head = _beginning(content, (room + 1) // 2)
    tail = _end(content, room // 2)
    left_out = whole - _size(head) - _size(tail)
    notice = _notice(left_out, spilled)
    preview = f"{head}{_GAP}{tail}{_BLANK_LINE}" if head or tail else ""
    text = preview + notice
    return text if _size(text) <= limit else None


def _notice(left_out: int, spilled: Spilled) -> str:
    return f"({left_out} bytes left out; the whole result: {spilled.locator}; {spilled.hint})"


def _beginning(content: bytes, size: int) -> str:
    return content[: max(size, 0)].decode("utf-8", "ignore")


def _end(content: bytes, size: int) -> str:
    return content[len(content) - size :].decode("utf-8", "ignore") if size > 0 else ""


def _size(text: str) -> int:
    return len(text.encode())
