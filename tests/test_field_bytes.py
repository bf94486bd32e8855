"""Field reports R11, R13, R15, R17 and R35: whatever bytes a log holds, the rest is served."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from builders import user_data
from field_world import service, user_rows, write_session
from jsonl_files import row, session_line, write_log
from service_world import events_of, sessions_of, settle

from session_query.messages.errors import ErrorCode
from session_query.messages.json import Json, encode

MESSAGE = b'{"type":"user/message","seq":%d,"time":5,"data":%s,"surfaceOp":"append"}'


def escaped(text: str, seq: int = 0) -> bytes:
    """A user message whose text is written as it stands, escapes included."""
    data = encode(user_data("TEXT", f"m{seq}")).replace(b"TEXT", text.encode())
    return MESSAGE % (seq, data)


HALVES = [
    "\\ud83d",
    "\\udc00",
    "\\ud83d\\ud83d",
    "\\udc00\\ud83d",
    "\\uD83D \\uDE00",
    "\\udbff\\u0041",
]
"""Halves of a surrogate pair without their partners, in every order."""


@pytest.mark.parametrize("half", HALVES)
async def test_half_a_surrogate_pair_does_not_hide_its_line(tmp_path: Path, half: str) -> None:
    """R11: the text around it is found, U+FFFD is shown, the stored spelling is kept."""
    write_session(
        tmp_path / "store", [escaped(f"before {half} after"), *user_rows("next", first=1)]
    )
    async with service(tmp_path) as query:
        (hit,) = (await query.search_events("s", "before")).items
        assert await events_of(query, "s", "after") == [0]
        assert await events_of(query, "s", "next") == [1]
        assert "\ufffd" in hit.snippet
        hit.snippet.encode()
        (event,) = (await query.read_event("s", 0)).events
        assert half.encode() in event.raw


async def test_half_a_pair_in_a_tool_result_or_a_name_hides_nothing(tmp_path: Path) -> None:
    """R11: the same wherever a text may stand: calls, arguments, results, titles."""
    rows = [
        row(0, "turn/start", {"turn": 1}),
        row(1, "session/title", {"title": "T", "messageSeqs": [], "source": {"kind": "user"}}),
        escaped("words \\udead words", 2),
        row(3, "tool/call", {"turn": 1, "step": 1, "callId": "c", "name": "N", "arguments": "A"}),
    ]
    broken = [line.replace(b'"T"', b'"t\\ud800t"').replace(b'"N"', b'"n\\ud800"') for line in rows]
    broken = [line.replace(b'"A"', b'"lookup \\udfff"') for line in broken]
    write_session(tmp_path / "store", broken)
    async with service(tmp_path) as query:
        assert await events_of(query, "s", "words") == [2]
        assert await events_of(query, "s", "lookup") == [3]
        assert await sessions_of(query, "lookup") == ["s"]


SEPARATORS = ["\u2028", "\u2029", "\u0085", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e"]


@pytest.mark.parametrize("separator", SEPARATORS, ids=ascii)
async def test_what_unicode_calls_a_line_end_is_ordinary_text(
    tmp_path: Path, separator: str
) -> None:
    """R13: records end at a line feed; raw and escaped separators stand inside a text."""
    raw = escaped(f"left{separator}right", 0) if separator >= "\x7f" else None
    spelled = escaped(f"up\\u{ord(separator):04x}down", 1)
    first = raw or escaped("left right", 0)
    write_session(tmp_path / "store", [first + b"\r", spelled + b"\r", *user_rows("end", first=2)])
    async with service(tmp_path) as query:
        assert await events_of(query, "s", "left right") == [0]
        assert await events_of(query, "s", "up down") == [1]
        assert await events_of(query, "s", "end") == [2]
        assert (await query.search_sessions("end")).skipped == ()


@pytest.mark.parametrize("cut", [1, 10, 40, 90])
async def test_a_record_behind_a_torn_one_on_its_line_is_found(tmp_path: Path, cut: int) -> None:
    """R15: a full disk left a prefix, the next append went on behind it."""
    torn = user_rows("lost", first=1)[0][:cut]
    lines = [
        *user_rows("first"),
        torn + user_rows("second", first=1)[0],
        *user_rows("third", first=2),
    ]
    write_session(tmp_path / "store", lines)
    async with service(tmp_path) as query:
        assert [await events_of(query, "s", word) for word in ("first", "second", "third")] == [
            [0],
            [1],
            [2],
        ]
        log = await query.read_session("s")
        assert f"line 3: {cut} bytes before a whole record" in str(log.left_out)


@pytest.mark.parametrize("length", [10, 70_000, 219_000, 3_000_000])
@pytest.mark.parametrize("place", ["header", "first message", "image"])
async def test_a_session_is_found_whatever_the_length_of_its_first_lines(
    tmp_path: Path, length: int, place: str
) -> None:
    """R17: header, title and text are found; an image is neither indexed nor shown."""
    image = base64.b64encode(bytes(range(256)) * (length // 256 + 1)).decode()[:length]
    block: Json = {"type": "image", "mediaType": "image/png", "data": image}
    data = user_data("needle")
    if place == "image":
        data["content"] = [block, {"type": "text", "text": "needle"}]
    if place == "first message":
        data["content"] = [*_content(data), {"type": "text", "text": "word " * (length // 5)}]
    header = session_line(note="x" * length) if place == "header" else session_line()
    rows = [
        row(0, "user/message", data, surfaceOp="append"),
        row(1, "session/title", {"title": "Found", "messageSeqs": [], "source": {"kind": "user"}}),
    ]
    write_log(tmp_path / "store", rows, header=header)
    settle(tmp_path / "store")
    async with service(tmp_path) as query:
        (found,) = (await query.list_sessions()).sessions
        assert found.header.cwd == "/w"
        (hit,) = (await query.search_sessions("needle")).items
        title = await query.read_title("s")
        assert title is not None
        assert title.title == "Found"
        assert image[:40] not in hit.best_match.snippet
        assert await sessions_of(query, image[:40]) == []


def _content(data: dict[str, Json]) -> list[Json]:
    content = data["content"]
    assert isinstance(content, list)
    return content


UNKNOWN = {
    "type": (row(1, "future/event", {"schema": 99}), ErrorCode.PERSISTENCE_FAILED),
    "content": (
        row(1, "user/message", {"id": "m", "role": "user", "content": 5}, surfaceOp="append"),
        ErrorCode.CORRUPT_SESSION,
    ),
    "surface": (
        row(1, "user/message", user_data("x"), surfaceOp={"kind": "from the future"}),
        ErrorCode.CORRUPT_SESSION,
    ),
}


@pytest.mark.parametrize(("line", "code"), UNKNOWN.values(), ids=UNKNOWN)
async def test_a_session_of_another_schema_never_empties_the_index(
    tmp_path: Path, line: bytes, code: ErrorCode
) -> None:
    """R35: it is named, the others are found, and it is tried again when it changes."""
    root = tmp_path / "store"
    write_session(root, user_rows("alpha"), "good")
    path = write_session(root, [*user_rows("alpha"), line, *user_rows("omega", first=2)], "bad")
    async with service(tmp_path) as query:
        page = await query.search_sessions("alpha")
        assert [hit.header.id for hit in page.items] == ["good"]
        (skipped,) = page.skipped
        assert (skipped.session_id, skipped.code) == ("bad", code)
        assert "event 1" in skipped.message
        path.write_bytes(b"\n".join([session_line(id="bad"), *user_rows("alpha mended"), b""]))
        assert await sessions_of(query, "mended") == ["bad"]
        assert (await query.search_sessions("mended")).skipped == ()
