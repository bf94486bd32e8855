"""Calls of this library's own model tools: their traces must not be recalled as findings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ..messages.json import Json, child, elements, member
from .extraction import block_texts
from .turns import requested_calls
from .whitespace import trim

OWN_TOOLS: Final = frozenset(
    {
        "session_search",
        "session_event_search",
        "session_trace",
        "session_event_trace",
        "session_event_read",
    }
)


class OwnCalls:
    """The ids of the calls of own tools seen so far in a log.

    An id that a later call of another tool takes over is forgotten.
    """

    __slots__ = ("ids",)

    def __init__(self, ids: Iterable[str] = ()) -> None:
        self.ids = set(ids)

    def seen(self, event_type: str, data: Json) -> tuple[bool, tuple[str, ...]]:
        """What an event is to own calls, and which ids enter or leave the set with it.

        The first tells whether it is a call of an own tool, its result, or a request for nothing
        else. Nothing changes until ``toggle``.
        """
        if event_type == "tool/call":
            name, asked = child(data, "name"), child(data, "callId")
            own = isinstance(name, str) and name in OWN_TOOLS
            if isinstance(asked, str) and own != (asked in self.ids):
                return own, (asked,)
            return own, ()
        if event_type == "tool/result" and self.ids:
            answered = member(data, "message", "source", "callId")
            return isinstance(answered, str) and answered in self.ids, ()
        calls = requested_calls(data) if event_type == "assistant/message" else []
        if not calls:
            return False, ()
        owned = {call_id: name in OWN_TOOLS for call_id, name in calls}
        toggled = tuple([call_id for call_id, own in owned.items() if own != (call_id in self.ids)])
        own = all(name in OWN_TOOLS for _, name in calls) and _says_nothing_besides(data)
        return own, toggled

    def toggle(self, ids: tuple[str, ...]) -> None:
        """Carry out a change; the same change again takes it back."""
        self.ids.symmetric_difference_update(ids)


def _says_nothing_besides(data: Json) -> bool:
    """Whether an ``assistant/message`` has no text but that of its calls."""
    others: list[Json] = [
        block
        for block in elements(member(data, "message", "content"))
        if member(block, "type") != "tool-call"
    ]
    return not any(map(trim, block_texts(others)))
