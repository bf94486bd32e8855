"""A fuzzer of the log reader: small real logs, plain and compressed, changed in a few places.

``python tests/fuzz_log_reader.py --inputs 100000 --seed 1`` says how far it came and what it found.
Whatever the bytes are, reading ends in events or in a declared error; a log read in small tails is
the log read at once; a writer's next batch never cuts a whole record off. One seed is one run.
"""

from __future__ import annotations

import argparse
import resource
import signal
import sys
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from traceback import format_exception
from types import FrameType, TracebackType
from typing import Final, NoReturn, Protocol, Self

from attrs import define, field, frozen

from session_query.history.replay import validate_log
from session_query.messages.errors import SessionError
from session_query.messages.event import Event
from session_query.storage.contract import StoredLog, StoreError, Tail
from session_query.storage.files import Entry, FileStat, OpenFile
from session_query.storage.jsonl import JsonlStore
from session_query.storage.layout import encode_segment, project_name
from session_query.storage.log_file import read_piece
from session_query.storage.zstandard import compress

DATA: Final = Path(__file__).parent / "data"
ROOT: Final = "/store"
HANG_SECONDS: Final = 10
GROWTH_KIB: Final = 64 * 1024
_CHANGED_NS: Final = 1_000_000_000


@frozen
class Input:
    """A log file as a fuzzer made it, and what it was made of."""

    name: str
    content: bytes
    project: str
    segment: str


@define
class OneFile:
    """A disk that holds one session directory with one log, and cannot be written to."""

    log: Input

    @property
    def _names(self) -> list[str]:
        return [ROOT[1:], self.log.project, self.log.segment, self.log.name]

    def now_ns(self) -> int:
        return _CHANGED_NS * 9

    def process_id(self) -> int:
        return 1

    def stat(self, path: str) -> FileStat:
        parts = path.split("/")
        if parts != ["", *self._names[: len(parts) - 1]]:
            raise FileNotFoundError(path)
        is_directory = len(parts) <= len(self._names)
        size = 0 if is_directory else len(self.log.content)
        return FileStat(1, len(path), size, _CHANGED_NS, _CHANGED_NS, is_directory)

    def entries(self, path: str) -> list[Entry]:
        depth = path.count("/")
        return [Entry(self._names[depth], is_directory=depth < len(self._names) - 1)]

    def open_reading(self, path: str) -> OpenFile:
        return _Bytes(self.log.content, self.stat(path))

    def open_appending(self, path: str) -> OpenFile:
        self._refuse()

    def create(self, path: str) -> OpenFile:
        self._refuse()

    def make_directory(self, path: str) -> None:
        self._refuse()

    def sync_directory(self, path: str) -> None:
        self._refuse()

    def link(self, source: str, target: str) -> None:
        self._refuse()

    def unlink(self, path: str) -> None:
        self._refuse()

    def lock(self, path: str) -> OpenFile:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise AssertionError("reading a store wrote into it")


@define
class _Bytes:
    _content: bytes
    _stat: FileStat

    def stat(self) -> FileStat:
        return self._stat

    def read(self, offset: int, size: int) -> bytes:
        assert offset >= 0
        assert size >= 0
        return self._content[offset : offset + size]

    def append(self, data: bytes) -> None:
        raise AssertionError("reading a store wrote into it")

    def truncate(self, size: int) -> None:
        raise AssertionError("reading a store cut a log")

    def sync(self) -> None: ...

    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


# --- what is changed


def originals() -> list[Input]:
    """The sample logs in every encoding, whole and as short beginnings."""
    found: list[Input] = []
    for path in sorted((DATA / "samples").rglob("session*.jsonl")):
        lines = path.read_bytes().splitlines(keepends=True)
        for rows in (4, 9, len(lines)):
            found += _encoded(path.name, lines[:rows], path.parent.name)
    return found


