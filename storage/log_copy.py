"""The log of one session as the text of a file of its own, a bounded piece at a time.

A log of format 2 is written anew, record by record: no torn tail, every cited seq a plain number,
the header as it is stored. A log of another format is copied as it is stored, packed rows included.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Final

from ..messages.event import Event
from ..messages.header import FORMAT_VERSION, SessionHeader
from .contract import SessionStore, StoredText, StoreFailed
from .header_line import render_header
from .records import render_plainly

COPY_BYTES: Final = 2 * 1024 * 1024
"""About how much text one piece holds; a longer record is a piece of its own."""

Pieces = Generator[bytes, None, None]
"""Pieces of text; closing gives back what is open."""


def stored_pieces(store: SessionStore, header: SessionHeader, notes: list[str]) -> Pieces:
    """The text of a stored log as it is when reading begins, without in-memory closers.

    Which stored lines are left out, and why, is added to ``notes`` at the end.

    Raises:
        NotFound, CorruptLog, UnsupportedLog
        StoreFailed: also where the log is rewritten meanwhile.
    """
    text = store.open_text(header.id)
    if text is None:
        first = render_header(header)
    elif header.version != FORMAT_VERSION:
        yield from _verbatim(text)
        return
    else:
        first = text.first_line + b"\n"
        text.close()
    yield from _joined(first, _records(store, header.id, notes))


def live_pieces(header: SessionHeader, events: Sequence[Event]) -> Pieces:
    """The text of a log that is only in memory."""
    return _joined(render_header(header), _lines(events))


def _verbatim(text: StoredText) -> Pieces:
    try:
        while piece := text.read(COPY_BYTES):
            yield piece
    finally:
        text.close()


def _records(store: SessionStore, session_id: str, notes: list[str]) -> Iterator[bytes]:
    tail = store.read_tail(session_id, None, COPY_BYTES)
    yield from _lines(tail.events)
    while not tail.complete:
        tail = store.read_tail(session_id, tail.mark, COPY_BYTES)
        if not tail.appended:
            raise StoreFailed(f"session {session_id!r} was rewritten while it was copied")
        yield from _lines(tail.events)
    if tail.left_out is not None:
        notes.append(tail.left_out)


def _lines(events: Iterable[Event]) -> Iterator[bytes]:
    for event in events:
        try:
            yield render_plainly(event)
        except ValueError as error:
            raise StoreFailed(f"a record cannot be copied: {error}") from error


def _joined(first: bytes, lines: Iterator[bytes]) -> Pieces:
    """The lines in pieces, so that nobody counts in records."""
    piece = [first]
    held = len(first)
    for line in lines:
        if held and held + len(line) > COPY_BYTES:
            yield b"".join(piece)
            piece, held = [], 0
        piece.append(line)
        held += len(line)
    yield b"".join(piece)
