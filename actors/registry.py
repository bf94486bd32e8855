"""The live sessions of a service: created, resumed and forked here, found here by id."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from types import MappingProxyType
from typing import Final, Literal, TypeVar, TypeVarTuple

import trio
from attrs import define, field, frozen
from trio.lowlevel import checkpoint, checkpoint_if_cancelled

from ..history.fork import fork_length
from ..history.replay import check_header
from ..messages.config import QueryConfig
from ..messages.errors import (
    ErrorCode,
    InvalidJson,
    LiveErrorCode,
    LiveSessionError,
    ReplayError,
    SessionError,
    SessionQueryError,
    SurfaceError,
    UnsupportedFormat,
)
from ..messages.event import Event
from ..messages.header import SessionHeader
from ..messages.json import Json, encode
from ..storage.contract import (
    AlreadyExists,
    AlreadyOwned,
    CorruptLog,
    NotFound,
    SessionStore,
    StoreError,
    WriteHandle,
)
from ..storage.journal import Journal
from ..storage.large_records import Turn
from ..storage.located import located
from .binding import StoreBinding
from .drafts import END_SEED
from .folded_log import FoldedLog
from .live_session import LiveSession
from .mailbox import running
from .runtime import Runtime
from .watch import Watch
from .write_behind import Stored, WriteBehind

WRITERS: Final = 8
"""Live sessions that write to their store at the same time."""

KEPT_CHANGES: Final = 10_000
"""Sessions whose last change is remembered, ended ones among them."""

R = TypeVar("R")
Ts = TypeVarTuple("Ts")


@define(eq=False)
class Sessions:
    """Every live session of a service, by id.

    ``create``, ``resume`` and ``fork`` are async context managers: the session lives as long as the
    block. Leaving it takes no more commits, stores what is left within ``close_timeout`` seconds,
    cancelled or not, and raises ``LiveSessionError`` (``NOT_STORED``) where that failed. Only then
    does the session leave ``live`` and its id become free.

    A store that refuses or fails while a session is opened raises ``LiveSessionError`` where the id
    is the reason (``NOT_FOUND``, ``ALREADY_EXISTS``) and ``SessionQueryError`` otherwise
    (``CORRUPT_SESSION`` for damage, ``PERSISTENCE_FAILED`` for all else), the cause chained.
    """

    _runtime: Runtime
    _binding: StoreBinding
    _config: QueryConfig
    _refused: bool = field(default=False, kw_only=True)
    """Whether the service has no live sessions because it shares its index."""
    commits: Watch = field(factory=Watch, init=False)
    """One more for each session that is attached or detached and for each commit."""
    _changes: Journal = field(factory=lambda: Journal(KEPT_CHANGES), init=False)
    """Whose each of the ``commits`` was."""
    _live: dict[str, LiveSession] = field(factory=dict, init=False)
    _present: Mapping[str, LiveSession] | None = field(default=None, init=False)
    """A copy of them, until one is attached or detached."""
    _claimed: set[str] = field(factory=set, init=False)
    """Ids from the first check of an opening until its session is gone."""
    _writers: trio.CapacityLimiter = field(
        factory=lambda: trio.CapacityLimiter(WRITERS), init=False
    )

    @property
    def live(self) -> Mapping[str, LiveSession]:
        """The live sessions in the order in which they were attached; a view that follows them."""
        return MappingProxyType(self._live)

    @property
    def present(self) -> Mapping[str, LiveSession]:
        """The live sessions as they are now; later ones do not show in it."""
        if self._present is None:
            self._present = MappingProxyType(dict(self._live))
        return self._present

    def changed_since(self, commits: int) -> list[str] | None:
        """Sessions that were attached, detached or committed to when there had been ``commits``.

        ``None`` where too much has happened since for that to be known.
        """
        return self._changes.since(commits)

    def get(self, session_id: str) -> LiveSession | None:
        """The live session of that id."""
        return self._live.get(session_id)

    @asynccontextmanager
    async def create(
        self,
        *,
        id: str | None = None,
        created_at: int | None = None,
        cwd: str | None = None,
        parent: str | None = None,
        agent_preset: str | None = None,
        delegation_depth: int = 0,
        origin: Literal["subagent"] | None = None,
        durable: bool = True,
    ) -> AsyncIterator[LiveSession]:
        """Begin a session without events.

        Args:
            id: a fresh one by default.
            created_at: ms since the epoch, now by default.
            cwd: an absolute path.
            durable: reserve the id in the mounted store and write to it. Without, or with no store
                mounted, the session is never stored, and its id may be that of a stored session.

        Raises:
            LiveSessionError: ``INVALID_HEADER``, ``ALREADY_EXISTS``.
        """
        header = SessionHeader(
            id=self._runtime.new_id() if id is None else id,
            created_at=self._runtime.now_ms() if created_at is None else created_at,
            cwd=cwd,
            parent_session=parent,
            agent_preset=agent_preset,
            delegation_depth=delegation_depth,
            origin=origin,
        )
        _check(header)
        store = self._binding.store if durable else None
        await checkpoint()
        with self._claim(header.id):
            log = FoldedLog.of(header)
            handle = await self._reserve(log, store)
            async with self._attached(log, store, handle, Stored(None, 0)) as session:
                yield session

    @asynccontextmanager
    async def fork(
        self,
        source: str | LiveSession,
        boundary: int | None = None,
        *,
        new_id: str | None = None,
        created_at: int | None = None,
        agent_preset: str | None = None,
        delegation_depth: int = 0,
        origin: Literal["subagent"] | None = None,
        durable: bool = True,
    ) -> AsyncIterator[LiveSession]:
        """Begin a session with the events of a live one up to the seq ``boundary``, inclusive.

        The child has the working directory of its source and names it as its parent. It begins with
        the inherited events and a marker behind them; a source without events gives a child without
        events.

        Args:
            source: a live session or its id.
            boundary: the last event by default. No turn may be open there.

        Raises:
            LiveSessionError: in this order ``ALREADY_EXISTS``; ``NOT_FOUND``, no live session has
                that id; ``NOT_LIVE``, the session is not the live one of its id;
                ``INVALID_BOUNDARY``, also where the events of an older format cannot stand in the
                format of new logs; ``OPEN_TURN``; ``INVALID_HEADER``.
        """
        child_id = self._runtime.new_id() if new_id is None else new_id
        store = self._binding.store if durable else None
        with self._claim(child_id):
            parent = self._source(source)
            inherited = tuple(parent.events[: fork_length(parent.events, boundary)])
            header = SessionHeader(
                id=child_id,
                created_at=self._runtime.now_ms() if created_at is None else created_at,
                cwd=parent.header.cwd,
                parent_session=parent.id,
                is_seeded=bool(inherited),
                agent_preset=agent_preset,
                delegation_depth=delegation_depth,
                origin=origin,
            )
            _check(header)
            log = await self._fork_log(header, parent, inherited)
            handle = await self._reserve(log, store)
            async with self._attached(log, store, handle, Stored(None, 0)) as session:
                yield session

    @asynccontextmanager
    async def resume(self, session_id: str) -> AsyncIterator[LiveSession]:
        """Go on with a stored session, in the format it has.

        An interrupted turn is closed first, and a marker separates what was there from what comes.
        Both are events of this session that are stored like any others.

        Raises:
            LiveSessionError: ``ALREADY_EXISTS``, it is live here or written by someone else;
                ``NOT_FOUND``, it is not stored.
        """
        with self._claim(session_id):
            store = self._binding.store
            if store is None:
                raise LiveSessionError(
                    LiveErrorCode.NOT_FOUND,
                    f"session {session_id!r} is not stored: no store is mounted",
                )
            resumed = await self._call_store(
                session_id, _resume, store, session_id, self._runtime.now_ms()
            )
            async with self._attached(resumed.log, store, resumed.handle, resumed.base) as session:
                yield session

    @contextmanager
    def _claim(self, session_id: str) -> Iterator[None]:
        """Keep an id for the length of the block."""
        if self._refused:
            raise SessionQueryError(
                ErrorCode.INVALID_CONFIG,
                "a service with a shared index has no live sessions of its own: open one with"
                " an index of its own to create, resume or fork a session",
            )
        if session_id in self._claimed:
            raise LiveSessionError(
                LiveErrorCode.ALREADY_EXISTS, f"session {session_id!r} is live already"
            )
        self._claimed.add(session_id)
        try:
            yield
        finally:
            self._claimed.remove(session_id)

    def _source(self, source: str | LiveSession) -> LiveSession:
        session_id = source if isinstance(source, str) else source.id
        session = self._live.get(session_id)
        if session is None and isinstance(source, str):
            raise LiveSessionError(
                LiveErrorCode.NOT_FOUND,
                f"session {source!r} is not live; a stored one has to be resumed before a fork",
            )
        if session is None or not (isinstance(source, str) or session is source):
            raise LiveSessionError(
                LiveErrorCode.NOT_LIVE, f"this object is not the live session {session_id!r}"
            )
        return session

    async def _call_store(self, session_id: str, fn: Callable[[*Ts], R], *args: *Ts) -> R:
        try:
            turn = Turn()
            return await self._runtime.call(turn.doing(fn), *args, interrupt=turn.give_up)
        except Exception as error:
            raise _opening_failed(session_id, error) from error

    async def _fork_log(
        self, header: SessionHeader, parent: LiveSession, inherited: tuple[Event, ...]
    ) -> FoldedLog:
        try:
            return await self._runtime.call(_inherit, header, inherited, self._runtime.now_ms())
        except (ReplayError, SurfaceError, UnsupportedFormat) as error:
            raise LiveSessionError(
                LiveErrorCode.INVALID_BOUNDARY,
                f"session {parent.id!r} has log format {parent.header.version}, and what it holds "
                f"up to the boundary cannot stand in format {header.version}: {error}",
            ) from error

    async def _reserve(self, log: FoldedLog, store: SessionStore | None) -> WriteHandle | None:
        """The write handle of a new session, if it is to be stored."""
        if store is None:
            return None
        header = log.projection.header
        count = log.projection.inherited_event_count
        return await self._call_store(header.id, store.create, header, count)

    @asynccontextmanager
    async def _attached(
        self,
        log: FoldedLog,
        store: SessionStore | None,
        handle: WriteHandle | None,
        base: Stored,
    ) -> AsyncIterator[LiveSession]:
        """The live session itself, from its registration until it is drained.

        Nothing may be awaited between the opening of ``handle`` and this block, which closes it.
        """
        writer = None
        if handle is not None:
            writer = WriteBehind(
                log.projection.header.id, handle, log.events, self._runtime, self._writers, base
            )
        changed = partial(self._changed, log.projection.header.id)
        session = LiveSession(log, self._runtime, changed, base, writer, store)
        self._live[session.id], self._present = session, None
        changed()
        try:
            async with running(session):
                try:
                    await checkpoint_if_cancelled()  # a cancelled opening begins no block
                    yield session
                finally:
                    session.close(self._config.close_timeout)
        finally:
            try:
                await session.drain()
            finally:
                del self._live[session.id]
                self._present = None
                changed()

    def _changed(self, session_id: str) -> None:
        self._changes.note(session_id)
        self.commits.publish(self._changes.number)


@frozen
class _Resumed:
    handle: WriteHandle
    base: Stored
    log: FoldedLog


def _resume(store: SessionStore, session_id: str, time: int) -> _Resumed:
    """Open a stored session for writing and fold it, all in one visit of a worker thread."""
    handle = store.open(session_id, "write")
    try:
        stored = handle.read_log()
        header = stored.snapshot.header
        with located(stored.snapshot.location):
            check_header(header)
            log = FoldedLog.of(header, stored.events)
            log.projection.finish()
        log.extend(log.projection.closers())
        if log.events and log.events[-1].type != END_SEED:
            log.extend([_end_seed(log, {}, time)])
    except BaseException:
        with suppress(StoreError):
            handle.close()
        raise
    return _Resumed(handle, Stored(stored.snapshot.revision, len(stored.events)), log)


def _inherit(header: SessionHeader, inherited: tuple[Event, ...], time: int) -> FoldedLog:
    """The log of a fork; a marker stands behind what is inherited, if anything is."""
    log = FoldedLog.of(header, inherited)
    if inherited:
        log.extend([_end_seed(log, {"inherited": True}, time)])
    return log


def _end_seed(log: FoldedLog, data: dict[str, Json], time: int) -> Event:
    return Event(END_SEED, log.projection.next_seq, time, encode(data))


def _check(header: SessionHeader) -> None:
    try:
        check_header(header)
    except (ReplayError, UnsupportedFormat) as error:
        raise LiveSessionError(
            LiveErrorCode.INVALID_HEADER, f"session {header.id!r}: {error}"
        ) from error


def _opening_failed(session_id: str, error: Exception) -> SessionError:
    message = f"session {session_id!r}: {error}"
    match error:
        case NotFound():
            return LiveSessionError(LiveErrorCode.NOT_FOUND, message)
        case AlreadyExists() | AlreadyOwned():
            return LiveSessionError(LiveErrorCode.ALREADY_EXISTS, message)
        case CorruptLog() | ReplayError() | SurfaceError() | InvalidJson():
            return SessionQueryError(ErrorCode.CORRUPT_SESSION, message)
        case UnsupportedFormat():
            return SessionQueryError(ErrorCode.PERSISTENCE_FAILED, message)
        case ValueError():
            return LiveSessionError(LiveErrorCode.INVALID_HEADER, message)
    return SessionQueryError(ErrorCode.PERSISTENCE_FAILED, message)
