"""The logs of Claude Code as a store: the contract, and what becomes of each kind of row."""

from __future__ import annotations

from pathlib import Path

import pytest
from foreign_logs import (
    CLAUDE_START,
    MAIN,
    OTHER,
    THIRD,
    add,
    answer,
    blocks,
    claude,
    is_failed,
    kept,
    outcome,
    prompt,
    read,
    said,
    surfaces,
    texts,
    title,
    types,
    use,
    write,
)
from store_contract import Corpus, ReadingContract

from session_query.history.replay import validate_log
from session_query.messages.event import Event, Replace
from session_query.messages.header import SessionHeader
from session_query.messages.json import Json, encode, member
from session_query.messages.records import Surface
from session_query.storage.claude_code import ClaudeCodeStore
from session_query.storage.contract import AlreadyExists, SessionStore, UnsupportedLog

PROJECT = "-home-mara-shop"


class ClaudeCorpus(Corpus):
    """Logs of hooks and answers in turns, one row an event."""

    def __init__(self, root: Path) -> None:
        super().__init__(ClaudeCodeStore(root))
        self._root = root

    def put(self, session_id: str, begin: int, end: int) -> None:
        path = self._root / PROJECT / f"{session_id}.jsonl"
        rows = [self._row(session_id, seq) for seq in range(begin, end)]
        (add if begin else write)(path, *rows)

    def events(self, session_id: str, count: int) -> tuple[Event, ...]:
        return tuple(self._event(session_id, seq) for seq in range(count))

    def header(self, session_id: str) -> SessionHeader:
        return SessionHeader(session_id, CLAUDE_START, cwd="/home/mara/shop")

    def _row(self, session_id: str, seq: int) -> bytes:
        if seq % 2:
            return answer(seq, said(f"Answer {seq}"), session=session_id)
        return claude("progress", seq, session_id, data={"type": "hook_progress"})

    def _event(self, session_id: str, seq: int) -> Event:
        row, time = self._row(session_id, seq), CLAUDE_START + 1000 * seq
        if not seq % 2:
            return Event("claude-code/progress", seq, time, row, ignorable=True)
        raw = (
            b'{"turn":1,"step":%d,"message":{"id":"row-%d","role":"assistant","content":'
            b'[{"type":"text","text":"Answer %d"},{"type":"record","record":%s}],'
            b'"source":{"kind":"model","provider":"anthropic","model":"claude-opus-4-6"}},'
            b'"stream":[]}'
        ) % (seq // 2 + 1, seq, seq, row)
        return Event("assistant/message", seq, time, raw, "append")


class TestClaudeCodeStore(ReadingContract):
    @pytest.fixture
    def corpus(self, tmp_path: Path) -> Corpus:
        return ClaudeCorpus(tmp_path / "projects")


@pytest.fixture
def store(tmp_path: Path) -> ClaudeCodeStore:
    return ClaudeCodeStore(tmp_path)


def log(tmp_path: Path, *rows: bytes, session: str = MAIN) -> Path:
    return write(tmp_path / PROJECT / f"{session}.jsonl", *rows)


def headers(store: SessionStore) -> dict[str, SessionHeader]:
    return {found.header.id: found.header for found in store.sweep().snapshots}


# --- speech


def test_a_prompt_is_a_user_message_that_keeps_its_row(
    tmp_path: Path, store: ClaudeCodeStore
) -> None:
    row = prompt(0, "Why does the login time out?")
    log(tmp_path, row)
    event = read(store).events[0]
    assert (event.type, event.time, event.surface_op) == ("user/message", CLAUDE_START, "append")
    assert member(event.data, "source") == {"kind": "user"}
    assert kept(event) == row
    assert texts(store) == ["Why does the login time out?"]


def test_an_answer_in_several_rows_is_one_step(tmp_path: Path, store: ClaudeCodeStore) -> None:
    log(
        tmp_path,
        prompt(0, "Go on."),
        answer(1, {"type": "thinking", "thinking": "Look first.", "signature": "x"}, answer="m1"),
        answer(2, said("I look."), answer="m1"),
        answer(3, use("t1", "Bash", command="ls"), answer="m1"),
        answer(4, said("Done."), answer="m2"),
    )
    spoken = [event for event in read(store).events if event.type == "assistant/message"]
    assert [member(event.data, "step") for event in spoken] == [1, 1, 1, 2]
    assert [blocks(event) for event in spoken] == [
        [{"type": "reasoning", "text": "Look first."}],
        [{"type": "text", "text": "I look."}],
        [{"type": "tool-call", "id": "t1", "name": "Bash", "arguments": '{"command":"ls"}'}],
        [{"type": "text", "text": "Done."}],
    ]


def test_thoughts_are_kept_and_never_found(tmp_path: Path, store: ClaudeCodeStore) -> None:
    log(
        tmp_path,
        answer(0, {"type": "thinking", "thinking": "secret plan"}),
        answer(1, {"type": "redacted_thinking", "data": "AAAA"}),
    )
    assert texts(store) == []
    assert b"secret plan" in read(store).events[0].raw


def test_a_call_and_its_result_are_found_once_each(tmp_path: Path, store: ClaudeCodeStore) -> None:
    log(
        tmp_path,
        answer(0, use("t1", "Bash", command="pytest -q")),
        prompt(1, [outcome("t1", "3 failed")], toolUseResult={"stdout": "3 failed"}),
    )
    assert texts(store) == ['Bash\n{"command":"pytest -q"}', "3 failed"]
    result = read(store).events[1]
    assert result.type == "tool/result"
    assert member(result.data, "message", "source") == {"kind": "tool", "callId": "t1"}
    assert kept(result) == prompt(
        1, [outcome("t1", "3 failed")], toolUseResult={"stdout": "3 failed"}
    )


def test_a_failed_call_is_marked(tmp_path: Path, store: ClaudeCodeStore) -> None:
    log(tmp_path, prompt(0, [outcome("t1", [said("no such file")], is_error=True)]))
    assert is_failed(read(store).events[0])
    assert texts(store) == ["no such file"]


def test_several_results_in_one_row_are_several_events(
    tmp_path: Path, store: ClaudeCodeStore
) -> None:
    row = prompt(0, [outcome("t1", "one"), outcome("t2", "two"), said("and this")])
    log(tmp_path, row)
    first, second, third = read(store).events[:3]
    assert (first.type, second.type, third.type) == ("tool/result", "tool/result", "user/message")
    assert kept(first) == row
    # The row is kept once; the others say where.
    assert b'"recordSeq":0' in second.raw
    assert b'"recordSeq":0' in third.raw
    assert texts(store) == ["one", "two", "and this"]


def test_a_result_without_a_call_id_has_one_made_up(tmp_path: Path, store: ClaudeCodeStore) -> None:
    log(
        tmp_path,
        prompt(0, [{"type": "tool_result", "content": "ok"}], sourceToolUseID="t9"),
        prompt(1, [{"type": "tool_result", "content": "ok"}]),
    )
    found = [member(e.data, "message", "source", "callId") for e in read(store).events]
    assert found == ["t9", "unknown-1"]


def test_an_image_is_neither_found_nor_copied(tmp_path: Path, store: ClaudeCodeStore) -> None:
    image: Json = {"type": "image", "source": {"type": "base64", "data": "QUJD" * 60_000}}
    row = prompt(0, [said("See this"), image])
    log(tmp_path, row)
    event = read(store).events[0]
    assert blocks(event) == [{"type": "text", "text": "See this"}, {"type": "image"}]
    assert kept(event) == row
    assert texts(store) == ["See this"]
    assert title(store) == "See this"


@pytest.mark.parametrize(
    ("row", "form"),
    [
        (prompt(0, "Caveat: The messages below were generated"), "command"),
        (prompt(0, "<command-name>/model</command-name>"), "command"),
        (prompt(0, "<local-command-stdout>Kept</local-command-stdout>"), "command"),
        (prompt(0, [said("[Request interrupted by user]")]), "command"),
        (prompt(0, "Base directory for this skill", isMeta=True), "meta"),
    ],
)
def test_what_no_user_typed_is_marked_and_gives_no_title(
    tmp_path: Path, store: ClaudeCodeStore, row: bytes, form: str
) -> None:
    log(tmp_path, row)
    [event] = read(store).events
    assert member(event.data, "source") == {
        "kind": "plugin",
        "plugin": "claude-code",
        "form": form,
    }


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (claude("progress", 0, data={"type": "hook_progress"}), "progress"),
        (claude("attachment", 0, attachment={"type": "edited_text_file"}), "attachment"),
        (claude("system", 0, subtype="turn_duration", content="words"), "turn_duration"),
        (claude("system", 0, subtype="local_command", content="words"), "local_command"),
        (claude("file-history-snapshot", 0, snapshot={}), "file-history-snapshot"),
        (claude("queue-operation", 0, content="words"), "queue-operation"),
        (claude("last-prompt", 0, lastPrompt="words"), "last-prompt"),
        (
            claude("from-the-future", 0, text="words", message={"content": "words"}),
            "from-the-future",
        ),
        (claude("no such type!", 0, text="words"), "record"),
        (claude("user", 0, message="error"), "user"),
        (claude("user", 0, message={"role": "user", "contenst": []}), "user"),
        (claude("assistant", 0, message=None), "assistant"),
        (claude("user/message", 0, message="x"), "record"),
        (encode({"timestamp": "2026-03-02T10:00:00Z"}), "record"),
    ],
)
def test_what_is_no_speech_is_log_only_and_kept_as_it_is(
    tmp_path: Path, store: ClaudeCodeStore, row: bytes, expected: str
) -> None:
    log(tmp_path, row)
    assert read(store).events == (
        Event(f"claude-code/{expected}", 0, CLAUDE_START, row, ignorable=True),
    )
    assert texts(store) == []


