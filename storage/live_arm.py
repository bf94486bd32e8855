"""The live arm of the index: what live sessions hold, beside and above the file.

New events of a live session go to the recent tables in memory; one commit costs what it holds,
whatever the session's length. A surface flip of a row in the file is an override that remembers the
event that caused it. Once events are stored, their rows move to the file, and with them only the
flips whose cause is stored too: what is not in the store never reaches the file, nor does what it
causes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from attrs import define, evolve, field, frozen

from ..history.projection import SessionProjection
from ..messages.event import Event
from ..messages.header import SessionHeader
from ..messages.json import Json
from .contract import SessionStore
from .document_rows import Extent, divided, joined
from .index_query import SEQ_BITS
from .index_tables import IndexTables, Transaction
from .index_values import key, optional_key
from .log_slices import fold_events, retract_events
from .session_rows import FileState
from .stored_arm import StoredArm, StoredEntry


class StoredState(Protocol):
    """A state of a live session that is known to be in the store."""

    @property
    def revision(self) -> str | None:
        """The store's revision, or ``None`` where nothing is stored."""

    @property
    def length(self) -> int:
        """How many events it has."""


class LiveSource(Protocol):
    """What the index reads of a live session; all of it synchronously."""

    @property
    def header(self) -> SessionHeader: ...

    @property
    def events(self) -> Sequence[Event]:
        """An immutable view of the log as it is now."""

    @property
    def store(self) -> SessionStore | None:
        """Where the session is stored, whatever is bound now; ``None`` where it never is."""

    @property
    def base(self) -> StoredState:
        """What the session was resumed from."""

    @property
    def stored(self) -> StoredState:
        """The newest state known to be in the store."""


@frozen
class LiveSnapshot:
    """One live session at one instant."""

    source: LiveSource
    length: int
    """Events that it had; 0 where it had none that are not indexed."""
    persisted: bool
    """Whether the store lists the session."""


@frozen
class LiveInfo:
    """What a view needs to know of one live session."""

    header: SessionHeader
    persisted: bool


@frozen
class LiveOverlay:
    """What live sessions change about the rows of the file, as of one generation."""

    sessions: Mapping[int, LiveInfo]
    """Live sessions by number."""
    unpersisted: frozenset[int]
    """Numbers of those that the store does not list."""
    hidden: frozenset[int]
    """Numbers whose rows must not show: the stored version of a session that is live otherwise."""
    flips: frozenset[int]
    """Rows of the file that are shadowed though the file says current."""


@define(eq=False)
class LiveEntry:
    """What the writer remembers of one live session."""

    source: LiveSource
    no: int
    projection: SessionProjection
    """The fold of all indexed events."""
    filed: int = 0
    """Events from seq 0 whose documents are in the file."""
    in_file: bool = False
    """Whether the file has a row for the session under this number."""
    visible: bool = False
    persisted: bool = False
    generation: int = 0
    """When the session last changed in a way that a search can see."""
    extents: tuple[Extent, ...] = ()
    """Where the recent tables keep the documents that are not in the file."""
    flips: dict[int, int] = field(factory=dict)
    """Each seq that is shadowed for a cause that is not in the file, with that cause."""

    @property
    def indexed(self) -> int:
        """Events from seq 0 that have been folded."""
        return self.projection.next_seq

    def moved_on(self, generation: int) -> None:
        """Remember the latest visible change."""
        self.generation = generation


