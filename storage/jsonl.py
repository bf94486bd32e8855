"""A session store in JSONL files, in the layout and formats of the reference harness.

Reads formats 0 to 3; writes new logs in format 2 and continues logs of formats 0 to 2 in their own.
A store that is only read is never written to, locked or repaired.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Final, Literal, overload

from attrs import define, field

from ..messages.errors import ErrorCode, SessionQueryError
from ..messages.event import Event
from ..messages.header import SessionHeader
from .catalogue import Catalogue, Stored
from .claims import Claims, flush_all
from .contract import (
    TAIL_BYTES,
    AlreadyExists,
    AlreadyOwned,
    Changes,
    CorruptLog,
    NotFound,
    ReadHandle,
    SessionStore,
    Snapshot,
    StoredLog,
    StoredText,
    StoreFailed,
    Sweep,
    Tail,
    UnsupportedLog,
    WriteHandle,
)
from .files import Files, OsFiles
from .header_line import check_new
from .layout import COMPRESSED, encode_segment, log_name, project_name
from .log_file import Piece, read_piece, salvaged_text
from .log_reader import LogReader
from .log_writer import LogWriter
from .notices import Notices, follow_root
from .open_text import OpenText
from .prefix_guard import Mark, decode_mark
from .slices import check_batch, check_bounds
from .zstandard import ZstdMissing, compress, require_zstd

WRITABLE: Final = frozenset({0, 1, 2})
"""The formats that a log may be continued in."""

_NAME_BYTES: Final = 255
"""The longest directory name of the usual file systems."""

_OS_FILES: Final = OsFiles()


class JsonlStore(SessionStore):
    """Sessions below a root directory, one log file each."""

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        compression: Literal["none", "zstd"] = "none",
        files: Files | None = None,
    ) -> None:
        """``root`` is made absolute once and need not exist. ``files`` is the disk.

        ``compression`` is that of new logs; logs of both kinds are read, and continued as they are.

        Raises:
            SessionQueryError: ``INVALID_CONFIG``, for a compression that is not known or not
                installed.
        """
        self.root = os.path.abspath(root)
        self._suffix = _suffix(compression)
        self._files: Files = files if files is not None else _OS_FILES
        self._catalogue = Catalogue(self.root, self._files)
        self._notices = Notices(self._files.process_id, partial(follow_root, self._catalogue))
        self._claims: Claims[_Writer] = Claims()

    def sweep(self) -> Sweep:
        return self._notices.seen(self._catalogue.sweep())

    def stat(self, session_id: str) -> Snapshot | None:
        stored = self._catalogue.find(session_id)
        return stored.snapshot if stored is not None else None

    @overload
    def open(self, session_id: str, access: Literal["read"]) -> ReadHandle: ...
    @overload
    def open(self, session_id: str, access: Literal["write"]) -> WriteHandle: ...
    def open(self, session_id: str, access: Literal["read", "write"]) -> ReadHandle:
        stored = self._find(session_id)
        header = stored.snapshot.header
        if access == "write":
            return self._open_writer(stored)
        return LogReader(header, self.stat, self._read)

    def create(self, header: SessionHeader, inherited_event_count: int = 0) -> WriteHandle:
        check_new(header, inherited_event_count)
        segment = encode_segment(header.id)
        if len(segment) > _NAME_BYTES:
            raise ValueError(f"the id {header.id!r:.80} is too long for a directory name")
        project = project_name(header.cwd)
        name = log_name(header.version, suffix=self._suffix)
        writer = self._writer(header, project, segment, name)
        try:
            self._claims.take(header.id, writer)
        except AlreadyOwned as error:
            raise AlreadyExists(f"session {header.id!r} was created already") from error
        try:
            self._check_free(header.id)
        except BaseException:
            self._claims.release(header.id, writer)
            raise
        return writer

    def read_tail(self, session_id: str, mark: bytes | None, limit: int = TAIL_BYTES) -> Tail:
        return self._read(session_id, decode_mark(mark, Mark), limit).tail()

    def flush(self) -> None:
        flush_all(self._claims.owners())

    def changes(self, token: str | None) -> Changes | None:
        return self._notices.changes(token)

    def is_same_as(self, other: SessionStore) -> bool:
        if not isinstance(other, JsonlStore):
            return False
        return self.root == other.root and self._files is other._files

    def is_unchanged(self, token: str) -> bool:
        return self._notices.is_quiet(token)

    def unwatch(self) -> None:
        self._notices.close()

    def open_text(self, session_id: str) -> StoredText:
        stored = self._find(session_id)
        try:
            return OpenText(self._files, stored.log)
        except FileNotFoundError as error:
            raise _removed(stored) from error
        except OSError as error:
            raise StoreFailed(f"{stored.log.name} cannot be read: {error}") from error

    def _find(self, session_id: str) -> Stored:
        stored = self._catalogue.find(session_id)
        if stored is None:
            raise NotFound(f"session {session_id!r} is not stored below {self.root}")
        return stored

    def _check_free(self, session_id: str) -> None:
        try:
            stored = self._catalogue.find(session_id)
        except (CorruptLog, UnsupportedLog) as error:
            raise AlreadyExists(f"session {session_id!r} is stored, unreadable: {error}") from error
        if stored is not None:
            raise AlreadyExists(f"session {session_id!r} is stored already, in {stored.log.name}")

    def _read(self, session_id: str, mark: Mark | None, limit: int | None) -> Piece:
        return self._read_stored(self._find(session_id), mark, limit)

    def _read_stored(self, stored: Stored, mark: Mark | None, limit: int | None) -> Piece:
        try:
            return read_piece(self._files, stored.log, mark, limit)
        except FileNotFoundError as error:
            raise _removed(stored) from error
        except OSError as error:
            raise StoreFailed(f"{stored.log.name} cannot be read: {error}") from error

    def _salvaged(self, stored: Stored, mark: Mark) -> bytes:
        try:
            return salvaged_text(self._files, stored.log, mark)
        except OSError as error:
            raise StoreFailed(f"{stored.log.name} cannot be read: {error}") from error

    def _writer(self, header: SessionHeader, project: str, segment: str, name: str) -> _Writer:
        encode: Callable[[bytes], bytes] = compress if name.endswith(COMPRESSED) else bytes
        log = LogWriter(self._files, self.root, project, segment, name, encode=encode)
        return _Writer(header, self.stat, self._read, home=self, log=log)

    def _open_writer(self, stored: Stored) -> WriteHandle:
        header, log = stored.snapshot.header, stored.log
        if log.version not in WRITABLE:
            raise UnsupportedLog(f"{log.name}: logs of format {log.version} are read only")
        writer = self._writer(header, *log.name.split("/"))
        self._claims.take(header.id, writer)
        try:
            writer.find_end(stored)
        except BaseException:
            writer.close()
            raise
        return writer


def _suffix(compression: str) -> str:
    if compression == "none":
        return ""
    if compression != "zstd":
        raise SessionQueryError(
            ErrorCode.INVALID_CONFIG, f"compression must be 'none' or 'zstd', got {compression!r}"
        )
    try:
        require_zstd()
    except ZstdMissing as error:
        raise SessionQueryError(ErrorCode.INVALID_CONFIG, str(error)) from error
    return COMPRESSED


def _removed(stored: Stored) -> NotFound:
    return NotFound(f"session {stored.snapshot.header.id!r} was removed: {stored.log.name}")


@define(eq=False)
class _Writer(LogReader, WriteHandle):
    _home: JsonlStore = field(kw_only=True)
    _log: LogWriter = field(kw_only=True)
    _next_seq: int = field(init=False, default=0)

    def find_end(self, stored: Stored) -> None:
        """Own the log and find where it ends; refuse where the next batch would cut records.

        Raises:
            NotFound, AlreadyOwned, CorruptLog, UnsupportedLog, StoreFailed
        """
        try:
            self._log.own()
        except (FileNotFoundError, NotADirectoryError) as error:
            raise _removed(stored) from error
        except OSError as error:
            raise StoreFailed(f"{stored.log.name} cannot be locked: {error}") from error
        # What was found before the lock may have been another writer's to change.
        owned = self._home._find(self.header.id)
        if owned.log != stored.log:
            raise StoreFailed(f"{stored.log.name} made room for {owned.log.name}; open it again")
        piece = self._home._read_stored(owned, None, None)
        if piece.drops_records:
            raise CorruptLog(f"{piece.left_out}; writing would cut whole records off")
        # Whoever resumes a session reads it next; the first append forgets this again.
        self._events, self._piece = list(piece.events), piece
        self._log.stat, self._log.end = piece.stat, piece.mark.offset
        self._log.recovered = self._home._salvaged(owned, piece.mark)
        self._next_seq = piece.mark.next_seq

    def append(self, events: tuple[Event, ...]) -> str:
        self._check_open()
        check_batch(events, self._next_seq)
        if not events:
            return self._revision()
        if self._log.stat is None:
            revision = self._log.create(self.header, events)
        else:
            revision = self._log.append(events)
        self._next_seq += len(events)
        self._events, self._piece = [], None
        return revision

    def flush(self) -> str:
        self._check_open()
        return self._log.create(self.header, ()) if self._log.stat is None else self._revision()

    def close(self) -> None:
        super().close()
        try:
            self._log.release()
        finally:
            self._home._claims.release(self.header.id, self)

    def _revision(self) -> str:
        return self._log.stat.revision if self._log.stat is not None else "jsonl:unwritten"

    def read(self, offset: int = 0, length: int | None = None) -> tuple[Event, ...]:
        if self._log.stat is not None:
            return super().read(offset, length)
        self._check_open()
        check_bounds(offset, length)
        return ()

    def read_log(self) -> StoredLog:
        if self._log.stat is not None:
            return super().read_log()
        self._check_open()
        return StoredLog(Snapshot(self.header, self._revision(), size_bytes=0), 0, ())
