"""The attachments that a log refers to, found while its text passes by."""

from __future__ import annotations

from typing import Final

from ..history.attachments import Attachment, attachments_of
from ..messages.errors import InvalidJson
from ..messages.json import decode, member
from ..storage.json_line import RECORD_BYTES

_HINT: Final = b"attachmentId"
"""Stands in every line that refers to an attachment."""


class References:
    """Distinct attachments of any number of logs, in the order in which they were met."""

    def __init__(self) -> None:
        self._found: dict[str, Attachment] = {}
        self._line: list[bytes] = []
        self._held = 0

    @property
    def found(self) -> tuple[Attachment, ...]:
        """What was met so far, each id once."""
        return tuple(self._found.values())

    def feed(self, text: bytes) -> None:
        """Look through the next piece of a log; a line that is no JSON, or too long, is passed."""
        *whole, rest = text.split(b"\n")
        for line in whole:
            self._hold(line)
            self.end()
        self._hold(rest)

    def end(self) -> None:
        """End a line, the last one of a log included."""
        if self._held <= RECORD_BYTES:
            self._look(b"".join(self._line))
        self._line = []
        self._held = 0

    def _hold(self, piece: bytes) -> None:
        self._held += len(piece)
        if self._held <= RECORD_BYTES:
            self._line.append(piece)

    def _look(self, line: bytes) -> None:
        if _HINT not in line:
            return
        try:
            data = member(decode(line), "data")
        except InvalidJson:
            return
        for attachment in attachments_of(data):
            self._found.setdefault(attachment.id, attachment)
