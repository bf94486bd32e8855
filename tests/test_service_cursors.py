"""Cursors: what makes one stale, what invalid, and what leaves it as it is."""

from __future__ import annotations

import base64
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from actor_world import message, turn
from builders import START
from service_world import CountingStore, append, refused, session, store_of

from session_query.actors.composition import open_session_query
from session_query.actors.live_session import LiveSession
from session_query.actors.service import SessionQuery
from session_query.messages.config import MEMORY, IndexConfig
from session_query.messages.errors import ErrorCode, SessionQueryError
from session_query.messages.filters import Cwd, Parent, SeqRange, TypeIn
from session_query.messages.records import EventSearchPage, SessionSearchPage
from session_query.storage.jsonl import JsonlStore

STALE, INVALID = ErrorCode.STALE_CURSOR, ErrorCode.INVALID_CURSOR


async def first_sessions(query: SessionQuery, cursor: str | None = None) -> SessionSearchPage:
    return await query.search_sessions("word", limit=1, cursor=cursor)


async def first_events(
    query: SessionQuery, session_id: str, cursor: str | None = None
) -> EventSearchPage:
    return await query.search_events(session_id, "word", limit=1, cursor=cursor)


async def code_of(page: Awaitable[object]) -> ErrorCode | None:
    try:
        await page
    except SessionQueryError as error:
        return error.code
    return None


# -- the table of what changes which cursor -------------------------------------------------------


class Scene:
    """A service with stored and live sessions, and a cursor of each kind of search."""

    def __init__(self, query: SessionQuery, store: CountingStore, live: LiveSession) -> None:
        self.query = query
        self.store = store
        self.live = live
        self.cursors: dict[str, str | None] = {}

    async def take_cursors(self) -> None:
        self.cursors[""] = (await first_sessions(self.query)).next_cursor
        for session_id in ("stored", "other", "live"):
            page = await first_events(self.query, session_id)
            self.cursors[session_id] = page.next_cursor
        assert None not in self.cursors.values()

    async def stale(self) -> set[str]:
        """Which cursors are stale; the empty name is that of the session search."""
        found = set()
        for name, cursor in self.cursors.items():
            page = (
                first_events(self.query, name, cursor)
                if name
                else first_sessions(self.query, cursor)
            )
            code = await code_of(page)
            assert code in (None, STALE)
            if code is STALE:
                found.add(name)
        return found


@asynccontextmanager
async def scene(index: IndexConfig) -> AsyncIterator[Scene]:
    store = store_of(session("stored", "word", "word"), session("other", "word", "word"))
    async with (
        open_session_query(store=store, index=index) as query,
        query.sessions.create(id="live", created_at=START) as live,
    ):
        await live.commit(message("word"), message("word"))
        there = Scene(query, store, live)
        await there.take_cursors()
        yield there


async def nothing(there: Scene) -> None:
    pass


async def refresh(there: Scene) -> None:
    await there.query.refresh()


async def commit(there: Scene) -> None:
    await there.live.commit(message("unrelated"))


async def commit_without_text(there: Scene) -> None:
    await there.live.commit(turn("start"), turn("end"))


async def flush(there: Scene) -> None:
    await there.live.flush()


async def append_to_stored(there: Scene) -> None:
    append(there.store, "stored", "unrelated")


async def delete_other(there: Scene) -> None:
    there.store.inner = store_of(session("stored", "word", "word")).inner


async def another_live(there: Scene) -> None:
    async with there.query.sessions.create(durable=False):
        await there.query.refresh()


async def another_live_unseen(there: Scene) -> None:
    async with there.query.sessions.create(durable=False) as live:
        await live.commit(message("word"))


async def resume_and_close(there: Scene) -> None:
    async with there.query.sessions.resume("stored"):
        await there.query.refresh()


Change = Callable[[Scene], Awaitable[None]]


