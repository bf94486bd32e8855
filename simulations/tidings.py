"""Tidings: what a medium says of a change at the moment it is made, in the kinds of inotify."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, Protocol


class Tiding(Enum):
    """What happened to a name in a directory, or to the directory itself."""

    CREATE = auto()
    MODIFY = auto()
    ATTRIB = auto()
    CLOSE_WRITE = auto()
    MOVED_FROM = auto()
    MOVED_TO = auto()
    DELETE = auto()
    MOVE_SELF = auto()
    DELETE_SELF = auto()
    IGNORED = auto()
    """A watch has ended, because it was removed or its directory was."""


TOLD: Final = frozenset(Tiding) - {Tiding.MOVE_SELF, Tiding.DELETE_SELF}
"""What the product's watcher asks for."""


class Listener(Protocol):
    """Who is told."""

    def tell(self, inode: int, tiding: Tiding, name: str, cookie: int) -> None:
        """Hear of a change in the directory ``inode``; no name where it is the directory itself."""
        ...

    def count(self) -> int:
        """How many directories it listens to."""
        ...
