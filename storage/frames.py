"""The frames of a Zstandard file: where each ends, told by its headers, and the text in it.

A frame that reaches beyond the end of the file is torn: an append that was cut short. Everything
else that is wrong with the structure is damage (persistence §4.3).
"""

from __future__ import annotations

from typing import Final

from attrs import frozen

from .files import OpenFile
from .zstandard import decompressor, zstd_error

WINDOW_BYTES: Final = 128 * 1024 * 1024
"""The most memory that a frame may ask its decompressor to hold."""

_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_BLOCK_BYTES: Final = 128 * 1024
_RLE: Final = 1
_RESERVED: Final = 3
_AHEAD_BYTES: Final = 64 * 1024
_INPUT_BYTES: Final = 256 * 1024
_DICTIONARY_ID_BYTES: Final = (0, 1, 2, 4)
_CONTENT_SIZE_BYTES: Final = (0, 2, 4, 8)


class BadFrame(Exception):
    """Bytes that no cut-short append leaves: no frame, a forbidden one, or one that lies."""


class NotAFrame(BadFrame):
    """Bytes that are no frame at all."""


class UnsupportedFrame(Exception):
    """A frame that is intact and needs more than this version gives it."""


class _Torn(Exception):
    """The file ends inside a frame."""


@frozen
class Frame:
    """Where a frame stands in its file."""

    start: int
    end: int
    """Behind its last byte, or the end of the file where the frame is torn."""
    whole: bool


class Lookahead:
    """The bytes of a file up to ``size``, read a little ahead, since headers are small."""

    def __init__(self, file: OpenFile, size: int) -> None:
        self.size = size
        self._file = file
        self._start = 0
        self._data = b""

    def read(self, offset: int, length: int) -> bytes:
        """At most ``length`` bytes from ``offset``; fewer only at the end."""
        length = max(min(length, self.size - offset), 0)
        at = offset - self._start
        if not 0 <= at <= at + length <= len(self._data):
            wanted = max(length, min(_AHEAD_BYTES, self.size - offset))
            self._start, self._data, at = offset, self._file.read(offset, wanted), 0
        return self._data[at : at + length]

    def need(self, offset: int, length: int) -> bytes:
        """Exactly ``length`` bytes. Raises ``_Torn`` where the file holds fewer."""
        data = self.read(offset, length)
        if len(data) < length:
            raise _Torn
        return data


def find_frame(source: Lookahead, start: int) -> Frame:
    """The frame that begins at ``start``, which lies before the end of the file.

    Raises:
        BadFrame, UnsupportedFrame
    """
    try:
        end = _blocks_end(source, *_header(source, start))
        return Frame(start, end, whole=True)
    except _Torn:
        return Frame(start, source.size, whole=False)


def _header(source: Lookahead, start: int) -> tuple[int, bool]:
    """Where the blocks of a frame begin, and whether a checksum follows them."""
    magic = source.read(start, len(_MAGIC))
    if not _MAGIC.startswith(magic):
        if _only_zeros(source, start):
            # A power loss can leave a file longer than what was written into it.
            raise _Torn
        raise NotAFrame(f"no frame begins with {magic.hex(' ')}")
    at = start + len(_MAGIC)
    descriptor = source.need(at, 1)[0]
    if descriptor & 0x08:
        raise BadFrame(f"its descriptor {descriptor:#04x} has the reserved bit set")
    single, sizes = bool(descriptor & 0x20), _CONTENT_SIZE_BYTES[descriptor >> 6]
    at += 1
    window = 0
    if not single:
        window = _window(source.need(at, 1)[0])
        at += 1
    at += _dictionary(source, at, _DICTIONARY_ID_BYTES[descriptor & 0x03])
    if single:
        sizes = sizes or 1
        window = _content_size(source.need(at, sizes))
    if window > WINDOW_BYTES:
        raise UnsupportedFrame(f"needs a window of {window} bytes, more than {WINDOW_BYTES}")
    source.need(at, sizes)
    return at + sizes, bool(descriptor & 0x04)


def _window(descriptor: int) -> int:
    base = 1 << (10 + (descriptor >> 3))
    return base + base // 8 * (descriptor & 0x07)


def _dictionary(source: Lookahead, at: int, length: int) -> int:
    if any(source.need(at, length)):
        raise UnsupportedFrame("needs a dictionary")
    return length


def _content_size(field: bytes) -> int:
    size = int.from_bytes(field, "little")
    return size + 256 if len(field) == 2 else size


def _only_zeros(source: Lookahead, start: int) -> bool:
    while start < source.size:
        data = source.read(start, _INPUT_BYTES)
        if not data:
            break
        if data.count(0) != len(data):
            return False
        start += len(data)
    return True


def _blocks_end(source: Lookahead, at: int, checksum: bool) -> int:
    last = False
    while not last:
        block = int.from_bytes(source.need(at, 3), "little")
        last, kind, size = bool(block & 1), block >> 1 & 3, block >> 3
        if kind == _RESERVED:
            raise BadFrame(f"the block at byte {at} is of the reserved type")
        if size > _BLOCK_BYTES:
            raise BadFrame(f"the block at byte {at} claims {size} bytes, over {_BLOCK_BYTES}")
        at += 3 + (1 if kind == _RLE else size)
    end = at + (4 if checksum else 0)
    if end > source.size:
        raise _Torn
    return end


class FrameText:
    """The text of one frame, in pieces: however much it expands to, only a piece is held."""

    def __init__(self, source: Lookahead, frame: Frame) -> None:
        """Raises ``ZstdMissing``."""
        self.frame = frame
        self._source = source
        self._decompressor = decompressor()
        self._at = frame.start

    def read(self, size: int) -> bytes:
        """The next bytes, at most ``size``; nothing at the end of what the frame gives.

        Raises:
            BadFrame: a whole frame that does not decompress, or not to what its checksum says.
        """
        try:
            return self._read(size)
        except zstd_error() as error:
            if self.frame.whole:
                raise BadFrame(str(error)) from error
            # What a torn frame holds behind its last sound block is lost anyway.
            self._at = self.frame.end
            return b""

    def _read(self, size: int) -> bytes:
        while not self._decompressor.eof:
            data = b""
            if self._decompressor.needs_input:
                length = min(self.frame.end - self._at, _INPUT_BYTES)
                data = self._source.read(self._at, length)
                if not data:
                    return b""
                self._at += len(data)
            if text := self._decompressor.decompress(data, size):
                return text
        return b""