def test_a_row_without_a_time_has_that_of_the_one_before(
    tmp_path: Path, store: ClaudeCodeStore
) -> None:
    log(tmp_path, prompt(7, "hello"), claude("mode", 8, timestamp=None), claude("mode", 3))
    times = [event.time - CLAUDE_START for event in read(store).events]
    # The third is the title; times need not rise.
    assert times == [7000, 7000, 7000, 3000]


# --- compaction


def compacted(tmp_path: Path) -> tuple[bytes, ...]:
    rows = (
        prompt(0, "old question"),
        answer(1, said("old answer")),
        claude("system", 2, subtype="compact_boundary", parentUuid=None, logicalParentUuid="row-1"),
        prompt(1, "The summary.", isCompactSummary=True, isVisibleInTranscriptOnly=True),
        answer(4, said("new answer")),
    )
    log(tmp_path, *rows)
    return rows


def test_a_compaction_replaces_all_that_the_model_saw(
    tmp_path: Path, store: ClaudeCodeStore
) -> None:
    compacted(tmp_path)
    assert types(store) == [
        "user/message",
        "session/title",
        "assistant/message",
        "claude-code/compact_boundary",
        "user/message",
        "assistant/message",
    ]
    summary = read(store).events[4]
    assert (summary.surface_op, summary.source_event_seqs) == (Replace(0, 2), (0, 2))
    assert surfaces(store) == {
        "old question": Surface.SHADOWED,
        "old answer": Surface.SHADOWED,
        "The summary.": Surface.CURRENT,
        "new answer": Surface.CURRENT,
    }


