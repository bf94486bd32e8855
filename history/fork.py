"""Where a log may be forked."""

from __future__ import annotations

from collections.abc import Sequence

from ..messages.errors import LiveErrorCode, LiveSessionError
from ..messages.event import Event


def fork_length(events: Sequence[Event], boundary: object = None) -> int:
    """How many events a fork behind ``boundary`` inherits; by default all of them.

    ``boundary`` is the seq of the last inherited event.

    Raises:
        LiveSessionError: ``INVALID_BOUNDARY`` where there is no such event, ``OPEN_TURN`` where
            the last turn in front of the boundary has not ended.
    """
    if boundary is None:
        length = len(events)
    elif type(boundary) is not int or not 0 <= boundary < len(events):
        raise LiveSessionError(
            LiveErrorCode.INVALID_BOUNDARY,
            f"boundary must be the seq of one of the {len(events)} events, got {boundary!r}",
        )
    elif events[boundary].seq != boundary:
        raise LiveSessionError(
            LiveErrorCode.INVALID_BOUNDARY,
            f"the event at position {boundary} has seq {events[boundary].seq}",
        )
    else:
        length = boundary + 1
    for event in reversed(events[:length]):
        if event.type == "turn/end":
            break
        if event.type == "turn/start":
            raise LiveSessionError(
                LiveErrorCode.OPEN_TURN,
                f"the turn that starts at event {event.seq} has not ended at the boundary",
            )
    return length
