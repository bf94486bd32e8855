"""Live sessions on a disk that fails: nothing is lost that can be kept, and the host is told."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Final

import pytest
import trio
from actor_world import message
from jsonl_files import FailingFiles
from service_world import events_of, sessions_of

from session_query.actors.composition import open_session_query
from session_query.messages.config import QueryConfig
from session_query.messages.errors import LiveErrorCode, LiveSessionError
from session_query.simulations.search_model import text_of
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


async def stored_words(root: Path) -> list[str]:
    """The texts of the log as another process reads it."""
    async with open_session_query(store=JsonlStore(root)) as query:
        log = await query.read_session("s")
    assert [event.seq for event in log.events] == list(range(len(log.events)))
    return [text_of(event) for event in log.events if event.type == "user/message"]


@pytest.mark.parametrize(("error", "failing"), ILLNESSES)
@pytest.mark.parametrize("part", [0.0, 0.5, 1.0])
async def test_events_that_a_sick_disk_refuses_are_kept_and_stored_by_a_later_flush(
    tmp_path: Path, error: int, failing: tuple[str, ...], part: float
) -> None:
    disk = SickFiles()
    disk.part = part
    store = JsonlStore(tmp_path, files=disk)
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
