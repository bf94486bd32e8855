"""Spilled results: whole tool results in private files, found again by their path.

``<root>/session-<hash of the owner>/<unique>-<name>``; folders for their owner alone (0700), files
too (0600), each written once and complete on the medium before its path is told.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from typing import Final

from attrs import define, field, frozen

from .files import Files, OsFiles
from .layout import encode_segment

HINT: Final = "read that path in parts, or search it"
"""How the rest of a result is reached: by the file tools that the host has anyway."""

_DIGITS: Final = 12
_NAME_LENGTH: Final = 200
"""Characters of the encoded name that are kept; file systems allow 255 in all."""


@frozen
class Spilled:
    """Where the whole of a result is."""

    locator: str
    """Opaque to a program; a model hands it to whatever ``hint`` names."""
    hint: str


def _absolute(path: str) -> str:
    return os.path.abspath(path)


@define(eq=False)
class SpillFiles:
    """A store of spilled results in one folder, made when the first result comes.

    Methods block and raise ``OSError`` where the disk refuses.
    """

    root: str = field(converter=_absolute)
    _files: Files = field(factory=OsFiles)

    def save(self, owner: str, name: str, unique: str, content: bytes) -> Spilled:
        """Keep ``content`` and say where.

        Args:
            owner: the id of the session that the result belongs to.
            name: what the file is called, such as ``grep.txt``; shown, never trusted.
            unique: an id that no other file of the owner has.

        Raises:
            FileExistsError: ``unique`` was used before.
            ValueError: the path of the folder is no text that a model could repeat.
        """
        folder = os.path.join(self.root, f"session-{_digest(owner)}")
        shown = encode_segment(name)[:_NAME_LENGTH] if name else "~"
        path = os.path.join(folder, f"{_digest(unique)}-{shown}")
        path.encode()
        self._make(folder)
        self._write(path, content)
        self._files.sync_directory(folder)
        return Spilled(path, HINT)

    def _make(self, folder: str) -> None:
        """Make a folder and those above it."""
        try:
            if self._files.stat(folder).is_directory:
                return
        except FileNotFoundError:
            self._make(os.path.dirname(folder))
        try:
            self._files.make_directory(folder)
        except FileExistsError:
            if not self._files.stat(folder).is_directory:
                raise
        else:
            self._files.sync_directory(os.path.dirname(folder))

    def _write(self, path: str, content: bytes) -> None:
        with self._files.create(path) as file:
            try:
                file.append(content)
                file.sync()
            except BaseException:
                self._files.unlink(path)
                raise


def make_temporary_root(unique: str) -> str:
    """Make a private folder beside other temporary files."""
    path = os.path.join(tempfile.gettempdir(), f"session-query-{_digest(unique)}")
    os.mkdir(path, 0o700)
    return path


def remove_temporary_root(path: str) -> None:
    """Remove what ``make_temporary_root`` made, and all in it; what resists stays."""
    shutil.rmtree(path, ignore_errors=True)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
