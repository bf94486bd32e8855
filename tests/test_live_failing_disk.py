"""Live sessions on a disk that fails: nothing is lost that can be kept, and the host is told."""

from __future__ import annotations

import errno
import os
import resource
import shutil
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from threading import Event
from typing import Final

import pytest
import trio
from actor_world import message, turn
from faulty_store import FaultyStore
from inline_runtime import InlineRuntime
from jsonl_files import FailingFiles
from service_world import events_of, sessions_of
from test_store_kill import Acknowledge, KilledFiles, acknowledged_before_death, run
from test_store_writing import COMPRESSIONS, Compression
from trio.testing import MockClock, wait_all_tasks_blocked

from session_query.actors.composition import open_session_query
from session_query.actors.reconciler import IndexReconciler
from session_query.actors.registry import Sessions
from session_query.messages.config import IndexConfig, QueryConfig
from session_query.messages.errors import LiveErrorCode, LiveSessionError
from session_query.messages.records import Progress
from session_query.simulations.search_model import text_of
from session_query.storage.contract import TAIL_BYTES, StoreFailed, Tail
from session_query.storage.files import OpenFile, OsFiles
from session_query.storage.jsonl import JsonlStore

CHANGES: Final = (
    *("open_appending", "create", "make_directory", "sync_directory"),
    *("link", "unlink", "lock", "append", "truncate", "sync"),
)


class SickFiles(FailingFiles):
    """The real disk, whose ``failing`` operations fail with one error until it is well again."""

    def __init__(self) -> None:
        super().__init__()
        self.error = 0
        self.failing: tuple[str, ...] = ()

    def fall_ill(self, error: int, *failing: str) -> None:
        self.error, self.failing = error, failing or CHANGES

    def get_well(self) -> None:
        self.failing = ()

    def step(self, name: str) -> None:
        if name in self.failing:
            self.fail(name)

    def is_due(self) -> bool:
        return "append" in self.failing

    def fail(self, name: str) -> None:
        raise OSError(self.error, f"{errno.errorcode[self.error]} in {name}")


ILLNESSES = [
    pytest.param(errno.ENOSPC, ("append",), id="full"),
    pytest.param(errno.ENOSPC, ("append", "truncate"), id="full-and-no-way-back"),
    pytest.param(errno.EIO, ("sync",), id="sync"),
    pytest.param(errno.EROFS, CHANGES, id="read-only"),
]


def words(count: int, start: int = 0) -> list[str]:
    return [f"word {number}" for number in range(start, start + count)]


async def stored_words(root: Path, session_id: str = "s") -> list[str]:
    """The texts of a log as another process reads it."""
    async with open_session_query(store=JsonlStore(root)) as query:
        log = await query.read_session(session_id)
    assert [event.seq for event in log.events] == list(range(len(log.events)))
    return [text_of(event) for event in log.events if event.type == "user/message"]


