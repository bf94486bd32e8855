"""Search documents: one for every event that has text."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from ..messages.config import no_text
from ..messages.event import Event
from ..messages.json import Json
from ..messages.records import Surface
from .extraction import extract_text
from .fold import SurfaceFold
from .long_payload import MAX_INDEXED_CHARS
from .own_calls import OwnCalls
from .payload import payload


class Document(msgspec.Struct, frozen=True, gc=False):
    """The searchable side of an event. (A Struct, as ``Event`` is, because there are as many.)"""

    seq: int
    type: str
    time: int
    """ms since the epoch."""
    surface: Surface
    text: str
    """Never empty, at most ``MAX_INDEXED_CHARS`` code points."""
    own: bool = False
    """Whether it only echoes the use of this library's own tools."""


def document_of(
    event: Event,
    data: Json,
    surface: Surface,
    own: bool,
    extract: Callable[[str, Json], str] = no_text,
) -> Document | None:
    """The document of an event, ``None`` where it has no text.

    ``data`` is the decoded payload, ``own`` what ``OwnCalls.seen`` says.
    """
    text = extract_text(event.type, data, extract)[:MAX_INDEXED_CHARS]
    if not text:
        return None
    return Document(event.seq, event.type, event.time, surface, text, own)


def search_documents(
    events: Iterable[Event], version: int, extract: Callable[[str, Json], str] = no_text
) -> tuple[Document, ...]:
    """The documents of a whole log of format ``version``, in seq order, with final surfaces.

    Raises:
        SurfaceError: the log breaks a rule of the fold.
        InvalidJson, UnsupportedFormat: a payload cannot be decoded.
    """
    fold, own_calls = SurfaceFold(version), OwnCalls()
    documents: dict[int, Document] = {}
    for event in events:
        data = payload(event, MAX_INDEXED_CHARS)
        plan = fold.plan(event, data)
        fold.apply(plan)
        for seq in plan.shadowed:
            if seq in documents:
                documents[seq] = shadowed(documents[seq])
        surface = Surface.CURRENT if plan.placed else Surface.LOG_ONLY
        own, toggled = own_calls.seen(event.type, data)
        document = document_of(event, data, surface, own, extract)
        own_calls.toggle(toggled)
        if document is not None:
            documents[event.seq] = document
    return tuple(documents.values())


def shadowed(document: Document) -> Document:
    """The document after a replacement has removed its event from the surface."""
    return msgspec.structs.replace(document, surface=Surface.SHADOWED)
