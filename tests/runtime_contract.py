"""What every runtime promises. Subclass ``RuntimeContract`` and say how to build one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol

import pytest
import trio
from attrs import define, field
from trio.testing import assert_checkpoints, wait_all_tasks_blocked

from session_query.actors.runtime import Runtime, TwoParts, nothing


class Interrupted(Exception):
    """Work was broken off."""


class Work(Protocol):
    """Blocking work whose length the test decides."""

    def do(self) -> str:
        """Be at work until ``finish`` (return ``"done"``) or ``interrupt`` (``Interrupted``)."""

    def finish(self) -> None:
        """Let ``do`` return."""

    def interrupt(self) -> None:
        """Let ``do`` raise."""

    async def begun(self) -> None:
        """Wait until ``do`` is at work."""

    @property
    def ended(self) -> bool:
        """Whether ``do`` has returned or raised."""


@define
class Call:
    """One call in a task of its own, which the test may cancel."""

    scope: trio.CancelScope = field(factory=trio.CancelScope)
    left: trio.Event = field(factory=trio.Event)
    value: str | None = None
    error: BaseException | None = None

    async def make(self, runtime: Runtime, work: Work, *, interruptible: bool) -> None:
        interrupt = work.interrupt if interruptible else None
        with self.scope:
            try:
                self.value = await runtime.call(work.do, interrupt=interrupt)
            except BaseException as error:
                self.error = error
                raise
            finally:
                self.left.set()


class RuntimeContract(ABC):
    """The promises. A subclass is collected by pytest under a name that begins with ``Test``."""

    @abstractmethod
    def build(self) -> Runtime:
        """A fresh runtime."""

    @abstractmethod
    def work(self) -> Work:
        """Fresh work for it."""

    async def test_a_call_returns_the_value_and_is_a_checkpoint(self) -> None:
        with assert_checkpoints():
            assert await self.build().call(divmod, 17, 5) == (3, 2)

    async def test_a_call_raises_what_the_function_raises(self) -> None:
        with pytest.raises(ZeroDivisionError):
            await self.build().call(divmod, 17, 0)

    async def test_a_call_that_is_cancelled_before_it_starts_never_starts(self) -> None:
        started: list[int] = []
        with trio.CancelScope() as scope:
            scope.cancel()
            await self.build().call(started.append, 1)
        assert scope.cancelled_caught
        assert started == []

    async def test_a_call_that_waits_for_its_limiter_is_withdrawn(self) -> None:
        runtime, limiter, started = self.build(), trio.CapacityLimiter(1), list[int]()
        async with limiter, trio.open_nursery() as nursery:

            async def call() -> None:
                await runtime.call(started.append, 1, limiter=limiter)

            nursery.start_soon(call)
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        assert started == []

    async def test_a_call_holds_its_limiter_while_it_runs(self) -> None:
        runtime, limiter, work = self.build(), trio.CapacityLimiter(1), self.work()

        async def call() -> None:
            await runtime.call(work.do, limiter=limiter)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            await work.begun()
            assert limiter.borrowed_tokens == 1
            work.finish()
        assert limiter.borrowed_tokens == 0

    async def test_a_cancelled_call_is_interrupted_and_awaited(self) -> None:
        runtime, work, call = self.build(), self.work(), Call()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: call.make(runtime, work, interruptible=True))
            await work.begun()
            call.scope.cancel()
            await call.left.wait()
            assert work.ended
        assert isinstance(call.error, trio.Cancelled)
        assert isinstance(call.error.__context__, Interrupted)

    async def test_a_cancelled_call_without_interrupt_is_awaited_and_its_value_wins(self) -> None:
        runtime, work, call = self.build(), self.work(), Call()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: call.make(runtime, work, interruptible=False))
            await work.begun()
            call.scope.cancel()
            await some_steps()
            assert not call.left.is_set()
            work.finish()
        assert call.value == "done"

    async def test_a_call_in_two_hands_over_between_its_parts(self) -> None:
        runtime, work, steps = self.build(), self.work(), list[str]()

        def second(value: str) -> str:
            steps.append("second")
            return f"{value} twice"

        async def call() -> None:
            steps.append(
                await runtime.call_in_two(
                    TwoParts(work.do, second, lambda: steps.append("between"), NO_ONE)
                )
            )

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            await work.begun()
            assert steps == []
            work.finish()
        # The second part may have begun before the Trio thread hears of the first.
        assert sorted(steps[:2]) == ["between", "second"]
        assert steps[2:] == ["done twice"]

    async def test_a_call_in_two_is_handed_over_while_its_second_part_runs(self) -> None:
        runtime, work, handed_over = self.build(), self.work(), trio.Event()

        async def call() -> None:
            await runtime.call_in_two(TwoParts(lambda: None, Second(work), handed_over.set, NO_ONE))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            await work.begun()
            await handed_over.wait()
            assert not work.ended
            work.finish()

    async def test_a_call_in_two_whose_first_part_fails_is_handed_over_and_ends(self) -> None:
        runtime, steps = self.build(), list[str]()
        with pytest.raises(ZeroDivisionError):
            await runtime.call_in_two(
                TwoParts(
                    lambda: 1 // 0,
                    lambda _: steps.append("second"),
                    lambda: steps.append("between"),
                    NO_ONE,
                )
            )
        assert steps == ["between"]

    async def test_a_call_in_two_that_is_cancelled_before_it_starts_never_starts(self) -> None:
        runtime, steps = self.build(), list[str]()
        with trio.CancelScope() as scope:
            scope.cancel()
            await runtime.call_in_two(
                TwoParts(
                    lambda: steps.append("first"),
                    lambda _: steps.append("second"),
                    lambda: steps.append("between"),
                    NO_ONE,
                )
            )
        assert scope.cancelled_caught
        assert steps == []

    @pytest.mark.parametrize("interruptible", [True, False])
    async def test_a_call_in_two_that_is_cancelled_in_its_first_part_has_no_second(
        self, interruptible: bool
    ) -> None:
        runtime, work, steps = self.build(), self.work(), list[str]()
        interrupt = work.interrupt if interruptible else nothing

        async def call() -> None:
            await runtime.call_in_two(
                TwoParts(
                    work.do,
                    lambda _: steps.append("second"),
                    lambda: steps.append("between" if work.ended else "too soon"),
                    (interrupt, nothing),
                )
            )
            steps.append("returned")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            await work.begun()
            nursery.cancel_scope.cancel()
            work.finish()
        assert work.ended
        assert steps == ["between"]

    async def test_a_call_in_two_that_is_cancelled_in_its_second_part_interrupts_that_alone(
        self,
    ) -> None:
        runtime, work, first = self.build(), self.work(), list[str]()
        handed_over = trio.Event()

        async def call() -> None:
            await runtime.call_in_two(
                TwoParts(
                    lambda: None,
                    Second(work),
                    handed_over.set,
                    (lambda: first.append("interrupted"), work.interrupt),
                )
            )

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            await work.begun()
            await handed_over.wait()
            nursery.cancel_scope.cancel()
        assert work.ended
        assert first == []

    async def test_calls_run_side_by_side(self) -> None:
        runtime, first, second = self.build(), self.work(), self.work()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(runtime.call, first.do)
            nursery.start_soon(runtime.call, second.do)
            await first.begun()
            await second.begun()
            second.finish()
            first.finish()

    async def test_an_abandoned_call_is_left_at_once_and_cleaned_up_when_it_ends(self) -> None:
        runtime, work, cleaned = self.build(), self.work(), list[bool]()

        async def call() -> None:
            await runtime.call_or_abandon(work.do, afterwards=lambda: cleaned.append(work.ended))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            await work.begun()
            nursery.cancel_scope.cancel()
        assert not work.ended
        assert not cleaned
        work.finish()
        await until(lambda: bool(cleaned))
        assert cleaned == [True]

    async def test_an_abandonable_call_that_is_awaited_is_not_cleaned_up(self) -> None:
        runtime, cleaned = self.build(), list[int]()

        def clean_up() -> None:
            cleaned.append(1)

        assert await runtime.call_or_abandon(divmod, 17, 5, afterwards=clean_up) == (3, 2)
        with pytest.raises(ZeroDivisionError):
            await runtime.call_or_abandon(divmod, 17, 0, afterwards=clean_up)
        await some_steps()
        assert not cleaned

    async def test_an_abandonable_call_that_never_starts_is_cleaned_up_all_the_same(self) -> None:
        runtime, steps = self.build(), list[str]()
        with trio.CancelScope() as scope:
            scope.cancel()
            await runtime.call_or_abandon(
                steps.append, "started", afterwards=lambda: steps.append("cleaned up")
            )
        await until(lambda: bool(steps))
        assert steps == ["cleaned up"]

    async def test_ids_are_fresh(self) -> None:
        runtime = self.build()
        assert len({runtime.new_id() for _ in range(1000)}) == 1000

    async def test_the_clock_is_in_whole_milliseconds(self) -> None:
        assert type(self.build().now_ms()) is int


NO_ONE = (nothing, nothing)


class Second:
    """The work of a second part, which does not care for what the first returned."""

    def __init__(self, work: Work) -> None:
        self.__self__ = work
        """Whose work it is, for a runtime that only pretends."""

    def __call__(self, _value: object) -> str:
        return self.__self__.do()


async def some_steps() -> None:
    """Let every other task take a few steps."""
    for _ in range(20):
        await trio.lowlevel.checkpoint()


async def until(holds: Callable[[], bool]) -> None:
    """Take steps until something that another thread brings about holds."""
    while not holds():
        await trio.lowlevel.checkpoint()
