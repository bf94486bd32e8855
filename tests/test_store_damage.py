"""What a log holds when its file is torn, damaged or beyond this version."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from builders import Log, text, user_data
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonl_files import BODY, row, session_line, write_log

from session_query.messages.event import Event
from session_query.messages.header import SessionHeader
from session_query.messages.json import Json
from session_query.storage.contract import CorruptLog, NotFound, StoredLog, UnsupportedLog
from session_query.storage.json_line import RECORD_BYTES
from session_query.storage.jsonl import JsonlStore
from session_query.storage.records import render_event
from session_query.storage.scan import Scan

END: Json = {"turn": 2, "reason": {"kind": "completed"}}


def read(root: Path) -> StoredLog:
    with JsonlStore(root).open("s", "read") as reader:
        return reader.read_log()


def read_rows(root: Path, *rows: bytes, fragment: bytes = b"", version: int = 2) -> StoredLog:
    """Read a log of the three rows of a turn and then ``rows``."""
    names = {0: "session.jsonl", 2: "session.v2.jsonl", 3: "session.v3.jsonl"}
    line = session_line(version=version, isSeeded=None if version < 2 else False)
    write_log(root, [*BODY, *rows], fragment, name=names[version], header=line)
    return read(root)


# --- torn tails


def test_a_log_torn_at_any_byte_keeps_its_whole_records(tmp_path: Path) -> None:
    log = Log()
    log.user("é登录💡 \u2028")
    log.turn_end()
    log.user("x")
    lines = [session_line() + b"\n", *(render_event(event) for event in log.events)]
    content = b"".join(lines)
    path = write_log(tmp_path, [])
    ends = [len(b"".join(lines[: count + 1])) for count in range(len(lines))]
    for size in range(len(content) + 1):
        path.write_bytes(content[:size])
        whole = sum(end <= size for end in ends)
        if not whole:
            with pytest.raises(CorruptLog):
                read(tmp_path)
            continue
        found = read(tmp_path)
        assert found.events == tuple(log.events[: whole - 1])
        torn = size - ends[whole - 1]
        assert (found.left_out is None) == (torn == 0)
        if torn:
            assert f"line {whole + 1}: {torn} bytes" in str(found.left_out)


@given(st.data())
def test_lines_may_be_fed_in_any_pieces(data: st.DataObject) -> None:
    count = data.draw(st.integers(0, 8))
    lines = [row(seq, "demo/x", {}) for seq in range(count)]
    cut = data.draw(st.integers(0, count))
    scan = Scan("log", _header(), line=1, next_seq=0, earlier=_nothing_earlier)
    scan.feed(lines[:cut], 10**9)
    scan.feed(lines[cut:], 10**9)
    assert [event.seq for event in scan.events] == list(range(count))
    assert scan.offset == sum(len(line) + 1 for line in lines)
    assert (scan.accepted_lines, scan.left_out) == (1 + count, None)


@pytest.mark.parametrize("size", [1000, 4096, 5000, 1024 * 1024, 3 * 1024 * 1024])
def test_records_of_any_length_cross_the_pieces_a_file_is_read_in(
    tmp_path: Path, size: int
) -> None:
    rows = [row(seq, "demo/x", {"text": "x" * (size + seq)}) for seq in range(3, 6)]
    assert len(read_rows(tmp_path, *rows).events) == 6
    tail = JsonlStore(tmp_path).read_tail("s", None, 1)
    seqs = [event.seq for event in tail.events]
    while not tail.complete:
        tail = JsonlStore(tmp_path).read_tail("s", tail.mark, 1)
        seqs += [event.seq for event in tail.events]
    assert seqs == list(range(6))


def test_a_whole_record_without_a_line_end_is_torn(tmp_path: Path) -> None:
    found = read_rows(tmp_path, fragment=row(3, "turn/end", END))
    assert len(found.events) == 3
    assert "without a line end" in str(found.left_out)


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"{broken",
        b"null",
        b"42",
        b'"turn/end"',
        b"\x00" * 900,
        row(5, "demo/x", {}),
        row(2, "demo/x", {}),
        row(3, "demo/x", {}, sourceEventSeqs=[[2, 1]]),
    ],
)
def test_a_bad_line_after_the_last_turn_ends_the_log(tmp_path: Path, bad: bytes) -> None:
    found = read_rows(tmp_path, bad, row(3, "demo/x", {}), row(4, "demo/x", {}))
    assert [event.seq for event in found.events] == [0, 1, 2]
    assert "s/session.v2.jsonl line 5: " in str(found.left_out)
    assert "2 more lines behind it" in str(found.left_out)


@pytest.mark.parametrize("bad", [b"", b"{broken", row(5, "demo/x", {}), row(2, "demo/x", {})])
def test_a_bad_line_before_a_turn_end_is_corrupt(tmp_path: Path, bad: bytes) -> None:
    with pytest.raises(CorruptLog, match=r"s/session\.v2\.jsonl line 5: "):
        read_rows(tmp_path, bad, row(3, "demo/x", {}), row(4, "turn/end", END))


@pytest.mark.parametrize("seq", [2, 4, 99])
def test_a_turn_end_out_of_order_is_corrupt_by_itself(tmp_path: Path, seq: int) -> None:
    with pytest.raises(CorruptLog, match=f"line 5: seq {seq} where 3 was due"):
        read_rows(tmp_path, row(seq, "turn/end", END))


def test_the_words_of_a_turn_end_inside_a_text_prove_nothing(tmp_path: Path) -> None:
    quoted = row(9, "demo/x", {"text": '{"type":"turn/end"}'})
    assert len(read_rows(tmp_path, b"{broken", quoted, b'"type":"turn/end"').events) == 3


def test_damage_far_behind_a_bad_line_is_found_by_a_small_tail_too(tmp_path: Path) -> None:
    filler = [row(9, "demo/x", {"text": "x" * 9000}) for _ in range(300)]
    write_log(tmp_path, [*BODY, b"{broken", *filler, row(9, "turn/end", END)])
    store = JsonlStore(tmp_path)
    tail = store.read_tail("s", None, len(BODY[0]) + 1 + len(BODY[1]) + 1)
    assert ([event.seq for event in tail.events], tail.complete) == ([0, 1], False)
    tail = store.read_tail("s", tail.mark, 1)
    assert ([event.seq for event in tail.events], tail.complete) == ([2], False)
    with pytest.raises(CorruptLog, match="line 5: not JSON"):
        store.read_tail("s", tail.mark, 1)


def test_a_tail_says_what_it_left_out_and_goes_on_when_that_is_gone(tmp_path: Path) -> None:
    path = write_log(tmp_path, [*BODY, b"{broken"])
    store = JsonlStore(tmp_path)
    tail = store.read_tail("s", None)
    assert (tail.complete, "line 5: not JSON" in str(tail.left_out)) == (True, True)
    again = store.read_tail("s", tail.mark)
    assert (again.events, again.appended, again.left_out) == ((), True, tail.left_out)
    path.write_bytes(b"\n".join([session_line(), *BODY, row(3, "demo/x", {}), b""]))
    healed = store.read_tail("s", tail.mark)
    assert ([event.seq for event in healed.events], healed.left_out) == ([3], None)


_changes = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 3)),
    st.tuples(st.just("cut"), st.integers(0, 400)),
    st.tuples(st.just("rewrite"), st.integers(0, 4)),
    st.tuples(st.sampled_from(["damage", "tear", "end"]), st.just(0)),
)


@given(st.lists(_changes, max_size=8), st.integers(1, 300))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_following_a_log_by_its_tails_is_the_same_as_reading_it_afresh(
    tmp_path: Path, changes: list[tuple[str, int]], limit: int
) -> None:
    path = write_log(tmp_path, [])
    store = JsonlStore(tmp_path)
    followed: list[Event] = []
    mark: bytes | None = None
    for number, change in enumerate(changes):
        _change(path, change, number)
        try:
            afresh = JsonlStore(tmp_path).read_tail("s", None)
        except CorruptLog:
            with pytest.raises(CorruptLog):
                mark = _follow(store, followed, mark, limit)
            return
        mark = _follow(store, followed, mark, limit)
        assert tuple(followed) == afresh.events


def _change(path: Path, change: tuple[str, int], number: int) -> None:
    content = path.read_bytes()
    lines = content.count(b"\n") - 1
    match change:
        case ("append", count):
            rows = [row(lines + at, "demo/x", {"n": number}) for at in range(count)]
            path.write_bytes(content + b"".join(line + b"\n" for line in rows))
        case ("cut", size):
            path.write_bytes(content[: max(len(content) - size, len(session_line()) + 1)])
        case ("rewrite", count):
            write_log(path.parents[2], [row(at, "demo/y", {"n": number}) for at in range(count)])
        case ("end", _):
            path.write_bytes(content + row(lines, "turn/end", END) + b"\n")
        case ("damage", _):
            path.write_bytes(content + b"damage\n")
        case _:
            path.write_bytes(content + b'{"type":')


def _follow(
    store: JsonlStore, followed: list[Event], mark: bytes | None, limit: int
) -> bytes | None:
    while True:
        tail = store.read_tail("s", mark, limit)
        if not tail.appended:
            followed.clear()
        followed += tail.events
        mark = tail.mark
        if tail.complete:
            return mark


# --- records that no torn write leaves


@pytest.mark.parametrize(
    "bad", [row(3, "demo/x", {}, zz=1), row(3, "demo/x", {}, surfaceOp=None, time="x")]
)
def test_a_whole_record_with_a_wrong_envelope_is_corrupt_even_at_the_end(
    tmp_path: Path, bad: bytes
) -> None:
    with pytest.raises(CorruptLog, match="line 5: event 3"):
        read_rows(tmp_path, bad)


@pytest.mark.parametrize("before", [[], [b"{broken"]], ids=["alone", "in a torn tail"])
def test_a_record_beyond_this_version_makes_the_log_unsupported(
    tmp_path: Path, before: list[bytes]
) -> None:
    line = len(BODY) + len(before) + 2
    for data in (b"[" * 300 + b"]" * 300, b"1e400"):
        deep = b'{"type":"demo/x","seq":3,"time":1,"data":%s}' % data
        with pytest.raises(UnsupportedLog, match=f"line {line}: {len(deep)} bytes"):
            read_rows(tmp_path, *before, deep)


def test_a_record_over_the_limit_makes_the_log_unsupported(tmp_path: Path) -> None:
    path = write_log(tmp_path, BODY, b'{"type":"demo/x"')
    os.truncate(path, path.stat().st_size + RECORD_BYTES)
    assert len(read(tmp_path).events) == 3
    with path.open("ab") as file:
        file.write(b"\n")
    with pytest.raises(UnsupportedLog, match=f"line 5: {RECORD_BYTES + 16} bytes"):
        read(tmp_path)


def test_a_header_over_the_limit_is_unsupported_and_hides_nothing(tmp_path: Path) -> None:
    write_log(tmp_path, BODY, segment="t", header=session_line(id="t"))
    path = write_log(tmp_path, [])
    with path.open("wb") as file:
        file.truncate(RECORD_BYTES + 2)
    swept = JsonlStore(tmp_path).sweep()
    assert [found.header.id for found in swept.snapshots] == ["t"]
    assert [found.session_id for found in swept.damaged] == ["s"]


# --- text that breaks other readers


def test_a_lone_surrogate_escape_is_kept_as_it_stands(tmp_path: Path) -> None:
    data = b'{"text":"a \\ud83d b","pair":"\\ud83d\\ude00"}'
    stored = b'{"type":"demo/x","seq":3,"time":1,"data":%s,"ignorable":true}' % data
    event = read_rows(tmp_path, stored, row(4, "turn/end", END)).events[3]
    assert (event.raw, event.data) == (data, {"text": "a \ud83d b", "pair": "😀"})


def test_records_are_split_at_line_feeds_alone(tmp_path: Path) -> None:
    quoted = "a\u2028b\u2029c\u0085d"
    stored = row(3, "user/message", user_data(quoted), surfaceOp="append")
    assert "\u2028".encode() in stored
    events = read_rows(tmp_path, stored + b"\r", row(4, "demo/x", {}) + b"\r").events
    assert [event.seq for event in events] == [0, 1, 2, 3, 4]
    assert events[3].data == user_data(quoted)


def test_invalid_utf_8_is_one_replacement_character_a_bad_byte(tmp_path: Path) -> None:
    stored = b'{"type":"demo/x","seq":3,"time":1,"data":"a\xff\xfeb"}'
    assert read_rows(tmp_path, stored).events[3].data == "a\ufffd\ufffdb"


def test_a_whole_record_behind_a_torn_one_on_its_line_is_recovered(tmp_path: Path) -> None:
    torn = row(3, "demo/x", {"content": [{"type": "text", "text": "cut short"}]})[:-30]
    found = read_rows(
        tmp_path,
        torn + row(3, "demo/y", {"blocks": [{"type": "text"}]}),
        b"\x00" * 8 + row(4, "demo/y", {}),
        row(5, "turn/end", END),
    )
    assert [event.type for event in found.events[3:]] == ["demo/y", "demo/y", "turn/end"]
    assert f"line 5: {len(torn)} bytes before a whole record" in str(found.left_out)
    assert "line 6: 8 bytes before a whole record" in str(found.left_out)


def test_a_torn_line_whose_record_does_not_follow_is_counted_as_lost(tmp_path: Path) -> None:
    glued = b'{"type":"demo/x","se' + row(9, "demo/y", {})
    assert "line 5: not JSON" in str(read_rows(tmp_path, glued).left_out)
    with pytest.raises(CorruptLog, match="line 5: not JSON"):
        read_rows(tmp_path, glued, row(10, "turn/end", END))


# --- formats 0, 1 and 3


def test_packed_rows_stand_among_others(tmp_path: Path) -> None:
    found = read_rows(tmp_path, _packed(3), row(6, "demo/x", {}), _packed(7), version=0)
    assert [event.seq for event in found.events] == list(range(10))
    assert [event.type for event in found.events[3:6]] == ["assistant/chunk"] * 3


def test_a_packed_row_that_is_not_next_is_dropped_whole(tmp_path: Path) -> None:
    assert len(read_rows(tmp_path, _packed(2), version=0).events) == 3
    assert len(read_rows(tmp_path, _packed(4), version=0).events) == 3


def test_a_malformed_packed_row_inside_the_committed_log_is_corrupt(tmp_path: Path) -> None:
    bad = _packed(3).replace(b'"texts"', b'"words"')
    assert len(read_rows(tmp_path, bad, version=0).events) == 3
    with pytest.raises(CorruptLog, match="line 5"):
        read_rows(tmp_path, bad, row(3, "turn/end", END), version=0)


def test_a_packed_row_in_another_spelling_or_format_is_read_too(tmp_path: Path) -> None:
    spaced = b" " + _packed(3).replace(b'"seq0":3', b'"seq0": 3')
    assert len(read_rows(tmp_path, spaced, version=0).events) == 6
    assert len(read_rows(tmp_path, _packed(3), version=2).events) == 6


def test_shapes_of_format_0_are_read_in_their_modern_form(tmp_path: Path) -> None:
    bare: Json = {"content": [text("hi")], "source": {"kind": "user"}}
    stored = row(3, "user/message", bare, surfaceOp="append")
    event = read_rows(tmp_path, stored, version=0).events[3]
    assert event.data == {
        "content": [text("hi")],
        "source": {"kind": "user"},
        "id": "legacy-message:s:3",
        "role": "user",
    }
    event = read_rows(tmp_path / "new", stored, version=2).events[3]
    assert event.data == bare


def test_an_old_result_that_replaces_another_keeps_its_identity_across_tails(
    tmp_path: Path,
) -> None:
    result: Json = {"turn": 1, "step": 1, "callId": "c", "content": [], "isError": False}
    source: Json = {"kind": "tool", "callId": "c"}
    named: Json = {"id": "m9", "role": "user", "content": [], "source": source}
    rows = [
        row(3, "tool/result", {"turn": 1, "step": 1, "message": named}, surfaceOp="append"),
        row(4, "tool/result", result, surfaceOp={"op": "replace", "start": 3, "end": 3}),
    ]
    whole = read_rows(tmp_path, *rows, version=0).events
    store = JsonlStore(tmp_path)
    tail = store.read_tail("s", None, 1)
    events = list(tail.events)
    while not tail.complete:
        tail = store.read_tail("s", tail.mark, 1)
        events += tail.events
    assert tuple(events) == whole
    data = whole[4].data
    assert isinstance(data, dict) and isinstance(data["message"], dict)
    assert data["message"]["id"] == "m9"


def test_a_retired_event_makes_an_old_log_unsupported(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedLog, match="line 5: event 3: type 'mode/set' is retired"):
        read_rows(tmp_path, row(3, "mode/set", {}), version=0)


def test_an_odd_turn_in_an_old_log_is_corrupt(tmp_path: Path) -> None:
    with pytest.raises(CorruptLog, match="line 5: event 3"):
        read_rows(tmp_path, row(3, "turn/start", {"turn": 0}), version=0)


def test_the_seed_length_of_an_old_header_is_what_was_inherited(tmp_path: Path) -> None:
    line = session_line(version=0, isSeeded=None, seedLength=2)
    write_log(tmp_path, BODY, name="session.jsonl", header=line)
    found = read(tmp_path)
    assert (found.inherited_event_count, found.snapshot.header.seed_length) == (2, 2)


@pytest.mark.parametrize("seeded", [True, False])
def test_header_and_marker_must_agree_on_what_was_inherited(tmp_path: Path, seeded: bool) -> None:
    marker = [] if seeded else [row(3, "session/end-seed", {"inherited": True})]
    write_log(tmp_path, [*BODY, *marker], header=session_line(isSeeded=seeded))
    with pytest.raises(CorruptLog, match="seeded"):
        read(tmp_path)


def test_format_3_is_read(tmp_path: Path) -> None:
    op: Json = {"op": "replace", "startSeq": 1, "endSeq": 1}
    found = read_rows(tmp_path, row(3, "user/message", user_data("x"), surfaceOp=op), version=3)
    assert found.events[3].surface_op is not None
    with pytest.raises(UnsupportedLog, match="read only"):
        JsonlStore(tmp_path).open("s", "write")


def test_an_empty_directory_is_no_session(tmp_path: Path) -> None:
    (tmp_path / "--w--" / "s").mkdir(parents=True)
    with pytest.raises(NotFound):
        read(tmp_path)


def _packed(seq: int) -> bytes:
    data: Json = {"turn": 1, "step": 1, "index": 0, "dt": [1, -2], "texts": ["a", "b", "c"]}
    packed = row(0, "text-chunks", data).replace(b'"seq":0,"time":5', b'"seq0":%d,"time0":5' % seq)
    assert b"seq0" in packed
    return packed


def _header() -> SessionHeader:
    return SessionHeader("s", 1)


def _nothing_earlier(_seq: int) -> Event | None:
    return None
