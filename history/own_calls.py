"""Calls of this library's own model tools: their traces must not be recalled as findings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ..messages.json import Json, elements, member, text_member
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

    def owns(self, event_type: str, data: Json) -> bool:
        """Whether an event is a call of an own tool, its result, or a request for nothing else."""
        if event_type == "tool/call":
            return text_member(data, "name") in OWN_TOOLS
        if event_type == "tool/result":
            return bool(self.ids) and member(data, "message", "source", "callId") in self.ids
        return event_type == "assistant/message" and _asks_only_for_own_tools(data)

    def toggled(self, event_type: str, data: Json) -> tuple[str, ...]:
        """The ids that enter or leave the set with an event; ``toggle`` carries it out."""
        if event_type == "tool/call":
            asked = member(data, "callId")
            if not isinstance(asked, str):
                return ()
            own = text_member(data, "name") in OWN_TOOLS
            return (asked,) if own != (asked in self.ids) else ()
        calls = requested_calls(data) if event_type == "assistant/message" else ()
        if not calls:
            return ()
        owned = {call_id: name in OWN_TOOLS for call_id, name in calls}
        return tuple(call_id for call_id, own in owned.items() if own != (call_id in self.ids))

    def toggle(self, ids: tuple[str, ...]) -> None:
        """Carry out a change; the same change again takes it back."""
        self.ids.symmetric_difference_update(ids)


def _asks_only_for_own_tools(data: Json) -> bool:
    calls = requested_calls(data)
    if not calls or not all(name in OWN_TOOLS for _call_id, name in calls):
        return False
    others: list[Json] = [
        block
        for block in elements(member(data, "message", "content"))
        if member(block, "type") != "tool-call"
    ]
    return not any(map(trim, block_texts(others)))
