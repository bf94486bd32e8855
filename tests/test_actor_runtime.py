"""The production runtime, and the one of the tests, keep the contract of runtimes."""

from __future__ import annotations

import threading
from collections.abc import Callable

import trio
from attrs import define, field
from hypothesis import given, settings
from hypothesis import strategies as st
from inline_runtime import InlineRuntime, Wait, lasting
from runtime_contract import Interrupted, RuntimeContract, until
from trio.testing import wait_all_tasks_blocked

from session_query.actors.runtime import RuntimeStatistics, TrioRuntime


@define(eq=False)
class ThreadWork:
    """Work on a real thread, steered by events."""

    _begun: threading.Event = field(factory=threading.Event)
    _go_on: threading.Event = field(factory=threading.Event)
    _broken_off: bool = False
    ended: bool = False

    def do(self) -> str:
        self._begun.set()
        try:
            assert self._go_on.wait(30), "the test has to end the work"
            if self._broken_off:
                raise Interrupted
            return "done"
        finally:
            self.ended = True

    def finish(self) -> None:
        self._go_on.set()

    def interrupt(self) -> None:
        self._broken_off = True
        self._go_on.set()

    async def begun(self) -> None:
        await until(self._begun.is_set)


class TestTrioRuntime(RuntimeContract):
    def build(self) -> TrioRuntime:
        return TrioRuntime()

    def work(self) -> ThreadWork:
        return ThreadWork()

    async def test_statistics_tell_what_is_under_way_and_what_was_abandoned(self) -> None:
        runtime, work = self.build(), self.work()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.leave, runtime, work)
            await work.begun()
            assert runtime.statistics() == RuntimeStatistics(calls=1, abandoned=0)
            nursery.cancel_scope.cancel()
        assert runtime.statistics() == RuntimeStatistics(calls=0, abandoned=1)
        work.finish()
        await until(lambda: runtime.statistics().abandoned == 0)

    async def leave(self, runtime: TrioRuntime, work: ThreadWork) -> None:
        await runtime.call_or_abandon(work.do, afterwards=work.finish)


@define(eq=False)
class GatedWork:
    """Pretended work of a runtime without threads."""

    _begun: trio.Event = field(factory=trio.Event)
    _go_on: trio.Event = field(factory=trio.Event)
    _broken_off: bool = False
    ended: bool = False

    def do(self) -> str:
        self.ended = True
        if self._broken_off:
            raise Interrupted
        return "done"

    async def pass_time(self) -> None:
        self._begun.set()
        await self._go_on.wait()

    def finish(self) -> None:
        self._go_on.set()

    def interrupt(self) -> None:
        self._broken_off = True
        self._go_on.set()

    async def begun(self) -> None:
        await self._begun.wait()


def pace_of_work(fn: Callable[..., object]) -> Wait:
    work = getattr(fn, "__self__", None)
    return work.pass_time if isinstance(work, GatedWork) else lasting(0)(fn)


class TestInlineRuntime(RuntimeContract):
    """The fake that other tests rely on is held to the same promises."""

    def build(self) -> InlineRuntime:
        return InlineRuntime(pace_of_work)

    def work(self) -> GatedWork:
        return GatedWork()


def test_an_abandoned_call_may_outlive_the_run() -> None:
    runtime, work, ended = TrioRuntime(), ThreadWork(), threading.Event()

    async def call() -> None:
        await runtime.call_or_abandon(work.do, afterwards=ended.set)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            await work.begun()
            nursery.cancel_scope.cancel()

    trio.run(main)
    work.finish()
    assert ended.wait(30)


@given(steps=st.integers(0, 12), interruptible=st.booleans())
@settings(max_examples=60, deadline=None)
def test_nothing_runs_when_a_cancelled_caller_leaves(steps: int, interruptible: bool) -> None:
    """Cancelled after any number of steps, wherever the thread is by then."""
    work = ThreadWork()

    async def call(runtime: TrioRuntime, left: trio.Event) -> None:
        try:
            await runtime.call(work.do, interrupt=work.interrupt if interruptible else None)
        finally:
            assert work.ended or not work._begun.is_set()
            left.set()

    async def main() -> None:
        runtime, left = TrioRuntime(), trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call, runtime, left)
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
            if not interruptible:
                work.finish()
            with trio.CancelScope(shield=True):
                await left.wait()
                await wait_all_tasks_blocked()
            assert runtime.statistics().calls == 0

    trio.run(main)
