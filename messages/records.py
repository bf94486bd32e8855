"""What queries answer with: frozen records, detached from everything that may still change."""

from __future__ import annotations

from enum import StrEnum

from attrs import field, frozen

from .errors import ErrorCode, SessionQueryError
from .event import Event
from .header import SessionHeader
from .json import Json


class Surface(StrEnum):
    """Where an event stands relative to what the model sees."""

    CURRENT = "current"
    SHADOWED = "shadowed"
    LOG_ONLY = "log-only"


class Availability(StrEnum):
    """Where a session can be read from."""

    LIVE = "live"
    PERSISTED = "persisted"


@frozen
class SessionRecord:
    """One session of the corpus and its two sources."""

    header: SessionHeader
    live: bool
    persisted: bool


@frozen
class EventRecord:
    """Where an event stands in its session."""

    session_id: str
    seq: int
    type: str
    time: int
    """ms since the epoch."""
    surface: Surface


@frozen
class SessionLog:
    """A whole log; a stored one with an open turn ends with in-memory closers."""

    header: SessionHeader
    inherited_event_count: int
    events: tuple[Event, ...]
    left_out: str | None = None
    """Which stored lines are not part of the log and why, if there are any."""


@frozen
class EventWindow:
    """One event and its neighbours by seq; ``target`` is one of ``events``."""

    header: SessionHeader
    inherited_event_count: int
    target: Event
    events: tuple[Event, ...]
    start_seq: int
    end_seq: int
    """Inclusive."""


@frozen
class SessionTitle:
    """The newest title of a log."""

    title: str
    message_seqs: tuple[int, ...]
    """The messages it was made from; empty for a title given by the user."""
    source: Json
    event_seq: int
    updated_at: int
    """ms since the epoch."""


@frozen
class TitleResult:
    """One answer of a title batch: a header and maybe a title, or the error of that id alone."""

    session_id: str
    header: SessionHeader | None = None
    title: SessionTitle | None = None
    error: SessionQueryError | None = None


@frozen
class EventSearchHit(EventRecord):
    """A matching event."""

    snippet: str
    """At most ``snippet_chars`` code points around the first match, white space folded."""
    match: tuple[int, int] | None = None
    """Code point offsets of the first match inside ``snippet``, where it is visible."""


@frozen
class SessionSearchHit:
    """A session and its strongest matching event."""

    header: SessionHeader
    live: bool
    persisted: bool
    best_match: EventSearchHit


@frozen
class Skipped:
    """A session, or a file that should be one, that an answer left out, and why."""

    path: str
    """Where it is stored, in the store's own terms."""
    session_id: str | None
    """``None`` where the damage hides the id."""
    code: ErrorCode
    message: str
    header: SessionHeader | None = None
    """Present where the header could be read."""


@frozen
class SessionSearchPage:
    """One page of sessions, strongest first."""

    items: tuple[SessionSearchHit, ...]
    next_cursor: str | None = None
    skipped: tuple[Skipped, ...] = ()
    searchable: bool = True
    """False when the query holds nothing that is indexed, such as punctuation alone."""


@frozen
class EventSearchPage:
    """One page of events of one session, strongest first."""

    session: SessionHeader
    items: tuple[EventSearchHit, ...]
    next_cursor: str | None = None
    skipped: tuple[Skipped, ...] = ()
    searchable: bool = True


@frozen
class SessionListing:
    """The corpus, newest first, and what was left out of it."""

    sessions: tuple[SessionRecord, ...]
    skipped: tuple[Skipped, ...] = ()


@frozen
class Progress:
    """How far a pass of the index has come."""

    sessions_done: int
    sessions_total: int
    events_done: int = field(default=0)
