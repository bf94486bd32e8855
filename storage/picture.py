"""A picture of a JSONL store: what stands at each place, and which sessions that makes.

It is changed place by place, and writes down which sessions each change concerned.
"""

from __future__ import annotations

from typing import TypeAlias

from attrs import define, field

from .catalogue import Found, Refusal, Stored, settle
from .contract import Damaged
from .told import Told

Key: TypeAlias = tuple[str, ...]
"""A place below the root: nothing for the root itself, a project, or a project and a name in it."""


@define(eq=False)
class Picture(Told):
    """See the module's text."""

    _found: dict[Key, Stored | Refusal] = field(factory=dict, init=False)
    _holders: dict[str, tuple[Key, ...]] = field(factory=dict, init=False)
    """The places that hold a session of this id: one, unless something is wrong."""
    _conflicts: dict[str, Damaged] = field(factory=dict, init=False)
    _damaged: tuple[Damaged, ...] | None = field(default=None, init=False)

    def put(self, key: Key, found: Found) -> None:
        """Say what was found at a place just now."""
        before = self._found.pop(key, None)
        if found is not None:
            self._found[key] = found
        concerned = {_session_id(before), _session_id(found)} - {None}
        for session_id in concerned:
            others = [each for each in self._holders.get(str(session_id), ()) if each != key]
            held = [key] if _session_id(found) == session_id else []
            self._holders[str(session_id)] = (*others, *held)
        if isinstance(before, Refusal) or isinstance(found, Refusal):
            self._damaged = None
        for session_id in concerned:
            self._settle(str(session_id))

    def holders(self, session_id: str) -> frozenset[Key]:
        """The places that hold a session of this id."""
        return frozenset(self._holders.get(session_id, ()))

    @property
    def damaged(self) -> tuple[Damaged, ...]:
        """All damage there is."""
        if self._damaged is None:
            refused = (one.damaged for one in self._found.values() if isinstance(one, Refusal))
            self._damaged = (*refused, *self._conflicts.values())
        return self._damaged

    def _settle(self, session_id: str) -> None:
        """Find out anew what the places of an id make of it."""
        holders = self._holders[session_id]
        found = settle([self._found[key] for key in sorted(holders)])
        if not holders:
            del self._holders[session_id]
        if isinstance(found, Refusal):
            self._conflicts[session_id] = found.damaged
            self._damaged = None
        elif self._conflicts.pop(session_id, None) is not None:
            self._damaged = None
        self.hold(session_id, found.snapshot if isinstance(found, Stored) else None)


def _session_id(found: Found) -> str | None:
    return found.snapshot.header.id if isinstance(found, Stored) else None
