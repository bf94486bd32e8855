"""What a store was told to hold, and which sessions changed since any earlier moment."""

from __future__ import annotations

from abc import ABC, abstractmethod

from attrs import define, field

from .contract import Changes, Damaged, Snapshot, Sweep
from .journal import Journal


@define(eq=False)
class Told(ABC):
    """The sessions of a store, as of the last look at it."""

    _journal: Journal = field(factory=Journal, init=False)
    _sessions: dict[str, Snapshot] = field(factory=dict, init=False)

    @property
    def moment(self) -> int:
        """How many changes there have been."""
        return self._journal.number

    @property
    @abstractmethod
    def damaged(self) -> tuple[Damaged, ...]:
        """All damage there is."""

    def since(self, moment: int, token: str) -> Changes | None:
        """What changed after a moment, with the token of now; ``None`` where it is not known."""
        names = self._journal.since(moment)
        if names is None:
            return None
        changed = frozenset(name for name in names if name in self._sessions)
        return Changes(token, changed, frozenset(names) - changed, self.damaged)

    def holds(self, session_id: str) -> bool:
        """Whether a session is in the store."""
        return session_id in self._sessions

    def miss(self, session_id: str) -> None:
        """Say that a session was seen elsewhere, so that it is gone if it is not here."""
        if session_id not in self._sessions:
            self._journal.note(session_id)

    def hold(self, session_id: str, now: Snapshot | None) -> None:
        """Say what a session is now, or that it is none any more."""
        before = self._sessions.pop(session_id, None)
        if now is not None:
            self._sessions[session_id] = now
        # What is provisional may have changed again without a difference to be seen.
        if now != before or (now is not None and now.provisional):
            self._journal.note(session_id)


@define(eq=False)
class ToldBySweeps(Told):
    """The same where sweeps tell of everything that is not told session by session."""

    _damaged: tuple[Damaged, ...] = field(default=(), init=False)

    @property
    def damaged(self) -> tuple[Damaged, ...]:
        return self._damaged

    def replace(self, sweep: Sweep) -> None:
        """Say what is in the store, and nothing else."""
        self._damaged = sweep.damaged
        found = {snapshot.header.id: snapshot for snapshot in sweep.snapshots}
        for session_id in [*found, *(self._sessions.keys() - found.keys())]:
            self.hold(session_id, found.get(session_id))
