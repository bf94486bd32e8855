"""A runtime without threads, for tests in virtual time; it keeps the runtime contract."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from itertools import count
from typing import TypeVar, TypeVarTuple

import trio
from attrs import define, field

R = TypeVar("R")
Ts = TypeVarTuple("Ts")

Wait = Callable[[], Awaitable[None]]

Pace = Callable[[Callable[..., object]], Wait]
"""How long a function takes, asked when its call begins: a wait that can be taken up again."""


def lasting(seconds: float) -> Pace:
    """Every function takes so long."""

    def pace(_fn: Callable[..., object]) -> Wait:
        end = trio.current_time() + seconds

        async def wait() -> None:
            await trio.sleep_until(end)

        return wait

    return pace


@define(eq=False)
class InlineRuntime:
    """Blocking functions run on the Trio thread once their ``pace`` has passed."""

    pace: Pace = field(factory=lambda: lasting(0))
    calls: int = field(default=0, init=False)
    """Calls that have started and not returned, abandoned ones included."""
    _ids: count[int] = field(factory=lambda: count(1), init=False)

    def now_ms(self) -> int:
        return round(trio.current_time() * 1000)

    def new_id(self) -> str:
        return f"session-{next(self._ids)}"

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
            try:
                return await self._take_time(fn, args, interrupt)
            finally:
                self.calls -= 1

    async def _take_time(
        self, fn: Callable[[*Ts], R], args: tuple[*Ts], interrupt: Callable[[], None] | None
    ) -> R:
        wait = self.pace(fn)
        try:
            await wait()
        except trio.Cancelled as cancelled:
            if interrupt is not None:
                interrupt()
            with trio.CancelScope(shield=True):
                await wait()
            try:
                return fn(*args)
            except Exception:
                raise cancelled  # noqa: B904  # the error is to be its context, as on threads
        return fn(*args)

    async def call_or_abandon(
        self, fn: Callable[[*Ts], R], *args: *Ts, afterwards: Callable[[], None]
    ) -> R:
        try:
            await trio.lowlevel.checkpoint_if_cancelled()
        except trio.Cancelled:
            afterwards()
            raise
        self.calls += 1
        wait = self.pace(fn)
        try:
            await wait()
        except trio.Cancelled:
            trio.lowlevel.spawn_system_task(self._go_on, wait, fn, args, afterwards)
            raise
        self.calls -= 1
        return fn(*args)

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
            fn(*args)
        afterwards()
