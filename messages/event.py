"""An event of a session log, and the draft from which a live session makes one."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec
from attrs import field, frozen

from .json import Json, decode


class Replace(msgspec.Struct, frozen=True, gc=False):
    """A surface operation that puts an event in the place of a range of nodes.

    ``start`` and ``end`` are seqs of surface nodes, the range is inclusive and positional.
    """

    start: int
    end: int


SurfaceOp: TypeAlias = Literal["append"] | Replace


class Event(msgspec.Struct, frozen=True, gc=False):
    """One committed event. Its payload is kept as the exact JSON bytes it was stored with."""

    type: str
    seq: int
    time: int
    """ms since the epoch; not required to rise."""
    raw: bytes
    """The JSON text of the payload alone."""
    surface_op: SurfaceOp | None = None
    source_event_seqs: tuple[int, ...] | None = None
    ignorable: bool = False

    @property
    def data(self) -> Json:
        """The payload, decoded afresh at each call; the caller owns it."""
        return decode(self.raw)


@frozen
class EventDraft:
    """What a caller hands to ``LiveSession.commit``; seq and time are given on acceptance."""

    type: str
    data: object
    """Lossless JSON (see ``messages.json``); copied when the draft is committed."""
    surface_op: SurfaceOp | None = field(default=None, kw_only=True)
    source_event_seqs: tuple[int, ...] | None = field(default=None, kw_only=True)
    ignorable: bool = field(default=False, kw_only=True)


def surface_op_to_json(op: SurfaceOp) -> Json:
    """The operation as it stands in a log of format 0 to 2."""
    return op if op == "append" else {"op": "replace", "start": op.start, "end": op.end}


def event_to_json(event: Event) -> dict[str, Json]:
    """The event under the key names and in the key order of the log, sources as plain numbers.

    The payload is decoded and so loses its exact spelling; ``render`` in the stores keeps it.
    """
    fields: dict[str, Json] = {
        "type": event.type,
        "seq": event.seq,
        "time": event.time,
        "data": event.data,
    }
    if event.ignorable:
        fields["ignorable"] = True
    if event.surface_op is not None:
        fields["surfaceOp"] = surface_op_to_json(event.surface_op)
    if event.source_event_seqs is not None:
        fields["sourceEventSeqs"] = list(event.source_event_seqs)
    return fields
