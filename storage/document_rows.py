"""Document rows: how documents stand in the tables of an index, and how they are changed there.

Ids are dense inside an extent and rise with seq, so the row of a seq is found by bisection. The
full-text table holds no text of its own; taking a row out of it needs the text it was given, which
stands in the body table.
"""

from __future__ import annotations

import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, TypeAlias

import apsw
from attrs import frozen

from ..history.documents import Document
from ..messages.config import Tokenizer
from ..messages.records import Surface
from .index_values import integer
from .tokens import indexed_form, storable

SURFACES: Final = (Surface.CURRENT, Surface.SHADOWED, Surface.LOG_ONLY)
"""Surfaces by the number that stands for them in a row."""

SURFACE_CODES: Final = {surface: code for code, surface in enumerate(SURFACES)}
CURRENT: Final = SURFACE_CODES[Surface.CURRENT]
SHADOWED: Final = SURFACE_CODES[Surface.SHADOWED]


_STATEMENT_ROWS: Final = 64
"""Document rows of one statement; each statement lets go of the interpreter lock and waits for it.
"""

_DocRow: TypeAlias = tuple[int, int, int, int, int, int, int, int]


@frozen
class Extent:
    """Ids ``lo`` to ``hi`` (exclusive), all of them rows of one session, in the order of seq."""

    lo: int
    hi: int


def joined(extents: Iterable[Extent], ids: range) -> tuple[Extent, ...]:
    """The extents with a run of newly used ids behind them."""
    known = list(extents)
    if not ids:
        return tuple(known)
    if known and known[-1].hi == ids.start:
        known[-1] = Extent(known[-1].lo, ids.stop)
    else:
        known.append(Extent(ids.start, ids.stop))
    return tuple(known)


def divided(
    extents: Iterable[Extent], at: int | None
) -> tuple[tuple[Extent, ...], tuple[Extent, ...]]:
    """The extents before and from id ``at``; all of them before where it is ``None``."""
    before: list[Extent] = []
    after: list[Extent] = []
    for extent in extents:
        if after or (at is not None and at <= extent.lo):
            after.append(extent)
        elif at is not None and at < extent.hi:
            before.append(Extent(extent.lo, at))
            after.append(Extent(at, extent.hi))
        else:
            before.append(extent)
    return tuple(before), tuple(after)


