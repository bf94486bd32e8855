"""A cold read: what a stored log must pass before its events are shown, and how it is closed."""

from __future__ import annotations

from collections.abc import Iterable

from ..messages.event import Event
from .payload import payload
from .replay import check_event
from .turns import OpenTurn, closers


def checked_closers(events: Iterable[Event], version: int) -> tuple[Event, ...]:
    """Check each event of a stored log by itself, and return the closers of an open turn.

    The surface is not folded, so that a log whose surface is invalid can still be read.

    Raises:
        ReplayError: an event is damaged.
        UnsupportedFormat: an event is intact but not understood by this version.
        InvalidJson: a payload is not JSON.
    """
    state, last = OpenTurn(), None
    for last in events:
        data = payload(last, 0)
        check_event(last, data, version)
        state = state.after(last, data)
    return () if last is None else closers(state, last.seq + 1, last.time)
