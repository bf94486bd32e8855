"""The simulated disk: the store's file operations on a ``Medium``, with faults drawn from a stream.

It behaves as the operating system's disk does, to the kinds of its errors; one suite of tests runs
on both. It promises no more than POSIX does: data is safe once synced, and a name once its
directory is.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from types import TracebackType
from typing import Final, NoReturn, Self

from attrs import define, field, frozen

from ..storage.files import Entry, FileStat, OpenFile
from .medium import DirectoryNode, FileNode, Medium, Naming, Node, Truncate, Write
from .tidings import Tiding
from .trace import Trace
from .watcher import SimulatedWatcher, open_watcher

STAMP_NS: Final = 4_000_000
"""File times move in steps of this: two changes in quick succession look like one."""
_NAME_BYTES: Final = 255


@frozen
class DiskFaults:
    """What goes wrong, as the chance of each single operation between 0 and 1."""

    read_error: float = 0.0
    """Of a look, a listing, an opening or a read: ``EIO``."""
    write_error: float = 0.0
    """Of an append, a cut, a new, a second or a removed name: ``EIO``, an append half done."""
    sync_error: float = 0.0
    """Of a sync: ``EIO``. Pending writes may then be lost for later syncs too."""
    slow: float = 0.0
    """Of any operation: its blocking call takes ``slow_seconds`` of virtual time more."""
    slow_seconds: float = 0.5
    capacity: int | None = None
    """Bytes that all files together may hold; what goes beyond fails half done with ``ENOSPC``."""
    watches: int = 100_000
    """Directories that may be watched at once, by all processes together."""
    refused_watch: float = 0.0
    """Of opening a watcher, or of watching one more directory."""
    notices: int = 16_384
    """How many a watcher queues; later ones are lost, which it says."""
    lost_notice: float = 0.0
    """Of each notice, as if its queue was full."""


NO_FAULTS: Final = DiskFaults()


@define(eq=False)
class SimulatedDisk:
    """A disk as one process sees it. It keeps the contract of ``storage.files.Files``."""

    medium: Medium
    _stream: random.Random
    _now_ns: Callable[[], int]
    """The wall clock, ns since the epoch."""
    _trace: Trace = field(factory=Trace)
    _process: int = 1
    faults: DiskFaults = NO_FAULTS
    operations: int = field(default=0, init=False)
    """How many operations this process has begun."""
    failures: int = field(default=0, init=False)
    """How many of them were made to fail."""
    refused_watches: int = field(default=0, init=False)
    lost_notices: int = field(default=0, init=False)
    """How often a watcher of this process said that some were lost."""
    _hooks: list[tuple[int, Callable[[], None]]] = field(factory=list, init=False)
    _owed: float = field(default=0.0, init=False)

    def peer(self, process: int) -> SimulatedDisk:
        """The same disk as another process sees it, without faults."""
        return SimulatedDisk(self.medium, self._stream, self._now_ns, self._trace, process)

    def before(self, operations: int, action: Callable[[], None]) -> None:
        """Do ``action`` right before the ``operations``-th operation from now; 1 is the next."""
        self._hooks.append((self.operations + operations, action))

    def count(self) -> None:
        """Count an operation of this process on other files, and do what is due before it."""
        self.operations += 1
        self._do_hooks()

    def forget_hooks(self) -> None:
        """Forget what is still to be done before operations to come."""
        self._hooks.clear()

    def spent(self) -> float:
        """Virtual seconds that slow operations have taken since this was asked last."""
        owed, self._owed = self._owed, 0.0
        return owed

    # -- the contract of Files ---------------------------------------------------------------------

    def now_ns(self) -> int:
        return self._now_ns()

    def process_id(self) -> int:
        return self._process

    def watcher(self, path: str) -> SimulatedWatcher | None:
        return open_watcher(self, path)

    def stat(self, path: str) -> FileStat:
        self.step(self.faults.read_error, "look at", path)
        return self._find(path).stat()

    def entries(self, path: str) -> list[Entry]:
        self.step(self.faults.read_error, "list", path)
        names = self.directory(path).names
        return [Entry(name, isinstance(names[name], DirectoryNode)) for name in sorted(names)]

    def open_reading(self, path: str) -> OpenFile:
        self.step(self.faults.read_error, "open", path)
        return SimulatedFile(self, path, self._find(path))

    def open_appending(self, path: str) -> OpenFile:
        self.step(self.faults.read_error, "open", path)
        return self._opened(path, self._file(path))

    def create(self, path: str) -> OpenFile:
        self.change("create", path)
        parent, name = self._place(path)
        if name in parent.names:
            _refuse(errno.EEXIST, path)
        return self._opened(path, self._new_file(parent, name))

    def make_directory(self, path: str) -> None:
        self.change("make directory", path)
        parent, name = self._place(path)
        if name in parent.names:
            _refuse(errno.EEXIST, path)
        stamp = self.stamp()
        parent.put(name, DirectoryNode(self.medium.new_inode(), stamp), stamp)
        self.medium.tell(parent, Tiding.CREATE, name)

    def sync_directory(self, path: str) -> None:
        directory = self.directory(path)
        self.step(self.faults.sync_error, "sync directory", path)
        self._trace.detail(f"disk: sync directory {path}")
        directory.sync()

    def link(self, source: str, target: str) -> None:
        self.change("link", target)
        file = self._find(source)
        parent, name = self._place(target)
        if name in parent.names:
            _refuse(errno.EEXIST, target)
        if isinstance(file, DirectoryNode):
            _refuse(errno.EPERM, source)
        self._name(file, parent, name)
        self.medium.tell(parent, Tiding.CREATE, name)

    def unlink(self, path: str) -> None:
        self.change("unlink", path)
        file = self._file(path)
        parent, name = self._place(path)
        self._unname(file, parent, name)
        self.medium.tell(parent, Tiding.DELETE, name)

    def lock(self, path: str) -> OpenFile:
        self.change("lock", path)
        parent, name = self._place(path)
        found = parent.names.get(name)
        if isinstance(found, DirectoryNode):
            _refuse(errno.EISDIR, path)
        node = found if found is not None else self._new_file(parent, name)
        if node.locked_by is not None:
            self.medium.tell(parent, Tiding.CLOSE_WRITE, name)
            _refuse(errno.EAGAIN, path)
        file = self._opened(path, node)
        node.locked_by = file
        return file

    # -- what only other processes do --------------------------------------------------------------

    def rename(self, source: str, target: str) -> None:
        """Give a file or a directory another name, taking it from what may have it, in one step."""
        self.change("rename to", target)
        old = Naming(*self._place(source))
        parent, name = self._place(target)
        node, replaced = self._find(source), parent.names.get(name)
        _check_replaced(node, replaced, source, target)
        if replaced is node:
            return
        moved = old.directory.naming(old.name)
        if isinstance(replaced, FileNode):
            self._unname(replaced, parent, name)
        if isinstance(node, FileNode):
            self._name(node, parent, name)
            self._unname(node, old.directory, old.name)
        else:
            parent.put(name, node, self.stamp())
            old.directory.remove(old.name, self.stamp())
        moved.directory, moved.name = parent, name
        parent.namings[name] = moved
        self.medium.tell_move(old, moved)
        if isinstance(replaced, DirectoryNode):
            self.medium.tell(replaced, Tiding.ATTRIB)
        if isinstance(node, DirectoryNode):
            self.medium.tell(node, Tiding.MOVE_SELF)
        if isinstance(replaced, DirectoryNode):
            self.medium.tell_removal(replaced)

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        self.change("remove directory", path)
        directory = self.directory(path)
        if directory.names:
            _refuse(errno.ENOTEMPTY, path)
        parent, name = self._place(path)
        parent.remove(name, self.stamp())
        self.medium.tell_removal(directory)
        self.medium.tell(parent, Tiding.DELETE, name)

    def content(self, path: str) -> bytes:
        """All that a file holds, as every process sees it; counts as no operation."""
        return bytes(self._file(path).content)

    # -- for open files ----------------------------------------------------------------------------

    def step(self, chance: float, doing: str, path: str) -> None:
        """Begin an operation. Raises ``OSError`` where it is to fail, or after a crash."""
        self._check_alive()
        self.count()
        self._check_alive()
        fate, pace = self._stream.random(), self._stream.random()
        if pace < self.faults.slow:
            self._owed += self.faults.slow_seconds
        if fate < chance:
            self._trace.note(f"disk: cannot {doing} {path}")
            self.failures += 1
            raise OSError(errno.EIO, f"simulated fault: cannot {doing}", path)

    def change(self, doing: str, path: str) -> None:
        """Begin an operation that changes something."""
        self.step(self.faults.write_error, doing, path)
        self._trace.detail(f"disk: {doing} {path}")

    def append(self, node: FileNode, data: bytes, path: str, naming: Naming) -> None:
        """Put bytes at the end of a file: all, or some and an error."""
        failure: OSError | None = None
        try:
            self.change(f"append {len(data)} bytes to", path)
        except OSError as error:
            if self.medium.frozen:
                raise
            failure = error
            data = data[: self._stream.randint(0, len(data))]
        room = self._room()
        if room is not None and len(data) > room:
            data = data[:room]
            self.failures += 1
            failure = failure or OSError(errno.ENOSPC, "simulated fault: the disk is full", path)
        if data:
            node.change(Write(len(node.content), data), self.stamp())
            self.medium.used += len(data)
            self.medium.tell(naming.directory, Tiding.MODIFY, naming.name)
        if failure is not None:
            raise failure

    def truncate(self, node: FileNode, size: int, path: str, naming: Naming) -> None:
        """Cut a file, or fill it up."""
        self.change(f"cut to {size} bytes", path)
        self.medium.used += size - len(node.content)
        node.change(Truncate(size), self.stamp())
        self.medium.tell(naming.directory, Tiding.MODIFY, naming.name)

    def sync(self, node: FileNode, path: str) -> None:
        """Bring what is pending of a file to the medium."""
        try:
            self.step(self.faults.sync_error, "sync", path)
        except OSError:
            if not self.medium.frozen and self._stream.random() < 0.5:
                node.lose_pending_writes()
            raise
        self._trace.detail(f"disk: sync {path}")
        node.sync()

    def loses_notice(self) -> bool:
        """Whether the queue of a watcher counts as full just now."""
        return self.faults.lost_notice > 0 and self._stream.random() < self.faults.lost_notice

    def stamp(self) -> int:
        """The time that a change made now gets, ns since the epoch."""
        return self._now_ns() // STAMP_NS * STAMP_NS

    # -- inside ------------------------------------------------------------------------------------

    def _check_alive(self) -> None:
        if self.medium.frozen:
            raise OSError(errno.EIO, "this machine has crashed; its disk does nothing any more")

    def _do_hooks(self) -> None:
        if self._hooks:
            due = [action for turn, action in self._hooks if turn <= self.operations]
            self._hooks = [hook for hook in self._hooks if hook[0] > self.operations]
            for action in due:
                action()

    def _room(self) -> int | None:
        capacity = self.faults.capacity
        return None if capacity is None else max(capacity - self.medium.used, 0)

    def _find(self, path: str) -> Node:
        node: Node = self.medium.root
        for name in _names(path):
            if isinstance(node, FileNode):
                _refuse(errno.ENOTDIR, path)
            if name not in node.names:
                _refuse(errno.ENOENT, path)
            node = node.names[name]
        return node

    def _file(self, path: str) -> FileNode:
        node = self._find(path)
        if isinstance(node, DirectoryNode):
            _refuse(errno.EISDIR, path)
        return node

    def directory(self, path: str) -> DirectoryNode:
        """The directory at a path; counts as no operation."""
        node = self._find(path)
        if isinstance(node, FileNode):
            _refuse(errno.ENOTDIR, path)
        return node

    def _place(self, path: str) -> tuple[DirectoryNode, str]:
        """The directory that a path's last name stands in, or would."""
        *above, name = _names(path)
        if len(os.fsencode(name)) > _NAME_BYTES:
            _refuse(errno.ENAMETOOLONG, path)
        return self.directory("/" + "/".join(above)), name

    def _new_file(self, parent: DirectoryNode, name: str) -> FileNode:
        stamp = self.stamp()
        file = FileNode(self.medium.new_inode(), stamp, stamp)
        self._name(file, parent, name)
        self.medium.tell(parent, Tiding.CREATE, name)
        return file

    def _opened(self, path: str, file: FileNode) -> SimulatedFile:
        parent, name = self._place(path)
        return SimulatedFile(self, path, file, parent.naming(name))

    def _name(self, file: FileNode, parent: DirectoryNode, name: str) -> None:
        file.links += 1
        file.changed_ns = self.stamp()
        parent.put(name, file, file.changed_ns)

    def _unname(self, file: FileNode, parent: DirectoryNode, name: str) -> None:
        file.links -= 1
        file.changed_ns = self.stamp()
        parent.remove(name, file.changed_ns)
        if not file.links:
            self.medium.used -= len(file.content)


