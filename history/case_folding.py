"""Simple case folding: texts that differ in case alone become one text of the same length.

Each code point is folded to exactly one other (the entries C and S of Unicode's CaseFolding), as a
regular expression with the flags ``iu`` compares them in JavaScript: the Kelvin sign is a k, ſ is
an s and ẞ is ß, but ß is not ss, and İ and ı are letters of their own. Python's ``casefold`` is the
full folding (ß is ss), and ``re.IGNORECASE`` takes İ and ı for i.
"""

from __future__ import annotations

from typing import Final

_NEWER: Final = {0xFB05: 0xFB06, 0x1FD3: 0x0390, 0x1FE3: 0x03B0}
"""Entries S for characters without a lower case of their own, since Unicode 15.1."""


class _Folding(dict[int, int]):
    """Foldings of code points, each found out when it is first met."""

    def __missing__(self, code: int) -> int:
        folded = self[code] = _NEWER.get(code) or _simple(chr(code))
        return folded


def _simple(character: str) -> int:
    for candidate in (character.casefold(), character.lower()):
        # A full folding to several characters has a simple one where the lower case is one.
        if len(candidate) == 1:
            return ord(candidate)
    return ord(character)


_folding: Final = _Folding()


def fold_case(text: str) -> str:
    """The text in its simple case folding."""
    return text.lower() if text.isascii() else text.translate(_folding)
