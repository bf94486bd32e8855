"""The rollouts of Codex as a store: the contract, and what becomes of each kind of record."""

from __future__ import annotations

from pathlib import Path

import pytest
from foreign_logs import (
    CLAUDE_START,
    MAIN,
    OTHER,
    add,
    blocks,
    clock,
    is_failed,
    item,
    kept,
    message,
    meta,
    notice,
    read,
    rollout,
    surfaces,
    texts,
    title,
    types,
    write,
)
from store_contract import Corpus, ReadingContract

from session_query.history.replay import validate_log
from session_query.messages.event import Event, Replace
from session_query.messages.header import SessionHeader
from session_query.messages.json import Json, encode, member
from session_query.messages.records import Surface
from session_query.storage.codex import CodexStore
from session_query.storage.contract import SessionStore
from session_query.storage.zstandard import compress

DAY = Path("sessions/2026/03/02")


class CodexCorpus(Corpus):
    """Rollouts of token counts and messages in turns, one record an event."""

    def __init__(self, root: Path) -> None:
        super().__init__(CodexStore(root))
        self._root = root

    def put(self, session_id: str, begin: int, end: int) -> None:
        rows = [self._row(session_id, seq) + b"\n" for seq in range(begin, end)]
        path = self._path(session_id)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(self._stored(b"".join(rows)))

    def events(self, session_id: str, count: int) -> tuple[Event, ...]:
        return tuple(self._event(session_id, seq) for seq in range(count))

    def header(self, session_id: str) -> SessionHeader:
        return SessionHeader(session_id, CLAUDE_START, cwd="/home/mara/shop")

    def _path(self, session_id: str) -> Path:
        return self._root / DAY / f"rollout-2026-03-02T10-00-00-{session_id}.jsonl"

    def _stored(self, rows: bytes) -> bytes:
        return rows

    def _row(self, session_id: str, seq: int) -> bytes:
        if seq == 0:
            return meta(session_id)
        return message(seq, "assistant", f"Answer {seq}") if seq % 2 else notice(seq, "token_count")

    def _event(self, session_id: str, seq: int) -> Event:
        row, time = self._row(session_id, seq), CLAUDE_START + 1000 * seq
        if not seq % 2:
            kind = "token_count" if seq else "session_meta"
            return Event(f"codex/{kind}", seq, time, row, ignorable=True)
        raw = (
            b'{"turn":1,"step":1,"message":{"id":"codex-%d","role":"assistant","content":'
            b'[{"type":"text","text":"Answer %d"},{"type":"record","record":%s}],'
            b'"source":{"kind":"model","provider":"openai","model":"unknown"}},"stream":[]}'
        ) % (seq, seq, row)
        return Event("assistant/message", seq, time, raw, "append")


class CompressedCorpus(CodexCorpus):
    """The same, compressed; each piece is a frame."""

    def _path(self, session_id: str) -> Path:
        return super()._path(session_id).with_suffix(".jsonl.zst")

    def _stored(self, rows: bytes) -> bytes:
        return compress(rows)


class TestCodexStore(ReadingContract):
    @pytest.fixture
    def corpus(self, tmp_path: Path) -> Corpus:
        return CodexCorpus(tmp_path / "codex")


class TestCompressedCodexStore(ReadingContract):
    @pytest.fixture
    def corpus(self, tmp_path: Path) -> Corpus:
        return CompressedCorpus(tmp_path / "codex")


@pytest.fixture
def store(tmp_path: Path) -> CodexStore:
    return CodexStore(tmp_path)


def log(tmp_path: Path, *rows: bytes, name: str = f"rollout-2026-03-02T10-00-00-{MAIN}") -> Path:
    return write(tmp_path / DAY / f"{name}.jsonl", *rows)


def header(store: SessionStore, session_id: str = MAIN) -> SessionHeader:
    seen = store.stat(session_id)
    assert seen is not None
    return seen.header


# --- speech


