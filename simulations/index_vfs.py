"""SQLite's file system in a run: the real one, with somebody told before each change of a file.

So that the power can fail in the middle of a transaction, and not only between two calls of SQLite.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import apsw
from attrs import define

_NAME: Final = "simulation"


@define(eq=False)
class _Watch:
    """Who is told, with the path of the file; nobody outside of a run."""

    told: Callable[[str], object] | None = None


_watch: Final = _Watch()


class _File(apsw.VFSFile):
    """A file of the system below."""

    def __init__(self, below: str, name: Any, flags: list[int]) -> None:
        super().__init__(below, name, flags)
        self._path = str(name.filename() if isinstance(name, apsw.URIFilename) else name)

    def xWrite(self, data: Any, offset: int) -> None:
        _tell(self._path)
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:
        _tell(self._path)
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:
        _tell(self._path)
        super().xSync(flags)


class _System(apsw.VFS):
    def __init__(self, below: str) -> None:
        self._below = below
        super().__init__(_NAME, below)

    def xOpen(self, name: Any, flags: list[int]) -> Any:
        return _File(self._below, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        _tell(filename)
        super().xDelete(filename, syncdir)


def _tell(path: str) -> None:
    if _watch.told is not None:
        _watch.told(path)


_registered: list[_System] = []
"""One for the life of the process: SQLite keeps pointers to it."""


@contextmanager
def watched_index(told: Callable[[str], object]) -> Iterator[None]:
    """Let every connection opened in the block call ``told`` with the path of a file right before
    that file is written, cut, synced or deleted."""
    before = apsw.vfs_names()[0]
    if not _registered:
        _registered.append(_System(before))
    apsw.set_default_vfs(_NAME)
    _watch.told = told
    try:
        yield
    finally:
        _watch.told = None
        apsw.set_default_vfs(before)
