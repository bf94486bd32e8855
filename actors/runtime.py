"""What actors need from the world outside Trio: worker threads, the wall clock and fresh ids.

This is the only module that touches any of them, so that a simulation replaces the world by giving
another ``Runtime``. Timers are plain ``trio.sleep``, which a simulation moves with Trio's clock.
Every implementation passes the suite in ``tests/runtime_contract.py``.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Generic, Protocol, TypeVar, TypeVarTuple

import outcome
import trio
from attrs import define, field, frozen
from trio.lowlevel import (
    Abort,
    RaiseCancelT,
    checkpoint_if_cancelled,
    current_task,
    current_trio_token,
    reschedule,
    start_thread_soon,
    wait_task_rescheduled,
)

R = TypeVar("R")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


@frozen
class TwoParts(Generic[T, R]):
    """Blocking work in two parts, between which its caller lets go of something."""

    first: Callable[[], T]
    second: Callable[[T], R]
    """Is given what ``first`` returned."""
    between: Callable[[], None]
    """Called on the Trio thread as soon as ``first`` has ended, however it has, and never where it
    has not started. Must not raise."""
    interrupts: tuple[Callable[[], None], Callable[[], None]]
    """Of the one and of the other, as in ``Runtime.call``."""


class Runtime(Protocol):
    """The world that the actors run in."""

    def now_ms(self) -> int:
        """The wall clock, ms since the epoch."""

    def new_id(self) -> str:
        """An id that no other session has."""

    async def call(
        self,
        fn: Callable[[*Ts], R],
        *args: *Ts,
        interrupt: Callable[[], None] | None = None,
        limiter: trio.CapacityLimiter | None = None,
    ) -> R:
        """Run blocking ``fn`` beside the Trio thread, holding a token of ``limiter``.

        Cancelled before ``fn`` has started, it never starts. Cancelled afterwards, ``interrupt``
        is called once and ``fn`` is *awaited*: when the caller leaves, nothing of the call is
        running. An error of ``fn`` then gives way to the caller's own bare ``Cancelled``; a value
        is returned all the same, because what it stands for has happened, and the next checkpoint
        raises.

        ``interrupt`` is called on the Trio thread, possibly just after ``fn`` has returned, and
        must neither raise nor block.
        """

    async def call_in_two(self, work: TwoParts[T, R]) -> R:
        """As ``call``, for both parts of ``work`` one after the other, in one visit of a thread.

        A cancellation calls the interrupt of the part that it meets, that of the second also where
        the first was just ending. The second does not start after it.
        """

    async def call_or_abandon(
        self, fn: Callable[[*Ts], R], *args: *Ts, afterwards: Callable[[], None]
    ) -> R:
        """Run blocking ``fn`` likewise, but on cancellation leave at once and forget its result.

        ``fn`` goes on. This is for those who must stop waiting for a medium that hangs, and who
        touch nothing from then on that ``fn`` may be using. Where they leave, and only there,
        ``afterwards`` is called on a worker thread as soon as ``fn`` is not running, to clean up.
        """


@frozen
class RuntimeStatistics:
    """What runs beside the Trio thread at this moment."""

    calls: int
    """Calls whose caller waits for them."""
    abandoned: int
    """Calls that nobody waits for and that have not returned yet."""


class _Stopped(Exception):
    """A call in two parts was cancelled during the first."""


def nothing() -> None:
    """Do nothing."""


def _forget(_result: outcome.Outcome[None]) -> None:
    """Deliver a result to nobody."""


@define(eq=False)
class TrioRuntime:
    """The real world: Trio's cached worker threads, the system clock, random UUIDs."""

    _calls: int = field(default=0, init=False)
    _abandoned: int = field(default=0, init=False)

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def new_id(self) -> str:
        return str(uuid.uuid4())

    async def call(
        self,
        fn: Callable[[*Ts], R],
        *args: *Ts,
        interrupt: Callable[[], None] | None = None,
        limiter: trio.CapacityLimiter | None = None,
    ) -> R:
        raise_cancel: RaiseCancelT | None = None

        def keep_waiting(raise_: RaiseCancelT) -> Abort:
            nonlocal raise_cancel
            raise_cancel = raise_
            if interrupt is not None:
                interrupt()
            return Abort.FAILED

        async with nullcontext() if limiter is None else limiter:
            await checkpoint_if_cancelled()
            result = await self._in_thread(partial(fn, *args), keep_waiting)
        try:
            return result.unwrap()
        except Exception:
            if raise_cancel is not None:
                raise_cancel()
            raise

    async def call_in_two(self, work: TwoParts[T, R]) -> R:
        token, passed, stopped = current_trio_token(), False, False

        def interrupt() -> None:
            nonlocal stopped
            stopped = True
            work.interrupts[passed]()

        def hand_over() -> None:
            nonlocal passed
            passed = True
            work.between()
            if stopped:
                # It may have come when the second part had already begun.
                work.interrupts[1]()

        def both() -> R:
            try:
                value = work.first()
            finally:
                token.run_sync_soon(hand_over)
            if stopped:
                raise _Stopped
            return work.second(value)

        return await self.call(both, interrupt=interrupt)

    async def call_or_abandon(
        self, fn: Callable[[*Ts], R], *args: *Ts, afterwards: Callable[[], None]
    ) -> R:
        def leave(_raise: RaiseCancelT) -> Abort:
            self._abandoned += 1
            return Abort.SUCCEEDED

        def orphaned() -> None:
            self._abandoned -= 1
            start_thread_soon(afterwards, _forget)

        try:
            await checkpoint_if_cancelled()
        except trio.Cancelled:
            start_thread_soon(afterwards, _forget)
            raise
        return (await self._in_thread(partial(fn, *args), leave, orphaned)).unwrap()

    async def _in_thread(
        self,
        job: Callable[[], R],
        cancelled: Callable[[RaiseCancelT], Abort],
        orphaned: Callable[[], None] = nothing,
    ) -> outcome.Outcome[R]:
        """Run ``job`` on a worker thread; ``cancelled`` decides whether to go on waiting for it.

        ``orphaned`` is told when a job has ended that nobody waits for.
        """
        task, token = current_task(), current_trio_token()
        waiting = True

        def abort(raise_cancel: RaiseCancelT) -> Abort:
            nonlocal waiting
            verdict = cancelled(raise_cancel)
            waiting = verdict is Abort.FAILED
            return verdict

        def arrive(result: outcome.Outcome[R]) -> None:
            if waiting:
                reschedule(task, outcome.Value(result))
            else:
                orphaned()

        def deliver(result: outcome.Outcome[R]) -> None:
            try:
                token.run_sync_soon(arrive, result)
            except trio.RunFinishedError:
                orphaned()  # an abandoned job may outlive the Trio run itself

        self._calls += 1
        try:
            start_thread_soon(job, deliver)
            answer: outcome.Outcome[R] = await wait_task_rescheduled(abort)
        finally:
            self._calls -= 1
        return answer

    def statistics(self) -> RuntimeStatistics:
        """A snapshot for logs, tests and curious people."""
        return RuntimeStatistics(self._calls, self._abandoned)
