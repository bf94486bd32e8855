"""What the tests of the whole service share: stores with known content, counted, and short asks."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, overload

import apsw
import pytest
from attrs import define, evolve, field
from builders import START, Log, header

from session_query.actors.service import SessionQuery
from session_query.messages.errors import ErrorCode, SessionQueryError
from session_query.messages.event import Event
from session_query.messages.header import SessionHeader
from session_query.storage.contract import (
    TAIL_BYTES,
    ReadHandle,
    SessionStore,
    Snapshot,
    Sweep,
    Tail,
    WriteHandle,
)
from session_query.storage.memory import MemoryStore


@define(eq=False)
class CountingStore(SessionStore):
    """Everything goes to ``inner`` and is counted."""

    inner: SessionStore
    calls: Counter[str] = field(factory=Counter, init=False)
    """Sweeps, stats, openings and tails."""
    tails: list[tuple[str, int]] = field(factory=list, init=False)
    """The id and the number of events of each tail that was read."""

    def forget(self) -> None:
        """Count from here on."""
        self.calls.clear()
        self.tails.clear()

    @property
    def logs_read(self) -> int:
        """How often events were read, by whatever way."""
        return self.calls["open"] + self.calls["read_tail"]

    def sweep(self) -> Sweep:
        self.calls["sweep"] += 1
        return self.inner.sweep()

    def stat(self, session_id: str) -> Snapshot | None:
        self.calls["stat"] += 1
        return self.inner.stat(session_id)

    @overload
    def open(self, session_id: str, access: Literal["read"]) -> ReadHandle: ...
    @overload
    def open(self, session_id: str, access: Literal["write"]) -> WriteHandle: ...
    def open(self, session_id: str, access: Literal["read", "write"]) -> ReadHandle:
        self.calls["open"] += 1
        return self.inner.open(session_id, access)

    def create(self, header: SessionHeader, inherited_event_count: int = 0) -> WriteHandle:
        return self.inner.create(header, inherited_event_count)

    def read_tail(self, session_id: str, mark: bytes | None, limit: int = TAIL_BYTES) -> Tail:
        tail = self.inner.read_tail(session_id, mark, limit)
        self.calls["read_tail"] += 1
        self.tails.append((session_id, len(tail.events)))
        return tail

    def flush(self) -> None:
        self.inner.flush()


def session(
    session_id: str, *texts: str, **changes: Any
) -> tuple[SessionHeader, tuple[Event, ...]]:
    """A stored session of user messages; ``changes`` are of its header."""
    return evolve(header(session_id), **changes), messages(*texts)


def messages(*texts: str, first: int = 0) -> tuple[Event, ...]:
    """User messages with the seqs from ``first`` on."""
    log = Log()
    for _ in range(first):
        log.turn_start()
    for text in texts:
        log.user(text)
    return tuple(log.events[first:])


def store_of(*sessions: tuple[SessionHeader, Iterable[Event]]) -> CountingStore:
    """A store in memory with these sessions."""
    return CountingStore(MemoryStore(sessions))


def append(store: SessionStore, session_id: str, *texts: str) -> None:
    """Append user messages to a stored session, as another process does."""
    with store.open(session_id, "write") as handle:
        handle.append(messages(*texts, first=len(handle.read())))


def damage_table(path: Path, table: str) -> None:
    """Overwrite the first page of a table of an index; all else in the file can still be read."""
    connection = apsw.Connection(str(path))
    select = "SELECT rootpage FROM sqlite_schema WHERE name = ?"
    root: Any = connection.execute(select, (table,)).get
    size: Any = connection.pragma("page_size")
    connection.close()
    with path.open("r+b") as file:
        file.seek((root - 1) * size)
        file.write(b"\xa5" * size)


def settle(root: Path) -> None:
    """Make every log below ``root`` look old, so that its revision is final."""
    for path in root.rglob("*.jsonl"):
        os.utime(path, ns=(START, START))


async def sessions_of(query: SessionQuery, words: str, **request: Any) -> list[str]:
    """The ids of one page of a session search."""
    return [hit.header.id for hit in (await query.search_sessions(words, **request)).items]


async def events_of(query: SessionQuery, session_id: str, words: str, **request: Any) -> list[int]:
    """The seqs of one page of an event search."""
    return [hit.seq for hit in (await query.search_events(session_id, words, **request)).items]


@contextmanager
def refused(code: ErrorCode, words: str = "") -> Iterator[None]:
    """A block that raises a query error of this code, with these words in its message."""
    with pytest.raises(SessionQueryError) as error:
        yield
    assert error.value.code is code, f"{error.value.code}: {error.value}"
    assert words in str(error.value)
