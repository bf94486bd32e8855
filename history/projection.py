"""The one incremental fold over a log: surface, open turn, title, seed and documents together.

Live sessions and the index both follow a log with a ``SessionProjection``; every payload is
decoded once. An event that is refused leaves the state unchanged, and ``retract`` takes accepted
ones back, latest first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Self, TypeAlias

import msgspec

from ..messages.config import no_text
from ..messages.errors import ReplayError
from ..messages.event import Event
from ..messages.header import SessionHeader
from ..messages.json import Json, decode, encode
from ..messages.records import SessionTitle, Surface
from .documents import Document, document_of
from .extraction import SILENT_TYPES
from .fold import Plan, SurfaceFold, SurfaceState
from .long_payload import MAX_INDEXED_CHARS
from .own_calls import OwnCalls
from .payload import payload
from .replay import check_event
from .seed import check_seed_marked, inherited_count, is_seed_marker
from .titles import title_of
from .turns import OpenTurn, closers

EventCheck: TypeAlias = Callable[[Event, Json, int], None]
"""Refuses an event by raising, given its decoded payload and the format of its log."""

_STATE_FORMAT: Final = 1

# An enumeration takes its time to give a member.
_CURRENT: Final = Surface.CURRENT
_LOG_ONLY: Final = Surface.LOG_ONLY


class _Progress(msgspec.Struct, frozen=True, gc=False):
    """What a projection remembers besides the surface and the own calls; replaced as a whole."""

    turn: OpenTurn
    title: SessionTitle | None
    last_time: int
    marker: int | None
    """Seq of the last seed marker."""


class Advance(msgspec.Struct, frozen=True, gc=False):
    """What one accepted event changed. (A Struct because there is one for every event.)"""

    event: Event
    document: Document | None
    """Its search document, current or log-only as of now; ``None`` without text."""
    shadowed: tuple[int, ...]
    """The nodes it removed from the surface, in surface order."""
    plan: Plan
    before: _Progress
    toggled: tuple[str, ...]


class SessionProjection:
    """The state of a log of which a prefix has been seen.

    ``extract`` gives the text of event types of the host's own. ``check`` refuses damaged events:
    ``check_event`` for stored logs; ``check_restored``, which also verifies recorded streams,
    where events are about to be committed.
    """

    __slots__ = ("_check", "_extract", "_own_calls", "_progress", "header", "surface")

    def __init__(
        self,
        header: SessionHeader,
        extract: Callable[[str, Json], str] = no_text,
        *,
        check: EventCheck = check_event,
    ) -> None:
        self.header = header
        self.surface = SurfaceFold(header.version)
        self._extract = extract
        self._check = check
        self._own_calls = OwnCalls()
        self._progress = _Progress(OpenTurn(), None, 0, None)

    @property
    def next_seq(self) -> int:
        """The seq of the next event, which is the number of events seen."""
        return self.surface.next_seq

    @property
    def turn(self) -> OpenTurn:
        """What is open behind the last event."""
        return self._progress.turn

    @property
    def title(self) -> SessionTitle | None:
        """The newest title, if there is one."""
        return self._progress.title

    @property
    def last_time(self) -> int:
        """The time of the last event in ms since the epoch; 0 before the first."""
        return self._progress.last_time

    @property
    def inherited_event_count(self) -> int:
        """How many of the events seen were inherited, as far as they tell."""
        return inherited_count(self.header, self._progress.marker, self.next_seq)

    def advance(self, event: Event, data: Json = None) -> Advance:
        """Accept the next event, or refuse it and stay as before.

        ``data`` is its payload where that is decoded and checked already.

        Raises:
            ReplayError: the event is damaged, or its seq is not the next one.
            SurfaceError: it breaks a rule of the surface fold.
            UnsupportedFormat: it is intact but not understood by this version.
            InvalidJson: its payload is not JSON.
        """
        header, surface, before = self.header, self.surface, self._progress
        if event.seq != surface.next_seq:
            raise ReplayError(f"event {event.seq} stands where seq {surface.next_seq} is due")
        kind = event.type
        marker, title = before.marker, before.title
        document: Document | None = None
        toggled: tuple[str, ...] = ()
        if data is None:
            data = payload(event, MAX_INDEXED_CHARS)
        self._check(event, data, header.version)
        if kind == "session/end-seed" and is_seed_marker(header, event, data):
            marker = event.seq
        plan = surface.plan(event, data)
        if kind not in SILENT_TYPES:
            placed = _CURRENT if plan.placed else _LOG_ONLY
            own, toggled = self._own_calls.seen(kind, data)
            document = document_of(event, data, placed, own, self._extract)
        elif kind == "session/title":
            title = title_of(event, data) or title
        turn = before.turn.after(event, data)
        surface.apply(plan)
        if toggled:
            self._own_calls.toggle(toggled)
        self._progress = _Progress(turn, title, event.time, marker)
        return Advance(event, document, plan.shadowed, plan, before, toggled)

    def retract(self, advance: Advance) -> None:
        """Take back the latest advance that still stands, exactly.

        Raises:
            ValueError: it is not the latest.
        """
        self.surface.undo(advance.plan)
        self._own_calls.toggle(advance.toggled)
        self._progress = advance.before

    def finish(self) -> None:
        """Check what only the end of a log can tell.

        Raises:
            ReplayError: the header is seeded and no event marks the end of the inherited prefix.
        """
        check_seed_marked(self.header, self._progress.marker)

    def closers(self) -> tuple[Event, ...]:
        """The events that close an open turn here; none where no turn is open."""
        return closers(self.turn, self.next_seq, self.last_time)

    def copy(self) -> Self:
        """An independent projection that continues from here."""
        twin = type(self)(self.header, self._extract, check=self._check)
        twin.surface = self.surface.copy()
        twin._own_calls = OwnCalls(self._own_calls.ids)
        twin._progress = self._progress
        return twin

    def encode(self) -> bytes:
        """The state without header and hooks; ``decode`` continues from it."""
        title = self.title
        remainder = _Remainder(
            self.turn,
            None
            if title is None
            else (title.title, title.message_seqs, title.source, title.event_seq, title.updated_at),
            self.last_time,
            self._progress.marker,
            tuple(sorted(self._own_calls.ids)),
        )
        stored = _Stored(
            _STATE_FORMAT, self.surface.state(), encode(msgspec.to_builtins(remainder))
        )
        return msgspec.msgpack.encode(stored)

    @classmethod
    def decode(
        cls,
        header: SessionHeader,
        blob: bytes,
        extract: Callable[[str, Json], str] = no_text,
        *,
        check: EventCheck = check_event,
    ) -> Self:
        """The projection whose ``encode`` gave ``blob``.

        Raises:
            ValueError: ``blob`` is not such a state, or one of another version of this library.
        """
        stored = _stored_decoder.decode(blob)
        if stored.format != _STATE_FORMAT:
            raise ValueError(f"projection state of format {stored.format}, not {_STATE_FORMAT}")
        remainder = msgspec.convert(decode(stored.remainder), _Remainder)
        projection = cls(header, extract, check=check)
        projection.surface = SurfaceFold.from_state(header.version, stored.surface)
        projection._own_calls = OwnCalls(remainder.own_calls)
        projection._progress = _Progress(
            remainder.turn,
            None if remainder.title is None else SessionTitle(*remainder.title),
            remainder.last_time,
            remainder.marker,
        )
        return projection


class _Remainder(msgspec.Struct, array_like=True):
    turn: OpenTurn
    title: tuple[str, tuple[int, ...], Any, int, int] | None
    last_time: int
    marker: int | None
    own_calls: tuple[str, ...]


class _Stored(msgspec.Struct, array_like=True):
    format: int
    surface: SurfaceState
    remainder: bytes
    """As JSON text: MessagePack cannot hold the lone surrogates that titles and ids may have."""


_stored_decoder = msgspec.msgpack.Decoder(_Stored)
