"""The logs of other agents below the whole service: listings, lineages, titles and hits."""

from __future__ import annotations

from pathlib import Path

import pytest
from foreign_logs import (
    MAIN,
    OTHER,
    add,
    answer,
    claude,
    message,
    meta,
    notice,
    outcome,
    prompt,
    rollout,
    said,
    use,
    write,
)

from session_query import (
    ClaudeCodeStore,
    CodexStore,
    Cwd,
    ErrorCode,
    IndexConfig,
    LiveSessionError,
    SessionQuery,
    SessionQueryError,
    SessionStore,
    Surface,
    SurfaceIn,
    TypeIn,
    open_session_query,
)
from session_query.messages.json import Json

PROJECT = "-home-mara-shop"


async def hits(query: SessionQuery, words: str) -> list[tuple[str, int]]:
    """The best event of every session in which some words are found, by session."""
    page = await query.search_sessions(words)
    return sorted((hit.header.id, hit.best_match.seq) for hit in page.items)


def write_claude(root: Path) -> None:
    """A session with an agent, a compaction and a fork."""
    shared = [
        prompt(0, "Why does the login time out?"),
        answer(1, said("I ask an agent."), use("t1", "Task", prompt="find the timeout")),
        prompt(2, [outcome("t1", "It is thirty seconds.")]),
    ]
    own = [
        claude("system", 3, subtype="compact_boundary", parentUuid=None),
        prompt(2, "Summary: thirty seconds.", isCompactSummary=True),
        answer(5, said("I raise it to sixty.")),
        claude("custom-title", 6, customTitle="Login timeout", uuid=None),
    ]
    folder = root / "projects" / PROJECT
    write(folder / f"{MAIN}.jsonl", *shared, *own)
    write(folder / f"{OTHER}.jsonl", *shared, prompt(30, "Retry in the client.", OTHER))
    agent = prompt(1, "find the timeout", isSidechain=True, agentId="a1")
    write(folder / MAIN / "subagents" / "agent-a1.jsonl", agent)


async def test_a_store_of_claude_code_answers_everything(tmp_path: Path) -> None:
    write_claude(tmp_path)
    child = f"{MAIN}/agent-a1"
    async with open_session_query(store=ClaudeCodeStore(tmp_path)) as query:
        listing = await query.list_sessions()
        assert [record.header.id for record in listing.sessions] == [child, MAIN, OTHER]
        titles = await query.read_titles([MAIN, OTHER, child])
        assert [found.title and found.title.title for found in titles] == [
            "Login timeout",
            "Why does the login time out?",
            "find the timeout",
        ]
        lineage = await query.trace_session(MAIN)
        assert [node.session.header.id for node in lineage.descendants] == [OTHER, child]
        assert await hits(query, "login time out") == [(MAIN, 0)]
        thirty = await query.search_events(MAIN, "thirty seconds")
        assert {hit.seq: hit.surface for hit in thirty.items} == {
            3: Surface.SHADOWED,
            5: Surface.CURRENT,
        }
        assert await hits(query, "retry in the client") == [(OTHER, 6)]
        assert await hits(query, "find the timeout") == [(MAIN, 2), (child, 0)]
        shadowed = await query.search_events(
            MAIN, "login", filters=[SurfaceIn([Surface.SHADOWED]), TypeIn(["user/message"])]
        )
        assert [hit.seq for hit in shadowed.items] == [0]
        trace = await query.trace_event(MAIN, 0)
        assert trace.replaced_by is not None
        surface = await query.read_surface(OTHER)
        assert [event.type for event in surface.events] == [
            "user/message",
            "assistant/message",
            "tool/result",
            "user/message",
        ]


async def test_an_exact_read_shows_what_was_stored(tmp_path: Path) -> None:
    write_claude(tmp_path)
    async with open_session_query(store=ClaudeCodeStore(tmp_path)) as query:
        window = await query.read_event(MAIN, 0)
        assert prompt(0, "Why does the login time out?") in window.target.raw
        log = await query.read_session(OTHER)
        assert log.inherited_event_count == 5


async def test_a_growing_log_is_found_by_the_next_search(tmp_path: Path) -> None:
    write_claude(tmp_path)
    path = tmp_path / "projects" / PROJECT / f"{MAIN}.jsonl"
    async with open_session_query(store=ClaudeCodeStore(tmp_path)) as query:
        assert await hits(query, "zebra") == []
        add(path, prompt(40, "A zebra crossing."))
        assert len(await hits(query, "zebra")) == 1
        add(path, prompt(41, "Shorter summary.", isCompactSummary=True))
        [zebra] = (await query.search_sessions("zebra")).items
        assert zebra.best_match.surface is Surface.SHADOWED


