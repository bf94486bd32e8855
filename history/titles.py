"""The title of a session: what the newest ``session/title`` event says."""

from __future__ import annotations

from collections.abc import Iterable

from ..messages.event import Event
from ..messages.json import Json, elements, is_safe_integer, member
from ..messages.records import SessionTitle
from .payload import payload


def title_of(event: Event, data: Json) -> SessionTitle | None:
    """The title that an event gives; ``None`` for other types and malformed payloads."""
    if event.type != "session/title":
        return None
    title, source = member(data, "title"), member(data, "source")
    listed = member(data, "messageSeqs")
    seqs = tuple(seq for seq in elements(listed) if type(seq) is int and is_safe_integer(seq))
    if not isinstance(title, str) or not isinstance(listed, list) or len(seqs) != len(listed):
        return None
    if not isinstance(source, dict):
        return None
    return SessionTitle(title, seqs, source, event.seq, event.time)


def fold_title(events: Iterable[Event]) -> SessionTitle | None:
    """The title of a whole log, inherited events included.

    Raises:
        InvalidJson, UnsupportedFormat: the payload of a title event cannot be decoded.
    """
    title = None
    for event in events:
        if event.type == "session/title":
            title = title_of(event, payload(event)) or title
    return title
