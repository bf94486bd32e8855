"""One reconciliation: the steps by which the index is made to agree with its sources.

The live sessions are looked at first, all at one instant; then the store; then what differs is read
and written in slices. Every transaction that a search can see moves the generation, and leaves each
session in a state that it has had since the pass began.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Final

import trio
from attrs import define, evolve, field, frozen

from ..messages.config import QueryConfig
from ..messages.errors import ErrorCode, SessionQueryError
from ..messages.records import Progress, Skipped
from ..storage.contract import Damaged, SessionStore, Snapshot, StoreError
from ..storage.index import SLICE_EVENTS, SearchIndex
from ..storage.live_arm import LiveEntry, LiveSnapshot
from ..storage.log_slices import Continuation, Piece, SessionSlice, read_slices
from .binding import Mounted, StoreBinding
from .damage import refuse_damage, skipped_of, source_conflict
from .inventory import Inventory, Stock
from .lane import WriterLane
from .nursery import PlainNursery
from .reader_pool import LogReaderPool
from .registry import Sessions

CHUNK_SESSIONS: Final = 64
"""Changed sessions that one reading task takes at a time."""

BUILD_BATCHES: Final = 32
"""Batches that one pass wrote before it merges their segments itself."""

BATCH_CHARS: Final = 4 * 1024 * 1024
"""Code points of text after which a batch of slices is full, however few its documents."""

PENDING_BATCHES: Final = 2
"""Batches of slices that wait for the writer before the readers do."""

_FORGET_SESSIONS: Final = 200


@frozen
class Agreement:
    """Up to where the index was made to agree with the store."""

    generation: int
    """Of the index then; another one means that somebody else has written to it."""
    epoch: int
    moment: int
    """Of the journal of what the store holds."""
    commits: int
    """How often live sessions had changed."""
    live: frozenset[str]
    """Sessions that were not compared."""
    unsettled: frozenset[str]
    """Sessions that are to be compared again, changed or not."""


@frozen
class Observation:
    """What one pass works from."""

    live: dict[str, LiveSnapshot]
    """As of one instant."""
    mounted: Mounted
    """The store that was seen after that instant."""
    moment: int
    """When, in the journal of what it holds."""
    commits: int
    """How often live sessions had changed at that instant."""
    damaged: tuple[Damaged, ...]
    listed: tuple[Snapshot, ...]
    """The sessions to compare with the index: all, or those that may differ."""
    absent: tuple[str, ...] | None
    """Those that may differ and are not stored; ``None`` for all that are not listed."""


async def observe(
    sessions: Sessions, binding: StoreBinding, inventory: Inventory, agreed: Agreement | None
) -> Observation:
    """Look at the live sessions, then at the store; again where another store was bound meanwhile.

    Args:
        agreed: what need not be compared, if that is known.

    Raises:
        SessionQueryError: ``PERSISTENCE_FAILED`` where the store cannot be looked at;
            ``SOURCE_CONFLICT`` where a live session and the stored one of its id are different.
    """
    while True:
        live = {
            session_id: LiveSnapshot(session, session.events)
            for session_id, session in sessions.live.items()
        }
        epoch, commits = binding.epoch, sessions.commits.value
        was_stored = [
            session_id
            for session_id, session in sessions.live.items()
            if session.is_stored(binding.store)
        ]
        try:
            stock = await inventory.look()
        except StoreError as error:
            if binding.epoch == epoch:
                raise SessionQueryError(ErrorCode.PERSISTENCE_FAILED, str(error)) from error
            continue
        if binding.epoch == epoch:
            # One that ended since may have been deleted before it was looked for.
            ended = [e for e in was_stored if sessions.live.get(e) is not live[e].source]
            return _observation(_marked(live, stock.sessions, ended), stock, commits, agreed)


def _observation(
    live: dict[str, LiveSnapshot], stock: Stock, commits: int, agreed: Agreement | None
) -> Observation:
    concerned: list[str] | None = None
    if agreed is not None and agreed.epoch == stock.mounted.epoch:
        concerned = stock.journal.since(agreed.moment)
    listed: tuple[Snapshot, ...]
    absent: tuple[str, ...] | None
    if agreed is None or concerned is None:
        listed, absent = tuple(stock.sessions.values()), None
    else:
        ids = sorted(agreed.live.union(agreed.unsettled, concerned))
        listed = tuple(stock.sessions[each] for each in ids if each in stock.sessions)
        absent = tuple(each for each in ids if each not in stock.sessions)
    moment = stock.journal.number
    return Observation(live, stock.mounted, moment, commits, stock.damaged, listed, absent)


def _marked(
    live: dict[str, LiveSnapshot], stored: Mapping[str, Snapshot], ended: Iterable[str]
) -> dict[str, LiveSnapshot]:
    """The live sessions, those that are stored marked so, and those that were as they ``ended``."""
    marked = live | {each: evolve(live[each], persisted=True) for each in ended}
    for session_id, snapshot in live.items():
        found = stored.get(session_id)
        if found is None:
            continue
        if snapshot.source.header.conflicts_with(found.header):
            raise source_conflict(session_id)
        marked[session_id] = evolve(snapshot, persisted=True)
    return marked


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
            if not self._index.live.is_stored_whole(entry):
                # It is gone from the index until the store has been read.
                self._disagree()
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
        changed = await self._read_changed()
        await self._forget_gone()
        seen, stored = self._observation, self._index.stored
        unsettled = (found.header.id for found in changed if not stored.is_current(found))
        self.agreement = Agreement(
            self._index.generation,
            seen.mounted.epoch,
            seen.moment,
            seen.commits,
            frozenset(seen.live),
            frozenset(unsettled),
        )

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
            changed[at : at + CHUNK_SESSIONS] for at in range(0, len(changed), CHUNK_SESSIONS)
        )
        send, receive = trio.open_memory_channel[list[Piece]](PENDING_BATCHES)
        # Where writing fails, its readers have left before what they send to is closed.
        async with receive, PlainNursery() as nursery:
            async with send:
                # One worker stays free, so that an exact read waits for one log at most.
                for _ in range(min(max(1, self._pool.workers - 1), len(chunks))):
                    nursery.start_soon(self._read_chunks, chunks, send.clone())
            async for pieces in receive:
                await self._write(pieces, len(changed))
        return changed

    async def _read_chunks(
        self, chunks: deque[list[Snapshot]], send: trio.MemorySendChannel[list[Piece]]
    ) -> None:
        async with send:
            while chunks:
                chunk = chunks.popleft()
                pieces = self._pieces(chunk, await self._continuations(chunk))
                more = True
                while more:
                    batch, more = await self._visit(pieces)
                    if batch:
                        await send.send(batch)

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
                        self._config.extract,
                    )
                )
            return started[0]

        return pieces

    async def _write(self, pieces: list[Piece], total: int) -> None:
        await self._lane.call(self._index.write, pieces)
        self._batches += 1
        for piece in pieces:
            self._done += not isinstance(piece, SessionSlice) or piece.completes
            self._events += piece.events if isinstance(piece, SessionSlice) else 0
        self._progress(Progress(min(self._done, total), total, self._events))

    async def _forget_gone(self) -> None:
        """Remove sessions that the store lists no longer."""
        stored, live, absent = self._index.stored, self._observation.live, self._observation.absent
        if absent is None:
            listed = {snapshot.header.id for snapshot in self._observation.listed}
            known = dict.fromkeys([*stored.entries, *stored.unreadable])
            absent = tuple(session_id for session_id in known if session_id not in listed)
        gone = [each for each in absent if each not in live and stored.holds(each)]
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


def _take(
    pieces: Callable[[SessionStore], Iterator[Piece]], store: SessionStore
) -> tuple[list[Piece], bool]:
    """The next pieces, about as many as one transaction writes, and whether there may be more."""
    batch: list[Piece] = []
    documents = chars = 0
    for piece in pieces(store):
        batch.append(piece)
        if isinstance(piece, SessionSlice):
            documents += len(piece.documents)
            chars += sum(len(document.text) for document in piece.documents)
        if documents >= SLICE_EVENTS or chars >= BATCH_CHARS:
            return batch, True
    return batch, False
