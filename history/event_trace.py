"""The relations of one event to others of its log, from one fold (surface-fold §6)."""

from __future__ import annotations

from collections.abc import Sequence

from ..messages.errors import ErrorCode, SessionQueryError
from ..messages.event import Event
from ..messages.header import SessionHeader
from ..messages.records import EventRecord, EventTrace
from .fold import FoldedSurface, fold_surface


def event_at(header: SessionHeader, events: Sequence[Event], seq: object) -> Event:
    """The event of a whole log that has this seq.

    Raises:
        SessionQueryError: ``EVENT_NOT_FOUND``, for whatever is no seq of the log.
    """
    if type(seq) is int and 0 <= seq < len(events):
        return events[seq]
    there = f"seqs 0 to {len(events) - 1}" if events else "no events"
    raise SessionQueryError(
        ErrorCode.EVENT_NOT_FOUND, f"session {header.id!r} has no event {seq!r}; it has {there}"
    )


def event_record(header: SessionHeader, event: Event, surface: FoldedSurface) -> EventRecord:
    """Where an event stands in its session."""
    return EventRecord(header.id, event.seq, event.type, event.time, surface.surface_of(event.seq))


def trace_event(header: SessionHeader, events: Sequence[Event], seq: object) -> EventTrace:
    """Trace the event at ``seq`` of a whole log; that it exists is checked before the fold.

    Raises:
        SessionQueryError: ``EVENT_NOT_FOUND``.
        SurfaceError, InvalidJson: the log cannot be folded.
    """
    target = event_at(header, events, seq)
    surface = fold_surface(events, header.version)
    replaced_by = {
        removed: replacement.seq
        for replacement in surface.replacements
        for removed in replacement.shadowed
    }
    chain: list[int] = []
    newest = target.seq
    while newest in replaced_by:
        newest = replaced_by[newest]
        chain.append(newest)
    return EventTrace(
        header=header,
        target=event_record(header, target, surface),
        replaced_by=replaced_by.get(target.seq),
        replacement_chain=tuple(chain),
        replaced_event_seqs=next(
            (each.shadowed for each in surface.replacements if each.seq == target.seq), ()
        ),
        source_event_seqs=tuple(target.source_event_seqs or ()),
        derived_event_seqs=tuple(
            event.seq for event in events if target.seq in (event.source_event_seqs or ())
        ),
    )
