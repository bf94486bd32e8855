"""Documents as rows of the index: all of them, whatever the number that one statement takes."""

from __future__ import annotations

from collections.abc import Sequence

import apsw
import pytest
from service_world import append, session, store_of

from session_query.messages.config import MEMORY, IndexConfig, no_text
from session_query.storage.index import SearchIndex
from session_query.storage.log_slices import Piece, read_slices


class OpenIndex(SearchIndex):
    @property
    def rows(self) -> list[tuple[object, ...]]:
        return self._db.execute(
            "SELECT d.seq, d.len, b.text FROM doc AS d JOIN body AS b ON b.id = d.id ORDER BY d.id"
        ).fetchall()

    @property
    def ids(self) -> list[object]:
        return [row for (row,) in self._db.execute("SELECT id FROM doc ORDER BY id")]

    def statements(self, pieces: Sequence[Piece]) -> int:
        """How many statements it takes to write these."""
        taken: list[str] = []

        def count(_cursor: apsw.Cursor, statement: str, _bindings: object) -> bool:
            taken.append(statement)
            return True

        self._db.exec_trace = count
        self.write(pieces)
        self._db.exec_trace = None
        return len(taken)

    def found(self, word: str) -> list[object]:
        return [row for (row,) in self._db.execute("SELECT rowid FROM fts(?)", (word,))]


@pytest.mark.parametrize("documents", [1, 511, 512, 513, 1_100])
def test_every_document_has_its_row_however_many_are_written_at_once(documents: int) -> None:
    texts = [f"word{number}" for number in range(documents)]
    store = store_of(session("s", *texts))
    (snapshot,) = store.sweep().snapshots
    index = OpenIndex(IndexConfig(path=MEMORY), no_text)
    index.write([*read_slices(store, snapshot, None, no_text)])
    assert index.rows == [(seq, len(text), text) for seq, text in enumerate(texts)]
    assert [index.found(text) for text in texts] == [[row] for row in range(1, documents + 1)]
    index.close()


@pytest.mark.parametrize("sessions", [2, 16, 17, 70])
def test_every_document_of_many_sessions_has_its_row(sessions: int) -> None:
    ids = [f"s{number}" for number in range(sessions)]
    store = store_of(*(session(each, f"{each}x0") for each in ids))
    index = OpenIndex(IndexConfig(path=MEMORY), no_text)
    for words in ("first", "second", "third"):
        continuations = index.continuations(ids)
        index.write(
            [
                piece
                for snapshot in reversed(store.sweep().snapshots)
                for piece in read_slices(
                    store, snapshot, continuations.get(snapshot.header.id), no_text
                )
            ]
        )
        for each in ids:
            append(store, each, f"{each}x{words}")
    texts = [text for _, _, text in index.rows]
    assert sorted(map(str, texts)) == sorted(
        f"{each}x{words}" for each in ids for words in ("0", "first", "second")
    )
    assert [index.found(str(text)) for text in texts] == [[row] for row in index.ids]
    index.close()


def test_many_new_sessions_take_as_few_statements_as_one() -> None:
    taken = []
    for sessions in (1, 40):
        store = store_of(*(session(f"s{number}", "word") for number in range(sessions)))
        index = OpenIndex(IndexConfig(path=MEMORY), no_text)
        snapshots = store.sweep().snapshots
        taken.append(
            index.statements(
                [piece for each in snapshots for piece in read_slices(store, each, None, no_text)]
            )
        )
        assert len(index.found("word")) == sessions
        index.close()
    assert taken[1] == taken[0] < 20
