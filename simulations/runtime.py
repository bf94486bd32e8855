"""The simulated runtime: blocking functions run on the Trio thread, once a drawn time has passed.

A function takes effect at one instant between the beginning and the end of its call. A cancelled
call is interrupted either before that instant, so that the function sees it, or after, too late.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from functools import partial
from itertools import count
from typing import TypeVar, TypeVarTuple

import outcome
import trio
from attrs import define, field

from ..actors.runtime import TwoParts

R = TypeVar("R")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

Wait = Callable[[], Awaitable[None]]
"""A wait that can be taken up again after it was broken off."""

Pace = Callable[[Callable[..., object]], Wait]
"""How long a function takes, asked once."""


def lasting(seconds: float) -> Pace:
    """Every function takes so many virtual seconds."""

    def pace(_fn: Callable[..., object]) -> Wait:
        end = trio.current_time() + seconds

        async def wait() -> None:
            await trio.sleep_until(end)

        return wait

    return pace


def _always() -> bool:
    return True


def _virtual_ms() -> int:
    return round(trio.current_time() * 1000)


def _numbered() -> Callable[[], str]:
    numbers = count(1)
    return lambda: f"session-{next(numbers)}"


@define(eq=False)
class SimulatedRuntime:
    """A runtime without threads. It keeps the contract of ``actors.runtime.Runtime``.

    As it is built by default it is prompt and even: no time passes, every interrupt lands, ids are
    numbered, the wall clock begins at 0.
    """

    pace: Pace = field(factory=lambda: lasting(0))
    """From the beginning of a call to the instant of its effect."""
    linger: Pace | None = None
    """From there until its caller hears of it, asked when the function has run."""
    lands: Callable[[], bool] = _always
    """Whether an interrupt comes before the effect of a call that has not had its effect yet."""
    wall_clock: Callable[[], int] = _virtual_ms
    """The wall clock, ms since the epoch."""
    id_source: Callable[[], str] = field(factory=_numbered)
    observe: Callable[[str, Callable[..., object]], object] | None = None
    """Told of each call: ``"begin"``, ``"interrupt"``, ``"effect"``, ``"abandon"``."""
    calls: int = field(default=0, init=False)
    """Calls that have started and not returned, abandoned ones included."""

    def now_ms(self) -> int:
        return self.wall_clock()

    def new_id(self) -> str:
        return self.id_source()

    async def call(
        self,
        fn: Callable[[*Ts], R],
        *args: *Ts,
        interrupt: Callable[[], None] | None = None,
        limiter: trio.CapacityLimiter | None = None,
    ) -> R:
        async with nullcontext() if limiter is None else limiter:
            await trio.lowlevel.checkpoint_if_cancelled()
            self.calls += 1
            self._tell("begin", fn)
            try:
                return await self._work(fn, partial(fn, *args), interrupt)
            finally:
                self.calls -= 1

    async def call_in_two(self, work: TwoParts[T, R]) -> R:
        await trio.lowlevel.checkpoint_if_cancelled()
        self.calls += 1
        try:
            self._tell("begin", work.first)
            try:
                value = await self._work(work.first, work.first, work.interrupts[0])
            finally:
                work.between()
            await trio.lowlevel.checkpoint_if_cancelled()
            self._tell("begin", work.second)
            job = partial(work.second, value)
            return await self._work(work.second, job, work.interrupts[1])
        finally:
            self.calls -= 1

    async def _work(
        self, fn: Callable[..., object], job: Callable[[], R], interrupt: Callable[[], None] | None
    ) -> R:
        """The caller's cancellation is answered by the first of the two waits that it meets."""

        def stop() -> None:
            self._tell("interrupt", fn)
            if interrupt is not None:
                interrupt()

        result: outcome.Outcome[R] | None = None
        cancelled: trio.Cancelled | None = None
        wait = self.pace(fn)
        try:
            await wait()
        except trio.Cancelled as error:
            cancelled = error
            if self.lands():
                stop()
            else:
                result = self._effect(fn, job)
                stop()
            with trio.CancelScope(shield=True):
                await wait()
        if result is None:
            result = self._effect(fn, job)
        if self.linger is not None:
            wait = self.linger(fn)
            try:
                with trio.CancelScope(shield=cancelled is not None):
                    await wait()
            except trio.Cancelled as error:
                cancelled = error
                stop()
                with trio.CancelScope(shield=True):
                    await wait()
        try:
            return result.unwrap()
        except Exception:
            if cancelled is None:
                raise
            raise cancelled  # noqa: B904  # the error is to be its context, as on threads

    async def call_or_abandon(
        self, fn: Callable[[*Ts], R], *args: *Ts, afterwards: Callable[[], None]
    ) -> R:
        try:
            await trio.lowlevel.checkpoint_if_cancelled()
        except trio.Cancelled:
            afterwards()
            raise
        self.calls += 1
        self._tell("begin", fn)
        wait = self.pace(fn)
        try:
            await wait()
        except trio.Cancelled:
            self._tell("abandon", fn)
            trio.lowlevel.spawn_system_task(self._go_on, wait, fn, args, afterwards)
            raise
        self.calls -= 1
        return self._effect(fn, partial(fn, *args)).unwrap()

    async def _go_on(
        self,
        wait: Wait,
        fn: Callable[[*Ts], object],
        args: tuple[*Ts],
        afterwards: Callable[[], None],
    ) -> None:
        await wait()
        self.calls -= 1
        with suppress(Exception):  # nobody listens any more
            self._effect(fn, partial(fn, *args)).unwrap()
        afterwards()

    def _effect(self, fn: Callable[..., object], job: Callable[[], R]) -> outcome.Outcome[R]:
        self._tell("effect", fn)
        return outcome.capture(job)

    def _tell(self, moment: str, fn: Callable[..., object]) -> None:
        if self.observe is not None:
            self.observe(moment, fn)
