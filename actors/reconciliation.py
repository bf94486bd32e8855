"""One reconciliation: the steps by which the index is made to agree with its sources.

The live sessions are looked at first, all at one instant; then the store; then what differs is read
and written in slices. Every transaction that a search can see moves the generation, and leaves each
session in a state that it has had since the pass began.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import Final, TypeAlias

import trio
from attrs import define, evolve, field, frozen

from ..messages.config import QueryConfig
from ..messages.errors import ErrorCode, SessionQueryError
from ..messages.records import Progress, Skipped
from ..storage.contract import SessionStore, Snapshot, StoreError, Sweep
from ..storage.index import SLICE_EVENTS, SearchIndex
from ..storage.live_arm import LiveEntry, LiveSnapshot
from ..storage.log_slices import Continuation, SessionSlice, Unreadable, read_slices
from .binding import Mounted, StoreBinding
from .damage import refuse_damage, skipped_of, source_conflict
from .lane import WriterLane
from .nursery import PlainNursery
from .reader_pool import LogReaderPool
from .registry import Sessions

CHUNK_SESSIONS: Final = 64
"""Changed sessions that one reading task takes at a time."""

BUILD_BATCHES: Final = 32
"""Batches that one pass wrote before it merges their segments itself."""

LARGE_LOG_BYTES: Final = 16 * 1024 * 1024
"""Size from which logs are read one at a time."""

BATCH_CHARS: Final = 4 * 1024 * 1024
"""Code points of text after which a batch of slices is full, however few its documents."""

PENDING_BATCHES: Final = 2
"""Batches of slices that wait for the writer before the readers do."""

_FORGET_SESSIONS: Final = 200

Piece: TypeAlias = SessionSlice | Unreadable


@frozen
class Observation:
    """What one pass works from."""

    live: dict[str, LiveSnapshot]
    """As of one instant."""
    sweep: Sweep
    """Seen after that instant."""
    mounted: Mounted
    """Where it was seen."""


async def observe(sessions: Sessions, binding: StoreBinding, pool: LogReaderPool) -> Observation:
    """Look at the live sessions, then at the store; again where another store was bound meanwhile.

    Raises:
        SessionQueryError: ``PERSISTENCE_FAILED`` where the store cannot be looked at;
            ``SOURCE_CONFLICT`` where a live session and the stored one of its id are different.
    """
    while True:
        live = {
            session_id: LiveSnapshot(session, session.events)
            for session_id, session in sessions.live.items()
        }
        mounted = binding.mounted
        try:
            sweep = await pool.sweep()
        except StoreError as error:
            if binding.epoch == mounted.epoch:
                raise SessionQueryError(ErrorCode.PERSISTENCE_FAILED, str(error)) from error
            continue
        if binding.epoch == mounted.epoch:
            return Observation(_marked(live, sweep), sweep, mounted)


def _marked(live: dict[str, LiveSnapshot], sweep: Sweep) -> dict[str, LiveSnapshot]:
    """The live sessions, those that the store lists marked so."""
    marked = dict(live)
    if not live:
        return marked
    for stored in sweep.snapshots:
        session_id = stored.header.id
        if session_id not in live:
            continue
        if live[session_id].source.header.conflicts_with(stored.header):
            raise source_conflict(session_id)
        marked[session_id] = evolve(live[session_id], persisted=True)
    return marked


@frozen
class Agreement:
    """What a pass found in the store that the index held already, all of it and nothing else.

    While it is found again there is nothing to compare: an unchanged store gives the very snapshots
    that it gave before, and these are equal at a glance.
    """

    snapshots: tuple[Snapshot, ...]
    live: frozenset[str]
    generation: int


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
    _agreed: Agreement | None
    _large: trio.Lock = field(factory=trio.Lock, init=False)
    """Held while a log is read that may hold large records: their copies add up."""
    agreement: Agreement | None = field(default=None, init=False)
    """What this pass found to agree, for the next one."""
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
            refuse_damage(self._observation.sweep)
        await self._settle_closed()
        await self._follow_live()
        if self._observation.mounted.store is not None:
            await self._follow_store()
        if self._batches >= BUILD_BATCHES:
            while await self._lane.call(self._index.merge_build):
                pass
        return self._left_out()

    # -- live sessions ------------------------------------------------------------------------

    async def _settle_closed(self) -> None:
        """Turn sessions that were live before into stored ones."""
        live = self._observation.live
        for session_id, entry in list(self._index.live.entries.items()):
            now = live.get(session_id)
            if now is not None and now.source is entry.source:
                continue
            await self._catch_up(entry)
            while await self._lane.call(self._index.settle, entry):
                pass

    async def _catch_up(self, entry: LiveEntry) -> None:
        """Index what a session gained between the last pass and its end, if it was all stored."""
        events = entry.source.events
        if entry.source.stored.length == len(events):
            last = LiveSnapshot(entry.source, events, entry.persisted)
            while await self._lane.call(self._index.follow, [last]):
                pass

    async def _follow_live(self) -> None:
        snapshots = [
            snapshot
            for session_id, snapshot in self._observation.live.items()
            if not self._index.stored.is_purged(session_id)
        ]
        for snapshot in snapshots:
            while self._index.live.lag(snapshot) > SLICE_EVENTS:
                await self._lane.call(self._index.prepare, snapshot)
        if any(self._index.live.needs(snapshot) for snapshot in snapshots):
            async with self._showing:
                while await self._lane.call(self._index.follow, snapshots):
                    pass

    # -- stored sessions ----------------------------------------------------------------------

    async def _follow_store(self) -> None:
        seen = Agreement(
            self._observation.sweep.snapshots,
            frozenset(self._observation.live),
            self._index.generation,
        )
        if seen == self._agreed or not (await self._read_changed() | await self._forget_gone()):
            self.agreement = seen

    async def _read_changed(self) -> bool:
        """Read what changed in the store and write it, both at once; whether anything had."""
        stored, live = self._index.stored, self._observation.live
        stored.abandon_builds()
        changed = [
            snapshot
            for snapshot in self._observation.sweep.snapshots
            if snapshot.header.id not in live
            and not stored.is_current(snapshot)
            and not stored.is_purged(snapshot.header.id)
        ]
        if not changed:
            return False
        self._progress(Progress(0, len(changed), 0))
        chunks = deque(
            changed[at : at + CHUNK_SESSIONS] for at in range(0, len(changed), CHUNK_SESSIONS)
        )
        send, receive = trio.open_memory_channel[list[Piece]](PENDING_BATCHES)
        async with PlainNursery() as nursery:
            async with send:
                # One worker stays free, so that an exact read waits for one log at most.
                for _ in range(min(max(1, self._pool.workers - 1), len(chunks))):
                    nursery.start_soon(self._read_chunks, chunks, send.clone())
            async with receive:
                async for pieces in receive:
                    await self._write(pieces, len(changed))
        return True

    async def _read_chunks(
        self, chunks: deque[list[Snapshot]], send: trio.MemorySendChannel[list[Piece]]
    ) -> None:
        async with send:
            while chunks:
                chunk = chunks.popleft()
                known = [
                    snapshot.header.id
                    for snapshot in chunk
                    if snapshot.header.id in self._index.stored.entries
                ]
                continuations: dict[str, Continuation] = {}
                if known:
                    continuations = await self._lane.call(self._index.continuations, known)
                pieces = self._pieces(chunk, continuations)
                large = any((found.size_bytes or 0) >= LARGE_LOG_BYTES for found in chunk)
                more = True
                while more:
                    async with self._large if large else nullcontext():
                        batch, more = await self._visit(pieces)
                    if batch:
                        await send.send(batch)

    async def _visit(
        self, pieces: Callable[[SessionStore], Iterator[Piece]]
    ) -> tuple[list[Piece], bool]:
        try:
            return await self._pool.visit(partial(_take, pieces), self._observation.mounted)
        except StoreError as error:
            raise SessionQueryError(ErrorCode.PERSISTENCE_FAILED, str(error)) from error

    def _pieces(
        self, chunk: list[Snapshot], continuations: dict[str, Continuation]
    ) -> Callable[[SessionStore], Iterator[Piece]]:
        warm = {
            session_id: self._index.stored.take_warm(session_id) for session_id in continuations
        }
        started: list[Iterator[Piece]] = []

        def pieces(store: SessionStore) -> Iterator[Piece]:
            if not started:
                started.append(
                    piece
                    for snapshot in chunk
                    for piece in read_slices(
                        store,
                        snapshot,
                        continuations.get(snapshot.header.id),
                        warm.get(snapshot.header.id),
                        self._config.extract,
                    )
                )
            return started[0]

        return pieces

    async def _write(self, pieces: list[Piece], total: int) -> None:
        await self._lane.call(self._index.write, pieces)
        self._batches += 1
        for piece in pieces:
            self._done += isinstance(piece, Unreadable) or piece.completes
            self._events += 0 if isinstance(piece, Unreadable) else piece.events
        self._progress(Progress(min(self._done, total), total, self._events))

    async def _forget_gone(self) -> bool:
        """Remove sessions that the store lists no longer; whether there were any."""
        listed = {snapshot.header.id for snapshot in self._observation.sweep.snapshots}
        listed.update(self._observation.live)
        stored = self._index.stored
        known = dict.fromkeys([*stored.entries, *stored.unreadable])
        gone = [session_id for session_id in known if session_id not in listed]
        for at in range(0, len(gone), _FORGET_SESSIONS):
            await self._lane.call(self._index.forget, gone[at : at + _FORGET_SESSIONS])
        return bool(gone)

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
            for damaged in self._observation.sweep.damaged
            if damaged.session_id not in live
        ]
        return tuple(sorted([*damaged, *unreadable], key=lambda skipped: skipped.path))


def _take(
    pieces: Callable[[SessionStore], Iterator[Piece]], store: SessionStore
) -> tuple[list[Piece], bool]:
    """The next pieces, about as many as one transaction writes, and whether there may be more."""
    batch: list[Piece] = []
    documents = chars = 0
    for piece in pieces(store):
        batch.append(piece)
        if not isinstance(piece, Unreadable):
            documents += len(piece.documents)
            chars += sum(len(document.text) for document in piece.documents)
        if documents >= SLICE_EVENTS or chars >= BATCH_CHARS:
            return batch, True
    return batch, False
