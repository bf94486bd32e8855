"""The corpus: live and stored sessions as one, where live wins.

A session that is live is answered from memory and never touches the store; one that goes live while
it is read from the store is answered live all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from attrs import define, frozen
from trio.lowlevel import checkpoint

from ..history.cold_read import checked_closers
from ..messages.config import QueryConfig
from ..messages.errors import ErrorCode, SessionError, SessionQueryError
from ..messages.event import Event
from ..messages.header import SessionHeader
from ..messages.records import SessionListing, SessionRecord
from ..storage.contract import SessionStore, Snapshot, StoredLog, StoreError, Sweep
from ..storage.log_slices import error_code
from .damage import refuse_damage, skipped_of, source_conflict
from .reader_pool import LogReaderPool
from .registry import Sessions

R = TypeVar("R")


@frozen
class LoadedLog:
    """A log as an exact read sees it: a stored one with its in-memory closers."""

    header: SessionHeader
    inherited_event_count: int
    events: Sequence[Event]
    live: bool
    left_out: str | None = None


@define(eq=False)
class Corpus:
    """Every session that the service can read."""

    _sessions: Sessions
    _pool: LogReaderPool
    _config: QueryConfig

    async def list_sessions(self) -> SessionListing:
        """All sessions, newest first, those of one time by id."""
        try:
            sweep = await self._pool.sweep()
        except StoreError as error:
            raise SessionQueryError(ErrorCode.PERSISTENCE_FAILED, str(error)) from error
        if self._config.on_damaged == "fail":
            refuse_damage(sweep)
        return self._merged(sweep)

    def _merged(self, sweep: Sweep) -> SessionListing:
        records = {
            snapshot.header.id: SessionRecord(snapshot.header, live=False, persisted=True)
            for snapshot in sweep.snapshots
        }
        for session_id, session in self._sessions.live.items():
            stored = records.get(session_id)
            if stored is not None and stored.header.conflicts_with(session.header):
                raise source_conflict(session_id)
            records[session_id] = SessionRecord(
                session.header, live=True, persisted=stored is not None
            )
        ordered = sorted(
            records.values(), key=lambda record: (-record.header.created_at, record.header.id)
        )
        left_out = [
            skipped_of(damaged)
            for damaged in sweep.damaged
            if damaged.session_id not in self._sessions.live
        ]
        return SessionListing(
            tuple(ordered), tuple(sorted(left_out, key=lambda skipped: skipped.path))
        )

    async def project(self, session_id: str, fold: Callable[[LoadedLog], R]) -> R:
        """``fold`` of one log, made beside the Trio thread where the log is a stored one.

        Raises:
            SessionQueryError: ``SESSION_NOT_FOUND``, ``CORRUPT_SESSION``, ``PERSISTENCE_FAILED``,
                or as ``fold`` raised it.
        """
        await checkpoint()
        live = self._live(session_id)
        if live is not None:
            return folded(session_id, fold, live)
        try:
            result = await self._pool.project(session_id, lambda stored: fold(_closed(stored)))
        except SessionError as error:
            live = self._live(session_id)
            if live is None:
                raise query_error(session_id, error) from error
            return folded(session_id, fold, live)
        live = self._live(session_id)
        return result if live is None else folded(session_id, fold, live)

    async def project_many(
        self, session_ids: Iterable[str], fold: Callable[[LoadedLog], R]
    ) -> dict[str, R | SessionQueryError]:
        """``fold`` of each log, or the error of that id alone, by first occurrence."""
        ids = dict.fromkeys(session_ids)
        cold = [session_id for session_id in ids if self._live(session_id) is None]
        stored: dict[str, R | Exception] = {}
        if cold:
            stored = await self._pool.project_many(cold, lambda stored: fold(_closed(stored)))
        else:
            await checkpoint()
        results: dict[str, R | SessionQueryError] = {}
        for session_id in ids:
            live = self._live(session_id)
            try:
                if live is not None:
                    results[session_id] = folded(session_id, fold, live)
                    continue
                outcome = stored[session_id]
                if isinstance(outcome, SessionError):
                    raise query_error(session_id, outcome) from outcome
                if isinstance(outcome, Exception):
                    raise outcome
                results[session_id] = outcome
            except SessionQueryError as error:
                results[session_id] = error
        return results

    async def snapshots(
        self, session_ids: Sequence[str]
    ) -> dict[str, Snapshot | SessionQueryError]:
        """A light look at stored sessions, all in one visit; absent ones are left out."""
        if not session_ids:
            return {}
        try:
            return await self._pool.visit(lambda store: _stat_all(store, session_ids))
        except StoreError:
            return {}

    def _live(self, session_id: str) -> LoadedLog | None:
        session = self._sessions.get(session_id)
        if session is None:
            return None
        return LoadedLog(session.header, session.inherited_event_count, session.events, live=True)


def folded(session_id: str, fold: Callable[[LoadedLog], R], log: LoadedLog) -> R:
    """``fold`` of a live log, its failure as a query error."""
    try:
        return fold(log)
    except SessionQueryError:
        raise
    except SessionError as error:
        raise query_error(session_id, error) from error


def query_error(session_id: str, error: SessionError) -> SessionQueryError:
    """The query error of a failure to read one session; one that is such an error already stays."""
    if isinstance(error, SessionQueryError):
        return error
    code = error_code(error)
    if code is ErrorCode.SESSION_NOT_FOUND:
        return SessionQueryError(code, f"session {session_id!r} is neither live nor stored")
    return SessionQueryError(code, f"session {session_id!r}: {error}")


def _closed(stored: StoredLog) -> LoadedLog:
    header = stored.snapshot.header
    events = stored.events + checked_closers(stored.events, header.version)
    return LoadedLog(
        header,
        stored.inherited_event_count,
        events,
        live=False,
        left_out=stored.left_out,
    )


def _stat_all(
    store: SessionStore, session_ids: Sequence[str]
) -> dict[str, Snapshot | SessionQueryError]:
    found: dict[str, Snapshot | SessionQueryError] = {}
    for session_id in session_ids:
        try:
            snapshot = store.stat(session_id)
        except StoreError as error:
            found[session_id] = query_error(session_id, error)
        else:
            if snapshot is not None:
                found[session_id] = snapshot
    return found
