"""A ZIP archive that is written from front to back, in memory no longer than until it is taken."""

from __future__ import annotations

from typing import IO, Final, cast
from zipfile import ZIP_DEFLATED, ZipFile

LEVEL: Final = 6
"""How hard to compress by default."""


class _Outlet:
    """What was written and not taken yet. It cannot seek, so that nothing is written twice."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._pieces.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Nothing is held back."""

    def take(self) -> bytes:
        taken = b"".join(self._pieces)
        self._pieces.clear()
        return taken


class ZipStream:
    """The archive; one entry after the other, each with the same fixed date."""

    def __init__(self, level: int = LEVEL) -> None:
        """``level`` is 0 (stored) to 9."""
        self._outlet = _Outlet()
        self._zip = ZipFile(cast("IO[bytes]", self._outlet), "w", ZIP_DEFLATED, compresslevel=level)
        self._entry: IO[bytes] | None = None

    def begin(self, name: str) -> None:
        """Begin an entry of any size."""
        self.end()
        self._entry = self._zip.open(name, "w", force_zip64=True)

    def add(self, data: bytes) -> bytes:
        """Compress a piece of the entry; the bytes of the archive that are ready."""
        assert self._entry is not None, "no entry was begun"
        self._entry.write(data)
        return self._outlet.take()

    def end(self) -> None:
        """End the entry that was begun, if one was."""
        if self._entry is not None:
            self._entry.close()
            self._entry = None

    def finish(self) -> bytes:
        """End the archive; the last of its bytes."""
        self.end()
        self._zip.close()
        return self._outlet.take()
