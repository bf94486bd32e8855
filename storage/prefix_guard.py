"""A place in a log file, and what tells whether what stands before it is still the same."""

from __future__ import annotations

from hashlib import sha256
from typing import Final, TypeVar

import msgspec
from attrs import frozen

from .files import FileStat, OpenFile
from .log_text import LogText, Place

M = TypeVar("M", bound="Mark")

_GUARD_BYTES: Final = 64 * 1024
"""Bytes at either end that prove a prefix: the header and the first events, and the last ones.

Whatever moves what stands behind it shows in the ending; only an edit that keeps every length, in
the same file and further inside than this, does not.
"""

_DIGEST_BYTES: Final = 16


class Mark(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A line start of a log file, and what tells whether the lines before it are the same."""

    device: int
    inode: int
    offset: int
    line: int
    next_seq: int
    beginning: bytes
    """A digest of the first bytes of the file, as far as they stand before ``offset``."""
    ending: bytes
    """A digest of the last bytes before ``offset`` that are not part of the beginning."""
    skip: int
    """Bytes of text behind ``offset`` and before the line start; 0 in a plain file."""
    skipped: bytes
    """A digest of that text."""

    @property
    def place(self) -> Place:
        """The line start."""
        return Place(self.offset, self.skip)


def decode_mark(mark: bytes | None, kind: type[M]) -> M | None:
    """A mark from its stored form, or ``None`` where it is none of that kind."""
    if mark is None:
        return None
    try:
        return msgspec.msgpack.decode(mark, type=kind)
    except msgspec.MsgspecError:
        return None


@frozen
class PrefixGuard:
    """Makes and checks the marks of one open file in one state of it."""

    _file: OpenFile
    _stat: FileStat

    def fits(self, mark: Mark, text: LogText) -> bool:
        """Whether all before ``mark`` is as it was.

        Raises:
            CorruptLog, UnsupportedLog
        """
        stat = self._stat
        return (
            (mark.device, mark.inode) == (stat.device, stat.inode)
            and mark.offset <= stat.size
            and mark.beginning == self._beginning(mark.offset)
            and mark.ending == self._ending(mark.offset)
            and mark.skipped == text.skipped(mark.place)
        )

    def mark(
        self, text: LogText, place: Place, line: int, next_seq: int, before: Mark | None
    ) -> Mark:
        """The mark at ``place``, where reading ended that began at ``before``."""
        if before is not None and before.place == place:
            return before
        if before is not None and before.offset >= _GUARD_BYTES:
            beginning = before.beginning
        else:
            beginning = self._beginning(place.offset)
        return Mark(
            self._stat.device,
            self._stat.inode,
            place.offset,
            line,
            next_seq,
            beginning,
            self._ending(place.offset),
            place.skip,
            text.skipped(place),
        )

    def _beginning(self, offset: int) -> bytes:
        return _digest(self._file.read(0, min(offset, _GUARD_BYTES)))

    def _ending(self, offset: int) -> bytes:
        """A digest of what stands before ``offset`` and is not part of the beginning."""
        start = max(offset - _GUARD_BYTES, _GUARD_BYTES)
        return _digest(self._file.read(start, max(offset - start, 0)))


def _digest(text: bytes) -> bytes:
    # The processors of today have instructions for this one.
    return sha256(text).digest()[:_DIGEST_BYTES]
