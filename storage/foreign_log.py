"""A log file of another agent, read from its beginning or from a mark, and never written to."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from hashlib import blake2b
from typing import Final

import msgspec
from attrs import define, field, frozen

from ..history.foreign import Progress, Translator, decode_progress, encode_progress
from ..messages.event import Event
from ..messages.header import SessionHeader
from ..messages.json import Json
from .contract import CorruptLog, Snapshot, StoreFailed, UnsupportedLog
from .files import Files, FileStat, OpenFile
from .foreign_lines import Line, content_of, lines_of, read_record, recovered_record
from .json_line import RECORD_BYTES, NotARecord, UnsupportedRecord
from .large_records import reading
from .log_file import LogFile, Piece, is_young, text_of
from .log_text import LogText, NotASession, Place, PlainText
from .prefix_guard import Mark, PrefixGuard

HEAD_LINES: Final = 200
"""Lines at the beginning of a log in which its header is looked for."""

_HEAD_BYTES: Final = 64 * 1024
"""What is read at first, because few logs are read further than that for what is in them."""

_ATTEMPTS: Final = 5
_AHEAD: Final = 8
"""A compressed log is unpacked again up to its mark, so that pieces grow with what is before it."""

Translate = Callable[[Progress | None], Translator]
"""Makes what turns records into events, at the beginning of a log or behind what was read."""


class ForeignMark(Mark, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A place in the log of another agent."""

    reading: bytes
    """A digest of the header, and of how the log was read."""
    progress: bytes
    """What the records before it left behind, as JSON."""


@frozen
class Part:
    """A session in a log file: all of it, or rows among those of another session."""

    header: SessionHeader
    sources: tuple[str, ...] = ()
    """Whose records it begins with copies of, the nearest first."""
    begin: int = 0
    """Where its first line begins, in bytes; ``end`` is where its last one ends."""
    line: int = 0
    """How many lines stand before."""
    end: int | None = None
    """Nothing where the session is the whole log."""


@frozen
class ForeignLog:
    """A log file, and how it is read."""

    file: LogFile
    part: Part
    looked: FileStat
    """The state in which the part was found."""
    young: bool
    variant: str
    """Part of its revision: what the reading depends on besides the file."""
    translate: Translate
    document: bool = False
    """Whether the file is one JSON object instead of lines."""

    @property
    def header(self) -> SessionHeader:
        """That of the session."""
        return self.part.header

    def snapshot(self, stat: FileStat | None = None, young: bool = False) -> Snapshot:
        """The session as a look at its file saw it, by default the one that found it."""
        part = self.part
        if stat is None or part.end is not None:
            # Where a part ends in another state of the file is not known.
            stat, young = self.looked, self.young
        size = stat.size if part.end is None else part.end - part.begin
        return Snapshot(part.header, stat.revision + self.variant, young, size, self.file.name)


@frozen
class ForeignPiece(Piece):
    """What one read of such a log found."""

    taken: Snapshot = field(kw_only=True)

    def snapshot(self) -> Snapshot:
        return self.taken


def read_head(
    files: Files,
    log: LogFile,
    document: bool,
    header_of: Callable[[Iterator[Mapping[str, Json]]], SessionHeader | None],
    parts_of: Callable[[SessionHeader, Iterator[Line]], Iterable[Part]],
) -> tuple[FileStat, tuple[Part, ...]]:
    """The sessions in a log, by its first records, or by all its lines; the state it was read in.

    None where no record has a date, and none is damaged: there is no session yet.

    Raises:
        OSError
        NotASession: nothing in the file is a record.
        CorruptLog, UnsupportedLog
    """
    with reading(), files.open_reading(log.path) as file:
        stat = file.stat()
        head = _Head(log.name)
        text = _text(file, log, document, stat.size)
        header = header_of(head.records(text))
        if header is not None:
            return stat, tuple(parts_of(header, head.lines(text)))
    if head.damage and not head.found:
        raise NotASession(f"{log.name} {head.damage}")
    return stat, ()


def read_foreign(files: Files, log: ForeignLog, mark: Mark | None, limit: int | None) -> Piece:
    """The events behind a mark, about ``limit`` bytes of them, or all.

    A log that grew meanwhile is read as far as it went at first.

    Raises:
        OSError
        CorruptLog, UnsupportedLog
        StoreFailed: the file kept changing.
    """
    for _ in range(_ATTEMPTS):
        now_ns = files.now_ns()
        with reading(), files.open_reading(log.file.path) as file:
            stat = file.stat()
            attempt = _Reading(file, log, stat, is_young(stat, now_ns))
            found: Piece | CorruptLog | UnsupportedLog
            try:
                found = attempt.read(mark if isinstance(mark, ForeignMark) else None, limit)
            except (CorruptLog, UnsupportedLog) as error:
                found = error
        after = files.stat(log.file.path)
        grew = after.is_same_file(stat) and after.size > stat.size
        if isinstance(found, Piece):
            if grew or after == stat:
                return found
        elif after == stat:
            raise found
    raise StoreFailed(f"{log.file.name} kept changing while it was read, {_ATTEMPTS} times")


