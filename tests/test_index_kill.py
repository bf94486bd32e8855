"""An index whose process is killed at any file operation or commit of whatever changes it.

A child process kills itself at its k-th step, for k = 1 until it ends by itself; a write stops in
the middle. Whoever opens the index afterwards finds what a fresh build finds, does not read again
what was finished, and purges again without a trace.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final, TypeAlias

import apsw
import pytest
import trio
from inline_runtime import InlineRuntime
from service_world import (
    CountingStore,
    append,
    damage_table,
    events_of,
    session,
    sessions_of,
    store_of,
)

from session_query.actors import reconciliation
from session_query.actors.composition import open_session_query
from session_query.actors.service import SessionQuery
from session_query.messages.config import IndexConfig
from session_query.storage import index, log_slices, write_ahead

Scene: TypeAlias = Callable[[SessionQuery], Awaitable[object]]
JOURNALS = ["wal", "delete"]
CANARY: Final = b"jqxw71"
SYSTEM: Final = apsw.vfs_names()[0]
"""The disk that SQLite uses of its own accord."""
FEWEST_STEPS: Final = 25
"""A scene with fewer steps writes nothing worth dying for."""


async def a_pass(query: SessionQuery) -> None:
    await query.refresh()


async def a_rebuild(query: SessionQuery) -> None:
    await query.rebuild_index()


async def a_purge(query: SessionQuery) -> None:
    await query.purge("canary")


async def a_look(query: SessionQuery) -> None:
    await query.index_status()


async def a_search(query: SessionQuery) -> None:
    await sessions_of(query, "word")


SCENES: list[Scene] = [a_pass, a_rebuild, a_purge]


def store() -> CountingStore:
    """Sessions of one slice and of several, one of them the canary."""
    return store_of(
        *(session(f"s{n}", *(f"word {n} {k}" for k in range(5 + n * 9))) for n in range(3)),
        session("canary", *(f"word jqxw71 {k}" for k in range(12))),
    )


def prepare(stored: CountingStore, path: Path, journal: str, scene: Scene) -> None:
    """For a pass an index that lags behind in part, for all else one that is up to date."""
    if scene is a_pass:
        whole, stored.inner = stored.inner, store_of(session("gone", "word")).inner
        run(stored, path, journal, a_pass)
        stored.inner = whole
        return
    run(stored, path, journal, a_pass)
    append(stored, "s1", "word more")
    run(stored, path, journal, a_pass)


def run(stored: CountingStore, path: Path, journal: str, scene: Scene) -> None:
    """Play a scene without threads."""

    async def main() -> None:
        config = IndexConfig(path=str(path), journal_mode=journal)  # type: ignore[arg-type]
        async with open_session_query(store=stored, index=config, runtime=InlineRuntime()) as query:
            await scene(query)

    trio.run(main)


class Deadly:
    """Counts the steps of a process and kills it at one of them."""

    def __init__(self, step: int) -> None:
        self.left = step

    def tick(self) -> bool:
        """One more step; whether it is the last."""
        self.left -= 1
        return not self.left

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def commit(self) -> bool:
        if self.tick():
            self.die()
        return False

    def watch(self, connection: apsw.Connection) -> None:
        connection.set_commit_hook(self.commit)


class DeadlyFile(apsw.VFSFile):
    """A file of SQLite whose writing takes its process with it."""

    def __init__(
        self, death: Deadly, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> None:
        self.death = death
        super().__init__(SYSTEM, name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        if self.death.tick():
            super().xWrite(data[: len(data) // 2], offset)
            self.death.die()
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:
        self.death.commit()
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:
        self.death.commit()
        super().xSync(flags)


class DeadlyDisk(apsw.VFS):
    """The disk of SQLite, made of such files."""

    def __init__(self, death: Deadly) -> None:
        self.death = death
        super().__init__("deadly", SYSTEM)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        return DeadlyFile(self.death, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        self.death.commit()
        super().xDelete(filename, syncdir)


def dies_at(step: int, play: Callable[[], None]) -> bool:
    """Play in a child that dies at this step; whether it came so far."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            death = Deadly(step)
            disk = DeadlyDisk(death)
            apsw.set_default_vfs("deadly")
            apsw.connection_hooks.append(death.watch)
            play()
            code = 0
        finally:
            del disk
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def finished(path: Path) -> set[str]:
    """The sessions whose rows the index has in full."""
    connection = apsw.Connection(str(path))
    try:
        rows = connection.execute("SELECT id FROM session WHERE settled").fetchall()
        return {bytes(raw).decode() for (raw,) in rows if isinstance(raw, bytes)}
    except apsw.SQLError:
        return set()  # killed before there were tables
    finally:
        connection.close()


