"""Log files written byte by byte for tests, and disks that count, change or fail on purpose."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal

from session_query.messages.json import Json, encode
from session_query.storage.files import Entry, FileStat, OpenFile, OsFile, OsFiles
from session_query.storage.zstandard import compress


def session_line(**changes: Json) -> bytes:
    """A header line of session ``s`` in ``/w``; ``None`` leaves a key out."""
    fields: dict[str, Json] = {
        "type": "session",
        "version": 2,
        "id": "s",
        "createdAt": 1,
        "cwd": "/w",
        "isSeeded": False,
        "delegationDepth": 0,
    }
    return encode({key: value for key, value in {**fields, **changes}.items() if value is not None})


def row(seq: int, event_type: str, data: Json, **more: Json) -> bytes:
    """A stored line without its line end."""
    return encode({"type": event_type, "seq": seq, "time": 5, "data": data, **more})


BODY = [
    row(0, "turn/start", {"turn": 1}),
    row(1, "demo/note", {"text": "alpha"}, ignorable=True),
    row(2, "turn/end", {"turn": 1, "reason": {"kind": "completed"}}),
]
"""Three rows of a whole turn."""


def write_log(
    root: Path,
    rows: Iterable[bytes],
    fragment: bytes = b"",
    *,
    project: str = "--w--",
    segment: str = "s",
    name: str = "session.v2.jsonl",
    header: bytes | None = None,
) -> Path:
    """Write a log file and return its path; ``fragment`` stands behind the last line end."""
    path = root / project / segment / name
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [session_line() if header is None else header, *rows, fragment]
    path.write_bytes(b"\n".join(lines))
    return path


def frame(*lines: bytes) -> bytes:
    """A compressed batch of whole lines, each with its line end."""
    return compress(b"".join(lines))


def write_frames(root: Path, *batches: Iterable[bytes], torn: bytes = b"") -> Path:
    """Write a compressed log, the header in a frame of its own, and return its path.

    The lines of ``batches`` are without their line ends; ``torn`` are bytes behind the last frame.
    """
    path = write_log(root, [], name="session.v2.jsonl.zstd")
    frames = [frame(*(line + b"\n" for line in lines)) for lines in ([session_line()], *batches)]
    path.write_bytes(b"".join(frames) + torn)
    return path


def age(root: Path) -> int:
    """A time at which nothing below ``root`` is young any more."""
    return 1_000_000_000 + max(path.stat().st_ctime_ns for path in root.rglob("*"))


class OsFilesAt(OsFiles):
    """The real disk at a fixed time; counts what is asked of it."""

    def __init__(self, now: int) -> None:
        self.now = now
        self.calls: Counter[str] = Counter()

    def now_ns(self) -> int:
        self.calls["now_ns"] += 1
        return self.now

    def stat(self, path: str) -> FileStat:
        self.calls["stat"] += 1
        return super().stat(path)

    def entries(self, path: str) -> list[Entry]:
        self.calls["entries"] += 1
        return super().entries(path)

    def open_reading(self, path: str) -> OpenFile:
        self.calls["open_reading"] += 1
        return super().open_reading(path)


class MeddlingFiles(OsFiles):
    """The real disk, on which somebody changes a log right after a reader looked at its state."""

    def __init__(
        self, meddle: Callable[[], None], *, times: int, moment: Literal["stat", "close"] = "stat"
    ) -> None:
        """Meddle ``times`` times, each at a reader's first look or when it has read all."""
        self._meddle = meddle
        self._times = times
        self._moment = moment
        self._opened = 0

    def open_reading(self, path: str) -> OpenFile:
        # The first opening is the look at the header, which reads no further.
        self._opened += 1
        return _MeddledFile(os.open(path, os.O_RDONLY), self)

    def reached(self, moment: str) -> None:
        if self._opened > 1 and self._times and moment == self._moment:
            self._times -= 1
            self._meddle()


class _MeddledFile(OsFile):
    def __init__(self, descriptor: int, files: MeddlingFiles) -> None:
        super().__init__(descriptor)
        self._files = files

    def stat(self) -> FileStat:
        seen = super().stat()
        self._files.reached("stat")
        return seen

    def close(self) -> None:
        super().close()
        self._files.reached("close")


class FailingFiles(OsFiles):
    """The real disk, whose changing operations fail at chosen turns; an append fails half done."""

    def __init__(self, *turns: int) -> None:
        self.turns = set(turns)
        """Which operations fail, counted from 1."""
        self.done = 0
        self.part = 0.5
        """How much of the data an append has written when it fails."""

    def step(self, name: str) -> None:
        if self.is_due():
            self.fail(name)

    def is_due(self) -> bool:
        self.done += 1
        return self.done in self.turns

    def fail(self, name: str) -> None:
        raise OSError(errno.ENOSPC, f"no space for {name}")

    def open_appending(self, path: str) -> OpenFile:
        self.step("open_appending")
        return _FailingFile(os.open(path, os.O_RDWR | os.O_APPEND), self)

    def create(self, path: str) -> OpenFile:
        self.step("create")
        return _FailingFile(os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL), self)

    def make_directory(self, path: str) -> None:
        self.step("make_directory")
        super().make_directory(path)

    def sync_directory(self, path: str) -> None:
        self.step("sync_directory")
        super().sync_directory(path)

    def link(self, source: str, target: str) -> None:
        self.step("link")
        super().link(source, target)

    def unlink(self, path: str) -> None:
        self.step("unlink")
        super().unlink(path)

    def lock(self, path: str) -> OpenFile:
        self.step("lock")
        return super().lock(path)


class _FailingFile(OsFile):
    def __init__(self, descriptor: int, files: FailingFiles) -> None:
        super().__init__(descriptor)
        self._files = files

    def append(self, data: bytes) -> None:
        if self._files.is_due():
            super().append(data[: int(len(data) * self._files.part)])
            self._files.fail("append")
        super().append(data)

    def truncate(self, size: int) -> None:
        self._files.step("truncate")
        super().truncate(size)

    def sync(self) -> None:
        self._files.step("sync")
        super().sync()
