"""A guest run: a Trio run that somebody outside of Trio moves, step by step and in virtual time.

For tests whose steps are synchronous, such as Hypothesis' rule-based state machines, and for
harness authors who want to look at their system between two steps. Nothing happens in the run but
while one of the methods of ``GuestRun`` is being called::

    with GuestRun(tape=[2, 0, 1]) as guest:
        job = guest.start(serve, requests)
        guest.settle()                      # everybody waits for something now
        reply = guest.call(ask, "question") # goes on until there is an answer
        guest.advance(0.25)                 # virtual seconds
        job.cancel()
        guest.settle()
        assert job.cancelled
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, TypeVarTuple

import outcome
import trio
from attrs import define, field
from trio.testing import wait_all_tasks_blocked

from .clock import virtual_clock
from .marks import Marks
from .policies import Policy, Tape
from .schedule import Schedule, installed, unheard
from .streams import Streams
from .trace import Trace
from .traps import armed
from .verdict import leaves, root_error
from .world import World, build_world

R = TypeVar("R")
Ts = TypeVarTuple("Ts")


class RunEnded(RuntimeError):
    """The guest run is over; nothing can be started in it."""


@define(eq=False)
class Job(Generic[R]):
    """A task that was started in a guest run."""

    name: str
    ended: bool = field(default=False, init=False)
    """Whether it has ended, in whatever way."""
    error: Exception | None = field(default=None, init=False)
    """What it ended in, if that was an error."""
    _scope: trio.CancelScope = field(factory=trio.CancelScope, init=False)
    _values: list[R] = field(factory=list, init=False)
    """The value, once there is one."""

    @property
    def answered(self) -> bool:
        """Whether it has ended with a value."""
        return bool(self._values)

    @property
    def cancelled(self) -> bool:
        """Whether it ended because it was cancelled."""
        return self.ended and not self._values and self.error is None

    @property
    def value(self) -> R:
        """What it has ended with; its error is raised.

        Raises:
            RuntimeError: it has not ended, or was cancelled.
        """
        if self.error is not None:
            raise self.error
        if not self._values:
            raise RuntimeError(f"{self.name} {'was cancelled' if self.ended else 'goes on'}")
        return self._values[0]

    def cancel(self) -> None:
        """Cancel it; it takes notice when the run is moved next."""
        self._scope.cancel()

    async def run(self, function: Callable[[], Awaitable[R]], *, raises: bool) -> None:
        """Run ``function`` and keep what comes of it; raise its error too, where ``raises``."""
        try:
            with self._scope:
                try:
                    self._values.append(await function())
                except Exception as error:
                    self.error = error
                    if raises:
                        raise
        finally:
            self.ended = True


@define(eq=False)
class GuestRun:
    """A Trio run with one open nursery, which the caller moves.

    The schedule is that of ``policy``, or reads its choices from ``tape``, a list of any integers
    at or above 0, and is fair when the tape has run out. Between calls nothing is moved, no trap is
    armed and the caller may use clocks and randomness as he likes; only one guest run may be open
    in a thread, and it must be closed whatever happens.

    When a task that was started here ends in an error, the whole run ends with it, and the call
    during which that happened raises this error itself, taken out of Trio's groups.

    Raises (all methods that move the run):
        RunEnded: it was closed, or has ended in an error that was raised before.
        Deadlock, StepBudgetExceeded: of ``simulations.schedule``; the run has ended.
    """

    tape: Sequence[int] = ()
    policy: Policy | None = None
    schedule: Schedule = field(init=False)
    _clock: trio.testing.MockClock = field(factory=virtual_clock, init=False)
    _ready: deque[Callable[[], object]] = field(factory=deque, init=False)
    _nursery: trio.Nursery | None = field(default=None, init=False)
    _end: outcome.Outcome[None] | None = field(default=None, init=False)
    _told: bool = field(default=False, init=False)
    """Whether the caller knows how the run ended."""

    def __attrs_post_init__(self) -> None:
        self.schedule = Schedule(self.policy or Tape(list(self.tape)))

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def open(self) -> None:
        """Begin the run; entering the context does it."""
        trio.lowlevel.start_guest_run(
            self._main,
            run_sync_soon_threadsafe=self._ready.append,
            done_callback=self._finish,
            host_uses_signal_set_wakeup_fd=True,
            clock=self._clock,
        )
        self._pump(lambda: self._nursery is not None)

    def start(
        self,
        function: Callable[[*Ts], Awaitable[R]],
        *args: *Ts,
        name: str | None = None,
        nursery: trio.Nursery | None = None,
    ) -> Job[R]:
        """Start a task; it takes its first step when the run is moved next.

        If it ends in an error, so does its nursery, which is that of the run by default.
        """
        job: Job[R] = Job(name or _name(function))
        self._start(job, lambda: function(*args), raises=True, nursery=nursery)
        return job

    def finish(self, job: Job[Any]) -> None:
        """Move the run until a job has ended, in whatever way. Virtual time passes."""
        self._pump(lambda: job.ended)

    def call(self, function: Callable[[*Ts], Awaitable[R]], *args: *Ts) -> R:
        """Move the run until ``function`` has ended; its value, or its error, which ends nothing.

        Virtual time passes as far as that needs.
        """
        job: Job[R] = Job(_name(function))
        self._start(job, lambda: function(*args), raises=False)
        self.finish(job)
        return job.value

    def settle(self) -> None:
        """Move the run until every task waits; virtual time stands still."""
        self.call(wait_all_tasks_blocked)

    def advance(self, seconds: float) -> None:
        """Let so many virtual seconds pass, with all that is due in them, then settle."""
        self.call(trio.sleep, seconds)
        self.settle()

    def world(self, seed: int = 0, *, index_directory: str | None = None) -> World:
        """A world for what runs here, at the beginning of time: disk, runtime, crashes.

        Args:
            seed: what its disk, its latencies and its crashes are drawn from; the schedule stays
                that of this run.
            index_directory: an empty directory on the real disk for index files, or ``None`` for
                an index in memory.
        """
        return build_world(
            seed,
            self._clock,
            self.schedule,
            trace=Trace(self._clock.current_time),
            marks=Marks(),
            streams=Streams(seed),
            index_directory=index_directory,
        )

    @property
    def now(self) -> float:
        """Virtual seconds since the run began."""
        return self._clock.current_time()

    @property
    def ended(self) -> bool:
        """Whether the run is over."""
        return self._end is not None

    def close(self) -> None:
        """Cancel what still runs and end the run; again is harmless.

        Raises:
            the error that a task raised while it was being cancelled.
        """
        if self._end is None:
            if self._nursery is not None:
                self._nursery.cancel_scope.cancel()
            self._pump(lambda: self._end is not None)
        self._tell()

    def _start(
        self,
        job: Job[R],
        function: Callable[[], Awaitable[R]],
        *,
        raises: bool,
        nursery: trio.Nursery | None = None,
    ) -> None:
        if self._end is not None or self._nursery is None:
            self._tell()
            raise RunEnded(f"{job.name} cannot be started: the run is over")

        async def run() -> None:
            await job.run(function, raises=raises)

        (nursery or self._nursery).start_soon(run, name=job.name)

    async def _main(self) -> None:
        async with trio.open_nursery() as self._nursery:
            self.schedule.stop = self._nursery.cancel_scope.cancel
            await trio.sleep_forever()

    def _finish(self, end: outcome.Outcome[None]) -> None:
        self._end = end

    def _pump(self, reached: Callable[[], bool]) -> None:
        """Move the run until something holds, or until it has ended, and tell of its error."""
        with installed(self.schedule), armed():
            while not reached() and self._end is None:
                self._ready.popleft()()
                if self._failing():
                    # Whoever is waited for is only cancelled now: the error is what matters.
                    reached = _never
        self._tell()

    def _failing(self) -> bool:
        if self._end is not None or self._nursery is None:
            return False
        return self._nursery.cancel_scope.cancel_called

    def _tell(self) -> None:
        """Raise the error that the run has ended with, once."""
        if self._told or self._end is None:
            return
        self._told = True
        if self.schedule.failure is not None:
            with unheard():
                self._end, self._nursery = outcome.Value(None), None
                self.schedule.stop = None
            raise self.schedule.failure
        if isinstance(self._end, outcome.Error):
            errors: list[Any] = list(leaves(root_error(self._end.error)))
            raise next((e for e in errors if not isinstance(e, trio.Cancelled)), errors[0])


def _never() -> bool:
    return False


def _name(function: Callable[..., object]) -> str:
    return str(getattr(function, "__qualname__", type(function).__qualname__))
