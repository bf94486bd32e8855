"""Live sessions: what is accepted, what is visible, and how it reaches the store."""

from __future__ import annotations

import logging
from contextlib import suppress

import pytest
import trio
from actor_world import CLOSE_TIMEOUT, Hang, World, message, replacement, title, turn
from builders import assistant_data, text, user_data
from hypothesis import given, settings
from hypothesis import strategies as st
from inline_runtime import InlineRuntime, lasting
from trio.testing import MockClock, wait_all_tasks_blocked

from session_query.actors import write_behind
from session_query.actors.folded_log import FoldedLog
from session_query.actors.live_session import LiveSession
from session_query.actors.mailbox import ActorCrashed
from session_query.actors.write_behind import Stored
from session_query.history.replay import validate_log
from session_query.messages.errors import (
    InvalidJson,
    LiveErrorCode,
    LiveSessionError,
    ReplayError,
    SurfaceError,
    UnsupportedFormat,
)
from session_query.messages.event import EventDraft
from session_query.storage.contract import StoreFailed


@pytest.fixture
def world() -> World:
    return World()


def texts(live: LiveSession) -> list[str]:
    """The ids of the committed messages, which are their texts."""
    return [str(event.data["id"]) for event in live.events if isinstance(event.data, dict)]


async def test_a_commit_is_visible_when_it_returns(autojump_clock: MockClock, world: World) -> None:
    await trio.sleep(7)
    async with world.sessions.create() as live:
        events = await live.commit(message("a"), message("b"))
        assert tuple(live.events) == events
    assert [(event.seq, event.time) for event in events] == [(0, 7000), (1, 7000)]


async def test_a_commit_of_nothing_changes_nothing(autojump_clock: MockClock, world: World) -> None:
    async with world.sessions.create() as live:
        before = world.sessions.commits.value
        assert await live.commit() == ()
        assert world.sessions.commits.value == before
        assert not live.statistics().window_open


async def test_a_commit_copies_what_it_is_given(autojump_clock: MockClock, world: World) -> None:
    async with world.sessions.create() as live:
        data = user_data("a")
        await live.commit(EventDraft("user/message", data, surface_op="append"))
        data["id"] = "changed"
        assert live.events[0].data == user_data("a")


async def test_a_lone_surrogate_survives_a_commit(autojump_clock: MockClock, world: World) -> None:
    async with world.sessions.create() as live:
        await live.commit(message("broken \ud800 text"))
        assert live.events[0].data == user_data("broken \ud800 text", "broken \ud800 text")


async def test_a_view_of_the_log_never_grows(autojump_clock: MockClock, world: World) -> None:
    async with world.sessions.create() as live:
        await live.commit(message("a"), message("b"))
        view = live.events
        await live.commit(replacement(0, 1, 0, 1))
        assert len(view) == 2
        assert [event.seq for event in view] == [0, 1]
        assert view[-1].seq == 1
        assert view[::-1] == (view[1], view[0])
        with pytest.raises(IndexError):
            view[2]
        assert len(live.events) == 3