async def answers(query: SessionQuery) -> list[object]:
    """What some searches find."""
    page = await query.search_sessions("word", limit=50)
    return [
        [hit for hit in page.items if hit.header.id != "canary"],
        await events_of(query, "s2", "word", limit=100),
        await sessions_of(query, "2 7"),
    ]


@pytest.fixture
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_slices, "BUILD_BYTES", 2_000)
    for module in (index, reconciliation):
        monkeypatch.setattr(module, "SLICE_EVENTS", 10)
    monkeypatch.setattr(index, "_TIDY_DOCUMENTS", 10)
    monkeypatch.setattr(write_ahead, "LOG_PAGES", 10)


@pytest.mark.usefixtures("small_slices")
@pytest.mark.parametrize("journal", JOURNALS)
@pytest.mark.parametrize("scene", SCENES)
def test_an_index_whose_process_was_killed_goes_on_where_it_was(
    tmp_path: Path, scene: Scene, journal: str
) -> None:
    right: list[object] = []
    stored = store()
    prepare(stored, tmp_path / "prepared" / "index.db", journal, scene)

    async def note(query: SessionQuery) -> None:
        right.append(await answers(query))

    run(stored, tmp_path / "fresh.db", "wal", note)
    whole = (tmp_path / "prepared" / "index.db").read_bytes()

    def prepared(name: str) -> Path:
        path = tmp_path / name / "index.db"
        path.parent.mkdir()
        path.write_bytes(whole)
        return path

    left: list[int] = []
    for step in count(1):
        path = prepared(str(step))
        if not dies_at(step, partial(run, stored, path, journal, scene)):
            break
        left.append(len(finished(path)))
        check(stored, path, journal, scene, right[0])
    assert len(left) > FEWEST_STEPS
    if scene is not a_purge:
        assert any(0 < sessions < 4 for sessions in left), left


@pytest.mark.parametrize(
    ("table", "scene", "journal"),
    [("session", a_look, "wal"), ("session", a_look, "delete"), ("doc", a_search, "wal")],
)
def test_a_purged_session_stays_out_when_the_process_that_mends_is_killed(
    tmp_path: Path, table: str, scene: Scene, journal: str
) -> None:
    stored, first = store(), tmp_path / "prepared" / "index.db"
    prepare(stored, first, journal, a_purge)
    run(stored, first, journal, a_purge)
    damage_table(first, table)
    whole = first.read_bytes()

    async def check(query: SessionQuery) -> None:
        assert {*await sessions_of(query, "word", limit=50)} == {"s0", "s1", "s2"}
        assert (await query.index_status()).purged == 1

    for step in count(1):
        path = tmp_path / str(step) / "index.db"
        path.parent.mkdir()
        path.write_bytes(whole)
        died = dies_at(step, partial(run, stored, path, journal, scene))
        run(stored, path, journal, check)
        if not died:
            break
    assert step > FEWEST_STEPS


def check(stored: CountingStore, path: Path, journal: str, scene: Scene, right: object) -> None:
    """What was finished is not read again, all is found, and a purge can be repeated."""
    done = finished(path)

    async def look(query: SessionQuery) -> None:
        stored.forget()
        assert await answers(query) == right
        read = {session_id for session_id, _ in stored.tails}
        assert not read & done
        was_purged = (await query.index_status()).purged
        assert ("canary" in await sessions_of(query, "jqxw71")) == (not was_purged)
        if scene is a_purge:
            await query.purge("canary")
            assert traces(path) == []
            assert await answers(query) == right

    run(stored, path, journal, look)
    if scene is a_purge:
        assert traces(path) == []


def traces(path: Path) -> list[str]:
    """The files of the index that hold a byte of the canary."""
    files = sorted(path.parent.iterdir())
    return [
        file.name
        for file in files
        if CANARY in (content := file.read_bytes()) or b"canary" in content
    ]
