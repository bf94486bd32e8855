"""The corpus: live and stored sessions as one, where live wins.

A session that is live is answered from memory and never touches the store; one that goes live while
it is read from the store is answered live all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from attrs import define, field
from trio.lowlevel import checkpoint

from ..messages.config import QueryConfig
from ..messages.errors import (
    ErrorCode,
    LiveErrorCode,
    LiveSessionError,
    SessionError,
    SessionQueryError,
)
from ..messages.records import SessionListing
from ..storage.contract import SessionStore, Snapshot, StoreError
from .binding import Mounted, StoreBinding
from .damage import query_error, refuse_damage, skipped_of
from .inventory import Inventory
from .loaded_log import LoadedLog, cold_log, fold_located
from .log_copy import LogCopy, live_copy, stored_copy
from .observations import Observation, restore
from .prepared_logs import PreparedLogs
from .reader_pool import LogReaderPool
from .registry import Sessions

R = TypeVar("R")


@define(eq=False)
class Corpus:
    """Every session that the service can read."""

    _sessions: Sessions
    _pool: LogReaderPool
    _inventory: Inventory
    _config: QueryConfig
    _prepared: PreparedLogs = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._prepared = PreparedLogs(self._pool, self._config.prepared_session_cache_size)

    @property
    def binding(self) -> StoreBinding:
        """Which store stored sessions are read from."""
        return self._pool.binding

    @property
    def mounted(self) -> Mounted:
        """What is bound now."""
        return self.binding.mounted

    @property
    def is_told(self) -> bool:
        """Whether the bound store tells what changes."""
        return self._inventory.tells(self.mounted)

    async def list_sessions(self) -> SessionListing:
        """All sessions, newest first, those of one time by id."""
        await checkpoint()  # looking at a store that tells what changes is none where it is quiet
        # Live sessions as of one instant before the look: whoever begins behind it is listed as
        # it was, and never as something between.
        live = dict(self._sessions.live)
        stored = [each for each, session in live.items() if session.is_stored(self.mounted.store)]
        try:
            stock = await self._inventory.look()
        except StoreError as error:
            raise SessionQueryError(ErrorCode.PERSISTENCE_FAILED, str(error)) from error
        # One that ended since may have been deleted before it was looked for.
        ended = [each for each in stored if self._sessions.live.get(each) is not live[each]]
        if self._config.on_damaged == "fail":
            refuse_damage(stock.damaged)
        left_out = [
            skipped_of(damaged) for damaged in stock.damaged if damaged.session_id not in live
        ]
        return SessionListing(
            stock.listing.merged(stock.sessions, live, ended),
            tuple(sorted(left_out, key=lambda skipped: skipped.path)),
        )

    async def project(self, session_id: str, fold: Callable[[LoadedLog], R]) -> R:
        """``fold`` of one log, made beside the Trio thread.

        Raises:
            SessionQueryError: ``SESSION_NOT_FOUND``, ``CORRUPT_SESSION``, ``PERSISTENCE_FAILED``,
                or as ``fold`` raised it.
        """
        await checkpoint()
        live = self._live(session_id)
        if live is not None:
            return await self._folded(session_id, fold, live)
        try:
            result = await self._prepared.project(session_id, fold)
        except SessionError as error:
            live = self._live(session_id)
            if live is None:
                raise query_error(session_id, error) from error
            return await self._folded(session_id, fold, live)
        live = self._live(session_id)
        return result if live is None else await self._folded(session_id, fold, live)

    async def observe(self, session_id: str) -> Observation:
        """One exact state of a session; errors as in ``project``, damage of any kind included."""
        await checkpoint()
        while True:
            live = self._live(session_id)
            if live is not None:
                return Observation(live)
            try:
                entry = await self._prepared.lease(session_id, restore)
            except SessionError as error:
                if self._live(session_id) is None:
                    raise query_error(session_id, error) from error
                continue
            if self._live(session_id) is None:
                keep = partial(self._prepared.retain, entry)
                release = partial(self._prepared.release, entry)
                return Observation(entry.log, entry.revision, keep, release)
            self._prepared.release(entry)

    async def copy(self, session_id: str) -> LogCopy:
        """The log of one session as a file; errors as in ``project``, those of a flush included."""
        await checkpoint()
        live = self._sessions.get(session_id)
        if live is not None and not live.durable:
            return live_copy(live.header, live.events, self._pool.runtime)
        try:
            return await stored_copy(session_id, self._pool, await self._flushed(session_id))
        except SessionError as error:
            raise query_error(session_id, error) from error

    async def _flushed(self, session_id: str) -> Mounted:
        """Where one session is stored, with all that was committed to it so far."""
        commits = self._sessions.commits
        while (live := self._sessions.get(session_id)) is not None:
            seen = commits.value
            try:
                await live.flush()
                return Mounted(live.store, self.mounted.epoch)
            except LiveSessionError as error:
                if error.code is not LiveErrorCode.NOT_LIVE:
                    raise
                # It is closing, and leaves the registry once it is stored.
                await commits.changed(seen)
        return self.mounted

    async def project_many(
        self,
        session_ids: Iterable[str],
        fold: Callable[[LoadedLog], R],
        mounted: Mounted | None = None,
    ) -> dict[str, R | SessionQueryError]:
        """``fold`` of each log, or the error of that id alone, by first occurrence."""
        ids = dict.fromkeys(session_ids)
        begun = {session_id: self._live(session_id) for session_id in ids}
        cold = [session_id for session_id, live in begun.items() if live is None]
        stored: dict[str, R | Exception] = {}
        if cold:
            stored = await self._pool.project_many(
                cold, lambda stored: fold_located(fold, cold_log(stored)), mounted
            )
        else:
            await checkpoint()
        results: dict[str, R | SessionQueryError] = {}
        for session_id in ids:
            live = begun[session_id] or self._live(session_id)
            try:
                if live is not None:
                    results[session_id] = await self._folded(session_id, fold, live)
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
        self, session_ids: Sequence[str], mounted: Mounted
    ) -> dict[str, Snapshot | SessionQueryError]:
        """A light look at stored sessions, all in one visit; absent ones are left out."""
        if not session_ids:
            return {}
        try:
            if self._inventory.tells(mounted):
                known = (await self._inventory.look()).sessions
                return {each: known[each] for each in session_ids if each in known}
            return await self._pool.visit(lambda store: _stat_all(store, session_ids), mounted)
        except StoreError:
            return {}

    async def _folded(self, session_id: str, fold: Callable[[LoadedLog], R], live: LoadedLog) -> R:
        """``fold`` of a live log as of now; a long one would hold up the Trio thread."""
        return await self._pool.runtime.call(folded, session_id, fold, live)

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
