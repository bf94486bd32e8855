"""How a run ends: the errors that a scenario raises, and what an escaped error says."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator
from enum import Enum
from pathlib import PurePath
from typing import Final

import trio

from .schedule import Deadlock, StepBudgetExceeded
from .watchdog import Hung

_FRAMES: Final = 6
_LIBRARIES: Final = frozenset({"trio", "outcome", "contextlib.py"})
"""Parts of paths whose frames say nothing about where an error comes from."""
_STUCK: Final = (Deadlock, StepBudgetExceeded)


class Violation(Exception):
    """The system did something wrong. The message says what was expected and what was seen."""


class NotLive(Exception):
    """The system did not do in time what it has to do in the end."""


class Kind(Enum):
    """What a run or a batch of runs has shown; the value is the exit code of the command."""

    PASS = 0
    CORRECTNESS = 1
    """A ``Violation``."""
    LIVENESS = 2
    """``NotLive``, a deadlock, more steps than the budget, or a loop that takes no steps."""
    INTERNAL = 3
    """Anything else that was raised, in the system or in the simulation."""
    NONDETERMINISTIC = 4
    """One seed ran in two ways."""

    @property
    def title(self) -> str:
        """The name in reports."""
        return self.name.lower()


_SEVERITY: Final = (
    Kind.PASS,
    Kind.NONDETERMINISTIC,
    Kind.LIVENESS,
    Kind.INTERNAL,
    Kind.CORRECTNESS,
)


def worst(kinds: Iterable[Kind]) -> Kind:
    """What a batch has shown: wrong answers weigh more than crashes, those more than delays."""
    return max(kinds, key=_SEVERITY.index, default=Kind.PASS)


def kind_of(error: BaseException) -> Kind:
    """What an escaped error, or group of errors, says."""
    return worst(_kind_of_one(leaf) for leaf in leaves(error))


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors of a group of groups, in order; an error that is no group is its only one."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


def root_error(error: BaseException) -> BaseException:
    """What ended a run: the schedule's error, where Trio wrapped it in its own."""
    cause = error.__cause__
    if isinstance(error, trio.TrioInternalError) and isinstance(cause, _STUCK):
        # Its frames hold every task of the run.
        return cause.with_traceback(None)
    return error


def explained(error: BaseException) -> str:
    """An error, each leaf of a group on lines of its own, without a path of this machine."""
    return "\n".join(_explained_leaf(leaf) for leaf in leaves(error))


def _explained_leaf(error: BaseException) -> str:
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if _kind_of_one(error) is not Kind.INTERNAL:
        return str(error) or text
    # Whoever meets an unexpected error wants to know where it was raised.
    places = [
        f"  at {PurePath(frame.filename).name}:{frame.lineno} {frame.name}"
        for frame in reversed(traceback.extract_tb(error.__traceback__))
        if not _LIBRARIES.intersection(PurePath(frame.filename).parts)
    ]
    return "\n".join([text, *places[:_FRAMES]])


def _kind_of_one(error: BaseException) -> Kind:
    match error:
        case Violation():
            return Kind.CORRECTNESS
        case NotLive() | Deadlock() | StepBudgetExceeded() | Hung():
            return Kind.LIVENESS
        case _:
            return Kind.INTERNAL
