"""Searchable text, documents and titles (query-service.md §6, current-version.md §8)."""

from __future__ import annotations

import pytest
from builders import START, Log, assistant_data, result_data, text, tool_call, user_data
from hypothesis import given, settings
from strategies import logs

from session_query.history.documents import Document, search_documents
from session_query.history.extraction import extract_text
from session_query.history.own_calls import OWN_TOOLS
from session_query.history.titles import fold_title, title_of
from session_query.history.whitespace import JS_WHITESPACE, collapse, trim
from session_query.messages.errors import SurfaceError
from session_query.messages.event import Event
from session_query.messages.json import Json, encode
from session_query.messages.records import SessionTitle, Surface


def user_text(*blocks: Json) -> str:
    return extract_text("user/message", {**user_data(""), "content": list(blocks)})


def test_blocks_are_joined_in_order_and_trimmed() -> None:
    assert user_text(text(" one\n"), text("\t"), text("two ")) == "one\ntwo"


def test_reasoning_images_files_and_unknown_blocks_are_no_text() -> None:
    blocks: list[Json] = [
        {"type": kind, "text": "hidden", "attachment": {"name": "hidden"}}
        for kind in ("reasoning", "image", "file", "hologram")
    ]
    assert user_text(*blocks) == ""
    assert user_text(*blocks, text("seen")) == "seen"


def test_a_tool_call_block_gives_name_and_raw_arguments() -> None:
    data = assistant_data(text("go"), tool_call("c", "ls", '{"a" : 1.0'))
    assert extract_text("assistant/message", data) == 'go\nls\n{"a" : 1.0'


def test_nested_tool_results_are_read_recursively() -> None:
    inner: Json = {"type": "tool-result", "content": [text(" deep "), tool_call("c", "ls", "")]}
    outer: Json = {"type": "tool-result", "content": [text("shallow"), inner, text("end")]}
    assert user_text(outer) == "shallow\ndeep\nls\nend"


def test_a_tool_call_gives_name_and_raw_arguments() -> None:
    data: Json = {"callId": "c", "name": "ls", "arguments": '{"a":1e2}'}
    assert extract_text("tool/call", data) == 'ls\n{"a":1e2}'


def test_a_tool_result_adds_the_name_and_code_of_its_error() -> None:
    error: Json = {"name": "Boom", "code": "E_BOOM"}
    data = result_data("c", "out", error=error, is_error=True, meta={"note": "hidden"})
    assert extract_text("tool/result", data) == "out\nBoom\nE_BOOM"


def test_a_tool_result_whose_only_text_is_its_error_has_text() -> None:
    assert extract_text("tool/result", result_data("c", " ", error={"code": "E"})) == "E"


def test_an_empty_tool_result_has_no_text() -> None:
    assert extract_text("tool/result", result_data("c", "")) == ""


def test_todos_give_status_and_content_in_order() -> None:
    todos: Json = [
        {"content": " write ", "status": "pending"},
        {"content": "test", "status": "completed"},
    ]
    assert extract_text("todo/write", {"todos": todos}) == "pending\nwrite\ncompleted\ntest"


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ({"kind": "completed"}, ""),
        ({"kind": "blocked"}, ""),
        ({"kind": "novel", "error": {"message": "x"}}, ""),
        ({"kind": "max-tokens"}, "max-tokens"),
        ({"kind": "interrupted"}, "interrupted"),
        ({"kind": "aborted", "reason": {"kind": "user"}}, "aborted"),
        ({"kind": "error", "error": {"message": " no disk ", "code": "E"}}, "error\nno disk"),
        ({"kind": "error", "error": {}}, "error"),
    ],
)
def test_a_turn_end_tells_its_outcome(reason: Json, expected: str) -> None:
    assert extract_text("turn/end", {"turn": 1, "reason": reason}) == expected


@pytest.mark.parametrize(
    "event_type",
    [
        "turn/start",
        "step/end",
        "session/title",
        "compaction/summary",
        "system/message",
        "assistant/chunk",
        "assistant/attempt",
        "demo/note",
    ],
)
def test_all_other_types_have_no_text(event_type: str) -> None:
    data: Json = {"title": "T", "text": "T", **user_data("T"), "message": user_data("T")}
    assert extract_text(event_type, data) == ""


@pytest.mark.parametrize("data", [None, 7, "text", [], {}, {"content": 1}, {"message": []}])
@pytest.mark.parametrize(
    "event_type",
    ["user/message", "assistant/message", "tool/call", "tool/result", "todo/write", "turn/end"],
)
def test_a_malformed_payload_has_no_text(event_type: str, data: Json) -> None:
    assert extract_text(event_type, data) == ""


def test_malformed_blocks_are_passed_over() -> None:
    assert user_text(None, {"type": "text"}, {"type": "text", "text": 1}, text("A")) == "A"


def test_the_host_gives_the_text_of_types_that_no_format_knows() -> None:
    def extract(event_type: str, data: Json) -> str:
        return f" {event_type}: {data}\n"

    assert extract_text("host/note", 7, extract) == "host/note: 7"
    assert extract_text("plan/mode", 7, extract) == ""