def test_the_same_words_as_item_and_event_are_found_once(tmp_path: Path, store: CodexStore) -> None:
    log(
        tmp_path,
        meta(),
        message(1, "user", "List the files"),
        notice(2, "user_message", message="List the files"),
        notice(3, "agent_reasoning", text="I think."),
        item(4, "reasoning", summary=[{"type": "summary_text", "text": "I think."}]),
        notice(5, "agent_message", message="Two files."),
        message(6, "assistant", "Two files."),
        notice(7, "item_completed", item={"type": "AgentMessage", "content": [{"text": "Two"}]}),
    )
    assert texts(store) == ["List the files", "Two files."]


def test_calls_and_outputs_are_found_once_each(tmp_path: Path, store: CodexStore) -> None:
    call = item(1, "function_call", name="shell", arguments='{"command": ["ls"]}', call_id="c1")
    log(
        tmp_path,
        meta(),
        rollout(0, "turn_context", {"model": "gpt-5.3-codex"}),
        call,
        item(2, "function_call_output", call_id="c1", output="a.txt"),
        notice(3, "exec_command_end", call_id="c1", stdout="a.txt"),
        item(4, "custom_tool_call", name="apply_patch", input="*** Begin", call_id="c2"),
        item(
            5,
            "custom_tool_call_output",
            call_id="c2",
            output=[{"type": "input_text", "text": "ok"}],
        ),
        item(6, "local_shell_call", call_id="c3", action={"command": ["pwd"]}),
        item(7, "function_call_output", call_id="c3", output={"content": "/srv", "success": False}),
        item(8, "web_search_call", action={"query": "trio"}),
        item(9, "tool_search_call", call_id="c4", arguments={"query": "mail"}),
        item(10, "tool_search_output", call_id="c4", tools=[{"name": "send_mail"}]),
    )
    assert texts(store) == [
        'shell\n{"command": ["ls"]}',
        "a.txt",
        "apply_patch\n*** Begin",
        "ok",
        'local_shell\n{"command":["pwd"]}',
        "/srv",
        'web_search\n{"query":"trio"}',
        'tool_search\n{"query":"mail"}',
        "send_mail",
    ]
    events = read(store).events
    assert kept(events[2]) == call
    assert member(events[2].data, "message", "source", "model") == "gpt-5.3-codex"
    assert member(events[3].data, "message", "source") == {"kind": "tool", "callId": "c1"}
    assert [is_failed(event) for event in events if event.type == "tool/result"] == [
        False,
        False,
        True,
        False,
    ]


def test_calls_between_two_outputs_are_one_step(tmp_path: Path, store: CodexStore) -> None:
    log(
        tmp_path,
        meta(),
        message(1, "assistant", "I look."),
        item(2, "function_call", name="a", arguments="", call_id="c1"),
        item(3, "function_call_output", call_id="c1", output=""),
        message(4, "assistant", "Done."),
    )
    spoken = [event for event in read(store).events if event.type == "assistant/message"]
    assert [member(event.data, "step") for event in spoken] == [1, 1, 2]


def test_thoughts_and_images_are_kept_and_never_found(tmp_path: Path, store: CodexStore) -> None:
    picture: Json = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
    log(
        tmp_path,
        meta(),
        item(1, "reasoning", summary=[], content=[{"type": "text", "text": "hidden"}]),
        item(2, "message", role="user", content=[{"type": "input_text", "text": "See"}, picture]),
        item(3, "image_generation_call", id="i1", revised_prompt="a cat", result="AAAA"),
    )
    assert texts(store) == ["See", "image_generation\na cat"]
    assert blocks(read(store).events[2])[1] == {"type": "input_image"}


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (message(1, "developer", "Follow the rules."), "message"),
        (rollout(1, "world_state", {"full": True}), "world_state"),
        (rollout(1, "from_the_future", {"type": "message", "text": "x"}), "from_the_future"),
        (item(1, "ghost_snapshot"), "ghost_snapshot"),
        (item(1, "from_the_future", text="x"), "from_the_future"),
        (notice(1, "turn.completed", message="ok"), "turn.completed"),
        (notice(1, "context_compacted"), "context_compacted"),
        (rollout(1, "response_item", None), "response_item"),
        (encode({"record_type": "state", "timestamp": clock(1)}), "state"),
        (encode({"timestamp": clock(1)}), "record"),
    ],
)
def test_what_is_no_speech_is_log_only_and_kept_as_it_is(
    tmp_path: Path, store: CodexStore, row: bytes, expected: str
) -> None:
    log(tmp_path, meta(), row)
    event = read(store).events[1]
    assert event == Event(f"codex/{expected}", 1, CLAUDE_START + 1000, row, ignorable=True)
    assert texts(store) == []


