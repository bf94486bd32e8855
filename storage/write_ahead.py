"""The write-ahead log of an index file: how long it is, and how it is kept short.

SQLite would copy the log into the file within the COMMIT that makes it long, which then takes tens
of milliseconds. Here a connection of its own copies, beside the writer and the readers. Where all
is copied and no reader needs the log, the next transaction begins it anew. Two more bounds hold
where that does not come about: the writer copies what is left itself, between two transactions;
and where readers that overlap never let the log go, writing should wait for them.

Without WAL there is no log, and its length stays 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import apsw

LOG_PAGES: Final = 1_000
"""Pages from which the log is copied beside the writer, about 4 MB."""

_MORE_PAGES: Final = 125
"""By how many pages it has grown when copying is tried again."""

MOST_PAGES: Final = 4_000
"""Pages from which the writer copies itself: what was written faster than it was copied."""

HELD_PAGES: Final = 16_000
"""Pages from which writing should wait for readers."""


class WriteAheadLog:
    """The log behind one writing connection."""

    def __init__(self, writer: apsw.Connection, connect: Callable[[], apsw.Connection]) -> None:
        """``connect`` opens a further connection to the same file."""
        self._writer = writer
        self._connect = connect
        self.pages = 0
        """Its length behind the last transaction."""
        self._copy_at, self._room_at, self._held_at = LOG_PAGES, MOST_PAGES, HELD_PAGES
        # In place of SQLite's own, which copies.
        writer.set_wal_hook(self._has_grown)

    def _has_grown(self, _connection: apsw.Connection, _schema: str, pages: int) -> int:
        if pages < self.pages:
            self._begin_anew()
        self.pages = pages
        return apsw.SQLITE_OK

    def _begin_anew(self) -> None:
        self.pages = 0
        self._copy_at, self._room_at, self._held_at = LOG_PAGES, MOST_PAGES, HELD_PAGES

    @property
    def is_long(self) -> bool:
        """Whether it should be copied beside the writer; not once that is for the writer to do."""
        return self._copy_at <= self.pages < self._room_at

    @property
    def is_held(self) -> bool:
        """Whether nothing should be written before ``restart`` has succeeded."""
        return self.pages >= self._held_at

    def copy(self) -> None:
        """Copy what no reader is in the way of, on any thread, one call at a time."""
        copier = self._connect()
        try:
            # Whoever closes last copies the rest; to see who is last, it would keep others out.
            copier.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            copier.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        finally:
            copier.close()
        self._copy_at = self.pages + _MORE_PAGES

    def make_room(self) -> None:
        """Copy as the writer, between two transactions, where others did not keep up."""
        if self.pages < self._room_at:
            return
        ((busy, _pages, _copied),) = self._writer.execute("PRAGMA wal_checkpoint(PASSIVE)")
        if not busy:  # else the last copy beside the writer is not finished yet
            self._room_at = self.pages + LOG_PAGES

    def restart(self) -> bool:
        """Let the next transaction begin it anew, as the writer; false while a reader needs it."""
        ((busy, _pages, _copied),) = self._writer.execute("PRAGMA wal_checkpoint(RESTART)")
        if busy:
            return False
        self._begin_anew()
        return True

    def bear(self) -> None:
        """Let it grow to twice its length before it is held again."""
        self._held_at = 2 * self.pages
