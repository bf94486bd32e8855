"""The corpus as searches and reads see it while sessions go live, end and are replaced."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from actor_world import Hang, message
from builders import START, Log, header, text, user_data
from inline_runtime import InlineRuntime
from jsonl_files import BODY, row, write_log
from service_world import (
    CountingStore,
    append,
    events_of,
    messages,
    refused,
    session,
    sessions_of,
    settle,
    store_of,
)
from trio.testing import wait_all_tasks_blocked

from session_query.actors.composition import open_session_query
from session_query.messages.config import MEMORY, IndexConfig
from session_query.messages.errors import ErrorCode
from session_query.messages.filters import CreatedAt, Ids, SeqRange, SurfaceIn
from session_query.messages.records import SessionListing, Surface
from session_query.simulations.runtime import SimulatedRuntime
from session_query.storage.contract import TAIL_BYTES, Tail
from session_query.storage.jsonl import JsonlStore
from session_query.storage.memory import MemoryStore


@pytest.fixture(params=[MEMORY, "file"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> IndexConfig:
    path = MEMORY if request.param == MEMORY else str(tmp_path / "index.db")
    return IndexConfig(path=path)


# -- what is read ---------------------------------------------------------------------------------


async def test_a_log_behind_a_live_session_is_not_read_before_that_ends(
    index: IndexConfig,
) -> None:
    store = store_of(session("s", "alpha"), session("t", "alpha"))
    async with open_session_query(store=store, index=index) as query:
        await query.refresh()
        async with query.sessions.create(id="s", created_at=START, cwd="/work", durable=False):
            append(store, "s", "beta")
            store.forget()
            assert await sessions_of(query, "alpha") == ["t"]
            assert await sessions_of(query, "beta") == []
            assert store.logs_read == 0
        assert await sessions_of(query, "beta") == ["s"]
        assert store.tails == [("s", 1)]


async def test_a_session_that_is_stored_and_ends_behind_the_look_at_the_store_is_listed() -> None:
    replying = Hang("sweep")
    runtime = SimulatedRuntime(linger=replying)
    async with (
        open_session_query(store=MemoryStore(), runtime=runtime) as query,
        trio.open_nursery() as nursery,
    ):
        listed: list[str] = []

        async def look() -> None:
            listing = await query.list_sessions()
            listed.extend(record.header.id for record in listing.sessions)

        async with query.sessions.create(id="s") as live:
            await live.commit(message("alpha"))
            nursery.start_soon(look)
            await wait_all_tasks_blocked()
        assert not listed
        replying.over.set()
        await wait_all_tasks_blocked()
        assert listed == ["s"]


async def test_a_session_that_is_stored_and_resumed_behind_the_look_is_listed_as_it_was() -> None:
    replying, store = Hang("sweep"), MemoryStore()
    runtime = SimulatedRuntime(linger=replying)
    async with (
        open_session_query(store=store, runtime=runtime) as query,
        trio.open_nursery() as nursery,
    ):
        listings: list[SessionListing] = []

        async def look() -> None:
            listings.append(await query.list_sessions())

        nursery.start_soon(look)
        await wait_all_tasks_blocked()
        head, events = session("s", "alpha")
        with store.create(head) as handle:
            handle.append(events)
        async with query.sessions.resume("s"):
            replying.over.set()
            await wait_all_tasks_blocked()
        # Neither there yet, nor anything that it never was, such as live and not stored.
        (listing,) = listings
        assert listing.sessions == ()


@pytest.mark.parametrize("by", ["listing", "search"])
async def test_a_session_that_ends_and_is_deleted_before_the_look_shows_as_it_was(by: str) -> None:
    looking, store = Hang("sweep"), MemoryStore([session("s", "alpha")])
    runtime = SimulatedRuntime(pace=looking)
    async with (
        open_session_query(store=store, runtime=runtime) as query,
        trio.open_nursery() as nursery,
    ):
        shown: list[tuple[bool, bool]] = []

        async def look() -> None:
            found = (
                (await query.list_sessions()).sessions
                if by == "listing"
                else (await query.search_sessions("alpha")).items
            )
            shown.extend((each.live, each.persisted) for each in found)

        async with query.sessions.resume("s"):
            nursery.start_soon(look)
            await wait_all_tasks_blocked()
        del store._sessions["s"]
        looking.over.set()
        await wait_all_tasks_blocked()
        assert shown == [(True, True)]


async def test_a_session_that_ends_is_deleted_and_whose_folder_was_mounted_anew_shows_as_it_was(
    tmp_path: Path,
) -> None:
    looking, log = Hang("sweep"), write_log(tmp_path, BODY)
    runtime = SimulatedRuntime(pace=looking)
    async with (
        open_session_query(store=JsonlStore(tmp_path), runtime=runtime) as query,
        trio.open_nursery() as nursery,
    ):
        shown: list[tuple[bool, bool]] = []

        async def look() -> None:
            listing = await query.list_sessions()
            shown.extend((record.live, record.persisted) for record in listing.sessions)

        async with query.sessions.resume("s"):
            query.mount(JsonlStore(tmp_path))
            nursery.start_soon(look)
            await wait_all_tasks_blocked()
        log.unlink()
        looking.over.set()
        await wait_all_tasks_blocked()
        assert shown == [(True, True)]


async def test_a_pass_that_was_cancelled_has_seen_no_commit(tmp_path: Path) -> None:
    log = write_log(tmp_path / "store", [])
    settle(tmp_path / "store")
    telling = Hang("_news")
    telling.over.set()
    runtime = SimulatedRuntime(pace=telling, lands=lambda: False)
    async with (
        open_session_query(store=JsonlStore(tmp_path / "store"), runtime=runtime) as query,
        query.sessions.create(id="live", durable=False) as live,
    ):
        await query.refresh()
        while not query.statistics().notified:  # noqa: ASYNC110 - nobody tells
            await trio.sleep(0.001)
        for _ in range(2):  # the first pass that is told looks at everything once more
            await query.refresh()
        await live.commit(message("alpha"))
        # Something to be told of, though nothing has changed in the end.
        log.with_name("passing").touch()
        log.with_name("passing").unlink()
        telling.over = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(query.search_sessions, "alpha")
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
            telling.over.set()
        assert await sessions_of(query, "alpha") == ["live"]


class VanishingStore(MemoryStore):
    """Its logs are gone when they are to be read, after a look that still found them."""

    vanishing = False

    def read_tail(self, session_id: str, mark: bytes | None, limit: int = TAIL_BYTES) -> Tail:
        if self.vanishing:
            del self._sessions[session_id]
        return super().read_tail(session_id, mark, limit)


async def test_a_log_that_is_gone_when_it_is_to_be_read_is_not_found_as_it_was(
    index: IndexConfig,
) -> None:
    store = VanishingStore([session("s", "alpha"), session("t", "alpha")])
    async with open_session_query(store=store, index=index) as query:
        assert await sessions_of(query, "alpha") == ["s", "t"]
        append(store, "s", "beta")
        store.vanishing = True
        assert await sessions_of(query, "alpha") == ["t"]
        assert await sessions_of(query, "beta") == []


async def test_searching_and_reading_never_write_to_the_store(
    tmp_path: Path, index: IndexConfig
) -> None:
    """The log ends inside a turn and a line, which a resume would mend."""
    start, said = row(0, "turn/start", {"turn": 1}), user_data("word")
    log = write_log(tmp_path / "store", [start, row(1, "user/message", said, surfaceOp="append")])
    with log.open("ab") as end:
        end.write(b'{"type":"user/mess')
    before, when = log.read_bytes(), log.stat().st_mtime_ns
    async with open_session_query(store=JsonlStore(tmp_path / "store"), index=index) as query:
        (session_id,) = await sessions_of(query, "word")
        assert await events_of(query, session_id, "interrupted") == [2]
        assert len((await query.read_session(session_id)).events) == 3
        await query.read_title(session_id)
        async with query.observe_session(session_id):
            pass
    assert (log.read_bytes(), log.stat().st_mtime_ns) == (before, when)
    assert [path for path in (tmp_path / "store").rglob("*") if path.is_file()] == [log]


async def test_a_seed_that_cannot_be_is_corrupt() -> None:
    """The header says that events were inherited, and no marker says which."""
    store = store_of((header("s", seeded=True), messages("word")))
    async with open_session_query(store=store) as query:
        with refused(ErrorCode.CORRUPT_SESSION):
            await query.read_session("s")


async def test_what_a_model_thought_is_not_found_and_what_it_said_is() -> None:
    log = Log()
    log.assistant({"type": "reasoning", "text": "hidden thought"}, text("visible answer"))
    async with open_session_query(store=store_of((header("s"), log.events))) as query:
        assert await sessions_of(query, "thought") == []
        assert await sessions_of(query, "answer") == ["s"]


async def test_another_store_under_the_same_index_file_is_read_anew(tmp_path: Path) -> None:
    """Its logs have the names, sizes and times of those that were indexed."""
    stores = []
    for name, words in (("first", "alpha"), ("second", "gamma")):
        with JsonlStore(tmp_path / name).create(header("s")) as handle:
            handle.append(messages(words))
        settle(tmp_path / name)
        stores.append(CountingStore(JsonlStore(tmp_path / name)))
    first, second = (log.stat() for log in sorted(tmp_path.rglob("*.jsonl")))
    assert (first.st_size, first.st_mtime_ns) == (second.st_size, second.st_mtime_ns)
    index = IndexConfig(path=str(tmp_path / "index.db"))
    for store, words in zip(stores, ("alpha", "gamma"), strict=True):
        async with open_session_query(store=store, index=index) as query:
            assert await sessions_of(query, words) == ["s"]
            assert await sessions_of(query, "alpha") == (["s"] if words == "alpha" else [])


# -- while a pass is under way --------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["sweep", "_take", "write"])
async def test_a_session_that_goes_live_in_the_middle_of_a_pass_is_found_once(
    index: IndexConfig, operation: str
) -> None:
    hang, found = Hang(operation), list[list[str]]()
    store = store_of(session("s", "word"), session("t", "word"))

    async def search() -> None:
        found.append(await sessions_of(query, "word"))

    async with (
        open_session_query(store=store, index=index, runtime=InlineRuntime(pace=hang)) as query,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(search)
        await wait_all_tasks_blocked()
        assert not found
        async with query.sessions.create(
            id="s", created_at=START, cwd="/work", durable=False
        ) as live:
            await live.commit(message("new"))
            hang.over.set()
            await wait_all_tasks_blocked()
            assert found == [["s", "t"]]  # as it was when the pass began
            assert await sessions_of(query, "word") == ["t"]
            assert await sessions_of(query, "new") == ["s"]
        assert await sessions_of(query, "word") == ["s", "t"]


async def test_a_live_session_that_is_replaced_in_the_middle_of_a_pass_is_found_as_it_is(
    index: IndexConfig,
) -> None:
    hang, found = Hang("sweep"), list[list[str]]()

    async def search(words: str) -> None:
        found.append(await sessions_of(query, words))

    async with (
        open_session_query(
            store=store_of(), index=index, runtime=InlineRuntime(pace=hang)
        ) as query,
        trio.open_nursery() as nursery,
    ):
        async with query.sessions.create(id="s", durable=False) as live:
            await live.commit(message("first"))
            nursery.start_soon(search, "first")
            await wait_all_tasks_blocked()
        async with query.sessions.create(id="s", durable=False) as live:
            await live.commit(message("second"))
            hang.over.set()
            await wait_all_tasks_blocked()
            assert found == [["s"]]
            assert await sessions_of(query, "first") == []
            assert await sessions_of(query, "second") == ["s"]


async def test_a_store_exchanged_behind_a_pass_does_not_change_what_that_search_shows() -> None:
    hang, found = Hang("_scan"), list[list[str]]()

    async def search() -> None:
        found.append(await sessions_of(query, "word"))

    async with (
        open_session_query(
            store=store_of(session("a", "word")), runtime=InlineRuntime(pace=hang)
        ) as query,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(search)
        await wait_all_tasks_blocked()
        query.mount(store_of(session("b", "word")))
        hang.over.set()
        await wait_all_tasks_blocked()
        assert found == [["a"]]
        assert await sessions_of(query, "word") == ["b"]


# -- budgets --------------------------------------------------------------------------------------


async def test_predicates_for_sessions_and_events_share_one_budget() -> None:
    eight = [CreatedAt(0, 10**15)] * 3 + [Ids(("s",))] * 2
    six = [SeqRange(0, 9)] * 2 + [SurfaceIn((Surface.CURRENT,))] * 2
    async with open_session_query(store=store_of(session("s", "word"))) as query:
        request = {"session_filters": eight, "event_filters": six}
        assert await sessions_of(query, "word", **request) == ["s"]
        request["event_filters"] = [*six, SeqRange(0)]
        with refused(ErrorCode.INVALID_FILTER, "14"):
            await query.search_sessions("word", **request)  # type: ignore[arg-type]


async def test_a_list_of_a_hundred_thousand_values_is_refused_before_it_is_bound() -> None:
    many = [Ids(tuple(map(str, range(125_000))))]
    async with open_session_query(store=store_of(session("s", "word"))) as query:
        with refused(ErrorCode.INVALID_FILTER, "32766"):
            await query.search_sessions("word", session_filters=many)
        assert await sessions_of(query, "word", session_filters=[Ids(("s",))]) == ["s"]
