"""Compressed logs: frames, where they are torn, what is damage, and the tails of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from builders import header
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonl_files import (
    BODY,
    MeddlingFiles,
    OsFilesAt,
    age,
    frame,
    row,
    session_line,
    write_frames,
    write_log,
)
from store_contract import store_session, tail_events, turns
from test_store_samples import SAMPLES

from session_query.messages.errors import ErrorCode, SessionQueryError
from session_query.messages.event import Event
from session_query.storage import zstandard
from session_query.storage.contract import CorruptLog, StoredLog, UnsupportedLog
from session_query.storage.files import OsFile, OsFiles
from session_query.storage.frames import BadFrame, Frame, Lookahead, find_frame
from session_query.storage.jsonl import JsonlStore
from session_query.storage.zstandard import compress

MAGIC = b"\x28\xb5\x2f\xfd"
HEADER = frame(session_line() + b"\n")


def read(root: Path) -> StoredLog:
    with JsonlStore(root).open("s", "read") as reader:
        return reader.read_log()


def sample_bytes() -> bytes:
    [path] = (SAMPLES / "store-zstd").rglob("*.zstd")
    return path.read_bytes()


def lines_of(*rows: bytes) -> bytes:
    return frame(*(line + b"\n" for line in rows))


# --- frames


def frames_in(path: Path, content: bytes) -> list[Frame]:
    path.write_bytes(content)
    with OsFiles().open_reading(str(path)) as file:
        source = Lookahead(file, len(content))
        found = [find_frame(source, 0)]
        while found[-1].whole and found[-1].end < len(content):
            found.append(find_frame(source, found[-1].end))
    return found


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=6), st.data())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_frames_are_found_by_their_headers_wherever_a_file_is_cut(
    tmp_path: Path, texts: list[bytes], data: st.DataObject
) -> None:
    frames = [compress(text) for text in texts]
    ends = [sum(map(len, frames[: count + 1])) for count in range(len(frames))]
    size = data.draw(st.integers(1, ends[-1]))
    found = frames_in(tmp_path / "frames", b"".join(frames)[:size])
    assert [part.end for part in found if part.whole] == [end for end in ends if end <= size]
    assert found[-1].whole == (size in ends)


def block(kind: int, size: int, *, last: bool = False) -> bytes:
    return (size << 3 | kind << 1 | last).to_bytes(3, "little")


@pytest.mark.parametrize(
    ("head", "body"),
    [
        (b"\x00\x58", block(0, 2) + b"ab" + block(0, 0, last=True)),
        (b"\x20\x05", block(0, 5, last=True) + b"hello"),
        (b"\x04\x58", block(1, 9, last=True) + b"x" + b"\0\0\0\0"),
        (b"\x01\x58\x00", block(1, 100_000) + b"x" + block(0, 1, last=True) + b"y"),
        (b"\x40\x58\x00\x01", block(2, 3) + b"abc" + block(0, 0, last=True)),
        (b"\x60\x10\x00", block(0, 3, last=True) + b"abc"),
        (b"\xc3\x58" + bytes(12), block(0, 0, last=True)),
        (b"\x10\x58", block(0, 0, last=True)),
    ],
    ids="raw single rle dictionary-zero two-byte-size single-two eight-byte-size spare".split(),
)
def test_every_kind_of_header_and_block_is_walked(tmp_path: Path, head: bytes, body: bytes) -> None:
    whole = MAGIC + head + body
    assert frames_in(tmp_path / "f", whole) == [Frame(0, len(whole), whole=True)]
    for size in range(1, len(whole)):
        assert frames_in(tmp_path / "f", whole[:size]) == [Frame(0, size, whole=False)]


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"\x50\x2a\x4d\x18\x00\x00\x00\x00", "no frame begins with 50 2a 4d 18"),
        (b"{}\n", "no frame begins with 7b 7d 0a"),
        (b"\0" * 100 + b"x", "no frame begins with 00"),
        (MAGIC + b"\x08\x58", "reserved bit"),
        (MAGIC + b"\x00\x58" + block(3, 1), "reserved type"),
        (MAGIC + b"\x00\x58" + block(0, 131073), "claims 131073 bytes"),
    ],
)
def test_what_no_cut_short_append_leaves_is_damage(
    tmp_path: Path, content: bytes, fault: str
) -> None:
    with pytest.raises(BadFrame, match=fault):
        frames_in(tmp_path / "f", content)
    path = write_frames(tmp_path, BODY, torn=content)
    size = path.stat().st_size - len(content)
    with pytest.raises(CorruptLog, match=f"frame at byte {size} is damaged: .*{fault}"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("head", "fault"),
    [
        (b"\x01\x58\x07", "needs a dictionary"),
        (b"\x00\x90", "needs a window of 268435456 bytes"),
        (b"\xe0" + (2**40).to_bytes(8, "little"), "needs a window of 1099511627776 bytes"),
    ],
)
def test_a_frame_that_needs_more_than_it_is_given_is_unsupported(
    tmp_path: Path, head: bytes, fault: str
) -> None:
    write_frames(tmp_path, torn=MAGIC + head + block(0, 0, last=True))
    with pytest.raises(UnsupportedLog, match=fault):
        read(tmp_path)


# --- a header


def test_a_compressed_log_is_read_and_listed(tmp_path: Path) -> None:
    path = write_frames(tmp_path, BODY[:1], BODY[1:])
    log = read(tmp_path)
    assert (len(log.events), log.left_out) == (3, None)
    [found] = JsonlStore(tmp_path).sweep().snapshots
    assert (found.header.id, found.size_bytes) == ("s", path.stat().st_size)


def test_a_listing_reads_the_first_frame_alone(tmp_path: Path) -> None:
    write_frames(tmp_path, torn=b"nonsense")
    swept = JsonlStore(tmp_path).sweep()
    assert ([found.header.id for found in swept.snapshots], swept.damaged) == (["s"], ())
    with pytest.raises(CorruptLog, match="is damaged"):
        read(tmp_path)


def flipped(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


@pytest.mark.parametrize(
    ("content", "conflict", "fault"),
    [
        (b"", False, "0 bytes without a whole first frame"),
        (HEADER[:-1], False, "without a whole first frame"),
        (b"plain text", False, "no frame begins with 70 6c 61 69"),
        (frame(b"{}\n"), False, "no session header"),
        (flipped(HEADER, len(HEADER) - 1), True, "checksum"),
        (frame(session_line()), True, "nothing else"),
        (frame(session_line() + b"\n", BODY[0] + b"\n"), True, "nothing else"),
        (frame(session_line() + b"\n", b"half"), True, "nothing else"),
        (MAGIC + b"\x08\x58", True, "reserved bit"),
    ],
)
def test_a_first_frame_that_is_no_header_is_named(
    tmp_path: Path, content: bytes, conflict: bool, fault: str
) -> None:
    write_log(tmp_path, [], name="session.v2.jsonl.zstd").write_bytes(content)
    swept = JsonlStore(tmp_path).sweep()
    [damaged] = swept.damaged
    assert (swept.snapshots, damaged.code) == ((), ErrorCode.CORRUPT_SESSION)
    assert damaged.conflict == conflict
    assert damaged.message.startswith("--w--/s/session.v2.jsonl.zstd")
    assert fault in damaged.message


# --- a torn last frame


def test_the_torn_sample_gives_what_can_be_decoded(tmp_path: Path) -> None:
    content = sample_bytes()
    with JsonlStore(SAMPLES / "store-zstd").open("torn-0004", "read") as reader:
        log = reader.read_log()
    with JsonlStore(SAMPLES / "store").open("torn-0004", "read") as reader:
        plain = reader.read_log()
    assert len(content) == 686
    assert log.events == plain.events
    assert log.left_out is not None
    assert "the frame at byte 428 is torn" in log.left_out


def test_a_log_torn_at_any_byte_keeps_its_whole_frames_and_perhaps_more(tmp_path: Path) -> None:
    path = write_frames(tmp_path, BODY[:1], BODY[1:])
    content = path.read_bytes()
    first = len(HEADER) + len(lines_of(BODY[0]))
    whole = read(tmp_path).events
    for size in range(len(HEADER), len(content)):
        path.write_bytes(content[:size])
        events = read(tmp_path).events
        assert events == whole[: len(events)]
        assert len(events) >= (size >= first)
    path.write_bytes(content[:-4])
    assert read(tmp_path).events == whole


def test_a_frame_torn_inside_a_line_keeps_the_lines_before(tmp_path: Path) -> None:
    torn = frame(BODY[0] + b"\n", BODY[1][:20])[:-2]
    write_frames(tmp_path, torn=torn)
    log = read(tmp_path)
    assert len(log.events) == 1
    assert "line 3: 20 bytes without a line end" in str(log.left_out)
    assert f"the frame at byte {len(HEADER)} is torn" in str(log.left_out)


def test_a_file_that_a_power_loss_left_longer_than_its_content_is_torn(tmp_path: Path) -> None:
    write_frames(tmp_path, BODY, torn=b"\0" * 70_000)
    log = read(tmp_path)
    assert len(log.events) == 3
    assert "is torn" in str(log.left_out)


def test_a_torn_frame_whose_content_is_damaged_ends_the_log(tmp_path: Path) -> None:
    content = MAGIC + b"\x00\x58" + block(0, 9) + b"{broken}\n" + block(2, 500) + b"x" * 90
    write_frames(tmp_path, BODY, torn=content)
    log = read(tmp_path)
    assert len(log.events) == 3
    assert "line 5" in str(log.left_out)


def test_a_torn_record_before_a_whole_one_ends_a_torn_frame(tmp_path: Path) -> None:
    joined = b'{"type":"half' + BODY[1]
    path = write_frames(tmp_path, torn=lines_of(BODY[0], joined)[:-2])
    log = read(tmp_path)
    assert len(log.events) == 1
    assert "line 3: not JSON" in str(log.left_out)
    with JsonlStore(tmp_path).open("s", "write") as writer:
        writer.append((Event("demo/x", 1, 7, b"{}", ignorable=True),))
    assert path.read_bytes().startswith(HEADER + lines_of(BODY[0]))
    assert len(read(tmp_path).events) == 2


# --- whole frames


@pytest.mark.parametrize(
    ("batch", "fault"),
    [
        (frame(BODY[0] + b"\n", BODY[1][:20]), "line 3: its frame ends after 20 bytes of it"),
        (lines_of(BODY[0], b"{broken"), "line 3: not JSON"),
        (lines_of(BODY[0], b""), "line 3: not JSON"),
        (lines_of(BODY[0], BODY[2]), "line 3: seq 2 where 1 was due"),
        (lines_of(b'{"type":"demo' + BODY[0]), "line 2: not JSON"),
    ],
)
def test_a_bad_line_in_a_whole_frame_is_corrupt_even_at_the_end(
    tmp_path: Path, batch: bytes, fault: str
) -> None:
    write_frames(tmp_path, torn=batch)
    with pytest.raises(CorruptLog, match=fault):
        read(tmp_path)


def test_a_checksum_that_does_not_match_is_told_from_a_wrong_structure(tmp_path: Path) -> None:
    batch = lines_of(*BODY)
    write_frames(tmp_path, torn=flipped(batch, len(batch) - 1))
    with pytest.raises(CorruptLog, match=f"byte {len(HEADER)} is damaged: .*checksum"):
        read(tmp_path)


def test_a_batch_without_a_checksum_or_without_lines_is_read(tmp_path: Path) -> None:
    text = BODY[0] + b"\n"
    plain = MAGIC + b"\x00\x58" + block(0, len(text), last=True) + text
    write_frames(tmp_path, torn=plain + frame() + lines_of(BODY[1]))
    assert len(read(tmp_path).events) == 2


# --- both encodings


def test_both_encodings_stand_in_one_root_and_logs_go_on_as_they_are(tmp_path: Path) -> None:
    store_session(JsonlStore(tmp_path), turns(2), header("plain"))
    store_session(JsonlStore(tmp_path, compression="zstd"), turns(2), header("small"))
    store = JsonlStore(tmp_path)
    for session_id in ("plain", "small"):
        with store.open(session_id, "write") as writer:
            writer.append(turns(3)[2:])
            assert writer.read() == turns(3)
    names = sorted(path.name for path in tmp_path.rglob("session.v*"))
    assert names == ["session.v2.jsonl", "session.v2.jsonl.zstd"]
    assert len(store.sweep().snapshots) == 2


def test_an_older_generation_in_the_other_encoding_is_no_conflict(tmp_path: Path) -> None:
    write_log(tmp_path, [], name="session.jsonl", header=session_line(version=0, isSeeded=None))
    write_frames(tmp_path, BODY)
    assert len(read(tmp_path).events) == 3


def test_one_generation_in_both_encodings_is_refused(tmp_path: Path) -> None:
    write_log(tmp_path, BODY)
    write_frames(tmp_path, BODY)
    with pytest.raises(CorruptLog, match="exists both plain and compressed"):
        read(tmp_path)


def test_an_unknown_compression_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SessionQueryError, match="'none' or 'zstd', got 'gzip'") as caught:
        JsonlStore(tmp_path, compression="gzip")  # type: ignore[arg-type]
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_without_zstd_compressed_logs_are_unsupported_and_others_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_frames(tmp_path, BODY)
    write_log(tmp_path, BODY, segment="t", header=session_line(id="t"))
    monkeypatch.setattr(zstandard, "_MODULE", "backports.no_such_module")
    zstandard._zstd.cache_clear()
    try:
        swept = JsonlStore(tmp_path).sweep()
        assert [found.header.id for found in swept.snapshots] == ["t"]
        [damaged] = swept.damaged
        assert damaged.code is ErrorCode.PERSISTENCE_FAILED
        assert "extra 'zstd'" in damaged.message
        with pytest.raises(SessionQueryError, match="extra 'zstd'"):
            JsonlStore(tmp_path, compression="zstd")
    finally:
        zstandard._zstd.cache_clear()


# --- tails


def test_a_tail_of_a_compressed_log_reads_only_what_was_appended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = [row(seq, "demo/x", {"n": os.urandom(999).hex()}) for seq in range(2000)]
    path = write_frames(tmp_path, noise)
    store = JsonlStore(tmp_path)
    mark = store.read_tail("s", None, 10**9).mark
    with path.open("ab") as file:
        file.write(lines_of(row(2000, "demo/x", {})))
    sizes: list[int] = []
    really = OsFile.read

    def counted(file: OsFile, offset: int, size: int) -> bytes:
        data = really(file, offset, size)
        sizes.append(len(data))
        return data

    monkeypatch.setattr(OsFile, "read", counted)
    tail = store.read_tail("s", mark)
    assert (tail.appended, [event.seq for event in tail.events]) == (True, [2000])
    # The guard looks at the beginning and at what stands before the mark, once each side of it.
    assert sum(sizes) < path.stat().st_size - 500_000


@pytest.mark.parametrize("limit", [1, 100, 300])
def test_a_tail_may_end_inside_a_frame(tmp_path: Path, limit: int) -> None:
    rows = [row(seq, "demo/x", {"n": seq}) for seq in range(40)]
    write_frames(tmp_path, rows[:1], rows[1:30], [], rows[30:])
    events = tail_events(JsonlStore(tmp_path), "s", limit)
    assert [event.seq for event in events] == list(range(40))


def test_a_frame_that_was_torn_may_be_completed(tmp_path: Path) -> None:
    path = write_frames(tmp_path, BODY[:1])
    batch = lines_of(*BODY[1:])
    before = path.read_bytes()
    path.write_bytes(before + batch[:-3])
    store = JsonlStore(tmp_path)
    torn = store.read_tail("s", None)
    assert (len(torn.events), torn.complete) == (3, True)
    assert "is torn" in str(torn.left_out)
    with path.open("r+b") as file:
        file.write(before + batch + lines_of(row(3, "demo/x", {})))
    tail = store.read_tail("s", torn.mark)
    assert tail.appended
    assert [event.seq for event in tail.events] == [3]


def test_a_torn_frame_that_became_another_is_read_from_the_beginning(tmp_path: Path) -> None:
    path = write_frames(tmp_path, BODY[:1])
    before = path.read_bytes()
    path.write_bytes(before + lines_of(*BODY[1:])[:-3])
    store = JsonlStore(tmp_path)
    mark = store.read_tail("s", None).mark
    with path.open("r+b") as file:
        file.write(before + lines_of(row(1, "demo/other", {}), row(2, "demo/more", {})))
        file.truncate()
    tail = store.read_tail("s", mark)
    assert not tail.appended
    assert [event.type for event in tail.events] == ["turn/start", "demo/other", "demo/more"]


def test_a_tail_follows_a_writer_that_stores_torn_rows_again(tmp_path: Path) -> None:
    write_frames(tmp_path, BODY[:1], torn=lines_of(*BODY[1:])[:-3])
    store = JsonlStore(tmp_path)
    mark = store.read_tail("s", None).mark
    added = Event("demo/x", 3, 7, b"{}", ignorable=True)
    with store.open("s", "write") as writer:
        writer.append((added,))
    tail = store.read_tail("s", mark)
    assert (tail.appended, tail.events) == (True, (added,))


def test_a_young_compressed_file_is_provisional(tmp_path: Path) -> None:
    write_frames(tmp_path, BODY)
    young = OsFilesAt(age(tmp_path) - 1_000_000_000)
    seen = JsonlStore(tmp_path, files=young).stat("s")
    assert seen is not None
    assert seen.provisional
    assert not JsonlStore(tmp_path, files=OsFilesAt(age(tmp_path))).sweep().snapshots[0].provisional


# --- while others write


def test_a_compressed_log_that_grows_while_it_is_read_is_read_as_it_was(tmp_path: Path) -> None:
    path = write_frames(tmp_path, BODY)
    size = path.stat().st_size
    batch = lines_of(row(3, "demo/x", {}))

    def grow() -> None:
        with path.open("ab") as file:
            file.write(batch)

    tail = JsonlStore(tmp_path, files=MeddlingFiles(grow, times=1)).read_tail("s", None)
    assert (len(tail.events), tail.snapshot.size_bytes) == (3, size)


def test_a_frame_that_is_completed_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    batch = lines_of(*BODY)
    path = write_frames(tmp_path, torn=batch[:9])

    def complete() -> None:
        with path.open("ab") as file:
            file.write(batch[9:])

    tail = JsonlStore(tmp_path, files=MeddlingFiles(complete, times=1)).read_tail("s", None)
    assert (len(tail.events), tail.left_out) == (3, None)


@pytest.mark.parametrize("length", [4000, 9000, 300_000, 3_000_000])
def test_a_compressed_header_of_any_length_is_found(tmp_path: Path, length: int) -> None:
    path = write_log(tmp_path, [], name="session.v2.jsonl.zstd")
    path.write_bytes(frame(session_line(more=os.urandom(length // 2).hex()) + b"\n"))
    [found] = JsonlStore(tmp_path).sweep().snapshots
    assert (found.header.id, read(tmp_path).events) == ("s", ())