def test_a_second_compaction_replaces_the_first_summary(
    tmp_path: Path, store: ClaudeCodeStore
) -> None:
    rows = compacted(tmp_path)
    log(tmp_path, *rows, prompt(6, "Shorter.", isCompactSummary=True))
    summary = read(store).events[-1]
    assert (summary.surface_op, summary.source_event_seqs) == (Replace(4, 5), (4, 5))


def test_a_compaction_reached_by_a_tail_knows_what_stood_before(
    tmp_path: Path, store: ClaudeCodeStore
) -> None:
    rows = compacted(tmp_path)
    whole = read(store).events
    path = log(tmp_path, *rows[:2])
    mark = ClaudeCodeStore(tmp_path).read_tail(MAIN, None).mark
    add(path, *rows[2:])
    # Another process continues.
    tail = ClaudeCodeStore(tmp_path).read_tail(MAIN, mark)
    assert tail.appended
    assert tail.events == whole[3:]


def test_a_summary_without_anything_before_it_begins_the_surface(
    tmp_path: Path, store: ClaudeCodeStore
) -> None:
    log(tmp_path, prompt(0, "The summary.", isCompactSummary=True))
    assert read(store).events[0].surface_op == "append"


# --- titles


def test_the_first_prompt_is_the_title_until_there_is_a_better_one(
    tmp_path: Path, store: ClaudeCodeStore
) -> None:
    path = log(tmp_path, prompt(0, "  Why\n does it\tfail? "), prompt(1, "And now?"))
    assert title(store) == "Why does it fail?"
    add(path, claude("summary", 2, summary="A summary", leafUuid="row-1", uuid=None))
    assert title(store) == "A summary"
    add(path, claude("ai-title", 3, aiTitle="Made by a model", uuid=None))
    assert title(store) == "Made by a model"
    add(path, claude("custom-title", 4, customTitle="Mine", uuid=None))
    assert title(store) == "Mine"
    add(path, claude("ai-title", 5, aiTitle="Too late", uuid=None))
    assert title(store) == "Mine"
    add(path, claude("custom-title", 6, customTitle="Mine again", uuid=None))
    assert title(store) == "Mine again"


def test_a_summary_of_another_session_is_no_title(tmp_path: Path, store: ClaudeCodeStore) -> None:
    summary = encode({"type": "summary", "summary": "Elsewhere", "leafUuid": "row-99"})
    log(tmp_path, summary, prompt(0, "hello"), summary)
    assert title(store) == "hello"


