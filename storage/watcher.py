"""A watcher of directories: what a disk tells of changes in them as they happen."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable


class Untold(Exception):
    """The disk does not tell of every change, or no longer does: only looking will show them."""


class Watcher(Protocol):
    """Directories under watch. A change is told once it has been made, to the next ``drain``.

    Not for several threads at once. Every operation but ``close`` may raise ``Untold``.
    """

    def add(self, path: str) -> int:
        """Watch a directory, itself and the names in it, not what lies below; its number.

        A directory that is watched already keeps its number, under whatever path.

        Raises:
            NotADirectoryError: of a link to a directory too.
            FileNotFoundError, PermissionError
        """
        ...

    def remove(self, number: int) -> None:
        """Watch a directory no longer; harmless where it is gone."""
        ...

    def drain(self) -> Iterable[tuple[int, str]]:
        """What was touched since the last time, without waiting: directory and name in it.

        The name is empty where it was the directory itself.
        """
        ...

    def is_quiet(self) -> bool:
        """Whether a ``drain`` would find nothing."""
        ...

    def close(self) -> None:
        """End all watches; again is harmless."""
        ...


@runtime_checkable
class Watchable(Protocol):
    """A disk that can tell of changes."""

    def watcher(self, path: str) -> Watcher | None:
        """A watcher for the disk that holds ``path``, or nothing where that cannot be relied on."""
        ...
