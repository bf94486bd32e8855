"""The registry: how sessions are created, resumed and forked, and what is left when they end."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from actor_world import (
    Hang,
    World,
    cancelled_everywhere,
    message,
    replacement,
    title,
    turn,
    world_of,
)
from attrs import evolve
from builders import Log, assistant_data, header, text, tool_call
from inline_runtime import InlineRuntime, lasting
from trio.testing import MockClock, wait_all_tasks_blocked

from session_query.actors.binding import StoreBinding
from session_query.actors.live_session import LiveSession
from session_query.actors.registry import Sessions
from session_query.actors.runtime import TrioRuntime
from session_query.actors.write_behind import Stored
from session_query.history.replay import validate_log
from session_query.messages.config import QueryConfig
from session_query.messages.errors import (
    ErrorCode,
    LiveErrorCode,
    LiveSessionError,
    SessionQueryError,
)
from session_query.messages.event import Event, EventDraft, Replace
from session_query.messages.header import SessionHeader
from session_query.storage.contract import AlreadyExists, NotFound, StoreFailed
from session_query.storage.jsonl import JsonlStore


def types(live: LiveSession) -> list[str]:
    return [event.type for event in live.events]


def refused(code: LiveErrorCode) -> pytest.RaisesExc[LiveSessionError]:
    return pytest.raises(LiveSessionError, check=lambda error: error.code is code)


# Creating


async def test_a_new_session_has_a_fresh_id_and_the_present_time(
    autojump_clock: MockClock,
) -> None:
    world = World()
    await trio.sleep(3)
    async with world.sessions.create() as live:
        assert live.header == SessionHeader("session-1", 3000)
        assert (live.base, live.stored) == (Stored(None, 0), Stored(None, 0))
        assert (live.length, live.inherited_event_count) == (0, 0)


async def test_a_new_session_is_what_its_creator_says(autojump_clock: MockClock) -> None:
    async with World().sessions.create(
        id="child",
        created_at=5,
        cwd="/work",
        parent="p",
        agent_preset="deep",
        delegation_depth=2,
        origin="subagent",
    ) as live:
        assert live.header == SessionHeader(
            "child",
            5,
            cwd="/work",
            parent_session="p",
            origin="subagent",
            delegation_depth=2,
            agent_preset="deep",
        )


@pytest.mark.parametrize(
    "wrong",
    [
        {"cwd": "work"},
        {"cwd": ""},
        {"id": ""},
        {"created_at": -1},
        {"created_at": 1.5},
        {"delegation_depth": -1},
        {"parent": 7},
    ],
    ids=str,
)
async def test_a_header_that_is_not_valid_is_refused(wrong: dict[str, object]) -> None:
    world = World()
    with refused(LiveErrorCode.INVALID_HEADER):
        async with world.sessions.create(**wrong):  # type: ignore[arg-type]
            pass
    world.assert_quiet()


async def test_the_registry_follows_the_sessions_in_the_order_of_their_coming(
    autojump_clock: MockClock,
) -> None:
    sessions = World().sessions
    live = sessions.live
    async with sessions.create(id="b") as b, sessions.create(id="a") as a:
        assert list(live) == ["b", "a"]
        assert sessions.get("a") is a
        assert live["b"] is b
    assert not live
    assert sessions.get("a") is None


async def test_every_attachment_commit_and_detachment_is_news(autojump_clock: MockClock) -> None:
    sessions = World().sessions
    async with sessions.create() as live:
        assert sessions.commits.value == 1
        await live.commit(message("a"), message("b"))
        assert sessions.commits.value == 2
    assert sessions.commits.value == 3


async def test_an_id_is_live_once(autojump_clock: MockClock) -> None:
    world = World()
    async with world.sessions.create(id="s"):
        with refused(LiveErrorCode.ALREADY_EXISTS):
            async with world.sessions.create(id="s", durable=False):
                pass
    world.assert_quiet()


async def test_of_two_concurrent_creations_of_one_id_the_second_is_refused(
    autojump_clock: MockClock,
) -> None:
    world = World(runtime=InlineRuntime(lasting(1)))
    async with trio.open_nursery() as nursery:

        async def create() -> None:
            async with world.sessions.create(id="s"):
                pass

        nursery.start_soon(create)
        await wait_all_tasks_blocked()
        assert not world.sessions.live
        with refused(LiveErrorCode.ALREADY_EXISTS):
            async with world.sessions.create(id="s"):
                pass
        assert trio.current_time() == 0
    world.assert_quiet()


async def test_the_id_of_a_stored_session_is_taken(autojump_clock: MockClock) -> None:
    world = world_of((header("s"), ()))
    with refused(LiveErrorCode.ALREADY_EXISTS) as refusal:
        async with world.sessions.create(id="s"):
            pass
    assert isinstance(refusal.value.__cause__, AlreadyExists)
    world.assert_quiet()


async def test_a_session_that_is_not_durable_may_carry_a_stored_id(
    autojump_clock: MockClock,
) -> None:
    world = world_of((header("s"), ()))
    async with world.sessions.create(id="s", durable=False) as live:
        await live.commit(message("a"))
    assert world.store.stored("s") == ()


async def test_without_a_store_a_session_is_not_stored(autojump_clock: MockClock) -> None:
    world = World()
    world.binding.unmount()
    async with world.sessions.create() as live:
        await live.commit(message("a"))
        await live.flush()
        assert not live.durable


async def test_a_store_that_fails_at_creation_is_told(autojump_clock: MockClock) -> None:
    world = World()

    def fail(*_args: object) -> None:
        raise StoreFailed("no disk")

    world.store.create = fail  # type: ignore[method-assign,assignment]
    with pytest.raises(SessionQueryError, match="no disk") as failure:
        async with world.sessions.create():
            pass
    assert failure.value.code is ErrorCode.PERSISTENCE_FAILED
    world.assert_quiet()


# Resuming


def closed_turn() -> Log:
    log = Log()
    log.turn_start()
    log.user("a")
    log.turn_end()
    return log


async def test_a_resumed_session_goes_on_behind_a_marker(autojump_clock: MockClock) -> None:
    log = closed_turn()
    world = world_of((header("s"), log.events))
    await trio.sleep(9)
    stored = world.store.stat("s")
    assert stored is not None
    async with world.sessions.resume("s") as live:
        assert live.header == header("s")
        assert tuple(live.events[:3]) == tuple(log.events)
        assert live.events[3] == Event("session/end-seed", 3, 9000, b"{}")
        assert live.base == live.stored == Stored(stored.revision, 3)
        await live.commit(message("b"))
    assert world.store.stored("s") == tuple(live.events)
    validate_log(live.header, live.events)
    world.assert_quiet()


async def test_resuming_writes_its_marker_by_itself(autojump_clock: MockClock) -> None:
    world = world_of((header("s"), closed_turn().events))
    async with world.sessions.resume("s") as live:
        await trio.sleep(0.3)
        assert live.stored.length == 4


async def test_resuming_again_adds_nothing(autojump_clock: MockClock) -> None:
    world = world_of((header("s"), closed_turn().events))
    for _ in range(3):
        async with world.sessions.resume("s") as live:
            assert live.length == 4


async def test_a_resumed_session_without_events_has_none(autojump_clock: MockClock) -> None:
    world = world_of((header("s"), ()))
    async with world.sessions.resume("s") as live:
        assert live.length == 0
        await live.commit(message("a"))
    assert len(world.store.stored("s")) == 1


async def test_an_interrupted_turn_is_closed_by_events_of_the_log(
    autojump_clock: MockClock,
) -> None:
    log = Log()
    log.turn_start()
    log.step_start()
    log.assistant(tool_call("c"))
    log.call("c")
    world = world_of((header("s"), log.events))
    async with world.sessions.resume("s") as live:
        assert types(live)[4:] == ["tool/result", "step/end", "turn/end", "session/end-seed"]
        assert live.base.length == 4
    assert world.store.stored("s") == tuple(live.events)
    validate_log(live.header, live.events)


async def test_a_resumed_log_keeps_its_surface(autojump_clock: MockClock) -> None:
    log = Log()
    for value in "abc":
        log.user(value)
    log.replace(0, 1, [0, 1])
    log.title("kept")
    world = world_of((header("s"), log.events))
    async with world.sessions.resume("s") as live:
        assert live.surface == (3, 2)
        assert live.title is not None
        assert live.title.title == "kept"


async def test_a_log_of_format_0_goes_on_in_its_format(autojump_clock: MockClock) -> None:
    log = closed_turn()
    log.add("assistant/chunk", {"turn": 1, "step": 1, "chunk": {}})
    world = world_of((header("s", version=0, seeded=True), log.events))
    async with world.sessions.resume("s") as live:
        assert live.header.version == 0
        assert live.inherited_event_count == 1
        message_of_0 = EventDraft(
            "assistant/message",
            assistant_data(text("hi")),
            surface_op="append",
            source_event_seqs=(3,),
        )
        await live.commit(message_of_0)
        for draft in (
            EventDraft("assistant/attempt", {"turn": 1, "step": 1, "stream": []}),
            EventDraft(
                "assistant/message", {**assistant_data(), "stream": []}, surface_op="append"
            ),
        ):
            with refused(LiveErrorCode.INVALID_DRAFT):
                await live.commit(draft)
    assert world.store.stored("s") == tuple(live.events)


async def test_what_is_not_stored_cannot_be_resumed(autojump_clock: MockClock) -> None:
    world = World()
    with refused(LiveErrorCode.NOT_FOUND) as refusal:
        async with world.sessions.resume("s"):
            pass
    assert isinstance(refusal.value.__cause__, NotFound)
    world.binding.unmount()
    with refused(LiveErrorCode.NOT_FOUND):
        async with world.sessions.resume("s"):
            pass
    world.assert_quiet()


async def test_what_is_live_or_written_by_another_cannot_be_resumed(
    autojump_clock: MockClock,
) -> None:
    world = world_of((header("s"), ()))
    with world.store.open("s", "write"), refused(LiveErrorCode.ALREADY_EXISTS):
        async with world.sessions.resume("s"):
            pass
    async with world.sessions.resume("s"):
        with refused(LiveErrorCode.ALREADY_EXISTS):
            async with world.sessions.resume("s"):
                pass
    world.assert_quiet()


DAMAGED = {
    "surface": (
        header("s"),
        Event("user/message", 0, 1, b"{}", Replace(3, 4), (1,)),
        ErrorCode.CORRUPT_SESSION,
    ),
    "seed": (
        evolve(header("s"), is_seeded=True),
        Event("turn/start", 0, 1, b"{}"),
        ErrorCode.CORRUPT_SESSION,
    ),
    "unknown type": (
        header("s"),
        Event("own/type", 0, 1, b"{}"),
        ErrorCode.PERSISTENCE_FAILED,
    ),
}


@pytest.mark.parametrize("name", DAMAGED)
async def test_a_log_that_cannot_be_restored_is_given_back(
    autojump_clock: MockClock, name: str
) -> None:
    stored_header, event, code = DAMAGED[name]
    world = world_of((stored_header, [event]))
    with pytest.raises(SessionQueryError) as failure:
        async with world.sessions.resume("s"):
            pass
    assert failure.value.code is code
    assert failure.value.__cause__ is not None
    world.assert_quiet()


async def test_a_store_that_fails_at_resuming_is_told(autojump_clock: MockClock) -> None:
    world = world_of((header("s"), ()))
    world.store.read_failures.append(StoreFailed("no disk"))
    with pytest.raises(SessionQueryError, match="no disk") as failure:
        async with world.sessions.resume("s"):
            pass
    assert failure.value.code is ErrorCode.PERSISTENCE_FAILED
    world.assert_quiet()


# Forking


async def test_a_fork_inherits_everything_by_default(autojump_clock: MockClock) -> None:
    world = World()
    async with world.sessions.create(
        id="p", cwd="/work", agent_preset="deep", delegation_depth=3
    ) as parent:
        await parent.commit(turn("start"), message("a"), title("t"), turn("end"))
        await trio.sleep(1)
        async with world.sessions.fork("p", new_id="c") as child:
            assert child.header == SessionHeader(
                "c", 1000, cwd="/work", parent_session="p", is_seeded=True
            )
            assert tuple(child.events[:4]) == tuple(parent.events)
            assert child.events[4] == Event("session/end-seed", 4, 1000, b'{"inherited":true}')
            assert child.inherited_event_count == 4
            assert child.title is not None
            assert child.title.title == "t"
            assert child.base == Stored(None, 0)
            await child.commit(message("b"))
    assert world.store.stored("c") == tuple(child.events)
    assert validate_log(child.header, child.events) == 4
    world.assert_quiet()


async def test_a_fork_of_a_session_without_events_has_none_either(
    autojump_clock: MockClock,
) -> None:
    sessions = World().sessions
    async with sessions.create() as parent, sessions.fork(parent) as child:
        assert child.length == 0
        assert not child.header.is_seeded
        assert child.header.parent_session == parent.id


async def test_a_fork_may_begin_before_an_open_turn(autojump_clock: MockClock) -> None:
    sessions = World().sessions
    async with sessions.create() as parent:
        await parent.commit(turn("start"), message("a"), turn("end"), title("t"), turn("start", 2))
        async with sessions.fork(parent, 2) as child:
            assert types(child) == ["turn/start", "user/message", "turn/end", "session/end-seed"]
        async with sessions.fork(parent, 3) as child:
            assert types(child)[3:] == ["session/title", "session/end-seed"]


async def test_a_fork_of_a_fork_marks_its_own_cut(autojump_clock: MockClock) -> None:
    sessions = World().sessions
    async with sessions.create() as first:
        await first.commit(message("a"))
        async with sessions.fork(first) as second, sessions.fork(second) as third:
            assert types(third)[1:] == ["session/end-seed", "session/end-seed"]
            assert third.inherited_event_count == 2
            assert validate_log(third.header, third.events) == 2


async def test_a_resumed_fork_keeps_what_it_inherited(autojump_clock: MockClock) -> None:
    world = World()
    async with world.sessions.create(id="p") as parent:
        await parent.commit(message("a"))
        async with world.sessions.fork(parent, new_id="c") as child:
            await child.commit(message("b"))
    async with world.sessions.resume("c") as again:
        assert again.inherited_event_count == 1
        assert types(again)[-1] == "session/end-seed"


@pytest.mark.parametrize(
    ("boundary", "code"),
    [
        (-1, LiveErrorCode.INVALID_BOUNDARY),
        (1.0, LiveErrorCode.INVALID_BOUNDARY),
        (5, LiveErrorCode.INVALID_BOUNDARY),
        (3, LiveErrorCode.OPEN_TURN),
        (4, LiveErrorCode.OPEN_TURN),
        (None, LiveErrorCode.OPEN_TURN),
    ],
)
async def test_a_boundary_that_is_none_is_refused_before_anything_is_created(
    autojump_clock: MockClock, boundary: int | None, code: LiveErrorCode
) -> None:
    world = World()
    async with world.sessions.create() as parent:
        await parent.commit(
            turn("start"), message("a"), turn("end"), turn("start", 2), message("b")
        )
        with refused(code):
            async with world.sessions.fork(parent, boundary, new_id="c"):
                pass
        assert world.store.open_handles == 1
        assert list(world.sessions.live) == [parent.id]


async def test_the_checks_of_a_fork_come_in_order(autojump_clock: MockClock) -> None:
    sessions = World().sessions
    async with sessions.create(id="stale") as stale:
        pass
    async with sessions.create(id="p") as parent:
        await parent.commit(turn("start"))
        with refused(LiveErrorCode.ALREADY_EXISTS):
            async with sessions.fork("unknown", 99, new_id="p"):
                pass
        with refused(LiveErrorCode.NOT_FOUND):
            async with sessions.fork("unknown", 99):
                pass
        with refused(LiveErrorCode.NOT_LIVE):
            async with sessions.fork(stale, 99):
                pass
        with refused(LiveErrorCode.INVALID_BOUNDARY):
            async with sessions.fork(parent, 99):
                pass
        with refused(LiveErrorCode.OPEN_TURN):
            async with sessions.fork(parent, delegation_depth=-1):
                pass


async def test_an_object_that_was_replaced_under_its_id_is_not_live(
    autojump_clock: MockClock,
) -> None:
    sessions = World().sessions
    async with sessions.create(id="s", durable=False) as old:
        pass
    async with sessions.create(id="s", durable=False):
        with refused(LiveErrorCode.NOT_LIVE):
            async with sessions.fork(old):
                pass


async def test_events_of_an_old_format_that_cannot_stand_in_a_new_log_are_not_forked(
    autojump_clock: MockClock,
) -> None:
    log = closed_turn()
    log.add("assistant/chunk", {"turn": 1, "step": 1, "chunk": {}})
    world = world_of((header("old", version=0), log.events))
    async with world.sessions.resume("old") as parent:
        with refused(LiveErrorCode.INVALID_BOUNDARY) as refusal:
            async with world.sessions.fork(parent):
                pass
        assert "has log format 0" in str(refusal.value)
        async with world.sessions.fork(parent, 2) as child:
            assert child.header.version == 2
            validate_log(child.header, child.events)


async def test_a_fork_does_not_follow_its_source(autojump_clock: MockClock) -> None:
    sessions = World().sessions
    async with sessions.create() as parent:
        await parent.commit(message("a"), message("b"))
        async with sessions.fork(parent) as child:
            await parent.commit(replacement(0, 1, 0, 1))
            assert child.surface == (0, 1)
            assert child.length == 3


# Cancellation


def test_whenever_a_creation_is_cancelled_nothing_is_left() -> None:
    async def scenario() -> None:
        world = World(runtime=InlineRuntime(lasting(0.1)))
        try:
            async with world.sessions.create(id="s") as live:
                await live.commit(message("a"))
                await live.flush()
                await live.commit(message("b"))
                await trio.sleep(0.25)
                await live.commit(message("c"))
        finally:
            world.assert_quiet()
            stored = world.store.stored("s")
            assert [event.seq for event in stored] == list(range(len(stored)))
            assert "live" not in locals() or stored == tuple(live.events)

    assert cancelled_everywhere(scenario) > 10


def test_whenever_a_resumption_or_a_fork_is_cancelled_nothing_is_left() -> None:
    log = closed_turn()
    log.turn_start(2)

    async def scenario() -> None:
        world = world_of((header("s"), log.events))
        world.runtime.pace = lasting(0.1)
        try:
            async with (
                world.sessions.resume("s") as parent,
                world.sessions.fork(parent, new_id="c") as child,
            ):
                await child.commit(message("b"))
                await parent.flush()
                assert list(world.sessions.live) == ["s", "c"]
        finally:
            world.assert_quiet()
            for name, live in (("s", locals().get("parent")), ("c", locals().get("child"))):
                assert live is None or world.store.stored(name) == tuple(live.events)

    assert cancelled_everywhere(scenario) > 10


def test_whenever_a_refused_opening_is_cancelled_nothing_is_left() -> None:
    async def scenario() -> None:
        world = world_of((header("s"), [Event("own/type", 0, 1, b"{}")]))
        world.runtime.pace = lasting(0.1)
        try:
            with pytest.raises(SessionQueryError):
                async with world.sessions.resume("s"):
                    pass
            with refused(LiveErrorCode.ALREADY_EXISTS):
                async with world.sessions.create(id="s"):
                    pass
        finally:
            world.assert_quiet()

    assert cancelled_everywhere(scenario) > 2


async def test_a_creation_that_is_cancelled_while_the_store_is_at_work_awaits_it(
    autojump_clock: MockClock,
) -> None:
    world = World()
    hang = Hang("create")
    world.runtime.pace = hang
    async with trio.open_nursery() as nursery:

        async def create() -> None:
            async with world.sessions.create(id="s"):
                raise AssertionError("the block does not begin")

        nursery.start_soon(create)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
        hang.over.set()
    world.assert_quiet()


# With threads and files


async def test_sessions_are_created_stored_forked_and_resumed_on_disk(tmp_path: Path) -> None:
    runtime = TrioRuntime()
    store = JsonlStore(str(tmp_path))
    sessions = Sessions(runtime, StoreBinding(store), QueryConfig())
    async with sessions.create(id="p", cwd="/work") as parent:
        await parent.commit(turn("start"), message("a"), turn("end"))
        await parent.flush()
        with store.open("p", "read") as reader:
            assert reader.read() == tuple(parent.events)
        async with sessions.fork(parent, new_id="c") as child:
            await child.commit(message("b"))
    async with sessions.resume("c") as again:
        assert again.inherited_event_count == 3
        assert tuple(again.events[:5]) == tuple(child.events)
        assert again.base.length == 5
    with store.open("c", "read") as reader:
        assert reader.read() == tuple(again.events)
    assert runtime.statistics().calls == 0
    assert not sessions.live