@define(eq=False)
class SimulatedFile:
    """An open file of a simulated disk. It keeps the contract of ``storage.files.OpenFile``."""

    _disk: SimulatedDisk
    _path: str
    _node: Node
    _naming: Naming | None = None
    """The name by which it was opened for writing."""
    _closed: bool = field(default=False, init=False)

    def stat(self) -> FileStat:
        self._check_open()
        self._disk.step(self._disk.faults.read_error, "look at", self._path)
        return self._node.stat()

    def read(self, offset: int, size: int) -> bytes:
        self._check_open()
        self._disk.step(self._disk.faults.read_error, "read", self._path)
        if isinstance(self._node, DirectoryNode):
            _refuse(errno.EISDIR, self._path)
        return bytes(self._node.content[offset : offset + size])

    def append(self, data: bytes) -> None:
        node, naming = self._changing()
        self._disk.append(node, bytes(data), self._path, naming)

    def truncate(self, size: int) -> None:
        node, naming = self._changing()
        self._disk.truncate(node, size, self._path, naming)

    def sync(self) -> None:
        self._check_open()
        if isinstance(self._node, FileNode):
            self._disk.sync(self._node, self._path)
        else:
            self._disk.sync_directory(self._path)

    def close(self) -> None:
        self._check_open()
        self._closed = True
        if isinstance(self._node, FileNode) and self._node.locked_by is self:
            self._node.locked_by = None
        medium, naming = self._disk.medium, self._naming
        if naming is not None and not medium.frozen:
            medium.tell(naming.directory, Tiding.CLOSE_WRITE, naming.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _changing(self) -> tuple[FileNode, Naming]:
        self._check_open()
        if self._naming is None or isinstance(self._node, DirectoryNode):
            _refuse(errno.EBADF, self._path)
        return self._node, self._naming

    def _check_open(self) -> None:
        if self._closed:
            _refuse(errno.EBADF, self._path)


def _names(path: str) -> list[str]:
    if not path.startswith("/"):
        raise ValueError(f"paths on a simulated disk begin at its root, got {path!r}")
    return [name for name in path.split("/") if name]


def _check_replaced(node: Node, replaced: Node | None, source: str, target: str) -> None:
    """Refuse to move something to a name that it may not take."""
    if source.startswith(f"{target}/"):
        _refuse(errno.ENOTEMPTY, target)
    if isinstance(node, DirectoryNode):
        if target.startswith(f"{source}/"):
            _refuse(errno.EINVAL, target)
        if isinstance(replaced, FileNode):
            _refuse(errno.ENOTDIR, target)
        if replaced is not None and replaced is not node and replaced.names:
            _refuse(errno.ENOTEMPTY, target)
    elif isinstance(replaced, DirectoryNode):
        _refuse(errno.EISDIR, target)


def _refuse(number: int, path: str) -> NoReturn:
    """Raise what the operating system raises; ``OSError`` picks the class by the number."""
    raise OSError(number, os.strerror(number), path)
