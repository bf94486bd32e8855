"""A session store that fails when it is told to, around a real one."""

from __future__ import annotations

from typing import Literal, overload

from attrs import define, field

from session_query.messages.event import Event
from session_query.messages.header import SessionHeader
from session_query.storage.contract import (
    TAIL_BYTES,
    ReadHandle,
    SessionStore,
    Snapshot,
    StoredLog,
    Sweep,
    Tail,
    WriteHandle,
)
from session_query.storage.memory import MemoryStore


@define(eq=False)
class FaultyStore(SessionStore):
    """Everything goes to ``inner``; each visit first takes the next of its planned failures."""

    inner: MemoryStore = field(factory=MemoryStore)
    append_failures: list[Exception] = field(factory=list)
    read_failures: list[Exception] = field(factory=list)
    batches: list[int] = field(factory=list, init=False)
    """The sizes of the batches that were stored."""
    open_handles: int = field(default=0, init=False)

    def stored(self, session_id: str) -> tuple[Event, ...]:
        """The stored events of one session, none where it is not stored."""
        if self.inner.stat(session_id) is None:
            return ()
        with self.inner.open(session_id, "read") as handle:
            return handle.read()

    def sweep(self) -> Sweep:
        raise_next(self.read_failures)
        return self.inner.sweep()

    def stat(self, session_id: str) -> Snapshot | None:
        raise_next(self.read_failures)
        return self.inner.stat(session_id)

    @overload
    def open(self, session_id: str, access: Literal["read"]) -> ReadHandle: ...
    @overload
    def open(self, session_id: str, access: Literal["write"]) -> WriteHandle: ...
    def open(self, session_id: str, access: Literal["read", "write"]) -> ReadHandle:
        if access == "read":
            return _Reader(self, self.inner.open(session_id, "read"))
        return _Writer(self, self.inner.open(session_id, "write"))

    def create(self, header: SessionHeader, inherited_event_count: int = 0) -> WriteHandle:
        return _Writer(self, self.inner.create(header, inherited_event_count))

    def read_tail(self, session_id: str, mark: bytes | None, limit: int = TAIL_BYTES) -> Tail:
        raise_next(self.read_failures)
        return self.inner.read_tail(session_id, mark, limit)

    def flush(self) -> None:
        self.inner.flush()


class _Reader(ReadHandle):
    def __init__(self, home: FaultyStore, inner: ReadHandle) -> None:
        self.header = inner.header
        self._home = home
        self._inner = inner
        self._open = True
        home.open_handles += 1

    def read(self, offset: int = 0, length: int | None = None) -> tuple[Event, ...]:
        raise_next(self._home.read_failures)
        return self._inner.read(offset, length)

    def read_log(self) -> StoredLog:
        raise_next(self._home.read_failures)
        return self._inner.read_log()

    def close(self) -> None:
        self._home.open_handles -= self._open
        self._open = False
        self._inner.close()


class _Writer(_Reader, WriteHandle):
    _inner: WriteHandle

    def append(self, events: tuple[Event, ...]) -> str:
        raise_next(self._home.append_failures)
        revision = self._inner.append(events)
        self._home.batches.append(len(events))
        return revision

    def flush(self) -> str:
        raise_next(self._home.append_failures)
        return self._inner.flush()


def raise_next(failures: list[Exception]) -> None:
    if failures:
        raise failures.pop(0)
