"""A picture of a JSONL store: what stands at each place, and which sessions that makes.

It is changed place by place, and writes down which sessions each change concerned.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TypeAlias

from attrs import define, field

from .catalogue import Found, Refusal, Stored, settle
from .contract import Changes, Damaged, Snapshot
from .journal import Journal

Key: TypeAlias = tuple[str, ...]
"""A place below the root: nothing for the root itself, a project, or a project and a name in it."""


@define(eq=False)
class Picture:
    """See the module's text."""

    _journal: Journal = field(factory=Journal, init=False)
    _found: dict[Key, Stored | Refusal] = field(factory=dict, init=False)
    _holders: defaultdict[str, set[Key]] = field(
        factory=lambda: defaultdict[str, set[Key]](set), init=False
    )
    """The places that hold a session of this id: one, unless something is wrong."""
    _sessions: dict[str, Snapshot] = field(factory=dict, init=False)
    _conflicts: dict[str, Damaged] = field(factory=dict, init=False)
    _damaged: tuple[Damaged, ...] | None = field(default=None, init=False)

    @property
    def moment(self) -> int:
        """How many changes there have been."""
        return self._journal.number

    def put(self, key: Key, found: Found) -> None:
        """Say what was found at a place just now."""
        before = self._found.pop(key, None)
        if found is not None:
            self._found[key] = found
        concerned = {_session_id(before), _session_id(found)} - {None}
        if _session_id(before) is not None:
            self._holders[str(_session_id(before))].discard(key)
        if isinstance(found, Stored):
            self._holders[found.snapshot.header.id].add(key)
        if isinstance(before, Refusal) or isinstance(found, Refusal):
            self._damaged = None
        for session_id in concerned:
            self._settle(str(session_id))

    def since(self, moment: int, token: str) -> Changes | None:
        """What changed after a moment, with the token of now; ``None`` where it is not known."""
        names = self._journal.since(moment)
        if names is None:
            return None
        changed = frozenset(name for name in names if name in self._sessions)
        return Changes(token, changed, frozenset(names) - changed, self.damaged)

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
        before = self._sessions.pop(session_id, None)
        if isinstance(found, Stored):
            self._sessions[session_id] = found.snapshot
        # What is provisional may have changed again without a difference to be seen.
        now = self._sessions.get(session_id)
        if now != before or (now is not None and now.provisional):
            self._journal.note(session_id)


def _session_id(found: Found) -> str | None:
    return found.snapshot.header.id if isinstance(found, Stored) else None
