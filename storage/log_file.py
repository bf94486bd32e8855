"""A log file read from its beginning or from a mark, while others may be writing it.

A mark remembers a line start and digests of what stands before it. Where they still fit, only what
follows is read; where not, the file was rewritten and is read from the beginning.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

import msgspec
from attrs import define, field, frozen

from ..messages.event import Event
from ..messages.header import SessionHeader
from .contract import CorruptLog, Snapshot, StoreFailed, Tail, UnsupportedLog
from .files import Files, FileStat, OpenFile
from .header_line import BadHeader, ForeignHeader, NotAHeader, UnsupportedHeader, read_header
from .json_line import RECORD_BYTES
from .scan import Scan

PROVISIONAL_NS: Final = 20_000_000
"""A file that changed less than this ago may change again within the same tick of its clock."""

_GUARD_BYTES: Final = 256 * 1024
_CHUNK_BYTES: Final = 1024 * 1024
_SMALL_CHUNK_BYTES: Final = 4096
_ATTEMPTS: Final = 5


class NotASession(CorruptLog):
    """A log file without a session header."""


class ForeignFormat(UnsupportedLog):
    """A log of a format that this version does not read."""

    header: SessionHeader | None = None
    """What its header says, if the fields mean what they mean today."""


@frozen
class LogFile:
    """Which file to read, and the format its name tells."""

    path: str
    name: str
    """How messages call the file: its path below the root."""
    version: int


class Mark(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A line start of a log file, and what tells whether the lines before it are the same."""

    device: int
    inode: int
    offset: int
    line: int
    next_seq: int
    beginning: bytes
    ending: bytes


@frozen
class Piece:
    """What one stable read of a log file found."""

    stat: FileStat
    header: SessionHeader
    events: tuple[Event, ...]
    mark: Mark
    appended: bool
    complete: bool
    left_out: str | None
    drops_records: bool
    """Whether the torn tail holds whole, decodable records."""
    provisional: bool

    def snapshot(self) -> Snapshot:
        """The session as this read saw it."""
        return Snapshot(self.header, self.stat.revision, self.provisional, self.stat.size)

    def tail(self) -> Tail:
        """The piece in the words of the store contract."""
        return Tail(
            self.snapshot(),
            self.events,
            msgspec.msgpack.encode(self.mark),
            self.appended,
            self.complete,
            self.left_out,
        )


def decode_mark(mark: bytes | None) -> Mark | None:
    """A mark from its stored form, or ``None`` where it is none of ours."""
    if mark is None:
        return None
    try:
        return msgspec.msgpack.decode(mark, type=Mark)
    except msgspec.MsgspecError:
        return None


def is_young(stat: FileStat, now_ns: int) -> bool:
    """Whether a file changed so shortly before ``now_ns`` that another change may not show."""
    return abs(now_ns - stat.changed_ns) < PROVISIONAL_NS


def first_header(files: Files, log: LogFile) -> tuple[FileStat, SessionHeader]:
    """The header of a log and the state of the file it was read from.

    Raises:
        OSError
        NotASession, CorruptLog, UnsupportedLog
    """
    with files.open_reading(log.path) as file:
        stat = file.stat()
        return stat, _header(file, log, stat.size)[0]


def read_piece(files: Files, log: LogFile, mark: Mark | None, limit: int | None) -> Piece:
    """The events behind a mark, about ``limit`` bytes of them, or all.

    A file that only grew meanwhile is read as far as it went at first. Any other change, or a
    change together with damage, is read again.

    Raises:
        OSError
        NotASession, CorruptLog, UnsupportedLog
        StoreFailed: the file kept changing.
    """
    for _ in range(_ATTEMPTS):
        now_ns = files.now_ns()
        with files.open_reading(log.path) as file:
            before = file.stat()
            reading = _Reading(files, file, log, before, is_young(before, now_ns))
            damage: CorruptLog | UnsupportedLog | None = None
            piece: Piece | None = None
            try:
                piece = reading.read(mark, limit)
            except (CorruptLog, UnsupportedLog) as error:
                damage = error
        after = files.stat(log.path)
        if after == before:
            if damage is not None:
                raise damage
            if piece is not None:
                return piece
        grew = after.is_same_file(before) and after.size > before.size
        if piece is not None and grew and not reading.torn:
            return piece
    raise StoreFailed(f"{log.name} kept changing while it was read, {_ATTEMPTS} times in a row")


def _header(file: OpenFile, log: LogFile, size: int) -> tuple[SessionHeader, int]:
    """The header and the offset of the line behind it."""
    line = _first_line(file, log, size)
    try:
        return read_header(line, log.version), len(line) + 1
    except NotAHeader as error:
        raise NotASession(f"{log.name} line 1: {error}") from error
    except BadHeader as error:
        raise CorruptLog(f"{log.name} line 1: {error}") from error
    except ForeignHeader as error:
        refusal = ForeignFormat(f"{log.name} line 1: {error}")
        refusal.header = error.header
        raise refusal from error
    except UnsupportedHeader as error:
        raise UnsupportedLog(f"{log.name} line 1: {error}") from error


