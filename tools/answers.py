"""What the five tools find, before it becomes a text and data."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

from ..messages.event import Event
from ..messages.records import EventSearchHit, EventTrace, SessionSearchHit
from .authorization import Title, VisibleLineage
from .paging import Collected


@frozen
class FoundSessions:
    """Of ``session_search``."""

    found: Collected[SessionSearchHit]
    visible_parents: frozenset[str]
    """Parents of hits that may be named."""
    titles: Mapping[str, Title]
    skipped: int = 0
    """Sessions of the workspace that could not be searched."""


@frozen
class FoundEvents:
    """Of ``session_event_search``."""

    session_id: str
    title: Title
    found: Collected[EventSearchHit]
    searched_to: int | None = None
    """The last seq that was searched, where the current step was left out."""


@frozen
class Family:
    """Of ``session_trace``."""

    lineage: VisibleLineage
    titles: Mapping[str, Title]
    skipped: int = 0
    """Sessions of the workspace that could not be looked at and may belong to it."""


@frozen
class Relations:
    """Of ``session_event_trace``."""

    trace: EventTrace
    title: Title


@frozen
class Neighbour:
    """An event beside the one that is read."""

    event: Event
    text: str
    """Redacted; empty where the event has none."""


@frozen
class ReadEvent:
    """Of ``session_event_read``."""

    session_id: str
    title: Title
    target: Event
    json: str
    """The whole event, indented."""
    before: tuple[Neighbour, ...]
    after: tuple[Neighbour, ...]