def test_turns_begin_and_end_where_codex_says(tmp_path: Path, store: CodexStore) -> None:
    log(
        tmp_path,
        meta(),
        notice(1, "task_started"),
        notice(2, "task_complete"),
        notice(3, "task_started"),
        notice(4, "turn_aborted", reason="interrupted"),
        notice(5, "task_started"),
        notice(6, "task_complete", error={"message": "quota"}),
    )
    turns = [event.data for event in read(store).events[1:]]
    assert [member(turn, "turn") for turn in turns] == [1, 1, 2, 2, 3, 3]
    assert [member(turn, "reason", "kind") for turn in turns[1::2]] == [
        "completed",
        "aborted",
        "error",
    ]
    assert texts(store) == ["aborted", "error\nquota"]


def test_a_compaction_replaces_the_surface_and_repeats_nothing(
    tmp_path: Path, store: CodexStore
) -> None:
    old: Json = {"type": "message", "role": "user", "content": [{"text": "old question"}]}
    log(
        tmp_path,
        meta(),
        message(1, "user", "old question"),
        message(2, "assistant", "old answer"),
        rollout(3, "compacted", {"message": "The summary.", "replacement_history": [old]}),
        rollout(4, "compacted", {"message": "", "replacement_history": [old, old]}),
        message(5, "assistant", "new answer"),
    )
    assert surfaces(store) == {
        "old question": Surface.SHADOWED,
        "old answer": Surface.SHADOWED,
        "The summary.": Surface.SHADOWED,
        "new answer": Surface.CURRENT,
    }
    first, second = [event for event in read(store).events if event.source_event_seqs]
    assert (first.surface_op, first.source_event_seqs) == (Replace(1, 3), (1, 3))
    assert (second.surface_op, second.source_event_seqs) == (Replace(4, 4), (4,))


# --- titles


def test_the_title_is_what_the_user_typed_until_the_session_is_named(
    tmp_path: Path, store: CodexStore
) -> None:
    path = log(
        tmp_path,
        meta(),
        message(1, "user", "<environment_context>\n<cwd>/w</cwd></environment_context>"),
        message(2, "user", "# AGENTS.md instructions for /w"),
    )
    assert title(store) is None
    add(path, message(3, "user", "Fix the login"))
    assert title(store) == "Fix the login"
    add(path, notice(4, "user_message", message="Fix the login, please"))
    assert title(store) == "Fix the login, please"
    add(path, notice(5, "user_message", message="Next"), message(6, "user", "Next"))
    assert title(store) == "Fix the login, please"
    add(path, notice(7, "thread_name_updated", thread_name="Login"))
    assert title(store) == "Login"


# --- sessions


def test_the_first_description_of_a_session_counts(tmp_path: Path, store: CodexStore) -> None:
    log(tmp_path, meta(), message(1, "user", "hi"), meta(OTHER, 2, cwd="/elsewhere"))
    assert [found.header for found in store.sweep().snapshots] == [
        SessionHeader(MAIN, CLAUDE_START, cwd="/home/mara/shop")
    ]


def test_a_description_of_any_length_is_found(tmp_path: Path, store: CodexStore) -> None:
    log(tmp_path, meta(base_instructions={"text": "x" * 3_000_000}))
    assert header(store).id == MAIN


