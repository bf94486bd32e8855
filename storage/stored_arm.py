"""The stored arm of the index: what it keeps of the sessions of the store."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from attrs import define, evolve, frozen

from ..history.projection import SessionProjection
from .contract import Snapshot
from .document_rows import Extent, divided
from .index_tables import IndexTables, Transaction
from .index_values import blob, decode_skipped, encode_skipped, integer, key, text, text_of
from .log_slices import (
    Checkpoint,
    Continuation,
    Gone,
    Piece,
    SessionSlice,
    Unreadable,
    closing_documents,
)
from .session_rows import FileState

WARM_PROJECTIONS: Final = 64
"""Stored sessions whose fold stays in memory for the next append."""

WARM_NODES: Final = 200_000
"""Surface nodes that these folds may have together; the newest fold stays in any case."""

_STATE_LAG: Final = 64
"""Fewest events after which the stored state of a fold is written anew."""


@define(eq=False)
class StoredEntry:
    """What the writer remembers of one session in the file."""

    no: int
    state: FileState
    provisional: bool = False
    """Whether a further change of the log might not show in its revision."""


@frozen
class _Warm:
    """A fold that stays in memory for the next append."""

    projection: SessionProjection
    mark: bytes | None
    """Where the store continues, as far as this process wrote it."""


@define(eq=False)
class _Build:
    """A session whose first slices are written and whose last is not."""

    no: int


class StoredArm:
    """Stored sessions of one index, for its writer."""

    def __init__(self, tables: IndexTables) -> None:
        self._tables = tables
        self.entries: dict[str, StoredEntry] = {}
        self.unreadable: dict[str, Unreadable] = {}
        """Sessions that are left out, by id, with the revision that was found unreadable."""
        self.purged = {blob(digest) for (digest,) in tables.db.execute("SELECT digest FROM purged")}
        """Digests of the ids that are kept out; an id itself would be a trace of its session."""
        self._builds: dict[str, _Build] = {}
        self._warm: dict[int, _Warm] = {}
        for no, raw_id, revision, generation, next_seq, settled in tables.db.execute(
            "SELECT no, id, revision, generation, next_seq, settled FROM session ORDER BY no"
        ):
            state = FileState(text(revision), integer(generation), integer(next_seq), bool(settled))
            self.entries[text_of(blob(raw_id))] = StoredEntry(integer(no), state)
        for raw_id, revision, skipped in tables.db.execute(
            "SELECT id, revision, skipped FROM skipped ORDER BY id"
        ):
            self.unreadable[text_of(blob(raw_id))] = Unreadable(
                decode_skipped(blob(skipped)), text(revision)
            )

    @property
    def building(self) -> frozenset[int]:
        """Numbers whose rows are not visible yet and are wanted all the same."""
        return frozenset(build.no for build in self._builds.values())

    def abandon_builds(self) -> None:
        """Give up what an earlier pass began to build; its rows are reclaimed later."""
        self._builds.clear()

    def distrust(self) -> None:
        """Build every session anew: revisions of one store say nothing of another's logs."""
        for entry in self.entries.values():
            entry.state = evolve(entry.state, settled=False)
        for session_id, unreadable in self.unreadable.items():
            self.unreadable[session_id] = evolve(unreadable, revision="")

    def is_current(self, snapshot: Snapshot) -> bool:
        """Whether the index holds just this observation of a session."""
        entry = self.entries.get(snapshot.header.id)
        if entry is not None:
            state = entry.state
            return state.settled and not entry.provisional and state.revision == snapshot.revision
        unreadable = self.unreadable.get(snapshot.header.id)
        return unreadable is not None and unreadable.revision == snapshot.revision

    def continuation(self, session_id: str) -> Continuation | None:
        """Where an append to a session continues, or ``None`` where it must be built anew."""
        entry = self.entries.get(session_id)
        if entry is None:
            return None
        mark = self._tables.db.execute(
            "SELECT mark FROM continuation WHERE session = ?", (entry.no,)
        ).get
        checkpoint = self.checkpoint(session_id)
        if checkpoint is None or mark is None:
            return None
        return Continuation(blob(mark), entry.state.next_seq, checkpoint)

    def checkpoint(self, session_id: str) -> Checkpoint | None:
        """The newest fold of a session that was written; ``None`` where its rows are unsettled."""
        entry = self.entries.get(session_id)
        if entry is None or not entry.state.settled:
            return None
        found = self._tables.db.execute(
            "SELECT seq, state, mark FROM checkpoint WHERE session = ?", (entry.no,)
        ).fetchone()
        if found is None:
            return None
        seq, state, mark = found
        return Checkpoint(integer(seq), blob(state), None if mark is None else blob(mark))

    def take_continuation(self, session_id: str) -> Continuation | None:
        """Where an append continues with a fold in memory, which then belongs to the caller."""
        entry = self.entries.get(session_id)
        if entry is None or not entry.state.settled:
            return None
        warm = self._warm.get(entry.no)
        if warm is None or warm.mark is None:
            return None
        self._warm.pop(entry.no, None)
        return Continuation(warm.mark, entry.state.next_seq, warm.projection)

    def take_warm(self, session_id: str) -> SessionProjection | None:
        """The fold of a session where it is still in memory; it then belongs to the caller."""
        entry = self.entries.get(session_id)
        warm = self._warm.pop(entry.no, None) if entry is not None else None
        return warm.projection if warm is not None else None

    def write(self, tx: Transaction, pieces: Sequence[Piece]) -> None:
        """Write slices; at most one a session that completes it."""
        try:
            for piece in pieces:
                if isinstance(piece, Unreadable):
                    self._leave_out(tx, piece)
                elif isinstance(piece, Gone):
                    self._builds.pop(piece.session_id, None)
                    self.forget(tx, piece.session_id)
                elif piece.begins or piece.snapshot.header.id in self._builds:
                    self._build(tx, piece)
                else:
                    self._append(tx, piece)
        except BaseException:
            # What was built so far is void; the dead numbers are reclaimed later.
            self._builds.clear()
            raise
        tx.after.append(self.cool_down)

    def forget(self, tx: Transaction, session_id: str) -> None:
        """Remove a session that is stored no longer."""
        self._readmit(tx, session_id)
        tx.visible = tx.visible or session_id in self.entries
        self.bury(tx, session_id)

    def is_purged(self, session_id: str) -> bool:
        """Whether a session is kept out of the index."""
        return bool(self.purged) and _digest(session_id) in self.purged

    def holds(self, session_id: str) -> bool:
        """Whether the index has rows of a session, or knows why it has none."""
        return session_id in self.entries or session_id in self.unreadable

    def purge(self, tx: Transaction, session_id: str) -> None:
        """Remove a session and keep it out until the index is built anew."""
        self.abandon_builds()
        self.forget(tx, session_id)
        digest = _digest(session_id)
        self._tables.db.execute("INSERT OR IGNORE INTO purged VALUES (?)", (digest,))
        tx.after.append(lambda: self.purged.add(digest))

    def bury(self, tx: Transaction, session_id: str) -> None:
        """Remove the rows of a session, if it has any; a search may see it or not."""
        entry = self.entries.get(session_id)
        if entry is None:
            return
        self._tables.bury(tx, entry.no)

        def remember() -> None:
            del self.entries[session_id]
            self._warm.pop(entry.no, None)

        tx.after.append(remember)

    # -- building -----------------------------------------------------------------------------

    def _build(self, tx: Transaction, piece: SessionSlice) -> None:
        tables, session_id = self._tables, piece.snapshot.header.id
        if piece.begins:
            self._builds[session_id] = _Build(tables.take_no())
        no = self._builds[session_id].no
        if piece.shadowed:
            tables.filed.shade(tables.sessions.extents(no), piece.shadowed)
        runs = tables.take_ids(len(piece.documents))
        tables.insert(tx, tables.filed, no, piece.documents, runs)
        tables.add_to_file(no, runs)
        if piece.completes:
            del self._builds[session_id]
            if not piece.begins:
                tables.mark_alive(no)
            self._complete(tx, no, piece)
        elif piece.begins:
            tables.mark_dead(no)

    def _complete(self, tx: Transaction, no: int, piece: SessionSlice) -> None:
        tables, snapshot, projection = self._tables, piece.snapshot, piece.projection
        self.bury(tx, snapshot.header.id)
        self.insert_closers(tx, no, projection)
        state = _state_of(snapshot.revision, projection, tx)
        tables.sessions.insert(no, snapshot.header, state)
        self.keep_state(no, projection, piece.mark)
        entry = StoredEntry(no, state, snapshot.provisional)
        self.remember(tx, snapshot.header.id, entry, projection, piece.mark)

    # -- appending ----------------------------------------------------------------------------

    def _append(self, tx: Transaction, piece: SessionSlice) -> None:
        tables, snapshot, projection = self._tables, piece.snapshot, piece.projection
        entry = self.entries[snapshot.header.id]
        no, state = entry.no, entry.state
        if piece.events or state.revision != snapshot.revision:
            extents = self.drop_closers(no, state.next_seq)
            tables.filed.shade(extents, piece.shadowed)
            used = sum(extent.hi - extent.lo for extent in extents)
            runs = tables.take_block_ids(no, len(piece.documents), used)
            tables.insert(tx, tables.filed, no, piece.documents, runs)
            tables.add_to_file(no, runs)
            self.insert_closers(tx, no, projection)
            state = _state_of(snapshot.revision, projection, tx)
            tables.sessions.update(no, state)
            self._move_on(no, projection, piece.mark)
        entry = StoredEntry(no, state, snapshot.provisional)
        self.remember(tx, snapshot.header.id, entry, projection, piece.mark)

    def drop_closers(self, no: int, next_seq: int) -> tuple[Extent, ...]:
        """Remove the rows of in-memory closers, those from ``next_seq`` on; what is left."""
        extents = self._tables.sessions.extents(no)
        first = self._tables.filed.first_from(extents, next_seq)
        if first is None:
            return extents
        kept, gone = divided(extents, first)
        self._tables.remove_from_file(no, gone)
        return kept

    def insert_closers(self, tx: Transaction, no: int, projection: SessionProjection) -> None:
        """Add the rows of the in-memory closers of a log that ends inside a turn."""
        documents = closing_documents(projection)
        # Under ids of their own, so that they leave no gap in the session's blocks.
        runs = self._tables.take_ids(len(documents))
        self._tables.insert(tx, self._tables.filed, no, documents, runs)
        self._tables.add_to_file(no, runs)

    def keep_state(self, no: int, projection: SessionProjection, mark: bytes | None) -> None:
        """Write the fold of a session, from which an append can continue."""
        self._tables.sessions.keep_mark(no, mark)
        self._tables.sessions.keep_state(no, projection.next_seq, projection.encode(), mark)

    def _move_on(self, no: int, projection: SessionProjection, mark: bytes) -> None:
        """Write where the next append continues; the fold itself only once it has moved far.

        A fold costs its surface, to encode and to write. So it is written when about as many events
        have passed, and read again from the log where it is needed before that.
        """
        found = self._tables.db.execute("SELECT seq FROM checkpoint WHERE session = ?", (no,)).get
        lag = max(_STATE_LAG, len(projection.surface))
        if found is None or projection.next_seq - integer(found) >= lag:
            self.keep_state(no, projection, mark)
        else:
            self._tables.sessions.keep_mark(no, mark)

    def remember(
        self,
        tx: Transaction,
        session_id: str,
        entry: StoredEntry,
        projection: SessionProjection,
        mark: bytes | None = None,
    ) -> None:
        """Know the session after the commit, and keep its fold for the next append.

        ``mark`` is where the store continues, if that is known. Folds are kept until ``cool_down``.
        """
        self._readmit(tx, session_id)
        # There is one entry for each session, and its title is in the file.
        entry.state = evolve(entry.state, title=None)

        def remember() -> None:
            self.entries[session_id] = entry
            self._warm.pop(entry.no, None)
            self._warm[entry.no] = _Warm(projection, mark)

        tx.after.append(remember)

    def cool_down(self) -> None:
        """Forget the oldest folds beyond what may stay in memory."""
        # As a list, since readers take folds meanwhile.
        folds = [(no, len(warm.projection.surface)) for no, warm in list(self._warm.items())]
        left, nodes = len(folds), sum(size for _, size in folds)
        for no, size in folds:
            if left <= WARM_PROJECTIONS and (nodes <= WARM_NODES or left <= 1):
                return
            self._warm.pop(no, None)
            left, nodes = left - 1, nodes - size

    # -- what is left out ---------------------------------------------------------------------

    def _leave_out(self, tx: Transaction, piece: Unreadable) -> None:
        session_id = piece.skipped.session_id
        assert session_id is not None
        self._builds.pop(session_id, None)
        if self.unreadable.get(session_id) == piece and session_id not in self.entries:
            return
        self._tables.db.execute(
            "INSERT OR REPLACE INTO skipped VALUES (?, ?, ?)",
            (key(session_id), piece.revision, encode_skipped(piece.skipped)),
        )
        self.bury(tx, session_id)
        tx.visible = True
        tx.after.append(lambda: self.unreadable.__setitem__(session_id, piece))

    def _readmit(self, tx: Transaction, session_id: str) -> None:
        if session_id in self.unreadable:
            self._tables.db.execute("DELETE FROM skipped WHERE id = ?", (key(session_id),))
            tx.visible = True
            tx.after.append(lambda: self.unreadable.__delitem__(session_id))


def _state_of(revision: str, projection: SessionProjection, tx: Transaction) -> FileState:
    """The state of settled rows that a visible transaction writes."""
    tx.visible = True
    return FileState(revision, tx.generation, projection.next_seq, True, projection.title)


def _digest(session_id: str) -> bytes:
    return blake2b(key(session_id), digest_size=16).digest()
