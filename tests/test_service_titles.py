"""Titles through the service: folded while indexing, read again only where they may be others."""

from __future__ import annotations

from pathlib import Path

from actor_world import message, title
from attrs import evolve
from builders import Log, header
from service_world import CountingStore, append, refused, session, settle, store_of

from session_query.actors.composition import open_session_query
from session_query.actors.service import SessionQuery
from session_query.messages.config import IndexConfig, QueryConfig
from session_query.messages.errors import ErrorCode
from session_query.messages.event import Event
from session_query.messages.header import SessionHeader
from session_query.storage.jsonl import JsonlStore


def titled(session_id: str, *titles: str) -> tuple[SessionHeader, list[Event]]:
    log = Log()
    log.user("alpha")
    for one in titles:
        log.title(one)
    return header(session_id), log.events


async def titles_of(query: SessionQuery, *session_ids: str) -> list[str | None]:
    results = await query.read_titles(session_ids)
    assert [result.error for result in results] == [None] * len(results)
    return [result.title.title if result.title is not None else None for result in results]


async def test_the_newest_title_of_each_session_comes_in_the_order_of_first_occurrence() -> None:
    store = store_of(titled("a", "old", "new"), titled("b"), titled("c", "other"))
    async with open_session_query(store=store) as query:
        results = await query.read_titles(["c", "a", "nowhere", "b", "a"])
        assert [result.session_id for result in results] == ["c", "a", "nowhere", "b"]
        shown = [result.title.title if result.title else None for result in results]
        assert shown == ["other", "new", None, None]
        failures = [result.error.code if result.error else None for result in results]
        assert failures == [None, None, ErrorCode.SESSION_NOT_FOUND, None]
        newest = await query.read_title("a")
        assert newest is not None
        assert (newest.event_seq, newest.message_seqs, newest.source) == (2, (), {"kind": "user"})


async def test_no_titles_are_read_for_no_ids() -> None:
    store = store_of()
    async with open_session_query(store=store) as query:
        assert await query.read_titles([]) == ()
    assert not store.calls


async def test_the_titles_of_indexed_sessions_read_no_log() -> None:
    store = store_of(titled("a", "first"), titled("b"), titled("c", "third"))
    async with open_session_query(store=store) as query:
        await query.refresh()
        store.forget()
        assert await titles_of(query, "a", "b", "c") == ["first", None, "third"]
        assert store.logs_read == 0
        assert store.calls["stat"] == 3


async def test_titles_without_an_index_come_from_the_logs() -> None:
    store = store_of(titled("a", "first"))
    async with open_session_query(store=store) as query:
        assert await titles_of(query, "a") == ["first"]
        assert store.calls["sweep"] == 0


async def test_a_title_that_was_appended_since_is_read_from_the_log() -> None:
    store = store_of(titled("a", "first"), titled("b", "second"))
    async with open_session_query(store=store) as query:
        await query.refresh()
        with store.open("a", "write") as handle:
            log = Log()
            log.events = list(handle.read())
            log.title("changed")
            handle.append((log.events[-1],))
        store.forget()
        assert await titles_of(query, "a", "b") == ["changed", "second"]
        assert store.logs_read == 1


async def test_an_appended_event_without_a_title_keeps_the_title() -> None:
    store = store_of(titled("a", "first"))
    async with open_session_query(store=store) as query:
        await query.refresh()
        append(store, "a", "beta")
        await query.refresh()
        store.forget()
        assert await titles_of(query, "a") == ["first"]
        assert store.logs_read == 0


async def test_the_title_of_a_live_session_is_that_of_its_last_commit() -> None:
    store = store_of(titled("a", "first"))
    async with open_session_query(store=store) as query:
        await query.refresh()
        async with query.sessions.resume("a") as live:
            store.forget()
            assert await titles_of(query, "a") == ["first"]
            await live.commit(title("second"))
            assert await titles_of(query, "a") == ["second"]
            assert not store.calls
        assert await titles_of(query, "a") == ["second"]
        await query.refresh()
        store.forget()
        assert await titles_of(query, "a") == ["second"]
        assert store.logs_read == 0


async def test_titles_survive_in_the_file_of_the_index(tmp_path: Path) -> None:
    index = IndexConfig(path=str(tmp_path / "index.db"))
    store = store_of(titled("a", "first\udc00"), titled("b"))
    async with open_session_query(store=store, index=index) as query:
        await query.refresh()
    store.forget()
    async with open_session_query(store=store, index=index) as query:
        assert await titles_of(query, "a", "b") == ["first\udc00", None]
    assert store.logs_read == 0


async def test_titles_are_redacted() -> None:
    config = QueryConfig(redact=lambda text: text.replace("secret", "***"))
    store = store_of(titled("a", "the secret plan"))
    async with open_session_query(store=store, config=config) as query:
        assert await titles_of(query, "a") == ["the *** plan"]
        await query.refresh()
        assert await titles_of(query, "a") == ["the *** plan"]
        newest = await query.read_title("a")
        assert newest is not None
        assert newest.title == "the *** plan"
        async with query.sessions.create(id="live") as live:
            await live.commit(title("my secret"), message("x"))
            assert await titles_of(query, "live") == ["my ***"]


async def test_a_damaged_session_fails_alone(tmp_path: Path) -> None:
    inner = JsonlStore(tmp_path)
    for one, events in (titled("a", "first"), titled("b", "second")):
        with inner.create(evolve(one, cwd="/w")) as handle:
            handle.append(tuple(events))
    settle(tmp_path)
    store = CountingStore(inner)
    async with open_session_query(store=store) as query:
        await query.refresh()
        (path,) = tmp_path.glob("*/b/*.jsonl")
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join([b"{damaged\n", *lines[1:]]))
        first, second = await query.read_titles(["a", "b"])
        assert first.title is not None
        assert second.error is not None
        assert second.error.code is ErrorCode.CORRUPT_SESSION
        with refused(ErrorCode.CORRUPT_SESSION):
            await query.read_title("b")


async def test_the_title_of_a_session_that_was_deleted_is_not_found() -> None:
    store = store_of(titled("a", "first"), session("b"))
    async with open_session_query(store=store) as query:
        await query.refresh()
        store.inner = store_of(session("b")).inner
        with refused(ErrorCode.SESSION_NOT_FOUND):
            await query.read_title("a")
