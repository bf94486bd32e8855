"""The fence: the only module that touches Trio's own scheduler, to choose which task runs next.

Trio sorts the tasks that can run and hands them to a source of randomness, where a flag of its own
is set. That flag, this source and the queue of runnable tasks are private names of Trio; a test
holds that they are there and that a seed gives one order, so that a new Trio fails there, loudly.
"""

from __future__ import annotations

import gc
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import trio
from attrs import define, field
from trio._core import _run
from trio.lowlevel import Task

from .policies import Policy

STEP_BUDGET: Final = 300_000
"""Steps that a run, or one phase of it, may take: far more than any needs."""

STOP_BUDGET: Final = 30_000
"""Steps that a stopped run may take to end in order."""

_IDLE_ROUNDS: Final = 3
"""Rounds without a task after which, without a deadline, nothing can happen any more."""
_SHOWN_TASKS: Final = 30


class Deadlock(Exception):
    """No task can ever run again. The message says where each one waits."""


class StepBudgetExceeded(Exception):
    """Tasks run on and on and come to no end."""


@define(eq=False)
class Schedule:
    """Chooses who takes the next step, and notices that nobody ever will.

    It stands where Trio keeps its source of randomness.
    """

    policy: Policy
    observe: Callable[[Task], object] | None = None
    """Told of each task that is about to take a step."""
    stop: Callable[[], object] | None = None
    """Cancels the run, for a run that is stuck to end in order; where that does not help either,
    Trio ends it with an internal error."""
    budget: int = STEP_BUDGET
    steps: int = field(default=0, init=False)
    """Steps taken so far."""
    failure: Deadlock | StepBudgetExceeded | None = field(default=None, init=False)
    """Why the run was stopped."""
    _idle: int = field(default=0, init=False)

    def shuffle(self, batch: list[Task]) -> None:
        """Leave in ``batch`` those that run now, the first one last; called by Trio each round.

        Raises:
            Deadlock, StepBudgetExceeded: of a run that does not let itself be stopped. Trio ends it
                with them as the cause.
        """
        if not batch:
            self._rest()
            return
        self._idle = 0
        chosen = self.policy(batch) if len(batch) > 1 else list(batch)
        self.steps += len(chosen)
        if self.steps > self.budget:
            names = ", ".join(sorted({task.name for task in batch}))
            self.budget += STOP_BUDGET
            self._fail(StepBudgetExceeded(f"{self.steps} steps and no end; these can run: {names}"))
        if len(chosen) < len(batch):
            later = [task for task in batch if task not in chosen]
            _run.GLOBAL_RUN_CONTEXT.runner.runq.extendleft(reversed(later))
        if self.observe is not None:
            for task in chosen:
                self.observe(task)
        batch[:] = reversed(chosen)

    def begin_phase(self, policy: Policy) -> None:
        """From now on choose by another policy, with the step budget anew."""
        self.policy = policy
        self.budget = self.steps + STEP_BUDGET

    def _rest(self) -> None:
        """Take notice of a round without a task; most are followed by a jump of the clock."""
        self._idle += 1
        if self._idle <= _IDLE_ROUNDS:
            return
        self._idle = 0
        if trio.lowlevel.current_statistics().seconds_to_next_deadline == math.inf:
            places = "\n".join(_waiting_tasks())
            self._fail(Deadlock(f"nothing can run any more:\n{places}"))

    def _fail(self, failure: Deadlock | StepBudgetExceeded) -> None:
        """Stop the run, the gentle way first."""
        if self.failure is not None:
            raise self.failure
        self.failure = failure
        if self.stop is None:
            raise failure
        self.stop()


def _waiting_tasks() -> list[str]:
    """Where each task waits, one line each, the tasks of Trio itself left out."""
    root = trio.lowlevel.current_root_task()
    lines = sorted(filter(None, map(_where, _below(root)))) if root is not None else []
    hidden = len(lines) - _SHOWN_TASKS
    return lines[:_SHOWN_TASKS] + ([f"  and {hidden} more"] if hidden > 0 else [])


def _below(task: Task) -> Iterator[Task]:
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            yield child
            yield from _below(child)


def _where(task: Task) -> str:
    places = [
        f"{frame.f_globals.get('__name__', '?')}.{frame.f_code.co_name}:{line}"
        for frame, line in task.iter_await_frames()
        if not str(frame.f_globals.get("__name__", "")).startswith(("trio.", "contextlib"))
    ]
    return f"  {task.name} at {' > '.join(places[-3:])}" if places else ""


@contextmanager
def installed(schedule: Schedule) -> Iterator[None]:
    """Let ``schedule`` choose in every Trio run of the block.

    The garbage collector is off meanwhile: what it frees at a moment of its own choice may touch
    tasks, and the moment differs between runs.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        with (
            _replaced("_ALLOW_DETERMINISTIC_SCHEDULING", True),
            _replaced("_r", schedule),
        ):
            yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def _replaced(name: str, value: object) -> Iterator[None]:
    module: Any = _run
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


@contextmanager
def unheard() -> Iterator[None]:
    """Let go of what a run left, in the block or at its end; tasks that Trio had to break off
    complain about it, to nobody."""
    hook = sys.unraisablehook
    sys.unraisablehook = lambda _complaint: None
    try:
        yield
        gc.collect()
    finally:
        sys.unraisablehook = hook