async def test_a_replacement_takes_its_range_off_the_surface(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.sessions.create() as live:
        await live.commit(message("a"), message("b"), message("c"), replacement(0, 1, 0, 1))
        assert live.surface == (3, 2)


async def test_the_newest_title_counts(autojump_clock: MockClock, world: World) -> None:
    async with world.sessions.create() as live:
        assert live.title is None
        await live.commit(title("first"), title("second"))
        assert live.title is not None
        assert (live.title.title, live.title.event_seq) == ("second", 1)


OTHER_STREAM: dict[str, object] = {
    **assistant_data(text("x")),
    "stream": [{"type": "text-chunks", "time0": 0, "index": 0, "dt": [], "texts": ["y"]}],
}

WRONG_DRAFTS = {
    "unknown type": (EventDraft("own/type", {}), UnsupportedFormat),
    "message without surface marker": (EventDraft("user/message", user_data("x")), SurfaceError),
    "marker on a structural event": (
        EventDraft("turn/start", {"turn": 1}, surface_op="append"),
        SurfaceError,
    ),
    "replacement of nothing": (replacement(5, 6, 5, 6), SurfaceError),
    "not a number": (EventDraft("session/title", {"title": float("nan")}), InvalidJson),
    "not JSON": (EventDraft("session/title", {"title": object()}), InvalidJson),
    "assistant message that its stream does not rebuild": (
        EventDraft("assistant/message", OTHER_STREAM, surface_op="append"),
        ReplayError,
    ),
    "inherited marker": (EventDraft("session/end-seed", {"inherited": True}), ReplayError),
    "type that is no text": (EventDraft(7, {}), ReplayError),  # type: ignore[arg-type]
    "marker that is no operation": (
        EventDraft("user/message", user_data("x"), surface_op="prepend"),  # type: ignore[arg-type]
        ReplayError,
    ),
    "sources that are no numbers": (
        EventDraft(
            "user/message",
            user_data("x"),
            surface_op="append",
            source_event_seqs=("0",),  # type: ignore[arg-type]
        ),
        ReplayError,
    ),
    "ignorable that is no bool": (
        EventDraft("own/type", {}, ignorable=1),  # type: ignore[arg-type]
        ReplayError,
    ),
    "no draft at all": ({"type": "user/message"}, ReplayError),
}


@pytest.mark.parametrize("name", WRONG_DRAFTS)
async def test_a_refused_draft_leaves_the_log_untouched(
    autojump_clock: MockClock, world: World, name: str
) -> None:
    wrong, cause = WRONG_DRAFTS[name]
    async with world.sessions.create() as live:
        await live.commit(message("a"), title("before"))
        before = (live.length, live.surface, live.title)
        announced = world.sessions.commits.value
        with pytest.raises(LiveSessionError, match="draft 3 of 3 is refused") as refusal:
            await live.commit(replacement(0, 0, 0), title("after"), wrong)  # type: ignore[arg-type]
        assert refusal.value.code is LiveErrorCode.INVALID_DRAFT
        assert isinstance(refusal.value.__cause__, cause)
        assert (live.length, live.surface, live.title) == before
        assert world.sessions.commits.value == announced
        await live.commit(replacement(0, 0, 0), title("after"))
        validate_log(live.header, live.events)


async def test_an_unknown_event_that_may_be_ignored_is_accepted(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.sessions.create() as live:
        (event,) = await live.commit(EventDraft("own/type", {"x": 1}, ignorable=True))
        assert event.ignorable


DRAFTS = st.one_of(
    st.sampled_from(["a", "b", "c"]).map(message),
    st.sampled_from(["t", "u"]).map(title),
    st.tuples(st.integers(0, 6), st.integers(0, 6)).map(
        lambda ends: replacement(min(ends), max(ends), *range(min(ends), max(ends) + 1))
    ),
    st.just(EventDraft("own/type", {})),
)


@given(batches=st.lists(st.lists(DRAFTS, max_size=4), max_size=6))
@settings(max_examples=60, deadline=None)
def test_what_was_accepted_is_a_valid_log_and_reaches_the_store_as_it_is(
    batches: list[list[EventDraft]],
) -> None:
    async def main() -> None:
        world = World()
        accepted: list[str] = []
        async with world.sessions.create(id="s") as live:
            for batch in batches:
                with suppress(LiveSessionError):
                    accepted += [event.type for event in await live.commit(*batch)]
            assert [event.type for event in live.events] == accepted
            validate_log(live.header, live.events)
        assert world.store.stored("s") == tuple(live.events)
        world.assert_quiet()

    trio.run(main, clock=MockClock(autojump_threshold=0))


async def test_batches_of_several_tasks_do_not_mix(autojump_clock: MockClock, world: World) -> None:
    async with world.sessions.create() as live:

        async def commit(name: str) -> None:
            for _ in range(5):
                await live.commit(message(name), message(name))

        async with trio.open_nursery() as nursery:
            for name in "abc":
                nursery.start_soon(commit, name)
        written = texts(live)
    assert written[::2] == written[1::2]
    assert sorted(written) == ["a"] * 10 + ["b"] * 10 + ["c"] * 10


async def test_a_cancelled_commit_that_has_not_begun_is_withdrawn(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.sessions.create() as live:
        with trio.CancelScope() as scope:
            scope.cancel()
            await live.commit(message("a"))
        assert scope.cancelled_caught
        await wait_all_tasks_blocked()
        assert live.length == 0


async def test_a_commit_is_written_when_its_window_ends_and_later_ones_join(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.sessions.create(id="s") as live:
        await live.commit(message("a"))
        await trio.sleep(0.15)
        await live.commit(message("b"))
        await trio.sleep(0.04)
        assert world.store.batches == []
        await trio.sleep(0.02)
        assert world.store.batches == [2]
        stored = world.store.stat("s")
        assert stored is not None
        assert live.stored == Stored(stored.revision, 2)


async def test_nothing_is_scheduled_while_there_is_nothing_to_write(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.sessions.create() as live:
        tasks = trio.lowlevel.current_statistics().tasks_living
        await live.commit(message("a"))
        assert live.statistics().window_open
        assert trio.lowlevel.current_statistics().tasks_living == tasks + 1
        await trio.sleep(1)
        assert not live.statistics().window_open
        assert trio.lowlevel.current_statistics().tasks_living == tasks


async def test_a_session_that_is_not_durable_schedules_nothing(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.sessions.create(id="s", durable=False) as live:
        await live.commit(message("a"))
        assert not live.durable
        assert not live.statistics().window_open
        await live.flush()
    assert world.store.sweep().snapshots == ()


async def test_batches_are_bounded(
    autojump_clock: MockClock, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_behind, "BATCH_EVENTS", 3)
    async with world.sessions.create(id="s") as live:
        await live.commit(*(message(str(number)) for number in range(8)))
        await live.flush()
        assert world.store.batches == [3, 3, 2]
        assert world.store.stored("s") == tuple(live.events)


async def test_a_commit_does_not_wait_for_the_store(
    autojump_clock: MockClock, world: World
) -> None:
    world.runtime.pace = lasting(10)
    async with world.sessions.create() as live:
        await live.commit(message("a"))
        await trio.sleep(0.3)
        begin = trio.current_time()
        await live.commit(message("b"))
        assert trio.current_time() == begin
        assert (live.length, live.stored.length) == (2, 0)
        world.runtime.pace = lasting(0)
        await live.flush()


async def test_events_that_arrive_during_a_write_are_written_after_another_window(
    autojump_clock: MockClock,
    world: World,
) -> None:
    async with world.sessions.create() as live:
        world.runtime.pace = lasting(1)
        await live.commit(message("a"))
        await trio.sleep(0.5)
        await live.commit(message("b"))
        await trio.sleep(1.8)
        assert world.store.batches == [1]
        await trio.sleep(0.2)
        assert world.store.batches == [1, 1]


async def test_a_failed_background_write_warns_and_waits_to_be_asked(
    autojump_clock: MockClock, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.store.append_failures.append(StoreFailed("disk full"))
    async with world.sessions.create(id="s") as live:
        with caplog.at_level(logging.WARNING, "session_query"):
            await live.commit(message("a"), message("b"))
            await trio.sleep(60)
        assert "2 of 2 events are not stored: disk full" in caplog.text
        assert world.store.batches == []
        await live.flush()
        assert world.store.batches == [2]
        assert world.store.stored("s") == tuple(live.events)


async def test_a_commit_after_a_failed_write_tries_again_in_order(
    autojump_clock: MockClock, world: World
) -> None:
    world.store.append_failures.append(StoreFailed("disk full"))
    async with world.sessions.create(id="s") as live:
        await live.commit(message("a"))
        await trio.sleep(60)
        await live.commit(message("b"))
        await trio.sleep(1)
        assert world.store.stored("s") == tuple(live.events)
        assert texts(live) == ["a", "b"]


async def test_a_flush_covers_what_was_committed_before_it(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.sessions.create(id="s") as live:
        await live.commit(message("a"), message("b"))
        begin = trio.current_time()
        await live.flush()
        assert trio.current_time() == begin
        assert world.store.stored("s") == tuple(live.events)
        assert live.statistics().pending == 0


async def test_a_flush_of_an_empty_session_makes_it_visible(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.sessions.create(id="s") as live:
        assert world.store.stat("s") is None
        await live.flush()
        stored = world.store.stat("s")
        assert stored is not None
        assert live.stored == Stored(stored.revision, 0)


async def test_a_failed_flush_says_how_much_is_not_stored_and_the_next_one_retries(
    autojump_clock: MockClock,
    world: World,
) -> None:
    async with world.sessions.create(id="s") as live:
        await live.commit(message("a"))
        await live.flush()
        await live.commit(message("b"), message("c"))
        world.store.append_failures.append(StoreFailed("disk full"))
        with pytest.raises(LiveSessionError, match="2 of 3 events are not stored") as failure:
            await live.flush()
        assert failure.value.code is LiveErrorCode.NOT_STORED
        assert isinstance(failure.value.__cause__, StoreFailed)
        assert live.stored.length == 1
        await live.flush()
        assert world.store.stored("s") == tuple(live.events)


async def test_flushes_side_by_side_write_every_event_once(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.sessions.create(id="s") as live:
        world.runtime.pace = lasting(1)
        async with trio.open_nursery() as nursery:
            for name in "abc":
                await live.commit(message(name))
                nursery.start_soon(live.flush)
        assert world.store.stored("s") == tuple(live.events)
        assert sum(world.store.batches) == 3


async def test_a_cancelled_flush_awaits_the_write_that_has_begun(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.sessions.create(id="s") as live:
        await live.commit(message("a"))
        world.runtime.pace = lasting(3)
        begin = trio.current_time()
        with trio.move_on_after(1):
            await live.flush()
        assert trio.current_time() == begin + 3
        assert world.runtime.calls == 0
        assert live.stored.length == 1


async def test_a_cancelled_flush_that_fails_raises_the_cancellation(
    autojump_clock: MockClock, world: World
) -> None:
    world.store.append_failures.append(StoreFailed("disk full"))
    async with world.sessions.create(id="s") as live:
        await live.commit(message("a"))
        world.runtime.pace = lasting(3)
        with trio.move_on_after(1) as scope, pytest.raises(trio.Cancelled):
            await live.flush()
        assert scope.cancel_called


async def test_leaving_stores_what_is_left(autojump_clock: MockClock, world: World) -> None:
    async with world.sessions.create(id="s") as live:
        await live.commit(message("a"))
    assert world.store.stored("s") == tuple(live.events)
    world.assert_quiet()


async def test_a_session_without_events_leaves_nothing_in_the_store(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.sessions.create(id="s"):
        pass
    assert world.store.stat("s") is None
    world.assert_quiet()


async def test_a_cancelled_block_stores_what_is_left(
    autojump_clock: MockClock, world: World
) -> None:
    world.runtime.pace = lasting(1)
    with trio.move_on_after(2) as scope:
        async with world.sessions.create(id="s") as live:
            await trio.sleep(0.9)
            await live.commit(message("a"))
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert world.store.stored("s") == tuple(live.events)
    world.assert_quiet()


async def test_what_the_block_raises_leaves_it_bare_after_the_drain(
    autojump_clock: MockClock, world: World
) -> None:
    with pytest.raises(KeyError):
        async with world.sessions.create(id="s") as live:
            await live.commit(message("a"))
            raise KeyError("mine")
    assert world.store.stored("s") == tuple(live.events)


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_failed_drain_says_what_is_lost_and_gives_up_ownership(
    autojump_clock: MockClock, world: World, cancelled: bool
) -> None:
    world.store.append_failures.append(StoreFailed("disk full"))
    lost = pytest.raises(LiveSessionError, match="1 of 1 events are not stored")
    with lost as failure, trio.CancelScope() as scope:
        async with world.sessions.create(id="s") as live:
            await live.commit(message("a"))
            if cancelled:
                scope.cancel()
                await trio.sleep_forever()
    assert failure.value.code is LiveErrorCode.NOT_STORED
    world.assert_quiet()
    async with world.sessions.create(id="s"):
        pass


async def test_a_closing_session_stays_in_the_registry_and_refuses_work(
    autojump_clock: MockClock, world: World
) -> None:
    world.runtime.pace = lasting(1)
    refused: list[LiveErrorCode] = []

    async with trio.open_nursery() as nursery, world.sessions.create(id="s") as live:
        await live.commit(message("a"))

        async def look_during_the_drain() -> None:
            await trio.sleep(0.5)
            assert world.sessions.get("s") is live
            for work in (lambda: live.commit(message("b")), live.flush):
                with pytest.raises(LiveSessionError) as refusal:
                    await work()
                refused.append(refusal.value.code)

        nursery.start_soon(look_during_the_drain)
        await trio.sleep(0.1)
    assert refused == [LiveErrorCode.NOT_LIVE, LiveErrorCode.NOT_LIVE]
    assert world.sessions.get("s") is None


@pytest.mark.parametrize("begun", ["by the drain", "by the window", "by a flush"])
async def test_a_store_that_hangs_holds_a_closing_session_for_the_close_timeout(
    autojump_clock: MockClock, world: World, begun: str
) -> None:
    hang = Hang("append")
    world.runtime.pace = hang
    flushed: list[LiveErrorCode] = []

    async def flush(live: LiveSession) -> None:
        with pytest.raises(LiveSessionError) as failure:
            await live.flush()
        flushed.append(failure.value.code)

    async with trio.open_nursery() as nursery:
        with pytest.raises(LiveSessionError, match="1 of 1 events are not stored"):
            async with world.sessions.create(id="s") as live:
                await live.commit(message("a"))
                if begun == "by a flush":
                    nursery.start_soon(flush, live)
                    await wait_all_tasks_blocked()
                elif begun == "by the window":
                    await trio.sleep(1)
                left = trio.current_time()
    assert trio.current_time() == left + CLOSE_TIMEOUT
    assert flushed == [LiveErrorCode.NOT_STORED] * (begun == "by a flush")
    assert "s" not in world.sessions.live
    assert world.store.open_handles == 1, "the store is still at work on it"
    hang.over.set()
    await wait_all_tasks_blocked()
    world.assert_quiet()


async def test_commits_that_were_queued_when_the_block_was_left_are_stored_without_a_window(
    autojump_clock: MockClock, world: World
) -> None:
    async def commit(live: LiveSession) -> None:
        with suppress(LiveSessionError):  # it came too late
            await live.commit(message("a"))

    late = 0
    for round_ in range(50):  # in which order tasks take their steps is for Trio to choose
        async with (
            trio.open_nursery() as nursery,
            world.sessions.create(id=str(round_)) as live,
        ):
            for _ in range(3):
                nursery.start_soon(commit, live)
            await trio.lowlevel.checkpoint()
            length = live.length
        late += live.length - length
        assert trio.current_time() == 0
        assert world.store.stored(live.id) == tuple(live.events)
    assert late


async def test_leaving_waits_for_a_flush_that_is_under_way(
    autojump_clock: MockClock, world: World
) -> None:
    async with trio.open_nursery() as nursery, world.sessions.create(id="s") as live:
        world.runtime.pace = lasting(1)
        nursery.start_soon(live.flush)
        await wait_all_tasks_blocked()
    assert world.store.stat("s") is not None
    world.assert_quiet()


async def test_a_crash_of_the_actor_leaves_the_block_with_its_cause_after_the_drain(
    autojump_clock: MockClock, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ZeroDivisionError):
        async with world.sessions.create(id="s") as live:
            await live.commit(message("a"))
            monkeypatch.setattr(FoldedLog, "fold", lambda *_: 1 // 0)
            with pytest.raises(LiveSessionError) as refusal:
                await live.commit(message("b"))
            assert isinstance(refusal.value.__cause__, ActorCrashed)
    assert world.store.stored("s") == tuple(live.events)
    world.assert_quiet()


async def test_a_handle_that_does_not_close_does_not_hold_the_session(
    autojump_clock: MockClock, world: World
) -> None:
    hang = Hang("_close_handle")
    world.runtime.pace = hang
    async with world.sessions.create(id="s") as live:
        await live.commit(message("a"))
        left = trio.current_time()
    assert trio.current_time() == left + CLOSE_TIMEOUT
    assert world.store.stored("s") == tuple(live.events)
    hang.over.set()


async def test_only_some_sessions_write_at_the_same_time(autojump_clock: MockClock) -> None:
    world = World(runtime=InlineRuntime(lasting(1)))
    most = 0

    async def live_once(number: int) -> None:
        nonlocal most
        async with world.sessions.create(id=str(number)) as live:
            await live.commit(message("a"))
            await trio.sleep(0.5)
            most = max(most, world.runtime.calls)

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(live_once, number)
    assert most == 8
    world.assert_quiet()


async def test_turns_are_followed(autojump_clock: MockClock, world: World) -> None:
    async with world.sessions.create() as live:
        await live.commit(turn("start"), message("a"), turn("end"))
        assert [event.type for event in live.events] == ["turn/start", "user/message", "turn/end"]
