"""Policies: which of the tasks that can run take the next step. One is drawn per seed.

Shuffling whole batches never lets a task stall while others go on, and always single steps seldom
let one go far ahead: each finds races that another does not.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

from attrs import define, field
from trio.lowlevel import Task

Policy = Callable[[Sequence[Task]], list[Task]]
"""Given the tasks that can run, oldest first and at least one: those that run now, in order. The
others wait until these have taken one step each."""

DEMOTIONS: Final = 3
EXPECTED_STEPS: Final = 3_000
"""Over which demotions are spread: about as long as a run takes."""
PATIENCE: Final = 400
"""How many steps a runnable task waits at most under strict priorities: a loop that polls with
checkpoints must not keep everybody else from running for good."""


def fair(stream: random.Random) -> Policy:
    """Each task takes one step in every round, in an order drawn anew."""

    def choose(ready: Sequence[Task]) -> list[Task]:
        order = list(ready)
        stream.shuffle(order)
        return order

    return choose


def uniform(stream: random.Random) -> Policy:
    """One task at a time, each as likely as any other."""

    def choose(ready: Sequence[Task]) -> list[Task]:
        return [ready[int(stream.random() * len(ready))]]

    return choose


@define(eq=False)
class Priorities:
    """One task at a time, the most important; a few times in a run it is made the least.

    This is probabilistic concurrency testing: a bug that needs d events in one order is found with
    a chance that depends on d and hardly on how long the run is.
    """

    _stream: random.Random
    _priorities: dict[Task, float] = field(factory=dict, init=False)
    _waiting: dict[Task, int] = field(factory=dict, init=False)
    """Since which step a task can run and does not."""
    _demotions: list[int] = field(init=False)
    _steps: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self._demotions = sorted(
            (self._stream.randrange(EXPECTED_STEPS) for _ in range(DEMOTIONS)), reverse=True
        )

    def __call__(self, ready: Sequence[Task]) -> list[Task]:
        self._steps += 1
        for task in ready:
            if task not in self._priorities:
                self._priorities[task] = self._stream.random()
            self._waiting.setdefault(task, self._steps)
        chosen = min(ready, key=self._waiting.__getitem__)
        if self._steps - self._waiting[chosen] < PATIENCE:
            chosen = max(ready, key=self._priorities.__getitem__)
            if self._demotions and self._steps >= self._demotions[-1]:
                # Below all who were demoted before, and those are below everybody else.
                self._priorities[chosen] = -float(DEMOTIONS - len(self._demotions) + 1)
                self._demotions.pop()
                chosen = max(ready, key=self._priorities.__getitem__)
        del self._waiting[chosen]
        return [chosen]


@define(eq=False)
class Tape:
    """Choices read from a list, one task at a time; fair rounds in order when it has run out.

    For a generator of test cases, which makes the list shorter and its numbers smaller.
    """

    _choices: list[int]
    _read: int = field(default=0, init=False)

    def __call__(self, ready: Sequence[Task]) -> list[Task]:
        if self._read == len(self._choices):
            return list(ready)
        if len(ready) == 1:
            return list(ready)
        self._read += 1
        return [ready[self._choices[self._read - 1] % len(ready)]]


POLICIES: Final[dict[str, Callable[[random.Random], Policy]]] = {
    "fair": fair,
    "uniform": uniform,
    "pct": Priorities,
}
"""By the name that ``--set policy=`` knows."""
