"""Damaged, unsupported, deleted and rewritten sessions: they never take the others down."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
from actor_world import message
from attrs import frozen
from builders import user_data
from jsonl_files import BODY, OsFilesAt, row, session_line, write_log
from service_world import CountingStore, events_of, refused, sessions_of

from session_query.actors import reconciliation
from session_query.actors.composition import open_session_query
from session_query.messages.config import MEMORY, IndexConfig, QueryConfig
from session_query.messages.errors import ErrorCode, SessionQueryError
from session_query.messages.json import Json
from session_query.storage import log_slices
from session_query.storage.contract import TAIL_BYTES, StoreFailed, Sweep, Tail
from session_query.storage.jsonl import JsonlStore

GARBAGE = b"{damaged"
END: Json = {"turn": 2, "reason": {"kind": "completed"}}


@pytest.fixture(params=["file", MEMORY])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> IndexConfig:
    path = MEMORY if request.param == MEMORY else str(tmp_path / "index" / "index.db")
    return IndexConfig(path=path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store with one good session."""
    root = tmp_path / "store"
    write(root, "good", word("word"))
    return root


def word(text: str, seq: int = 0) -> bytes:
    return row(seq, "user/message", user_data(text, f"m{seq}"), surfaceOp="append")


def store_at(root: Path) -> JsonlStore:
    """The store at a time at which every revision is final."""
    return JsonlStore(root, files=OsFilesAt(2**62))


def write(root: Path, session_id: str, *rows: bytes, header: bytes | None = None) -> Path:
    """A log of these rows, in the place of the one that was there."""
    line = session_line(id=session_id) if header is None else header
    return write_log(root, [*rows], segment=session_id, header=line)


@frozen
class Damage:
    """A log that cannot be read whole."""

    code: ErrorCode
    rows: tuple[bytes, ...]
    header: bytes | None = None
    is_session: bool = True
    """Whether its header is one, so that ``on_damaged="fail"`` minds it."""


OFF_SURFACE: Json = {"op": "replace", "start": 7, "end": 7}

DAMAGES = {
    "line": Damage(ErrorCode.CORRUPT_SESSION, (word("word"), GARBAGE, row(1, "turn/end", END))),
    "surface": Damage(
        ErrorCode.INVALID_SURFACE,
        (row(0, "user/message", user_data("word"), surfaceOp=OFF_SURFACE),),
    ),
    "event": Damage(ErrorCode.PERSISTENCE_FAILED, (word("word"), row(1, "from/the/future", {}))),
    "header": Damage(ErrorCode.CORRUPT_SESSION, (word("word"),), GARBAGE, is_session=False),
    "version": Damage(
        ErrorCode.PERSISTENCE_FAILED,
        (word("word"),),
        session_line(id="version", version=9),
        is_session=False,
    ),
}


def write_damaged(root: Path, name: str) -> None:
    write(root, name, *DAMAGES[name].rows, header=DAMAGES[name].header)


@pytest.mark.parametrize("name", DAMAGES)
async def test_a_session_that_cannot_be_read_is_left_out_and_named(
    root: Path, index: IndexConfig, name: str
) -> None:
    write_damaged(root, name)
    async with open_session_query(store=store_at(root), index=index) as query:
        page = await query.search_sessions("word")
        assert [hit.header.id for hit in page.items] == ["good"]
        (skipped,) = page.skipped
        assert (skipped.session_id, skipped.code) == (name, DAMAGES[name].code)
        assert f"{name}/session.v2.jsonl" in skipped.path
        assert skipped.message
        assert await query.search_sessions("word") == page
        assert (await query.search_events("good", "word")).skipped == page.skipped


@pytest.mark.parametrize("name", [name for name in DAMAGES if DAMAGES[name].is_session])
async def test_a_session_that_cannot_be_read_fails_all_where_the_host_wants_that(
    root: Path, index: IndexConfig, name: str
) -> None:
    write_damaged(root, name)
    config = QueryConfig(on_damaged="fail")
    async with open_session_query(store=store_at(root), index=index, config=config) as query:
        for _ in range(2):
            with refused(DAMAGES[name].code):
                await query.search_sessions("word")
            with refused(DAMAGES[name].code):
                await query.search_events("good", "word")
        write(root, name, word("word mended"))
        assert await sessions_of(query, "word") == ["good", name]


async def test_a_search_in_a_session_that_is_left_out_says_why(
    root: Path, index: IndexConfig
) -> None:
    for name in DAMAGES:
        write_damaged(root, name)
    async with open_session_query(store=store_at(root), index=index) as query:
        for name, damage in DAMAGES.items():
            with refused(damage.code):
                await query.search_events(name, "word")
            with refused(damage.code):
                await query.read_session(name)


