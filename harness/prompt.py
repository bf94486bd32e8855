"""The prompt of a host: named sections in a fixed order."""

from __future__ import annotations

from typing import Final

from attrs import define, field, frozen
from sortedcontainers import SortedDict

from ..messages.errors import ErrorCode, SessionQueryError
from .registration import Registration

MIDDLE: Final = 100
"""The order of a section that does not care."""


@frozen(order=True)
class _Key:
    order: int
    name: str


@define(eq=False)
class PromptSections:
    """What a host tells every model, section by section."""

    _sections: SortedDict[_Key, str] = field(factory=SortedDict, init=False)

    def add(self, name: str, text: str, order: int = MIDDLE) -> Registration:
        """Show a section until its registration is disposed of.

        Raises:
            SessionQueryError: ``INVALID_CONFIG`` where the name is taken.
        """
        if any(key.name == name for key in self._sections):
            raise SessionQueryError(
                ErrorCode.INVALID_CONFIG, f"the prompt has a section {name!r} already"
            )
        key = _Key(order, name)
        self._sections[key] = text
        return Registration(lambda: self._remove(key))

    @property
    def text(self) -> str:
        """The sections by order and then by name, a blank line between them."""
        return "\n\n".join(self._sections.values())

    def _remove(self, key: _Key) -> None:
        del self._sections[key]
