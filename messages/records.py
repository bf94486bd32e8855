"""What queries answer with: frozen records, detached from everything that may still change."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from itertools import zip_longest
from typing import Generic, TypeVar

from attrs import field, frozen

from .errors import ErrorCode, SessionQueryError
from .event import Event
from .header import SessionHeader
from .json import Json

R = TypeVar("R")


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
class SessionSurface:
    """What the model sees of a session at one moment."""

    header: SessionHeader
    inherited_event_count: int
    captured_through_seq: int | None
    """The last seq of the log it was folded from; ``None`` for a log without events."""
    events: tuple[Event, ...]
    """In surface order, which need not be the order of the seqs."""


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
class SearchDocument(EventRecord):
    """An event and the text that a search finds it by."""

    text: str
    """Never empty."""


@frozen
class EventTrace:
    """What one event has to do with others of its session, by direct links."""

    header: SessionHeader
    target: EventRecord
    replaced_by: int | None
    """Seq of the replacement that removed the target from the surface."""
    replacement_chain: tuple[int, ...]
    """That replacement, the one that replaced it in turn, and so on to the one that stands now."""
    replaced_event_seqs: tuple[int, ...]
    """What the target removed from the surface, in surface order."""
    source_event_seqs: tuple[int, ...]
    """What the target cites, as it was recorded."""
    derived_event_seqs: tuple[int, ...]
    """Later events that cite the target, ascending."""


@frozen(eq=False, repr=False)
class LineageNode:
    """A descendant and what descends from it. Nothing here recurses, however deep the tree is."""

    session: SessionRecord
    descendants: tuple[LineageNode, ...] = ()
    """Direct children, oldest first and then by id."""

    def walk(self) -> Iterator[tuple[int, SessionRecord]]:
        """This session at depth 0 and all below it, each before its own children."""
        pending = [(0, self)]
        while pending:
            depth, node = pending.pop()
            yield depth, node.session
            pending += [(depth + 1, child) for child in reversed(node.descendants)]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LineageNode):
            return NotImplemented
        return all(one == two for one, two in zip_longest(self.walk(), other.walk()))

    def __hash__(self) -> int:
        return hash(self.session)

    def __repr__(self) -> str:
        return f"<LineageNode {self.session.header.id!r}, children: {len(self.descendants)}>"


@frozen
class LineageTrace:
    """Where a session comes from and what came from it."""

    target: SessionRecord
    ancestors: tuple[SessionRecord, ...]
    """Nearest first."""
    descendants: tuple[LineageNode, ...]
    root: SessionRecord | None
    """The last ancestor, or the target itself; ``None`` where the lineage is incomplete."""
    unresolved_parent_id: str | None = None
    """The parent that is not in the corpus, where the lineage ends before its root."""
    skipped: tuple[Skipped, ...] = ()
    """What the listing left out: a reason why a parent or a child may be missing."""

    @property
    def complete(self) -> bool:
        """Whether the ancestors reach a session without a parent."""
        return self.root is not None

    def walk(self) -> Iterator[tuple[int, SessionRecord]]:
        """All descendants, each before its own children; direct children have depth 1."""
        for node in self.descendants:
            for depth, session in node.walk():
                yield depth + 1, session


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
class Projected(Generic[R]):
    """One answer of ``project_many``: what the fold made of a log, or why there is nothing."""

    session_id: str
    value: R | None = None
    error: Exception | None = None
    """A ``SessionQueryError`` where the log could not be read, else what the fold raised."""


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
class IndexStatus:
    """What a search index holds."""

    path: str
    size_bytes: int
    """Of all its files; 0 in memory."""
    generation: int
    sessions: int
    documents: int
    """Searchable events, those included that are removed and not reclaimed yet."""
    skipped: tuple[Skipped, ...]
    """Sessions that are stored and could not be indexed."""
    purged: int
    """Sessions that are kept out."""
    tokenizer: str


@frozen
class Progress:
    """How far a pass of the index has come."""

    sessions_done: int
    sessions_total: int
    events_done: int = field(default=0)
