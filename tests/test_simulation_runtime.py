"""The simulated runtime keeps the contract of runtimes, whatever it draws."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime_contract import Interrupted, RuntimeContract
from test_actor_runtime import GatedWork, pace_of_work

from session_query.simulations.clock import EPOCH_NS, WallClock, virtual_clock
from session_query.simulations.latency import Latency, Pacing
from session_query.simulations.runtime import SimulatedRuntime, Wait, lasting
from session_query.simulations.streams import Streams


class TestSeededRuntime(RuntimeContract):
    """With the paces of a world, but for work whose length the test decides.

    The prompt one, which other tests rely on, stands beside the real one in its own tests.
    """

    def build(self) -> SimulatedRuntime:
        pacing = Pacing(Streams(1).stream("latency"), lambda: 0.0)

        def before(fn: Callable[..., object]) -> Wait:
            gated = isinstance(getattr(fn, "__self__", None), GatedWork)
            return pace_of_work(fn) if gated else pacing.before(fn)

        return SimulatedRuntime(before, pacing.after)

    def work(self) -> GatedWork:
        return GatedWork()

    @pytest.fixture(autouse=True)
    def _virtual_time(self, autojump_clock: trio.testing.MockClock) -> None:
        """What takes virtual time needs a clock that jumps."""


@given(cancel_after=st.floats(0, 3), lands=st.booleans(), lingers=st.booleans())
@settings(max_examples=60)
def test_a_call_has_its_effect_before_its_caller_leaves(
    cancel_after: float, lands: bool, lingers: bool
) -> None:
    """Wherever the cancellation meets it, before, at or after the effect."""
    effects: list[float] = []
    interrupts: list[bool] = []

    def take_effect() -> str:
        effects.append(trio.current_time())
        if interrupts:
            raise Interrupted
        return "done"

    async def main() -> None:
        runtime = SimulatedRuntime(lasting(1), lasting(1) if lingers else None, lands=lambda: lands)
        answer: str | None = None
        with trio.move_on_after(cancel_after) as scope:
            answer = await runtime.call(take_effect, interrupt=lambda: interrupts.append(True))
        end = trio.current_time()
        if effects:
            assert runtime.calls == 0
            assert end == (2 if lingers else 1)
            assert len(effects) == 1
        assert len(interrupts) <= 1
        seen = bool(interrupts) and lands and cancel_after <= 1
        assert (answer == "done") == (bool(effects) and not seen)
        assert scope.cancelled_caught == (answer is None)

    trio.run(main, clock=virtual_clock())


def test_an_interrupt_may_come_too_late() -> None:
    steps: list[str] = []

    async def main() -> None:
        runtime = SimulatedRuntime(lasting(1), lands=lambda: False)
        with trio.move_on_after(0.5):
            await runtime.call(steps.append, "effect", interrupt=lambda: steps.append("interrupt"))

    trio.run(main, clock=virtual_clock())
    assert steps == ["effect", "interrupt"]


def test_a_hang_is_drawn_and_slow_operations_are_waited_for() -> None:
    async def main() -> None:
        pacing = Pacing(
            Streams(1).stream("latency"),
            lambda: 3.0,
            Latency(longest=0, hang=1.0, hang_seconds=2.0),
        )
        await SimulatedRuntime(pacing.before, pacing.after).call(divmod, 7, 2)
        assert trio.current_time() == 5.0

    trio.run(main, clock=virtual_clock())


def test_the_calls_of_a_crashed_process_take_no_time() -> None:
    async def main() -> None:
        pacing = Pacing(Streams(1).stream("latency"), lambda: 3.0, dead=True)
        await SimulatedRuntime(pacing.before, pacing.after).call(divmod, 7, 2)
        assert trio.current_time() == 0

    trio.run(main, clock=virtual_clock())


def test_the_wall_clock_goes_with_virtual_time_and_can_be_set() -> None:
    virtual = virtual_clock()
    wall = WallClock(virtual)
    assert wall.now_ns() == EPOCH_NS
    virtual.jump(1.5)
    wall.set_by(-500)
    assert wall.now_ms() == EPOCH_NS // 1_000_000 + 1000


def test_every_call_is_observed() -> None:
    seen: list[str] = []

    async def main() -> None:
        runtime = SimulatedRuntime(observe=lambda moment, fn: seen.append(moment))
        await runtime.call(divmod, 7, 2)

    trio.run(main, clock=virtual_clock())
    assert seen == ["begin", "effect"]


def test_streams_are_independent_and_repeat() -> None:
    first, again = Streams(1), Streams(1)
    again.stream("other").random()
    assert [first.stream("a").random() for _ in range(3)] == [
        again.stream("a").random() for _ in range(3)
    ]
    assert first.stream("a").random() != first.stream("b").random()
    assert Streams(2).stream("a").random() != Streams(1).stream("a").random()
