"""A log file read from its beginning or from a mark, while others may be writing it.

A mark remembers a line start and digests of what stands before it. Where they still fit, only what
follows is read; where not, the file was rewritten and is read from the beginning.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Final

import msgspec
from attrs import define, field, frozen

from ..messages.event import Event
from ..messages.header import SessionHeader
from ..messages.json import Json
from .contract import TAIL_BYTES, CorruptLog, Snapshot, StoreFailed, Tail, UnsupportedLog
from .files import Files, FileStat, OpenFile
from .header_line import BadHeader, ForeignHeader, NotAHeader, UnsupportedHeader, read_header
from .json_line import RECORD_BYTES
from .large_records import LARGE_BYTES, reading, wait_for_turn
from .log_text import (
    PIECE_BYTES,
    SMALL_PIECE_BYTES,
    FramedText,
    LogText,
    NotASession,
    Place,
    PlainText,
)
from .prefix_guard import Mark, PrefixGuard
from .scan import Scan

HANDED_ON_BYTES: Final = 1024 * 1024
"""Of so much text of a tail the payloads are handed on as they were decoded.

They may take thirty times as much.
"""

PROVISIONAL_NS: Final = 20_000_000
"""A file that changed less than this ago may change again within the same tick of its clock."""

_ATTEMPTS: Final = 5


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
    compressed: bool = False


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
    location: str = ""
    payloads: Mapping[int, Json] = field(factory=dict, eq=False, repr=False)

    def snapshot(self) -> Snapshot:
        """The session as this read saw it."""
        return Snapshot(
            self.header, self.stat.revision, self.provisional, self.stat.size, self.location
        )

    def tail(self) -> Tail:
        """The piece in the words of the store contract."""
        return Tail(
            self.snapshot(),
            self.events,
            msgspec.msgpack.encode(self.mark),
            self.appended,
            self.complete,
            self.left_out,
            self.payloads,
        )


def is_young(stat: FileStat, now_ns: int) -> bool:
    """Whether a file changed so shortly before ``now_ns`` that another change may not show."""
    return abs(now_ns - stat.changed_ns) < PROVISIONAL_NS


def first_header(files: Files, log: LogFile) -> tuple[FileStat, SessionHeader]:
    """The header of a log and the state of the file it was read from.

    Raises:
        OSError
        NotASession, CorruptLog, UnsupportedLog
    """
    with reading(), files.open_reading(log.path) as file:
        stat = file.stat()
        return stat, _header(text_of(file, log, stat.size), log)[0]


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
        with reading(), files.open_reading(log.path) as file:
            before = file.stat()
            attempt = _Reading(files, file, log, before, is_young(before, now_ns))
            damage: CorruptLog | UnsupportedLog | None = None
            piece: Piece | None = None
            try:
                piece = attempt.read(mark, limit)
            except (CorruptLog, UnsupportedLog) as error:
                # Its frames hold what was read, and this one would hold it.
                damage = error.with_traceback(None)
        after = files.stat(log.path)
        if after == before:
            if damage is not None:
                raise damage
            if piece is not None:
                return piece
        grew = after.is_same_file(before) and after.size > before.size
        if piece is not None and grew and not attempt.torn:
            return piece
    raise StoreFailed(f"{log.name} kept changing while it was read, {_ATTEMPTS} times in a row")


def salvaged_text(files: Files, log: LogFile, mark: Mark) -> bytes:
    """The lines of a torn batch that stand before a mark. Raises ``OSError``, ``CorruptLog``."""
    with files.open_reading(log.path) as file:
        return text_of(file, log, file.stat().size).salvaged(mark.place)


def text_of(file: OpenFile, log: LogFile, size: int) -> LogText:
    """The text of an open log file, up to ``size`` bytes of the file."""
    kind = FramedText if log.compressed else PlainText
    return kind(file, log.name, size)


def _header(text: LogText, log: LogFile) -> tuple[SessionHeader, Place]:
    """The header and where the line behind it begins."""
    line, behind = text.first_line()
    try:
        return read_header(line, log.version), behind
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


@define
class _Reading:
    """One attempt at reading a file as it was at ``stat``."""

    _files: Files
    _file: OpenFile
    _log: LogFile
    _stat: FileStat
    _young: bool
    torn: bool = field(init=False, default=False)

    @property
    def _guard(self) -> PrefixGuard:
        return PrefixGuard(self._file, self._stat)

    def read(self, mark: Mark | None, limit: int | None) -> Piece:
        text = text_of(self._file, self._log, self._stat.size)
        header, body = _header(text, self._log)
        known = mark if mark is not None and self._guard.fits(mark, text) else None
        text.seek(known.place if known is not None else body)
        scan = Scan(
            self._log.name,
            header,
            line=known.line if known is not None else 1,
            next_seq=known.next_seq if known is not None else 0,
            earlier=self._earlier,
            # Whoever reads a whole log keeps what is read.
            handed_on=HANDED_ON_BYTES if limit is not None else 0,
        )
        scan.joins = text.joins
        complete = self._feed(scan, text, limit)
        self.torn = scan.torn or text.torn is not None
        return Piece(
            self._stat,
            header,
            tuple(scan.events),
            self._guard.mark(
                text, text.place(scan.offset), scan.accepted_lines, scan.next_seq, known
            ),
            known is not None,
            complete,
            scan.left_out,
            scan.drops_records,
            self._young,
            self._log.name,
            scan.payloads,
        )

    def _feed(self, scan: Scan, text: LogText, limit: int | None) -> bool:
        """Feed the lines of a text to a scan; ``False`` where it stopped before the end."""
        stop = max(limit, 1) if limit is not None else sys.maxsize
        at = 0
        # One block that grows: many small ones would stay with the allocator of the thread.
        fragment = bytearray()
        held = 0
        while True:
            # A small limit needs no large piece, but a line longer than it must still get on.
            ahead = PIECE_BYTES if scan.torn else max(stop - at, SMALL_PIECE_BYTES, held)
            piece = text.read(min(ahead, PIECE_BYTES))
            if not piece:
                break
            at += len(piece)
            scan.sealed = text.whole
            end = piece.find(b"\n")
            if held + (end if end >= 0 else len(piece)) > LARGE_BYTES:
                wait_for_turn()
            if end >= 0:
                if held + end > RECORD_BYTES:
                    scan.refuse_length(held + end)
                fragment += memoryview(piece)[:end]
                line = bytes(fragment)
                fragment = bytearray()
                last = piece.rfind(b"\n")
                scan.feed([line], stop)
                del line
                if last > end:
                    scan.feed(piece[end + 1 : last].split(b"\n"), stop)
                piece = piece[last + 1 :]
                held = 0
            held += len(piece)
            if held <= RECORD_BYTES:
                fragment += piece
            if end >= 0 and scan.offset >= stop and not scan.torn:
                return text.place(scan.offset).offset >= self._stat.size
            if text.ended and held:
                scan.refuse_fragment(held)
        scan.end(held, text.torn)
        return True

    def _earlier(self, seq: int) -> Event | None:
        """An event from before the mark, for which the log is read again from its beginning."""
        mark: Mark | None = None
        while mark is None or seq >= mark.next_seq:
            attempt = _Reading(self._files, self._file, self._log, self._stat, False)
            piece = attempt.read(mark, TAIL_BYTES)
            if seq < piece.mark.next_seq:
                return piece.events[seq - piece.mark.next_seq]
            if piece.complete:
                break
            mark = piece.mark
        return None
