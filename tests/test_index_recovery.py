"""A damaged index file: it is built anew once, by itself, and the search that met it answers."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

import apsw
import pytest
import trio
from actor_world import message
from service_world import (
    CountingStore,
    append,
    damage_table,
    events_of,
    refused,
    session,
    sessions_of,
    store_of,
)

from session_query.actors.composition import open_session_query
from session_query.actors.service import SessionQuery
from session_query.messages.config import IndexConfig
from session_query.messages.errors import ErrorCode
from session_query.storage import index
from session_query.storage.index import SearchIndex
from session_query.storage.index_file import APPLICATION_ID

PAGE: Final = 4_096
HEADER: Final = 100
JOURNALS = ["wal", "delete", "truncate", "persist"]

Damage = Callable[[bytes], bytes]
DAMAGES: tuple[Damage, ...] = (
    lambda page: b"\xa5" * len(page),
    lambda page: bytes(len(page)),
    lambda page: bytes(byte ^ 0x55 for byte in page),
    lambda page: page[: len(page) // 2] + b"\xa5" * (len(page) - len(page) // 2),
)


def corpus() -> CountingStore:
    """Sessions that fill pages of every kind, a body on overflow pages among them."""
    many = [
        session(f"s{n}", *(f"word number{n} part{k} " + "filler " * 20 for k in range(20)))
        for n in range(8)
    ]
    return store_of(*many, session("long", "word " + "x" * 15_000), session("cjk", "登录 word"))


def config(path: Path, journal: str = "wal") -> IndexConfig:
    return IndexConfig(path=str(path), journal_mode=journal)  # type: ignore[arg-type]


async def answers(query: SessionQuery) -> list[object]:
    """What some searches find, all but generations."""
    page = await query.search_sessions("word", limit=50)
    return [
        page.items,
        await events_of(query, "s3", "word", limit=50),
        await sessions_of(query, "登"),
        await query.read_titles(["s1", "long"]),
    ]


async def right_answers() -> list[object]:
    """What a fresh build finds."""
    async with open_session_query(store=corpus()) as query:
        return await answers(query)


def damage(path: Path, number: int, how: Damage) -> None:
    """Change one page; of the first, the header stays."""
    with path.open("r+b") as file:
        start = number * PAGE if number else HEADER
        file.seek(start)
        page = file.read((number + 1) * PAGE - start)
        file.seek(start)
        file.write(how(page))


def some_pages(path: Path, journal: str) -> Iterator[tuple[int, Damage]]:
    """Pages and damages; all pages in WAL mode."""
    pages = path.stat().st_size // PAGE
    assert pages > 20
    for number in range(0, pages, 1 if journal == "wal" else 6):
        yield number, DAMAGES[(number + number // 4) % len(DAMAGES)]


@pytest.mark.parametrize("journal", JOURNALS)
@pytest.mark.parametrize("moment", ["closed", "open"])
async def test_any_damaged_page_is_survived(tmp_path: Path, journal: str, moment: str) -> None:
    right, path = await right_answers(), tmp_path / "index.db"
    async with open_session_query(store=corpus(), index=config(path, journal)) as query:
        await query.refresh()
    whole = path.read_bytes()
    for number, how in some_pages(path, journal):
        for file in tmp_path.iterdir():
            file.unlink()
        path.write_bytes(whole)
        if moment == "closed":
            damage(path, number, how)
        async with open_session_query(store=corpus(), index=config(path, journal)) as query:
            if moment == "open":
                before = await query.refresh()
                damage(path, number, how)
                assert await answers(query) == right, number
                assert query.generation >= before
            assert await answers(query) == right, number


class Rebuilds:
    """How often indexes were built anew."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        real = SearchIndex.rebuild

        def rebuild(index: SearchIndex, purged: Iterable[bytes] = ()) -> bool:
            self.count += 1
            return real(index, purged)

        monkeypatch.setattr(SearchIndex, "rebuild", rebuild)


