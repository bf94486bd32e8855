"""What the command line refuses by itself, before or beside the library."""

from __future__ import annotations

from ..messages.errors import SessionError


class WrongUse(SessionError):
    """The call cannot be right, whatever is stored; the message says what would be."""


class Unusable(SessionError):
    """A place that the call names cannot be used; the message says which and why."""
