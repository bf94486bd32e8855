"""Writing one log file: it appears whole or not at all, and grows by whole batches.

A new log is written under a temporary name and linked to its own, header and first batch together.
A batch that fails is cut off again; where even that fails, or a torn tail was found at opening,
the cut is made before the next batch. In a compressed log a batch is a frame, and what could be
read of a torn one is written again as a frame of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from attrs import define, field

from ..messages.event import Event
from ..messages.header import SessionHeader
from .contract import AlreadyExists, StoreFailed
from .files import Files, FileStat, OpenFile
from .header_line import render_header
from .layout import LOCK_NAME, parse_log_name
from .ownership import is_owned, take_ownership
from .records import render_event

_TEMPORARY_NAMES: Final = 1000
"""Left-over temporary files that one directory may hold before nothing more is created in it."""


@define(eq=False)
class LogWriter:
    """The end of a log file, known to the byte."""

    _files: Files
    root: str
    project: str
    segment: str
    name: str
    _encode: Callable[[bytes], bytes] = field(kw_only=True)
    """Makes what is stored of the text of a batch."""
    stat: FileStat | None = field(init=False, default=None)
    """The file as it was last seen or left; ``None`` where there is none yet."""
    end: int = field(init=False, default=0)
    """Where the log ends; what the file holds behind it is torn."""
    recovered: bytes = field(init=False, default=b"")
    """Text behind ``end`` that is part of the log and has to be stored again."""
    _lock: OpenFile | None = field(init=False, default=None)
    _cut_is_due: bool = field(init=False, default=False)
    """Whether a cut was begun and not finished, so that the file may be longer than the log."""
    _left_over: FileStat | None = field(init=False, default=None)
    """A file that a failed creation could not take back."""

    @property
    def path(self) -> str:
        """The log file."""
        return f"{self._session_path}/{self.name}"

    @property
    def _project_path(self) -> str:
        return f"{self.root}/{self.project}"

    @property
    def _session_path(self) -> str:
        return f"{self._project_path}/{self.segment}"

    @property
    def place(self) -> str:
        """How messages call the file."""
        return f"{self.project}/{self.segment}/{self.name}"

    def own(self) -> None:
        """Become the one writer of the session in all processes, until ``release``.

        Raises:
            AlreadyOwned
            OSError
        """
        path = f"{self._session_path}/{LOCK_NAME}"
        if self._lock is None or not is_owned(self._files, path, self._lock):
            self.release()
            self._lock = take_ownership(self._files, path, self.place)

    def release(self) -> None:
        """Give ownership up; harmless where there is none."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.close()

    def create(self, header: SessionHeader, events: tuple[Event, ...]) -> str:
        """Write a new log durably and return its revision.

        Raises:
            AlreadyExists: the name was taken meanwhile.
            AlreadyOwned: another process is about to write it.
            StoreFailed: nothing of the log is stored.
            ValueError: an event that cannot be written.
        """
        batch = b"".join(map(render_event, events))
        content = self._encode(render_header(header)) + (self._encode(batch) if batch else b"")
        try:
            self._make_directories()
            self.own()
            self._take_back()
            self._check_free()
            self.stat = self._publish(content)
        except FileExistsError as error:
            raise AlreadyExists(f"{self.place} exists already, or another log of it") from error
        except OSError as error:
            raise StoreFailed(f"{self.place} could not be created: {error}") from error
        self.end = len(content)
        return self.stat.revision

    def append(self, events: tuple[Event, ...]) -> str:
        """Write a batch durably and return the new revision.

        Raises:
            StoreFailed: nothing of the batch is part of the log; it may be tried again.
            ValueError: an event that cannot be written.
        """
        content = self._encode(b"".join(map(render_event, events)))
        if self.recovered:
            content = self._encode(self.recovered) + content
        try:
            with self._files.open_appending(self.path) as file:
                found = file.stat()
                self._check_ours(found)
                if found.size > self.end:
                    self._cut(file)
                self.stat = self._append(file, content)
        except OSError as error:
            raise StoreFailed(f"{self.place} could not be appended to: {error}") from error
        self.end += len(content)
        self.recovered = b""
        return self.stat.revision

    def _check_ours(self, found: FileStat) -> None:
        """Refuse a file that somebody else replaced or wrote to."""
        known = self.stat
        ours = known is not None and found.is_same_file(known)
        if known is None or not ours or (found.size != known.size and not self._cut_is_due):
            raise StoreFailed(f"{self.place} was changed by another writer since it was opened")

    def _append(self, file: OpenFile, content: bytes) -> FileStat:
        try:
            file.append(content)
            file.sync()
            return file.stat()
        except OSError as error:
            try:
                self._cut(file)
            except OSError as second:
                raise StoreFailed(
                    f"{self.place} could be neither appended to nor cut back to {self.end} bytes: "
                    f"{error}; {second}"
                ) from ExceptionGroup("append and cut", [error, second])
            raise

    def _cut(self, file: OpenFile) -> None:
        self._cut_is_due = True
        file.truncate(self.end)
        file.sync()
        self.stat = file.stat()
        self._cut_is_due = False

    def _check_free(self) -> None:
        """Refuse a directory with a log of whatever name, which ``link`` alone would not notice."""
        for entry in self._files.entries(self._session_path):
            if parse_log_name(entry.name) is not None:
                raise FileExistsError(f"{entry.name} is there")

    def _make_directories(self) -> None:
        """Make what is missing of root, project and session directory, each name durable."""
        self._make_directory(self.root)
        for parent, name in ((self.root, self.project), (self._project_path, self.segment)):
            self._make_directory(f"{parent}/{name}")
            # Also where it existed: whoever made it may have failed before this step.
            self._files.sync_directory(parent)

    def _make_directory(self, path: str) -> None:
        parent = path.rpartition("/")[0] or "/"
        try:
            self._files.make_directory(path)
        except FileExistsError:
            return
        except FileNotFoundError:
            self._make_directory(parent)
            self._files.make_directory(path)
        self._files.sync_directory(parent)

    def _publish(self, content: bytes) -> FileStat:
        temporary, file = self._create_temporary()
        try:
            with file:
                file.append(content)
                file.sync()
                written = file.stat()
            self._files.link(temporary, self.path)
        finally:
            with suppress(OSError):
                self._files.unlink(temporary)
        try:
            self._files.sync_directory(self._session_path)
            return self._files.stat(self.path)
        except OSError as error:
            # Without this, trying again would find the name taken by its own first try.
            self._left_over = written
            try:
                self._take_back()
            except OSError as second:
                raise StoreFailed(
                    f"{self.place} could be neither made durable nor removed: {error}; {second}"
                ) from ExceptionGroup("create and remove", [error, second])
            raise

    def _take_back(self) -> None:
        """Remove what a failed creation left, unless somebody goes on with it."""
        written = self._left_over
        if written is not None:
            with suppress(FileNotFoundError):
                found = self._files.stat(self.path)
                if found.is_same_file(written) and found.size == written.size:
                    self._files.unlink(self.path)
            self._left_over = None

    def _create_temporary(self) -> tuple[str, OpenFile]:
        for number in range(_TEMPORARY_NAMES):
            path = f"{self.path}.{number:012x}.tmp"
            with suppress(FileExistsError):
                return path, self._files.create(path)
        raise StoreFailed(f"{self.place}: {_TEMPORARY_NAMES} temporary files are in the way")
