"""Session rows: what the file keeps of each session beside its documents.

What is written gathers until the transaction ends, or somebody asks for it, so that a transaction
over many sessions is a few statements (see ``insertion``).
"""

from __future__ import annotations

from collections.abc import Sequence

import apsw
from attrs import frozen

from ..messages.header import SessionHeader
from ..messages.records import SessionTitle
from .document_rows import Extent
from .index_values import encode_header, encode_title, integer, key, optional_key
from .insertion import Row, insert_rows


@frozen
class FileState:
    """The state of a log that the file's rows of a session stand for."""

    revision: str
    generation: int
    """When the rows last changed in a way that a search can see."""
    next_seq: int
    settled: bool
    """False for rows written while the session was live: after a restart they are built anew."""
    title: SessionTitle | None = None

    def columns(self) -> tuple[str, int, int, bool, bytes | None]:
        """The state as a session's row has it."""
        title = encode_title(self.title) if self.title is not None else None
        return self.revision, self.generation, self.next_seq, self.settled, title


class SessionRows:
    """The rows of sessions in one file, for its writer."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._db = connection
        self._sessions: dict[int, Row] = {}
        self._marks: dict[int, Row] = {}
        self._states: dict[int, Row] = {}
        self._stored_extents: dict[int, tuple[Extent, ...]] = {}
        """What the table has of the sessions of ``_extents``."""
        self._extents: dict[int, tuple[Extent, ...]] = {}

    def begin(self, no: int) -> None:
        """Know, without a look at the tables, that they hold nothing for a number."""
        self._stored_extents[no] = self._extents[no] = ()

    def insert(self, no: int, header: SessionHeader, state: FileState) -> None:
        """Make the rows of a number this session."""
        self._sessions[no] = (
            no,
            key(header.id),
            header.created_at,
            optional_key(header.cwd),
            optional_key(header.parent_session),
            encode_header(header),
            *state.columns(),
        )

    def update(self, no: int, state: FileState) -> None:
        """Let a session's row, of an earlier transaction, name another state of the same log."""
        assert no not in self._sessions
        self._db.execute(
            "UPDATE session SET revision = ?, generation = ?, next_seq = ?, settled = ?, title = ? "
            "WHERE no = ?",
            (*state.columns(), no),
        )

    def keep_mark(self, no: int, mark: bytes | None) -> None:
        """Write where the store continues a session, if that is known."""
        self._marks[no] = no, mark

    def keep_state(self, no: int, next_seq: int, state: bytes, mark: bytes | None) -> None:
        """Write the encoded fold of a session, from which an append can continue."""
        self._states[no] = no, next_seq, state, mark

    def remove(self, no: int) -> None:
        """Remove a session; where its documents stand is kept."""
        for gathered in (self._sessions, self._marks, self._states):
            gathered.pop(no, None)
        self._db.execute("DELETE FROM session WHERE no = ?", (no,))
        self._db.execute("DELETE FROM continuation WHERE session = ?", (no,))
        self._db.execute("DELETE FROM checkpoint WHERE session = ?", (no,))

    def extents(self, no: int) -> tuple[Extent, ...]:
        """Where the file keeps the documents of a session, in the order of seq."""
        gathered = self._extents.get(no)
        if gathered is not None:
            return gathered
        return tuple(
            Extent(integer(lo), integer(hi))
            for lo, hi in self._db.execute(
                "SELECT lo, hi FROM extent WHERE session = ? ORDER BY lo", (no,)
            )
        )

    def replace_extents(self, no: int, extents: Sequence[Extent]) -> None:
        """Record that the documents of a session stand there, and nowhere else."""
        if no not in self._extents:
            self._stored_extents[no] = self.extents(no)
        self._extents[no] = tuple(extents)

    def write_gathered(self) -> None:
        """Let the tables hold all that was written."""
        insert_rows(self._db, "INSERT INTO session", list(self._sessions.values()))
        insert_rows(self._db, "INSERT OR REPLACE INTO continuation", list(self._marks.values()))
        insert_rows(self._db, "INSERT OR REPLACE INTO checkpoint", list(self._states.values()))
        self._write_extents()
        self.forget_gathered()

    def _write_extents(self) -> None:
        gone, come = [], []
        for no, after in self._extents.items():
            before = self._stored_extents[no]
            kept = set(before).intersection(after)
            gone += [(no, extent.lo) for extent in before if extent not in kept]
            come += [(no, extent.lo, extent.hi) for extent in after if extent not in kept]
        self._db.executemany("DELETE FROM extent WHERE session = ? AND lo = ?", gone)
        insert_rows(self._db, "INSERT INTO extent", come)

    def forget_gathered(self) -> None:
        """Drop what is not in the tables yet, as a transaction that fails does."""
        self._sessions, self._marks, self._states = {}, {}, {}
        self._stored_extents, self._extents = {}, {}