def _first_line(file: OpenFile, log: LogFile, size: int) -> bytes:
    pieces: list[bytes] = []
    offset = 0
    length = _SMALL_CHUNK_BYTES
    while offset < size and offset <= RECORD_BYTES:
        chunk = file.read(offset, min(length, size - offset))
        if not chunk:
            break
        end = chunk.find(b"\n")
        if end >= 0:
            pieces.append(chunk[:end])
            return b"".join(pieces)
        pieces.append(chunk)
        offset += len(chunk)
        length = _CHUNK_BYTES
    if offset > RECORD_BYTES:
        raise UnsupportedLog(f"{log.name} line 1: longer than the limit of {RECORD_BYTES} bytes")
    raise NotASession(f"{log.name}: {size} bytes without a whole first line")


@define
class _Reading:
    """One attempt at reading a file as it was at ``stat``."""

    _files: Files
    _file: OpenFile
    _log: LogFile
    _stat: FileStat
    _young: bool
    torn: bool = field(init=False, default=False)

    def read(self, mark: Mark | None, limit: int | None) -> Piece:
        header, body = _header(self._file, self._log, self._stat.size)
        appended = mark is not None and self._fits(mark)
        scan = Scan(
            self._log.name,
            header,
            offset=mark.offset if mark is not None and appended else body,
            line=mark.line if mark is not None and appended else 1,
            next_seq=mark.next_seq if mark is not None and appended else 0,
            earlier=self._earlier,
        )
        stop = self._stat.size if limit is None else scan.offset + max(limit, 1)
        complete = self._feed(scan, stop)
        self.torn = scan.torn
        return Piece(
            self._stat,
            header,
            tuple(scan.events),
            self._mark(scan, mark if appended else None),
            appended,
            complete,
            scan.left_out,
            scan.drops_records,
            self._young,
        )

    def _feed(self, scan: Scan, stop: int) -> bool:
        """Feed the lines of the file to a scan; ``False`` where it stopped before the end."""
        size = self._stat.size
        at = scan.offset
        fragment: list[bytes] = []
        held = 0
        while at < size:
            # A small limit needs no large chunk, but a line longer than it must still get on.
            ahead = _CHUNK_BYTES if scan.torn else max(stop - at, _SMALL_CHUNK_BYTES, held)
            chunk = self._file.read(at, min(ahead, _CHUNK_BYTES, size - at))
            if not chunk:
                break
            at += len(chunk)
            last = chunk.rfind(b"\n")
            if last < 0:
                held += len(chunk)
                if held <= RECORD_BYTES:
                    fragment.append(chunk)
                continue
            if held + chunk.find(b"\n") > RECORD_BYTES:
                self._refuse_length(scan, held + chunk.find(b"\n"))
            fragment.append(chunk[:last])
            scan.feed(b"".join(fragment).split(b"\n"), stop)
            fragment = [chunk[last + 1 :]]
            held = len(fragment[0])
            if scan.offset >= stop and scan.offset < size and not scan.torn:
                return False
        scan.end(held)
        return True

    def _refuse_length(self, scan: Scan, length: int) -> None:
        raise UnsupportedLog(
            f"{self._log.name} line {scan.line + 1}: {length} bytes is longer than the limit of"
            f" {RECORD_BYTES}"
        )

    def _earlier(self, seq: int) -> Event | None:
        """An event from before the mark, for which the log is read again from its beginning."""
        events = _Reading(self._files, self._file, self._log, self._stat, False).read(None, None)
        return events.events[seq] if seq < len(events.events) else None

    def _fits(self, mark: Mark) -> bool:
        stat = self._stat
        return (
            (mark.device, mark.inode) == (stat.device, stat.inode)
            and mark.offset <= stat.size
            and mark.beginning == self._beginning(mark.offset)
            and mark.ending == self._ending(mark.offset)
        )

    def _mark(self, scan: Scan, before: Mark | None) -> Mark:
        """The mark at the end of a scan that began at ``before``."""
        if before is not None and before.offset == scan.offset:
            return before
        if before is not None and before.offset >= _GUARD_BYTES:
            beginning = before.beginning
        else:
            beginning = self._beginning(scan.offset)
        return Mark(
            self._stat.device,
            self._stat.inode,
            scan.offset,
            scan.accepted_lines,
            scan.next_seq,
            beginning,
            self._ending(scan.offset),
        )

    def _beginning(self, offset: int) -> bytes:
        return blake2b(self._file.read(0, min(offset, _GUARD_BYTES)), digest_size=16).digest()

    def _ending(self, offset: int) -> bytes:
        """A digest of what stands before ``offset`` and is not part of the beginning."""
        start = max(offset - _GUARD_BYTES, _GUARD_BYTES)
        return blake2b(self._file.read(start, max(offset - start, 0)), digest_size=16).digest()
