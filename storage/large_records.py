"""Large records pass one at a time in the whole process, because their copies add up.

Who meets one while it reads waits until nobody else holds any, and keeps them to itself until its
``Turn`` is over: a worker thread's piece of work, reading and folding together. Smaller records
never wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from threading import Condition
from typing import Final, TypeVar, TypeVarTuple

from attrs import define, field

R = TypeVar("R")
Ts = TypeVarTuple("Ts")

LARGE_BYTES: Final = 1024 * 1024
"""A longer record is large."""


class GaveUp(Exception):
    """A turn that was interrupted does not wait for others any more."""


@define(eq=False)
class Turn:
    """One piece of work that may read large records."""

    _given_up: bool = field(default=False, init=False)

    def doing(self, work: Callable[[*Ts], R]) -> Callable[[*Ts], R]:
        """``work`` under its own name, done in this turn.

        It raises ``GaveUp`` where it comes upon a large record and is interrupted before its turn.
        """

        # Who watches the calls of a runtime tells them apart by name.
        @wraps(getattr(work, "func", work))
        def done(*args: *Ts) -> R:
            with self._current():
                return work(*args)

        return done

    def give_up(self) -> None:
        """Wait no longer, now or later; what is read already is finished. From any thread."""
        with _changed:
            self._given_up = True
            _changed.notify_all()

    @contextmanager
    def _current(self) -> Iterator[None]:
        if _turn.get() is not None:
            # Work within work: it would wait for itself.
            yield
            return
        token = _turn.set(self)
        try:
            yield
        finally:
            _turn.reset(token)
            self._leave()

    def _enter(self) -> None:
        with _changed:
            if self not in _line:
                _line.append(self)
            while _line[0] is not self:
                if self._given_up:
                    _line.remove(self)
                    raise GaveUp("interrupted while another large record was being read")
                _changed.wait()

    def _leave(self) -> None:
        with _changed:
            if self in _line:
                _line.remove(self)
                _changed.notify_all()


_changed: Final = Condition()
_line: Final[deque[Turn]] = deque()
"""The turn that holds large records, and those that wait for it, first come, first served."""

_turn: ContextVar[Turn | None] = ContextVar("turn at large records", default=None)


@contextmanager
def reading() -> Iterator[None]:
    """A block that may read large records, in the turn that is under way or one of its own."""
    with Turn()._current():
        yield


def wait_for_turn() -> None:
    """Wait until nothing else holds a large record; called inside ``reading``.

    Raises:
        GaveUp
    """
    turn = _turn.get()
    if turn is not None:
        turn._enter()


def carry_on() -> None:
    """Say that work which takes long goes on; raises ``GaveUp`` where it was interrupted."""
    turn = _turn.get()
    if turn is not None and turn._given_up:
        raise GaveUp("interrupted")
