"""Many runs, in several processes if wished; the order of their outcomes is that of the runs."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import islice, takewhile
from multiprocessing import get_context
from typing import Any, Final

from attrs import evolve, frozen

from .scenario import Outcome, Scenario, simulate
from .verdict import Kind

_AHEAD: Final = 4
"""Runs that are handed out ahead, for each process."""


@frozen
class Run:
    """One run to be made. It can be sent to another process if its scenario can."""

    scenario: Scenario[Any]
    seed: int
    overrides: Mapping[str, str]
    bug: str | None = None
    """The mutant that is planted in the product for the run."""

    def make(
        self, *, keep_trace: bool = False, echo: Callable[[str], object] | None = None
    ) -> Outcome:
        """Make it in this process; the options are those of ``simulate``.

        Raises:
            ValueError: an override is not known, or no bug has this name.
        """
        with _planted(self.bug):
            return simulate(
                self.scenario, self.seed, self.overrides, keep_trace=keep_trace, echo=echo
            )


def outcomes(
    runs: Iterable[Run], *, jobs: int, until: float | None = None
) -> Iterator[tuple[Run, Outcome]]:
    """The outcome of each run, in order.

    Args:
        runs: what to run; may be endless where ``until`` is given.
        jobs: processes; with one, the runs are made in this one.
        until: no run begins after this time of ``time.monotonic()``.
    """
    runs = _in_time(runs, until)
    if jobs == 1:
        for run in runs:
            yield run, run.make()
        return
    with _pool(jobs) as submit:
        yield from _in_order(runs, lambda run: (submit(run),), jobs * _AHEAD, _only)


def checked_outcomes(
    runs: Iterable[Run], *, jobs: int, until: float | None = None
) -> Iterator[tuple[Run, Outcome]]:
    """Likewise, each run made twice, in two processes, so that addresses and hashes differ.

    Where the two traces differ, the outcome is ``NONDETERMINISTIC``.
    """
    with _pool(jobs) as submit, _pool(jobs) as submit_again:
        yield from _in_order(
            _in_time(runs, until),
            lambda run: (submit(run), submit_again(run)),
            jobs * _AHEAD,
            _compared,
        )


def _only(outcome: Outcome) -> Outcome:
    return outcome


def _compared(one: Outcome, other: Outcome) -> Outcome:
    if one.digest == other.digest:
        return one
    place = next(
        (f"{a!r} and {b!r}" for a, b in zip(one.trace, other.trace, strict=False) if a != b),
        "none of the lines that are kept: run it twice with --trace",
    )
    return evolve(
        one,
        kind=Kind.NONDETERMINISTIC,
        message=f"two runs differ; the first lines that do are {place}",
    )


def _in_time(runs: Iterable[Run], until: float | None) -> Iterable[Run]:
    return runs if until is None else takewhile(lambda _run: time.monotonic() < until, runs)


def _in_order(
    runs: Iterable[Run],
    submit: Callable[[Run], tuple[Future[Outcome], ...]],
    ahead: int,
    settle: Callable[..., Outcome],
) -> Iterator[tuple[Run, Outcome]]:
    """Keep ``ahead`` runs handed out, and yield the oldest."""
    source = iter(runs)
    waiting = deque((run, submit(run)) for run in islice(source, ahead))
    while waiting:
        run, futures = waiting.popleft()
        outcome = settle(*(future.result() for future in futures))
        waiting.extend((later, submit(later)) for later in islice(source, 1))
        yield run, outcome


@contextmanager
def _pool(jobs: int) -> Iterator[Callable[[Run], Future[Outcome]]]:
    # Forked processes would inherit the state of libraries in the middle of whatever it was.
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        try:
            yield lambda run: pool.submit(run.make)
        finally:
            pool.shutdown(cancel_futures=True)


def _planted(bug: str | None) -> AbstractContextManager[object]:
    if bug is None:
        return nullcontext()
    from .mutants import MUTANTS

    if bug not in MUTANTS:
        raise ValueError(f"no bug is called {bug!r}; there are {', '.join(sorted(MUTANTS))}")
    return MUTANTS[bug].planted()