@pytest.mark.parametrize(("error", "failing"), ILLNESSES)
@pytest.mark.parametrize("part", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("compression", COMPRESSIONS)
async def test_events_that_a_sick_disk_refuses_are_kept_and_stored_by_a_later_flush(
    tmp_path: Path, error: int, failing: tuple[str, ...], part: float, compression: Compression
) -> None:
    disk = SickFiles()
    disk.part = part
    store = JsonlStore(tmp_path, compression=compression, files=disk)
    async with open_session_query(store=store) as query, query.sessions.create(id="s") as live:
        await live.commit(*map(message, words(3)))
        await live.flush()
        disk.fall_ill(error, *failing)
        for count in range(3, 9):
            await live.commit(message(f"word {count}"))
            with pytest.raises(LiveSessionError) as refused:
                await live.flush()
            assert refused.value.code is LiveErrorCode.NOT_STORED
            assert f"{count - 2} of {count + 1} events are not stored" in str(refused.value)
            assert errno.errorcode[error] in str(refused.value)
            assert live.statistics().pending == count - 2
            assert len(await events_of(query, "s", "word", limit=50)) == count + 1
            assert await events_of(query, "s", f"word {count}") == [count]
        assert (await stored_words(tmp_path))[:3] == words(3)
        disk.get_well()
        await live.flush()
        assert live.statistics().pending == 0
        assert await stored_words(tmp_path) == words(9)
        assert len(await events_of(query, "s", "word", limit=50)) == 9
    assert await stored_words(tmp_path) == words(9)


@pytest.mark.parametrize(("error", "failing"), [*ILLNESSES, (errno.EIO, ("link",))])
async def test_a_session_that_a_sick_disk_does_not_let_appear_appears_later(
    tmp_path: Path, error: int, failing: tuple[str, ...]
) -> None:
    disk, root = SickFiles(), tmp_path / "store"
    root.mkdir()
    store = JsonlStore(root, files=disk)
    async with open_session_query(store=store) as query, query.sessions.create(id="s") as live:
        disk.fall_ill(error, *failing)
        await live.commit(*map(message, words(2)))
        with pytest.raises(LiveSessionError, match="2 of 2 events are not stored"):
            await live.flush()
        async with open_session_query(store=JsonlStore(root)) as other:
            listing = await other.list_sessions()
            assert (listing.sessions, listing.skipped) == ((), ())
        assert await sessions_of(query, "word") == ["s"]
        disk.get_well()
        await live.commit(message("word 2"))
        await live.flush()
        assert await stored_words(root) == words(3)


@pytest.mark.parametrize(("error", "failing"), ILLNESSES)
async def test_a_session_that_ends_on_a_sick_disk_says_what_is_lost(
    tmp_path: Path, error: int, failing: tuple[str, ...]
) -> None:
    disk = SickFiles()
    store, config = JsonlStore(tmp_path, files=disk), QueryConfig(close_timeout=1.0)
    async with open_session_query(store=store, config=config) as query:
        with pytest.raises(LiveSessionError, match="2 of 3 events are not stored") as refused:
            async with query.sessions.create(id="s") as live:
                await live.commit(message("word 0"))
                await live.flush()
                await live.commit(*map(message, words(2, 1)))
                disk.fall_ill(error, *failing)
        assert refused.value.code is LiveErrorCode.NOT_STORED
        disk.get_well()
        assert query.sessions.get("s") is None
        stored = await stored_words(tmp_path)
        assert stored == words(len(stored))
        assert await events_of(query, "s", "word", limit=9) == [*reversed(range(len(stored)))]
        async with query.sessions.resume("s") as live:
            await live.commit(*map(message, words(3 - len(stored), len(stored))))
        assert await stored_words(tmp_path) == words(3)


async def test_a_sick_log_neither_holds_up_another_session_nor_mixes_with_it(
    tmp_path: Path,
) -> None:
    class OneSickLog(OsFiles):
        """The real disk, on which one log cannot be written to."""

        sick = False

        def open_appending(self, path: str) -> OpenFile:
            if self.sick and "/s/" in path:
                raise OSError(errno.EIO, "Input/output error")
            return super().open_appending(path)

    disk = OneSickLog()
    store = JsonlStore(tmp_path, files=disk)
    async with (
        open_session_query(store=store) as query,
        query.sessions.create(id="s") as sick,
        query.sessions.create(id="t") as healthy,
    ):
        for live in (sick, healthy):
            await live.commit(message("word 0"))
            await live.flush()
        disk.sick = True
        for count in range(1, 5):
            await sick.commit(message(f"word {count}"))
            await healthy.commit(message(f"other {count}"))
            with pytest.raises(LiveSessionError, match=f"{count} of {count + 1} events"):
                await sick.flush()
            await healthy.flush()
            assert (sick.statistics().pending, healthy.statistics().pending) == (count, 0)
        disk.sick = False
    assert await stored_words(tmp_path) == words(5)
    others = [f"other {count}" for count in range(1, 5)]
    assert await stored_words(tmp_path, "t") == ["word 0", *others]


async def test_events_that_come_while_a_flush_fails_keep_their_places(tmp_path: Path) -> None:
    disk = SickFiles()
    store = JsonlStore(tmp_path, files=disk)
    async with open_session_query(store=store) as query, query.sessions.create(id="s") as live:
        disk.fall_ill(errno.ENOSPC, "append")
        refused = 0

        async def commit() -> None:
            for word in words(60):
                await live.commit(message(word))

        async def flush() -> None:
            nonlocal refused
            for _ in range(20):
                with suppress(LiveSessionError):
                    await live.flush()
                    refused -= 1
                refused += 1
            disk.get_well()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(commit)
            nursery.start_soon(flush)
        assert refused > 0
        await live.flush()
        assert await stored_words(tmp_path) == words(60)


async def test_a_root_that_is_removed_before_a_session_appears_is_made_again(
    tmp_path: Path,
) -> None:
    root = tmp_path / "store"
    store = JsonlStore(root)
    async with open_session_query(store=store) as query, query.sessions.create(id="s") as live:
        async with query.sessions.create(id="t") as other:
            await other.commit(message("word"))
        shutil.rmtree(root)
        await live.commit(message("word 0"))
        await live.flush()
        assert await stored_words(root) == words(1)
        assert await sessions_of(query, "word") == ["s"]


async def test_a_window_that_fails_is_made_good_by_the_next_commit(tmp_path: Path) -> None:
    disk = SickFiles()
    store = JsonlStore(tmp_path, files=disk)
    async with open_session_query(store=store) as query, query.sessions.create(id="s") as live:
        await live.commit(message("word 0"))
        await live.flush()
        disk.fall_ill(errno.ENOSPC, "append")
        await live.commit(message("word 1"))
        with trio.fail_after(10):
            while live.statistics().window_open:  # noqa: ASYNC110 - nobody tells
                await trio.sleep(0.01)
        assert live.statistics().pending == 1
        disk.get_well()
        await live.commit(message("word 2"))
        with trio.fail_after(10):
            while live.statistics().window_open:  # noqa: ASYNC110 - nobody tells
                await trio.sleep(0.01)
        assert live.statistics().pending == 0
        assert await stored_words(tmp_path) == words(3)


async def test_a_directory_that_is_removed_under_a_session_is_told_and_mended(
    tmp_path: Path,
) -> None:
    store = JsonlStore(tmp_path)
    async with open_session_query(store=store) as query, query.sessions.create(id="s") as live:
        await live.commit(*map(message, words(2)))
        await live.flush()
        (log,) = tmp_path.rglob("session.v2.jsonl")
        shutil.move(log.parent, tmp_path / "elsewhere")
        await live.commit(message("word 2"))
        with pytest.raises(LiveSessionError, match="1 of 3 events are not stored"):
            await live.flush()
        assert len(await events_of(query, "s", "word")) == 3
        shutil.move(tmp_path / "elsewhere", log.parent)
        await live.flush()
        assert await stored_words(tmp_path) == words(3)


async def test_a_session_whose_log_is_deleted_says_so_and_stays_readable(tmp_path: Path) -> None:
    store, config = JsonlStore(tmp_path), QueryConfig(close_timeout=1.0)
    async with open_session_query(store=store, config=config) as query:
        with pytest.raises(LiveSessionError, match="1 of 3 events are not stored"):
            async with query.sessions.create(id="s") as live:
                await live.commit(*map(message, words(2)))
                await live.flush()
                (log,) = tmp_path.rglob("session.v2.jsonl")
                shutil.rmtree(log.parent)
                await live.commit(message("word 2"))
                with pytest.raises(LiveSessionError, match="No such file"):
                    await live.flush()
                assert len(await events_of(query, "s", "word")) == 3
        assert await sessions_of(query, "word") == []


# --- what the system itself does


def test_a_log_that_the_system_lets_grow_no_further_goes_on_when_it_may(tmp_path: Path) -> None:
    def play() -> None:
        trio.run(grow_beyond_a_limit, tmp_path)

    assert not os.WIFSIGNALED(run(play))


async def grow_beyond_a_limit(root: Path) -> None:
    """Here the system breaks an append off in the middle, as on a full disk."""
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    store = JsonlStore(root)
    async with open_session_query(store=store) as query, query.sessions.create(id="s") as live:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, most))
        refused = 0
        for word in words(30):
            await live.commit(message(word))
            try:
                await live.flush()
            except LiveSessionError as error:
                refused += 1
                assert f"{refused} of {live.length} events are not stored" in str(error)
                assert f"[Errno {errno.EFBIG}]" in str(error)
        assert 15 < refused < 30
        assert await stored_words(root) == words(30 - refused)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        await live.flush()
        assert await stored_words(root) == words(30)


