"""What a simulated disk holds: what every process sees, and what a loss of power would leave.

A file's content and a directory's names are each kept twice, as they are and as they are certain to
be after a crash; between the two stand the changes since the last sync, in order. A crash keeps any
part of those: none, some, in another order, the beginning of a write. A lost write before one that
was kept leaves NUL bytes, as on a real disk.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from attrs import define, field, frozen

from ..storage.files import FileStat
from .tidings import Listener, Tiding

DEVICE: Final = 1
ROOT_INODE: Final = 2

K = TypeVar("K")


@frozen
class Write:
    """Bytes put at an offset."""

    offset: int
    data: bytes


@frozen
class Truncate:
    """A file cut, or filled up with NULs, to a size in bytes."""

    size: int


@define(eq=False)
class FileNode:
    """A file, whatever its names are."""

    inode: int
    modified_ns: int
    changed_ns: int
    content: bytearray = field(factory=bytearray)
    synced: bytearray = field(factory=bytearray)
    pending: list[Write | Truncate] = field(factory=list)
    links: int = 0
    locked_by: object | None = None

    def change(self, step: Write | Truncate, now_ns: int) -> None:
        """Change what everybody sees; the medium follows at the next sync."""
        _apply(self.content, step)
        self.pending.append(step)
        self.modified_ns = self.changed_ns = now_ns

    def sync(self) -> None:
        """Bring every pending change to the medium."""
        for step in self.pending:
            _apply(self.synced, step)
        self.pending.clear()

    def lose_pending_writes(self) -> None:
        """What a failed sync may do: later ones will no longer bring these bytes to the medium."""
        self.pending = [step for step in self.pending if isinstance(step, Truncate)]

    def stat(self) -> FileStat:
        return FileStat(
            DEVICE,
            self.inode,
            len(self.content),
            self.modified_ns,
            self.changed_ns,
            is_directory=False,
            links=self.links,
        )


@define(eq=False)
class Naming:
    """A name that a file was opened by; it follows the file where that is moved."""

    directory: DirectoryNode
    name: str


@define(eq=False)
class DirectoryNode:
    """A directory."""

    inode: int
    changed_ns: int
    names: dict[str, Node] = field(factory=dict)
    synced: dict[str, Node] = field(factory=dict)
    pending: list[tuple[str, Node | None]] = field(factory=list)
    """Names given (or, with ``None``, taken away) since the last sync."""
    namings: dict[str, Naming] = field(factory=dict)
    """Those of files that were opened under a name of this directory."""

    def naming(self, name: str) -> Naming:
        """What stands for a name in the files that are opened by it."""
        return self.namings.setdefault(name, Naming(self, name))

    def put(self, name: str, node: Node, now_ns: int) -> None:
        """Give a node a name, taking it from another one that may have it."""
        self.namings.pop(name, None)
        self.names[name] = node
        self.pending.append((name, node))
        self.changed_ns = now_ns

    def remove(self, name: str, now_ns: int) -> None:
        """Take a name away."""
        self.namings.pop(name, None)
        del self.names[name]
        self.pending.append((name, None))
        self.changed_ns = now_ns

    def sync(self) -> None:
        """Bring every pending name to the medium."""
        self.synced = dict(self.names)
        self.pending.clear()

    def stat(self) -> FileStat:
        return FileStat(DEVICE, self.inode, 4096, self.changed_ns, self.changed_ns, True)


Node = FileNode | DirectoryNode

Survives = Callable[[FileNode], bytearray]
"""What is left of a file's content."""
NamesSurvive = Callable[[DirectoryNode], dict[str, Node]]
"""What is left of a directory's names."""