class LiveArm:
    """Live sessions of one index, for its writer."""

    def __init__(
        self, tables: IndexTables, stored: StoredArm, extract: Callable[[str, Json], str]
    ) -> None:
        self._tables = tables
        self._stored = stored
        self._extract = extract
        self.entries: dict[str, LiveEntry] = {}
        self.store: SessionStore | None = None
        """The store whose sessions the file holds; a revision of another one means nothing here."""
        self._shown: dict[int, LiveInfo] = {}
        self._unpersisted: set[int] = set()
        self._hides: dict[int, int] = {}
        """Numbers of stored versions, by those of the live sessions that hide them."""
        self._flips: dict[int, tuple[int, ...]] = {}
        self._overlay: LiveOverlay | None = None
        """As of the last view, until something of it changes."""
        self._in_memory: set[int] = set()
        """Numbers of sessions with documents outside the file."""
        self._unwanted: list[Extent] = []
        """Recent documents of sessions that are gone, not shown any more."""

    # -- following live sessions --------------------------------------------------------------

    def attach(self, source: LiveSource) -> LiveEntry:
        """Begin to follow a live session; it shows from the first sync on that catches up with it.

        Where the file holds just the stored state that the session was resumed from, its rows stay
        and are the session's first documents.
        """
        header = source.header
        known = self._stored.entries.get(header.id)
        adopted = self._adopted(source, known) if known is not None else None
        if adopted is not None and known is not None:
            entry = LiveEntry(source, known.no, adopted, filed=adopted.next_seq, in_file=True)
        else:
            fresh = SessionProjection(header, self._extract)
            entry = LiveEntry(source, self._tables.take_no(), fresh)
        self.entries[header.id] = entry
        return entry

    def _adopted(self, source: LiveSource, known: StoredEntry) -> SessionProjection | None:
        """The fold of the rows in the file, where they are a prefix of the live session."""
        base, state = source.base, known.state
        if not self._is_of_the_store(source) or not state.settled:
            return None
        if base.revision != state.revision or base.length != state.next_seq:
            return None
        session_id = source.header.id
        projection = self._stored.take_warm(session_id)
        if projection is None:
            checkpoint = self._stored.checkpoint(session_id)
            if checkpoint is None:
                return None
            try:
                projection = SessionProjection.decode(
                    source.header, checkpoint.state, self._extract
                )
            except ValueError:
                return None
            fold_events(projection, source.events[projection.next_seq : state.next_seq])
        return projection

    def needs(self, snapshot: LiveSnapshot) -> bool:
        """Whether a sync with this snapshot would change anything."""
        entry = self.entries.get(snapshot.source.header.id)
        return (
            entry is None
            or not entry.visible
            or entry.indexed < snapshot.length
            or entry.persisted != snapshot.persisted
        )

    def lag(self, snapshot: LiveSnapshot) -> int:
        """How many events of a session that does not show yet are to be indexed before it can."""
        entry = self.entries.get(snapshot.source.header.id)
        if entry is None:
            return snapshot.length
        return 0 if entry.visible else snapshot.length - entry.indexed

    def sync(self, tx: Transaction, snapshot: LiveSnapshot, limit: int) -> int:
        """Index up to ``limit`` further events of a live session; how many it took.

        A session shows from the sync on that first catches up with its snapshot.
        """
        entry = self.entries.get(snapshot.source.header.id) or self.attach(snapshot.source)
        tables, begin = self._tables, entry.indexed
        events = entry.source.events[begin : min(begin + limit, snapshot.length)]
        folded = fold_events(entry.projection, events)
        tx.on_failure.append(lambda: retract_events(entry.projection, folded.advances))
        used = sum(extent.hi - extent.lo for extent in entry.extents)
        runs = tables.take_block_ids(entry.no, len(folded.documents), used)
        tables.insert(tx, tables.recent, entry.no, folded.documents, runs)
        tables.recent.shade(entry.extents, [seq for seq in folded.flips if seq >= entry.filed])
        extents = entry.extents
        for run in runs:
            extents = joined(extents, run)

        def remember() -> None:
            self._keep(entry, extents)
            entry.flips.update(folded.flips)

        tx.after.append(remember)
        # What a session that shows already has gained shows at once, caught up or not.
        if entry.visible or entry.indexed == snapshot.length:
            self._show(tx, entry, snapshot.persisted)
            if any(seq < entry.filed for seq in folded.flips):
                tx.after.append(lambda: self._renew(entry))
        return len(events)

    def _show(self, tx: Transaction, entry: LiveEntry, persisted: bool) -> None:
        """Let a session that has caught up be found as it now is."""
        header = entry.source.header
        tx.visible = True
        if entry.visible and entry.persisted == persisted:
            tx.after.append(lambda: entry.moved_on(tx.generation))
            return
        self._tables.db.execute(
            "INSERT OR REPLACE INTO recent_session VALUES (?, ?, ?, ?, ?, ?)",
            (
                entry.no,
                key(header.id),
                header.created_at,
                optional_key(header.cwd),
                optional_key(header.parent_session),
                persisted,
            ),
        )
        if not entry.visible and entry.in_file:
            self._unsettle(tx, entry)

        def remember() -> None:
            entry.visible, entry.persisted = True, persisted
            entry.moved_on(tx.generation)
            self._renew(entry)

        tx.after.append(remember)

    def _unsettle(self, tx: Transaction, entry: LiveEntry) -> None:
        """Take the in-memory closers of a log that has become live out of its rows."""
        session_id = entry.source.header.id
        known = self._stored.entries[session_id]
        self._stored.drop_closers(entry.no, known.state.next_seq)
        state = evolve(known.state, settled=False)
        self._tables.sessions.update(entry.no, state)
        entry_now = StoredEntry(entry.no, state)
        tx.after.append(lambda: self._stored.entries.__setitem__(session_id, entry_now))

    # -- moving to the file -------------------------------------------------------------------

    def movable(self, entry: LiveEntry) -> int:
        """How many stored events have their documents in memory still."""
        if not self._is_of_the_store(entry.source):
            return 0
        return min(entry.source.stored.length, entry.indexed) - entry.filed

    def move(self, tx: Transaction, entry: LiveEntry, limit: int) -> None:
        """Move the documents of up to ``limit`` stored events into the file.

        Nothing that a search can see changes. Only flips whose cause is stored go along.
        """
        tables, stored, source = self._tables, self._stored, entry.source
        upto = min(entry.filed + limit, source.stored.length, entry.indexed)
        session_id, revision = source.header.id, source.stored.revision
        assert revision is not None
        state = FileState(revision, entry.generation, upto, False)
        if entry.in_file:
            tables.sessions.update(entry.no, state)
        else:
            stored.bury(tx, session_id)
            tables.sessions.insert(entry.no, source.header, state)
        flipped = {seq for seq, cause in entry.flips.items() if cause < upto}
        tables.filed.shade(
            tables.sessions.extents(entry.no), [seq for seq in flipped if seq < entry.filed]
        )
        moving, staying = divided(entry.extents, tables.recent.first_from(entry.extents, upto))
        tables.recent.move_to(tables.filed, moving, flipped)
        tables.add_to_file(entry.no, [range(extent.lo, extent.hi) for extent in moving])
        if moving:
            tx.wrote |= {tables.filed_text, tables.recent_text}
        known = StoredEntry(entry.no, state)

        def remember() -> None:
            entry.filed, entry.in_file = upto, True
            self._keep(entry, staying)
            entry.flips = {seq: cause for seq, cause in entry.flips.items() if cause >= upto}
            stored.entries[session_id] = known
            self._renew(entry)

        tx.after.append(remember)

    def is_stored_whole(self, entry: LiveEntry) -> bool:
        """Whether a session that is live no longer left all of its events in the store."""
        source = entry.source
        length = len(source.events)
        return (
            self._is_of_the_store(source)
            and source.stored.revision is not None
            and source.stored.length == length == entry.indexed
        )

    def _is_of_the_store(self, source: LiveSource) -> bool:
        """Whether what is stored of a live session is where the file's sessions are from."""
        return source.store is not None and source.store is self.store

    def settle(self, tx: Transaction, entry: LiveEntry) -> None:
        """Let go of a session that is live no longer and whose documents are all in the file.

        Its rows are then those of a stored session, in-memory closers included.
        """
        tables, source, projection = self._tables, entry.source, entry.projection
        revision = source.stored.revision
        assert revision is not None
        state = FileState(revision, tx.generation, projection.next_seq, True, projection.title)
        self._stored.insert_closers(tx, entry.no, projection)
        tables.sessions.update(entry.no, state)
        self._stored.keep_state(entry.no, projection, None)
        self._stored.remember(tx, source.header.id, StoredEntry(entry.no, state), projection)
        tx.after.append(self._stored.cool_down)
        self.let_go(tx, entry)

    def drop(self, tx: Transaction, entry: LiveEntry) -> None:
        """Let go of a session that is live no longer, and of all that the index has of it.

        What the file held beside it, of another version of the session, shows again.
        """
        if entry.in_file:
            self._stored.bury(tx, entry.source.header.id)
        self.let_go(tx, entry)

    def reclaim(self, tx: Transaction, limit: int) -> None:
        """Delete up to ``limit`` recent documents that no session has any more."""
        last = self._unwanted[-1]
        part = Extent(max(last.lo, last.hi - limit), last.hi)
        self._tables.recent.delete([part])
        tx.wrote.add(self._tables.recent_text)

        def remember() -> None:
            self._unwanted.pop()
            if part.lo > last.lo:
                self._unwanted.append(Extent(last.lo, part.lo))

        tx.after.append(remember)

    @property
    def has_unwanted(self) -> bool:
        """Whether ``reclaim`` has something to do."""
        return bool(self._unwanted)

    def let_go(self, tx: Transaction, entry: LiveEntry) -> None:
        """Follow a session no longer; what the file has of it stays as it is."""
        self._tables.db.execute("DELETE FROM recent_session WHERE no = ?", (entry.no,))
        tx.visible = True

        def remember() -> None:
            del self.entries[entry.source.header.id]
            self._unwanted.extend(entry.extents)
            self._in_memory.discard(entry.no)
            self._tables.release_block(entry.no)
            self._forget(entry.no)

        tx.after.append(remember)

    # -- what views are told ------------------------------------------------------------------

    @property
    def overlay(self) -> LiveOverlay:
        """What a view that is opened now has to know."""
        if self._overlay is None:
            self._overlay = LiveOverlay(
                dict(self._shown),
                frozenset(self._unpersisted),
                frozenset(self._hides.values()),
                frozenset().union(*self._flips.values()),
            )
        return self._overlay

    @property
    def is_in_file(self) -> bool:
        """Whether all documents that a view may show are in the file."""
        return not self._in_memory

    def _keep(self, entry: LiveEntry, extents: tuple[Extent, ...]) -> None:
        """Remember where the documents of a session stand that are not in the file."""
        entry.extents = extents
        if extents:
            self._in_memory.add(entry.no)
        else:
            self._in_memory.discard(entry.no)

    def _renew(self, entry: LiveEntry) -> None:
        """Tell the next view what has become of a session."""
        no = entry.no
        self._forget(no)
        if not entry.visible:
            return
        self._shown[no] = LiveInfo(entry.source.header, entry.persisted)
        if not entry.persisted:
            self._unpersisted.add(no)
        other = self._stored.entries.get(entry.source.header.id)
        if other is not None and other.no != no:
            self._hides[no] = other.no
        flips = tuple(no << SEQ_BITS | seq for seq in entry.flips if seq < entry.filed)
        if flips:
            self._flips[no] = flips

    def _forget(self, no: int) -> None:
        self._overlay = None
        self._shown.pop(no, None)
        self._unpersisted.discard(no)
        self._hides.pop(no, None)
        self._flips.pop(no, None)
