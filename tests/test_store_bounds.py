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

from session_query.actors.loaded_log import cold_log
from session_query.history import documents, legacy, long_payload, payload, projection
from session_query.history.fold import fold_surface
from session_query.history.titles import fold_title
from session_query.messages.errors import UnsupportedFormat
from session_query.messages.json import Json, encode, text_member
from session_query.storage import (
    frames,
    json_line,
    log_file,
    log_slices,
    log_text,
    long_line,
    packing,
    prefix_guard,
    records,
    scan,
)
from session_query.storage.contract import CorruptLog, StoreError, UnsupportedLog
from session_query.storage.jsonl import JsonlStore
from session_query.storage.log_slices import SessionSlice, Unreadable, read_slices

KIB = 1024
LONGEST = 512 * KIB
SLACK = 512 * KIB

CONSTANTS: list[tuple[ModuleType, str, int]] = [
    *((module, "RECORD_BYTES", LONGEST) for module in (json_line, log_file, log_text, scan)),
    *((module, "LONG_BYTES", 32 * KIB) for module in (json_line, records, payload, legacy)),
    *((module, "MAX_INDEXED_CHARS", 8_000) for module in (projection, documents)),
    (long_payload, "MAX_VALUES", 2_000),
    (long_payload, "DECODED_BYTES", LONGEST * 3 // 4),
    (long_payload, "_PIECE_BYTES", 8 * KIB),
    (log_slices, "BUILD_BYTES", 8 * KIB),
    (log_file, "HANDED_ON_BYTES", 8 * KIB),
    *((module, "PIECE_BYTES", 16 * KIB) for module in (log_text, log_file)),
    (json_line, "_DECODED_BYTES", 8 * KIB),
    (long_line, "_SLICE_BYTES", 8 * KIB),
    (prefix_guard, "_GUARD_BYTES", 8 * KIB),
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


# -- what is made of a record ----------------------------------------------------------------------


def message(content: bytes, more: bytes = b"") -> bytes:
    """The payload of a user message; ``more`` are members behind the others."""
    return b'{"id":"m","role":"user","source":{"kind":"user"},"content":%s%s}' % (content, more)


def answer(content: bytes, more: bytes = b"") -> bytes:
    """The payload of an assistant message."""
    source = b'{"kind":"model","provider":"p","model":"m"}'
    inner = b'{"id":"a","role":"assistant","source":%s,"content":%s}' % (source, content)
    return b'{"turn":1,"step":1,"message":%s%s}' % (inner, more)


def result(content: bytes, more: bytes = b"") -> bytes:
    """The payload of a tool result."""
    block = b'[{"type":"tool-result","toolCallId":"c","content":%s}]' % content
    source = b'{"kind":"tool","callId":"c"}'
    inner = b'{"id":"r","role":"user","source":%s,"content":%s}' % (source, block)
    return b'{"turn":1,"step":1,"message":%s%s}' % (inner, more)


def text(words: bytes) -> bytes:
    """One block of text."""
    return b'[{"type":"text","text":"%s"}]' % words


def filled(item: bytes) -> bytes:
    """A list of so many items that a record of it is as long as it may be."""
    return b"[" + item + (b"," + item) * ((FULL - 400) // (len(item) + 1)) + b"]"


LISTS, OBJECTS = filled(b"[]"), filled(b'{"a":{}}')
KEYS = b"{" + b",".join(b'"%07d":0' % key for key in range((FULL - 400) // 12)) + b"}"
NESTED = b'{"type":"tool-result","content":[' * 100 + b"]}" * 100
LETTERS = b"x" * (FULL - 400)
EMOJI = b"\xf0\x9f\x98\x80" * (FULL // 4 - 100)

FOLDED: dict[str, tuple[str, bytes]] = {
    "a text": ("user/message", message(text(LETTERS))),
    "a text of wide characters": ("user/message", message(text(EMOJI))),
    "a text of escapes": ("user/message", message(text(b"\\n\\u0041" * (FULL // 8 - 100)))),
    "a text of lone surrogates": ("user/message", message(text(b"\\ud800" * (FULL // 6 - 100)))),
    "white space": ("user/message", message(text(b" " * (FULL - 400)))),
    "reasoning": ("assistant/message", answer(b'[{"type":"reasoning","text":"%s"}]' % EMOJI)),
    "an image": ("user/message", message(b'[{"type":"image","data":"%s"}]' % LETTERS)),
    "lists beside a message": ("user/message", message(b"[]", b',"meta":' + LISTS)),
    "keys beside a message": ("user/message", message(b"[]", b',"meta":' + KEYS)),
    "the stream of an answer": ("assistant/message", answer(b"[]", b',"stream":' + OBJECTS)),
    "the stream of an attempt": ("assistant/attempt", b'{"turn":1,"stream":%s}' % LISTS),
    "a long result": ("tool/result", result(text(LETTERS))),
    "much beside a result": ("tool/result", result(b"[]", b',"more":"%s"' % LETTERS[: FULL // 2])),
    "long arguments": ("tool/call", b'{"callId":"c","name":"n","arguments":"%s"}' % LETTERS),
    "a todo": ("todo/write", b'{"todos":[{"status":"open","content":"%s"}]}' % EMOJI),
    "an error": (
        "turn/end",
        b'{"turn":1,"reason":{"kind":"error","error":{"message":"%s"}}}' % EMOJI,
    ),
    "lists of a host's own": ("demo/x", LISTS),
    "keys of a host's own": ("demo/x", KEYS),
    "wide text of a host's own": ("demo/x", b'{"text":"%s"}' % EMOJI),
}
REFUSED: dict[str, tuple[str, bytes]] = {
    "blocks that are lists": ("user/message", message(LISTS)),
    "blocks that are objects": ("user/message", message(OBJECTS)),
    "blocks of text": ("user/message", message(filled(b'{"type":"text","text":"a"}'))),
    "blocks in blocks": ("user/message", message(filled(NESTED)[: -len(NESTED) - 2] + b"]")),
    "calls": ("assistant/message", answer(filled(b'{"type":"tool-call","id":"c","name":"n"}'))),
    "results of lists": ("tool/result", result(LISTS)),
    "lists beside a result": ("tool/result", result(b"[]", b',"more":' + LISTS)),
    "keys beside a result": ("tool/result", result(b"[]", b',"more":' + KEYS)),
    "todos": ("todo/write", b'{"todos":%s}' % filled(b"{}")),
    "a title": ("session/title", b'{"title":"%s","messageSeqs":[],"source":{}}' % EMOJI),
    "the seqs of a title": ("session/title", b'{"title":"t","messageSeqs":%s}' % filled(b"1")),
    "the source of a title": (
        "session/title",
        b'{"title":"t","messageSeqs":[],"source":%s}' % OBJECTS,
    ),
}


def stored_with(root: Path, kind: str, data: bytes) -> JsonlStore:
    """A log of two events of which the first has this payload."""
    more: dict[str, Json] = {}
    if kind in ("user/message", "assistant/message", "tool/result"):
        more["surfaceOp"] = "append"
    if kind.startswith("demo/"):
        more["ignorable"] = True
    first = row(0, kind, None, **more).replace(b'"data":null', b'"data":' + data)
    assert LONGEST * 0.4 < len(first) <= LONGEST
    return write(root, [first, row(1, "demo/x", {"text": "behind"}, ignorable=True)])


def index_slices(store: JsonlStore) -> list[object]:
    """What the index makes of a store, with a hook that looks into events of a host's own."""
    [snapshot] = store.sweep().snapshots
    return [*read_slices(store, snapshot, None, lambda _type, data: text_member(data, "text"))]


def read_exactly(store: JsonlStore) -> None:
    """What an exact read makes of a log before it is asked for anything in it."""
    with store.open("s", "read") as handle:
        log = cold_log(handle.read_log())
    fold_surface(log.events, log.header.version)
    fold_title(log.events)


@pytest.mark.parametrize("name", FOLDED)
def test_what_an_index_keeps_of_a_record_takes_little_beside_it(tmp_path: Path, name: str) -> None:
    store = stored_with(tmp_path, *FOLDED[name])
    found: list[object] = []
    assert peak_of(lambda: found.extend(index_slices(store))) < 3 * LONGEST + SLACK
    folded = [piece for piece in found if isinstance(piece, SessionSlice)]
    assert sum(piece.events for piece in folded) == 2
    assert [document for piece in folded for document in piece.documents][-1].text == "behind"


@pytest.mark.parametrize("name", FOLDED)
def test_an_exact_read_of_a_record_takes_little_beside_it(tmp_path: Path, name: str) -> None:
    store = stored_with(tmp_path, *FOLDED[name])
    assert peak_of(lambda: read_exactly(store)) < 3 * LONGEST + SLACK


@pytest.mark.parametrize("name", REFUSED)
def test_a_record_is_unsupported_where_what_has_to_be_read_of_it_takes_too_much(
    tmp_path: Path, name: str
) -> None:
    store = stored_with(tmp_path, *REFUSED[name])
    found: list[object] = []
    assert peak_of(lambda: found.extend(index_slices(store))) < 3 * LONGEST + SLACK
    [refused] = found
    assert isinstance(refused, Unreadable)
    assert "event 0" in refused.skipped.message
    assert "too large" in refused.skipped.message

    def read() -> None:
        with pytest.raises(UnsupportedFormat, match="event 0"):
            read_exactly(store)

    assert peak_of(read) < 3 * LONGEST + SLACK


@pytest.mark.parametrize("version", [0, 1])
def test_a_record_of_an_older_shape_is_unsupported_where_it_takes_too_much(
    tmp_path: Path, version: int
) -> None:
    bare = b'{"turn":1,"step":1,"content":%s}' % LISTS
    line = row(0, "assistant/message", None, surfaceOp="append").replace(b"null", bare)
    name = "v1." if version else ""
    header = session_line(version=version, isSeeded=None)
    store = write(tmp_path, [line], header=header, name=name)

    def read() -> None:
        with pytest.raises(UnsupportedLog, match="line 2: event 0"):
            store.read_tail("s", None)

    assert peak_of(read) < 3 * LONGEST + SLACK
