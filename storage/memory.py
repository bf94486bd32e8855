"""A session store in memory, for tests and for hosts that keep nothing."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final, Literal, overload

import msgspec
from attrs import define, field, frozen

from ..messages.event import Event
from ..messages.header import SessionHeader
from .claims import Claims, flush_all
from .contract import (
    TAIL_BYTES,
    AlreadyExists,
    AlreadyOwned,
    HandleClosed,
    NotFound,
    ReadHandle,
    SessionStore,
    Snapshot,
    StoredLog,
    Sweep,
    Tail,
    WriteHandle,
)
from .header_line import check_new
from .inherited import count_inherited
from .slices import check_batch, check_bounds

_DIGEST_BYTES: Final = 16


@frozen
class _State:
    """How far a log goes, and the revision of that state."""

    length: int
    size: int
    revision: str


@define(eq=False)
class _Session:
    """A stored session. The lists only grow, and a state is set once its events stand in them.

    What tells a state is a digest of all that it holds: an index file outlives the store, and must
    not take another store's session of that id and length for this one.
    """

    header: SessionHeader
    _events: list[Event] = field(init=False, factory=list)
    _digests: list[bytes] = field(init=False)
    """Of the header and so many events."""
    _state: _State = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._digests = [_digest(b"", repr(self.header), b"")]
        self._state = _State(0, 0, self._revision())

    def append(self, events: tuple[Event, ...]) -> str:
        before = self._state
        for event in events:
            facts = event.seq, event.type, event.time, event.surface_op, event.source_event_seqs
            self._digests.append(
                _digest(self._digests[-1], repr((*facts, event.ignorable)), event.raw)
            )
        self._events.extend(events)
        length = before.length + len(events)
        size = before.size + sum(len(event.raw) for event in events)
        self._state = _State(length, size, self._revision())
        return self._state.revision

    def mark(self, length: int) -> bytes:
        """What tells the first events of this log."""
        return msgspec.msgpack.encode(_Mark(length, self._digests[length]))

    def holds(self, mark: _Mark) -> bool:
        """Whether a mark was made of the first events of this log."""
        return 0 <= mark.next_seq <= self.length and self._digests[mark.next_seq] == mark.digest

    def _revision(self) -> str:
        return f"memory:{self._digests[-1].hex()}"

    def view(self) -> tuple[Snapshot, tuple[Event, ...]]:
        """The session and its events at one moment."""
        state = self._state
        snapshot = Snapshot(self.header, state.revision, size_bytes=state.size)
        return snapshot, tuple(self._events[: state.length])

    def snapshot(self) -> Snapshot:
        state = self._state
        return Snapshot(self.header, state.revision, size_bytes=state.size)

    @property
    def length(self) -> int:
        return self._state.length


class _Mark(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    next_seq: int
    digest: bytes


class MemoryStore(SessionStore):
    """Sessions that live as long as the store does."""

    def __init__(self, sessions: Iterable[tuple[SessionHeader, Iterable[Event]]] = ()) -> None:
        """Begin with ``sessions``: headers of any format, each with its events from seq 0.

        Raises:
            ValueError: an id comes twice, or seqs are not contiguous from 0.
        """
        self._sessions: dict[str, _Session] = {}
        self._claims: Claims[WriteHandle] = Claims()
        for header, events in sessions:
            if header.id in self._sessions:
                raise ValueError(f"session {header.id!r} is given twice")
            batch = tuple(events)
            check_batch(batch, 0)
            self._store(header, batch)

    def sweep(self) -> Sweep:
        return Sweep(tuple(session.snapshot() for session in list(self._sessions.values())))

    def stat(self, session_id: str) -> Snapshot | None:
        session = self._sessions.get(session_id)
        return session.snapshot() if session is not None else None

    @overload
    def open(self, session_id: str, access: Literal["read"]) -> ReadHandle: ...
    @overload
    def open(self, session_id: str, access: Literal["write"]) -> WriteHandle: ...
    def open(self, session_id: str, access: Literal["read", "write"]) -> ReadHandle:
        header = self._session(session_id).header
        return _Reader(self, header) if access == "read" else self._writer(header)

    def create(self, header: SessionHeader, inherited_event_count: int = 0) -> WriteHandle:
        check_new(header, inherited_event_count)
        if header.id in self._sessions:
            raise AlreadyExists(f"session {header.id!r} is stored already")
        try:
            return self._writer(header)
        except AlreadyOwned as error:
            raise AlreadyExists(f"session {header.id!r} was created already") from error

    def read_tail(self, session_id: str, mark: bytes | None, limit: int = TAIL_BYTES) -> Tail:
        session = self._session(session_id)
        snapshot, events = session.view()
        start = _continued(session, mark)
        first = end = start or 0
        taken = 0
        while end < len(events) and (end == first or taken < limit):
            taken += len(events[end].raw)
            end += 1
        complete = end == len(events)
        return Tail(snapshot, events[first:end], session.mark(end), start is not None, complete)

    def flush(self) -> None:
        flush_all(self._claims.owners())

    def _session(self, session_id: str) -> _Session:
        session = self._sessions.get(session_id)
        if session is None:
            raise NotFound(f"session {session_id!r} is not stored")
        return session

    def _writer(self, header: SessionHeader) -> _Writer:
        writer = _Writer(self, header)
        self._claims.take(header.id, writer)
        return writer

    def _store(self, header: SessionHeader, events: tuple[Event, ...]) -> str:
        """Append to a session, which begins to be stored with its first batch."""
        session = self._sessions.get(header.id)
        if session is None:
            session = _Session(header)
        revision = session.append(events)
        self._sessions[header.id] = session
        return revision


def _continued(session: _Session, mark: bytes | None) -> int | None:
    """Where a tail of this log begins, or ``None`` where the mark belongs to no prefix of it."""
    try:
        known = msgspec.msgpack.decode(mark, type=_Mark) if mark is not None else None
    except msgspec.MsgspecError:
        return None
    return known.next_seq if known is not None and session.holds(known) else None


def _digest(before: bytes, facts: str, raw: bytes) -> bytes:
    digest = blake2b(before, digest_size=_DIGEST_BYTES)
    digest.update(facts.encode())
    digest.update(raw)
    return digest.digest()


@define(eq=False)
class _Reader(ReadHandle):
    _home: MemoryStore
    header: SessionHeader
    _closed: bool = field(init=False, default=False)

    def read(self, offset: int = 0, length: int | None = None) -> tuple[Event, ...]:
        self._check_open()
        end = check_bounds(offset, length)
        return self._view()[1][offset:end]

    def read_log(self) -> StoredLog:
        self._check_open()
        snapshot, events = self._view()
        inherited = count_inherited(f"session {self.header.id!r}", self.header, events)
        return StoredLog(snapshot, inherited, events)

    def close(self) -> None:
        self._closed = True

    def _view(self) -> tuple[Snapshot, tuple[Event, ...]]:
        return self._home._session(self.header.id).view()

    def _check_open(self) -> None:
        if self._closed:
            raise HandleClosed(f"this handle of session {self.header.id!r} is closed")


@define(eq=False)
class _Writer(_Reader, WriteHandle):
    def append(self, events: tuple[Event, ...]) -> str:
        self._check_open()
        stored = self._home._sessions.get(self.header.id)
        check_batch(events, stored.length if stored is not None else 0)
        if not events:
            return self._view()[0].revision
        return self._home._store(self.header, events)

    def flush(self) -> str:
        self._check_open()
        return self._home._store(self.header, ())

    def close(self) -> None:
        super().close()
        self._home._claims.release(self.header.id, self)

    def _view(self) -> tuple[Snapshot, tuple[Event, ...]]:
        if self.header.id in self._home._sessions:
            return super()._view()
        return Snapshot(self.header, "memory:unwritten", size_bytes=0), ()
