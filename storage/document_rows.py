"""Document rows: how documents stand in the tables of an index, and how they are changed there.

Ids are dense inside an extent and rise with seq, so the row of a seq is found by bisection. The
full-text table holds no text of its own; taking a row out of it needs the text it was given, which
stands in the body table.
"""

from __future__ import annotations

import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import apsw
from attrs import frozen

from ..history.documents import Document
from ..messages.config import Tokenizer
from ..messages.records import Surface
from .index_values import integer
from .insertion import insert_rows
from .tokens import indexed_form, storable

SURFACES: Final = (Surface.CURRENT, Surface.SHADOWED, Surface.LOG_ONLY)
"""Surfaces by the number that stands for them in a row."""

SURFACE_CODES: Final = {surface: code for code, surface in enumerate(SURFACES)}
CURRENT: Final = SURFACE_CODES[Surface.CURRENT]
SHADOWED: Final = SURFACE_CODES[Surface.SHADOWED]


_FEW_ROWS: Final = 16
"""Rows that are added sooner one by one than by a statement that looks up the id of each."""

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
    so that they go in by few statements, which hold no interpreter lock while they run. What is
    taken out of the full text gathers as well: FTS5 begins a segment whenever ids do not rise from
    one row to the next, and at each statement that adds several. So a transaction makes one of
    what goes and one of what comes, of however many sessions, as long as nothing is needed sooner.
    """

    def __init__(self, connection: apsw.Connection, prefix: str, tokenizer: Tokenizer) -> None:
        self._db = connection
        self._doc, self._body, self._fts = f"{prefix}doc", f"{prefix}body", f"{prefix}fts"
        self._tokenizer = tokenizer
        self._docs: list[_DocRow] = []
        self._texts: dict[int, str] = {}
        """By id, for each row of ``_docs``."""
        self._gone: list[tuple[int, str]] = []
        """Rows that the full text has still, with the forms that it was given."""

    def insert(
        self,
        session_no: int,
        ids: Iterable[int],
        documents: Sequence[Document],
        codes: Mapping[str, int],
    ) -> None:
        """Add documents under as many ids. ``codes`` are those of the documents' types."""
        for row_id, document in zip(ids, documents, strict=True):
            text = storable(document.text)
            self._texts[row_id] = text
            self._docs.append(
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
            )

    def write_gathered(self) -> None:
        """Let the tables hold every row that was inserted, and the full text no other."""
        docs, texts, gone = sorted(self._docs), self._texts, sorted(self._gone)
        self.forget_gathered()
        self._db.executemany(
            f"INSERT INTO {self._fts}({self._fts}, rowid, text) VALUES ('delete', ?, ?)", gone
        )
        insert_rows(self._db, f"INSERT INTO {self._doc}", docs)
        ids = [doc[0] for doc in docs]
        bodies = [texts[row_id] for row_id in ids]
        self._insert_texts(self._body, ids, bodies)
        self._insert_texts(self._fts, ids, [self._form(text) for text in bodies])

    def forget_gathered(self) -> None:
        """Drop what is not in the tables yet, as a transaction that fails does."""
        self._docs, self._texts, self._gone = [], {}, []

    def _write_those_of(self, extents: Iterable[Extent]) -> None:
        """Let the tables hold every row of these extents."""
        # What has gathered of an extent is its end.
        if any(extent.hi - 1 in self._texts for extent in extents):
            self.write_gathered()

    def _insert_texts(self, table: str, ids: Sequence[int], texts: Sequence[str]) -> None:
        """Add the texts of rising ids. The rows of ``carray`` are numbered from 1."""
        if not ids:
            return
        insert = f"INSERT INTO {table}(rowid, text)"
        if ids[-1] - ids[0] == len(ids) - 1:
            self._db.execute(
                f"{insert} SELECT ? + rowid, value FROM carray(?)",
                (ids[0] - 1, apsw.carray(tuple(texts))),
            )
        elif len(ids) <= _FEW_ROWS:
            self._db.executemany(f"{insert} VALUES (?, ?)", zip(ids, texts, strict=True))
        else:
            self._db.execute(
                "WITH place(number, id) AS MATERIALIZED (SELECT rowid, value FROM carray(?)) "
                f"{insert} SELECT place.id, value FROM carray(?) AS text "
                "CROSS JOIN place ON place.number = text.rowid",
                (apsw.carray(array.array("q", ids)), apsw.carray(tuple(texts))),
            )

    def _form(self, text: str) -> str:
        return indexed_form(text, self._tokenizer)

    def delete(self, extents: Iterable[Extent]) -> None:
        """Remove the rows of whole extents."""
        extents = tuple(extents)
        self._write_those_of(extents)
        for extent in extents:
            span = (extent.lo, extent.hi)
            texts = self._db.execute(
                f"SELECT id, text FROM {self._body} WHERE id >= ? AND id < ? ORDER BY id", span
            ).fetchall()
            self._gone += [(integer(row), self._form(str(text))) for row, text in texts]
            self._db.execute(f"DELETE FROM {self._doc} WHERE id >= ? AND id < ?", span)
            self._db.execute(f"DELETE FROM {self._body} WHERE id >= ? AND id < ?", span)

    def first_from(self, extents: Sequence[Extent], seq: int) -> int | None:
        """The id of the first row whose seq is at least ``seq``, or ``None``."""
        self._write_those_of(extents)
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
        self._write_those_of(extents)
        for extent in extents:
            for *columns, text in self._db.execute(
                "SELECT d.id, d.session, d.seq, d.time, d.len, d.type, d.own, d.surface, b.text "
                f"FROM {self._doc} AS d JOIN {self._body} AS b ON b.id = d.id "
                "WHERE d.id >= ? AND d.id < ?",
                (extent.lo, extent.hi),
            ):
                row_id, session_no, seq, time, length, code, own, surface = map(integer, columns)
                settled = _settled(seq, surface, shadowed)
                target._docs.append((row_id, session_no, seq, time, length, code, settled, own))
                target._texts[row_id] = str(text)
        self.delete(extents)

    def _seq(self, row_id: int) -> int:
        return integer(self._db.execute(f"SELECT seq FROM {self._doc} WHERE id = ?", (row_id,)).get)


def _settled(seq: int, surface: int, shadowed: set[int]) -> int:
    if surface not in (CURRENT, SHADOWED):
        return surface
    return SHADOWED if seq in shadowed else CURRENT