def test_white_space_is_that_of_javascript() -> None:
    assert len(JS_WHITESPACE) == len(set(JS_WHITESPACE)) == 25
    assert trim(f"{JS_WHITESPACE}a b{JS_WHITESPACE}") == "a b"
    assert trim("\x1c\x85a\x1f") == "\x1c\x85a\x1f"


def test_collapsing_turns_inner_runs_into_one_space() -> None:
    assert collapse(f" a{JS_WHITESPACE}b\n\nc\x85 ") == "a b c\x85"
    assert collapse(JS_WHITESPACE) == ""


def described(log: Log) -> list[tuple[int, Surface, str, bool]]:
    return [
        (document.seq, document.surface, document.text, document.own)
        for document in search_documents(log.events, 2)
    ]


def test_documents_carry_the_final_surface_and_events_without_text_give_none() -> None:
    log = Log()
    log.turn_start()
    log.user("A")
    log.user(" ")
    log.call("c", "ls", "")
    log.replace(1, 2, [1, 2], "S")
    assert described(log) == [
        (1, Surface.SHADOWED, "A", False),
        (3, Surface.LOG_ONLY, "ls", False),
        (4, Surface.CURRENT, "S", False),
    ]
    first = search_documents(log.events, 2)[0]
    assert first == Document(1, "user/message", START + 1, Surface.SHADOWED, "A")


def test_a_broken_surface_gives_no_documents() -> None:
    log = Log()
    log.replace(0, 0, [0])
    with pytest.raises(SurfaceError):
        search_documents(log.events, 2)


@pytest.mark.parametrize("name", sorted(OWN_TOOLS))
def test_a_call_of_an_own_tool_its_request_and_its_result_are_marked(name: str) -> None:
    log = Log()
    log.assistant(text("\ufeff"), {"type": "reasoning", "text": "hm"}, tool_call("c", name))
    log.call("c", name)
    log.result("c", "found")
    log.rewrite(2, "c", "cut")
    assert [own for _seq, _surface, _text, own in described(log)] == [True] * 4


def test_a_message_that_says_more_than_own_calls_is_not_marked() -> None:
    log = Log()
    log.assistant(text("Let me look."), tool_call("c", "session_search"))
    log.assistant(tool_call("d", "session_search"), tool_call("e", "read"))
    log.assistant(text("Hello."))
    log.user("session_search")
    assert [own for _seq, _surface, _text, own in described(log)] == [False] * 4


def test_a_result_of_another_call_is_not_marked() -> None:
    log = Log()
    log.call("c", "session_search")
    log.call("d", "read")
    log.result("d", "found")
    assert [own for _seq, _surface, _text, own in described(log)] == [True, False, False]


def test_a_call_whose_name_is_no_text_is_not_own() -> None:
    log = Log()
    log.add("tool/call", {"callId": "c", "name": {"odd": []}, "arguments": "kept"})
    assert described(log) == [(0, Surface.LOG_ONLY, "kept", False)]


def test_a_call_id_that_another_tool_takes_over_is_no_longer_own() -> None:
    log = Log()
    log.call("c", "session_search")
    log.result("c", "found")
    log.call("c", "read")
    log.result("c", "content")
    assert [own for _seq, _surface, _text, own in described(log)] == [True, True, False, False]


def test_a_result_without_a_recorded_call_is_marked_by_its_request() -> None:
    log = Log()
    log.assistant(text("Let me look."), tool_call("c", "session_trace"))
    log.result("c", "never started")
    assert [own for _seq, _surface, _text, own in described(log)] == [False, True]


@given(logs())
@settings(max_examples=40)
def test_every_event_with_text_has_one_document_in_seq_order(events: tuple[Event, ...]) -> None:
    documents = search_documents(events, 2)
    with_text = [event.seq for event in events if extract_text(event.type, event.data)]
    assert [document.seq for document in documents] == with_text


def test_the_newest_title_wins() -> None:
    log = Log()
    log.title("first")
    log.user("A")
    source: dict[str, Json] = {"kind": "provider", "provider": "p"}
    log.add("session/title", {"title": "second", "messageSeqs": [1], "source": source})
    expected = SessionTitle("second", (1,), source, 2, START + 2)
    assert fold_title(log.events) == expected


def test_a_log_without_a_title_event_has_no_title() -> None:
    log = Log()
    log.user("A")
    assert fold_title(log.events) is None


@pytest.mark.parametrize(
    "changed",
    [{"title": None}, {"messageSeqs": None}, {"messageSeqs": [-1]}, {"source": "user"}],
)
def test_a_malformed_title_is_passed_over(changed: dict[str, Json]) -> None:
    good: dict[str, Json] = {"title": "T", "messageSeqs": [], "source": {"kind": "user"}}
    bad: Json = {**good, **changed}
    event = Event("session/title", 1, 0, encode(bad))
    assert title_of(event, bad) is None
    kept = fold_title([Event("session/title", 0, 0, encode(good)), event])
    assert kept is not None and kept.event_seq == 0


def test_other_events_give_no_title() -> None:
    data: Json = {"title": "T", "messageSeqs": [], "source": {"kind": "user"}}
    assert title_of(Event("plan/mode", 0, 0, encode(data)), data) is None
