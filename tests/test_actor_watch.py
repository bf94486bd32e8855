"""Watches: values that only grow, and nobody who waits is forgotten or left behind."""

from __future__ import annotations

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock, assert_checkpoints, wait_all_tasks_blocked

from session_query.actors.watch import Watch, WatchClosed


async def test_a_value_that_was_reached_before_is_returned_after_a_checkpoint() -> None:
    watch = Watch(7)
    with assert_checkpoints():
        assert await watch.reached(3) == 7


async def test_a_waiter_wakes_when_its_target_is_reached_and_not_before() -> None:
    watch = Watch()
    seen: list[int] = []

    async def wait() -> None:
        seen.append(await watch.reached(5))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        watch.publish(4)
        await wait_all_tasks_blocked()
        assert seen == []
        watch.publish(9)
    assert seen == [9]


async def test_changed_waits_for_the_next_value() -> None:
    watch = Watch(2)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch.changed, 2)
        await wait_all_tasks_blocked()
        assert watch.statistics().tasks_waiting == 1
        watch.advance()
    assert watch.value == 3


async def test_publishing_the_same_value_wakes_nobody() -> None:
    watch = Watch(2)
    with trio.move_on_after(60) as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch.changed, 2)
            await wait_all_tasks_blocked()
            watch.publish(2)
            await wait_all_tasks_blocked()
            assert watch.statistics().tasks_waiting == 1
            scope.cancel()


async def test_a_value_cannot_go_back() -> None:
    watch = Watch(2)
    with pytest.raises(ValueError, match="cannot go back from 2 to 1"):
        watch.publish(1)
    assert watch.value == 2


async def test_the_last_waiter_who_gives_up_leaves_nothing_behind() -> None:
    watch = Watch()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch.reached, 5)
        nursery.start_soon(watch.reached, 5)
        await wait_all_tasks_blocked()
        assert watch.statistics().targets == 1
        nursery.cancel_scope.cancel()
    assert watch.statistics().targets == 0


async def test_whoever_waits_at_a_closed_watch_is_told_and_nobody_hangs() -> None:
    watch = Watch(3)
    told: list[int] = []

    async def wait(target: int) -> None:
        with pytest.raises(WatchClosed, match=f"closed at 3, before {target} was reached"):
            await watch.reached(target)
        told.append(target)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, 4)
        nursery.start_soon(wait, 9)
        await wait_all_tasks_blocked()
        watch.close()
    await wait(5)
    assert sorted(told) == [4, 5, 9]
    assert watch.statistics().targets == 0


async def test_what_was_reached_before_a_close_is_returned_and_publishing_goes_on() -> None:
    watch = Watch(3)
    watch.close()
    assert await watch.reached(3) == 3
    watch.advance()
    assert await watch.reached(4) == 4


async def test_a_slow_subscriber_sees_the_newest_value_and_no_backlog(
    autojump_clock: MockClock,
) -> None:
    watch = Watch()
    seen: list[int] = []

    async def subscribe() -> None:
        while watch.value < 30 or seen[-1] < 30:
            seen.append(await watch.changed(seen[-1] if seen else 0))
            await trio.sleep(1)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(subscribe)
        for value in range(1, 31):
            await trio.sleep(0.099)
            watch.publish(value)
    assert seen == [1, 11, 21, 30]


@given(
    waiters=st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 9), st.none() | st.integers(0, 6)), max_size=8
    ),
    steps=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4)), max_size=6),
)
@settings(max_examples=200, deadline=None)
def test_no_wake_up_is_lost_and_no_waiter_is_left(
    waiters: list[tuple[int, int, int | None]], steps: list[tuple[int, int]]
) -> None:
    watch = Watch()
    reached_at: dict[int, float] = {}

    async def wait(arrives: int, target: int, patience: int | None) -> None:
        await trio.sleep(arrives)
        begin = trio.current_time()
        with trio.CancelScope() as scope:
            if patience is not None:
                scope.deadline = begin + patience + 0.5
            assert await watch.reached(target) >= target
            assert trio.current_time() == max(begin, reached_at.get(target, 0))
        if scope.cancelled_caught:
            assert watch.value < target

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for waiter in waiters:
                nursery.start_soon(wait, *waiter)
            for pause, growth in steps:
                await trio.sleep(pause)
                for target in range(watch.value + 1, watch.value + growth + 1):
                    reached_at[target] = trio.current_time()
                watch.publish(watch.value + growth)
            await trio.sleep(100)
            unreached = [target for _, target, patience in waiters if patience is None]
            await wait_all_tasks_blocked()
            assert watch.statistics().tasks_waiting == sum(t > watch.value for t in unreached)
            nursery.cancel_scope.cancel()

    trio.run(main, clock=MockClock(autojump_threshold=0))
    assert watch.statistics().targets == 0
