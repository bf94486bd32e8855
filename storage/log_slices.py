"""Log slices: stored logs, folded into what the index keeps of them, a bounded piece at a time.

Everything here reads a store and runs on a worker thread; the index writer gets values only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from attrs import frozen

from ..history.documents import Document, shadowed
from ..history.projection import Advance, SessionProjection
from ..history.replay import check_header
from ..messages.errors import (
    ErrorCode,
    InvalidJson,
    ReplayError,
    SessionError,
    SurfaceError,
    UnsupportedFormat,
)
from ..messages.event import Event
from ..messages.header import SessionHeader
from ..messages.json import Json
from ..messages.records import Skipped
from .contract import CorruptLog, NotFound, SessionStore, Snapshot, StoreFailed, Tail
from .located import located

BUILD_BYTES: Final = 1024 * 1024
"""Stored bytes of a new log that one slice is made from."""

APPEND_BYTES: Final = 8 * 1024 * 1024
"""Stored bytes behind a mark that are taken as an append; more of them make a new build."""

_NO_PAYLOADS: Final[Mapping[int, Json]] = {}

Extract = Callable[[str, Json], str]


@frozen
class Checkpoint:
    """A fold that can be continued without what was folded before."""

    seq: int
    """The first event that is not folded."""
    state: bytes
    mark: bytes | None
    """Where the store continues from ``seq``, where that is known."""


@frozen
class Continuation:
    """What the index kept of a session so that an append costs only its tail."""

    mark: bytes
    next_seq: int
    fold: SessionProjection | Checkpoint
    """The fold there, or an earlier one that is to be caught up."""


@frozen
class SessionSlice:
    """A piece of one stored log for the index writer."""

    snapshot: Snapshot
    begins: bool
    """Whether it starts a new build of the session; otherwise it continues one or appends."""
    completes: bool
    documents: tuple[Document, ...]
    shadowed: tuple[int, ...]
    """Seqs of earlier slices, or of rows in the index, that this slice takes off the surface."""
    projection: SessionProjection
    """The fold after this slice."""
    mark: bytes
    events: int
    """How many events the slice was made from."""


@frozen
class Unreadable:
    """A stored session that cannot be indexed as it is."""

    skipped: Skipped
    revision: str


@frozen
class Gone:
    """A stored session that was removed between a look at it and the reading of it."""

    session_id: str


Piece: TypeAlias = SessionSlice | Unreadable | Gone
"""What the index writer takes."""


def read_slices(
    store: SessionStore,
    snapshot: Snapshot,
    continuation: Continuation | None,
    extract: Extract,
) -> Iterator[Piece]:
    """Fold what is new in one stored log. A fold in ``continuation`` then belongs to the slices."""
    session_id = snapshot.header.id
    try:
        if continuation is not None:
            appended = _appended(store, snapshot, continuation, extract)
            if appended is not None:
                yield appended
                return
        yield from _whole(store, snapshot, extract)
        return
    except NotFound:
        left_out: Piece = Gone(session_id)
    except StoreFailed as error:
        # This says nothing of the log: whoever looks next tries again, whatever its revision.
        left_out = Unreadable(_skipped(snapshot, error), "")
    except SessionError as error:
        left_out = Unreadable(_skipped(snapshot, error), snapshot.revision)
    # Only now: the error holds what was read.
    yield left_out


def _whole(store: SessionStore, seen: Snapshot, extract: Extract) -> Iterator[SessionSlice]:
    mark: bytes | None = None
    complete = False
    while not complete:
        tail = store.read_tail(seen.header.id, mark, BUILD_BYTES)
        with located(tail.snapshot.location):
            if not tail.appended:
                # Also where the log was replaced while it was read: what was built of it is void.
                check_header(tail.snapshot.header)
                projection = SessionProjection(tail.snapshot.header, extract)
            folded = _slice(tail, seen, projection, begins=not tail.appended)
        mark, complete = tail.mark, tail.complete
        # The next tail is read when nothing holds this one any more.
        del tail
        yield folded


def _appended(
    store: SessionStore,
    seen: Snapshot,
    continuation: Continuation,
    extract: Extract,
) -> SessionSlice | None:
    """The slice behind ``continuation``, or ``None`` where the log must be built anew."""
    header = seen.header
    projection: SessionProjection | None
    if isinstance(continuation.fold, Checkpoint):
        projection = _caught_up(store, header, continuation.fold, continuation.next_seq, extract)
    else:
        projection = continuation.fold
    if projection is None:
        return None
    tail = store.read_tail(header.id, continuation.mark, APPEND_BYTES)
    if not tail.appended or not tail.complete:
        return None
    with located(tail.snapshot.location):
        return _slice(tail, seen, projection, begins=False)


def _caught_up(
    store: SessionStore,
    header: SessionHeader,
    checkpoint: Checkpoint,
    next_seq: int,
    extract: Extract,
) -> SessionProjection | None:
    """The fold at ``next_seq``, from a checkpoint and the events between the two."""
    try:
        projection = SessionProjection.decode(header, checkpoint.state, extract)
    except ValueError:
        # Written by another version of this library: what was folded is folded again.
        return None
    mark = checkpoint.mark
    while mark is not None and projection.next_seq < next_seq:
        between = store.read_tail(header.id, mark, BUILD_BYTES)
        mark = _followed(projection, between, next_seq)
        # The next tail is read when nothing holds this one any more.
        del between
    return projection if projection.next_seq == next_seq else None


def _followed(projection: SessionProjection, tail: Tail, end: int) -> bytes | None:
    """The mark behind a tail whose events before ``end`` were folded, if the log goes on there."""
    if not tail.appended:
        return None
    for event in tail.events[: end - projection.next_seq]:
        projection.advance(event)
    return None if tail.complete else tail.mark


def _slice(
    tail: Tail, seen: Snapshot, projection: SessionProjection, *, begins: bool
) -> SessionSlice:
    first = projection.next_seq
    folded = fold_events(projection, tail.events, tail.payloads)
    if tail.complete:
        projection.finish()
    return SessionSlice(
        # What the index remembers of it is then no second copy of what the look is kept with.
        snapshot=seen if tail.snapshot == seen else tail.snapshot,
        begins=begins,
        completes=tail.complete,
        documents=folded.documents,
        shadowed=tuple(seq for seq in folded.flips if seq < first),
        projection=projection,
        mark=tail.mark,
        events=len(tail.events),
    )


@frozen
class Folded:
    """What some events added to a fold."""

    documents: tuple[Document, ...]
    flips: dict[int, int]
    """Each seq that left the surface, with the seq of the event that caused it."""
    advances: tuple[Advance, ...]


def fold_events(
    projection: SessionProjection,
    events: Iterable[Event],
    payloads: Mapping[int, Json] = _NO_PAYLOADS,
) -> Folded:
    """Advance the fold by all of the events, or by none where one is refused.

    ``payloads`` are those that are decoded already, by seq.
    A document that a later one of the events shadows is already marked so. Errors as in
    ``SessionProjection.advance``.
    """
    advances: list[Advance] = []
    try:
        for event in events:
            advances.append(projection.advance(event, payloads.get(event.seq)))
    except SessionError:
        retract_events(projection, advances)
        raise
    flips = {seq: advance.event.seq for advance in advances for seq in advance.shadowed}
    documents = [advance.document for advance in advances if advance.document is not None]
    if flips:
        documents = [shadowed(one) if one.seq in flips else one for one in documents]
    return Folded(tuple(documents), flips, tuple(advances))


def retract_events(projection: SessionProjection, advances: Sequence[Advance]) -> None:
    """Take back what ``fold_events`` did."""
    for advance in reversed(advances):
        projection.retract(advance)


def closing_documents(projection: SessionProjection) -> tuple[Document, ...]:
    """The documents of the in-memory closers of a log that ends inside a turn."""
    closers = projection.closers()
    if not closers:
        return ()
    folded = fold_events(projection, closers)
    retract_events(projection, folded.advances)
    return folded.documents


def error_code(error: SessionError) -> ErrorCode:
    """The query code of a failure to read or fold one stored log."""
    match error:
        case SurfaceError():
            return ErrorCode.INVALID_SURFACE
        case CorruptLog() | ReplayError():
            return ErrorCode.CORRUPT_SESSION
        case UnsupportedFormat() | InvalidJson():
            return ErrorCode.PERSISTENCE_FAILED
        case NotFound():
            return ErrorCode.SESSION_NOT_FOUND
        case _:
            return ErrorCode.PERSISTENCE_FAILED


def _skipped(snapshot: Snapshot, error: SessionError) -> Skipped:
    return Skipped(
        path=snapshot.location or snapshot.header.id,
        session_id=snapshot.header.id,
        code=error_code(error),
        message=str(error),
        header=snapshot.header,
    )
