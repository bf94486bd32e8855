"""Guest runs: a Trio run moved from outside, alone and under Hypothesis' state machines."""

from __future__ import annotations

import time

import pytest
import trio
from attrs import define
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from session_query.actors.mailbox import Mailbox, Request, running
from session_query.simulations.guest import GuestRun, Job, RunEnded
from session_query.simulations.schedule import Deadlock
from session_query.simulations.traps import Trapped


async def ticks(seen: list[float]) -> None:
    while True:
        await trio.sleep(1)
        seen.append(trio.current_time())


def test_nothing_moves_but_while_it_is_moved() -> None:
    seen: list[float] = []
    with GuestRun() as guest:
        guest.start(ticks, seen)
        guest.settle()
        assert (guest.now, seen) == (0, [])
        guest.advance(2.5)
        assert (guest.now, seen) == (2.5, [1, 2])


def test_a_call_goes_on_until_there_is_an_answer() -> None:
    async def answer(value: int) -> int:
        await trio.sleep(60)
        return value

    with GuestRun() as guest:
        assert guest.call(answer, 7) == 7
        assert guest.now == 60


def test_an_error_of_a_call_is_raised_and_the_run_goes_on() -> None:
    async def fail() -> None:
        raise LookupError("nothing there")

    with GuestRun() as guest:
        with pytest.raises(LookupError, match="nothing there"):
            guest.call(fail)
        guest.advance(1)


def test_an_error_of_a_started_task_ends_the_run_and_is_raised_bare() -> None:
    async def fail() -> None:
        await trio.sleep(1)
        raise LookupError("nothing there")

    with GuestRun() as guest:
        guest.start(fail)
        with pytest.raises(LookupError, match="nothing there"):
            guest.call(trio.sleep, 5)
        assert guest.ended
        with pytest.raises(RunEnded):
            guest.settle()


def test_a_cancelled_job_says_so() -> None:
    with GuestRun() as guest:
        job = guest.start(trio.sleep, 9)
        guest.settle()
        job.cancel()
        assert not job.ended
        guest.settle()
        assert job.cancelled


def test_a_job_keeps_its_value() -> None:
    with GuestRun() as guest:
        job = guest.start(trio.sleep, 1)
        guest.advance(1)
        assert job.answered
        assert not job.cancelled
        assert (job.value, job.value) == (None, None)


def test_a_job_that_goes_on_has_no_value() -> None:
    with GuestRun() as guest:
        job = guest.start(trio.sleep, 9)
        guest.settle()
        with pytest.raises(RuntimeError, match="sleep goes on"):
            assert job.value


def test_a_call_that_can_never_end_is_a_deadlock() -> None:
    with GuestRun() as guest, pytest.raises(Deadlock, match="sleep_forever"):
        guest.call(trio.sleep_forever)


def test_closing_ends_what_runs_and_tells_what_it_raised() -> None:
    async def fail_at_the_end() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise LookupError("left over")

    guest = GuestRun()
    guest.open()
    guest.start(fail_at_the_end)
    guest.settle()
    with pytest.raises(LookupError, match="left over"):
        guest.close()
    guest.close()


def test_the_real_clock_is_trapped_while_the_run_is_moved_and_only_then() -> None:
    async def look() -> float:
        return time.monotonic()

    with GuestRun() as guest:
        with pytest.raises(Trapped, match="now_ms"):
            guest.call(look)
        assert time.monotonic() > 0


@pytest.mark.parametrize("choices", [[0, 0, 0, 0], [1, 1, 1, 1], [2, 2, 2, 2]])
def test_the_tape_decides_who_is_first(choices: list[int]) -> None:
    def first(tape: list[int]) -> str:
        order: list[str] = []

        async def arrive(name: str) -> None:
            await trio.lowlevel.checkpoint()
            order.append(name)

        with GuestRun(tape=tape) as guest:
            for name in "abc":
                guest.start(arrive, name)
            guest.settle()
        return "".join(order)

    assert first(choices) == first(choices)
    assert {first([number] * 9) for number in range(4)} > {"abc"}


# --- a state machine over a mailbox: the way harness authors use it


@define(frozen=True)
class Work(Request[int]):
    seconds: float


@define(eq=False)
class Worker:
    """An actor that takes its time."""

    mailbox: Mailbox
    begun: int = 0

    async def run(self) -> None:
        await self.mailbox.serve(self._handle)

    async def _handle(self, request: Request[object]) -> object:
        assert isinstance(request, Work)
        self.begun += 1
        await trio.sleep(request.seconds)
        return round(request.seconds * 1000)


class MailboxMachine(RuleBasedStateMachine):
    """Asks, cancellations and time in any order, under any schedule."""

    @initialize(tape=st.lists(st.integers(0, 5), max_size=30))
    def begin(self, tape: list[int]) -> None:
        self.guest = GuestRun(tape=tape)
        self.guest.open()
        self.worker = Worker(Mailbox("worker", rank=1, capacity=2))
        self.asked: list[tuple[float, Job[int]]] = []
        self.cancelled = 0
        self.guest.start(self.serve)
        self.guest.settle()

    async def serve(self) -> None:
        async with running(self.worker):
            await trio.sleep_forever()

    @rule(seconds=st.sampled_from([0.0, 0.5, 2.0]))
    def ask(self, seconds: float) -> None:
        self.asked.append((seconds, self.guest.start(self.worker.mailbox.ask, Work(seconds))))

    @rule(seconds=st.sampled_from([0.0, 0.5, 3.0]))
    def advance(self, seconds: float) -> None:
        self.guest.advance(seconds)

    @rule(at=st.integers(0, 9))
    def cancel(self, at: int) -> None:
        if at < len(self.asked):
            self.asked[at][1].cancel()
            self.guest.settle()
            assert self.asked[at][1].ended, "who is cancelled does not wait for others"

    @invariant()
    def every_answer_belongs_to_its_question(self) -> None:
        for seconds, job in getattr(self, "asked", []):
            if job.answered:
                assert job.value == round(seconds * 1000)

    def teardown(self) -> None:
        if not hasattr(self, "guest"):
            return
        try:
            self.guest.advance(60)
            assert all(job.ended for _, job in self.asked)
            answered = sum(job.answered for _, job in self.asked)
            assert answered <= self.worker.begun <= len(self.asked)
        finally:
            self.guest.close()


TestMailboxMachine = MailboxMachine.TestCase
TestMailboxMachine.settings = settings(max_examples=30, stateful_step_count=15)
