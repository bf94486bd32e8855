"""Services whose store tells what changes: what a look costs then, and that none is ever stale."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import trio
from attrs import define, field
from hypothesis import given, settings
from hypothesis import strategies as st
from inline_runtime import InlineRuntime
from jsonl_files import OsFilesAt
from service_world import (
    CountingStore,
    append,
    messages,
    refused,
    session,
    sessions_of,
    store_of,
)
from trio.testing import MockClock, wait_all_tasks_blocked

from session_query import (
    EventDraft,
    IndexConfig,
    JsonlStore,
    QueryConfig,
    SessionQuery,
    open_session_query,
)
from session_query.actors.inventory import RENEW_SECONDS, VERIFY_SECONDS
from session_query.messages.errors import ErrorCode
from session_query.messages.event import Event
from session_query.storage.contract import Changes, SessionStore, Sweep
from session_query.storage.files import FileStat, OsFiles

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")

STARTUP = IndexConfig(path=":memory:", open_at="startup")


@define(eq=False)
class TellingStore(CountingStore):
    """A store on disk that tells what changes, all of it counted."""

    began: trio.Event = field(factory=trio.Event, init=False)
    deaf: bool = field(default=False, init=False)
    """Whether changes go unnoticed."""
    before_sweeps: list[Callable[[], None]] = field(factory=list, init=False)
    """What is done before each of the next ones."""

    def sweep(self) -> Sweep:
        if self.before_sweeps:
            self.before_sweeps.pop(0)()
        return super().sweep()

    def changes(self, token: str | None) -> Changes | None:
        self.calls["changes" if token is not None else "begin"] += 1
        if self.deaf and token is not None:
            return Changes(token, frozenset(), frozenset())
        return self.inner.changes(token)

    def is_unchanged(self, token: str) -> bool:
        return self.deaf or self.inner.is_unchanged(token)

    def unwatch(self) -> None:
        self.calls["unwatch"] += 1
        self.inner.unwatch()


class FailingLooks(OsFilesAt):
    """A disk on which session ``a`` cannot be looked at once."""

    fails = False

    def fail_once(self) -> None:
        self.fails = True

    def stat(self, path: str) -> FileStat:
        if self.fails and path.endswith("/a"):
            self.fails = False
            raise OSError(errno.EIO, "no answer", path)
        return super().stat(path)


def put(store: SessionStore, session_id: str, *texts: str, **changes: Any) -> None:
    """Store a session, as another process does."""
    header, events = session(session_id, *texts, **changes)
    with store.create(header) as writer:
        writer.append(events)


def on_disk(root: Path, *session_ids: str, files: OsFiles | None = None) -> JsonlStore:
    """A store of sessions that all hold ``word``; by default none is ever too young to trust."""
    store = JsonlStore(root, files=files or OsFilesAt(1 << 62))
    for session_id in session_ids:
        put(store, session_id, "word")
    return store


@asynccontextmanager
async def told(
    store: TellingStore, runtime: InlineRuntime | None = None
) -> AsyncIterator[SessionQuery]:
    """A service that has looked once, and whose store tells since."""
    async with open_session_query(store=store, index=STARTUP, runtime=runtime) as query:
        await query.refresh()
        await until_told(query)
        store.forget()
        yield query


async def until_told(query: SessionQuery) -> None:
    """Wait until looks cost what changed."""
    with trio.fail_after(10):
        while not query.statistics().notified:  # noqa: ASYNC110 - nobody tells
            await trio.sleep(0.001)


def descriptors() -> int:
    with os.scandir("/proc/self/fd") as found:
        return len(list(found))


# -- what a look costs ----------------------------------------------------------------------------


async def test_what_has_not_changed_is_not_looked_at(tmp_path: Path) -> None:
    store = TellingStore(on_disk(tmp_path, "a", "b", "c"))
    async with told(store) as query:
        for _ in range(3):
            assert await sessions_of(query, "word", limit=9) == ["a", "b", "c"]
            assert len((await query.list_sessions()).sessions) == 3
            assert len(await query.read_titles(["a", "b"])) == 2
            await query.trace_session("a")
        assert not store.calls


async def test_a_change_costs_what_changed(tmp_path: Path) -> None:
    store = TellingStore(on_disk(tmp_path, *(f"s{number}" for number in range(30))))
    async with told(store) as query:
        append(store.inner, "s7", "fresh")
        assert await sessions_of(query, "fresh") == ["s7"]
        assert store.tails == [("s7", 1)]
        assert store.calls["sweep"] == 0
        assert store.calls["stat"] == 1


async def test_a_store_is_asked_to_tell_behind_the_first_look_and_never_by_one_shot_commands(
    tmp_path: Path,
) -> None:
    store = TellingStore(on_disk(tmp_path, "a"))
    async with open_session_query(store=store, config=QueryConfig(notify=False)) as query:
        assert await sessions_of(query, "word") == ["a"]
        await wait_all_tasks_blocked(0.01)
        assert store.calls["begin"] == 0
    async with open_session_query(store=store) as query:
        await wait_all_tasks_blocked(0.01)
        assert store.calls["begin"] == 0
        await query.list_sessions()
        await until_told(query)
        assert store.calls["begin"] == 1


async def test_a_store_that_cannot_tell_is_swept(tmp_path: Path) -> None:
    store = store_of(session("a", "word"))
    async with open_session_query(store=store, index=STARTUP) as query:
        await query.refresh()
        await wait_all_tasks_blocked(0.01)
        store.forget()
        append(store.inner, "a", "more")
        assert await sessions_of(query, "more") == ["a"]
        assert store.calls["sweep"] == 1


# -- that nothing is stale ------------------------------------------------------------------------


async def test_whatever_was_written_before_a_search_is_found_by_it(tmp_path: Path) -> None:
    store = TellingStore(on_disk(tmp_path, "a", "b", files=OsFiles()))
    async with told(store) as query:
        for number in range(30):
            append(store.inner, "ab"[number % 2], f"n{number}")
            assert await sessions_of(query, f"n{number}") == ["ab"[number % 2]]
        put(store.inner, "c", "word")
        assert await sessions_of(query, "word", limit=9) == ["a", "b", "c"]
        (path,) = tmp_path.glob("*/a")
        path.rename(tmp_path / "aside")
        assert await sessions_of(query, "word", limit=9) == ["b", "c"]
        (tmp_path / "aside").rename(path)
        assert await sessions_of(query, "word", limit=9) == ["a", "b", "c"]


async def test_sessions_come_and_go_in_the_listing_in_order(tmp_path: Path) -> None:
    store = TellingStore(on_disk(tmp_path, "b", "d"))
    async with told(store) as query, query.sessions.create(id="e", created_at=1) as live:
        put(store.inner, "c", "word")
        put(store.inner, "newest", "word", created_at=1 << 50)
        put(store.inner, "child", "word", parent_session="b")
        listing = await query.list_sessions()
        assert [record.header.id for record in listing.sessions] == [
            "newest", "b", "c", "child", "d", "e",
        ]  # fmt: skip
        assert [record.live for record in listing.sessions] == [False] * 5 + [True]
        (child,) = (await query.trace_session("b")).descendants
        assert child.session.header.id == "child"
        await live.commit(*map(_draft, messages("word")))
        await live.flush()
        assert (await query.list_sessions()).sessions[-1].persisted
        (path,) = tmp_path.glob("*/newest")
        path.rename(tmp_path / "aside")
        assert (await query.list_sessions()).sessions[0].header.id == "b"


def _draft(event: Event) -> EventDraft:
    return EventDraft(event.type, event.data, surface_op=event.surface_op)


async def test_damage_is_named_when_it_comes_and_no_longer_when_it_goes(tmp_path: Path) -> None:
    store = TellingStore(on_disk(tmp_path, "a", "b"))
    async with told(store) as query:
        (path,) = tmp_path.glob("*/a/*.jsonl")
        sound = path.read_bytes()
        path.write_bytes(b"\0")
        page = await query.search_sessions("word")
        assert [hit.header.id for hit in page.items] == ["b"]
        assert [skipped.session_id for skipped in page.skipped] == ["a"]
        assert [one.session_id for one in (await query.list_sessions()).skipped] == ["a"]
        path.write_bytes(sound)
        assert await sessions_of(query, "word", limit=9) == ["a", "b"]
        assert (await query.list_sessions()).skipped == ()


async def test_a_header_that_was_rewritten_is_listed_as_it_is(tmp_path: Path) -> None:
    store = TellingStore(on_disk(tmp_path, "a", "b"))
    async with told(store) as query:
        assert len((await query.list_sessions()).sessions) == 2
        (path,) = tmp_path.glob("*/a/*.jsonl")
        path.write_bytes(path.read_bytes().replace(b'"delegationDepth":0', b'"delegationDepth":3'))
        depths = {one.header.id: one.header.delegation_depth
                  for one in (await query.list_sessions()).sessions}  # fmt: skip
        assert depths == {"a": 3, "b": 0}


async def test_titles_are_as_fresh_as_the_store(tmp_path: Path) -> None:
    store = TellingStore(on_disk(tmp_path, "a"))
    async with told(store) as query:
        put(store.inner, "b", "word")
        results = await query.read_titles(["a", "b", "gone"])
        assert [result.error.code if result.error else None for result in results] == [
            None, None, ErrorCode.SESSION_NOT_FOUND,
        ]  # fmt: skip


async def test_a_conflict_with_a_live_session_is_found(tmp_path: Path) -> None:
    store = TellingStore(on_disk(tmp_path, "a"))
    async with told(store) as query, query.sessions.create(id="s", cwd="/here", durable=False):
        put(store.inner, "s", "word", cwd="/there")
        with refused(ErrorCode.SOURCE_CONFLICT):
            await query.list_sessions()
        with refused(ErrorCode.SOURCE_CONFLICT):
            await query.search_sessions("word")


async def test_a_session_that_ends_live_is_compared_with_what_is_stored(tmp_path: Path) -> None:
    store = TellingStore(on_disk(tmp_path, "a"))
    async with told(store) as query:
        async with query.sessions.create(id="s") as live:
            await live.commit(*map(_draft, messages("mine")))
            assert await sessions_of(query, "mine") == ["s"]
        append(store.inner, "s", "theirs")
        assert await sessions_of(query, "mine") == ["s"]
        assert await sessions_of(query, "theirs") == ["s"]
        assert store.calls["sweep"] == 0


# -- where telling ends ---------------------------------------------------------------------------


async def test_another_store_is_asked_to_tell_and_the_old_one_let_go(tmp_path: Path) -> None:
    first = TellingStore(on_disk(tmp_path / "first", "a"))
    second = TellingStore(on_disk(tmp_path / "second", "b"))
    before = descriptors()
    async with told(first) as query:
        query.mount(second)
        assert await sessions_of(query, "word") == ["b"]
        await until_told(query)
        assert first.calls["unwatch"] == 1
        append(second.inner, "b", "more")
        assert await sessions_of(query, "more") == ["b"]
        query.unmount()
        assert await sessions_of(query, "word") == []
        await wait_all_tasks_blocked(0.01)
        assert second.calls["unwatch"] == 1
        query.mount(first)
        assert await sessions_of(query, "word") == ["a"]
        await until_told(query)
    assert first.calls["unwatch"] == 2
    assert descriptors() == before


async def test_a_service_that_is_cancelled_leaves_no_watch(tmp_path: Path) -> None:
    before = descriptors()
    with trio.CancelScope() as scope:
        async with told(TellingStore(on_disk(tmp_path, "a"))):
            scope.cancel()
            await trio.sleep_forever()
    assert descriptors() == before


async def test_two_services_of_one_store_go_on_when_one_of_them_ends(tmp_path: Path) -> None:
    store = TellingStore(on_disk(tmp_path, "a"))
    async with told(store) as first:
        async with told(store) as second:
            append(store.inner, "a", "more")
            for query in (first, second):
                assert await sessions_of(query, "more") == ["a"]
        append(store.inner, "a", "again")
        assert await sessions_of(first, "again") == ["a"]


async def test_what_is_lost_is_swept_and_then_told_anew(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    store = TellingStore(on_disk(tmp_path, "a"))
    async with told(store, InlineRuntime()) as query:
        (link := tmp_path / "link").symlink_to(tmp_path)  # cannot be told of
        append(store.inner, "a", "more")
        assert await sessions_of(query, "more") == ["a"]
        assert store.calls["sweep"] == 1
        link.unlink()
        await trio.sleep(VERIFY_SECONDS + RENEW_SECONDS + 1)
        store.forget()
        append(store.inner, "a", "again")
        assert await sessions_of(query, "again") == ["a"]
        assert store.calls["sweep"] == 0


@pytest.mark.parametrize("stays_quiet", [True, False])
async def test_what_only_a_sweep_failed_to_read_is_looked_at_again(
    tmp_path: Path, autojump_clock: MockClock, stays_quiet: bool
) -> None:
    files = FailingLooks(1 << 62)
    store = TellingStore(on_disk(tmp_path, "a", "b", files=files))
    store.before_sweeps = [lambda: None, files.fail_once]
    async with told(store, InlineRuntime()) as query:
        assert not files.fails
        if not stays_quiet:
            append(store.inner, "b", "more")
        page = await query.search_sessions("word", limit=9)
        assert [hit.header.id for hit in page.items] == ["a", "b"]
        assert page.skipped == ()
        assert store.calls["sweep"] == 1
        store.forget()
        append(store.inner, "a", "again")
        assert await sessions_of(query, "again") == ["a"]
        assert store.calls["sweep"] == 0


async def test_what_the_kernel_does_not_tell_is_found_within_a_minute(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    store = TellingStore(on_disk(tmp_path, "a"))
    async with told(store, InlineRuntime()) as query:
        store.deaf = True
        append(store.inner, "a", "more")
        put(store.inner, "b", "more")
        assert await sessions_of(query, "more") == []
        await trio.sleep(VERIFY_SECONDS + 0.5)
        store.forget()
        assert await sessions_of(query, "more", limit=9) == ["a", "b"]
        store.deaf = False
        await trio.sleep(RENEW_SECONDS)
        assert store.calls["begin"] == 1
        append(store.inner, "a", "again")
        assert await sessions_of(query, "again") == ["a"]


async def test_a_verification_that_finds_nothing_leaves_the_store_telling(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    store = TellingStore(on_disk(tmp_path, "a"))
    async with told(store, InlineRuntime()) as query:
        await trio.sleep(3 * VERIFY_SECONDS + 1)
        assert store.calls["sweep"] == 3
        assert store.calls["begin"] == 0
        assert await sessions_of(query, "word") == ["a"]
        assert store.calls["sweep"] == 3


# -- news -----------------------------------------------------------------------------------------


async def test_what_another_process_writes_is_news_within_a_quarter_of_a_second(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    store = TellingStore(on_disk(tmp_path, "a"))
    async with told(store, InlineRuntime()) as query:
        seen = query.generation
        for number in range(3):
            append(store.inner, "a", f"n{number}")
            start = trio.current_time()
            after = await query.wait_for_generation(seen)
            assert after > seen
            assert trio.current_time() - start <= 0.25 + 1e-9
            assert await query.changed_sessions(seen) == ("a",)
            seen = after


async def test_without_a_listener_nothing_is_read_for_the_news(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    store = TellingStore(on_disk(tmp_path, "a"))
    async with told(store, InlineRuntime()) as query:
        with trio.move_on_after(1.1):
            await query.wait_for_generation(1_000)
        store.forget()
        append(store.inner, "a", "more")
        await trio.sleep(10)
        assert not store.calls


# -- against a service that begins now ------------------------------------------------------------

IDS = ("a", "b", "c")
ACTION = st.tuples(
    st.sampled_from(["put", "append", "hide", "show", "damage", "search", "list"]),
    st.sampled_from(IDS),
)


def act(store: JsonlStore, root: Path, action: str, session_id: str, number: int) -> None:
    folder = next(root.glob(f"store/*/{session_id}"), None)
    aside = root / f"aside-{session_id}"
    match action:
        case "put" if folder is None and not aside.exists():
            put(store, session_id, f"word n{number}")
        case "append" if folder is not None:
            append(store, session_id, f"word n{number}")
        case "hide" if folder is not None and not aside.exists():
            folder.rename(aside)
        case "show" if folder is None and aside.exists():
            aside.rename(next(root.glob("store/*")) / session_id)
        case "damage" if folder is not None:
            with next(folder.glob("*.jsonl")).open("r+b") as log:
                log.write(b"?")


async def state(query: SessionQuery) -> object:
    """What a service says of everything."""
    listing = await query.list_sessions()
    page = await query.search_sessions("word", limit=9)
    return (
        [record.header for record in listing.sessions],
        [skipped.path for skipped in listing.skipped],
        [(hit.header, hit.best_match.seq, hit.best_match.snippet) for hit in page.items],
        [skipped.path for skipped in page.skipped],
    )


@settings(max_examples=25, deadline=None)
@given(st.lists(ACTION, max_size=14))
def test_a_service_that_is_told_answers_like_one_that_begins_now(
    actions: list[tuple[str, str]],
) -> None:
    async def compare() -> None:
        with TemporaryDirectory() as folder:
            root = Path(folder)
            store = TellingStore(on_disk(root / "store", "a", files=OsFiles()))
            async with told(store) as query:
                for number, (action, session_id) in enumerate(actions):
                    try:
                        act(JsonlStore(root / "store"), root, action, session_id, number)
                    except Exception:
                        if action != "append":  # a damaged log has no writer
                            raise
                    if action == "search":
                        await query.search_sessions("word")
                    if action == "list":
                        await query.list_sessions()
                async with open_session_query(store=JsonlStore(root / "store")) as fresh:
                    assert await state(query) == await state(fresh)

    trio.run(compare)