def test_a_summary_in_front_waits_for_the_row_it_names(
    tmp_path: Path, store: ClaudeCodeStore
) -> None:
    summary = encode({"type": "summary", "summary": "About this", "leafUuid": "row-1"})
    path = log(tmp_path, summary, prompt(0, "hello"))
    mark = store.read_tail(MAIN, None).mark
    assert title(store) == "hello"
    add(path, prompt(1, "again"))
    assert title(store) == "About this"
    tail = store.read_tail(MAIN, mark)
    assert (tail.appended, tail.events) == (True, read(store).events[3:])


def test_a_title_is_one_line_without_controls(tmp_path: Path, store: ClaudeCodeStore) -> None:
    log(
        tmp_path, prompt(0, "hi"), claude("custom-title", 1, customTitle="a\x1b[1m\u202eb\n c" * 99)
    )
    found = title(store)
    assert found is not None
    assert found.startswith("a [1mb c")
    assert len(found) <= 120
    assert found.endswith("…")


# --- sessions


def test_the_header_comes_from_the_records_and_never_from_a_folder(
    tmp_path: Path, store: ClaudeCodeStore
) -> None:
    snapshot = encode({"type": "file-history-snapshot", "messageId": "m", "snapshot": {}})
    log(tmp_path, snapshot, claude("mode", 3, cwd=None), prompt(4, "hi", cwd="/srv/a-b"))
    assert headers(store) == {MAIN: SessionHeader(MAIN, CLAUDE_START + 3000, cwd="/srv/a-b")}


def test_a_relative_working_directory_is_none(tmp_path: Path, store: ClaudeCodeStore) -> None:
    log(tmp_path, prompt(0, "hi", cwd="shop"))
    assert headers(store)[MAIN].cwd is None


def test_a_fork_inherits_the_rows_that_keep_their_old_session(
    tmp_path: Path, store: ClaudeCodeStore
) -> None:
    original = [prompt(0, "the question"), answer(1, said("the answer"))]
    log(tmp_path, *original)
    log(tmp_path, *original, prompt(9, "the other way", OTHER), session=OTHER)
    header = headers(store)[OTHER]
    assert (header.parent_session, header.is_seeded) == (MAIN, True)
    found = read(store, OTHER)
    # A marker, the question, its title and the answer stand before the cut.
    assert found.inherited_event_count == 4
    assert validate_log(header, found.events) == 4
    assert [kept(event) for event in found.events if event.type.endswith("message")] == [
        *original,
        prompt(9, "the other way", OTHER),
    ]


def test_copies_are_found_in_the_original_alone(tmp_path: Path, store: ClaudeCodeStore) -> None:
    original = [prompt(0, "the question"), answer(1, said("the answer"))]
    log(tmp_path, *original)
    log(tmp_path, *original, prompt(9, "the other way", OTHER), session=OTHER)
    assert texts(store) == ["the question", "the answer"]
    assert texts(store, OTHER) == ["the other way"]
    assert title(store, OTHER) == "the question"


def test_copies_are_found_in_the_fork_once_the_original_is_gone(
    tmp_path: Path, store: ClaudeCodeStore
) -> None:
    original = [prompt(0, "the question")]
    path = log(tmp_path, *original)
    log(tmp_path, *original, prompt(9, "the other way", OTHER), session=OTHER)
    before = {found.header.id: found for found in store.sweep().snapshots}[OTHER]
    mark = store.read_tail(OTHER, None).mark
    path.unlink()
    [after] = store.sweep().snapshots
    assert after.revision != before.revision
    tail = store.read_tail(OTHER, mark)
    assert not tail.appended
    assert tail.snapshot.revision == after.revision
    assert texts(store, OTHER) == ["the question", "the other way"]


def test_a_fork_that_was_not_continued_yet_is_whole(tmp_path: Path, store: ClaudeCodeStore) -> None:
    log(tmp_path, prompt(0, "the question"), session=OTHER)
    found = read(store, OTHER)
    assert validate_log(found.snapshot.header, found.events) == 0
    assert found.snapshot.header.parent_session == MAIN


def test_a_foreign_session_further_down_is_no_fork(tmp_path: Path, store: ClaudeCodeStore) -> None:
    log(tmp_path, prompt(0, "mine"), claude("relocated", 1, OTHER), prompt(2, "mine too"))
    assert not headers(store)[MAIN].is_seeded
    assert texts(store) == ["mine", "mine too"]


