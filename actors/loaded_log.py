"""A log as an exact read sees it."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from ..history.cold_read import checked_closers
from ..messages.event import Event
from ..messages.header import SessionHeader
from ..storage.contract import StoredLog


@frozen
class LoadedLog:
    """A live log as of one moment, or a stored one with its in-memory closers."""

    header: SessionHeader
    inherited_event_count: int
    events: Sequence[Event]
    live: bool
    left_out: str | None = None


def cold_log(stored: StoredLog) -> LoadedLog:
    """Check each event of a stored log by itself and close its open turn.

    Raises:
        ReplayError, UnsupportedFormat, InvalidJson: an event is damaged or not understood.
    """
    header = stored.snapshot.header
    events = stored.events + checked_closers(stored.events, header.version)
    return LoadedLog(
        header, stored.inherited_event_count, events, live=False, left_out=stored.left_out
    )
