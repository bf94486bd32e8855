"""Tokens: what the index keeps of a text, and how a query is cut the same way.

The index stores ``indexed_form`` of each text, tokenized by FTS5's ``unicode61``; a query goes
through the same two steps, so that it is always a phrase of whole tokens.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Final

import apsw

from ..history.long_payload import MAX_INDEXED_CHARS
from ..messages.config import Tokenizer

TOKENIZER_VERSION: Final = 1
"""Moves when ``indexed_form`` changes, so that older index files are rebuilt."""

_UNSTORABLE = re.compile("[\0\ufdd0\ufdd1\ud800-\udfff]")

# Scripts written without spaces between words, and the signs that occur inside their words.
_CJK_RANGES = (
    "\u1100-\u11ff\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303c"
    "\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f\u3131-\u318e"
    "\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97c\uac00-\ud7a3"
    "\ud7b0-\ud7fb\uf900-\ufaff\uff66-\uffdc\U00016fe0-\U00018cff\U0001b000-\U0001b16f"
    "\U00020000-\U000323af"
)
_CJK_RUN = re.compile(f"([{_CJK_RANGES}]+)")
_NORMAL_PIECE = re.compile(f"[{_CJK_RANGES}]|[^{_CJK_RANGES}]+")
# None of these characters combines or changes places with what stands before it.
_PIECE_STARTS = (
    "\0-\u02ff\u0370-\u0482\u2000-\u20cf\u2100-\u2cee\u3000-\u3029\u3030-\u3098\u309b-\ua66e"
    "\uac00-\ud7a3\uff00-\uffff\U0001f000-\U0001ffff"
)
_COMPOSED_PIECE = re.compile(f"(?s:.)[^{_PIECE_STARTS}]*")

# Letters that are a token each in the form for CJK, and that nothing makes another letter of; and
# signs that are part of no token.
_PLAIN_CJK = "\u3041-\u3096\u30a1-\u30fa\u30fc\u3400-\u4dbf\u4e00-\u9fff"
_PLAIN_SIGNS = "\u2010-\u2027\u2030-\u205e\u3001-\u3003\u3008-\u3011\uff01-\uff0f\uff1a-\uff20"
_PLAIN_SIGN = re.compile(f"[{_PLAIN_SIGNS}]")
_UNUSUAL = re.compile(f"[^\0-\x7f{_PLAIN_CJK}{_PLAIN_SIGNS}]")

_LETTER = re.compile("[0-9a-z]")
_GAPS = re.compile("[\0-/:-`{-\x7f]+")
"""What of ASCII, in small letters, is part of no token."""


def storable(text: str) -> str:
    """The text as the index keeps it: bounded, and free of what SQLite or a snippet cannot hold.

    Each code point that cannot be stored becomes U+FFFD, so that offsets stay.
    """
    text = text[:MAX_INDEXED_CHARS]
    if text.isascii() and "\0" not in text:
        return text
    return _UNSTORABLE.sub("\ufffd", text)


def indexed_form(text: str, tokenizer: Tokenizer) -> str:
    """What FTS5 is given for a storable text."""
    if tokenizer is Tokenizer.UNICODE61 or text.isascii():
        return text
    # Each of their characters becomes r" \1 ", without a call of Python for each.
    pieces = _CJK_RUN.split(unicodedata.normalize("NFC", text))
    pieces[1::2] = map("  ".join, pieces[1::2])
    return " ".join(pieces)


def tokenizer_identity(tokenizer: Tokenizer) -> str:
    """What an index file must have been built with to be used; any difference rebuilds it."""
    return f"{tokenizer.value}/{TOKENIZER_VERSION}/unicode-{unicodedata.unidata_version}"


def phrase_tokens(connection: apsw.Connection, query: str, tokenizer: Tokenizer) -> list[str]:
    """The folded tokens of a query; empty where it holds nothing that is indexed."""
    cut = connection.fts5_tokenizer("unicode61", [])
    form = indexed_form(query, tokenizer).encode()
    return cut(  # type: ignore[return-value]  # without offsets and colocated tokens: plain strings
        form, apsw.FTS5_TOKENIZE_QUERY, None, include_offsets=False, include_colocated=False
    )


def match_expression(query: str, tokenizer: Tokenizer) -> str:
    """The FTS5 expression of a query: one literal phrase, whatever it holds."""
    quoted = indexed_form(query, tokenizer).replace('"', '""')
    return f'"{quoted}"'


def overlaps_itself(tokens: list[str]) -> bool:
    """Whether two occurrences of the phrase can share tokens, as ``a a`` does in ``a a a``."""
    return any(tokens[shift:] == tokens[:-shift] for shift in range(1, len(tokens)))


class MatchFinder:
    """Finds where a phrase first stands in a text, in code points of the text itself."""

    def __init__(
        self, query: str, tokens: list[str], tokenizer: Tokenizer, probe: Probe | None = None
    ) -> None:
        """``probe`` is one to share, since making one costs more than most pages."""
        self._tokenizer = tokenizer
        self._expression = match_expression(query, tokenizer)
        self._usual = _usual_search(tokens)
        self._probe = probe or Probe()

    def find(self, text: str) -> tuple[int, int] | None:
        """Start and end of the first span of matches in a storable text, or ``None``."""
        if self._usual is not None:
            if text.isascii():
                return self._usual(text)
            if self._tokenizer is Tokenizer.CJK and _UNUSUAL.search(text) is None:
                return self._usual(_PLAIN_SIGN.sub(" ", text))
        if self._tokenizer is Tokenizer.UNICODE61:
            return self._highlighted(text)
        return self._find_mapped(text)

    def _find_mapped(self, text: str) -> tuple[int, int] | None:
        found = self._highlighted(indexed_form(text, self._tokenizer))
        return _origin(text, *found) if found else None

    def _highlighted(self, form: str) -> tuple[int, int] | None:
        return self._probe.first_span(form, self._expression)


class Probe:
    """A table in memory for one text at a time, by which FTS5 itself says where a phrase stands."""

    def __init__(self) -> None:
        self._connection: apsw.Connection | None = None

    def first_span(self, form: str, expression: str) -> tuple[int, int] | None:
        """Start and end of what FTS5 would highlight first in an indexed form, or ``None``."""
        if self._connection is None:
            self._connection = apsw.Connection(":memory:")
            self._connection.execute(
                "CREATE VIRTUAL TABLE probe USING fts5(text, tokenize='unicode61')"
            )
        db = self._connection
        db.execute("INSERT INTO probe(rowid, text) VALUES (1, ?)", (form,))
        try:
            marked = db.execute(
                "SELECT highlight(probe, 0, '\ufdd0', '\ufdd1') FROM probe WHERE probe MATCH ?",
                (expression,),
            ).get
        finally:
            db.execute("DELETE FROM probe")
        if not isinstance(marked, str):
            return None
        start = marked.find("\ufdd0")
        return (start, marked.find("\ufdd1") - 1) if start >= 0 else None


def _usual_search(tokens: list[str]) -> Callable[[str], tuple[int, int] | None] | None:
    """A search for a phrase in texts that hold ASCII and plain CJK letters alone.

    ``None`` where the phrase may overlap itself: its occurrences would have to be joined.
    """
    if overlaps_itself(tokens):
        return None
    if not tokens or any(_UNUSUAL.search(token) for token in tokens):
        return lambda _text: None
    first, *others = tokens

    def search(text: str) -> tuple[int, int] | None:
        folded = text.lower()
        at = folded.find(first)
        while at >= 0:
            end = _end_of_phrase(folded, at, first, others)
            if end is not None:
                return at, end
            at = folded.find(first, at + 1)
        return None

    return search


def _end_of_phrase(folded: str, at: int, first: str, others: Sequence[str]) -> int | None:
    """Where a phrase ends whose first token may stand at a place, or ``None``.

    Tokens of ASCII end where something else begins, while each CJK letter is a token.
    """
    if at and first.isascii() and _LETTER.match(folded, at - 1):
        return None
    end, before = at + len(first), first
    for token in others:
        gap = _GAPS.match(folded, end)
        begin = gap.end() if gap else end
        if begin == end and before.isascii() and token.isascii():
            return None
        if not folded.startswith(token, begin):
            return None
        end, before = begin + len(token), token
    return None if before.isascii() and _LETTER.match(folded, end) else end


def _origin(text: str, start: int, end: int) -> tuple[int, int]:
    """The range of ``text`` that became the range ``start`` to ``end`` of its ``cjk`` form.

    Exact up to the pieces that normalization or spacing made longer or shorter.
    """
    pieces = _NORMAL_PIECE if unicodedata.is_normalized("NFC", text) else _COMPOSED_PIECE
    position, first = 0, 0
    for piece in pieces.finditer(text):
        begin, stop = piece.span()
        length = len(indexed_form(piece.group(), Tokenizer.CJK))
        exact = length == stop - begin
        if position <= start:
            first = begin + start - position if exact else begin
        position += length
        if position >= end:
            return first, stop - (position - end) if exact else stop
    return first, len(text)
