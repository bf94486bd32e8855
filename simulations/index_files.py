"""Where the search index of a run lives: in memory, or in files that a crash freezes by copy.

Each incarnation has a directory of its own on the real disk. A crash copies the files as they stand
at that moment; what the old connections do afterwards stays with the old files, so that they can be
closed in peace, and their locks hold nobody up.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from attrs import define, field

from ..messages.config import MEMORY

_NAME: Final = "index.sqlite"
_SHARED_MEMORY: Final = "-shm"
"""Made anew by whoever opens first after a crash."""
_QUICK_DIRECTORY: Final = "/dev/shm"


@define(eq=False)
class IndexFiles:
    """The index path of each incarnation; all in memory where there is no ``directory``."""

    directory: str | None = None
    """Private to the run, on the real disk."""
    _incarnation: int = field(default=1, init=False)

    def __attrs_post_init__(self) -> None:
        if self.directory is not None:
            os.mkdir(self._home, 0o700)

    @property
    def path(self) -> str:
        """Of this incarnation: give it as the path of an ``IndexConfig``."""
        return MEMORY if self.directory is None else f"{self._home}/{_NAME}"

    @property
    def _home(self) -> str:
        return f"{self.directory}/{self._incarnation}"

    def holds(self, path: str) -> bool:
        """Whether a path is one of this incarnation's files."""
        return self.directory is not None and path.startswith(f"{self._home}/")

    def freeze(self) -> None:
        """Copy the files as they are now, and let the next incarnation have the copies."""
        old = self._home
        self._incarnation += 1
        if self.directory is None:
            return
        os.mkdir(self._home, 0o700)
        with os.scandir(old) as found:
            names = sorted(entry.name for entry in found)
        for name in names:
            if not name.endswith(_SHARED_MEMORY):
                shutil.copyfile(f"{old}/{name}", f"{self._home}/{name}")
                os.chmod(f"{self._home}/{name}", 0o600)


@contextmanager
def private_directory() -> Iterator[str]:
    """A directory on the real disk for the length of one run, in memory where the system has it."""
    above = _QUICK_DIRECTORY if os.access(_QUICK_DIRECTORY, os.W_OK) else None
    directory = tempfile.mkdtemp(prefix="simulation-", dir=above)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
