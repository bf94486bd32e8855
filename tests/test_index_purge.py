"""What ``purge`` and ``rebuild`` leave of a session in the files of an index: nothing.

A canary session holds words that stand nowhere else: in its text, title, header and id, and in the
name of an event type. All files beside the index are searched for their bytes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeAlias

import apsw
import pytest
import trio
from actor_world import message, title
from attrs import define, evolve, field
from builders import START, Log, header
from inline_runtime import InlineRuntime
from search_corpus import MemoryHand
from service_world import append, events_of, refused, session, sessions_of
from trio.testing import MockClock

from session_query.actors import reconciliation
from session_query.actors.composition import open_session_query
from session_query.actors.service import SessionQuery
from session_query.messages.config import IndexConfig, QueryConfig
from session_query.messages.errors import ErrorCode
from session_query.messages.event import Event, EventDraft
from session_query.messages.json import Json, member
from session_query.messages.records import Progress, SessionSearchHit
from session_query.storage import index, log_slices
from session_query.storage.index import SearchIndex

JOURNALS = ["wal", "delete", "truncate", "persist"]

ID = "zid-jqxw71"
CANARIES = [
    b"jqxw71",  # the id
    b"kvzb62",  # a word of its texts
    b"wpqj53",  # in its title
    b"xgkv44",  # in its working directory
    b"yhqz35",  # in its parent's id
    b"bvxk26",  # in the name of an event type
    "鱻".encode(),  # a word of one character
    "齉".encode(),  # likewise, in what is only ever live
]
HEADER = evolve(
    header(ID), cwd="/zcwd-xgkv44", parent_session="zparent-yhqz35", agent_preset="zp-xgkv44"
)
CONFIG = QueryConfig(extract=lambda kind, data: f"{member(data, 'text')}" if "demo" in kind else "")


def canary_log(words: str = "", count: int = 40) -> tuple[Event, ...]:
    """The log of the canary, which ends inside a turn."""
    log = Log()
    log.title("Title wpqj53")
    log.turn_start()
    for number in range(count):
        log.user(f"word Kvzb62 {words} 鱻 number {number} " + "padding " * (number % 7 * 40))
        log.call(f"call-kvzb62-{number}", "tool-kvzb62", '{"kvzb62": 1}')
    log.replace(2, 4, [2, 4], "word kvzb62 in short")
    own: Json = {"text": "word kvzb62"}
    log.add("demo/bvxk26", own, ignorable=True)
    return tuple(log.events)


def others() -> MemoryHand:
    """A store with sessions that share no word of the canary, before and after it."""
    hand = MemoryHand()
    for number in range(12):
        texts = (f"word {number} {part} " + "filler " * (part * 9) for part in range(14))
        hand.write(*session(f"s{number}", *texts))
    return hand


@define(eq=False)
class PurgeWorld:
    """A service on an index file, and the store that it reads."""

    path: Path
    journal: str
    hand: MemoryHand = field(factory=others)

    @asynccontextmanager
    async def service(self) -> AsyncIterator[SessionQuery]:
        index = IndexConfig(path=str(self.path), journal_mode=self.journal)  # type: ignore[arg-type]
        async with open_session_query(store=self.hand.store, index=index, config=CONFIG) as query:
            yield query

    def left(self) -> dict[str, list[str]]:
        """The canaries that are found in any file of the index, in whatever case."""
        found: dict[str, list[str]] = {}
        for path in sorted(self.path.parent.iterdir()):
            content = path.read_bytes().lower()
            hits = [word.decode() for word in CANARIES if word in content]
            if hits:
                found[path.name] = hits
        return found


@pytest.fixture(params=JOURNALS)
def world(tmp_path: Path, request: pytest.FixtureRequest) -> PurgeWorld:
    return PurgeWorld(tmp_path / "index.db", request.param)


# -- how the canary comes into the index ----------------------------------------------------------

Life: TypeAlias = Callable[[PurgeWorld, SessionQuery], Awaitable[None]]


async def stored(world: PurgeWorld, query: SessionQuery) -> None:
    """Built once."""
    world.hand.write(HEADER, canary_log())
    await query.refresh()


async def replaced(world: PurgeWorld, query: SessionQuery) -> None:
    """Built several times, its earlier versions reclaimed in part."""
    for version in range(4):
        world.hand.write(HEADER, canary_log(f"version {version}", 30 + version))
        world.hand.write(*session(f"n{version}", *(f"word {n}" for n in range(20))))
        await query.refresh()
        if version % 2:
            while index_of(query).tidy(512):
                pass


async def grown(world: PurgeWorld, query: SessionQuery) -> None:
    """Appended to again and again, other sessions beside it."""
    world.hand.write(HEADER, canary_log(count=3))
    for number in range(12):
        append(world.hand.store, ID, f"word kvzb62 {number}", f"鱻 kvzb62 {number}")
        append(world.hand.store, f"s{number}", f"word {number}")
        await query.refresh()


async def lived(world: PurgeWorld, query: SessionQuery) -> None:
    """Live, moved to the file in part, ended, and not looked at since."""
    own = EventDraft("demo/bvxk26", {"text": "word kvzb62"}, ignorable=True)
    manager = query.sessions.create(
        id=ID, created_at=START, cwd=HEADER.cwd, parent=HEADER.parent_session
    )
    async with manager as live:
        for number in range(8):
            drafts = [message(f"word kvzb62 鱻 {number} {part}") for part in range(80)]
            await live.commit(title("Title wpqj53"), own, *drafts)
            await live.flush()
            await query.refresh()
            index_of(query).tidy(512)
    assert index_of(query).live.entries[ID].in_file


async def resumed(world: PurgeWorld, query: SessionQuery) -> None:
    """Stored, then live again, then ended and looked at."""
    await stored(world, query)
    async with query.sessions.resume(ID) as live:
        await live.commit(message("word kvzb62 again"))
        await query.refresh()
    await query.refresh()


async def unreadable(world: PurgeWorld, query: SessionQuery) -> None:
    """Read once, and left out since."""
    await stored(world, query)
    world.hand.damage(ID)
    await query.refresh()
    assert [skipped.session_id for skipped in (await query.search_sessions("x")).skipped] == [ID]


async def interrupted(world: PurgeWorld, query: SessionQuery) -> None:
    """Built in part by a pass that was cancelled."""
    world.hand.write(HEADER, canary_log())
    builds, scope = index_of(query).stored._builds, trio.CancelScope()

    def cancel_when_begun(_progress: Progress) -> None:
        if ID in builds:
            scope.cancel()

    with scope:
        await query.refresh(cancel_when_begun)
    assert ID in builds


LIVES: list[Life] = [stored, replaced, grown, lived, resumed, unreadable, interrupted]


def index_of(query: SessionQuery) -> SearchIndex:
    reconciler = query._reconciler
    assert reconciler is not None
    assert reconciler._lane is not None
    return reconciler._lane.index


@pytest.mark.parametrize("life", LIVES)
async def test_a_purge_leaves_no_byte_of_a_session(
    world: PurgeWorld, life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_slices, "BUILD_BYTES", 4_000)
    for module in (index, reconciliation):
        monkeypatch.setattr(module, "SLICE_EVENTS", 20)
    async with world.service() as query:
        await query.refresh()
        await life(world, query)
        assert world.left()
        await query.purge(ID)
        assert world.left() == {}
        assert ID not in await sessions_of(query, "word", limit=50)
        assert await sessions_of(query, "kvzb62") == []
        assert len(await events_of(query, "s3", "word", limit=50)) >= 14
        assert world.left() == {}
        assert (await query.index_status()).purged == 1
    assert world.left() == {}
    connection = apsw.Connection(str(world.path))
    assert connection.pragma("integrity_check") == "ok"
    connection.close()


@pytest.mark.parametrize("life", [stored, replaced, lived, unreadable])
async def test_a_rebuild_leaves_no_byte_of_a_session_that_is_gone(
    world: PurgeWorld, life: Life
) -> None:
    async with world.service() as query:
        await life(world, query)
        world.hand.delete(ID)
        assert world.left()
        await query.rebuild_index()
        assert world.left() == {}
        assert await sessions_of(query, "word", limit=50) == await found_anew(world)
    assert world.left() == {}


async def found_anew(world: PurgeWorld) -> list[str]:
    """What a new index of the same store finds."""
    async with open_session_query(store=world.hand.store, config=CONFIG) as query:
        return await sessions_of(query, "word", limit=50)


# -- what stays out -------------------------------------------------------------------------------


async def test_a_purged_session_stays_out_until_a_rebuild(world: PurgeWorld) -> None:
    async with world.service() as query:
        await stored(world, query)
        await query.purge(ID)
        append(world.hand.store, ID, "word kvzb62 later")
        assert await sessions_of(query, "kvzb62") == []
        with refused(ErrorCode.SESSION_NOT_FOUND, "purged"):
            await events_of(query, ID, "word")
        async with query.sessions.resume(ID) as live:
            await live.commit(*(message(f"kvzb62 {part}") for part in range(600)))
            await live.flush()
            assert await sessions_of(query, "kvzb62") == []
            with refused(ErrorCode.INDEX_FAILED, "live"):
                await query.purge(ID)
        assert await sessions_of(query, "kvzb62") == []
        world.hand.write(HEADER, canary_log("once more"))
        world.hand.damage(ID)
        assert (await query.search_sessions("kvzb62")).skipped == ()
        world.hand.write(HEADER, canary_log("once more"))
    async with world.service() as query:
        assert await sessions_of(query, "kvzb62") == []
        assert world.left() == {}
        assert (await query.read_title(ID)) is not None
        assert world.left() == {}
        await query.rebuild_index()
        assert await sessions_of(query, "kvzb62") == [ID]
        assert (await query.index_status()).purged == 0


async def test_an_unknown_session_is_kept_out_from_the_start(world: PurgeWorld) -> None:
    async with world.service() as query:
        before = await query.refresh()
        await query.purge(ID)
        await query.purge(ID)
        assert await query.refresh() == before
        world.hand.write(HEADER, canary_log())
        assert await sessions_of(query, "kvzb62") == []
        assert world.left() == {}


async def test_a_live_session_is_not_purged(world: PurgeWorld) -> None:
    async with world.service() as query, query.sessions.create(id="live") as live:
        await live.commit(message("word"))
        with refused(ErrorCode.INDEX_FAILED, "'live' is live"):
            await query.purge("live")
        assert "live" in await sessions_of(query, "word", limit=50)


async def test_what_others_have_and_find_is_not_touched_by_a_purge(world: PurgeWorld) -> None:
    async with world.service() as query, query.sessions.create(id="live") as live:
        await live.commit(message("word alive"))
        await live.flush()  # or it might become a stored one as well in the middle
        await stored(world, query)
        before = [hit for hit in await hits(query) if hit.header.id != ID]
        await query.purge(ID)
        assert await hits(query) == before
        await live.commit(EventDraft("demo/new", {"text": "novel"}, ignorable=True))
        append(world.hand.store, "s1", "novel")
        assert set(await sessions_of(query, "novel")) == {"live", "s1"}
        found = (await query.search_events("live", "novel")).items
        assert [hit.type for hit in found] == ["demo/new"]


async def hits(query: SessionQuery) -> list[SessionSearchHit]:
    return list((await query.search_sessions("word", limit=50)).items)


# -- who is in the way ----------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["purge", "rebuild"])
async def test_a_purge_waits_for_whoever_reads_the_file_and_can_be_cancelled(
    world: PurgeWorld, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts, scrub, token = Attempts(), SearchIndex.scrub, trio.lowlevel.current_trio_token()

    def counted(index: SearchIndex) -> bool:
        done = scrub(index)
        token.run_sync_soon(attempts.add, done)
        return done

    async with world.service() as query:
        await stored(world, query)
        reader = apsw.Connection(str(world.path))
        pinned = reader.execute("SELECT * FROM body")
        next(pinned)
        monkeypatch.setattr(SearchIndex, "scrub", counted)
        with trio.fail_after(30):
            if world.journal == "wal":
                with trio.CancelScope() as scope:
                    attempts.when_failed = scope.cancel
                    await purge_or_rebuild(world, query, change)
                assert scope.cancelled_caught
                assert world.left()
                attempts.when_failed = pinned.close
            else:
                # Without snapshots nobody writes while somebody reads.
                with refused(ErrorCode.INDEX_FAILED):
                    await purge_or_rebuild(world, query, "purge")
                pinned.close()
            await purge_or_rebuild(world, query, change)
        reader.close()
        assert world.left() == {}
        assert await sessions_of(query, "number", limit=50) == []


async def test_a_purge_gives_up_where_a_reader_does_not_end(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    index, hand = IndexConfig(path=str(tmp_path / "index.db")), others()
    async with open_session_query(store=hand.store, index=index, runtime=InlineRuntime()) as query:
        await query.refresh()
        reader = apsw.Connection(index.path)
        pinned = reader.execute("SELECT * FROM body")
        next(pinned)
        began = autojump_clock.current_time()
        with refused(ErrorCode.INDEX_FAILED, "goes on reading"):
            await query.purge("s1")
        assert 10 <= autojump_clock.current_time() - began < 11
        assert "s1" not in await sessions_of(query, "word", limit=50)
        pinned.close()
        reader.close()
        await query.purge("s1")


async def purge_or_rebuild(world: PurgeWorld, query: SessionQuery, change: str) -> None:
    if change == "purge":
        await query.purge(ID)
    else:
        if world.hand.store.stat(ID) is not None:
            world.hand.delete(ID)
        await query.rebuild_index()


@define(eq=False)
class Attempts:
    """Attempts to scrub the files, and what is done after each that failed."""

    when_failed: Callable[[], object] = lambda: None

    def add(self, done: bool) -> None:
        if not done:
            self.when_failed()
