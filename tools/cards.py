"""How calls are shown to people while they run."""

from __future__ import annotations

from collections.abc import Callable

from .definition import Arguments, CallCard
from .quoting import quoted_line


def search_card(title: str) -> Callable[[Arguments], CallCard]:
    """A fixed title and the query."""
    return lambda arguments: CallCard("search", title, arguments["query"])


def trace_card(arguments: Arguments) -> CallCard:
    """Which session is traced."""
    session_id = arguments.get("session_id")
    named = "the current session" if session_id is None else f"session {quoted_line(session_id)}"
    return CallCard("read", f"Trace {named}", session_id)


def event_card(action: str) -> Callable[[Arguments], CallCard]:
    """What is done to which event; neighbours are left out."""

    def card(arguments: Arguments) -> CallCard:
        shown = {name: arguments[name] for name in ("session_id", "seq") if name in arguments}
        return CallCard("read", f"{action} event {arguments['seq']}", shown)

    return card