def test_a_rollout_that_begins_in_the_middle_is_named_by_its_file(
    tmp_path: Path, store: CodexStore
) -> None:
    log(tmp_path, message(5, "user", "hi"))
    assert header(store) == SessionHeader(MAIN, CLAUDE_START + 5000)


def test_a_description_that_says_nothing_is_passed_over(tmp_path: Path, store: CodexStore) -> None:
    log(tmp_path, meta(id=5), meta(timestamp="never", id=OTHER))
    # The time of the record itself counts where the description has none.
    assert [found.header.id for found in store.sweep().snapshots] == [OTHER]


def test_a_home_without_sessions_is_not_searched(tmp_path: Path, store: CodexStore) -> None:
    write(tmp_path / "config.toml")
    write(tmp_path / "plugins" / f"rollout-{MAIN}.jsonl", meta())
    assert store.sweep().snapshots == ()


def test_an_agent_is_a_child(tmp_path: Path, store: CodexStore) -> None:
    spawn: Json = {"thread_spawn": {"parent_thread_id": OTHER, "depth": 2, "agent_role": "worker"}}
    log(tmp_path, meta(source={"subagent": spawn}))
    found = header(store)
    assert (found.parent_session, found.origin, found.delegation_depth, found.agent_preset) == (
        OTHER,
        "subagent",
        2,
        "worker",
    )


def test_a_review_is_a_child_too(tmp_path: Path, store: CodexStore) -> None:
    log(tmp_path, meta(source={"subagent": "review"}, parent_thread_id=OTHER))
    found = header(store)
    assert (found.parent_session, found.origin, found.delegation_depth) == (OTHER, "subagent", 1)


OLD_TURN = "019cadd0-0000-7000-8000-000000000001"
FORK = "019cadd1-0000-7000-8000-000000000002"
NEW_TURN = "019cadd2-0000-7000-8000-000000000003"


def forked(tmp_path: Path, *own: bytes, turn: str | None = OLD_TURN) -> None:
    """A fork at 11 minutes of a session that asked and answered."""
    started = {"turn_id": turn} if turn is not None else {}
    log(
        tmp_path,
        meta(FORK, 660, forked_from_id=MAIN),
        meta(MAIN, 660),
        notice(660, "task_started", **started),
        message(660, "user", "the question"),
        message(660, "assistant", "the answer"),
        *own,
        name=f"rollout-2026-03-02T10-11-00-{FORK}",
    )


def test_a_fork_inherits_all_before_the_first_turn_of_its_own(
    tmp_path: Path, store: CodexStore
) -> None:
    forked(
        tmp_path,
        # Writing the copies may take longer than a moment.
        message(665, "assistant", "the late answer"),
        notice(700, "task_started", turn_id=NEW_TURN),
        message(700, "user", "the other way"),
    )
    found = read(store, FORK)
    assert found.snapshot.header.parent_session == MAIN
    assert found.events[found.inherited_event_count + 1].type == "turn/start"
    assert validate_log(found.snapshot.header, found.events) == found.inherited_event_count
    # The original is not here.
    assert texts(store, FORK) == ["the question", "the answer", "the late answer", "the other way"]
    log(tmp_path, meta(), message(1, "user", "the question"))
    store.sweep()
    assert texts(store, FORK) == ["the other way"]


def test_a_fork_whose_turns_have_no_times_inherits_what_was_written_at_once(
    tmp_path: Path, store: CodexStore
) -> None:
    forked(tmp_path, message(700, "user", "the other way"), turn=None)
    log(tmp_path, meta(), message(1, "user", "the question"))
    assert texts(store, FORK) == ["the other way"]


def test_a_compressed_rollout_is_read(tmp_path: Path, store: CodexStore) -> None:
    path = log(tmp_path, meta(), message(1, "user", "hi"))
    path.with_suffix(".jsonl.zst").write_bytes(compress(path.read_bytes()))
    path.unlink()
    assert texts(store) == ["hi"]


