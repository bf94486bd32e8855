"""The file operations of the JSONL store: one small interface, and plain ``os`` calls behind it."""

from __future__ import annotations

import fcntl
import os
import stat
import time  # noqa: TID251  # the clock that file times are taken from
from struct import Struct
from types import TracebackType
from typing import Final, Protocol, Self

import msgspec

from .watcher import Watcher


class FileStat(msgspec.Struct, frozen=True, gc=False):
    """What tells one state of a file or directory from another; times in ns since the epoch."""

    device: int
    inode: int
    size: int
    modified_ns: int
    changed_ns: int
    is_directory: bool
    links: int = 1
    """How many names the file has."""

    @property
    def revision(self) -> str:
        """The state as opaque text; equal means unchanged."""
        return f"{self.device}:{self.inode}:{self.size}:{self.modified_ns}:{self.changed_ns}"

    @property
    def packed(self) -> bytes:
        """The state in few bytes, for those who keep very many; equal means unchanged."""
        return _PACKED.pack(
            self.device & _WORD,
            self.inode & _WORD,
            self.size & _WORD,
            self.modified_ns & _WORD,
            self.changed_ns & _WORD,
            self.links & _WORD,
            self.is_directory,
        )

    def is_same_file(self, other: FileStat) -> bool:
        """Whether both describe one physical file, however each was reached."""
        return self.inode == other.inode and self.device == other.device


_PACKED: Final = Struct("<6Q?")
_WORD: Final = 2**64 - 1


def on_same_device(one: bytes, other: bytes) -> bool:
    """Whether two packed states are of files on one device."""
    return one[:8] == other[:8]


def of_same_file(one: bytes, other: bytes) -> bool:
    """Whether two packed states are of one physical file."""
    return one[:16] == other[:16]


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One name in a directory; a link counts as what it points to."""

    name: str
    is_directory: bool
    is_link: bool = False


class OpenFile(Protocol):
    """A regular file, open for reading or for appending."""

    def stat(self) -> FileStat: ...

    def read(self, offset: int, size: int) -> bytes:
        """At most ``size`` bytes from ``offset``; fewer only at the end of the file."""
        ...

    def append(self, data: bytes) -> None:
        """Write all of ``data`` at the end of the file, or raise ``OSError`` part of the way."""
        ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Return once the content is on the medium."""
        ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class Files(Protocol):
    """A disk. Every operation blocks and raises ``OSError`` where the disk refuses."""

    def now_ns(self) -> int:
        """The clock that file times are taken from, in ns since the epoch."""
        ...

    def stat(self, path: str) -> FileStat:
        """Look at a path, through links."""
        ...

    def entries(self, path: str) -> list[Entry]:
        """The names in a directory, sorted."""
        ...

    def open_reading(self, path: str) -> OpenFile: ...

    def open_appending(self, path: str) -> OpenFile:
        """Open an existing file for appending, truncating and reading."""
        ...

    def create(self, path: str) -> OpenFile:
        """Create a file for its owner alone; ``FileExistsError`` where the name is taken."""
        ...

    def make_directory(self, path: str) -> None:
        """Create a directory for its owner alone; ``FileExistsError`` where it exists."""
        ...

    def sync_directory(self, path: str) -> None:
        """Return once the names in a directory are on the medium."""
        ...

    def link(self, source: str, target: str) -> None:
        """Give a file a second name; ``FileExistsError`` where the name is taken."""
        ...

    def unlink(self, path: str) -> None: ...

    def lock(self, path: str) -> OpenFile:
        """Open a file, created where it is missing, and lock it until it is closed.

        Every opening counts as another owner, in one process too, and none outlives its process.
        ``BlockingIOError`` where another opening holds the lock: nothing waits.
        """
        ...

    def process_id(self) -> int:
        """What tells this process from others on the same disk."""
        ...


class OsFiles:
    """The disk of the operating system."""

    def now_ns(self) -> int:
        return time.time_ns()

    def process_id(self) -> int:
        return os.getpid()

    def watcher(self, path: str) -> Watcher | None:
        # Only who lives long enough to be told of changes pays for what this imports.
        from .inotify import open_watcher

        return open_watcher(path)

    def stat(self, path: str) -> FileStat:
        return _file_stat(os.stat(path))

    def entries(self, path: str) -> list[Entry]:
        with os.scandir(path) as found:
            names = [Entry(entry.name, _is_directory(entry), entry.is_symlink()) for entry in found]
        return sorted(names, key=lambda entry: entry.name)

    def open_reading(self, path: str) -> OpenFile:
        return OsFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    def open_appending(self, path: str) -> OpenFile:
        return OsFile(os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC))

    def create(self, path: str) -> OpenFile:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        return OsFile(os.open(path, flags, 0o600))

    def make_directory(self, path: str) -> None:
        os.mkdir(path, 0o700)

    def sync_directory(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def link(self, source: str, target: str) -> None:
        os.link(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def lock(self, path: str) -> OpenFile:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(descriptor)
            raise
        return OsFile(descriptor)


class OsFile:
    """An open descriptor of the operating system."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def stat(self) -> FileStat:
        return _file_stat(os.fstat(self._descriptor))

    def read(self, offset: int, size: int) -> bytes:
        data = os.pread(self._descriptor, size, offset)
        if len(data) == size or not data:
            return data
        pieces = [data]
        length = len(data)
        while length < size and (
            data := os.pread(self._descriptor, size - length, offset + length)
        ):
            pieces.append(data)
            length += len(data)
        return b"".join(pieces)

    def append(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        os.fsync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        # A link that leads round in a circle must not hide its neighbours.
        return False


def _file_stat(found: os.stat_result) -> FileStat:
    return FileStat(
        found.st_dev,
        found.st_ino,
        found.st_size,
        found.st_mtime_ns,
        found.st_ctime_ns,
        stat.S_ISDIR(found.st_mode),
        found.st_nlink,
    )
