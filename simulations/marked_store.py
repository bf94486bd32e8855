"""A JSONL store that marks what it can tell of changes, and why it can tell no more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..storage.contract import Changes
from ..storage.jsonl import JsonlStore
from .disk import SimulatedDisk
from .marks import Marks

TOLD_MARKS: Final = frozenset(
    {
        "told unchanged",
        "told changed",
        "notices were lost",
        "a watch was refused",
        "fell back to the sweep",
        "began anew",
    }
)


class MarkedStore(JsonlStore):
    """A store on a simulated disk, as one process has it."""

    def __init__(self, root: str, disk: SimulatedDisk, marks: Marks) -> None:
        super().__init__(root, files=disk)
        self._disk, self._marks = disk, marks
        self._has_begun = False

    def changes(self, token: str | None) -> Changes | None:
        changes = self._marking(lambda: super(MarkedStore, self).changes(token))
        if token is None:
            self._begin(changes)
        elif changes is None:
            self._marks.hit("fell back to the sweep")
        else:
            told = changes.changed or changes.gone or changes.token != token
            self._marks.hit("told changed" if told else "told unchanged")
        return changes

    def is_unchanged(self, token: str) -> bool:
        unchanged = super().is_unchanged(token)
        if unchanged:
            self._marks.hit("told unchanged")
        return unchanged

    def _begin(self, changes: Changes | None) -> None:
        if changes is not None and self._has_begun:
            self._marks.hit("began anew")
        self._has_begun = self._has_begun or changes is not None

    def _marking(self, ask: Callable[[], Changes | None]) -> Changes | None:
        lost, refused = self._disk.lost_notices, self._disk.refused_watches
        changes = ask()
        if self._disk.lost_notices > lost:
            self._marks.hit("notices were lost")
        if self._disk.refused_watches > refused:
            self._marks.hit("a watch was refused")
        return changes
