"""A journal of changes: what has changed since any earlier moment, each thing named once."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from attrs import define, field

KEPT: Final = 100_000
"""Things whose last change a journal remembers unless it is told otherwise."""


@define(eq=False)
class Journal:
    """The order in which things changed last. A moment is the number of changes before it."""

    _kept: int = KEPT
    """Things whose last change is remembered."""
    number: int = field(default=0, init=False)
    """The present moment."""
    _changed: OrderedDict[str, int] = field(factory=OrderedDict, init=False)
    _forgotten: int = field(default=0, init=False)
    """The last change that is not remembered."""

    def note(self, name: str) -> None:
        """Write down that something has changed."""
        self.number += 1
        self._changed[name] = self.number
        self._changed.move_to_end(name)
        if len(self._changed) > self._kept:
            self._forgotten = self._changed.popitem(last=False)[1]

    def since(self, moment: int) -> list[str] | None:
        """What has changed after ``moment``; ``None`` where that is no longer known."""
        if not self._forgotten <= moment <= self.number:
            return None
        names: list[str] = []
        for name, number in reversed(self._changed.items()):
            if number <= moment:
                break
            names.append(name)
        return names