async def begin(sessions: Sessions, acknowledge: Acknowledge) -> None:
    async with sessions.create(id="s", created_at=1) as live:
        await live.flush()
        acknowledge(0)
        for count in (2, 5):
            await live.commit(*map(message, words(count - live.length, live.length)))
            await live.flush()
            acknowledge(count)
        await trio.sleep(1)
        await live.commit(*map(message, words(2, 5)))
        await trio.sleep(1)
        await live.commit(message("word 7"))
    acknowledge(8)


async def go_on(sessions: Sessions, acknowledge: Acknowledge) -> None:
    async with sessions.resume("s") as live:
        length = sum(event.type == "user/message" for event in live.events)
        await live.commit(turn("start"), *map(message, words(3, length)))
        await live.flush()
        acknowledge(length + 3)
        await live.commit(message(f"word {length + 3}"))
    acknowledge(length + 4)


@pytest.mark.parametrize(("compression", "part"), [("none", 0.5), ("zstd", 0.97)])
@pytest.mark.parametrize("scene", [begin, go_on])
def test_a_live_session_killed_at_any_operation_has_stored_what_it_acknowledged(
    tmp_path: Path,
    scene: Callable[[Sessions, Acknowledge], Awaitable[None]],
    compression: Compression,
    part: float,
) -> None:
    for step in count(1):
        root = tmp_path / str(step)
        if scene is go_on:
            live_until_killed(root, compression, be_torn, KilledAppends(2), part)
        ended, acknowledged = live_until_killed(root, compression, scene, KilledFiles(step), part)
        found = trio.run(words_after_a_death, root, compression)
        assert found == words(len(found))
        assert len(found) >= acknowledged
        if ended:
            break
    assert step > 9


