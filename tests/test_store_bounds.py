"""How much memory reading takes, whatever a log holds.

The bound is three of the longest records and 64 MiB. Here the longest record has 512 KiB instead of
64 MiB, and what else is held at once is as much smaller, so that a fourth copy of a record shows.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import pytest
from jsonl_files import frame, row, session_line, write_log

from session_query.messages.json import Json, encode
from session_query.storage import (
    frames,
    json_line,
    log_file,
    log_text,
    long_line,
    packing,
    records,
    scan,
)
from session_query.storage.contract import CorruptLog, StoreError, UnsupportedLog
from session_query.storage.jsonl import JsonlStore

KIB = 1024
LONGEST = 512 * KIB
SLACK = 512 * KIB

CONSTANTS: list[tuple[ModuleType, str, int]] = [
    *((module, "RECORD_BYTES", LONGEST) for module in (json_line, log_file, log_text, scan)),
    *((module, "LONG_BYTES", 32 * KIB) for module in (json_line, long_line, records)),
    *((module, "PIECE_BYTES", 16 * KIB) for module in (log_text, log_file)),
    (json_line, "_DECODED_BYTES", 8 * KIB),
    (long_line, "_SLICE_BYTES", 8 * KIB),
    (log_file, "_GUARD_BYTES", 8 * KIB),
    (frames, "_AHEAD_BYTES", 8 * KIB),
    (frames, "_INPUT_BYTES", 8 * KIB),
    (records, "_PACKED_BYTES", 64 * KIB),
    (packing, "UNPACKED_BYTES", LONGEST),
]


@pytest.fixture(autouse=True)
def _smaller(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for module, name, value in CONSTANTS:
        assert value < getattr(module, name)
        monkeypatch.setattr(module, name, value)
    tracemalloc.start()
    yield
    tracemalloc.stop()


def peak_of(action: Callable[[], object]) -> int:
    """The most that was held at once above what was held before, in bytes."""
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    action()
    return tracemalloc.get_traced_memory()[1] - before


ENCODINGS: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".zstd": frame}


def write(
    root: Path,
    lines: list[bytes],
    suffix: str = "",
    *,
    header: bytes | None = None,
    name: str = "v2.",
) -> JsonlStore:
    """Store a log whose rows are one batch."""
    path = write_log(root, [], name=f"session.{name}jsonl{suffix}")
    encode = ENCODINGS[suffix]
    first = encode((header or session_line()) + b"\n")
    path.write_bytes(first + encode(b"".join(line + b"\n" for line in lines)))
    return JsonlStore(root)


def holding(data: bytes) -> bytes:
    """A row whose payload is ``data``."""
    return row(0, "demo/x", None, ignorable=True).replace(b"null", data)


FULL = LONGEST - 200
PAYLOADS = {
    "letters": b'"' + b"x" * FULL + b'"',
    "one wide character": b'"' + b"x" * FULL + "\U0001f600".encode() + b'"',
    "empty lists": b"[" + b"[]," * (FULL // 3) + b"[]]",
    "objects": b"[" + b'{"a":{}},' * (FULL // 9) + b"0]",
    "numbers": b"[" + b"1234," * (FULL // 5) + b"0]",
    "escapes": b'"' + b"\\n" * (FULL // 2) + b'"',
    "lone surrogates": b'"' + b"\\ud800" * (FULL // 6) + b'"',
    "a bad byte": b'"' + b"x" * FULL + b'\xff"',
    "a large number": b"[" + b"1e300," * (FULL // 6) + b"1e999]",
    "an open text": b'"' + b"x" * FULL,
    "too long": b'"' + b"x" * 3 * LONGEST + b'"',
}


@pytest.mark.parametrize(
    ("name", "suffix"),
    [*((name, "") for name in PAYLOADS), ("one wide character", ".zstd"), ("too long", ".zstd")],
)
def test_a_record_is_held_three_times_at_most(tmp_path: Path, name: str, suffix: str) -> None:
    store = write(tmp_path, [holding(PAYLOADS[name])], suffix)

    def read() -> None:
        with suppress(StoreError):
            store.read_tail("s", None)

    assert peak_of(read) < 3 * LONGEST + SLACK


@pytest.mark.parametrize("suffix", ENCODINGS)
def test_records_are_held_one_after_the_other(tmp_path: Path, suffix: str) -> None:
    rows = [row(seq, "demo/x", {"text": "x" * (LONGEST // 2)}) for seq in range(12)]
    store = write(tmp_path, rows, suffix)
    assert peak_of(lambda: tails(store, 1)) < 3 * LONGEST + SLACK


@pytest.mark.parametrize("suffix", ENCODINGS)
def test_many_events_are_read_within_a_limit_and_one_record(tmp_path: Path, suffix: str) -> None:
    store = write(tmp_path, [row(seq, "demo/x", {}) for seq in range(20_000)], suffix)
    limit = 64 * KIB
    # An event of little text takes some ten times its text.
    assert peak_of(lambda: tails(store, limit)) < 10 * limit + SLACK


def tails(store: JsonlStore, limit: int) -> None:
    """Read a log through its tails, each forgotten before the next."""
    mark: bytes | None = None
    complete = False
    seq = 0
    while not complete:
        tail = store.read_tail("s", mark, limit)
        assert tail.appended == (mark is not None)
        for event in tail.events:
            assert event.seq == seq
            seq += 1
        mark, complete = tail.mark, tail.complete
        del tail


@pytest.mark.parametrize("content", [b"x", b"\n", b"\0"])
def test_a_small_frame_that_expands_to_a_large_text_is_never_expanded_whole(
    tmp_path: Path, content: bytes
) -> None:
    path = write_log(tmp_path, [], name="session.v2.jsonl.zstd")
    bomb = frame(content * 64 * LONGEST + b"\n")
    assert len(bomb) < LONGEST // 100
    path.write_bytes(frame(session_line() + b"\n") + bomb)
    store = JsonlStore(tmp_path)

    def read() -> None:
        with pytest.raises((CorruptLog, UnsupportedLog), match="line 2"):
            store.read_tail("s", None)

    assert peak_of(read) < 3 * LONGEST + SLACK


@pytest.mark.parametrize("suffix", ENCODINGS)
def test_a_header_of_any_length_is_looked_at_within_the_bound(tmp_path: Path, suffix: str) -> None:
    long = "x" * (LONGEST // 4)
    keys: dict[str, Json] = {"a": long, "b": long, "c": long, "lists": [[]] * 20_000}
    store = write(tmp_path, [], suffix, header=session_line(**keys))
    assert peak_of(lambda: store.sweep()) < 3 * LONGEST + SLACK
    [found] = store.sweep().snapshots
    assert found.header.id == "s"


def test_a_header_that_expands_without_end_is_unsupported(tmp_path: Path) -> None:
    path = write_log(tmp_path, [], name="session.v2.jsonl.zstd")
    path.write_bytes(frame(b"x" * 64 * LONGEST))
    store = JsonlStore(tmp_path)
    assert peak_of(store.sweep) < 3 * LONGEST + SLACK
    [damaged] = store.sweep().damaged
    assert "longer than the limit" in damaged.message


@pytest.mark.parametrize(
    ("name", "members"),
    [("text-chunks", {"texts": [""] * 20_000}), ("tool-call-chunks", {"args": [""] * 90})],
)
def test_a_packed_row_of_too_many_events_is_unsupported(
    tmp_path: Path, name: str, members: dict[str, list[Json]]
) -> None:
    [texts] = members.values()
    data: dict[str, Json] = {
        "turn": 1,
        "step": 1,
        "index": 0,
        "dt": [0] * (len(texts) - 1),
        **members,
    }
    if name == "tool-call-chunks":
        data["id"] = "x" * 20 * KIB
    packed = encode({"type": name, "seq0": 0, "time0": 5, "data": data})
    old = session_line(version=0, isSeeded=None)
    store = write(tmp_path, [packed], header=old, name="")

    def read() -> None:
        with pytest.raises(UnsupportedLog, match="line 2: a packed row"):
            store.read_tail("s", None)

    assert peak_of(read) < 3 * LONGEST + SLACK
