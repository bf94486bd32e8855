"""A log in memory together with what was folded from it: what a live session goes on from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import define, field

from ..history.projection import Advance, SessionProjection
from ..history.replay import check_restored
from ..messages.event import Event
from ..messages.header import SessionHeader


@define(eq=False)
class FoldedLog:
    """Events, their projection, and the flips of the surface, always of one length.

    Both lists are append-only, so that views of their beginnings stay true.
    """

    projection: SessionProjection
    events: list[Event] = field(factory=list)
    flips: list[tuple[int, int]] = field(factory=list)
    """Pairs (seq of the event that caused it, seq of the node that left the surface)."""

    @classmethod
    def of(cls, header: SessionHeader, events: Iterable[Event] = ()) -> FoldedLog:
        """Fold a log from its beginning.

        Raises:
            ReplayError, SurfaceError, UnsupportedFormat, InvalidJson: an event cannot stand there.
        """
        log = cls(SessionProjection(header, check=check_restored))
        log.extend(events)
        return log

    def extend(self, events: Iterable[Event]) -> None:
        """Fold and add the events one after the other; errors as in ``of``."""
        for event in events:
            self.add([self.projection.advance(event)])

    def fold(self, events: Iterable[Event]) -> list[Advance]:
        """Fold the events, all or none of them; ``add`` makes them part of the log.

        Raises:
            ReplayError, SurfaceError, UnsupportedFormat, InvalidJson: as the projection or the
                iteration of ``events`` raised it, and the log is as it was.
        """
        advances: list[Advance] = []
        try:
            for event in events:
                advances.append(self.projection.advance(event))
        except BaseException:
            for advance in reversed(advances):
                self.projection.retract(advance)
            raise
        return advances

    def add(self, advances: Sequence[Advance]) -> None:
        """Make folded events part of the log."""
        for advance in advances:
            self.events.append(advance.event)
            self.flips.extend((advance.event.seq, seq) for seq in advance.shadowed)