async def test_copies_are_found_in_the_fork_when_the_original_is_pruned(tmp_path: Path) -> None:
    write_claude(tmp_path)
    async with open_session_query(store=ClaudeCodeStore(tmp_path)) as query:
        assert await hits(query, "login time out") == [(MAIN, 0)]
        (tmp_path / "projects" / PROJECT / f"{MAIN}.jsonl").unlink()
        assert await hits(query, "login time out") == [(OTHER, 1)]


async def test_a_header_that_is_told_late_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / PROJECT / f"{OTHER}.jsonl"
    write(
        path,
        claude("mode", 0, sessionId=None, cwd=None),
        prompt(1, "zebra", cwd=None, sessionId=None),
    )
    store = ClaudeCodeStore(tmp_path)
    async with open_session_query(store=store) as query:
        assert await hits(query, "zebra") == [(OTHER, 1)]
        mark = store.read_tail(OTHER, None).mark
        add(path, prompt(2, "crossing"))
        assert not store.read_tail(OTHER, mark).appended
        in_shop = await query.search_sessions("zebra", session_filters=[Cwd(["/home/mara/shop"])])
        assert [hit.header.parent_session for hit in in_shop.items] == [MAIN]
        assert await hits(query, "crossing") == [(OTHER, 4)]


async def test_a_store_of_codex_answers_everything(tmp_path: Path) -> None:
    day = tmp_path / "sessions" / "2026" / "03" / "02"
    write(
        day / f"rollout-2026-03-02T10-00-00-{MAIN}.jsonl",
        meta(),
        notice(1, "task_started"),
        message(1, "user", "Why does the login time out?"),
        notice(1, "user_message", message="Why does the login time out?"),
        notice(2, "agent_message", message="Thirty seconds."),
        message(2, "assistant", "Thirty seconds."),
        rollout(3, "compacted", {"message": "Summary.", "replacement_history": [{"x": "Thirty"}]}),
        message(4, "assistant", "Sixty now."),
    )
    spawn: Json = {"subagent": {"thread_spawn": {"parent_thread_id": MAIN, "depth": 1}}}
    write(
        day / f"rollout-2026-03-02T10-01-00-{OTHER}.jsonl",
        meta(OTHER, 60, source=spawn),
        message(61, "user", "Find the timeout"),
    )
    async with open_session_query(store=CodexStore(tmp_path)) as query:
        listing = await query.list_sessions()
        assert [record.header.id for record in listing.sessions] == [OTHER, MAIN]
        titles = await query.read_titles([MAIN, OTHER])
        assert [found.title and found.title.title for found in titles] == [
            "Why does the login time out?",
            "Find the timeout",
        ]
        lineage = await query.trace_session(OTHER)
        assert [record.header.id for record in lineage.ancestors] == [MAIN]
        for words in ("login time out", "thirty seconds", "sixty"):
            page = await query.search_events(MAIN, words)
            assert len(page.items) == 1
        # A turn that is still open is closed for readers.
        events = await query.list_events(MAIN)
        assert events[-1].type == "turn/end"


async def test_a_damaged_log_hides_no_other(tmp_path: Path) -> None:
    write_claude(tmp_path)
    bad = tmp_path / "projects" / PROJECT / "44444444-4444-4444-8444-444444444444.jsonl"
    bad.write_bytes(b"nonsense\n")
    async with open_session_query(store=ClaudeCodeStore(tmp_path)) as query:
        page = await query.search_sessions(
            "login time out", session_filters=[Cwd(["/home/mara/shop"])]
        )
        assert [hit.header.id for hit in page.items] == [MAIN]
        [skipped] = page.skipped
        assert (skipped.code, skipped.session_id) == (ErrorCode.CORRUPT_SESSION, bad.stem)


async def test_foreign_sessions_are_neither_resumed_nor_created(tmp_path: Path) -> None:
    write_claude(tmp_path)
    async with open_session_query(store=ClaudeCodeStore(tmp_path)) as query:
        with pytest.raises(SessionQueryError, match="only read"):
            async with query.sessions.resume(MAIN):
                pass
        with pytest.raises(LiveSessionError, match="only read"):
            async with query.sessions.create(cwd="/home/mara/shop"):
                pass


@pytest.mark.parametrize("make", [ClaudeCodeStore, CodexStore])
async def test_no_logs_at_all_are_an_empty_store(
    tmp_path: Path, make: type[ClaudeCodeStore]
) -> None:
    store: SessionStore = make(tmp_path / "nowhere")
    async with open_session_query(
        store=store, index=IndexConfig(path=str(tmp_path / "i.db"))
    ) as query:
        assert (await query.list_sessions()).sessions == ()
        assert await hits(query, "anything") == []
