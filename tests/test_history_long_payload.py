"""A long payload: what a fold makes of it is what it would make of the whole."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders import START, header
from hypothesis import given, settings
from hypothesis import strategies as st

from session_query.history import payload as payloads
from session_query.history.long_payload import (
    MAX_INDEXED_CHARS,
    affordable,
    needed,
    paired_surrogates,
)
from session_query.history.payload import payload
from session_query.history.projection import SessionProjection
from session_query.history.stream import check_stream
from session_query.history.whitespace import JS_WHITESPACE
from session_query.messages.errors import InvalidJson, SessionError, UnsupportedFormat
from session_query.messages.event import Event
from session_query.messages.json import Json, decode, elements, encode, member
from session_query.storage.contract import StoredLog
from session_query.storage.jsonl import JsonlStore

GOLDEN = Path(__file__).parent / "data" / "golden"


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> list[StoredLog]:
    """Every log of the recorded corpus that can be read."""
    root = tmp_path_factory.mktemp("golden")
    with tarfile.open(GOLDEN / "corpus.tar.gz") as archive:
        archive.extractall(root, filter="data")
    store, found = JsonlStore(root / "store"), []
    for snapshot in store.sweep().snapshots:
        with store.open(snapshot.header.id, "read") as handle:
            found.append(handle.read_log())
    return found


def folded(log: StoredLog) -> str:
    """Everything that a projection tells of a log, with the error that ends it.

    Lone surrogates read as U+FFFD, as they do in the index.
    """
    projection = SessionProjection(log.snapshot.header)
    told: list[object] = []
    try:
        for event in log.events:
            advance = projection.advance(event)
            told += (advance.document, advance.plan, advance.toggled, projection.turn)
    except SessionError as error:
        told.append(str(error))
    told += (projection.surface.state(), projection.title)
    return re.sub(r"\\ud[89a-f][0-9a-f]{2}", "\ufffd", repr(told))


def test_recorded_logs_fold_alike_whether_their_payloads_are_long(
    logs: list[StoredLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = [folded(log) for log in logs]
    assert sum(len(log.events) for log in logs) > 1000
    monkeypatch.setattr(payloads, "LONG_BYTES", -1)
    assert [folded(log) for log in logs] == whole


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["", "text", "tool", " a "]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                "type text id name content message source kind role turn step reason error todos"
                " status arguments callId toolCallId header config provider model title".split()
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)
TYPES = st.sampled_from(
    "user/message assistant/message tool/call tool/result todo/write turn/end turn/start"
    " session/title request/header assistant/attempt demo/x".split()
)


@given(TYPES, VALUES)
@settings(max_examples=300, deadline=None)
def test_any_payload_is_accepted_or_refused_alike(kind: str, data: Json) -> None:
    op = "append" if kind in ("user/message", "assistant/message", "tool/result") else None
    event = Event(kind, 0, START, encode(data), op, None, kind == "demo/x")  # type: ignore[arg-type]
    with pytest.MonkeyPatch.context() as shorter:
        whole = outcome(event)
        shorter.setattr(payloads, "LONG_BYTES", -1)
        assert outcome(event) == whole


def outcome(event: Event) -> list[object]:
    projection = SessionProjection(header())
    try:
        advance = projection.advance(event)
    except SessionError as error:
        return [type(error), str(error)]
    return [advance.document, advance.plan, advance.toggled, projection.turn, projection.title]


@pytest.fixture
def _all_long(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(payloads, "LONG_BYTES", -1)
    yield


def texts_of(content: bytes, chars: int | None) -> list[Json]:
    """The texts of the blocks of a message."""
    found = needed("user/message", b'{"content":%s}' % content, chars)
    return [member(block, "text") for block in elements(member(found, "content"))]


def text_of(raw: bytes, chars: int | None) -> Json:
    """A text that is spelled ``raw``."""
    [text] = texts_of(b'[{"type":"text","text":%s}]' % raw, chars)
    return text


@given(st.text(max_size=60), st.integers(0, 70))
@settings(max_examples=200, deadline=None)
def test_a_text_is_cut_at_a_code_point(text: str, chars: int) -> None:
    begun = text.lstrip(JS_WHITESPACE)
    for spelled in (encode(text), escaped(text)):
        assert text_of(spelled, None) == text
        assert text_of(spelled, chars) == begun[:chars]


def escaped(text: str) -> bytes:
    """A text all of whose characters are escapes."""
    units = text.encode("utf-16-be")
    pairs = (units[at : at + 2].hex() for at in range(0, len(units), 2))
    return b'"' + "".join(f"\\u{pair}" for pair in pairs).encode() + b'"'


def test_a_long_text_is_cut_where_the_index_cuts_it() -> None:
    for unit in ("x", "é", "登", "\U0001f600"):
        text = text_of(encode(unit * (MAX_INDEXED_CHARS + 10)), MAX_INDEXED_CHARS)
        assert text == unit * MAX_INDEXED_CHARS


def test_the_texts_of_all_blocks_share_what_is_wanted() -> None:
    kinds = [("reasoning", "zzzz"), ("text", "abc"), ("text", "def"), ("text", "g")]
    content = encode([{"type": kind, "text": text} for kind, text in kinds])
    assert texts_of(content, 4) == [None, "abc", "d", ""]


def test_a_lone_surrogate_reads_as_a_replacement_character() -> None:
    assert text_of(rb'"a\ud800b\ud83d\ude00\\ud800"', None) == "a\ufffdb\U0001f600\\ud800"
    assert paired_surrogates(rb'"\udc00"') == rb'"\ufffd"'


@pytest.mark.usefixtures("_all_long")
@pytest.mark.parametrize("raw", [b'{"content":[', b"{]", b'{"id":tru}'])
def test_what_is_no_json_is_refused(raw: bytes) -> None:
    with pytest.raises(InvalidJson, match="event 3"):
        payload(Event("user/message", 3, START, raw))


@pytest.mark.usefixtures("_all_long")
def test_what_is_nested_without_end_is_refused() -> None:
    raw = b'{"content":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    with pytest.raises(UnsupportedFormat, match="event 3"):
        payload(Event("user/message", 3, START, raw))


def test_a_payload_of_a_host_is_whole_or_empty() -> None:
    assert needed("demo/x", b'{"a":[1,{"b":null}]}', 5) == {"a": [1, {"b": None}]}
    many = b"[" + b"0," * 300_000 + b"0]"
    assert not affordable(many)
    assert needed("demo/x", many, None) == {}


@pytest.mark.usefixtures("_all_long")
def test_the_stream_of_a_long_message_is_not_verified() -> None:
    raw = encode({"message": {"content": []}, "stream": "no stream"})
    event = Event("assistant/message", 0, START, raw)
    check_stream(event, payload(event), 2)
    assert member(decode(raw), "stream") == "no stream"
