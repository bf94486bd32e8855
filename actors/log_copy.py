"""The copy of one session's log: the text of a file, read beside the Trio thread piece by piece."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from attrs import define, field

from ..messages.errors import SessionError
from ..messages.event import Event
from ..messages.header import SessionHeader
from ..storage.contract import NotFound, Snapshot
from ..storage.layout import log_name
from ..storage.log_copy import Pieces, live_pieces, stored_pieces
from .binding import Mounted
from .damage import query_error
from .reader_pool import LogReaderPool
from .runtime import Runtime


@define(eq=False)
class LogCopy:
    """A log as the text of a file, from front to back; one reader at a time."""

    header: SessionHeader
    _pieces: Pieces
    _next: Callable[[], Awaitable[bytes]]
    notes: list[str] = field(factory=list)
    """Which stored lines the text leaves out, and why; told at its end."""

    @property
    def name(self) -> str:
        """What a store calls the file, such as ``session.v2.jsonl``."""
        return log_name(self.header.version)

    async def read(self) -> bytes:
        """The next piece, at most a few MiB unless one record is longer; nothing at the end.

        Raises:
            SessionQueryError: ``SESSION_NOT_FOUND``, ``CORRUPT_SESSION``, ``PERSISTENCE_FAILED``,
                also where the log is rewritten meanwhile. What was read so far is worthless then.
        """
        try:
            return await self._next()
        except SessionError as error:
            raise query_error(self.header.id, error) from error

    def close(self) -> None:
        """Give back what is open; nothing is left to read then."""
        self._pieces.close()


def live_copy(header: SessionHeader, events: Sequence[Event], runtime: Runtime) -> LogCopy:
    """The copy of a log that is only in memory."""
    pieces = live_pieces(header, events)
    return LogCopy(header, pieces, partial(runtime.call, next, pieces, b""))


async def stored_copy(session_id: str, pool: LogReaderPool, mounted: Mounted) -> LogCopy:
    """The copy of a log in a store.

    Raises:
        NotFound, CorruptLog, UnsupportedLog, StoreFailed
    """
    store = mounted.store
    snapshot: Snapshot | None = None
    if store is not None:
        snapshot = await pool.visit(lambda store: store.stat(session_id), mounted)
    if store is None or snapshot is None:
        raise NotFound(f"session {session_id!r} is not stored")
    notes: list[str] = []
    pieces = stored_pieces(store, snapshot.header, notes)
    following = partial(pool.visit, lambda _store: next(pieces, b""), mounted)
    return LogCopy(snapshot.header, pieces, following, notes)
