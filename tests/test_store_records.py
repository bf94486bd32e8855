"""One stored line, read and written."""

from __future__ import annotations

import pytest
from builders import Log
from hypothesis import given
from hypothesis import strategies as st
from strategies import logs

from session_query.messages.event import Event, Replace
from session_query.storage.json_line import NotARecord, UnsupportedRecord
from session_query.storage.records import (
    BadRecord,
    expand_sources,
    pack_sources,
    read_events,
    render_event,
    usual_event,
)


def line(data: bytes = b"{}", more: bytes = b"", seq: bytes = b"4", time: bytes = b"5") -> bytes:
    return b'{"type":"demo/x","seq":%s,"time":%s,"data":%s%s}' % (seq, time, data, more)


def read(stored: bytes, version: int = 2) -> Event:
    [event] = read_events(stored, version, 4)
    return event


@given(logs())
def test_a_rendered_event_is_read_back_as_it_was(events: tuple[Event, ...]) -> None:
    for event in events:
        assert read_events(render_event(event).removesuffix(b"\n"), 2, event.seq) == [event]


def test_keys_are_written_in_the_order_of_the_reference() -> None:
    event = Event("x", 9, -1, b"[1.0, 1e2]", Replace(1, 2), (0, 1, 2, 3, 5), True)
    assert render_event(event) == (
        b'{"type":"x","seq":9,"time":-1,"data":[1.0, 1e2],"ignorable":true,'
        b'"surfaceOp":{"op":"replace","start":1,"end":2},"sourceEventSeqs":[[0,3],5]}\n'
    )


def test_a_line_feed_between_tokens_does_not_break_the_line() -> None:
    event = Event("x", 0, 1, b'{\n"a":\n1}')
    assert render_event(event).count(b"\n") == 1
    assert read_events(render_event(event)[:-1], 2, 0)[0].data == {"a": 1}


@pytest.mark.parametrize("raw", [b"", b"{", b"NaN", b'"\xff"', b"1 2", b"1e400"])
def test_a_payload_that_is_no_json_is_not_written(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"event 0 \(demo/x\)"):
        render_event(Event("demo/x", 0, 1, raw))


def test_a_payload_no_reader_would_take_is_not_written() -> None:
    render_event(Event("x", 0, 1, b"[" * 256 + b"]" * 256))
    with pytest.raises(ValueError, match="256 levels"):
        render_event(Event("x", 0, 1, b"[" * 257 + b"]" * 257))


@pytest.mark.parametrize(
    "raw",
    [
        b"1.0",
        b"1e2",
        b"-0",
        b"123456789012345678901234567890",
        b'"\\u00e9\\/"',
        b'{ "a" : [ ] }',
        b'{"a":1,"a":2}',
        b'"\\ud83d"',
        b'{"a":"\\\\ud83d \\ud83d\\ud83d\\ude00"}',
        '"\u2028\u2029\u0085\x0b"'.replace("\x0b", "").encode(),
        b"null",
    ],
)
def test_the_exact_spelling_of_a_payload_is_kept(raw: bytes) -> None:
    assert read(line(raw)).raw == raw
    assert read(line(raw, seq=b"4.0")).raw == raw


def test_the_payload_is_found_wherever_it_stands() -> None:
    stored = b' { "data" : {"data":"\\ud800"} ,"time":5,"type":"\\ud800","seq":4 } '
    event = read(stored)
    assert (event.raw, event.type) == (b'{"data":"\\ud800"}', "\ud800")


def test_invalid_utf_8_is_read_with_replacement_characters() -> None:
    assert read(line(b'{"a":"x\xff\xc3y"}')).raw == '{"a":"x\ufffd\ufffdy"}'.encode()


def test_a_carriage_return_and_spaces_around_a_record_are_no_damage() -> None:
    assert read(b"  " + line() + b" \t\r") == read(line())


@pytest.mark.parametrize(
    ("seq", "time", "expected"), [(b"4.0", b"5", 5), (b"4", b"1e3", 1000), (b"4", b"-7.0", -7)]
)
def test_whole_numbers_count_however_they_are_spelled(
    seq: bytes, time: bytes, expected: int
) -> None:
    event = read(line(seq=seq, time=time))
    assert (event.seq, event.time, type(event.time)) == (4, expected, int)


@pytest.mark.parametrize(
    "stored",
    [
        b"",
        b" ",
        b"\x00\x00",
        b"null",
        b"42",
        b'"text"',
        b"[]",
        b"{}",
        b"{",
        line()[:-1],
        line() + line(),
        line(b'"\x00"'),
        line(b'"\\x"'),
        line(b"NaN"),
        line(b"01"),
        line(seq=b'"4"'),
        line(seq=b"3"),
        line(seq=b"9007199254740990", more=b',"sourceEventSeqs":[[0,9007199254740989]]'),
        line(seq=b"null", more=b',"zz":1'),
        line(seq=b"7", more=b',"zz":1'),
        line(more=b',"sourceEventSeqs":[[3,2]]'),
        line(more=b',"sourceEventSeqs":[[0,1],1]'),
        line(more=b',"sourceEventSeqs":[[0,999999999]]'),
    ],
)
def test_a_line_that_is_no_record_is_told_apart(stored: bytes) -> None:
    with pytest.raises(NotARecord):
        read(stored)