@pytest.mark.parametrize("name", ["surface", "event", "cwd", "line"])
async def test_whoever_is_refused_is_told_the_file(root: Path, name: str) -> None:
    if name == "cwd":
        write_log(root, [], project="--w--", segment="cwd", header=session_line(id="cwd", cwd="w"))
    else:
        write_damaged(root, name)
    config = QueryConfig(on_damaged="fail")
    async with open_session_query(store=store_at(root), config=config) as query:

        async def resume() -> None:
            async with query.sessions.resume(name):
                pass

        async def observe() -> None:
            async with query.observe_session(name):
                pass

        calls: list[Callable[[], Awaitable[object]]] = [
            *(resume, observe, lambda: query.list_events(name), lambda: query.read_session(name)),
            *(lambda: query.search_sessions("word"), lambda: query.search_events("good", "word")),
        ]
        if name != "surface":
            calls.append(lambda: query.read_title(name))
        for call in calls:
            with pytest.raises(SessionQueryError, match=rf"{name}/session\.v2\.jsonl"):
                await call()


async def test_a_damaged_session_is_tried_again_when_it_changes_and_only_then(
    root: Path, index: IndexConfig
) -> None:
    write(root, "bad", word("word"), GARBAGE, row(1, "turn/end", END))
    store = CountingStore(store_at(root))
    async with open_session_query(store=store, index=index) as query:
        assert await sessions_of(query, "word") == ["good"]
        store.forget()
        assert await sessions_of(query, "word") == ["good"]
        assert store.logs_read == 0
        write(root, "bad", word("word mended"))
        page = await query.search_sessions("word")
        assert [hit.header.id for hit in page.items] == ["good", "bad"]
        assert page.skipped == ()


async def test_what_is_left_out_is_remembered_across_restarts(root: Path, tmp_path: Path) -> None:
    index = IndexConfig(path=str(tmp_path / "index.db"))
    write(root, "bad", word("word"), GARBAGE, row(1, "turn/end", END))
    store = CountingStore(store_at(root))
    async with open_session_query(store=store, index=index) as query:
        before = (await query.search_sessions("word")).skipped
    store.forget()
    async with open_session_query(store=store, index=index) as query:
        assert (await query.search_sessions("word")).skipped == before
    assert store.logs_read == 0


async def test_a_good_session_that_is_damaged_loses_its_rows(
    root: Path, index: IndexConfig
) -> None:
    write(root, "s", word("word once"))
    async with open_session_query(store=store_at(root), index=index) as query:
        assert await events_of(query, "s", "once") == [0]
        write(root, "s", word("word once"), GARBAGE, row(1, "turn/end", END))
        page = await query.search_sessions("once")
        assert page.items == ()
        assert [skipped.session_id for skipped in page.skipped] == ["s"]
        write(root, "s", word("word once"), header=GARBAGE)
        page = await query.search_sessions("once")
        assert page.items == ()
        assert len(page.skipped) == 1
        write(root, "s", word("word once"))
        assert await events_of(query, "s", "once") == [0]


async def test_a_damaged_session_that_is_deleted_is_no_longer_named(
    root: Path, index: IndexConfig
) -> None:
    path = write(root, "bad", word("word"), GARBAGE, row(1, "turn/end", END))
    async with open_session_query(store=store_at(root), index=index) as query:
        assert len((await query.search_sessions("word")).skipped) == 1
        path.unlink()
        assert (await query.search_sessions("word")).skipped == ()
        with refused(ErrorCode.SESSION_NOT_FOUND):
            await query.search_events("bad", "word")


async def test_a_deleted_session_is_gone_from_the_next_search(
    root: Path, index: IndexConfig
) -> None:
    path = write(root, "s", word("unique"))
    async with open_session_query(store=store_at(root), index=index) as query:
        assert await sessions_of(query, "unique") == ["s"]
        path.unlink()
        assert await sessions_of(query, "unique") == []
        with refused(ErrorCode.SESSION_NOT_FOUND):
            await query.search_events("s", "unique")
        write(root, "s", word("another"))
        assert await sessions_of(query, "unique") == []
        assert await sessions_of(query, "another") == ["s"]


async def test_a_log_that_was_cut_and_rewritten_larger_is_read_anew(
    root: Path, index: IndexConfig
) -> None:
    write(root, "s", word("early text"), word("second", 1))
    async with open_session_query(store=store_at(root), index=index) as query:
        assert await events_of(query, "s", "early") == [0]
        write(root, "s", word("early text"))
        assert await events_of(query, "s", "second") == []
        write(root, "s", word("other text"), *(word(f"later {n}", n) for n in range(1, 9)))
        assert await events_of(query, "s", "early") == []
        assert await events_of(query, "s", "other") == [0]
        assert len(await events_of(query, "s", "later")) == 8


