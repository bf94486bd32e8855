"""The fence around Trio's scheduler: its private names, its policies, and runs that are stuck."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio._core import _run

from session_query.simulations.clock import virtual_clock
from session_query.simulations.policies import POLICIES, Policy, Priorities, Tape, fair, uniform
from session_query.simulations.schedule import (
    Deadlock,
    Schedule,
    StepBudgetExceeded,
    installed,
    unheard,
)
from session_query.simulations.verdict import root_error

STEPS = 6


def run(schedule: Schedule, main: Callable[[], object]) -> None:
    with installed(schedule):
        trio.run(main, clock=virtual_clock())  # type: ignore[arg-type]


def order(policy: Policy, tasks: int = 4) -> str:
    """In which order tasks that only take steps take them, one letter a step."""
    steps: list[str] = []

    async def walk(name: str) -> None:
        for _ in range(STEPS):
            steps.append(name)
            await trio.lowlevel.checkpoint()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for name in "abcdefgh"[:tasks]:
                nursery.start_soon(walk, name)

    run(Schedule(policy), main)
    return "".join(steps)


def greatest_lead(policy: Policy) -> int:
    """How many steps one of two tasks takes while the other takes one of its own."""
    steps = order(policy, 2)
    return max(map(len, steps.replace("b", " ").split()))


def test_trio_still_has_the_names_that_the_fence_replaces() -> None:
    assert _run._ALLOW_DETERMINISTIC_SCHEDULING in (True, False)
    assert callable(_run._r.shuffle)

    async def main() -> None:
        assert _run.GLOBAL_RUN_CONTEXT.runner.runq is not None

    trio.run(main)


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_a_seed_gives_one_order_and_different_seeds_give_different_ones(name: str) -> None:
    orders = [order(POLICIES[name](random.Random(seed))) for seed in range(20)]
    assert orders == [order(POLICIES[name](random.Random(seed))) for seed in range(20)]
    assert len(set(orders)) > 10


def test_the_fair_policy_gives_each_task_one_step_a_round() -> None:
    steps = order(fair(random.Random(1)))
    assert all(set(steps[at : at + 4]) == set("abcd") for at in range(0, len(steps), 4))


def test_single_steps_let_a_task_fall_behind() -> None:
    assert max(greatest_lead(fair(random.Random(seed))) for seed in range(20)) <= 2
    assert max(greatest_lead(uniform(random.Random(seed))) for seed in range(20)) >= 4
    assert max(greatest_lead(Priorities(random.Random(seed))) for seed in range(20)) == STEPS


def test_strict_priorities_do_not_starve_whom_a_polling_loop_waits_for() -> None:
    async def main() -> None:
        ready = trio.Event()

        async def poll() -> None:
            while not ready.is_set():
                await trio.lowlevel.checkpoint()

        async def come() -> None:
            await trio.lowlevel.checkpoint()
            ready.set()

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(poll)
            nursery.start_soon(come)

    for seed in range(10):
        run(Schedule(Priorities(random.Random(seed))), main)


@given(choices=st.lists(st.integers(0, 9), max_size=12))
@settings(max_examples=25)
def test_a_tape_decides_and_then_rounds_are_fair(choices: list[int]) -> None:
    assert order(Tape(choices)) == order(Tape(choices))
    assert order(Tape([])) == "abcd" * STEPS


def test_a_first_choice_of_the_tape_lets_that_task_begin() -> None:
    begun = {order(Tape([0] * 2 + [choice] * 3))[0] for choice in range(6)}
    assert len(begun) > 1


def test_a_deadlock_is_named_with_where_each_task_waits() -> None:
    schedule = Schedule(fair(random.Random(0)))

    async def main() -> None:
        with trio.CancelScope() as scope:
            schedule.stop = scope.cancel
            await wait_for_nothing()

    run(schedule, main)
    assert isinstance(schedule.failure, Deadlock)
    assert "wait_for_nothing:" in str(schedule.failure)


def test_a_deadlock_that_refuses_to_be_cancelled_ends_the_run_all_the_same() -> None:
    schedule = Schedule(fair(random.Random(0)))

    async def main() -> None:
        with trio.CancelScope(shield=True) as scope:
            schedule.stop = scope.cancel
            await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.FAILED)

    escaped: BaseException | None = None
    try:
        run(schedule, main)
    except trio.TrioInternalError as error:
        escaped = error
    with unheard():
        assert escaped is not None
        assert isinstance(root_error(escaped), Deadlock)
        escaped = schedule.stop = None


def test_who_waits_for_a_time_is_not_stuck() -> None:
    schedule = Schedule(fair(random.Random(0)))

    async def main() -> None:
        await trio.sleep(10_000)

    run(schedule, main)
    assert schedule.failure is None


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_steps_without_end_are_noticed(name: str) -> None:
    schedule = Schedule(POLICIES[name](random.Random(0)), budget=500)

    async def spin() -> None:
        while True:
            await trio.lowlevel.checkpoint()

    async def main() -> None:
        with trio.CancelScope() as scope:
            schedule.stop = scope.cancel
            await spin()

    run(schedule, main)
    assert isinstance(schedule.failure, StepBudgetExceeded)
    assert "main" in str(schedule.failure)


def test_trio_has_its_own_again_afterwards() -> None:
    before = _run._r, _run._ALLOW_DETERMINISTIC_SCHEDULING
    order(fair(random.Random(0)))
    assert (_run._r, _run._ALLOW_DETERMINISTIC_SCHEDULING) == before


async def wait_for_nothing() -> None:
    await trio.Event().wait()
