"""One reconciliation: the steps by which the index is made to agree with its sources.

The live sessions are looked at first, all at one instant; then the store; then what differs is read
and written in slices. Every transaction that a search can see moves the generation, and leaves each
session in a state that it has had since the pass began.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

import trio
from attrs import define, field, frozen

from ..messages.config import QueryConfig
from ..messages.errors import ErrorCode, SessionQueryError
from ..messages.records import Progress, Skipped
from ..storage.contract import Damaged, SessionStore, Snapshot, StoreError
from ..storage.index import SLICE_EVENTS, SearchIndex
from ..storage.live_arm import LiveArm, LiveEntry, LiveSnapshot
from ..storage.log_slices import Continuation, Piece, SessionSlice, read_slices
from .binding import Mounted, StoreBinding
from .damage import refuse_damage, skipped_of, source_conflict
from .holding import holding
from .inventory import Inventory, Stock
from .lane import WriterLane
from .live_session import LiveSession
from .nursery import PlainNursery
from .reader_pool import LogReaderPool
from .registry import Sessions

CHUNK_SESSIONS: Final = 64
"""Changed sessions that one reading task takes at a time."""

BUILD_BATCHES: Final = 17
"""Batches that one pass wrote before it merges their segments itself."""

BATCH_CHARS: Final = 4 * 1024 * 1024
"""Code points of text after which a batch of slices is full, however few its documents."""

PENDING_BATCHES: Final = 2
"""Batches of slices that wait for the writer before the reader does."""

GAINING_SESSIONS: Final = 16
"""Changed live sessions that a search follows by itself."""

GAINED_EVENTS: Final = 256
"""Events that a search follows by itself, some 6 ms."""

_FORGET_SESSIONS: Final = 200


@frozen
class Agreement:
    """Up to where the index was made to agree with its sources."""

    generation: int
    """Of the index then; another one means that somebody else has written to it."""
    epoch: int
    moment: int
    """Of the journal of what the store holds."""
    commits: int
    """How often live sessions had changed."""
    unsettled: frozenset[str]
    """Sessions that are to be compared again, changed or not."""


@frozen
class Observation:
    """What one pass works from."""

    suspects: tuple[str, ...] | None
    """Sessions that the index may have otherwise, whatever they are now; ``None`` for all."""
    live: Mapping[str, LiveSession]
    """All that were live at one instant."""
    snapshots: tuple[LiveSnapshot, ...]
    """The suspects among them, as of that instant."""
    mounted: Mounted
    """The store that was seen after that instant."""
    listed: tuple[Snapshot, ...]
    """The suspects that it holds."""
    damaged: tuple[Damaged, ...]
    moment: int
    """When it was seen, in the journal of what it holds."""
    commits: int
    """How often live sessions had changed at that instant."""


@frozen
class Gains:
    """Events that live sessions have gained since the index was made to agree with them."""

    snapshots: tuple[LiveSnapshot, ...]
    commits: int
    """How often live sessions had changed."""
    events: int


def small_gains(sessions: Sessions, agreed: Agreement, live: LiveArm) -> Gains | None:
    """What live sessions gained, if nothing else is new of them and one transaction takes it all.

    The store must not have changed since the agreement, and nobody be changing the index.
    """
    changed = sessions.changed_since(agreed.commits)
    if changed is None or len(changed) > GAINING_SESSIONS:
        return None
    snapshots, gained = list[LiveSnapshot](), 0
    for session_id in changed:
        session, entry = sessions.get(session_id), live.entries.get(session_id)
        if session is None or entry is None or entry.source is not session or not entry.visible:
            return None
        snapshots.append(LiveSnapshot(session, session.length, entry.persisted))
        gained += session.length - entry.indexed
    if gained > GAINED_EVENTS:
        return None
    return Gains(tuple(snapshots), sessions.commits.value, gained)


async def observe(
    sessions: Sessions, binding: StoreBinding, inventory: Inventory, agreed: Agreement | None
) -> Observation:
    """Look at the live sessions, then at the store; again where another store was bound meanwhile.

    Of the live sessions only those are looked at that changed since the index was made to agree
    with them, or of which the store told something.

    Args:
        agreed: what need not be compared, if that is known.

    Raises:
        SessionQueryError: ``PERSISTENCE_FAILED`` where the store cannot be looked at;
            ``SOURCE_CONFLICT`` where a live session and the stored one of its id are different.
    """
    while True:
        epoch, commits, live = binding.epoch, sessions.commits.value, sessions.present
        if agreed is not None and agreed.epoch != epoch:
            agreed = None
        changed = sessions.changed_since(agreed.commits) if agreed is not None else None
        lengths = {
            session_id: live[session_id].length
            for session_id in (live if changed is None else changed)
            if session_id in live
        }
        try:
            stock = await inventory.look()
        except StoreError as error:
            if binding.epoch == epoch:
                raise SessionQueryError(ErrorCode.PERSISTENCE_FAILED, str(error)) from error
            continue
        if binding.epoch != epoch:
            continue
        suspects = _suspects(agreed, changed, stock)
        seen = live if suspects is None else [each for each in suspects if each in live]
        stored = stock.sessions if suspects is None else suspects
        return Observation(
            suspects,
            live,
            tuple(
                LiveSnapshot(
                    live[session_id],
                    lengths.get(session_id, 0),  # 0 where only the store told of it
                    _is_persisted(live[session_id], sessions, stock),
                )
                for session_id in seen
            ),
            stock.mounted,
            tuple(stock.sessions[each] for each in stored if each in stock.sessions),
            stock.damaged,
            stock.journal.number,
            commits,
        )


def _suspects(
    agreed: Agreement | None, changed: list[str] | None, stock: Stock
) -> tuple[str, ...] | None:
    """The sessions that may differ from what the index has; ``None`` where that is not known."""
    told = stock.journal.since(agreed.moment) if agreed is not None else None
    if agreed is None or changed is None or told is None:
        return None
    return tuple(sorted(agreed.unsettled.union(changed, told)))


def _is_persisted(session: LiveSession, sessions: Sessions, stock: Stock) -> bool:
    """Whether the store lists a session that was live as the pass began."""
    found = stock.sessions.get(session.id)
    if found is None:
        # One that ended since may have been deleted before it was looked for.
        ended = sessions.get(session.id) is not session
        return ended and session.is_stored(stock.mounted.store)
    if session.header.conflicts_with(found.header):
        raise source_conflict(session.id)
    return True


@define(eq=False)
class _Chunk:
    """Changed sessions that one task reads, and how far it has come with them."""

    sessions: list[Snapshot]
    continuations: dict[str, Continuation] | None = None
    pieces: Iterator[Piece] | None = None


@define(eq=False)
class Reconciliation:
    """The steps of one pass."""

    _index: SearchIndex
    _lane: WriterLane
    _pool: LogReaderPool
    _config: QueryConfig
    _observation: Observation
    _showing: trio.Lock
    _progress: Callable[[Progress], None]
    _disagree: Callable[[], None]
    """Told before the index lacks what its sources have: no view is opened until the pass ends."""
    agreement: Agreement | None = field(default=None, init=False)
    """How far this pass came, for the next one."""
    _done: int = field(default=0, init=False)
    _events: int = field(default=0, init=False)
    _batches: int = field(default=0, init=False)

    async def run(self) -> tuple[Skipped, ...]:
        """Take all steps; what was left out.

        Raises:
            SessionQueryError: ``INDEX_FAILED``; where nothing is to be left out, also the code of
                what was found damaged.
        """
        if self._config.on_damaged == "fail":
            refuse_damage(self._observation.damaged)
        await self._settle_closed()
        await self._follow_live()
        unsettled = frozenset[str]()
        if self._observation.mounted.store is not None:
            unsettled = await self._follow_store()
        seen = self._observation
        self.agreement = Agreement(
            self._index.generation, seen.mounted.epoch, seen.moment, seen.commits, unsettled
        )
        if self._batches >= BUILD_BATCHES:
            while await self._lane.call(self._index.merge_build):
                pass
        return self._left_out()

    # -- live sessions ------------------------------------------------------------------------

    async def _settle_closed(self) -> None:
        """Turn sessions that were live before into stored ones."""
        entries, seen = self._index.live.entries, self._observation
        for session_id in list(entries) if seen.suspects is None else seen.suspects:
            entry = entries.get(session_id)
            if entry is None or entry.source is seen.live.get(session_id):
                continue
            await self._catch_up(entry)
            if not self._index.live.is_stored_whole(entry):
                # It is gone from the index until the store has been read.
                self._disagree()
            while await self._lane.call(self._index.settle, entry):
                pass

    async def _catch_up(self, entry: LiveEntry) -> None:
        """Index what a session gained between the last pass and its end, if it was all stored."""
        events = entry.source.events
        if entry.source.stored.length == len(events):
            last = LiveSnapshot(entry.source, len(events), entry.persisted)
            while await self._lane.call(self._index.follow, [last]):
                pass

    async def _follow_live(self) -> None:
        snapshots = [
            snapshot
            for snapshot in self._observation.snapshots
            if not self._index.stored.is_purged(snapshot.source.header.id)
        ]
        for snapshot in snapshots:
            while self._index.live.lag(snapshot) > SLICE_EVENTS:
                await self._lane.call(self._index.prepare, snapshot)
        if any(self._index.live.needs(snapshot) for snapshot in snapshots):
            async with holding(self._showing):
                while await self._lane.call(self._index.follow, snapshots):
                    pass

    # -- stored sessions ----------------------------------------------------------------------

    async def _follow_store(self) -> frozenset[str]:
        """Bring the rows of stored sessions up to date; those that may have changed again."""
        changed = await self._read_changed()
        await self._forget_gone()
        stored = self._index.stored
        return frozenset(found.header.id for found in changed if not stored.is_current(found))

    async def _read_changed(self) -> list[Snapshot]:
        """Read what changed in the store and write it, both at once; what that was."""
        stored, live = self._index.stored, self._observation.live
        stored.abandon_builds()
        changed = [
            snapshot
            for snapshot in self._observation.listed
            if snapshot.header.id not in live
            and not stored.is_current(snapshot)
            and not stored.is_purged(snapshot.header.id)
        ]
        if not changed:
            return changed
        self._progress(Progress(0, len(changed), 0))
        chunks = deque(
            _Chunk(changed[at : at + CHUNK_SESSIONS])
            for at in range(0, len(changed), CHUNK_SESSIONS)
        )
        if len(chunks) == 1:
            # Most often that is all, and written before other tasks would have begun.
            pieces, more = await self._next(chunks[0])
            await self._write(pieces, len(changed))
            if not more:
                return changed
        send, receive = trio.open_memory_channel[list[Piece]](PENDING_BATCHES)
        # Where writing fails, its reader has left before what it sends to is closed.
        async with receive, PlainNursery() as nursery:
            # Several readers would take turns at the interpreter lock, and the writer with them.
            nursery.start_soon(self._read_chunks, chunks, send)
            async for pieces in receive:
                await self._write(pieces, len(changed))
        return changed

    async def _read_chunks(
        self, chunks: deque[_Chunk], send: trio.MemorySendChannel[list[Piece]]
    ) -> None:
        async with send:
            while chunks:
                chunk, more = chunks.popleft(), True
                while more:
                    pieces, more = await self._next(chunk)
                    await send.send(pieces)

    async def _continuations(self, chunk: list[Snapshot]) -> dict[str, Continuation]:
        """Where the logs of a chunk continue that the index knows: from memory, else its file."""
        stored = self._index.stored
        found: dict[str, Continuation] = {}
        cold: list[str] = []
        for snapshot in chunk:
            session_id = snapshot.header.id
            warm = stored.take_continuation(session_id)
            if warm is not None:
                found[session_id] = warm
            elif session_id in stored.entries:
                cold.append(session_id)
        if cold:
            found |= await self._lane.call(self._index.continuations, cold)
        return found

    async def _next(self, chunk: _Chunk) -> tuple[list[Piece], bool]:
        """The next pieces of a chunk, and whether there may be more."""
        if chunk.continuations is None:
            chunk.continuations = await self._continuations(chunk.sessions)
        try:
            return await self._pool.visit(partial(self._take, chunk), self._observation.mounted)
        except StoreError as error:
            raise SessionQueryError(ErrorCode.PERSISTENCE_FAILED, str(error)) from error

    def _take(self, chunk: _Chunk, store: SessionStore) -> tuple[list[Piece], bool]:
        """About as many pieces as one transaction writes."""
        batch: list[Piece] = []
        documents = chars = 0
        for piece in self._pieces(chunk, store):
            batch.append(piece)
            if isinstance(piece, SessionSlice):
                documents += len(piece.documents)
                chars += sum(len(document.text) for document in piece.documents)
            if documents >= SLICE_EVENTS or chars >= BATCH_CHARS:
                return batch, True
        return batch, False

    def _pieces(self, chunk: _Chunk, store: SessionStore) -> Iterator[Piece]:
        """The pieces that are still to be read, the same iterator each time."""
        if chunk.pieces is None:
            found = chunk.continuations or {}
            chunk.pieces = (
                piece
                for snapshot in chunk.sessions
                for piece in read_slices(
                    store, snapshot, found.get(snapshot.header.id), self._config.extract
                )
            )
        return chunk.pieces

    async def _write(self, pieces: list[Piece], total: int) -> None:
        if not pieces:
            return
        await self._lane.call(self._index.write, pieces)
        self._batches += 1
        for piece in pieces:
            self._done += not isinstance(piece, SessionSlice) or piece.completes
            self._events += piece.events if isinstance(piece, SessionSlice) else 0
        self._progress(Progress(min(self._done, total), total, self._events))

    async def _forget_gone(self) -> None:
        """Remove sessions that the store lists no longer."""
        stored, seen = self._index.stored, self._observation
        listed = {snapshot.header.id for snapshot in seen.listed}
        known = seen.suspects
        if known is None:
            known = tuple(dict.fromkeys([*stored.entries, *stored.unreadable]))
        gone = [
            each
            for each in known
            if each not in listed and each not in seen.live and stored.holds(each)
        ]
        for at in range(0, len(gone), _FORGET_SESSIONS):
            await self._lane.call(self._index.forget, gone[at : at + _FORGET_SESSIONS])

    def _left_out(self) -> tuple[Skipped, ...]:
        """What searches leave out, by path; a live session is never among it."""
        if self._observation.mounted.store is None:
            return ()
        live = self._observation.live
        unreadable = [
            piece.skipped
            for session_id, piece in self._index.stored.unreadable.items()
            if session_id not in live
        ]
        if unreadable and self._config.on_damaged == "fail":
            raise SessionQueryError(unreadable[0].code, unreadable[0].message)
        damaged = [
            skipped_of(damaged)
            for damaged in self._observation.damaged
            if damaged.session_id not in live
        ]
        return tuple(sorted([*damaged, *unreadable], key=lambda skipped: skipped.path))
