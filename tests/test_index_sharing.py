"""Several services on one index file: they take turns, see what others did, never half of it."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from random import Random

import pytest
import trio
import trio.lowlevel
from attrs import define
from command_line_runs import PROCESS
from search_corpus import (
    IDS,
    JsonlHand,
    MemoryHand,
    OutsideHand,
    random_events,
    random_header,
    voice_of,
)
from search_world import Question, random_question
from service_world import (
    CountingStore,
    append,
    events_of,
    refused,
    session,
    sessions_of,
    store_of,
)

from session_query.actors.composition import open_session_query
from session_query.actors.service import SessionQuery
from session_query.messages.config import MEMORY, IndexConfig, Tokenizer
from session_query.messages.errors import ErrorCode, LiveSessionError, SessionQueryError
from session_query.messages.records import EventSearchHit, SessionSearchHit
from session_query.simulations.logs import Voice
from session_query.simulations.search_model import ModelSession, find_events, find_sessions
from session_query.storage import index, log_slices
from session_query.storage.contract import SessionStore
from session_query.storage.jsonl import JsonlStore

WORD = session("s", "word one", "word two")


def sharing(
    store: SessionStore, path: Path, tokenizer: Tokenizer = Tokenizer.CJK
) -> AbstractAsyncContextManager[SessionQuery]:
    """A service that shares the index."""
    config = IndexConfig(path=str(path), shared=True, tokenizer=tokenizer)
    return open_session_query(store=store, index=config)


def process(*arguments: str | Path) -> str:
    """What another process says that runs a command of ours."""
    done = subprocess.run(
        [*PROCESS, *map(str, arguments)], capture_output=True, encoding="utf-8", check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def traces(path: Path) -> list[str]:
    """The files of an index that hold a byte of the canary.

    Another process looks: who closes a file gives up all locks that SQLite has on it.
    """
    script = """
import pathlib, sys
for file in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    content = file.read_bytes()
    if b"jqxw71" in content or b"kvzb62" in content:
        print(file.name)
"""
    command = [sys.executable, "-c", script, str(path.parent)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


async def beside(*arguments: str | Path) -> str:
    """What another process says while the services of this one go on."""
    with trio.fail_after(60):
        return await trio.to_thread.run_sync(process, *arguments, abandon_on_cancel=True)


# -- what others did ------------------------------------------------------------------------------


async def test_what_one_service_indexed_the_other_does_not_read_again(tmp_path: Path) -> None:
    stores = [store_of(WORD, session("t", "word")) for _ in range(2)]
    for each in stores:
        each.inner = stores[0].inner
    path = tmp_path / "index.db"
    async with sharing(stores[0], path) as one, sharing(stores[1], path) as other:
        assert set(await sessions_of(one, "word")) == {"s", "t"}
        assert set(await sessions_of(other, "word")) == {"s", "t"}
        assert stores[1].logs_read == 0
        append(stores[0], "s", "word number three")
        assert await events_of(other, "s", "word") == [1, 0, 2]
        stores[0].forget()
        assert await events_of(one, "s", "word") == [1, 0, 2]
        assert stores[0].logs_read == 0


async def test_a_session_of_one_process_is_found_by_all_that_share_an_index(
    tmp_path: Path,
) -> None:
    root, path = tmp_path / "store", tmp_path / "index.db"
    writer = """
import sys, trio
from session_query import EventDraft, IndexConfig, JsonlStore, open_session_query
async def main():
    never = IndexConfig(path="unused", open_at="never")
    async with open_session_query(store=JsonlStore(sys.argv[1]), index=never) as query:
        async with query.sessions.create(id="s") as live:
            for number, line in enumerate(iter(sys.stdin.readline, "")):
                data = {"id": str(number), "role": "user", "source": {"kind": "user"},
                        "content": [{"type": "text", "text": line.strip()}]}
                await live.commit(EventDraft("user/message", data, surface_op="append"))
                await live.flush()
                print("stored", flush=True)
