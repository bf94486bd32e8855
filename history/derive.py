"""The messages that a log gives to the model."""

from __future__ import annotations

from collections.abc import Sequence

from ..messages.event import Event
from ..messages.json import Json, member
from .fold import fold_surface


def derive_messages(events: Sequence[Event], version: int) -> tuple[Json, ...]:
    """The messages of the current surface in its order, decoded afresh.

    An assistant message without content gives none. ``events`` is a whole log.

    Raises:
        SurfaceError: the log breaks a rule of the fold.
        InvalidJson: a payload is not JSON.
    """
    messages: list[Json] = []
    for seq in fold_surface(events, version).nodes:
        event = events[seq]
        message = event.data if event.type == "user/message" else member(event.data, "message")
        if event.type != "assistant/message" or member(message, "content"):
            messages.append(message)
    return tuple(messages)
