"""Who descends from whom among other agents' logs: forks of forks, and agents inside old logs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from foreign_logs import (
    CLAUDE_START,
    MAIN,
    OTHER,
    THIRD,
    add,
    answer,
    claude,
    kept,
    message,
    meta,
    notice,
    outcome,
    prompt,
    read,
    said,
    texts,
    title,
    types,
    use,
    write,
)

from session_query import open_session_query
from session_query.history.foreign import Copies
from session_query.history.replay import validate_log
from session_query.messages.event import Event
from session_query.messages.header import SessionHeader
from session_query.messages.json import Json
from session_query.storage.claude_code import ClaudeCodeStore
from session_query.storage.codex import CodexStore
from session_query.storage.contract import SessionStore

PROJECT = "-home-mara-shop"
OLD = "1.0.24"


@pytest.fixture
def store(tmp_path: Path) -> ClaudeCodeStore:
    return ClaudeCodeStore(tmp_path)


def log(tmp_path: Path, *rows: bytes, session: str = MAIN) -> Path:
    return write(tmp_path / PROJECT / f"{session}.jsonl", *rows)


def headers(store: SessionStore) -> dict[str, SessionHeader]:
    return {found.header.id: found.header for found in store.sweep().snapshots}


def old(row: bytes) -> bytes:
    """A row as an old version wrote it."""
    return row.replace(b'"2.1.39"', b'"%s"' % OLD.encode())


def asked(number: int, text: str, after: str | None = None, session: str = MAIN) -> bytes:
    """What an agent is asked, or told by a tool."""
    return old(prompt(number, text, session, isSidechain=True, parentUuid=after))


def answered(number: int, text: str, after: str, session: str = MAIN) -> bytes:
    return old(answer(number, said(text), session=session, isSidechain=True, parentUuid=after))


# --- agents inside the log of their session

TWO_AT_ONCE = (
    old(prompt(0, "why is it slow")),
    old(answer(1, use("t1", "Task", prompt="look at the log"))),
    asked(2, "look at the log"),
    asked(3, "look at the settings"),
    answered(4, "the log is long", "row-2"),
    answered(5, "the settings are old", "row-3"),
    answered(6, "and full of errors", "row-4"),
    old(prompt(7, [outcome("t1", [said("long, old")])], parentUuid="row-1")),
)
LOOKS_AT_LOG = f"{MAIN}/sidechain-row-2"
LOOKS_AT_SETTINGS = f"{MAIN}/sidechain-row-3"


def test_agents_inside_an_old_log_are_children_each_with_its_own_rows(
    tmp_path: Path, store: ClaudeCodeStore
) -> None:
    log(tmp_path, *TWO_AT_ONCE)
    assert headers(store) == {
        MAIN: SessionHeader(MAIN, CLAUDE_START, cwd="/home/mara/shop"),
        LOOKS_AT_LOG: SessionHeader(
            LOOKS_AT_LOG,
            CLAUDE_START + 2000,
            cwd="/home/mara/shop",
            parent_session=MAIN,
            origin="subagent",
            delegation_depth=1,
        ),
        LOOKS_AT_SETTINGS: SessionHeader(
            LOOKS_AT_SETTINGS,
            CLAUDE_START + 3000,
            cwd="/home/mara/shop",
            parent_session=MAIN,
            origin="subagent",
            delegation_depth=1,
        ),
    }
    assert texts(store, LOOKS_AT_LOG) == [
        "look at the log",
        "the log is long",
        "and full of errors",
    ]
    assert texts(store, LOOKS_AT_SETTINGS) == ["look at the settings", "the settings are old"]
    assert title(store, LOOKS_AT_SETTINGS) == "look at the settings"


def test_what_agents_said_is_no_speech_of_their_session_and_kept_there_too(
    tmp_path: Path, store: ClaudeCodeStore
) -> None:
    log(tmp_path, *TWO_AT_ONCE)
    assert texts(store) == ["why is it slow", 'Task\n{"prompt":"look at the log"}', "long, old"]
    assert types(store).count("claude-code/sidechain") == 5
    rows = [kept(event) for event in read(store).events if event.type != "session/title"]
    assert rows == list(TWO_AT_ONCE)


def test_a_row_of_an_agent_whose_beginning_is_missing_begins_a_child(
    tmp_path: Path, store: ClaudeCodeStore
) -> None:
    log(tmp_path, old(prompt(0, "hi")), answered(5, "the settings are old", "row-4"))
    assert list(headers(store)) == [MAIN, f"{MAIN}/sidechain-row-5"]
    assert texts(store, f"{MAIN}/sidechain-row-5") == ["the settings are old"]


@pytest.mark.parametrize("version", ["2.1.39", "2.10.0", "3.0.0"])
def test_versions_that_keep_agents_apart_have_no_rows_of_theirs(
    tmp_path: Path, store: ClaudeCodeStore, version: str
) -> None:
    log(tmp_path, prompt(0, "all here", isSidechain=True, version=version))
    assert list(headers(store)) == [MAIN]
    assert texts(store) == ["all here"]


def test_the_first_version_in_a_log_tells_for_all_of_it(
    tmp_path: Path, store: ClaudeCodeStore
) -> None:
    log(tmp_path, old(prompt(0, "hi")), prompt(1, "go on", isSidechain=True, parentUuid=None))
    assert list(headers(store)) == [MAIN, f"{MAIN}/sidechain-row-1"]
    assert texts(store) == ["hi"]
    log(tmp_path, prompt(0, "hi"), asked(1, "go on"))
    assert list(headers(store)) == [MAIN]
    assert texts(store) == ["hi", "go on"]


def test_an_agent_that_goes_on_is_read_on_from_a_mark(
    tmp_path: Path, store: ClaudeCodeStore
) -> None:
    path = log(tmp_path, *TWO_AT_ONCE)
    before = store.read_tail(LOOKS_AT_LOG, None)
    assert before.complete
    assert len(before.events) == 4
    add(path, old(prompt(8, "and now")), answered(9, "nothing else", "row-6"))
    after = store.read_tail(LOOKS_AT_LOG, before.mark)
    assert (after.appended, after.complete) == (True, True)
    assert [kept(event) for event in after.events] == [answered(9, "nothing else", "row-6")]
    assert after.snapshot.revision != before.snapshot.revision
    other = store.read_tail(LOOKS_AT_SETTINGS, store.read_tail(LOOKS_AT_SETTINGS, None).mark)
    assert (other.events, other.complete) == ((), True)


def test_an_agent_is_read_in_the_smallest_pieces_as_in_one(
    tmp_path: Path, store: ClaudeCodeStore
) -> None:
    log(tmp_path, *TWO_AT_ONCE)
    for session_id in headers(store):
        events: list[Event] = []
        mark, complete = None, False
        while not complete:
            tail = store.read_tail(session_id, mark, 1)
            events += tail.events
            mark, complete = tail.mark, tail.complete
        assert tuple(events) == read(store, session_id).events


def test_a_damaged_line_belongs_to_the_session_and_hides_no_agent(
    tmp_path: Path, store: ClaudeCodeStore
) -> None:
    torn = b'{"type":"user","uu'
    log(tmp_path, old(prompt(0, "hi")), torn + asked(1, "look"), answered(2, "found", "row-1"))
    assert texts(store, f"{MAIN}/sidechain-row-1") == ["look", "found"]
    assert "claude-code/unreadable" in types(store)
    assert "claude-code/unreadable" not in types(store, f"{MAIN}/sidechain-row-1")


def test_an_agent_that_a_fork_copied_is_one_session(tmp_path: Path, store: ClaudeCodeStore) -> None:
    log(tmp_path, *TWO_AT_ONCE)
    log(tmp_path, *TWO_AT_ONCE, old(prompt(9, "the other way", OTHER)), session=OTHER)
    swept = store.sweep()
    found = {seen.header.id: seen.location for seen in swept.snapshots}
    assert sorted(found) == [MAIN, LOOKS_AT_LOG, LOOKS_AT_SETTINGS, OTHER]
    assert found[LOOKS_AT_LOG] == f"{PROJECT}/{MAIN}.jsonl"
    assert swept.damaged == ()
    (tmp_path / PROJECT / f"{MAIN}.jsonl").unlink()
    assert texts(store, LOOKS_AT_SETTINGS) == ["look at the settings", "the settings are old"]


def test_a_long_conversation_beside_many_others_stays_one_session(
    tmp_path: Path, store: ClaudeCodeStore
) -> None:
    rows = [old(prompt(0, "hi")), asked(1, "first")]
    for number in range(2, 300):
        before = f"row-{number - 1}" if number % 2 else f"row-{max(number - 2, 1)}"
        rows.append(answered(number, f"word{number}", before))
    log(tmp_path, *rows)
    assert sorted(headers(store)) == [MAIN, f"{MAIN}/sidechain-row-1"]
    assert len(texts(store, f"{MAIN}/sidechain-row-1")) == 299


async def test_agents_inside_an_old_log_are_searched_and_traced(tmp_path: Path) -> None:
    log(tmp_path, *TWO_AT_ONCE)
    async with open_session_query(store=ClaudeCodeStore(tmp_path)) as query:
        [hit] = (await query.search_sessions("full of errors")).items
        assert hit.header.id == LOOKS_AT_LOG
        with trio.fail_after(10):
            trace = await query.trace_session(LOOKS_AT_LOG)
        assert [seen.header.id for seen in trace.ancestors] == [MAIN]


def test_rows_before_the_first_that_names_a_version_are_of_an_old_one(
    tmp_path: Path, store: ClaudeCodeStore
) -> None:
    log(
        tmp_path,
        prompt(0, "look", isSidechain=True, parentUuid=None, version=None, cwd=None),
        prompt(1, "hi", version="2.1.80"),
        prompt(2, "go on", isSidechain=True, version="2.1.80"),
    )
    assert sorted(headers(store)) == [MAIN, f"{MAIN}/sidechain-row-0"]
    assert texts(store, f"{MAIN}/sidechain-row-0") == ["look"]
    assert texts(store) == ["hi", "go on"]


def test_an_agent_of_a_fork_begins_where_that_of_its_original_ends(
    tmp_path: Path, store: ClaudeCodeStore
) -> None:
    rows = (asked(0, "look"), answered(1, "found", "row-0", OTHER))
    log(tmp_path, *rows, answered(2, "more", "row-1", OTHER), session=OTHER)
    store.sweep()
    assert texts(store, f"{MAIN}/sidechain-row-0") == ["look"]
    assert texts(store, f"{OTHER}/sidechain-row-1") == ["found", "more"]


def test_an_agent_that_was_forgotten_does_not_go_on_when_its_rows_come_again(
    tmp_path: Path, store: ClaudeCodeStore
) -> None:
    rows = [asked(number, f"word{number}") for number in range(300)]
    again = [
        row
        for number in range(300)
        for row in (rows[number], answered(300 + number, "on", f"row-{number}"))
    ]
    path = log(tmp_path, *rows, *again)
    sizes = [seen.size_bytes or 0 for seen in store.sweep().snapshots if seen.header.id != MAIN]
    assert len(sizes) == 300
    assert sum(sizes) == len(b"".join(rows)) + len(rows)
    assert texts(store, f"{MAIN}/sidechain-row-0") == ["word0"]
    assert types(store).count("claude-code/sidechain") == 900
    assert path.stat().st_size > sum(sizes)


def test_agents_beyond_the_limit_are_kept_with_their_session(
    tmp_path: Path, store: ClaudeCodeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("session_query.storage.claude_code._AGENTS", 1)
    log(tmp_path, *TWO_AT_ONCE)
    assert sorted(headers(store)) == [MAIN, LOOKS_AT_LOG]
    assert len(texts(store, LOOKS_AT_LOG)) == 3
    assert types(store).count("claude-code/sidechain") == 5


def test_a_session_whose_name_looks_like_that_of_an_agent_inside_a_log_is_read(
    tmp_path: Path, store: ClaudeCodeStore
) -> None:
    path = tmp_path / PROJECT / MAIN / "subagents" / "sidechain-x" / "agent-1.jsonl"
    write(path, prompt(1, "look", isSidechain=True))
    assert texts(store, f"{MAIN}/sidechain-x/agent-1") == ["look"]


# --- forks of forks of Claude Code

A_ROWS = (prompt(0, "the question"), answer(1, said("the answer")))
B_ROWS = (prompt(2, "the second way", OTHER), answer(3, said("its answer"), session=OTHER))
C_ROWS = (prompt(4, "the third way", THIRD),)


def three_levels(tmp_path: Path) -> list[Path]:
    return [
        log(tmp_path, *A_ROWS),
        log(tmp_path, *A_ROWS, *B_ROWS, session=OTHER),
        log(tmp_path, *A_ROWS, *B_ROWS, *C_ROWS, session=THIRD),
    ]


def test_the_parent_of_a_fork_of_a_fork_is_the_fork(tmp_path: Path, store: ClaudeCodeStore) -> None:
    three_levels(tmp_path)
    found = headers(store)
    assert [found[one].parent_session for one in (MAIN, OTHER, THIRD)] == [None, MAIN, OTHER]
    assert [found[one].is_seeded for one in (MAIN, OTHER, THIRD)] == [False, True, True]
    whole = read(store, THIRD)
    assert validate_log(found[THIRD], whole.events) == whole.inherited_event_count
    own = whole.events[whole.inherited_event_count :]
    assert [kept(event) for event in own if event.type == "user/message"] == list(C_ROWS)


def test_copies_of_copies_are_found_once(tmp_path: Path, store: ClaudeCodeStore) -> None:
    three_levels(tmp_path)
    store.sweep()
    assert texts(store) == ["the question", "the answer"]
    assert texts(store, OTHER) == ["the second way", "its answer"]
    assert texts(store, THIRD) == ["the third way"]


@pytest.mark.parametrize(
    ("gone", "found"),
    [
        ([0], {OTHER: ["the question", "the answer", "the second way", "its answer"],
               THIRD: ["the third way"]}),
        ([1], {MAIN: ["the question", "the answer"],
               THIRD: ["the second way", "its answer", "the third way"]}),
        ([0, 1], {THIRD: ["the question", "the answer", "the second way", "its answer",
                          "the third way"]}),
    ],
)  # fmt: skip
def test_copies_of_copies_are_found_in_whoever_is_left(
    tmp_path: Path, store: ClaudeCodeStore, gone: list[int], found: dict[str, list[str]]
) -> None:
    paths = three_levels(tmp_path)
    before = {seen.header.id: seen.revision for seen in store.sweep().snapshots}
    for number in gone:
        paths[number].unlink()
    after = {seen.header.id: seen.revision for seen in store.sweep().snapshots}
    assert {one: texts(store, one) for one in after} == found
    # Whoever has more text now than before is indexed anew.
    grown = OTHER if gone == [0] else THIRD
    assert after[grown] != before[grown]


def test_a_prefix_of_any_length_is_looked_through_for_the_parent(
    tmp_path: Path, store: ClaudeCodeStore
) -> None:
    copied = [prompt(number, f"word{number}") for number in range(500)]
    log(tmp_path, *copied, *B_ROWS, *C_ROWS, session=THIRD)
    assert headers(store)[THIRD].parent_session == OTHER


def test_of_very_many_sources_the_nearest_are_told_apart(
    tmp_path: Path, store: ClaudeCodeStore
) -> None:
    copied = [prompt(number, f"word{number}", f"s{number}") for number in range(100)]
    log(tmp_path, *copied, *C_ROWS, session=THIRD)
    log(tmp_path, prompt(98, "word98", "s98"), session="s98")
    assert headers(store)[THIRD].parent_session == "s99"
    # Only what the second nearest is known to have is found there.
    found = texts(store, THIRD)
    assert [f"word{number}" in found for number in (35, 36, 98, 99)] == [True, False, False, True]


class Scanned(tuple[str, ...]):
    """Sources that count how often they are searched."""

    scans = 0

    def __contains__(self, source: object) -> bool:
        Scanned.scans += 1
        return super().__contains__(source)

    def __iter__(self) -> Iterator[str]:
        Scanned.scans += 1
        return super().__iter__()


def test_sources_are_searched_once_however_many_copies_there_are() -> None:
    copies = Copies(Scanned(("b", "a", "0")), frozenset({"a"}))
    found = [copies.are_elsewhere(source) for source in ("b", "a", "0", "other", None) * 20]
    assert found == [False, True, True, False, False] * 20
    assert Scanned.scans == 1


# --- forks of forks of Codex

A = "019cadd0-0000-7000-8000-00000000000a"
B = "019cadd4-0000-7000-8000-00000000000b"
C = "019cadd8-0000-7000-8000-00000000000c"
A_TURN = "019cadd1-0000-7000-8000-000000000001"
B_TURN = "019cadd5-0000-7000-8000-000000000002"
C_TURN = "019cadd9-0000-7000-8000-000000000003"


def turn(number: int, name: str, asked: str, answered: str) -> tuple[bytes, ...]:
    return (
        notice(number, "task_started", turn_id=name),
        message(number, "user", asked),
        message(number, "assistant", answered),
    )


def codex_levels(tmp_path: Path) -> list[Path]:
    """Copies bear the time of the fork."""

    def rollout(session: str, *rows: bytes) -> Path:
        name = f"rollout-2026-03-02T10-00-00-{session}.jsonl"
        return write(tmp_path / "sessions/2026/03/02" / name, *rows)

    first = ("the question", "the answer")
    second = ("the second way", "its answer")
    forked: dict[str, Json] = {"forked_from_id": A}
    return [
        rollout(A, meta(A), *turn(1, A_TURN, *first)),
        rollout(
            B, meta(B, 300, **forked), meta(A, 300), *turn(300, A_TURN, *first),
            *turn(310, B_TURN, *second),
        ),
        rollout(
            C, meta(C, 600, forked_from_id=B), meta(B, 600, **forked), meta(A, 600),
            *turn(600, A_TURN, *first), *turn(600, B_TURN, *second),
            *turn(610, C_TURN, "the third way", "the last answer"),
        ),
    ]  # fmt: skip


def test_a_fork_of_a_fork_of_codex_descends_from_the_fork(tmp_path: Path) -> None:
    codex_levels(tmp_path)
    found = headers(CodexStore(tmp_path))
    assert {one: head.parent_session for one, head in found.items()} == {A: None, B: A, C: B}


@pytest.mark.parametrize(
    ("gone", "found"),
    [
        ([], {A: ["the question", "the answer"], B: ["the second way", "its answer"],
              C: ["the third way", "the last answer"]}),
        ([0], {B: ["the question", "the answer", "the second way", "its answer"],
               C: ["the third way", "the last answer"]}),
        ([1], {A: ["the question", "the answer"],
               C: ["the second way", "its answer", "the third way", "the last answer"]}),
        ([0, 1], {C: ["the question", "the answer", "the second way", "its answer",
                      "the third way", "the last answer"]}),
    ],
)  # fmt: skip
def test_copies_of_copies_in_codex_are_found_once_in_whoever_is_left(
    tmp_path: Path, gone: list[int], found: dict[str, list[str]]
) -> None:
    paths = codex_levels(tmp_path)
    store = CodexStore(tmp_path)
    store.sweep()
    for number in gone:
        paths[number].unlink()
    assert {one: texts(store, one) for one in headers(store)} == found
    whole = read(store, C)
    own = whole.events[whole.inherited_event_count :]
    assert sum(event.type == "user/message" for event in own) == 1


def test_a_copied_agent_row_is_no_speech_of_a_fork(tmp_path: Path, store: ClaudeCodeStore) -> None:
    rows = [old(prompt(0, "hi")), asked(1, "look"), old(claude("user", 2, OTHER, message=None))]
    log(tmp_path, *rows, session=OTHER)
    assert sorted(headers(store)) == [f"{MAIN}/sidechain-row-1", OTHER]
    assert texts(store, OTHER) == ["hi"]


async def test_an_index_follows_who_of_a_family_is_left(tmp_path: Path) -> None:
    paths = three_levels(tmp_path)
    async with open_session_query(store=ClaudeCodeStore(tmp_path)) as query:

        async def holders(words: str) -> list[str]:
            return [hit.header.id for hit in (await query.search_sessions(words)).items]

        assert await holders("the question") == [MAIN]
        assert await holders("its answer") == [OTHER]
        paths[1].unlink()
        assert await holders("the question") == [MAIN]
        assert await holders("its answer") == [THIRD]
        paths[0].unlink()
        assert await holders("the question") == [THIRD]
