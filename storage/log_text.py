"""The text of a log file, which is the same whether it is stored plain or compressed.

Text is counted in bytes from the line start that reading begins at. A place in a file is where its
batch begins and how much text of that batch stands before it: a plain file is one byte a batch, so
there the second is always 0; in a compressed one a batch is a frame.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from hashlib import blake2b
from typing import Final

from attrs import frozen

from .contract import CorruptLog, UnsupportedLog
from .files import OpenFile
from .frames import (
    BadFrame,
    Frame,
    FrameText,
    Lookahead,
    NotAFrame,
    UnsupportedFrame,
    find_frame,
)
from .json_line import RECORD_BYTES
from .large_records import LARGE_BYTES, wait_for_turn
from .zstandard import ZstdMissing

PIECE_BYTES: Final = 1024 * 1024
"""The longest piece of text that is held for its own sake."""

SMALL_PIECE_BYTES: Final = 4096


class NotASession(CorruptLog):
    """A log file without a session header."""


@frozen
class Place:
    """A line start in a log file."""

    offset: int
    """Bytes of the file before its batch."""
    skip: int = 0
    """Bytes of text in the batch before it."""


class LogText(ABC):
    """The text of a log file as it was at one size, read once from front to back."""

    joins: bool
    """Whether what a failed append leaves may share its line with the batch that comes next."""
    whole: bool = False
    """Whether the last piece is part of a batch that was stored to its end."""
    ended: bool = False
    """Whether the last piece was the last of a whole batch."""
    torn: str | None = None
    """What says that the last batch was not stored to its end, if the file can tell."""

    @abstractmethod
    def first_line(self) -> tuple[bytes, Place]:
        """The first line without its line end, and where the next begins.

        Raises:
            NotASession, CorruptLog, UnsupportedLog
        """

    @abstractmethod
    def seek(self, place: Place) -> None:
        """Begin to read at a place."""

    @abstractmethod
    def read(self, size: int) -> bytes:
        """The next piece, at most ``size`` bytes, never of two batches; nothing at the end.

        Raises:
            CorruptLog, UnsupportedLog
        """

    @abstractmethod
    def place(self, text: int) -> Place:
        """The place ``text`` bytes behind the one that reading began at, in the current batch."""

    @abstractmethod
    def skipped(self, place: Place) -> bytes:
        """A digest of the text that a place skips; empty where it skips none.

        Raises:
            CorruptLog, UnsupportedLog
        """

    @abstractmethod
    def salvaged(self, place: Place) -> bytes:
        """The text that a place skips, which is to be written once more."""


class PlainText(LogText):
    """A plain log."""

    joins = True

    def __init__(self, file: OpenFile, name: str, size: int) -> None:
        self._file = file
        self._name = name
        self._size = size
        self._begin = 0
        self._at = 0

    def first_line(self) -> tuple[bytes, Place]:
        self.seek(Place(0))
        pieces: list[bytes] = []
        held = 0
        length = SMALL_PIECE_BYTES
        while held <= RECORD_BYTES and (piece := self.read(length)):
            end = piece.find(b"\n")
            if end >= 0:
                pieces.append(piece[:end])
                line = b"".join(pieces)
                return line, Place(len(line) + 1)
            pieces.append(piece)
            held += len(piece)
            length = PIECE_BYTES
            if held > LARGE_BYTES:
                wait_for_turn()
        raise _no_first_line(self._name, held, f"{self._size} bytes without a whole first line")

    def seek(self, place: Place) -> None:
        self._begin = self._at = place.offset

    def read(self, size: int) -> bytes:
        piece = self._file.read(self._at, max(min(size, self._size - self._at), 0))
        self._at += len(piece)
        return piece

    def place(self, text: int) -> Place:
        return Place(self._begin + text)

    def skipped(self, place: Place) -> bytes:
        return b""

    def salvaged(self, place: Place) -> bytes:
        return b""


class FramedText(LogText):
    """A log in Zstandard frames: the header in the first, then one a batch."""

    joins = False

    def __init__(self, file: OpenFile, name: str, size: int) -> None:
        self._source = Lookahead(file, size)
        self._name = name
        self._at = 0
        """Where the next frame begins."""
        self._text: FrameText | None = None
        self._before = 0
        """Text of earlier frames, counted from where reading began."""
        self._given = 0
        """Text of the current frame, what was skipped included."""
        self._next = b""

    def first_line(self) -> tuple[bytes, Place]:
        size = self._source.size
        frame = self._find(0) if size else None
        if frame is None or not frame.whole:
            raise NotASession(f"{self._name}: {size} bytes without a whole first frame")
        text = self._open(frame)
        pieces: list[bytes] = []
        held = 0
        while held <= RECORD_BYTES and (piece := self._take(text, PIECE_BYTES)):
            pieces.append(piece)
            held += len(piece)
            if held > LARGE_BYTES:
                wait_for_turn()
        line, end, rest = b"".join(pieces).partition(b"\n")
        if end and not rest:
            return line, Place(frame.end)
        fault = "its first frame must hold the header line and nothing else"
        raise _no_first_line(self._name, held, fault, CorruptLog)

    def seek(self, place: Place) -> None:
        self._at = place.offset
        self._text = None
        self._before, self._given = -place.skip, 0
        if place.skip:
            self._enter(PIECE_BYTES)
            while self._given < place.skip and self._next:
                self._give(min(PIECE_BYTES, place.skip - self._given))

    def read(self, size: int) -> bytes:
        while not self._next:
            if self._at >= self._source.size or self.torn is not None:
                return b""
            self._enter(size)
        return self._give(size)

    def place(self, text: int) -> Place:
        at = text - self._before
        if self._text is None:
            return Place(self._at)
        if self.ended and at == self._given:
            return Place(self._text.frame.end)
        return Place(self._text.frame.start, at)

    def skipped(self, place: Place) -> bytes:
        if not place.skip:
            return b""
        digest = blake2b(digest_size=16)
        text = self._open(self._find(place.offset))
        left = place.skip
        while left and (piece := self._take(text, min(left, PIECE_BYTES))):
            digest.update(piece)
            left -= len(piece)
        return digest.digest() if not left else b""

    def salvaged(self, place: Place) -> bytes:
        self.seek(Place(place.offset))
        pieces: list[bytes] = []
        left = place.skip
        while left and (piece := self.read(min(left, PIECE_BYTES))):
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)

    def _enter(self, size: int) -> None:
        """Begin with the next frame."""
        frame = self._find(self._at)
        self._text = self._open(frame)
        self._before += self._given
        self._given = 0
        self._at = frame.end
        self._next = self._take(self._text, size)
        self.whole = frame.whole
        self.ended = frame.whole and not self._next
        if not frame.whole:
            self.torn = f"the frame at byte {frame.start} is torn"

    def _give(self, size: int) -> bytes:
        """Hand out what is held and hold the next: a checksum is known before the last piece."""
        assert self._text is not None
        piece, rest = self._next[:size], self._next[size:]
        self._next = rest or self._take(self._text, size)
        self._given += len(piece)
        self.ended = self.whole and not self._next
        return piece

    def _find(self, start: int) -> Frame:
        try:
            return find_frame(self._source, start)
        except BadFrame as error:
            raise self._corrupt(start, error) from error
        except UnsupportedFrame as error:
            raise UnsupportedLog(f"{self._name}: the frame at byte {start} {error}") from error

    def _open(self, frame: Frame) -> FrameText:
        try:
            return FrameText(self._source, frame)
        except ZstdMissing as error:
            raise UnsupportedLog(f"{self._name}: {error}") from error

    def _take(self, text: FrameText, size: int) -> bytes:
        try:
            return text.read(size)
        except BadFrame as error:
            raise self._corrupt(text.frame.start, error) from error

    def _corrupt(self, start: int, error: BadFrame) -> CorruptLog:
        if start == 0 and isinstance(error, NotAFrame):
            return NotASession(f"{self._name}: {error}")
        return CorruptLog(f"{self._name}: the frame at byte {start} is damaged: {error}")


def _no_first_line(
    name: str, held: int, fault: str, kind: type[CorruptLog] = NotASession
) -> CorruptLog | UnsupportedLog:
    if held > RECORD_BYTES:
        return UnsupportedLog(f"{name} line 1: longer than the limit of {RECORD_BYTES} bytes")
    return kind(f"{name}: {fault}")
