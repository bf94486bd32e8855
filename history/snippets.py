"""Snippets: a bounded excerpt of a text around its first match (search-index §11).

The rule is stated over the whole text with its white space folded. Only a window of the text is
folded here: what lies further than the snippet's length from the match cannot show.
"""

from __future__ import annotations

from typing import Final

from attrs import frozen

from .whitespace import JS_WHITESPACE, collapse

ELLIPSIS: Final = "…"


@frozen
class Excerpt:
    """A snippet and where the match stands in it."""

    text: str
    match: tuple[int, int] | None
    """Code point offsets, or ``None`` where the match is not visible."""


def excerpt(text: str, match: tuple[int, int] | None, max_chars: int) -> Excerpt:
    """Cut at most ``max_chars`` code points around ``match`` (offsets in ``text``).

    White space runs become one space; a cut end shows an ellipsis. Without a match the excerpt
    starts at the beginning.
    """
    start, end = match or (0, 0)
    before, more_before = _folded_before(text, start, max_chars + 1)
    inside = _folded_after(text[start:end], 0, max_chars)
    after = _folded_after(text, start, 2 * max_chars + 2)
    folded = before + after if before else after.lstrip(" ")
    at = len(before)
    cut = _cut(folded, at, max_chars, more_before)
    shown = cut.lead + folded[cut.start : cut.end] + cut.trail
    last = min(at + len(inside), cut.end)
    if match is None or not cut.start <= at < last:
        return Excerpt(shown, None)
    offset = len(cut.lead) - cut.start
    return Excerpt(shown, (at + offset, last + offset))


@frozen
class _Cut:
    """Which part of a folded text is shown, and what stands for the rest."""

    lead: str
    start: int
    end: int
    trail: str


def _cut(folded: str, at: int, max_chars: int, more_before: bool) -> _Cut:
    length = len(folded)
    if length <= max_chars and not more_before:
        return _Cut("", 0, length, "")
    if max_chars == 1:
        return _Cut(ELLIPSIS, length, length, "")
    at = min(at, length - 1)
    start = max(0, at - max_chars // 3)
    lead = ELLIPSIS if start > 0 else ""
    trail = ELLIPSIS
    content = max_chars - len(lead) - len(trail)
    if content < 1:
        start, trail, content = at, "", max_chars - len(lead)
    elif at >= start + content:
        start = at - content + 1
    if start + content >= length:
        trail, content = "", max_chars - len(lead)
        start = max(0, length - content)
    return _Cut(lead, start, min(length, start + content), trail)


def _folded_before(text: str, end: int, wanted: int) -> tuple[str, bool]:
    """What stands before ``end``, folded: at least ``wanted`` code points or all of it.

    The second value tells whether more text precedes it.
    """
    width = 2 * wanted + 64
    while True:
        begin = max(0, end - width)
        window = text[begin:end]
        folded = collapse(window)
        if folded and window[-1] in JS_WHITESPACE:
            folded += " "
        if begin == 0:
            return folded, False
        if len(folded) >= wanted:
            return folded, True
        width *= 8


def _folded_after(text: str, begin: int, wanted: int) -> str:
    """What stands from ``begin`` on, folded: at least ``wanted`` code points or all of it."""
    width = 2 * wanted + 64
    while True:
        end = begin + width
        folded = collapse(text[begin:end])
        if end >= len(text) or len(folded) >= wanted:
            return folded
        width *= 8
