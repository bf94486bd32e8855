"""Bare limits: the same work with nothing around it.

Each uses the tables, files or bytes that the library uses, through the shortest way there is.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar

import apsw
import msgspec
from attrs import frozen
from corpus import Corpus
from measure import MS

from session_query.history.documents import Document
from session_query.messages.config import IndexConfig, Tokenizer
from session_query.storage.document_rows import SURFACE_CODES
from session_query.storage.index_file import open_index_file
from session_query.storage.tokens import indexed_form

T = TypeVar("T")

_BATCH: Final = 20_000
"""Documents of one transaction, which is about the best there is for throughput."""

_DOC: Final = "INSERT INTO doc VALUES (?,?,?,?,?,?,?,?)"
_BODY: Final = "INSERT INTO body VALUES (?,?)"
_FTS: Final = "INSERT INTO fts(rowid, text) VALUES (?,?)"


class Rows:
    """Documents as the rows of the three tables, ready to be bound."""

    def __init__(self, documents: Iterable[tuple[int, Document]], first_id: int = 1) -> None:
        self.docs: list[tuple[int, ...]] = []
        self.bodies: list[tuple[int, str]] = []
        self.forms: list[tuple[int, str]] = []
        for row, (session, one) in enumerate(documents, first_id):
            surface = SURFACE_CODES[one.surface]
            self.docs.append((row, session, one.seq, one.time, len(one.text), 0, surface, 0))
            self.bodies.append((row, one.text))
            self.forms.append((row, indexed_form(one.text, Tokenizer.CJK)))

    def insert(self, db: apsw.Connection) -> None:
        """Insert all rows."""
        db.executemany(_DOC, self.docs)
        db.executemany(_BODY, self.bodies)
        db.executemany(_FTS, self.forms)


@frozen
class Inserted:
    """What inserting all documents of a corpus, and nothing else, took and left."""

    seconds: float
    file_bytes: int
    text_bytes: int


def raw_insert(corpus: Corpus, path: Path) -> Inserted:
    """Insert the documents, prepared beforehand, and time that alone."""
    index = open_index_file(IndexConfig(path=str(path)))
    db, spent, row, text = index.connection, 0.0, 1, 0
    documents = (
        (number, one) for number in range(corpus.sessions) for one in corpus.documents_of(number)
    )
    while batch := list(islice(documents, _BATCH)):
        rows = Rows(batch, row)
        row += len(batch)
        text += sum(len(one.text.encode()) for _, one in batch)
        start = time.perf_counter()
        with db:
            rows.insert(db)
        spent += time.perf_counter() - start
    index.close()
    return Inserted(spent, path.stat().st_size, text)


def bare_sweep(root: Path) -> int:
    """Look at every log of a store with ``scandir`` and ``stat`` alone."""
    logs = 0
    for project in _entries(root):
        for session in _entries(project.path):
            for log in _entries(session.path):
                log.stat()
                logs += 1
    return logs


def _entries(path: str | Path) -> Iterator[os.DirEntry[str]]:
    with os.scandir(path) as found:
        yield from found


def decode_lines(paths: Sequence[Path]) -> float:
    """Milliseconds to read these logs and decode each of their lines."""
    decoder = msgspec.json.Decoder()
    start = time.perf_counter()
    for path in paths:
        decoder.decode_lines(path.read_bytes())
    return (time.perf_counter() - start) * MS


def count_matches(db: apsw.Connection, word: str) -> int:
    """How many documents hold a word."""
    found: object = db.execute("SELECT count(*) FROM fts WHERE fts MATCH ?", (f'"{word}"',)).get
    assert isinstance(found, int)
    return found


def matching_ids(db: apsw.Connection, word: str, wanted: int) -> list[int]:
    """Ids of some documents that hold a word."""
    found = db.execute("SELECT rowid FROM fts WHERE fts MATCH ? LIMIT ?", (f'"{word}"', wanted))
    return [row for (row,) in found if isinstance(row, int)]


def hydrate(db: apsw.Connection, ids: Sequence[int]) -> None:
    """Read what the hits of one page are made from, one document after the other."""
    for row in ids:
        db.execute(
            "SELECT d.seq, d.time, d.type, d.surface, b.text, s.header FROM doc AS d "
            "JOIN body AS b ON b.id = d.id JOIN session AS s ON s.no = d.session WHERE d.id = ?",
            (row,),
        ).fetchone()


def titles(db: apsw.Connection, session_ids: Sequence[str]) -> None:
    """Read the title of each session by id."""
    for session_id in session_ids:
        db.execute("SELECT title FROM session WHERE id = ?", (session_id.encode(),)).fetchone()