trio.run(main)
"""
    with subprocess.Popen(  # noqa: ASYNC220  # it answers at once
        [sys.executable, "-c", writer, str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        async with sharing(JsonlStore(root), path) as one, sharing(JsonlStore(root), path) as other:
            for count in range(1, 6):
                child.stdin.write(f"word {count}\n")
                child.stdin.flush()
                assert child.stdout.readline() == "stored\n"
                for query in (one, other) if count % 2 else (other, one):
                    assert len(await events_of(query, "s", "word")) == count
            found = process("search", "word", "--store", root, "--index", path, "--json")
            assert '"id":"s"' in found
            async with open_session_query(store=JsonlStore(root)) as second:
                with pytest.raises(LiveSessionError, match=f"process {child.pid}"):
                    async with second.sessions.resume("s"):
                        pass
        child.stdin.close()


async def test_a_purge_in_one_process_is_seen_by_the_others(tmp_path: Path) -> None:
    root, path = tmp_path / "store", tmp_path / "index.db"
    for header, events in (WORD, session("t", "word")):
        with JsonlStore(root).create(header) as handle:
            handle.append(events)
    async with sharing(JsonlStore(root), path) as query:
        assert set(await sessions_of(query, "word")) == {"s", "t"}
        process("index", "purge", "s", "--store", root, "--index", path)
        assert await sessions_of(query, "word") == ["t"]
        assert (await query.index_status()).purged == 1
        append(JsonlStore(root), "s", "word again")
        assert await sessions_of(query, "word") == ["t"]
        process("index", "rebuild", "--store", root, "--index", path)
        assert set(await sessions_of(query, "word")) == {"s", "t"}
        assert await events_of(query, "s", "word") == [1, 0, 2]


async def test_what_another_process_purges_or_rebuilds_leaves_no_byte_while_others_share_the_index(
    tmp_path: Path,
) -> None:
    root, path = tmp_path / "store", tmp_path / "index" / "index.db"
    for header, events in (WORD, session("canary-jqxw71", *("word kvzb62 " * 90,) * 40)):
        with JsonlStore(root).create(header) as handle:
            handle.append(events)

    async with sharing(JsonlStore(root), path) as one, sharing(JsonlStore(root), path) as other:
        for query in (one, other):
            assert await sessions_of(query, "kvzb62") == ["canary-jqxw71"]
        assert traces(path)
        await beside("index", "purge", "canary-jqxw71", "--store", root, "--index", path)
        assert traces(path) == []
        for query in (one, other):
            assert await sessions_of(query, "kvzb62") == []
            assert await sessions_of(query, "word") == ["s"]
        assert traces(path) == []
        await beside("index", "rebuild", "--store", root, "--index", path)
        assert await sessions_of(one, "kvzb62") == ["canary-jqxw71"]
        shutil.rmtree(next(root.glob("*/canary-jqxw71")))
        await beside("index", "rebuild", "--store", root, "--index", path)
        assert traces(path) == []
        assert await sessions_of(other, "word") == ["s"]
        assert traces(path) == []


async def test_a_cursor_ends_when_another_service_builds_the_index_anew(tmp_path: Path) -> None:
    store = store_of(*(session(f"s{number}", "word") for number in range(5)))
    path = tmp_path / "index.db"
    async with sharing(store, path) as one, sharing(store, path) as other:
        page = await one.search_sessions("word", limit=2)
        before = one.generation
        await other.rebuild_index()
        with refused(ErrorCode.STALE_CURSOR):
            await one.search_sessions("word", limit=2, cursor=page.next_cursor)
        assert one.generation > before
        assert (await one.search_sessions("word", limit=5)).items[:2] == page.items


async def test_a_service_that_rebuilds_beside_searches_does_not_disturb_them(
    tmp_path: Path,
) -> None:
    store = store_of(*(session(f"s{number}", "word") for number in range(5)))
    path, rounds = tmp_path / "index.db", 6
    async with sharing(store, path) as one, sharing(store, path) as other:

        async def search(query: SessionQuery) -> None:
            while not done.is_set():
                assert len(await sessions_of(query, "word")) == 5

        async def rebuild(query: SessionQuery) -> None:
            for _ in range(rounds):
                await query.rebuild_index()
            done.set()

        done = trio.Event()
        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                for query in (one, one, other, other):
                    nursery.start_soon(search, query)
                nursery.start_soon(rebuild, one)


# -- turns ----------------------------------------------------------------------------------------


@contextmanager
def turn_taken(path: Path) -> Iterator[None]:
    """Another process writes to the index."""
    lock = os.open(f"{path}-pass", os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    try:
        yield
    finally:
        os.close(lock)


@pytest.mark.parametrize("call", ["search", "purge", "rebuild"])
async def test_whoever_waits_for_a_turn_can_be_cancelled(tmp_path: Path, call: str) -> None:
    path = tmp_path / "index.db"
    async with sharing(store_of(WORD), path) as query:
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "search": lambda: sessions_of(query, "word"),
            "purge": lambda: query.purge("t"),
            "rebuild": lambda: query.rebuild_index(),
        }
        with turn_taken(path):
            steps = 0
            with trio.move_on_after(0.1) as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(calls[call])
                    while True:
                        await trio.lowlevel.checkpoint()
                        steps += 1
            assert scope.cancelled_caught
            assert steps > 20
            with trio.move_on_after(0.05) as scope:
                await calls[call]()
            assert scope.cancelled_caught
            async with trio.open_nursery() as nursery:
                nursery.start_soon(calls[call])
                await trio.testing.wait_all_tasks_blocked()
                assert nursery.child_tasks
                nursery.cancel_scope.cancel()
        await calls[call]()
        assert await sessions_of(query, "word") == ["s"]


async def test_a_turn_ends_where_the_change_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "index.db"
    async with sharing(store_of(WORD), path) as one, sharing(store_of(WORD), path) as other:
        with monkeypatch.context() as patch:

            def fail(*_: object) -> None:
                raise SessionQueryError(ErrorCode.INDEX_FAILED, "a disk that is full")

            patch.setattr(index.SearchIndex, "write", fail)
            with refused(ErrorCode.INDEX_FAILED, "full"):
                await sessions_of(one, "word")
        assert await sessions_of(other, "word") == ["s"]
        assert await sessions_of(one, "word") == ["s"]


# -- what is refused ------------------------------------------------------------------------------


async def test_a_service_that_shares_an_index_has_no_live_sessions(tmp_path: Path) -> None:
    async with sharing(store_of(WORD), tmp_path / "index.db") as query:
        for manager in (query.sessions.create(id="t"), query.sessions.resume("s")):
            with refused(ErrorCode.INVALID_CONFIG, "shared"):
                async with manager:
                    pass
        assert await sessions_of(query, "word") == ["s"]


def test_an_index_without_wal_cannot_be_shared(tmp_path: Path) -> None:
    with refused(ErrorCode.INVALID_CONFIG, "shared"):
        IndexConfig(path=MEMORY, shared=True)
    with refused(ErrorCode.INVALID_CONFIG, "shared"):
        IndexConfig(path=str(tmp_path / "index.db"), journal_mode="delete", shared=True)


async def test_an_existing_index_without_wal_is_not_shared(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    own = IndexConfig(path=str(path), journal_mode="delete")
    async with open_session_query(store=store_of(WORD), index=own) as query:
        await query.refresh()
    before = path.read_bytes()
    with refused(ErrorCode.INDEX_FAILED, "WAL"):
        async with sharing(store_of(WORD), path):
            pass
    assert path.read_bytes() == before


async def test_an_owner_and_those_who_share_refuse_each_other_by_name(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    own = IndexConfig(path=str(path))
    async with sharing(store_of(WORD), path):
        async with sharing(store_of(WORD), path):
            pass
        with refused(ErrorCode.INDEX_FAILED, f"in use by process {os.getpid()}"):
            async with open_session_query(index=own):
                pass
    async with open_session_query(store=store_of(WORD), index=own):
        with refused(ErrorCode.INDEX_FAILED, f"in use by process {os.getpid()}"):
            async with sharing(store_of(WORD), path):
                pass


async def test_whoever_still_shares_an_index_is_named(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    (tmp_path / "store").mkdir()
    async with sharing(store_of(WORD), path):
        # A process that came later and has ended.
        process("index", "status", "--store", tmp_path / "store", "--index", path)
        with refused(ErrorCode.INDEX_FAILED, f"in use by process {os.getpid()};"):
            async with open_session_query(index=IndexConfig(path=str(path))):
                pass


async def test_another_tokenizer_does_not_take_an_index_from_those_who_share_it(
    tmp_path: Path,
) -> None:
    path, store = tmp_path / "index.db", store_of(session("s", "今天登录超时了"))
    async with sharing(store, path) as query:
        assert await sessions_of(query, "登录") == ["s"]
        with refused(ErrorCode.INDEX_FAILED, "another tokenizer"):
            async with sharing(store, path, Tokenizer.UNICODE61):
                pass
        assert await sessions_of(query, "登录") == ["s"]
    async with sharing(store, path, Tokenizer.UNICODE61) as query:
        assert await sessions_of(query, "登录") == []


# -- what is answered -----------------------------------------------------------------------------


@define(eq=False)
class SharedWorld:
    """A store that others change, and which of its sessions are purged."""

    hand: OutsideHand
    voice: Voice
    purged: set[str]

    def change(self, rng: Random) -> None:
        """What somebody else does to one session."""
        session_id, stored = rng.choice(IDS), self.hand.sessions()
        if session_id not in stored or not stored[session_id].readable or rng.random() < 0.2:
            header = random_header(rng, session_id)
            self.hand.write(header, random_events(rng, self.voice, (), rng.randint(1, 9)))
        elif rng.random() < 0.6:
            self.hand.append(session_id, rng, self.voice, rng.randint(1, 4))
        elif rng.random() < 0.6:
            self.hand.delete(session_id)
        else:
            self.hand.damage(session_id)

    def found(self, question: Question) -> list[SessionSearchHit] | list[EventSearchHit] | None:
        """What is right; ``None`` where the session of the question cannot be found."""
        sessions = {
            session_id: ModelSession(stored.header, stored.events, False, True)
            for session_id, stored in self.hand.sessions().items()
            if stored.readable and session_id not in self.purged
        }
        filters = question.session_filters, question.event_filters
        if question.session_id is None:
            every = sessions.values()
            return find_sessions(every, question.query, *filters, Tokenizer.CJK, 240)
        if question.session_id not in sessions:
            return None
        asked = sessions[question.session_id]
        return find_events(asked, question.query, question.event_filters, Tokenizer.CJK, 240)

    async def check(self, query: SessionQuery, question: Question) -> None:
        """Ask a service and compare."""
        right, limit = self.found(question), 50
        if question.session_id is None:
            page = await query.search_sessions(
                question.query,
                session_filters=question.session_filters,
                event_filters=question.event_filters,
                limit=limit,
            )
            assert list(page.items) == right
            return
        try:
            events = await query.search_events(
                question.session_id, question.query, filters=question.event_filters, limit=limit
            )
        except SessionQueryError as error:
            assert right is None, error
        else:
            assert list(events.items) == right

    async def step(self, rng: Random, services: list[SessionQuery]) -> None:
        """Change the store, then search from all services at once, beside a rebuild or a purge."""
        for _ in range(rng.randint(0, 3)):
            self.change(rng)
        if rng.random() < 0.1:
            session_id = rng.choice(IDS)
            await rng.choice(services).purge(session_id)
            self.purged.add(session_id)
        async with trio.open_nursery() as nursery:
            if rng.random() < 0.2 and not self.purged:
                nursery.start_soon(rng.choice(services).rebuild_index)
            for query in services:
                for _ in range(rng.randint(1, 3)):
                    nursery.start_soon(self.check, query, random_question(rng))
        if rng.random() < 0.1:
            await rng.choice(services).rebuild_index()
            self.purged.clear()


@pytest.mark.parametrize("seed", range(4))
async def test_services_that_share_an_index_answer_as_if_each_were_alone(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_slices, "BUILD_BYTES", 400)
    rng = Random(f"shared {seed}")
    hand = JsonlHand(tmp_path / "store") if seed % 3 == 0 else MemoryHand()
    world = SharedWorld(hand, rng.choice([voice_of(0, 2), voice_of(1, 8)]), set())
    path = tmp_path / "index.db"
    for _ in range(4):
        world.change(rng)
    stores = [CountingStore(hand.store) for _ in range(3)]
    with trio.fail_after(60):
        async with (
            sharing(stores[0], path) as one,
            sharing(stores[1], path) as two,
            sharing(stores[2], path) as three,
        ):
            for _ in range(16):
                await world.step(rng, [one, two, three])
