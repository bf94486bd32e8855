"""How many leading events of a log are inherited from its parent.

Formats 0 and 1 say so in the header. Later ones mark the cut by the last ``session/end-seed``
that is tagged as inherited, and the header only tells that there is one.
"""

from __future__ import annotations

from ..messages.errors import ReplayError
from ..messages.event import Event
from ..messages.header import SessionHeader
from ..messages.json import Json, member


def is_seed_marker(header: SessionHeader, event: Event, data: Json) -> bool:
    """Whether an event marks the end of an inherited prefix.

    Raises:
        ReplayError: it does so under the header of a session that inherits nothing.
    """
    if event.type != "session/end-seed" or header.version < 2:
        return False
    if member(data, "inherited") is not True:
        return False
    if not header.is_seeded:
        raise ReplayError(
            f"event {event.seq} ends an inherited prefix, but the header is not seeded"
        )
    return True


def check_seed_marked(header: SessionHeader, marker: int | None) -> None:
    """Check a whole log: ``marker`` is the seq of its last seed marker, if it has one.

    Raises:
        ReplayError: the header is seeded and no event marks the end of the prefix.
    """
    if header.version >= 2 and header.is_seeded and marker is None:
        raise ReplayError(
            "the header is seeded, but no session/end-seed marks the inherited prefix"
        )


def inherited_count(header: SessionHeader, marker: int | None, length: int) -> int:
    """How many of a log's first ``length`` events are inherited."""
    if header.version < 2:
        return min(header.seed_length or 0, length)
    return marker or 0