def _encoded(name: str, lines: list[bytes], session_id: str) -> Iterator[Input]:
    project, segment = project_name("/srv/demo"), encode_segment(session_id)
    yield Input(name, b"".join(lines), project, segment)
    half = (1 + len(lines)) // 2
    batches = (lines[:1], lines[1:half], lines[half:])
    frames = b"".join(compress(b"".join(batch)) for batch in batches)
    yield Input(f"{name}.zstd", frames, project, segment)


TOKENS: Final = (
    *(b"\n", b"\n\n", b"\r\n", b"\x00" * 7, b"\xef\xbb\xbf", b"\xff", b'"', b"\\", b"{", b"}"),
    *(b"[" * 300, b"]", b",", b":", b"null", b"true", b"-0", b"-1", b"1e999", b"4.0", b"9" * 20),
    *(b"\\ud800", b"\\u0000", b"9007199254740993", b'"type":', b'"seq":', b'"turn/end"', b"{}"),
    *(b'"seq0":', b"\x28\xb5\x2f\xfd", b"\x50\x2a\x4d\x18", b"\xe2\x80\xa8", b'"surfaceOp":null'),
)


def changed(original: bytes, random: Random) -> bytes:
    """A log changed in one to four places."""
    content = bytearray(original)
    for _ in range(random.choice((1, 1, 1, 2, 3, 4))):
        at = random.randrange(len(content) + 1)
        length = random.choice((1, 1, 2, 4, 16, 100, 500))
        match random.randrange(9):
            case 0 if at < len(content):
                content[at] ^= 1 << random.randrange(8)
            case 1 if at < len(content):
                content[at] = random.randrange(256)
            case 2:
                del content[at : at + length]
            case 3:
                content[at:at] = content[at : at + length]
            case 4:
                content[at:at] = random.choice(TOKENS)
            case 5:
                token = random.choice(TOKENS)
                content[at : at + len(token)] = token
            case 6:
                del content[at:]
            case 7:
                _move_line(content, random)
            case _:
                content[at : at + length] = random.randbytes(length)
    return bytes(content)


def _move_line(content: bytearray, random: Random) -> None:
    lines = content.splitlines(keepends=True)
    if lines:
        line = lines.pop(random.randrange(len(lines)))
        for _ in range(random.randrange(3)):
            lines.insert(random.randrange(len(lines) + 1), line)
        content[:] = b"".join(lines)


def inputs(seed: int) -> Iterator[Input]:
    """Inputs without end; a compressed one is changed as it stands or before it is compressed."""
    random = Random(seed)
    pool = originals()
    while True:
        original = random.choice(pool)
        content = original.content
        if original.name.endswith(".zstd") and random.random() < 0.5:
            plain = random.choice([one for one in pool if one.segment == original.segment][::2])
            lines = changed(plain.content, random).splitlines(keepends=True)
            cut = random.randrange(1, 4)
            frames = (b"".join(lines[:1]), b"".join(lines[1:cut]), b"".join(lines[cut:]))
            content = b"".join(map(compress, frames))
            if random.random() < 0.5:
                content = content[: random.randrange(len(content) + 1)]
        else:
            content = changed(content, random)
        yield Input(original.name, content, original.project, original.segment)


# --- what must hold


def check(found: Input) -> str:
    """Read an input in every way and say what became of it. Raises ``AssertionError`` and worse."""
    disk = OneFile(found)
    store = JsonlStore(ROOT, files=disk)
    swept = store.sweep()
    assert len(swept.snapshots) + len(swept.damaged) == 1
    if swept.damaged:
        assert found.segment in swept.damaged[0].message
        return "damaged header"
    session_id = swept.snapshots[0].header.id
    log = _read_whole(store, session_id)
    tails = _read_in_tails(store, session_id)
    if isinstance(log, StoreError):
        assert found.segment in str(log)
        # Beside the damage, tails may say more: they are read before a header meets its markers.
        assert isinstance(tails, type(log)) or "end-seed" in str(log), (log, tails)
        return type(log).__name__
    assert [event.seq for event in log.events] == [*range(len(log.events))]
    assert tails == log.events, "tails give other events"
    _check_end(disk, store, session_id, log)
    try:
        validate_log(log.snapshot.header, log.events)
    except SessionError as error:
        return f"invalid, {type(error).__name__}"
    return "torn" if log.left_out else "whole"