def test_negative_zero_is_no_seq() -> None:
    with pytest.raises(NotARecord):
        read_events(line(seq=b"-0"), 2, 0)
    assert read_events(line(b"-0", seq=b"0"), 2, 0)[0].raw == b"-0"


@pytest.mark.parametrize(
    "stored",
    [
        line(time=b"1.5"),
        line(time=b'"5"'),
        line(time=b"9007199254740992"),
        line(more=b',"zz":1'),
        line(more=b',"ignorable":false'),
        line(more=b',"ignorable":null'),
        line(more=b',"surfaceOp":null'),
        line(more=b',"surfaceOp":"put"'),
        line(more=b',"surfaceOp":{"op":"replace","start":1}'),
        line(more=b',"surfaceOp":{"op":"replace","start":1,"end":1.5}'),
        line(more=b',"surfaceOp":{"op":"replace","start":1,"end":2,"x":1}'),
        line(more=b',"surfaceOp":{"op":"replace","startSeq":1,"endSeq":2}'),
        line(more=b',"sourceEventSeqs":null'),
        line(more=b',"sourceEventSeqs":1'),
        line(more=b',"sourceEventSeqs":[1.5]'),
        line(more=b',"sourceEventSeqs":[[1]]'),
        line(more=b',"sourceEventSeqs":["1"]'),
        b'{"type":"demo/x","seq":4,"time":5}',
        b'{"type":"demo/x","seq":4,"data":{}}',
        b'{"seq":4,"time":5,"data":{}}',
        b'{"type":7,"seq":4,"time":5,"data":{}}',
    ],
)
def test_a_whole_record_with_a_wrong_envelope_is_bad(stored: bytes) -> None:
    with pytest.raises(BadRecord, match="event 4"):
        read(stored)


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 257 + b"]" * 257,
        b"[" * 5000 + b"]" * 5000,
        b'{"a":' * 257 + b"1" + b"}" * 257,
        b"1e400",
        b"-1e999",
        b"1" * 5000,
    ],
)
def test_a_record_too_deep_or_with_endless_numbers_is_unsupported(data: bytes) -> None:
    with pytest.raises(UnsupportedRecord, match=r"\d+ bytes"):
        read(line(data))


def test_depth_counts_levels_and_not_brackets() -> None:
    for data in (
        b"[" * 256 + b"]" * 256,
        b"[" + b"[]," * 1000 + b"[]]",
        b'"' + b'[{\\"' * 1000 + b'"',
    ):
        assert read(line(data)).raw == data


def test_format_3_names_the_ends_of_a_replacement_differently() -> None:
    stored = line(more=b',"surfaceOp":{"op":"replace","startSeq":1,"endSeq":2}')
    assert read(stored, version=3).surface_op == Replace(1, 2)
    assert read(line(more=b',"surfaceOp":{"op":"replace","start":1,"end":2}')) == read(
        line(more=b',"surfaceOp":{"op":"replace","start":1.0,"end":2}')
    )


def test_an_event_of_any_version_may_cite_ranges() -> None:
    for version in (0, 1, 2, 3):
        event = read(line(more=b',"sourceEventSeqs":[0,[1,3]]'), version)
        assert event.source_event_seqs == (0, 1, 2, 3)


def test_the_type_of_many_events_is_one_string() -> None:
    assert read(line()).type is read(line()).type


@pytest.mark.parametrize(
    ("sources", "packed"),
    [
        ((), []),
        ((1,), [1]),
        ((1, 2), [1, 2]),
        ((1, 2, 3), [[1, 3]]),
        ((2, 3, 8, 9, 10, 11, 14), [2, 3, [8, 11], 14]),
        ((3, 2, 1), [3, 2, 1]),
        ((1, 2, 3, 3), [1, 2, 3, 3]),
    ],
)
def test_three_in_a_row_are_written_as_a_range(
    sources: tuple[int, ...], packed: list[int | list[int]]
) -> None:
    assert pack_sources(sources) == packed


@given(st.lists(st.integers(0, 40), max_size=20))
def test_citations_survive_packing(sources: list[int]) -> None:
    log = Log()
    log.add("x", sources=sources)
    stored = render_event(log.events[0]).replace(b'"seq":0', b'"seq":50')
    [event] = read_events(stored, 2, 50)
    assert event.source_event_seqs == tuple(sources)


@pytest.mark.parametrize("items", [[(0, 2**53)], [(0, 2**53), (2**53, 0)], [7, (0, 10)]])
def test_an_impossible_range_is_refused_before_it_is_expanded(
    items: list[int | tuple[int, int]],
) -> None:
    with pytest.raises(NotARecord, match="impossible range"):
        expand_sources(items, 11)


def test_a_run_of_a_line_that_is_not_due_is_not_expanded() -> None:
    far = 2**53 - 2
    stored = line(seq=b"%d" % far, more=b',"sourceEventSeqs":[[0,%d]]' % (far - 1))
    assert usual_event(stored, 7) is None
    with pytest.raises(NotARecord, match="where 7 was due"):
        read_events(stored, 2, 7)