@define
class _Head:
    """The records at the beginning of a log, and what else stands there."""

    _name: str
    found: bool = field(init=False, default=False)
    """Whether there was a record."""
    damage: str | None = field(init=False, default=None)

    def lines(self, text: LogText) -> Iterator[Line]:
        """All lines that can be read; what is damaged is told by who reads the session."""
        text.seek(Place(0))
        with suppress(CorruptLog, UnsupportedLog):
            yield from lines_of(text, self._name, 0, _HEAD_BYTES)

    def records(self, text: LogText) -> Iterator[Mapping[str, Json]]:
        text.seek(Place(0))
        for number, line in enumerate(lines_of(text, self._name, 0, _HEAD_BYTES), 1):
            content = content_of(line.text)
            if content:
                try:
                    data = read_record(content).data
                except NotARecord as error:
                    self.damage = self.damage or f"line {number}: {error}"
                except UnsupportedRecord as error:
                    raise UnsupportedLog(f"{self._name} line {number}: {error}") from error
                else:
                    self.found = True
                    yield data
            if number == HEAD_LINES:
                return


@define
class _Reading:
    """One attempt at reading a file as it was at ``stat``."""

    _file: OpenFile
    _log: ForeignLog
    _stat: FileStat
    _young: bool
    _left_out: str | None = field(init=False, default=None)

    def read(self, mark: ForeignMark | None, limit: int | None) -> Piece:
        log, file = self._log, self._log.file
        text = _text(self._file, file, log.document, self._stat.size)
        guard = PrefixGuard(self._file, self._stat)
        progress = self._progress(mark, guard, text)
        known = mark if progress is not None else None
        start = known.place if known is not None else Place(log.part.begin)
        text.seek(start)
        translator = log.translate(progress)
        stop = sys.maxsize if limit is None else max(limit, 1, start.skip // _AHEAD)
        events: list[Event] = []
        end, number, complete = start, known.line if known is not None else log.part.line, True
        last = self._stat.size if log.part.end is None else log.part.end
        for line in lines_of(text, file.name, number) if start.offset < last else ():
            read = self._events(translator, line, number + 1)
            if read is None:
                break
            events += read
            number += line.ended
            end = text.place(line.end)
            if line.end >= stop or (log.part.end is not None and end.offset >= last):
                complete = end.offset >= last
                break
        if text.torn is not None:
            self._left_out = f"{file.name} {text.torn}"
        next_seq = translator.progress.next_seq
        return ForeignPiece(
            self._stat,
            log.header,
            tuple(events),
            self._mark(guard.mark(text, end, number, next_seq, known), translator),
            known is not None,
            complete,
            self._left_out,
            False,
            self._young,
            taken=log.snapshot(self._stat, self._young),
        )

    def _events(self, translator: Translator, line: Line, number: int) -> list[Event] | None:
        """The events of a line; nothing for one that is not there as a whole yet."""
        content = content_of(line.text)
        if not content and line.ended:
            return []
        try:
            return translator.take(read_record(content))
        except NotARecord as error:
            if line.ended:
                return self._salvaged(translator, content, str(error))
            name, length = self._log.file.name, len(line.text)
            self._left_out = f"{name} line {number}: {length} bytes without a line end"
            return None
        except UnsupportedRecord as error:
            raise UnsupportedLog(f"{self._log.file.name} line {number}: {error}") from error

    def _salvaged(self, translator: Translator, content: bytes, reason: str) -> list[Event]:
        recovered = recovered_record(content, translator.is_record)
        if recovered is None:
            return translator.unreadable(content, reason)
        at, record = recovered
        return [*translator.unreadable(content[:at], reason), *translator.take(record)]

    def _progress(
        self, mark: ForeignMark | None, guard: PrefixGuard, text: LogText
    ) -> Progress | None:
        """What the records before a mark left behind, if they are still those."""
        if mark is None or mark.reading != self._name or not guard.fits(mark, text):
            return None
        try:
            return decode_progress(mark.progress)
        except ValueError:
            return None

    @property
    def _name(self) -> bytes:
        """Names all that the events depend on besides the file."""
        how = repr((self._log.header, self._log.variant))
        return blake2b(how.encode(), digest_size=16).digest()

    def _mark(self, at: Mark, translator: Translator) -> Mark:
        if isinstance(at, ForeignMark):
            return at
        progress = encode_progress(translator.progress)
        return ForeignMark(
            at.device,
            at.inode,
            at.offset,
            at.line,
            at.next_seq,
            at.beginning,
            at.ending,
            at.skip,
            at.skipped,
            self._name,
            progress,
        )


class _Document(PlainText):
    """A file that is one JSON object, a session and its items, as if each stood on a line."""

    def __init__(self, file: OpenFile, name: str, size: int) -> None:
        if size > RECORD_BYTES:
            raise UnsupportedLog(f"{name}: {size} bytes is longer than the limit of {RECORD_BYTES}")
        self._lines = _document_lines(file.read(0, size), name)
        super().__init__(file, name, len(self._lines))

    def read(self, size: int) -> bytes:
        piece = self._lines[self._at : self._at + size]
        self._at += len(piece)
        return piece


class _Members(msgspec.Struct, gc=False):
    session: msgspec.Raw
    items: list[msgspec.Raw]


def _document_lines(content: bytes, name: str) -> bytes:
    try:
        members = msgspec.json.decode(content_of(content), type=_Members)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise NotASession(f"{name}: not a session in one JSON object: {error}") from error
    # A line feed inside JSON text can only be white space between tokens.
    records = (bytes(record).replace(b"\n", b" ") for record in (members.session, *members.items))
    return b"\n".join(records)


def _text(file: OpenFile, log: LogFile, document: bool, size: int) -> LogText:
    return _Document(file, log.name, size) if document else text_of(file, log, size)
