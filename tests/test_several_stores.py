"""Several stores as one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from field_world import user_rows, write_session
from service_world import append, refused, session, sessions_of
from store_contract import StoreContract, tail_events, turns

from session_query.actors.composition import open_session_query
from session_query.messages.config import IndexConfig, QueryConfig
from session_query.messages.errors import ErrorCode
from session_query.messages.filters import Ids
from session_query.storage.contract import AlreadyExists, SessionStore, StoreFailed, Sweep
from session_query.storage.jsonl import JsonlStore
from session_query.storage.memory import MemoryStore
from session_query.storage.several import SeveralStores


class TestSeveralStores(StoreContract):
    @pytest.fixture
    def make(self) -> Callable[[], SessionStore]:
        return lambda: SeveralStores({"a": MemoryStore(), "b": MemoryStore()}, created_in="b")


class TestSeveralFolders(StoreContract):
    @pytest.fixture
    def make(self, tmp_path: Path) -> Callable[[], SessionStore]:
        numbers = iter(range(1000))

        def make() -> SessionStore:
            folder = tmp_path / str(next(numbers))
            sources = {"a": JsonlStore(folder / "a"), "b": JsonlStore(folder / "b")}
            return SeveralStores(sources, created_in="a")

        return make


class FailingStore(MemoryStore):
    """A store whose root cannot be read."""

    def sweep(self) -> Sweep:
        raise StoreFailed("the disk is gone")


def family(word: str) -> MemoryStore:
    return MemoryStore([session("root", word), session("child", word, parent_session="root")])


def both() -> SeveralStores:
    return SeveralStores({"left": family("alpha"), "right": family("beta")})


def test_an_id_belongs_to_the_first_source_that_holds_it() -> None:
    swept = both().sweep()
    ids = [snapshot.header.id for snapshot in swept.snapshots]
    assert sorted(ids) == ["child", "right:child", "right:root", "root"]


def test_a_parent_is_the_one_of_the_same_source() -> None:
    store = both()
    for session_id, parent in (("child", "root"), ("right:child", "right:root")):
        found = store.stat(session_id)
        assert found is not None
        assert found.header.parent_session == parent
        assert found in store.sweep().snapshots
        with store.open(session_id, "read") as reader:
            assert reader.header == found.header
            assert reader.read_log().snapshot == found


def test_a_parent_that_another_source_holds_is_found_there() -> None:
    ours = MemoryStore([session("mine", "word", parent_session="root")])
    store = SeveralStores({"ours": ours, "theirs": family("x")})
    found = store.stat("mine")
    assert found is not None
    assert found.header.parent_session == "root"


def test_the_source_of_a_session_and_its_id_there_are_told() -> None:
    store = both()
    store.sweep()
    assert store.source_of("root") == ("left", "root")
    assert store.source_of("right:root") == ("right", "root")
    assert store.source_of("right:gone") is None


async def test_sessions_of_all_sources_are_searched_read_and_traced_under_one_index() -> None:
    async with open_session_query(store=both()) as query:
        assert sorted(await sessions_of(query, "beta")) == ["right:child", "right:root"]
        assert sorted(await sessions_of(query, "alpha")) == ["child", "root"]
        trace = await query.trace_session("right:child")
        assert [record.header.id for record in trace.ancestors] == ["right:root"]
        assert (await query.read_session("right:root")).header.id == "right:root"
        found = await sessions_of(query, "beta", session_filters=[Ids(("right:child",))])
        assert found == ["right:child"]


async def test_an_id_that_becomes_free_is_given_to_the_next(tmp_path: Path) -> None:
    left, right = tmp_path / "left", tmp_path / "right"
    first = write_session(left, user_rows("alpha"))
    write_session(right, user_rows("beta"))
    store = SeveralStores({"left": JsonlStore(left), "right": JsonlStore(right)})
    async with open_session_query(store=store) as query:
        assert await sessions_of(query, "beta") == ["right:s"]
        first.unlink()
        assert await sessions_of(query, "beta") == ["s"]
        assert await sessions_of(query, "alpha") == []
        assert store.source_of("s") == ("right", "s")
        write_session(left, user_rows("alpha"))
        assert await sessions_of(query, "beta") == ["right:s"]
        assert await sessions_of(query, "alpha") == ["s"]


async def test_a_source_that_fails_is_named_and_hides_no_other() -> None:
    store = SeveralStores({"gone": FailingStore(), "here": family("alpha")})
    async with open_session_query(store=store) as query:
        page = await query.search_sessions("alpha")
        assert sorted(hit.header.id for hit in page.items) == ["child", "root"]
        [skipped] = page.skipped
        assert (skipped.path, skipped.code) == ("gone", ErrorCode.PERSISTENCE_FAILED)
        assert skipped.message == "gone: the disk is gone"
    async with open_session_query(store=store, config=QueryConfig(on_damaged="fail")) as query:
        with refused(ErrorCode.PERSISTENCE_FAILED, "the disk is gone"):
            await query.search_sessions("alpha")


def test_where_every_source_fails_the_whole_does() -> None:
    with pytest.raises(StoreFailed, match="the disk is gone"):
        SeveralStores({"a": FailingStore(), "b": FailingStore()}).sweep()


async def test_what_is_damaged_is_named_with_its_source(tmp_path: Path) -> None:
    write_session(tmp_path / "left", user_rows("alpha"), "one")
    bad = write_session(tmp_path / "right", user_rows("beta"), "one")
    bad.write_bytes(bad.read_bytes().replace(b'"createdAt":1', b'"createdAt":"x"'))
    stores = {name: JsonlStore(tmp_path / name) for name in ("left", "right")}
    [damaged] = SeveralStores(stores).sweep().damaged
    assert damaged.path.startswith("right:")
    assert damaged.session_id == "right:one"


def test_a_tail_goes_on_under_its_own_source_alone() -> None:
    store = both()
    assert [event.seq for event in tail_events(store, "right:root", 1)] == [0]
    left = store.read_tail("root", None)
    assert not store.read_tail("right:root", left.mark).appended
    append(store, "right:root", "more")
    tail = store.read_tail("right:root", store.read_tail("right:root", None).mark)
    assert (tail.appended, tail.snapshot.header.id) == (True, "right:root")


def test_a_new_session_gets_no_id_that_any_source_holds() -> None:
    store = SeveralStores({"left": family("x"), "right": MemoryStore()}, created_in="right")
    with pytest.raises(AlreadyExists):
        store.create(session("root")[0])
    with store.create(session("new")[0]) as handle:
        handle.append(turns(1))
    assert store.source_of("new") is None
    assert store.stat("new") is not None
    assert store.source_of("new") == ("right", "new")


def test_without_a_source_for_them_no_session_is_created() -> None:
    with pytest.raises(ValueError, match="none of these stores"):
        both().create(session("new")[0])


@pytest.mark.parametrize("name", ["", "a:b"])
def test_a_source_has_a_plain_name(name: str) -> None:
    with pytest.raises(ValueError, match="name without"):
        SeveralStores({name: MemoryStore()})


def test_sources_must_be_given_and_known() -> None:
    with pytest.raises(ValueError, match="at least one"):
        SeveralStores({})
    with pytest.raises(ValueError, match="created_in must be one of a, got 'b'"):
        SeveralStores({"a": MemoryStore()}, created_in="b")


async def test_live_sessions_are_stored_in_their_source(tmp_path: Path) -> None:
    ours = JsonlStore(tmp_path / "ours")
    store = SeveralStores({"theirs": family("alpha"), "ours": ours}, created_in="ours")
    index = IndexConfig(path=str(tmp_path / "index.db"))
    async with open_session_query(store=store, index=index) as query:
        async with query.sessions.create(id="live", parent="root") as live:
            await live.flush()
        async with query.sessions.resume("live") as live:
            assert live.header.parent_session == "root"
        trace = await query.trace_session("live")
        assert [record.header.id for record in trace.ancestors] == ["root"]
    assert [found.header.id for found in ours.sweep().snapshots] == ["live"]
