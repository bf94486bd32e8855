"""Questions: searches as workloads ask them, without their cursors."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TypeVar

from attrs import frozen

from ..messages.filters import (
    AvailabilityIn,
    Cwd,
    EventFilter,
    Ids,
    Parent,
    SeqRange,
    SessionFilter,
    SurfaceIn,
    TypeIn,
)
from ..messages.records import Availability, Surface
from .logs import PHRASES, WORKSPACES

T = TypeVar("T")


@frozen
class Question:
    """A search; of sessions where there is no ``session_id``."""

    session_id: str | None
    query: str
    session_filters: tuple[SessionFilter, ...] = ()
    event_filters: tuple[EventFilter, ...] = ()
    limit: int = 20

    def __str__(self) -> str:
        """One line for traces."""
        filters = [type(clause).__name__ for clause in (*self.session_filters, *self.event_filters)]
        where = self.session_id or "all"
        return f"{self.query!r} in {where} by {self.limit} {' '.join(filters)}".rstrip()


def draw_question(rng: Random, ids: Sequence[str]) -> Question:
    """A search over sessions or within one of ``ids``, with up to two filters of each kind."""
    session_id = rng.choice(ids) if ids and rng.random() < 0.4 else None
    clauses = rng.choice((0, 0, 1, 2)) if session_id is None else 0
    return Question(
        session_id,
        rng.choice(PHRASES),
        tuple(_session_filter(rng, ids) for _ in range(clauses)),
        tuple(_event_filter(rng) for _ in range(rng.choice((0, 0, 0, 1)))),
        rng.choice((1, 1, 2, 3, 20)),
    )


def _session_filter(rng: Random, ids: Sequence[str]) -> SessionFilter:
    match rng.randrange(4):
        case 0:
            return Ids(_some(rng, ids))
        case 1:
            return Parent(_some(rng, (None, *ids)))
        case 2:
            return AvailabilityIn(_some(rng, tuple(Availability)))
        case _:
            return Cwd(_some(rng, WORKSPACES))


def _event_filter(rng: Random) -> EventFilter:
    match rng.randrange(3):
        case 0:
            return SeqRange(rng.choice((None, 0, 2)), rng.choice((None, 2, 5)))
        case 1:
            return TypeIn(_some(rng, ("user/message", "assistant/message", "tool/call")))
        case _:
            return SurfaceIn(_some(rng, tuple(Surface)))


def _some(rng: Random, values: Sequence[T]) -> tuple[T, ...]:
    return tuple(rng.choices(values, k=rng.choice((1, 1, 2, 3)))) if values else ()