class KilledAppends(KilledFiles):
    """A disk that takes its process with it at one of the appends."""

    def step(self, name: str) -> None:
        return


async def be_torn(sessions: Sessions, acknowledge: Acknowledge) -> None:
    """An open turn whose second batch is not stored to its end."""
    async with sessions.create(id="s", created_at=1) as live:
        await live.commit(turn("start"), *map(message, words(3)))
        await live.flush()
        await live.commit(*map(message, words(3, 3)))
        await live.flush()


def live_until_killed(
    root: Path,
    compression: Compression,
    scene: Callable[[Sessions, Acknowledge], Awaitable[None]],
    disk: KilledFiles,
    part: float,
) -> tuple[bool, int]:
    """Play in a child that its disk kills: whether it came to its end, and what was stored."""
    disk.part = part

    def play(acknowledge: Acknowledge) -> None:
        async def main() -> None:
            store = JsonlStore(root, compression=compression, files=disk)
            async with open_session_query(store=store, runtime=InlineRuntime()) as query:
                await scene(query.sessions, acknowledge)

        trio.run(main, clock=MockClock(autojump_threshold=0))

    return acknowledged_before_death(play)


async def words_after_a_death(root: Path, compression: Compression) -> list[str]:
    """The texts that are served, which a resumed session goes on from."""
    store = JsonlStore(root, compression=compression)
    async with open_session_query(store=store) as query:
        listing = await query.list_sessions()
        assert listing.skipped == ()
        if not listing.sessions:
            return []
        found = await stored_words(root)
        assert len(await events_of(query, "s", "word", limit=50)) == len(found) if found else True
        async with query.sessions.resume("s") as live:
            await live.commit(message("word more"))
    assert await stored_words(root) == [*found, "word more"]
    return found


class SlowStore(FaultyStore):
    """A store whose logs are read when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.reading, self.go_on = Event(), Event()

    def read_tail(self, session_id: str, mark: bytes | None, limit: int = TAIL_BYTES) -> Tail:
        self.reading.set()
        self.go_on.wait()
        return super().read_tail(session_id, mark, limit)


async def test_a_session_that_ends_unstored_stays_in_view_until_its_log_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, index = SlowStore(), IndexConfig(path=str(tmp_path / "index.db"))
    about_to_look, look, found = trio.Event(), trio.Event(), list[list[int]]()
    bring_up_to_date = IndexReconciler._fresh

    async def hesitate(
        reconciler: IndexReconciler, progress: Callable[[Progress], None] | None
    ) -> None:
        await bring_up_to_date(reconciler, progress)
        if trio.lowlevel.current_task().name != "reconciler news":
            monkeypatch.setattr(IndexReconciler, "_fresh", bring_up_to_date)
            about_to_look.set()
            await look.wait()

    async with (
        open_session_query(
            store=store, index=index, config=QueryConfig(close_timeout=0.05)
        ) as query,
        trio.open_nursery() as nursery,
    ):

        async def search() -> None:
            found.append(await events_of(query, "s", "word"))

        with pytest.raises(LiveSessionError, match="1 of 2 events are not stored"):
            async with query.sessions.create(id="s") as live:
                await live.commit(message("word"))
                await live.flush()
                store.append_failures += [StoreFailed("the disk is full")] * 1000
                await live.commit(message("another"))
                await query.refresh()
                monkeypatch.setattr(IndexReconciler, "_fresh", hesitate)
                nursery.start_soon(search)
                await about_to_look.wait()
        nursery.start_soon(query.refresh)
        await trio.to_thread.run_sync(store.reading.wait)
        look.set()
        try:
            await wait_all_tasks_blocked(0.05)
        finally:
            store.go_on.set()
    assert found == [[0]]
