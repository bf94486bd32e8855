"""Records as JSON lines: UTF-8 whatever the locale, payloads in their own spelling."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping

from attrs import asdict

from ..messages.event import Event, surface_op_to_json
from ..messages.json import encode
from ..messages.records import (
    EventRecord,
    EventTrace,
    EventWindow,
    IndexStatus,
    LineageTrace,
    SessionRecord,
    SessionSearchHit,
)
from .sources import AgentLogs
from .watching import Change

_LINE_BREAKS = bytes.maketrans(b"\r\n", b"  ")


def write_records(
    records: Iterable[
        SessionRecord
        | EventRecord
        | SessionSearchHit
        | EventTrace
        | Change
        | IndexStatus
        | AgentLogs
    ],
) -> None:
    """Write each record as one object of its fields."""
    for record in records:
        _write_line(encode(asdict(record)))


def write_window(window: EventWindow) -> None:
    """Write a window as one object; each event carries its decoded ``data``."""
    members = {
        "header": encode(asdict(window.header)),
        "inherited_event_count": encode(window.inherited_event_count),
        "target": _event(window.target),
        "events": b"[%b]" % b",".join(_event(event) for event in window.events),
        "start_seq": encode(window.start_seq),
        "end_seq": encode(window.end_seq),
    }
    _write_line(_object(members))


def write_lineage(trace: LineageTrace) -> None:
    """Write a lineage as one object; its descendants stand in one list, each with its depth.

    Nested lists would be too deep for most readers of JSON.
    """
    descendants = [{"depth": depth, **asdict(record)} for depth, record in trace.walk()]
    _write_line(
        encode(
            {
                "target": asdict(trace.target),
                "ancestors": [asdict(record) for record in trace.ancestors],
                "descendants": descendants,
                "root": trace.root and asdict(trace.root),
                "unresolved_parent_id": trace.unresolved_parent_id,
            }
        )
    )


def _event(event: Event) -> bytes:
    return _object(
        {
            "type": encode(event.type),
            "seq": encode(event.seq),
            "time": encode(event.time),
            # No JSON string holds a line break, so that these stand between tokens.
            "data": event.raw.translate(_LINE_BREAKS),
            "surface_op": encode(event.surface_op and surface_op_to_json(event.surface_op)),
            "source_event_seqs": encode(event.source_event_seqs),
            "ignorable": encode(event.ignorable),
        }
    )


def _object(members: Mapping[str, bytes]) -> bytes:
    return b"{%b}" % b",".join(b"%b:%b" % (encode(key), value) for key, value in members.items())


def _write_line(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
