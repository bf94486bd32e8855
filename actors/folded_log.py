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
    """Events and their projection, always of one length.

    The list is append-only, so that views of its beginning stay true.
    """

    projection: SessionProjection
    events: list[Event] = field(factory=list)

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
        self.events.extend(advance.event for advance in advances)