def test_a_renamed_log_keeps_its_session(tmp_path: Path, store: ClaudeCodeStore) -> None:
    log(tmp_path, prompt(0, "hi"), session="my favourite")
    assert headers(store) == {MAIN: SessionHeader(MAIN, CLAUDE_START, cwd="/home/mara/shop")}


def test_an_agent_is_a_child_with_an_id_of_its_own(tmp_path: Path, store: ClaudeCodeStore) -> None:
    log(tmp_path, prompt(0, "delegate"))
    agents = tmp_path / PROJECT / MAIN / "subagents"
    write(agents / "agent-a1.jsonl", prompt(1, "look for it", isSidechain=True, agentId="a1"))
    (agents / "agent-a1.meta.json").write_text("{}")
    write(agents / "workflows" / "wf_1" / "agent-a1.jsonl", prompt(2, "and this"))
    write(agents / "workflows" / "wf_1" / "journal.jsonl", encode({"type": "started"}))
    found = headers(store)
    assert sorted(found) == [MAIN, f"{MAIN}/agent-a1", f"{MAIN}/workflows/wf_1/agent-a1"]
    child = found[f"{MAIN}/agent-a1"]
    assert (child.parent_session, child.origin, child.delegation_depth) == (MAIN, "subagent", 1)
    assert found[f"{MAIN}/workflows/wf_1/agent-a1"].parent_session == MAIN
    assert texts(store, child.id) == ["look for it"]
    assert texts(store) == ["delegate"]


def test_an_older_agent_lies_beside_its_parent(tmp_path: Path, store: ClaudeCodeStore) -> None:
    log(tmp_path, prompt(0, "delegate"))
    log(tmp_path, prompt(1, "look for it", isSidechain=True), session="agent-a1")
    assert headers(store)[f"{MAIN}/agent-a1"].parent_session == MAIN


def test_logs_in_which_summaries_were_made_are_left_out(
    tmp_path: Path, store: ClaudeCodeStore
) -> None:
    log(tmp_path, prompt(0, "hi"))
    write(tmp_path / PROJECT / MAIN / "subagents" / "agent-acompact-1.jsonl", prompt(1, "hi"))
    assert list(headers(store)) == [MAIN]


def test_only_logs_are_looked_at(tmp_path: Path, store: ClaudeCodeStore) -> None:
    write(tmp_path / PROJECT / "notes.json", prompt(0, "hi"))
    write(tmp_path / PROJECT / "memory" / "MEMORY.jsonl", prompt(0, "hi"))
    write(tmp_path / "history.jsonl", prompt(0, "hi"))
    swept = store.sweep()
    assert (swept.snapshots, swept.damaged) == ((), ())


def test_a_file_without_any_dated_record_is_no_session_yet(
    tmp_path: Path, store: ClaudeCodeStore
) -> None:
    log(tmp_path, encode({"type": "summary", "summary": "Elsewhere", "leafUuid": "x"}))
    log(tmp_path, session=OTHER)
    swept = store.sweep()
    assert (swept.snapshots, swept.damaged) == ((), ())
    assert store.stat(MAIN) is None


def test_a_session_that_lies_in_two_folders_is_read_from_the_longer_file(
    tmp_path: Path, store: ClaudeCodeStore
) -> None:
    write(tmp_path / "-a" / f"{MAIN}.jsonl", prompt(0, "one"))
    write(tmp_path / "-b" / f"{MAIN}.jsonl", prompt(0, "one"), prompt(1, "two"))
    swept = store.sweep()
    assert [found.location for found in swept.snapshots] == [f"-b/{MAIN}.jsonl"]
    [left_out] = swept.damaged
    assert (left_out.path, left_out.conflict) == (f"-a/{MAIN}.jsonl", False)
    assert f"is read from -b/{MAIN}.jsonl" in left_out.message
    assert texts(store) == ["one", "two"]


def test_the_home_of_claude_code_serves_as_well_as_its_projects(tmp_path: Path) -> None:
    log(tmp_path / "projects", prompt(0, "hi"))
    write(tmp_path / "todos" / f"{THIRD}.jsonl", prompt(0, "no", THIRD))
    assert list(headers(ClaudeCodeStore(tmp_path))) == [MAIN]


def test_nothing_is_created_or_continued(tmp_path: Path, store: ClaudeCodeStore) -> None:
    log(tmp_path, prompt(0, "hi"))
    with pytest.raises(UnsupportedLog, match="Claude Code, which is only read"):
        store.open(MAIN, "write")
    with pytest.raises(AlreadyExists):
        store.create(SessionHeader(MAIN, 1))
    with pytest.raises(ValueError, match="only read"):
        store.create(SessionHeader(OTHER, 1))
    store.flush()
