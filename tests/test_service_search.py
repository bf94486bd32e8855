"""Searches through the service: filters, pages, what is refused and in which order, queries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from actor_world import message, replacement
from builders import START, Log, header, user_data
from jsonl_files import row, write_log
from service_world import events_of, refused, session, sessions_of, store_of

from session_query.actors.composition import open_session_query
from session_query.messages.config import IndexConfig, QueryConfig, Tokenizer
from session_query.messages.errors import ErrorCode
from session_query.messages.event import EventDraft
from session_query.messages.filters import (
    AvailabilityIn,
    CreatedAt,
    Cwd,
    EventFilter,
    Ids,
    Parent,
    SeqRange,
    SessionFilter,
    SurfaceIn,
    Text,
    TimeRange,
    TypeIn,
)
from session_query.messages.header import SessionHeader
from session_query.messages.json import Json, member
from session_query.messages.records import Availability, Surface
from session_query.storage.jsonl import JsonlStore

Stored = tuple[SessionHeader, tuple[Any, ...]]


# -- filters --------------------------------------------------------------------------------------

FAMILY = (
    session("root", "word word", cwd="/a", created_at=10),
    session("child", "word", cwd="/b", created_at=20, parent_session="root"),
    session("stray", "word", cwd=None, created_at=30, parent_session="gone"),
)


@pytest.mark.parametrize(
    ("clause", "found"),
    [
        (Ids(()), []),
        (Ids(("child", "root", "gone")), ["root", "child"]),
        (Cwd(("/a", None)), ["root", "stray"]),
        (Cwd((None,)), ["stray"]),
        (Cwd(("/a/",)), []),
        (Cwd(()), []),
        (CreatedAt(10, 20), ["root", "child"]),
        (CreatedAt(start=20.5), ["stray"]),
        (CreatedAt(), ["root", "child", "stray"]),
        (Parent(("root",)), ["child"]),
        (Parent((None, "gone")), ["root", "stray"]),
        (Parent(()), []),
        (AvailabilityIn((Availability.PERSISTED,)), ["root", "child", "stray"]),
        (AvailabilityIn((Availability.LIVE,)), []),
        (AvailabilityIn((Availability.LIVE, Availability.PERSISTED)), ["root", "child", "stray"]),
        (AvailabilityIn(()), []),
    ],
    ids=repr,
)
async def test_a_session_filter_keeps_its_sessions(clause: SessionFilter, found: list[str]) -> None:
    async with open_session_query(store=store_of(*FAMILY)) as query:
        assert await sessions_of(query, "word", session_filters=[clause]) == found


async def test_availability_tells_live_and_stored_sessions_apart() -> None:
    live, persisted = Availability.LIVE, Availability.PERSISTED
    async with (
        open_session_query(store=store_of(session("stored", "word"))) as query,
        query.sessions.create(id="new", created_at=START) as new,
        query.sessions.create(id="both", created_at=START - 1) as both,
    ):
        await new.commit(message("word"))
        await both.commit(message("word"))
        await both.flush()

        async def of(*values: Availability) -> set[str]:
            clause = AvailabilityIn(values)
            return set(await sessions_of(query, "word", session_filters=[clause]))

        assert await of(live) == {"new", "both"}
        assert await of(persisted) == {"stored", "both"}
        assert await of(live, persisted) == {"stored", "new", "both"}
        assert await of() == set()


def turn_with_a_summary() -> Log:
    log = Log()
    log.turn_start()
    log.user("word one")
    log.user("word two")
    log.replace(1, 1, [1], "word summary")
    log.turn_end()
    log.call("c", "grep", "word")
    return log


@pytest.mark.parametrize(
    ("clause", "found"),
    [
        (SeqRange(1, 2), [2, 1]),
        (SeqRange(start=2.5), [5, 3]),
        (SeqRange(9), []),
        (TimeRange(end=START + 2), [2, 1]),
        (TimeRange(START + 3, START + 3), [3]),
        (TypeIn(("tool/call",)), [5]),
        (TypeIn(("tool/call", "user/message")), [5, 3, 2, 1]),
        (TypeIn(("unheard/of",)), []),
        (TypeIn(()), []),
        (SurfaceIn((Surface.CURRENT,)), [3, 2]),
        (SurfaceIn((Surface.SHADOWED,)), [1]),
        (SurfaceIn((Surface.LOG_ONLY,)), [5]),
        (SurfaceIn((Surface.LOG_ONLY, Surface.SHADOWED)), [5, 1]),
        (SurfaceIn(()), []),
    ],
    ids=repr,
)
async def test_an_event_filter_keeps_its_events(clause: EventFilter, found: list[int]) -> None:
    store = store_of((header("s"), turn_with_a_summary().events))
    async with open_session_query(store=store) as query:
        kept = await events_of(query, "s", "word", filters=[clause])
        assert sorted(kept, reverse=True) == found
        hits = (await query.search_sessions("word", event_filters=[clause])).items
        assert [hit.best_match.seq in kept for hit in hits] == [True] * bool(found)


async def test_event_filters_choose_the_best_match_of_a_session() -> None:
    store = store_of(session("s", "word word word", "word word", "word"))
    async with open_session_query(store=store) as query:
        (hit,) = (await query.search_sessions("word", event_filters=[SeqRange(1)])).items
        assert hit.best_match.seq == 1


async def test_all_clauses_must_hold() -> None:
    async with open_session_query(store=store_of(*FAMILY)) as query:
        both = [Cwd(("/a", "/b")), Parent((None,))]
        assert await sessions_of(query, "word", session_filters=both) == ["root"]
        neither = [Cwd(("/a",)), Parent(("root",))]
        assert await sessions_of(query, "word", session_filters=neither) == []


# -- pages ----------------------------------------------------------------------------------------


async def test_pages_follow_each_other_without_gap_or_repetition() -> None:
    store = store_of(*(session(f"s{number:02}", "word", "word") for number in range(25)))
    async with open_session_query(store=store) as query:
        found: list[str] = []
        sizes: list[int] = []
        cursor: str | None = None
        while not sizes or cursor is not None:
            page = await query.search_sessions("word", limit=7, cursor=cursor)
            found += [hit.header.id for hit in page.items]
            sizes.append(len(page.items))
            cursor = page.next_cursor
        assert found == [f"s{number:02}" for number in range(25)]
        assert sizes == [7, 7, 7, 4]


async def test_the_last_page_that_is_full_has_no_cursor() -> None:
    async with open_session_query(store=store_of(session("s", "word", "word"))) as query:
        assert (await query.search_events("s", "word", limit=2)).next_cursor is None
        assert (await query.search_events("s", "word", limit=1)).next_cursor is not None


async def test_the_default_and_the_largest_page_are_those_of_the_configuration() -> None:
    store = store_of(session("s", *["word"] * 9))
    index = IndexConfig(path=":memory:", default_limit=3, max_limit=8)
    async with open_session_query(store=store, index=index) as query:
        assert len((await query.search_events("s", "word")).items) == 3
        assert len((await query.search_events("s", "word", limit=8)).items) == 8
        with refused(ErrorCode.INVALID_LIMIT, "1 to 8"):
            await query.search_events("s", "word", limit=9)


async def test_the_strongest_match_comes_first_then_the_shortest_then_the_newest() -> None:
    store = store_of(
        session("more", "word word filler filler filler"),
        session("long", "word filler filler"),
        session("newer", "word"),
        session("older", "word"),
    )
    with store.open("newer", "write") as handle:
        log = Log()
        log.user("nothing")
        log.user("word", op="append")
        handle.append((log.events[1],))
    async with open_session_query(store=store) as query:
        found = await sessions_of(query, "word")
        assert found == ["more", "newer", "older", "long"]


# -- what is refused ------------------------------------------------------------------------------

BAD_FILTER: Any = [Text("x")]


@pytest.mark.parametrize(
    ("request_of", "code"),
    [
        ({"session_filters": BAD_FILTER, "event_filters": BAD_FILTER}, "session_filters"),
        ({"event_filters": BAD_FILTER, "cursor": 5}, "event_filters"),
        ({"cursor": 5, "query": " "}, "cursor"),
        ({"query": " ", "limit": 0}, "query"),
        ({"limit": 0}, "limit"),
    ],
)
async def test_the_first_fault_in_the_order_of_the_parameters_is_reported(
    request_of: dict[str, Any], code: str
) -> None:
    codes = {
        "session_filters": ErrorCode.INVALID_FILTER,
        "event_filters": ErrorCode.INVALID_FILTER,
        "cursor": ErrorCode.INVALID_CURSOR,
        "query": ErrorCode.INVALID_QUERY,
        "limit": ErrorCode.INVALID_LIMIT,
    }
    store = store_of()
    async with open_session_query(store=store) as query:
        with refused(codes[code], code):
            await query.search_sessions(**{"query": "word", **request_of})
    assert not store.calls


@pytest.mark.parametrize("query_text", ["", " \t\n", "\u3000\ufeff", "a\0b", 5, None, ["word"]])
async def test_a_query_must_be_text_with_something_in_it(query_text: Any) -> None:
    async with open_session_query(store=store_of(session("s", "word"))) as query:
        with refused(ErrorCode.INVALID_QUERY):
            await query.search_sessions(query_text)
        with refused(ErrorCode.INVALID_QUERY):
            await query.search_events("s", query_text)


async def test_the_longest_query_is_answered_and_a_longer_one_refused() -> None:
    async with open_session_query(store=store_of(session("s", "登录" * 1_500))) as query:
        assert len((await query.search_sessions("登录" * 150)).items) == 1
        with refused(ErrorCode.INVALID_QUERY, "301 words, at most 300"):
            await query.search_sessions("登" * 301)
        with refused(ErrorCode.INVALID_QUERY, "2001 characters, at most 2000"):
            await query.search_sessions("登" * 2_001)


@pytest.mark.parametrize("limit", [0, -1, 101, 1.0, "10", True])
async def test_a_limit_must_be_a_whole_number_in_range(limit: Any) -> None:
    async with open_session_query(store=store_of(session("s", "word"))) as query:
        with refused(ErrorCode.INVALID_LIMIT):
            await query.search_sessions("word", limit=limit)
        with refused(ErrorCode.INVALID_LIMIT):
            await query.search_events("s", "word", limit=limit)


@pytest.mark.parametrize("filters", [None, "x", {}, 5, [None], [Text("x")], [Ids(("s",))], [{}]])
async def test_event_filters_must_be_a_list_of_event_filters(filters: Any) -> None:
    async with open_session_query(store=store_of(session("s", "word"))) as query:
        with refused(ErrorCode.INVALID_FILTER):
            await query.search_sessions("word", event_filters=filters)
        with refused(ErrorCode.INVALID_FILTER):
            await query.search_events("s", "word", filters=filters)


@pytest.mark.parametrize("session_id", [None, 5, ["s"]])
async def test_the_id_of_an_event_search_must_be_text_before_all_else(session_id: Any) -> None:
    async with open_session_query(store=store_of(session("s", "word"))) as query:
        with refused(ErrorCode.INVALID_FILTER, "session_id"):
            await query.search_events(session_id, " ", filters=BAD_FILTER)


async def test_fourteen_predicates_fit_a_session_search_and_thirteen_an_event_search() -> None:
    thirteen: list[EventFilter] = [*[SeqRange(0, 9)] * 6, TypeIn(("user/message",))]
    fourteen = [*thirteen, SurfaceIn((Surface.CURRENT,))]
    async with open_session_query(store=store_of(session("s", "word"))) as query:
        assert await sessions_of(query, "word", event_filters=fourteen) == ["s"]
        assert await events_of(query, "s", "word", filters=thirteen) == [0]
        with refused(ErrorCode.INVALID_FILTER, "at most 14"):
            await query.search_events("s", "word", filters=fourteen)
        one_more = [Ids(("s",))]
        with refused(ErrorCode.INVALID_FILTER, "at most 14"):
            await query.search_sessions("word", session_filters=one_more, event_filters=fourteen)


async def test_clauses_that_say_nothing_take_no_budget() -> None:
    nothing = [AvailabilityIn((Availability.LIVE, Availability.PERSISTED)), CreatedAt()] * 20
    async with open_session_query(store=store_of(session("s", "word"))) as query:
        assert await sessions_of(query, "word", session_filters=nothing) == ["s"]


async def test_a_statement_binds_a_bounded_number_of_values() -> None:
    async with open_session_query(store=store_of(session("s", "word"))) as query:
        most = [Ids(("s", *map(str, range(32_766 - 13))))]
        assert await sessions_of(query, "word", session_filters=most) == ["s"]
        with refused(ErrorCode.INVALID_FILTER, "at most 32766"):
            await query.search_sessions("word", session_filters=[*most, Cwd((None,))])


async def test_an_unknown_target_is_reported_before_a_foreign_cursor() -> None:
    async with open_session_query(store=store_of(session("s", "word"))) as query:
        with refused(ErrorCode.SESSION_NOT_FOUND):
            await query.search_events("nowhere", "word", cursor="garbage")
        with refused(ErrorCode.INVALID_CURSOR):
            await query.search_events("s", "word", cursor="garbage")


async def test_the_lists_of_a_request_may_change_after_the_call() -> None:
    async with open_session_query(store=store_of(*FAMILY)) as query:
        cwds: list[str | None] = ["/a"]
        clauses = [Cwd(cwds)]
        cwds.append("/b")
        assert await sessions_of(query, "word", session_filters=iter(clauses)) == ["root"]


# -- queries are data -----------------------------------------------------------------------------

OPERATORS = [
    "ask-codex",
    "-x",
    "a--b",
    "foo*",
    '"a" NOT b',
    "^x",
    "{text}: y",
    "text: y",
    "NEAR(a b)",
    "NEAR(a b, 5)",
    "a AND b",
    "a OR b",
    "错题本 OR 错题 OR wrong-book OR mistakes",
    '"',
    '""',
    'a" OR "b',
    "%",
    "'; DROP TABLE doc; --",
]


@pytest.mark.parametrize("tokenizer", Tokenizer)
@pytest.mark.parametrize("words", OPERATORS)
async def test_operators_are_words_like_others(words: str, tokenizer: Tokenizer) -> None:
    texts = ["ask codex a b x y foo text near", "错题本 mistakes wrong book", f"so: {words}!"]
    store = store_of(session("s", *texts))
    index = IndexConfig(path=":memory:", tokenizer=tokenizer)
    async with open_session_query(store=store, index=index) as query:
        page = await query.search_events("s", words)
        assert page.searchable == any(letter.isalnum() for letter in words)
        found = {hit.seq for hit in page.items}
        alike = {"ask-codex": {0}, "-x": {0}, "foo*": {0}, "^x": {0}, "a--b": {0}}
        assert found == ({2} | alike.get(words, set()) if page.searchable else set())


async def test_a_hyphen_separates_words() -> None:
    store = store_of(session("s", "ask-codex", "ask codex", "askcodex", "ask the codex"))
    async with open_session_query(store=store) as query:
        assert sorted(await events_of(query, "s", "ask-codex")) == [0, 1]


@pytest.mark.parametrize("words", ["---", "!!", "*", "“”", "，。"])
async def test_a_query_without_words_says_so(words: str) -> None:
    async with open_session_query(store=store_of(session("s", f"word {words}"))) as query:
        sessions = await query.search_sessions(words)
        events = await query.search_events("s", words)
        assert (sessions.items, sessions.searchable) == ((), False)
        assert (events.items, events.searchable, events.session.id) == ((), False, "s")
        assert (await query.search_sessions("other")).searchable


@pytest.mark.parametrize("words", ["youer", "服务端", "修改youer", "youer服务端", "端"])
async def test_scripts_that_touch_are_words_of_their_own(words: str) -> None:
    async with open_session_query(store=store_of(session("s", "修改youer服务端的计划"))) as query:
        assert await events_of(query, "s", words) == [0]


async def test_composed_and_decomposed_spellings_find_each_other() -> None:
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    store = store_of(session("s", f"in the {composed}", f"in the {decomposed}"))
    async with open_session_query(store=store) as query:
        for words in (composed, decomposed):
            page = await query.search_events("s", words)
            assert [(hit.seq, hit.snippet) for hit in page.items] == [
                (0, f"in the {composed}"),
                (1, f"in the {decomposed}"),
            ]
        stored = (await query.read_event("s", 1)).target
        assert decomposed.encode() in stored.raw


async def test_a_lone_surrogate_is_kept_in_the_log_and_replaced_in_the_index(
    tmp_path: Path,
) -> None:
    line = row(0, "user/message", user_data("XX shown"), surfaceOp="append")
    line = line.replace(b"XX", rb"half \ud83d word")
    write_log(tmp_path, [line])
    async with open_session_query(store=JsonlStore(tmp_path)) as query:
        (hit,) = (await query.search_events("s", "shown")).items
        assert hit.snippet == "half \ufffd word shown"
        assert not (await query.search_events("s", "\ud83d")).searchable
        target = (await query.read_event("s", 0)).target
        assert rb"\ud83d" in target.raw
        assert member(target.data, "content") == [
            {"type": "text", "text": "half \ud83d word shown"}
        ]


# -- hooks ----------------------------------------------------------------------------------------


async def test_a_body_is_redacted_before_its_snippet_is_cut() -> None:
    secret = "S" * 60
    config = QueryConfig(redact=lambda text: text.replace(secret, "[gone]"))
    index = IndexConfig(path=":memory:", snippet_chars=40)
    store = store_of(session("s", f"{'x ' * 30}{secret} word {secret} {'y ' * 30}"))
    async with open_session_query(store=store, config=config, index=index) as query:
        (hit,) = (await query.search_sessions("word")).items
        assert "SS" not in hit.best_match.snippet
        assert "[gone] word [gone]" in hit.best_match.snippet
        async with query.sessions.resume("s") as live:
            await live.commit(message(f"word {secret}"))
            page = await query.search_events("s", "word")
            assert all("SS" not in hit.snippet for hit in page.items)


async def test_a_match_that_was_redacted_away_is_not_marked() -> None:
    config = QueryConfig(redact=lambda text: text.replace("word", "***"))
    async with open_session_query(store=store_of(session("s", "a word")), config=config) as query:
        (hit,) = (await query.search_events("s", "word")).items
        assert (hit.snippet, hit.match) == ("a ***", None)


async def test_the_match_of_a_hit_stands_where_it_says() -> None:
    store = store_of(session("s", "before  the\nWord, after", "今天登录超时了"))
    async with open_session_query(store=store) as query:
        (hit,) = (await query.search_events("s", "the word")).items
        assert hit.match is not None
        assert hit.snippet[slice(*hit.match)] == "the Word"
        (hit,) = (await query.search_events("s", "登录。超时")).items
        assert hit.match is not None
        assert hit.snippet[slice(*hit.match)] == "登录超时"


async def test_the_text_of_own_event_types_is_extracted_by_the_host() -> None:
    def extract(event_type: str, data: Json) -> str:
        return str(member(data, "note")) if event_type == "demo/note" else ""

    log = Log()
    log.add("demo/note", {"note": "stored word"}, ignorable=True)
    log.add("demo/other", {"note": "word"}, ignorable=True)
    config = QueryConfig(extract=extract)
    store = store_of((header("s"), log.events))
    async with open_session_query(store=store, config=config) as query:
        assert await events_of(query, "s", "word") == [0]
        async with query.sessions.resume("s") as live:
            await live.commit(EventDraft("demo/note", {"note": "live word"}, ignorable=True))
            assert sorted(await events_of(query, "s", "word")) == [0, 3]
    async with open_session_query(store=store) as query:
        assert await events_of(query, "s", "word") == []


async def test_a_surface_flip_shows_in_the_hit_and_in_the_filter() -> None:
    store = store_of(session("s", "word one", "word two"))
    async with open_session_query(store=store) as query, query.sessions.resume("s") as live:
        await query.refresh()
        await live.commit(replacement(0, 0, 0))
        found = {hit.seq: hit.surface for hit in (await query.search_events("s", "word")).items}
        assert found == {0: Surface.SHADOWED, 1: Surface.CURRENT}
        clause = SurfaceIn((Surface.SHADOWED,))
        assert await events_of(query, "s", "word", filters=[clause]) == [0]
        (hit,) = (await query.search_sessions("word", event_filters=[clause])).items
        assert (hit.best_match.seq, hit.best_match.surface) == (0, Surface.SHADOWED)


async def test_searches_side_by_side_answer_as_one_after_the_other() -> None:
    store = store_of(*(session(f"s{n}", f"word{n % 3} common") for n in range(12)))
    async with open_session_query(store=store) as query:
        wanted = [await sessions_of(query, f"word{n % 3}") for n in range(12)]
        found: dict[int, list[str]] = {}

        async def ask(number: int) -> None:
            found[number] = await sessions_of(query, f"word{number % 3}")

        async with trio.open_nursery() as nursery:
            for number in range(12):
                nursery.start_soon(ask, number)
        assert [found[number] for number in range(12)] == wanted