def damage_documents(path: Path) -> None:
    """Change every page but the first."""
    for number in range(1, path.stat().st_size // PAGE):
        damage(path, number, DAMAGES[0])


async def checkpointed(query: SessionQuery, path: Path) -> int:
    """Bring the index up to date, all of it in the file itself; its generation."""
    generation = await query.refresh()
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()
    return generation


async def test_searches_side_by_side_mend_an_index_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, path, rebuilds = await right_answers(), tmp_path / "index.db", Rebuilds(monkeypatch)
    found: list[list[object]] = []
    async with open_session_query(store=corpus(), index=config(path)) as query:

        async def search() -> None:
            found.append(await answers(query))

        await search()
        generation = await checkpointed(query, path)
        damage_documents(path)
        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(search)
        assert query.generation > generation
    assert found == [right] * 9
    assert rebuilds.count == 1


async def test_services_that_share_an_index_mend_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, path, rebuilds = await right_answers(), tmp_path / "index.db", Rebuilds(monkeypatch)
    found: list[list[object]] = []
    shared = IndexConfig(path=str(path), shared=True)
    async with (
        open_session_query(store=corpus(), index=shared) as one,
        open_session_query(store=corpus(), index=shared) as other,
    ):

        async def search(query: SessionQuery) -> None:
            found.append(await answers(query))

        await search(one)
        await search(other)
        await checkpointed(one, path)
        damage_documents(path)
        async with trio.open_nursery() as nursery:
            for query in (one, other, one, other):
                nursery.start_soon(search, query)
    assert found == [right] * 6
    assert rebuilds.count == 1


async def test_live_sessions_are_found_after_the_index_was_mended(tmp_path: Path) -> None:
    path, store = tmp_path / "index.db", corpus()
    async with (
        open_session_query(store=store, index=config(path)) as query,
        query.sessions.create(id="live") as live,
        query.sessions.resume("s1") as resumed,
    ):
        await live.commit(message("word alive"))
        await query.refresh()
        await live.flush()
        await resumed.commit(message("word alive again"))
        await checkpointed(query, path)
        damage_documents(path)
        assert set(await sessions_of(query, "alive")) == {"live", "s1"}
        assert len(await events_of(query, "s1", "word", limit=50)) == 21
        await live.commit(message("word alive once more"))
        assert await events_of(query, "live", "alive") == [0, 1]
    async with open_session_query(store=store, index=config(path)) as query:
        assert await events_of(query, "live", "alive") == [0, 1]


async def test_a_purged_session_stays_out_when_the_index_is_mended(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    async with open_session_query(store=corpus(), index=config(path)) as query:
        await query.refresh()
        await query.purge("s1")
        await checkpointed(query, path)
        damage_documents(path)
        assert "s1" not in await sessions_of(query, "word", limit=50)
        assert (await query.index_status()).purged == 1


async def test_a_purged_session_stays_out_whatever_else_is_damaged_while_the_index_is_closed(
    tmp_path: Path,
) -> None:
    path = tmp_path / "index.db"
    async with open_session_query(store=corpus(), index=config(path)) as query:
        await query.refresh()
        await query.purge("s1")
    whole, back = path.read_bytes(), 0
    for number, how in some_pages(path, "wal"):
        path.write_bytes(whole)
        damage(path, number, how)
        async with open_session_query(store=corpus(), index=config(path)) as query:
            found = await sessions_of(query, "word", limit=50)
            back += "s1" in found
            assert {"s3", "long", "cjk"} <= {*found}
    # One page holds the list, and one leads to it.
    assert back <= 2


async def test_a_purged_session_stays_out_when_the_search_that_mends_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, scope, real = tmp_path / "index.db", trio.CancelScope(), SearchIndex.rebuild
    token = trio.lowlevel.current_trio_token()

    def rebuild(index: SearchIndex, *purged: Iterable[bytes]) -> bool:
        done = real(index, *purged)
        trio.from_thread.run_sync(scope.cancel, trio_token=token)
        return done

    async with open_session_query(store=corpus(), index=config(path)) as query:
        await query.refresh()
        await query.purge("s1")
        await checkpointed(query, path)
        damage_documents(path)
        monkeypatch.setattr(SearchIndex, "rebuild", rebuild)
        with scope:
            await sessions_of(query, "word")
        assert scope.cancelled_caught
        assert "s1" not in await sessions_of(query, "word", limit=50)
        assert (await query.index_status()).purged == 1


async def test_what_another_service_purged_stays_out_when_this_one_mends(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    shared = IndexConfig(path=str(path), shared=True)
    async with (
        open_session_query(store=corpus(), index=shared) as one,
        open_session_query(store=corpus(), index=shared) as other,
    ):
        await one.refresh()
        await other.purge("s1")
        await checkpointed(other, path)
        damage_table(path, "session")
        assert "s1" not in await sessions_of(one, "word", limit=50)
        assert (await one.index_status()).purged == 1


@pytest.mark.parametrize("table", ["session", "doc", "fts_data", "meta"])
async def test_a_damaged_index_of_another_version_is_mended_and_keeps_purged_sessions_out(
    tmp_path: Path, table: str
) -> None:
    path = tmp_path / "index.db"
    async with open_session_query(store=corpus(), index=config(path)) as query:
        await query.refresh()
        await query.purge("s1")
    connection = apsw.Connection(str(path))
    connection.pragma("user_version", 0)
    connection.close()
    damage_table(path, table)
    async with open_session_query(store=corpus(), index=config(path)) as query:
        found = await sessions_of(query, "word", limit=50)
        assert len(found) == 9
        assert "s1" not in found


async def test_a_rebuild_that_is_cancelled_leaves_an_index_that_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, path, scope = await right_answers(), tmp_path / "index.db", trio.CancelScope()
    token, real = trio.lowlevel.current_trio_token(), SearchIndex._load
    # An interruption is seen at once.
    monkeypatch.setattr(index, "_INTERRUPT_CHECK", 1)

    def load(index: SearchIndex) -> None:
        trio.from_thread.run_sync(scope.cancel, trio_token=token)
        real(index)

    async with open_session_query(store=corpus(), index=config(path)) as query:
        assert await answers(query) == right
        monkeypatch.setattr(SearchIndex, "_load", load)
        with scope:
            await query.rebuild_index()
        assert scope.cancelled_caught
        with trio.fail_after(20):
            assert await answers(query) == right


async def test_a_purge_of_a_damaged_index_is_done(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    async with open_session_query(store=corpus(), index=config(path)) as query:
        await checkpointed(query, path)
        damage_documents(path)
        await query.purge("s1")
        for file in sorted(tmp_path.iterdir()):
            assert b"number1" not in file.read_bytes(), file.name
        assert "s1" not in await sessions_of(query, "word", limit=50)


@pytest.mark.parametrize("cut", [0, 20, 4_000, 20_000])
async def test_a_log_of_changes_that_is_cut_or_damaged_while_closed_loses_nothing(
    tmp_path: Path, cut: int
) -> None:
    right, path, dead = await right_answers(), tmp_path / "index.db", tmp_path / "dead"
    dead.mkdir()
    async with open_session_query(store=corpus(), index=config(path)) as query:
        await query.refresh()
        for name in ("index.db", "index.db-wal"):
            shutil.copyfile(tmp_path / name, dead / name)
    wal = dead / "index.db-wal"
    content = wal.read_bytes()
    assert len(content) > 40_000
    for changed in (content[:cut], content[:cut] + b"\xa5" * 5_000 + content[cut + 5_000 :]):
        for name in ("index.db-shm", "index.db-lock"):
            (dead / name).unlink(missing_ok=True)
        wal.write_bytes(changed)
        async with open_session_query(store=corpus(), index=config(dead / "index.db")) as query:
            assert await answers(query) == right


@pytest.mark.parametrize("size", [0, 5_000])
async def test_a_log_of_changes_that_is_cut_while_open_is_survived(
    tmp_path: Path, size: int
) -> None:
    right, path, store = await right_answers(), tmp_path / "index.db", corpus()
    async with open_session_query(store=store, index=config(path)) as query:
        await answers(query)
        with (tmp_path / "index.db-wal").open("r+b") as file:
            file.truncate(size)
        assert await answers(query) == right
        append(store, "s1", "word")
        assert len(await events_of(query, "s1", "word", limit=50)) == 21


@pytest.mark.parametrize("at", [0, 16, 68])
async def test_a_file_whose_header_says_no_more_that_it_is_ours_is_refused_unchanged(
    tmp_path: Path, at: int
) -> None:
    path = tmp_path / "index.db"
    async with open_session_query(store=corpus(), index=config(path)) as query:
        await query.refresh()
    content = bytearray(path.read_bytes())
    content[at : at + 4] = b"\xa5\xa5\xa5\xa5"
    content[PAGE:] = bytes(len(content) - PAGE)
    path.write_bytes(content)
    if int.from_bytes(content[68:72]) == APPLICATION_ID:
        async with open_session_query(store=corpus(), index=config(path)) as query:
            assert await answers(query) == await right_answers()
        return
    with refused(ErrorCode.INDEX_FAILED, str(path)):
        async with open_session_query(store=corpus(), index=config(path)):
            pass
    assert path.read_bytes() == content