@pytest.mark.parametrize("path", ["file", MEMORY])
@pytest.mark.parametrize(
    ("change", "stale"),
    [
        (nothing, set()),
        (refresh, set()),
        (another_live_unseen, set()),
        (commit, {"", "live"}),
        (commit_without_text, {"", "live"}),
        (flush, {"", "live"}),
        (append_to_stored, {"", "stored"}),
        (another_live, {""}),
        (resume_and_close, {"", "stored"}),
    ],
)
async def test_a_cursor_is_stale_once_what_it_goes_through_has_changed(
    tmp_path: Path, path: str, change: Change, stale: set[str]
) -> None:
    index = IndexConfig(path=MEMORY if path == MEMORY else str(tmp_path / "index.db"))
    async with scene(index) as there:
        await change(there)
        assert await there.stale() == stale


async def test_a_deleted_session_is_not_found_and_another_keeps_its_cursor() -> None:
    async with scene(IndexConfig(path=MEMORY)) as there:
        await delete_other(there)
        cursors = there.cursors
        assert await code_of(first_sessions(there.query, cursors[""])) is STALE
        found = await code_of(first_events(there.query, "other", cursors["other"]))
        assert found is ErrorCode.SESSION_NOT_FOUND
        assert await code_of(first_events(there.query, "stored", cursors["stored"])) is None


async def test_a_session_that_goes_live_or_ends_makes_its_cursor_stale() -> None:
    store = store_of(session("s", "word", "word"))
    async with open_session_query(store=store) as query:
        stored = (await first_events(query, "s")).next_cursor
        async with query.sessions.resume("s"):
            assert await code_of(first_events(query, "s", stored)) is STALE
            live = (await first_events(query, "s")).next_cursor
            assert await code_of(first_events(query, "s", live)) is None
        assert await code_of(first_events(query, "s", live)) is STALE
        assert await code_of(first_events(query, "s", stored)) is STALE


async def test_only_the_first_flush_of_a_session_makes_its_cursor_stale() -> None:
    async with (
        open_session_query(store=store_of()) as query,
        query.sessions.create(id="s") as live,
    ):
        await live.commit(message("word"), message("word"))
        await live.flush()
        await live.commit(message("word"))
        cursor = (await first_events(query, "s")).next_cursor
        await live.flush()
        await query.refresh()
        assert await code_of(first_events(query, "s", cursor)) is None