async def test_a_log_that_is_torn_is_searched_up_to_there_and_then_on(
    root: Path, index: IndexConfig
) -> None:
    whole = word("word second", 1)
    path = write(root, "s", word("word first"))
    path.write_bytes(path.read_bytes() + whole[:40])
    async with open_session_query(store=store_at(root), index=index) as query:
        assert await events_of(query, "s", "word") == [0]
        path.write_bytes(path.read_bytes()[:-40] + whole + b"\n")
        assert sorted(await events_of(query, "s", "word")) == [0, 1]


async def test_a_live_session_is_never_named_as_left_out(root: Path, index: IndexConfig) -> None:
    write(root, "s", word("word"))
    async with open_session_query(store=store_at(root), index=index) as query:
        await query.refresh()
        async with query.sessions.resume("s") as live:
            await live.commit(message("word live"))
            assert sorted(await events_of(query, "s", "word")) == [0, 2]
            (path,) = root.glob("*/s/*.jsonl")
            stored = path.read_bytes()
            path.write_bytes(GARBAGE + stored)
            page = await query.search_sessions("live")
            assert (page.skipped, [hit.header.id for hit in page.items]) == ((), ["s"])
            assert (await query.list_sessions()).skipped == ()
            path.write_bytes(stored)


async def test_a_listing_names_what_it_left_out(root: Path) -> None:
    write(root, "bad", word("word"), header=GARBAGE)
    async with open_session_query(store=store_at(root)) as query:
        listing = await query.list_sessions()
        assert [record.header.id for record in listing.sessions] == ["good"]
        assert [skipped.code for skipped in listing.skipped] == [ErrorCode.CORRUPT_SESSION]


async def test_a_listing_fails_where_two_logs_claim_one_id_and_the_host_wants_that(
    root: Path,
) -> None:
    write(root, "other", word("word"), header=session_line(id="good"))
    async with open_session_query(store=store_at(root)) as query:
        assert (await query.list_sessions()).skipped
    config = QueryConfig(on_damaged="fail")
    async with open_session_query(store=store_at(root), config=config) as query:
        with refused(ErrorCode.CORRUPT_SESSION):
            await query.list_sessions()
        with refused(ErrorCode.CORRUPT_SESSION):
            await query.search_sessions("word")


async def test_a_store_that_cannot_be_swept_fails_the_search_and_is_asked_again(
    root: Path, index: IndexConfig
) -> None:
    class Failing(CountingStore):
        broken = True

        def sweep(self) -> Sweep:
            if self.broken:
                raise StoreFailed("the disk is away")
            return super().sweep()

    store = Failing(store_at(root))
    async with open_session_query(store=store, index=index) as query:
        with refused(ErrorCode.PERSISTENCE_FAILED, "the disk is away"):
            await query.search_sessions("word")
        with refused(ErrorCode.PERSISTENCE_FAILED, "the disk is away"):
            await query.list_sessions()
        store.broken = False
        assert await sessions_of(query, "word") == ["good"]


async def test_rows_of_a_whole_turn_are_found_beside_damage(root: Path, index: IndexConfig) -> None:
    for number in range(70):
        rows = [GARBAGE, row(0, "turn/end", END)] if number % 2 else [word("word"), *BODY[1:]]
        write(root, f"s{number:02}", *rows)
    async with open_session_query(store=store_at(root), index=index) as query:
        page = await query.search_sessions("word", limit=100)
        assert len(page.items) == 36
        assert len(page.skipped) == 35
        assert [one.path for one in page.skipped] == sorted(one.path for one in page.skipped)


async def test_what_a_cancelled_build_left_is_not_taken_for_the_log_that_came_back(
    root: Path, index: IndexConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_slices, "BUILD_BYTES", 300)
    monkeypatch.setattr(reconciliation, "SLICE_EVENTS", 2)
    token, scope = trio.lowlevel.current_trio_token(), trio.CancelScope()

    class Cancelling(CountingStore):
        def read_tail(self, session_id: str, mark: bytes | None, limit: int = TAIL_BYTES) -> Tail:
            if self.calls["read_tail"] == 12:
                token.run_sync_soon(scope.cancel)
            return super().read_tail(session_id, mark, limit)

    store = Cancelling(store_at(root))
    path = write(root, "s", *(word(f"old {seq}", seq) for seq in range(6)))
    kept = path.read_bytes()
    async with open_session_query(store=store, index=index) as query:
        assert len(await events_of(query, "s", "old")) == 6
        write(root, "s", *(word(f"new {seq}", seq) for seq in range(40)))
        store.forget()
        with scope:
            await query.refresh()
        assert scope.cancelled_caught
        path.write_bytes(kept + word("old 6", 6) + b"\n")
        assert sorted(await events_of(query, "s", "old")) == [0, 1, 2, 3, 4, 5, 6]
        assert await events_of(query, "s", "new") == []
