"""What the exact reads make of a loaded log. Pure; stored logs are folded on worker threads."""

from __future__ import annotations

from collections.abc import Callable

from ..history.event_trace import event_at, event_record, trace_event
from ..history.extraction import extract_text
from ..history.filtering import EventPredicate, TextPredicate
from ..history.fold import fold_surface
from ..history.payload import payload
from ..history.replay import validate_log
from ..history.titles import fold_title
from ..messages.config import QueryConfig
from ..messages.records import (
    EventRecord,
    EventTrace,
    EventWindow,
    SearchDocument,
    SessionLog,
    SessionSurface,
    TitleResult,
)
from .loaded_log import LoadedLog


def session_log(log: LoadedLog) -> SessionLog:
    """The log as a value that nothing else holds."""
    return SessionLog(log.header, log.inherited_event_count, tuple(log.events), log.left_out)


def valid_log(log: LoadedLog) -> SessionLog:
    """The log, a stored one checked as for a resume."""
    if log.live:
        return session_log(log)
    inherited = validate_log(log.header, log.events)
    return SessionLog(log.header, inherited, tuple(log.events), log.left_out)


def records(log: LoadedLog) -> tuple[EventRecord, ...]:
    """Where each event stands."""
    surface = fold_surface(log.events, log.header.version)
    return tuple(event_record(log.header, event, surface) for event in log.events)


def documents(
    log: LoadedLog, wanted: EventPredicate, holds: TextPredicate, config: QueryConfig
) -> tuple[SearchDocument, ...]:
    """The events with text that pass; only the texts of wanted events are looked at."""
    found: list[SearchDocument] = []
    for record in records(log):
        if wanted(record):
            text = extract_text(record.type, payload(log.events[record.seq]), config.extract)
            if text and holds(text):
                found.append(
                    SearchDocument(
                        record.session_id,
                        record.seq,
                        record.type,
                        record.time,
                        record.surface,
                        config.redact(text),
                    )
                )
    return tuple(found)


def surface(log: LoadedLog) -> SessionSurface:
    """The events that the model sees, in its order."""
    nodes = fold_surface(log.events, log.header.version).nodes
    return SessionSurface(
        header=log.header,
        inherited_event_count=log.inherited_event_count,
        captured_through_seq=len(log.events) - 1 if log.events else None,
        events=tuple(log.events[seq] for seq in nodes),
    )


def window(seq: object, before: int, after: int) -> Callable[[LoadedLog], EventWindow]:
    """An event and its neighbours; the surface is not folded."""

    def fold(log: LoadedLog) -> EventWindow:
        target = event_at(log.header, log.events, seq)
        start = max(0, target.seq - before)
        end = min(len(log.events) - 1, target.seq + after)
        return EventWindow(
            header=log.header,
            inherited_event_count=log.inherited_event_count,
            target=target,
            events=tuple(log.events[start : end + 1]),
            start_seq=start,
            end_seq=end,
        )

    return fold


def traced(seq: object) -> Callable[[LoadedLog], EventTrace]:
    """The relations of one event."""
    return lambda log: trace_event(log.header, log.events, seq)


def titled(log: LoadedLog) -> TitleResult:
    """The newest title."""
    return TitleResult(log.header.id, log.header, fold_title(log.events))
