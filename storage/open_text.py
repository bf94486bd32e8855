"""The text of a log file, open for copying."""

from __future__ import annotations

from .contract import StoredText, StoreFailed
from .files import Files
from .log_file import LogFile, text_of
from .log_text import Place


class OpenText(StoredText):
    """One state of a log file; what is appended to it later is not part of the text."""

    def __init__(self, files: Files, log: LogFile) -> None:
        """Open a log. Raises ``OSError``, ``CorruptLog``, ``UnsupportedLog``."""
        self._name = log.name
        self._file = files.open_reading(log.path)
        try:
            self._size = self._file.stat().size
            self._text = text_of(self._file, log, self._size)
            self.first_line, _behind = self._text.first_line()
        except BaseException:
            self._file.close()
            raise
        self._text.seek(Place(0))
        self._closed = False

    def read(self, size: int) -> bytes:
        try:
            piece = self._text.read(size)
            if not piece and self._file.stat().size < self._size:
                raise StoreFailed(f"{self._name} became shorter while it was read")
        except OSError as error:
            raise StoreFailed(f"{self._name} cannot be read: {error}") from error
        return piece

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._file.close()
