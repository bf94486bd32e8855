"""The white space of JavaScript, by which texts are trimmed and folded.

It differs from Python's: U+FEFF belongs to it, U+001C to U+001F and U+0085 do not.
"""

from __future__ import annotations

import re
from typing import Final

JS_WHITESPACE: Final = (
    "\t\n\v\f\r \u00a0\u1680"
    "\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)
"""Every white space character; none of them has a meaning inside a regular expression class."""

_runs = re.compile(f"[{JS_WHITESPACE}]+")


def trim(text: str) -> str:
    """``text`` without white space at either end."""
    return text.strip(JS_WHITESPACE)


def collapse(text: str) -> str:
    """``text`` trimmed, with every run of white space inside it turned into one space."""
    if text.isascii() and not _has_separators(text):
        # Here Python's white space is the same, and splitting is several times faster.
        return " ".join(text.split())
    return _runs.sub(" ", text.strip(JS_WHITESPACE))


def _has_separators(text: str) -> bool:
    """Whether there is any of what is white space to Python alone."""
    # Ten times faster than a regular expression.
    return "\x1c" in text or "\x1d" in text or "\x1e" in text or "\x1f" in text