class DocumentRows:
    """The document tables of one schema of a connection: the file's, or the recent ones.

    Inserted rows gather until something needs them in the tables or ``write_gathered`` is called,
    so that they go in by few statements, which hold no interpreter lock while they run.
    """

    def __init__(self, connection: apsw.Connection, prefix: str, tokenizer: Tokenizer) -> None:
        self._db = connection
        self._doc, self._body, self._fts = f"{prefix}doc", f"{prefix}body", f"{prefix}fts"
        self._tokenizer = tokenizer
        self._docs: list[_DocRow] = []
        self._texts: list[str] = []

    def insert(
        self,
        session_no: int,
        ids: Iterable[int],
        documents: Sequence[Document],
        codes: Mapping[str, int],
    ) -> None:
        """Add documents under as many ids; cheapest where these rise from call to call.

        ``codes`` are those of the documents' types.
        """
        texts = [storable(document.text) for document in documents]
        self._docs += [
            (
                row_id,
                session_no,
                document.seq,
                document.time,
                len(text),
                codes[document.type],
                SURFACE_CODES[document.surface],
                document.own,
            )
            for row_id, document, text in zip(ids, documents, texts, strict=True)
        ]
        self._texts += texts

    def write_gathered(self) -> None:
        """Let the tables hold every row that was inserted."""
        docs, texts = self._docs, self._texts
        self.forget_gathered()
        self._insert_docs(docs)
        for start, stop in _runs([doc[0] for doc in docs]):
            self._insert_texts(docs[start][0], texts[start:stop])

    def forget_gathered(self) -> None:
        """Drop the rows that are not in the tables yet, as a transaction that fails does."""
        self._docs, self._texts = [], []

    def _insert_docs(self, docs: Sequence[tuple[apsw.SQLiteValue, ...]]) -> None:
        row = "(?,?,?,?,?,?,?,?)"
        single = len(docs) - len(docs) % _STATEMENT_ROWS
        several = (
            tuple(chain.from_iterable(docs[start : start + _STATEMENT_ROWS]))
            for start in range(0, single, _STATEMENT_ROWS)
        )
        rows = ",".join([row] * _STATEMENT_ROWS)
        self._db.executemany(f"INSERT INTO {self._doc} VALUES {rows}", several)
        self._db.executemany(f"INSERT INTO {self._doc} VALUES {row}", docs[single:])

    def _insert_texts(self, first_id: int, texts: Sequence[str]) -> None:
        """Add the texts of a run of ids. The rows of ``carray`` are numbered from 1."""
        for table, column in ((self._body, tuple(texts)), (self._fts, self._forms(texts))):
            self._db.execute(
                f"INSERT INTO {table}(rowid, text) SELECT ? + rowid, value FROM carray(?)",
                (first_id - 1, apsw.carray(column)),
            )

    def _forms(self, texts: Iterable[str]) -> tuple[str, ...]:
        return tuple(indexed_form(text, self._tokenizer) for text in texts)

    def delete(self, extents: Iterable[Extent]) -> None:
        """Remove the rows of whole extents."""
        self.write_gathered()
        for extent in extents:
            span = (extent.lo, extent.hi)
            texts = self._db.execute(
                f"SELECT id, text FROM {self._body} WHERE id >= ? AND id < ? ORDER BY id", span
            ).fetchall()
            self._db.executemany(
                f"INSERT INTO {self._fts}({self._fts}, rowid, text) VALUES ('delete', ?, ?)",
                [(row, indexed_form(str(text), self._tokenizer)) for row, text in texts],
            )
            self._db.execute(f"DELETE FROM {self._doc} WHERE id >= ? AND id < ?", span)
            self._db.execute(f"DELETE FROM {self._body} WHERE id >= ? AND id < ?", span)

    def first_from(self, extents: Sequence[Extent], seq: int) -> int | None:
        """The id of the first row whose seq is at least ``seq``, or ``None``."""
        self.write_gathered()
        for extent in extents:
            if self._seq(extent.hi - 1) >= seq:
                lo, hi = extent.lo, extent.hi - 1
                while lo < hi:
                    middle = (lo + hi) // 2
                    if self._seq(middle) >= seq:
                        hi = middle
                    else:
                        lo = middle + 1
                return lo
        return None

    def shade(self, extents: Sequence[Extent], seqs: Sequence[int]) -> None:
        """Mark the rows of these seqs, as far as there are any, as shadowed."""
        if not seqs:
            return
        first = self.first_from(extents, min(seqs))
        if first is None:
            return
        _, rest = divided(extents, first)
        stop = self.first_from(rest, max(seqs) + 1)
        wanted = apsw.carray(array.array("q", seqs))
        for extent in divided(rest, stop)[0]:
            self._db.execute(
                f"UPDATE {self._doc} SET surface = {SHADOWED} WHERE id >= ? AND id < ? "
                "AND seq IN (SELECT value FROM carray(?))",
                (extent.lo, extent.hi, wanted),
            )

    def move_to(self, target: DocumentRows, extents: Iterable[Extent], shadowed: set[int]) -> None:
        """Move the rows of whole extents into another schema, ids kept.

        Rows whose seq is in ``shadowed`` arrive shadowed, all other surface rows current.
        """
        extents = tuple(extents)
        self.write_gathered()
        target.write_gathered()
        for extent in extents:
            span = (extent.lo, extent.hi)
            rows = self._db.execute(
                f"SELECT id, session, seq, time, len, type, surface, own FROM {self._doc} "
                "WHERE id >= ? AND id < ? ORDER BY id",
                span,
            ).fetchall()
            settled = [
                (*row[:6], _settled(integer(row[2]), integer(row[6]), shadowed), row[7])
                for row in rows
            ]
            texts = self._db.execute(
                f"SELECT text FROM {self._body} WHERE id >= ? AND id < ? ORDER BY id", span
            ).fetchall()
            target._insert_docs(settled)
            target._insert_texts(extent.lo, [str(text) for (text,) in texts])
        self.delete(extents)

    def _seq(self, row_id: int) -> int:
        return integer(self._db.execute(f"SELECT seq FROM {self._doc} WHERE id = ?", (row_id,)).get)


def _runs(ids: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The places at which runs of consecutive ids begin and end."""
    start = 0
    for stop in range(1, len(ids) + 1):
        if stop == len(ids) or ids[stop] != ids[stop - 1] + 1:
            yield start, stop
            start = stop


def _settled(seq: int, surface: int, shadowed: set[int]) -> int:
    if surface not in (CURRENT, SHADOWED):
        return surface
    return SHADOWED if seq in shadowed else CURRENT
