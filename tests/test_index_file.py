"""The file of the index: when it appears, who may open it, what is refused and what is reset."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import apsw
import pytest
import trio
from actor_world import message
from builders import START
from service_world import (
    append,
    events_of,
    refused,
    session,
    sessions_of,
    store_of,
)

from session_query.actors.composition import open_session_query
from session_query.messages.config import MEMORY, IndexConfig, QueryConfig, Tokenizer
from session_query.messages.errors import ErrorCode, SessionQueryError
from session_query.messages.filters import Text
from session_query.storage.index_file import APPLICATION_ID, SCHEMA_VERSION, open_index_file

JOURNALS = ["wal", "delete", "truncate", "persist"]

WORD = session("s", "word one", "word two")


def config(path: Path, **changes: object) -> IndexConfig:
    return IndexConfig(path=str(path), **changes)  # type: ignore[arg-type]


def modes(directory: Path) -> dict[str, str]:
    """The permissions of everything in a directory."""
    return {
        path.name: oct(stat.S_IMODE(path.stat().st_mode)) for path in sorted(directory.iterdir())
    }


async def build(path: Path, **changes: object) -> None:
    """An index of one session."""
    async with open_session_query(store=store_of(WORD), index=config(path, **changes)) as query:
        assert await events_of(query, "s", "word") == [1, 0]


# -- when it is opened ----------------------------------------------------------------------------


async def test_a_service_without_an_index_searches_nothing_and_makes_no_file(
    tmp_path: Path,
) -> None:
    path = tmp_path / "sub" / "index.db"
    never = config(path, open_at="never")
    async with open_session_query(store=store_of(WORD), index=never) as query:
        with refused(ErrorCode.SEARCH_DISABLED):
            await query.search_sessions("", event_filters=[Text("x")], limit=0)
        with refused(ErrorCode.SEARCH_DISABLED):
            await query.search_events(5, "", limit=0)  # type: ignore[arg-type]
        with refused(ErrorCode.SEARCH_DISABLED):
            await query.refresh()
        with refused(ErrorCode.SEARCH_DISABLED):
            _ = query.generation
        assert len((await query.list_sessions()).sessions) == 1
        assert await query.read_title("s") is None
        async with query.sessions.create() as live:
            await live.commit(message("word"))
        assert query.statistics().generation == 0
    assert not [*tmp_path.iterdir()]
    with refused(ErrorCode.SEARCH_DISABLED):
        await query.search_sessions("word")


def test_a_service_without_an_index_does_not_import_sqlite() -> None:
    script = """
import sys, trio
from session_query import IndexConfig, MemoryStore, open_session_query
async def main():
    never = IndexConfig(path="unused", open_at="never")
    async with open_session_query(store=MemoryStore(), index=never) as query:
        await query.list_sessions()
