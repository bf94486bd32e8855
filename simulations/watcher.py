"""A simulated watcher: notices of changes on a simulated disk, queued as Linux's inotify does.

A notice is queued before the operation that made the change returns, whichever process made it. It
is lost where the directory is not watched yet, and with all later ones where the queue is full.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from attrs import define, field, frozen

from ..storage.watcher import Untold
from .tidings import TOLD, Tiding

if TYPE_CHECKING:
    from .disk import SimulatedDisk


@frozen
class _Notice:
    """What happened to a name in a watched directory; ``None`` for the loss of others."""

    number: int
    tiding: Tiding | None
    name: str
    cookie: int = field(default=0, eq=False)


_LOST = _Notice(-1, None, "")


@define(eq=False)
class SimulatedWatcher:
    """The watches of one process. It keeps the contract of ``storage.watcher.Watcher``."""

    _disk: SimulatedDisk
    _numbers: dict[int, int] = field(factory=dict, init=False)
    """The watched directories: numbers by inode."""
    _last: int = field(default=0, init=False)
    _queue: list[_Notice] = field(factory=list, init=False)
    _closed: bool = field(default=False, init=False)

    def add(self, path: str) -> int:
        if self._closed:
            raise ValueError("this watcher is closed")
        try:
            self._disk.step(self._disk.faults.refused_watch, "watch", path)
        except OSError as error:
            self._disk.refused_watches += 1
            raise Untold(f"{path} cannot be watched: {error}") from error
        directory = self._disk.directory(path)
        number = self._numbers.get(directory.inode)
        if number is not None:
            return number
        if sum(each.count() for each in self._disk.medium.watchers) >= self._disk.faults.watches:
            self._disk.refused_watches += 1
            refused = OSError(errno.ENOSPC, "simulated fault: too many watches", path)
            raise Untold(f"{path} cannot be watched: {refused}") from refused
        self._last += 1
        self._numbers[directory.inode] = self._last
        return self._last

    def remove(self, number: int) -> None:
        for inode in [inode for inode, each in self._numbers.items() if each == number]:
            self.tell(inode, Tiding.IGNORED, "", 0)

    def drain(self) -> Iterable[tuple[int, str]]:
        self._disk.step(0.0, "take notice", "")
        notices, self._queue = self._queue, []
        self._disk.lost_notices += _LOST in notices
        return _touched(notices)

    def is_quiet(self) -> bool:
        return not self._queue

    def close(self) -> None:
        self._closed = True
        self._numbers.clear()
        self._queue.clear()
        if self in self._disk.medium.watchers:
            self._disk.medium.watchers.remove(self)

    # -- for the medium ----------------------------------------------------------------------------

    def count(self) -> int:
        """How many directories are watched."""
        return len(self._numbers)

    def tell(self, inode: int, tiding: Tiding, name: str, cookie: int) -> None:
        """Queue what happened in a directory, if it is watched and the tiding was asked for."""
        number = self._numbers.get(inode)
        if number is None or tiding not in TOLD:
            return
        if tiding is Tiding.IGNORED:
            del self._numbers[inode]
        self._put(_Notice(number, tiding, name, cookie))

    def _put(self, notice: _Notice) -> None:
        if len(self._queue) >= self._disk.faults.notices or self._disk.loses_notice():
            if _LOST not in self._queue:
                self._queue.append(_LOST)
        elif not self._queue or self._queue[-1] != notice or notice.tiding is Tiding.IGNORED:
            self._queue.append(notice)


def _touched(notices: list[_Notice]) -> Iterator[tuple[int, str]]:
    for notice in notices:
        if notice is _LOST:
            raise Untold("notices were lost")
        yield notice.number, notice.name


def open_watcher(disk: SimulatedDisk, path: str) -> SimulatedWatcher | None:
    """A watcher for one process, where the disk has them; raises ``Untold`` where none is left."""
    if not disk.medium.tells:
        return None
    try:
        disk.step(disk.faults.refused_watch, "open a watcher for", path)
    except OSError as error:
        raise Untold(f"no watcher to be had: {error}") from error
    watcher = SimulatedWatcher(disk)
    disk.medium.watchers.append(watcher)
    return watcher
