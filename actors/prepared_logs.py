"""Stored logs that stay in memory: the next read of one costs a look at its revision.

A log is used again only after a fresh look has found the revision it was read at, in the store it
was read from; each call uses the store that is bound as it begins. Of several who want one that has
to be read, one reads and the others look again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, TypeVar

import trio
from attrs import define, field
from outcome import Error, Value, capture

from ..messages.errors import ErrorCode, SessionQueryError
from ..storage.contract import SessionStore, StoredLog
from .binding import Mounted
from .loaded_log import LoadedLog, cold_log, fold_located
from .reader_pool import LogReaderPool

UNPINNED_BYTES: Final = 64 * 1024 * 1024
"""What the logs that nobody has leased may take together."""

EVENT_BYTES: Final = 300
"""About what an event takes besides its payload."""

R = TypeVar("R")


@define(eq=False)
class PreparedLog:
    """One stored log in memory."""

    log: LoadedLog
    revision: str
    provisional: bool
    """Whether a further change might not show in the revision; the log is then not used again."""
    epoch: int
    """Of the binding of the store that it was read from."""
    size: int
    """Bytes, about."""
    restored: bool = field(default=False, init=False)
    """Whether it has passed every check of a resume."""
    leases: int = field(default=0, init=False)


@define(eq=False)
class PreparedLogs:
    """The newest logs that were read, least recently used first; leased ones are never dropped."""

    _pool: LogReaderPool
    _capacity: int
    _entries: OrderedDict[str, PreparedLog] = field(factory=OrderedDict, init=False)
    _reading: dict[str, trio.Lock] = field(factory=dict, init=False)
    """Ids whose logs are being read, each with the place where others wait."""

    async def project(self, session_id: str, fold: Callable[[LoadedLog], R]) -> R:
        """``fold`` of one stored log, made on a worker thread.

        Raises:
            SessionError: as the store or ``fold`` raised it.
        """
        _entry, result = await self._use(session_id, lambda entry: fold_located(fold, entry.log))
        self._evict()
        return result.unwrap()

    async def lease(self, session_id: str, restore: Callable[[PreparedLog], None]) -> PreparedLog:
        """One stored log that stays until ``release``, after ``restore`` on a worker thread."""
        entry, result = await self._use(session_id, restore)
        try:
            result.unwrap()
            self.retain(entry)
        finally:
            self._evict()
        return entry

    def retain(self, entry: PreparedLog) -> None:
        """Lease it once more."""
        entry.leases += 1

    def release(self, entry: PreparedLog) -> None:
        """Give one lease back."""
        entry.leases -= 1
        self._evict()

    async def _use(
        self, session_id: str, fold: Callable[[PreparedLog], R]
    ) -> tuple[PreparedLog, Value[R] | Error]:
        """A log that is as fresh as this call, and ``fold`` of it; the caller evicts."""
        mounted = self._pool.binding.mounted
        kept = await self._use_again(mounted, session_id, fold)
        if kept is not None:
            return kept
        async with self._turn(session_id):
            # Who had the turn before may just have read it.
            kept = await self._use_again(mounted, session_id, fold)
            return kept or await self._read(mounted, session_id, fold)

    async def _use_again(
        self, mounted: Mounted, session_id: str, fold: Callable[[PreparedLog], R]
    ) -> tuple[PreparedLog, Value[R] | Error] | None:
        entry = self._entries.get(session_id)
        if entry is None or entry.epoch > mounted.epoch:
            return None
        if entry.epoch == mounted.epoch and not entry.provisional:
            unchanged = partial(_unchanged, session_id, entry, fold)
            result = await self._pool.visit(unchanged, mounted)
            if result is not None:
                if self._entries.get(session_id) is entry:
                    self._entries.move_to_end(session_id)
                return entry, result
        if self._entries.get(session_id) is entry:
            del self._entries[session_id]
        return None

    async def _read(
        self, mounted: Mounted, session_id: str, fold: Callable[[PreparedLog], R]
    ) -> tuple[PreparedLog, Value[R] | Error]:
        def prepare(stored: StoredLog) -> tuple[PreparedLog, Value[R] | Error]:
            entry = _prepared(session_id, stored, mounted.epoch)
            return entry, capture(fold, entry)

        entry, result = await self._pool.project(session_id, prepare, mounted)
        if self._pool.binding.epoch == mounted.epoch:
            self._entries[session_id] = entry
        return entry, result

    @asynccontextmanager
    async def _turn(self, session_id: str) -> AsyncIterator[None]:
        lock = self._reading.setdefault(session_id, trio.Lock())
        try:
            async with lock:
                yield
        finally:
            if not lock.locked():
                self._reading.pop(session_id, None)

    def _evict(self) -> None:
        """Drop what nobody has leased, least recently used first, until the rest fits."""
        idle = {key: entry for key, entry in self._entries.items() if not entry.leases}
        held = sum(entry.size for entry in idle.values())
        for session_id, entry in idle.items():
            if len(self._entries) <= self._capacity and held <= UNPINNED_BYTES:
                break
            del self._entries[session_id]
            held -= entry.size


def _prepared(session_id: str, stored: StoredLog, epoch: int) -> PreparedLog:
    snapshot = stored.snapshot
    if snapshot.header.id != session_id:
        raise SessionQueryError(
            ErrorCode.SOURCE_CONFLICT,
            f"the store was asked for session {session_id!r} and gave {snapshot.header.id!r}",
        )
    log = cold_log(stored)
    size = sum(len(event.raw) for event in log.events) + EVENT_BYTES * len(log.events)
    return PreparedLog(log, snapshot.revision, snapshot.provisional, epoch, size)


def _unchanged(
    session_id: str, entry: PreparedLog, fold: Callable[[PreparedLog], R], store: SessionStore
) -> Value[R] | Error | None:
    """``fold`` of a kept log if it is still what the store has."""
    now = store.stat(session_id)
    if now is None or now.revision != entry.revision:
        return None
    return capture(fold, entry)