async def test_a_touched_log_makes_its_cursor_stale(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    for one, events in (session("s", "word", "word"), session("t", "word", "word")):
        with store.create(one) as handle:
            handle.append(events)
    async with open_session_query(store=store) as query:
        await query.refresh()
        touched = (await first_events(query, "s")).next_cursor
        other = (await first_events(query, "t")).next_cursor
        everywhere = (await first_sessions(query)).next_cursor
        (path,) = tmp_path.glob("*/s/*.jsonl")
        os.utime(path, ns=(1, 1))
        assert await code_of(first_events(query, "s", touched)) is STALE
        assert await code_of(first_events(query, "t", other)) is None
        assert await code_of(first_sessions(query, everywhere)) is STALE


# -- what a cursor belongs to ---------------------------------------------------------------------

FILTERED: dict[str, Any] = {
    "session_filters": [Cwd((None, "/work")), Parent((None, "p"))],
    "event_filters": [SeqRange(0, 9), TypeIn(("user/message", "tool/call"))],
    "limit": 1,
}


async def test_a_cursor_can_be_used_again() -> None:
    async with open_session_query(store=store_of(*map(short, "abc"))) as query:
        cursor = (await first_sessions(query)).next_cursor
        second = await first_sessions(query, cursor)
        assert await first_sessions(query, cursor) == second
        assert second.items[0].header.id == "b"


def short(name: str) -> Any:
    return session(name, "word", "word")


@pytest.mark.parametrize(
    "same",
    [
        {},
        {"session_filters": [Parent(("p", None)), Cwd(("/work", None))]},
        {"event_filters": [TypeIn(("tool/call", "user/message")), SeqRange(0, 9)]},
    ],
)
async def test_a_request_that_means_the_same_goes_on(same: dict[str, Any]) -> None:
    async with open_session_query(store=store_of(*map(short, "abc"))) as query:
        cursor = (await query.search_sessions("word", **FILTERED)).next_cursor
        page = await query.search_sessions(" word ", **{**FILTERED, **same}, cursor=cursor)
        assert page.items[0].header.id == "b"


async def test_the_default_limit_spelled_out_goes_on() -> None:
    index = IndexConfig(path=MEMORY, default_limit=1)
    async with open_session_query(store=store_of(*map(short, "abc")), index=index) as query:
        cursor = (await query.search_sessions("word")).next_cursor
        assert await code_of(query.search_sessions("word", limit=1, cursor=cursor)) is None


@pytest.mark.parametrize(
    "other",
    [
        {"query": "Word"},
        {"limit": 2},
        {"session_filters": []},
        {"session_filters": [*FILTERED["session_filters"], Cwd((None, "/work"))]},
        {"session_filters": [Cwd((None, "/work", "/work")), Parent((None, "p"))]},
        {"event_filters": [SeqRange(0, 8), TypeIn(("user/message", "tool/call"))]},
    ],
)
async def test_another_request_makes_a_cursor_invalid(other: dict[str, Any]) -> None:
    async with open_session_query(store=store_of(*map(short, "abc"))) as query:
        cursor = (await query.search_sessions("word", **FILTERED)).next_cursor
        request = {"query": "word", **FILTERED, **other}
        assert await code_of(query.search_sessions(**request, cursor=cursor)) is INVALID


async def test_a_cursor_of_the_other_kind_of_search_or_session_is_invalid() -> None:
    async with open_session_query(store=store_of(*map(short, "abc"))) as query:
        sessions = (await first_sessions(query)).next_cursor
        events = (await first_events(query, "a")).next_cursor
        assert await code_of(first_events(query, "a", sessions)) is INVALID
        assert await code_of(first_sessions(query, events)) is INVALID
        assert await code_of(first_events(query, "b", events)) is INVALID


async def test_a_cursor_of_another_run_of_the_service_is_invalid(tmp_path: Path) -> None:
    index = IndexConfig(path=str(tmp_path / "index.db"))
    store = store_of(*map(short, "abc"))
    async with open_session_query(store=store, index=index) as query:
        cursor = (await first_sessions(query)).next_cursor
    async with open_session_query(store=store, index=index) as query:
        assert await code_of(first_sessions(query, cursor)) is INVALID


@pytest.mark.parametrize(
    "cursor", ["", "garbage", "e30", "bnVsbA", "W10", "NQ", "登", "\udc00", "="]
)
async def test_text_that_is_no_cursor_is_invalid(cursor: str) -> None:
    async with open_session_query(store=store_of(*map(short, "abc"))) as query:
        with refused(INVALID):
            await first_sessions(query, cursor)
        with refused(INVALID):
            await first_events(query, "a", cursor)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"version": 2}, INVALID),
        ({"version": "1"}, INVALID),
        ({"instance": "other"}, INVALID),
        ({"scope": "events"}, INVALID),
        ({"fingerprint": ""}, INVALID),
        ({"offset": -1}, INVALID),
        ({"offset": 1.5}, INVALID),
        ({"offset": 2**53}, INVALID),
        ({"offset": True}, INVALID),
        ({"extra": 1}, INVALID),
        ({"offset": -1, "generation": "0"}, INVALID),
        ({"generation": "0"}, STALE),
        ({"generation": 1}, INVALID),
    ],
)
async def test_a_cursor_is_checked_field_by_field(change: dict[str, Any], code: ErrorCode) -> None:
    async with open_session_query(store=store_of(*map(short, "abc"))) as query:
        cursor = (await first_sessions(query)).next_cursor
        assert cursor is not None
        assert await code_of(first_sessions(query, edited(cursor, change))) is code


async def test_an_offset_beyond_the_end_is_an_empty_last_page() -> None:
    async with open_session_query(store=store_of(*map(short, "abc"))) as query:
        cursor = (await first_sessions(query)).next_cursor
        assert cursor is not None
        for offset in (3, 10_000, 2**53 - 1):
            page = await first_sessions(query, edited(cursor, {"offset": offset}))
            assert (page.items, page.next_cursor) == ((), None)


def edited(cursor: str, change: dict[str, Any]) -> str:
    fields = msgspec.json.decode(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    return base64.urlsafe_b64encode(msgspec.json.encode({**fields, **change})).decode().rstrip("=")
