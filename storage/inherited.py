"""How many leading events of a stored log are inherited, told from its header and its events."""

from __future__ import annotations

from collections.abc import Iterable

from ..history.payload import payload
from ..history.seed import check_seed_marked, inherited_count, is_seed_marker
from ..messages.errors import InvalidJson, ReplayError
from ..messages.event import Event
from ..messages.header import SessionHeader
from .contract import CorruptLog


def count_inherited(place: str, header: SessionHeader, events: Iterable[Event]) -> int:
    """The inherited length of a whole log, 0 where it holds no events yet.

    ``place`` names the log in messages.

    Raises:
        CorruptLog: header and markers disagree.
    """
    marker: int | None = None
    length = 0
    try:
        for event in events:
            length += 1
            if event.type == "session/end-seed" and is_seed_marker(header, event, payload(event)):
                marker = event.seq
        if length:
            check_seed_marked(header, marker)
    except (ReplayError, InvalidJson) as error:
        raise CorruptLog(f"{place}: {error}") from error
    return inherited_count(header, marker, length)