def _read_whole(store: JsonlStore, session_id: str) -> StoredLog | StoreError:
    try:
        with store.open(session_id, "read") as reader:
            return reader.read_log()
    except StoreError as error:
        return error


def _read_in_tails(store: JsonlStore, session_id: str) -> tuple[Event, ...] | StoreError:
    events: list[Event] = []
    mark: bytes | None = None
    complete = False
    try:
        while not complete:
            tail: Tail = store.read_tail(session_id, mark, 700)
            assert tail.appended == (mark is not None)
            assert tail.events or tail.complete
            events += tail.events
            mark, complete = tail.mark, tail.complete
    except StoreError as error:
        return error
    return tuple(events)


def _check_end(disk: OneFile, store: JsonlStore, session_id: str, log: StoredLog) -> None:
    """What a writer would keep holds every event, and nothing else is whole behind it."""
    stored = store._find(session_id)
    piece = read_piece(disk, stored.log, None, None)
    kept = disk.log.content[: piece.mark.offset]
    if piece.mark.skip:
        kept += compress(store._salvaged(stored, piece.mark))
    again = JsonlStore(ROOT, files=OneFile(Input(*_with(disk.log, kept))))
    cut = _read_whole(again, session_id)
    assert isinstance(cut, StoredLog)
    assert cut.events == log.events, "a writer would lose events"
    assert piece.mark.skip == 0 or cut.left_out is None


def _with(log: Input, content: bytes) -> tuple[str, bytes, str, str]:
    return log.name, content, log.project, log.segment


@define
class Run:
    """The outcomes of many inputs, and the inputs that broke a promise."""

    outcomes: Counter[str] = field(factory=Counter)
    failures: list[tuple[Input, Exception]] = field(factory=list)

    def feed(self, seed: int, count: int) -> None:
        """Check ``count`` inputs; what breaks a promise is printed and kept."""
        for _, found in zip(range(count), inputs(seed), strict=False):
            try:
                self.outcomes[check(found)] += 1
            except Exception as error:
                self.failures.append((found, error))
                print(f"{found.name} {found.segment}", *format_exception(error)[-2:], sep="\n")
                print(b64encode(found.content).decode(), flush=True)


def _hung(_signal: int, _frame: FrameType | None) -> None:
    raise AssertionError(f"reading took more than {HANG_SECONDS} s")


class Fuzzed(Protocol):
    """A fuzzer that counts what became of its inputs."""

    outcomes: Counter[str]

    @property
    def failures(self) -> Sequence[object]: ...

    def feed(self, seed: int, count: int) -> None: ...


def arguments() -> argparse.ArgumentParser:
    """What every fuzzer is told."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    return parser


def drive(run: Fuzzed, seed: int, inputs: int) -> int:
    """Feed a fuzzer and print what it found; the exit status, 1 where it found something."""
    signal.signal(signal.SIGALRM, _hung)
    run.feed(seed, 500)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began, done, part = time.monotonic(), 0, 0
    while done < inputs:
        part += 1
        size = min(1000, inputs - done)
        signal.alarm(HANG_SECONDS * 6)
        run.feed(seed * 1_000_003 + part, size)
        done += size
        if done % 50_000 == 0:
            print(f"{done} inputs, {len(run.failures)} failures", flush=True)
    signal.alarm(0)
    seconds = time.monotonic() - began
    growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(f"{done} inputs in {seconds:.0f} s, {done / seconds:.0f} a second; {growth} KiB more")
    for outcome, count in run.outcomes.most_common():
        print(f"{count:9} {outcome}")
    return 1 if run.failures or growth > GROWTH_KIB else 0


if __name__ == "__main__":
    asked = arguments().parse_args()
    sys.exit(drive(Run(), asked.seed, asked.inputs))