def test_of_two_encodings_the_plain_one_counts(tmp_path: Path, store: CodexStore) -> None:
    path = log(tmp_path, meta(), message(1, "user", "plain"))
    path.with_suffix(".jsonl.zst").write_bytes(compress(b"nonsense"))
    swept = store.sweep()
    assert ([found.header.id for found in swept.snapshots], swept.damaged) == ([MAIN], ())
    assert texts(store) == ["plain"]


def test_a_rollout_that_is_compressed_while_it_is_known_is_found_again(
    tmp_path: Path, store: CodexStore
) -> None:
    path = log(tmp_path, meta(), message(1, "user", "hi"))
    mark = store.read_tail(MAIN, None).mark
    path.with_suffix(".jsonl.zst").write_bytes(compress(path.read_bytes()))
    path.unlink()
    tail = store.read_tail(MAIN, mark)
    assert (len(tail.events), tail.appended) == (3, False)


def test_a_large_compressed_rollout_is_read_in_growing_pieces(
    tmp_path: Path, store: CodexStore
) -> None:
    rows = [message(number % 3000, "user", "x" * 400) for number in range(3000)]
    path = log(tmp_path, meta(), *rows)
    whole = read(store).events
    path.with_suffix(".jsonl.zst").write_bytes(compress(path.read_bytes()))
    path.unlink()
    events: list[Event] = []
    mark, pieces, complete = None, 0, False
    while not complete:
        tail = store.read_tail(MAIN, mark, 1000)
        events += tail.events
        mark, complete = tail.mark, tail.complete
        pieces += 1
    assert tuple(events) == whole
    assert pieces < 100


def test_archived_rollouts_belong_to_the_store(tmp_path: Path, store: CodexStore) -> None:
    log(tmp_path, meta())
    write(tmp_path / "archived_sessions" / f"rollout-x-{OTHER}.jsonl", meta(OTHER))
    write(tmp_path / "history.jsonl", meta("no"))
    write(tmp_path / "log" / "x.jsonl", meta("no"))
    assert {found.header.id for found in store.sweep().snapshots} == {MAIN, OTHER}


def test_a_folder_of_rollouts_serves_as_well_as_the_home_of_codex(tmp_path: Path) -> None:
    log(tmp_path, meta())
    assert CodexStore(tmp_path / "sessions").stat(MAIN) is not None
    assert CodexStore(tmp_path / DAY).stat(MAIN) is not None


# --- the first versions


def test_a_rollout_without_envelopes_is_read(tmp_path: Path, store: CodexStore) -> None:
    log(
        tmp_path,
        encode({"id": MAIN, "timestamp": clock(0), "instructions": None, "git": {}}),
        encode({"record_type": "state"}),
        encode(
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
        ),
        encode({"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "c"}),
        encode({"type": "function_call_output", "call_id": "c", "output": "done"}),
    )
    assert header(store) == SessionHeader(MAIN, CLAUDE_START)
    assert texts(store) == ["hi", "shell\n{}", "done"]
    assert types(store)[:2] == ["codex/record", "codex/state"]


def test_a_rollout_that_is_one_object_is_read(tmp_path: Path, store: CodexStore) -> None:
    words: Json = {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": "hi"}],
    }
    session: Json = {"timestamp": clock(0), "id": MAIN, "instructions": ""}
    path = tmp_path / DAY / f"rollout-2026-03-02-{MAIN}.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(encode({"session": session, "items": [words, words]}).replace(b",", b",\n "))
    assert texts(store) == ["hi", "hi"]
    tail = store.read_tail(MAIN, None, 1)
    assert len(tail.events) == 1
    rest = store.read_tail(MAIN, tail.mark)
    assert (rest.appended, [event.seq for event in rest.events]) == (True, [1, 2, 3])


def test_one_object_that_is_no_session_is_damage(tmp_path: Path, store: CodexStore) -> None:
    path = tmp_path / DAY / f"rollout-{MAIN}.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(b'{"items": []}')
    [damaged] = store.sweep().damaged
    assert "not a session in one JSON object" in damaged.message
