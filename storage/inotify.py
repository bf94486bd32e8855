"""Watching directories through Linux's inotify.

The kernel queues a notice before the call that made the change returns. So whoever drains the queue
learns of everything that was finished before, whichever process did it.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import sys
import termios
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from .watcher import Untold, Watcher

if TYPE_CHECKING:
    from inotify_simple import INotify

EXT, XFS, BTRFS, TMPFS = 0xEF53, 0x58465342, 0x9123683E, 0x01021994

TRUSTED: Final = frozenset({EXT, XFS, BTRFS, TMPFS})
"""File systems whose files change through this kernel alone."""

_WORD_BITS: Final = 0xFFFFFFFF
_STATFS_WORDS: Final = 64

_MODIFY, _ATTRIB, _CLOSE_WRITE = 0x2, 0x4, 0x8
_MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x40, 0x80, 0x100, 0x200
_UNMOUNT, _OVERFLOW = 0x2000, 0x4000
_ONLYDIR, _DONT_FOLLOW = 0x01000000, 0x02000000

# The closing of a file that was mapped into memory is all that is told of writing to it.
_WATCHED: Final = (
    _MODIFY | _ATTRIB | _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE
    | _ONLYDIR | _DONT_FOLLOW
)  # fmt: skip


def open_watcher(path: str) -> Watcher | None:
    """A watcher for directories of the file system that holds ``path``, where it is a trusted one.

    Raises:
        Untold: the user has no watcher left.
    """
    if sys.platform != "linux" or file_system(path) not in TRUSTED:
        return None
    from inotify_simple import INotify

    try:
        return InotifyWatcher(INotify(nonblocking=True))
    except OSError as error:
        raise Untold(f"no watcher to be had: {error}") from error


def file_system(path: str) -> int | None:
    """The number by which Linux knows the kind of a file system; ``None`` for an absent path."""
    # The first word of ``struct statfs``, which Python does not show.
    words = (ctypes.c_ulong * _STATFS_WORDS)()
    if ctypes.CDLL(None).statfs(os.fsencode(path), words) != 0:
        return None
    return words[0] & _WORD_BITS


class InotifyWatcher:
    """An inotify queue and its watches."""

    def __init__(self, inotify: INotify) -> None:
        self._inotify = inotify

    def add(self, path: str) -> int:
        try:
            return self._inotify.add_watch(path, _WATCHED)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            raise
        except OSError as error:
            raise Untold(f"{path} cannot be watched: {error}") from error

    def remove(self, number: int) -> None:
        with suppress(OSError):
            self._inotify.rm_watch(number)

    def drain(self) -> Iterable[tuple[int, str]]:
        return _touched(self._inotify)

    def is_quiet(self) -> bool:
        waiting = ctypes.c_int()
        fcntl.ioctl(self._inotify, termios.FIONREAD, waiting)
        return not waiting.value

    def close(self) -> None:
        self._inotify.close()


def _touched(inotify: INotify) -> Iterator[tuple[int, str]]:
    for number, mask, _, name in inotify.read(timeout=0):
        if mask & (_OVERFLOW | _UNMOUNT):
            raise Untold("notices were lost" if mask & _OVERFLOW else "the disk was taken away")
        yield number, name