trio.run(main)
sys.exit("apsw" in sys.modules or "sqlite3" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


async def test_nothing_is_made_before_the_first_search(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "index.db"
    lazy = config(path, open_at="first-search")
    async with open_session_query(store=store_of(WORD), index=lazy) as query:
        await query.list_sessions()
        await query.read_titles(["s"])
        with refused(ErrorCode.INVALID_QUERY):
            await query.search_sessions(" ")
        assert query.statistics().generation == 0
        assert not [*tmp_path.iterdir()]
        assert await sessions_of(query, "word") == ["s"]
        assert path.exists()


async def test_a_service_that_never_searched_leaves_no_file(tmp_path: Path) -> None:
    lazy = config(tmp_path / "index.db", open_at="first-search")
    async with open_session_query(store=store_of(WORD), index=lazy):
        pass
    assert not [*tmp_path.iterdir()]


async def test_first_searches_side_by_side_open_the_index_once(tmp_path: Path) -> None:
    lazy = config(tmp_path / "index.db", open_at="first-search")
    found: list[list[str]] = []

    async with open_session_query(store=store_of(WORD), index=lazy) as query:

        async def search() -> None:
            found.append(await sessions_of(query, "word"))

        async with trio.open_nursery() as nursery:
            for _ in range(6):
                nursery.start_soon(search)
    assert found == [["s"]] * 6


async def test_the_index_is_opened_at_startup_and_filled_by_the_first_search(
    tmp_path: Path,
) -> None:
    store = store_of(WORD)
    async with open_session_query(store=store, index=config(tmp_path / "index.db")) as query:
        assert (tmp_path / "index.db").exists()
        assert not store.calls
        assert query.generation == 0
        await query.refresh()
        assert store.calls["sweep"] == 1


async def test_a_failure_at_startup_leaves_no_service(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    path.write_bytes(b"no database " * 100)
    with refused(ErrorCode.INDEX_FAILED):
        async with open_session_query(store=store_of(WORD), index=config(path)):
            pytest.fail("the service was started")


async def test_a_failed_open_is_tried_again_by_the_next_search(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    path.write_bytes(b"no database " * 100)
    lazy = config(path, open_at="first-search")
    async with open_session_query(store=store_of(WORD), index=lazy) as query:
        for _ in range(2):
            with refused(ErrorCode.INDEX_FAILED, str(path)):
                await query.search_sessions("word")
        with refused(ErrorCode.INDEX_FAILED):
            await query.refresh()
        assert (await query.list_sessions()).sessions
        path.unlink()
        assert await sessions_of(query, "word") == ["s"]


# -- how it is kept -------------------------------------------------------------------------------


@pytest.mark.parametrize("journal", JOURNALS)
async def test_sessions_are_searched_while_they_change_in_every_journal_mode(
    tmp_path: Path, journal: str
) -> None:
    store = store_of(WORD)
    index = config(tmp_path / "index.db", journal_mode=journal)
    async with (
        open_session_query(store=store, index=index) as query,
        query.sessions.create(id="live", created_at=START) as live,
        trio.open_nursery() as nursery,
    ):

        async def write() -> None:
            for count in range(1, 21):
                await live.commit(message(f"word live {count}"))
                if count % 5 == 0:
                    append(store, "s", f"word {count}")
                    await live.flush()
            nursery.cancel_scope.cancel()

        async def search() -> None:
            while True:
                length = live.length
                assert len(await events_of(query, "live", "word", limit=100)) >= length
                assert set(await sessions_of(query, "word")) >= {"s"}

        for _ in range(3):
            nursery.start_soon(search)
        nursery.start_soon(write)
    with apsw.Connection(str(tmp_path / "index.db")) as connection:
        kept = "delete" if journal != "wal" else "wal"
        assert connection.pragma("journal_mode") in (journal, kept)
        assert connection.pragma("integrity_check") == "ok"
    async with open_session_query(store=store, index=index) as query:
        assert len(await events_of(query, "live", "word", limit=100)) == 20
        assert len(await events_of(query, "s", "word", limit=100)) == 6


@pytest.mark.parametrize("journal", JOURNALS)
async def test_all_files_of_the_index_are_private(tmp_path: Path, journal: str) -> None:
    mask = os.umask(0)
    try:
        path = tmp_path / "a" / "b" / "index.db"
        index = config(path, journal_mode=journal)
        async with open_session_query(store=store_of(WORD), index=index) as query:
            await query.refresh()
            while_open = modes(path.parent)
    finally:
        os.umask(mask)
    assert while_open.keys() >= {"index.db", "index.db-lock"}
    beside = {"wal": {"index.db-wal", "index.db-shm"}, "truncate": {"index.db-journal"}}
    assert while_open.keys() >= beside.get(journal, set())
    assert {*while_open.values(), *modes(path.parent).values()} == {"0o600"}
    assert modes(tmp_path) == {"a": "0o700"}
    assert modes(tmp_path / "a") == {"b": "0o700"}


async def test_what_exists_keeps_its_permissions(tmp_path: Path) -> None:
    parent = tmp_path / "shared"
    parent.mkdir(mode=0o755)
    path = parent / "index.db"
    path.touch(mode=0o640)
    parent.chmod(0o755)
    path.chmod(0o640)
    await build(path)
    assert modes(tmp_path) == {"shared": "0o755"}
    assert modes(parent)["index.db"] == "0o640"


async def test_a_path_that_is_relative_is_taken_from_where_the_service_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    await build(Path("sub/index.db"))
    assert (tmp_path / "sub" / "index.db").exists()


async def test_a_second_open_finds_everything_and_reads_nothing(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    await build(path)
    store = store_of(WORD)
    async with open_session_query(store=store, index=config(path)) as query:
        assert await events_of(query, "s", "word") == [1, 0]
        assert store.logs_read == 0


async def test_the_generation_goes_on_from_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    store = store_of(WORD)
    seen: list[int] = []
    for number in range(4):
        async with open_session_query(store=store, index=config(path)) as query:
            assert query.generation == (seen[-1] if seen else 0)
            append(store, "s", f"word {number}")
            seen.append(await query.refresh())
            async with query.sessions.create(id=f"live{number}") as live:
                await live.commit(message("word"))
                seen.append(await query.refresh())
            seen.append(await query.refresh())
    assert seen == sorted(set(seen))


async def test_an_index_that_was_deleted_is_built_again(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    await build(path)
    for file in tmp_path.iterdir():
        file.unlink()
    await build(path)


async def test_an_index_in_memory_makes_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with open_session_query(
        store=store_of(WORD), index=IndexConfig(path=MEMORY), config=QueryConfig()
    ) as query:
        assert await sessions_of(query, "word") == ["s"]
    assert not [*tmp_path.iterdir()]


# -- what is refused ------------------------------------------------------------------------------


def foreign_database(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE note(text)")
    connection.close()


def other_application(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA application_id = 1146308689")
        connection.execute("CREATE TABLE session(id)")
    connection.close()


def other_application_without_tables(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA application_id = 7")
    connection.close()


def our_application_with_other_tables(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("PRAGMA user_version = 0")
        connection.execute("CREATE TABLE meta(key, value)")
        connection.execute("CREATE TABLE note(text)")
    connection.close()


def no_database(path: Path) -> None:
    path.write_text("notes of somebody\n" * 200)


def foreign_database_in_wal_mode(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = wal")
    connection.execute("CREATE TABLE note(text)")
    connection.commit()
    connection.close()


@pytest.mark.parametrize("journal", ["wal", "delete"])
@pytest.mark.parametrize(
    "make",
    [
        foreign_database,
        other_application,
        other_application_without_tables,
        our_application_with_other_tables,
        no_database,
        foreign_database_in_wal_mode,
    ],
)
async def test_a_file_of_somebody_else_is_refused_and_left_as_it_is(
    tmp_path: Path, make: object, journal: str
) -> None:
    path = tmp_path / "index.db"
    make(path)  # type: ignore[operator]
    before, looked = path.read_bytes(), path.stat().st_mtime_ns
    with refused(ErrorCode.INDEX_FAILED, str(path)):
        async with open_session_query(index=config(path, journal_mode=journal)):
            pass
    assert path.read_bytes() == before
    assert path.stat().st_mtime_ns == looked
    assert {one.name for one in tmp_path.iterdir()} <= {"index.db", "index.db-lock"}


async def test_a_directory_is_refused(tmp_path: Path) -> None:
    with refused(ErrorCode.INDEX_FAILED, "not a file"):
        async with open_session_query(index=config(tmp_path)):
            pass


async def test_a_parent_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with refused(ErrorCode.INDEX_FAILED, "file"):
        async with open_session_query(index=config(tmp_path / "file" / "index.db")):
            pass


async def test_a_second_service_of_the_process_is_refused_until_the_first_has_ended(
    tmp_path: Path,
) -> None:
    path = tmp_path / "index.db"
    async with open_session_query(store=store_of(WORD), index=config(path)) as query:
        with refused(ErrorCode.INDEX_FAILED, f"in use by process {os.getpid()}"):
            async with open_session_query(index=config(path)):
                pass
        assert await sessions_of(query, "word") == ["s"]
    await build(path)


async def test_a_second_process_is_refused_by_the_name_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    script = """
import sys, trio
from session_query import IndexConfig, open_session_query
async def main():
    async with open_session_query(index=IndexConfig(path=sys.argv[1])):
        print("open", flush=True)
        sys.stdin.read()
trio.run(main)
"""
    with subprocess.Popen(  # noqa: ASYNC220  # it answers at once
        [sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"open\n"
        with refused(ErrorCode.INDEX_FAILED, f"in use by process {owner.pid}"):
            async with open_session_query(index=config(path)):
                pass
        owner.communicate(b"")
    await build(path)


async def test_an_index_whose_owner_was_killed_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    script = """
import os, sys, trio
from session_query import IndexConfig, EventDraft, open_session_query
async def main():
    async with open_session_query(index=IndexConfig(path=sys.argv[1])) as query:
        await query.refresh()
        os._exit(9)
trio.run(main)
"""
    done = subprocess.run([sys.executable, "-c", script, str(path)], check=False)
    assert done.returncode == 9
    await build(path)


# -- what is reset --------------------------------------------------------------------------------


def edit(path: Path, statement: str) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(statement).fetchall()
    connection.close()


@pytest.mark.parametrize(
    "statement",
    [
        f"PRAGMA user_version = {SCHEMA_VERSION + 1}",
        "PRAGMA user_version = 0",
        "UPDATE meta SET value = 'cjk/0/unicode-1.0.0' WHERE key = 'tokens'",
        "DELETE FROM meta WHERE key = 'tokens'",
        "PRAGMA user_version = 0; DROP TABLE doc; DROP TABLE meta",
    ],
)
async def test_an_index_of_another_version_of_ours_is_built_anew_in_its_place(
    tmp_path: Path, statement: str
) -> None:
    path = tmp_path / "index.db"
    await build(path)
    made = path.stat().st_ino
    edit(path, statement)
    store = store_of(session("t", "word"))
    async with open_session_query(store=store, index=config(path)) as query:
        assert await sessions_of(query, "word") == ["t"]
    assert path.stat().st_ino == made
    connection = apsw.Connection(str(path))
    assert connection.pragma("application_id") == APPLICATION_ID
    assert connection.pragma("user_version") == SCHEMA_VERSION
    connection.close()


async def test_a_purged_session_stays_out_of_an_index_that_is_built_anew_for_another_version(
    tmp_path: Path,
) -> None:
    path, store = tmp_path / "index.db", store_of(WORD, session("t", "word"))
    async with open_session_query(store=store, index=config(path)) as query:
        await query.purge("s")
        assert await sessions_of(query, "word") == ["t"]
    edit(path, f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    for tokenizer in (Tokenizer.CJK, Tokenizer.UNICODE61):
        changed = config(path, tokenizer=tokenizer)
        async with open_session_query(store=store, index=changed) as query:
            assert await sessions_of(query, "word") == ["t"]
            assert (await query.index_status()).purged == 1
    async with open_session_query(store=store, index=changed) as query:
        await query.rebuild_index()
        assert set(await sessions_of(query, "word")) == {"s", "t"}


async def test_another_tokenizer_builds_the_index_anew(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    store = store_of(session("s", "今天登录超时了"))
    for tokenizer, found in ((Tokenizer.CJK, ["s"]), (Tokenizer.UNICODE61, []), ("cjk", ["s"])):
        async with open_session_query(
            store=store, index=config(path, tokenizer=tokenizer)
        ) as query:
            store.forget()
            assert await sessions_of(query, "登录超时") == found
            assert store.logs_read == 1


async def test_an_empty_file_and_an_empty_database_are_taken(tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    await build(tmp_path / "empty.db")
    edit(tmp_path / "vacuumed.db", "VACUUM")
    await build(tmp_path / "vacuumed.db")


@pytest.mark.parametrize("first", JOURNALS)
@pytest.mark.parametrize("second", ["wal", "delete"])
async def test_the_journal_mode_can_change_between_services(
    tmp_path: Path, first: str, second: str
) -> None:
    path = tmp_path / "index.db"
    await build(path, journal_mode=first)
    await build(path, journal_mode=second)


async def test_a_file_of_ours_that_is_damaged_is_built_anew(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    await build(path)
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    path.write_bytes(content)
    await build(path)


def test_a_foreign_database_keeps_a_wal_that_its_owner_left(tmp_path: Path) -> None:
    path = tmp_path / "foreign.db"
    child = os.fork()
    if child == 0:
        owner = apsw.Connection(str(path))
        owner.execute("PRAGMA journal_mode=WAL").fetchall()
        owner.execute("CREATE TABLE t(x); INSERT INTO t VALUES (1)")
        os._exit(0)
    os.waitpid(child, 0)
    assert (tmp_path / "foreign.db-wal").stat().st_size > 0
    before = {file.name: file.read_bytes() for file in sorted(tmp_path.iterdir())}
    with pytest.raises(SessionQueryError, match="another program"):
        open_index_file(IndexConfig(path=str(path)))
    assert {file.name: file.read_bytes() for file in sorted(tmp_path.iterdir())} == before