@define(eq=False)
class Medium:
    """A whole disk, shared by every process that sees it."""

    root: DirectoryNode = field(factory=lambda: DirectoryNode(ROOT_INODE, 0))
    next_inode: int = ROOT_INODE + 1
    used: int = 0
    """Bytes in files that still have a name."""
    frozen: bool = False
    """After a crash: nothing can be done with it any more."""
    tells: bool = False
    """Whether it can be watched."""
    watchers: list[Listener] = field(factory=list)
    """In the order in which they were opened; no crash leaves any."""
    _moves: int = 0

    def tell(self, directory: DirectoryNode, tiding: Tiding, name: str = "") -> None:
        """Tell every watcher of a change in a directory, or of the directory itself."""
        self._tell(directory, tiding, name, 0)

    def tell_move(self, old: Naming, new: Naming) -> None:
        """Tell of a name that was moved, as of two changes that share a cookie."""
        self._moves += 1
        self._tell(old.directory, Tiding.MOVED_FROM, old.name, self._moves)
        self._tell(new.directory, Tiding.MOVED_TO, new.name, self._moves)

    def tell_removal(self, directory: DirectoryNode) -> None:
        """Tell those who watched a directory that it is gone, and that they watch it no more."""
        self.tell(directory, Tiding.DELETE_SELF)
        self.tell(directory, Tiding.IGNORED)

    def _tell(self, directory: DirectoryNode, tiding: Tiding, name: str, cookie: int) -> None:
        for watcher in self.watchers:
            watcher.tell(directory.inode, tiding, name, cookie)

    def new_inode(self) -> int:
        """The number of a new node."""
        self.next_inode += 1
        return self.next_inode - 1

    def after_power_loss(self, stream: random.Random) -> Medium:
        """What is found at the next start; ``stream`` decides about what was not synced."""
        return self._left(
            lambda file: _surviving_content(file, stream),
            lambda directory: _surviving_names(directory, stream),
        )

    def after_kill(self) -> Medium:
        """What is found when every process was killed and the machine goes on: everything."""
        return self._left(lambda file: file.content, lambda directory: directory.names)

    def _left(self, content: Survives, names: NamesSurvive) -> Medium:
        copies: dict[int, Node] = {}
        medium = Medium(next_inode=self.next_inode, tells=self.tells)

        def copy(node: Node) -> Node:
            if node.inode not in copies:
                copies[node.inode] = copy_file(node) if isinstance(node, FileNode) else tree(node)
            found = copies[node.inode]
            if isinstance(found, FileNode):
                found.links += 1
            return found

        def copy_file(node: FileNode) -> FileNode:
            left = content(node)
            medium.used += len(left)
            return FileNode(
                node.inode, node.modified_ns, node.changed_ns, bytearray(left), bytearray(left)
            )

        def tree(node: DirectoryNode) -> DirectoryNode:
            left = {name: copy(inner) for name, inner in sorted(names(node).items())}
            return DirectoryNode(node.inode, node.changed_ns, left, dict(left))

        medium.root = tree(self.root)
        return medium


def _apply(content: bytearray, step: Write | Truncate) -> None:
    match step:
        case Write(offset, data):
            content.extend(bytes(max(offset - len(content), 0)))
            content[offset : offset + len(data)] = data
        case Truncate(size):
            del content[size:]
            content.extend(bytes(size - len(content)))


def _surviving_content(file: FileNode, stream: random.Random) -> bytearray:
    left = bytearray(file.synced)
    for step in _survivors(file.pending, stream):
        if isinstance(step, Write) and stream.random() < 0.5:
            step = Write(step.offset, step.data[: stream.randint(0, len(step.data))])
        _apply(left, step)
    return left


def _surviving_names(directory: DirectoryNode, stream: random.Random) -> dict[str, Node]:
    left = dict(directory.synced)
    for name, node in _survivors(directory.pending, stream):
        if node is not None:
            left[name] = node
        else:
            left.pop(name, None)
    return left


def _survivors(pending: list[K], stream: random.Random) -> Iterator[K]:
    """A part of what was not synced: often all or nothing, else each by itself."""
    chance = stream.choice((0.0, 0.5, 1.0))
    for step in pending:
        if stream.random() < chance:
            yield step
