"""A long line is read as a short one of the same content would be, in less memory."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import pytest
from fuzz_log_reader import changed, originals
from jsonl_files import BODY, row, session_line, write_log

from session_query.history.long_payload import LONG_BYTES
from session_query.messages.event import Event
from session_query.storage import json_line, records
from session_query.storage.contract import CorruptLog, UnsupportedLog
from session_query.storage.json_line import NotARecord, UnsupportedRecord
from session_query.storage.jsonl import JsonlStore
from session_query.storage.records import BadRecord, read_events

LONG = b"x" * LONG_BYTES
"""A text that makes a line long."""


def outcome(line: bytes, version: int, seq: int) -> list[Event] | type[Exception]:
    try:
        return read_events(line, version, seq)
    except (NotARecord, BadRecord, UnsupportedRecord) as error:
        return type(error)


def test_the_two_ways_of_reading_a_line_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(5)
    plain = [found.content for found in originals() if not found.name.endswith(".zstd")]
    lines = [line for content in plain for line in content.splitlines()[1:]]
    accepted = 0
    for number in range(3000):
        original = random.choice(lines)
        found = re.search(rb'"seq0?":(\d+)', original)
        seq = int(found[1]) if found else 0
        line = changed(original, random) if number % 5 else original
        version = random.choice((0, 2))
        expected = outcome(line, version, seq)
        with monkeypatch.context() as shorter:
            for module in (records, json_line):
                shorter.setattr(module, "LONG_BYTES", -1)
            # In a line that is no JSON, the short way may meet an endless number first.
            assert outcome(line, version, seq) == expected or b"e999" in line, line
        accepted += isinstance(expected, list)
    assert 700 < accepted < 2500


@pytest.mark.parametrize(
    "data",
    [
        b'{"text":"%b"}' % LONG,
        b'[1.0, 1e2,"%b",123456789012345678901234567890]' % LONG,
        b'"%b\\ud800 \\ud83d\\ude00 \\\\ud800"' % LONG,
        b'{"data":"\\udc00","more":{"data":"%b"}}' % LONG,
    ],
    ids=["text", "numbers", "lone surrogates", "names"],
)
def test_the_exact_text_of_a_long_payload_is_kept(data: bytes) -> None:
    line = b'{"seq":0,"type":"demo/x", "data":%b,"time":5}' % data
    assert read_events(line, 2, 0) == [Event("demo/x", 0, 5, data)]


def test_a_bad_byte_in_a_long_payload_is_replaced() -> None:
    line = b'{"type":"demo/x","seq":0,"time":5,"data":"\xff%b"}' % LONG
    [event] = read_events(line, 2, 0)
    assert event.raw == '"\N{REPLACEMENT CHARACTER}'.encode() + LONG + b'"'


@pytest.mark.parametrize(
    ("data", "refusal", "fault"),
    [
        (b"[" * 257 + b'"%b"' % LONG + b"]" * 257, UnsupportedRecord, "more than 256 levels"),
        (b"[" * 9999 + b'"%b"' % LONG + b"]" * 9999, UnsupportedRecord, "more than 256 levels"),
        (b'["%b",1e999]' % LONG, UnsupportedRecord, "out of range: 1e999"),
        (b'["%b",-%b]' % (LONG, b"1" * 5000), UnsupportedRecord, "out of range: 1111"),
        (b'["%b",%b.5]' % (LONG, b"1" * 400), UnsupportedRecord, "out of range: 1111"),
        (b'["%b" 1]' % LONG, NotARecord, "not JSON"),
        (b'"%b\\q"' % LONG, NotARecord, "not JSON"),
        (b'"%b' % LONG, NotARecord, "not JSON"),
    ],
)
def test_a_long_line_is_refused_as_a_short_one_is(
    data: bytes, refusal: type[Exception], fault: str
) -> None:
    for payload in (data, data.replace(LONG, b"x")):
        line = b'{"type":"demo/x","seq":0,"time":5,"data":%b}' % payload
        with pytest.raises(refusal):
            read_events(line, 2, 0)
    with pytest.raises(refusal, match=fault):
        read_events(b'{"type":"demo/x","seq":0,"time":5,"data":%b}' % data, 2, 0)


def test_numbers_at_the_edge_and_in_texts_are_no_fault() -> None:
    data = b'["%b 1e999",1e308,1e-999,0e999,"\\"1e999",%b]' % (LONG, b"1" * 4300)
    line = b'{"type":"demo/x","seq":0,"time":5,"data":%b}' % data
    assert read_events(line, 2, 0)[0].raw == data


def test_a_long_envelope_is_unsupported_and_names_its_member() -> None:
    line = b'{"type":"demo/x","seq":0,"time":5,"data":1,"sourceEventSeqs":[%b0]}'
    with pytest.raises(UnsupportedRecord, match="'sourceEventSeqs' alone takes"):
        read_events(line % (b"0," * (LONG_BYTES // 2)), 2, 0)


def test_a_long_line_behind_a_bad_one_is_looked_at(tmp_path: Path) -> None:
    bad = [*BODY, b"{broken"]
    write_log(tmp_path, [*bad, row(9, "demo/x", {"text": LONG.decode()})])
    store = JsonlStore(tmp_path)
    with store.open("s", "read") as reader:
        assert len(reader.read()) == 3
    with pytest.raises(CorruptLog, match="cut whole records"):
        store.open("s", "write")
    write_log(tmp_path, [*bad, row(9, "turn/end", {"text": LONG.decode()})])
    with store.open("s", "read") as reader, pytest.raises(CorruptLog, match="line 5: not JSON"):
        reader.read()


def test_a_long_header_is_read_without_what_is_unknown(tmp_path: Path) -> None:
    write_log(tmp_path, BODY, header=session_line(more=LONG.decode()))
    seen = JsonlStore(tmp_path).stat("s")
    assert seen is not None
    assert seen.header.cwd == "/w"


def test_a_long_line_names_its_place_when_it_is_refused(tmp_path: Path) -> None:
    write_log(tmp_path, [*BODY, row(3, "demo/x", None).replace(b"null", b'["%b",1e999]' % LONG)])
    store = JsonlStore(tmp_path)
    with store.open("s", "read") as reader, pytest.raises(UnsupportedLog, match=r"line 5: .*1e999"):
        reader.read()
