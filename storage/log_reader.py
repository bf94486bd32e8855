"""A read handle on a log file: what it has read stays, and only what came since is read again."""

from __future__ import annotations

from collections.abc import Callable

from attrs import define, field

from ..messages.event import Event
from ..messages.header import SessionHeader
from .contract import HandleClosed, ReadHandle, Snapshot, StoredLog, StoreFailed
from .inherited import count_inherited
from .log_file import Piece
from .prefix_guard import Mark
from .slices import check_bounds


@define(eq=False)
class LogReader(ReadHandle):
    """The handle; ``look`` and ``read`` are its store's, by session id."""

    header: SessionHeader
    _look: Callable[[str], Snapshot | None]
    _read: Callable[[str, Mark | None, int | None], Piece]
    _closed: bool = field(init=False, default=False)
    _events: list[Event] = field(init=False, factory=list)
    _piece: Piece | None = field(init=False, default=None)
    """The last read; ``_events`` are all events up to its mark."""

    def read(self, offset: int = 0, length: int | None = None) -> tuple[Event, ...]:
        self._check_open()
        end = check_bounds(offset, length)
        self._refresh()
        return tuple(self._events[offset:end])

    def read_log(self) -> StoredLog:
        self._check_open()
        piece = self._refresh()
        events = tuple(self._events)
        place = piece.location or f"session {self.header.id!r}"
        inherited = count_inherited(place, piece.header, events)
        return StoredLog(piece.snapshot(), inherited, events, piece.left_out)

    def close(self) -> None:
        self._closed = True
        self._events = []

    def _refresh(self) -> Piece:
        known = self._piece
        if known is not None and not known.provisional:
            now = self._look(self.header.id)
            if now is not None and now.revision == known.snapshot().revision:
                return known
        piece = self._read(self.header.id, known.mark if known is not None else None, None)
        if piece.appended:
            self._events.extend(piece.events)
        elif len(piece.events) < len(self._events):
            raise StoreFailed(
                f"session {self.header.id!r} became shorter while it was open:"
                f" {len(self._events)} events, now {len(piece.events)}"
            )
        else:
            self._events = list(piece.events)
        self._piece = piece
        return piece

    def _check_open(self) -> None:
        if self._closed:
            raise HandleClosed(f"this handle of session {self.header.id!r} is closed")
