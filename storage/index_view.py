"""A view: what one page of a search sees, fixed at one instant.

It is opened on the writer's lane, in one step: the reader's snapshot of the file is pinned, the
recent documents that can matter are taken along, and what live sessions change about the file is
noted. What runs later on the view needs no lane.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import apsw
import msgspec
from attrs import define, field, frozen

from ..history.request import SearchRequest
from ..messages.header import SessionHeader
from ..messages.records import Skipped
from .document_rows import Extent
from .index_values import blob, integer, text
from .live_arm import LiveOverlay
from .tokens import Probe


class Match(msgspec.Struct, frozen=True, order=True, gc=False):
    """One ranked document; matches sort strongest first (search-index §10)."""

    weight: float
    """Minus the match count, or FTS5's rank where nothing else is compared with it."""
    length: int
    """Code points."""
    negative_time: int
    session_key: bytes
    negative_seq: int
    id: int
    session_no: int

    @property
    def seq(self) -> int:
        return -self.negative_seq


@frozen
class Ranking:
    """The strongest matches of a request, one a session in a session search."""

    generation: str
    """Of what it was made."""
    matches: tuple[Match, ...]
    complete: bool
    """Whether there are no more."""


@frozen
class IndexedDocument:
    """A document as a hit is made from it."""

    seq: int
    time: int
    type_code: int
    surface: int
    text: str


class Overtaken(Exception):
    """Another process changed the index between this one's pass and its view: pass again."""


@define(eq=False)
class Reader:
    """A connection that reads one view at a time, and what keeps its snapshot in place."""

    connection: apsw.Connection
    interrupt: Callable[[], None]
    """Stops what the reader is doing, from any thread."""
    owned: bool
    """False where it is the writer's connection, lent together with the writer's lane."""
    probe: Probe = field(factory=Probe)
    """Finds matches in the texts of a page."""
    _pin: apsw.Cursor | None = None

    def pin(self) -> tuple[int, str]:
        """Fix what this reader sees until ``release``; its generation, and its file's making.

        An unfinished statement holds the snapshot, and makes an interruption stick until it ends.
        """
        self.release()
        cursor = self.connection.cursor()
        self._pin = cursor
        cursor.execute(
            "SELECT g.value, m.value FROM meta AS g, meta AS m, (VALUES (1), (2)) "
            "WHERE g.key = 'generation' AND m.key = 'making'"
        )
        generation, making = next(cursor, (None, None))
        return integer(generation), text(making)

    def release(self) -> None:
        """Let go of the snapshot; again is harmless."""
        if self._pin is not None:
            self._pin.close()
            self._pin = None

    @property
    def pinned(self) -> bool:
        """Whether a snapshot is held."""
        return self._pin is not None

    def close(self) -> None:
        """Close the connection with all of its statements, unless it is the writer's."""
        self.release()
        if self.owned:
            self.connection.close(True)


@frozen
class Target:
    """The session of an event search."""

    header: SessionHeader
    filed: tuple[Extent, ...]
    """Where the file keeps its documents."""
    recent: tuple[Extent, ...]
    """Where the recent tables keep the others."""
    generation: str


@frozen(kw_only=True)
class View:
    """What one page is made from."""

    request: SearchRequest
    tokens: tuple[str, ...]
    """The folded tokens of the query; without any, nothing matches."""
    generation: str
    """What a cursor of this page is bound to."""
    offset: int
    store_bound: bool
    overlay: LiveOverlay
    types: Mapping[str, int]
    target: Target | None
    """For an event search."""
    skipped: tuple[Skipped, ...]
    recent_matches: tuple[Match, ...] = ()
    """Matches outside the file, strongest first, as many as could matter."""
    recent_complete: bool = True
    """Whether there are no more of them."""
    recent_documents: Mapping[int, IndexedDocument] = field(factory=dict)
    """Those documents outside the file that the page may show, by id."""
    ranking: Ranking | None = None
    """An earlier ranking of the same request at the same generation that reaches far enough."""

    @property
    def wanted(self) -> int:
        """Matches that the page needs: those before it, its own, and one to know of more."""
        return self.offset + self.request.limit + 1


def matches_of(rows: Iterable[tuple[object, ...]]) -> list[Match]:
    """Matches from rows of the statements in ``index_query``."""
    return [
        Match(
            weight=weight if isinstance(weight, float) else integer(weight),
            length=integer(length),
            negative_time=-integer(time),
            session_key=blob(session_key),
            negative_seq=-integer(seq),
            id=integer(row_id),
            session_no=integer(no),
        )
        for row_id, no, seq, time, length, session_key, weight in rows
    ]


def indexed_document(row: Sequence[object]) -> IndexedDocument:
    """A document from its columns: seq, time, type, surface, text."""
    seq, time, type_code, surface, body = row
    return IndexedDocument(
        integer(seq), integer(time), integer(type_code), integer(surface), text(body)
    )
