"""The recorded history of one run: what was committed, stored and asked, and when.

Time is counted in *moments*: a number that rises with every fact that is recorded. What the system
does on its own takes effect somewhere between two moments, its beginning and its end; what a
workload does to the disk or to the binding happens at one moment. Nothing here asks the system what
it holds: logs are what callers were told, and what others wrote.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import TypeVar

from attrs import define, field, frozen

from ..messages.errors import ErrorCode
from ..messages.event import Event
from ..messages.header import SessionHeader
from ..messages.records import SessionSearchHit
from .logs import closers_of
from .questions import Question
from .search_model import ModelSession, Rank

T = TypeVar("T")

Key = tuple[str, str]
"""A store and a session."""


@define(eq=False)
class Log:
    """One state of one session."""

    header: SessionHeader
    events: tuple[Event, ...]
    inherited: int = 0
    """How many leading events came from the parent of a fork."""
    damage: ErrorCode | None = None
    """What a reader that indexes it or lists its events says, where it cannot be read."""
    _shown: dict[bool, tuple[Event, ...]] = field(factory=dict, init=False)
    best: dict[tuple[Question, bool, bool], tuple[Rank, SessionSearchHit] | None] = field(
        factory=dict, init=False
    )
    """For the oracle: what a search finds here, once it was computed."""

    def shown(self, *, live: bool) -> tuple[Event, ...]:
        """The events as a reader sees them: a stored log that was interrupted is closed."""
        if live not in self._shown:
            closing = () if live or self.damage else closers_of(self.events)
            self._shown[live] = (*self.events, *closing)
        return self._shown[live]

    def model(self, *, live: bool, persisted: bool) -> ModelSession:
        """The session as the model of search takes it."""
        return ModelSession(self.header, self.shown(live=live), live, persisted)


@frozen
class Commit:
    """Events that were accepted somewhere between two moments."""

    asked: int
    returned: int
    events: tuple[Event, ...]


@define(eq=False)
class Sitting:
    """One time that a session is live, from the call that opens it to the end of its block.

    It becomes live between ``asked`` and ``entered``, and ceases to be between ``leaving`` and
    ``left``. A sitting that never began its block has no ``entered``.
    """

    header: SessionHeader
    store: str | None
    """Which store it is written to; ``None`` for one that is never stored."""
    asked: int
    base: Log | None
    """The stored log that it goes on from."""
    opening: tuple[Event, ...] = ()
    """What opening it puts behind that log, or inherits from its parent."""
    inherited: int = 0
    durable: bool = True
    """Whether it is to be written to the store that is bound, if one is."""
    entered: int | None = None
    leaving: int | None = None
    left: int | None = None
    failed: bool = False
    """Whether it was refused, or ended with an error, so that its end has stored what it could."""
    commits: list[Commit] = field(factory=list)
    """In log order."""
    acknowledged: list[tuple[int, int]] = field(factory=list)
    """At which moment how many events were known to be stored; a new session with none too."""
    _logs: dict[int, Log] = field(factory=dict, init=False)

    @property
    def stem(self) -> tuple[Event, ...]:
        """The log as it is when the block begins."""
        return (*(self.base.events if self.base is not None else ()), *self.opening)

    @property
    def events(self) -> tuple[Event, ...]:
        """Everything that was ever accepted."""
        return (*self.stem, *(event for commit in self.commits for event in commit.events))

    @property
    def known(self) -> tuple[Event, ...]:
        """What was accepted, up to the first commit whose caller was not told yet."""
        events = list(self.stem)
        for commit in self.commits:
            if commit.events[0].seq == len(events):
                events += commit.events
        return tuple(events)

    def add(self, commit: Commit) -> None:
        """Record what a commit returned, wherever it belongs."""
        if commit.events:
            self.commits.append(commit)
            self.commits.sort(key=lambda each: each.events[0].seq)
            self._logs.clear()

    def log(self, length: int) -> Log:
        """The first events as a log."""
        if length not in self._logs:
            events = self.events[:length]
            self._logs[length] = Log(self.header, events, min(self.inherited, length))
        return self._logs[length]

    def lengths(self, at: int) -> Iterator[int]:
        """How long the live log may have been at a moment, longest first."""
        length = len(self.stem)
        sizes = [length]
        for commit in self.commits:
            if commit.asked > at:
                break
            length += len(commit.events)
            sizes.append(length)
            if commit.returned <= at:
                sizes = [length]
        return reversed(sizes)

    def stored_lengths(self, since: int, until: int) -> tuple[int, int, bool]:
        """Fewest and most events that the store may have had between, and whether it had a log.

        The writer stores whole commits; a disk that fails or crashes may keep part of one.
        """
        fewest = len(self.base.events) if self.base is not None else 0
        present = self.base is not None
        for moment, length in self.acknowledged:
            if moment <= since:
                fewest, present = max(fewest, length), True
        most = len(self.stem)
        for commit in self.commits:
            if commit.asked > until:
                break
            most += len(commit.events)
        return fewest, max(fewest, most), present

    def may_be_live(self, at: int) -> bool:
        """Whether the session can have been live at a moment."""
        return self.asked <= at and (self.left is None or at <= self.left)

    def is_live(self, at: int) -> bool:
        """Whether it was, without doubt."""
        entered = self.entered is not None and self.entered <= at
        return entered and (self.leaving is None or at < self.leaving)


@frozen
class Option:
    """One way in which a session may have been found."""

    log: Log | None
    """``None`` where there is no such session."""
    live: bool = False
    persisted: bool = False
    length: int = 0
    sitting: Sitting | None = field(default=None, eq=False)


@define(eq=False)
class Call:
    """One request of one caller, and what came of it."""

    number: int
    who: str
    what: str
    arguments: tuple[object, ...]
    asked: int
    faults: int
    """How many faults there had been when it was asked."""
    faults_after: int = 0
    """And when it was answered."""
    answered: int | None = None
    reply: object = None
    error: Exception | None = None
    cancelled: bool = False
    before: Call | None = None
    """The page before, whose cursor this call was given."""
    closing: bool = False
    """Whether the service had begun to close."""
    generation: int | None = None
    """What the service had announced when it was answered."""

    @property
    def faulted(self) -> bool:
        """Whether a fault happened meanwhile."""
        return self.faults_after > self.faults

    def __str__(self) -> str:
        """One line for traces."""
        arguments = ", ".join(map(str, self.arguments))
        return f"#{self.number} {self.who}: {self.what}({arguments})"


@define(eq=False)
class History:
    """All facts of a run."""

    moment: int = 0
    calls: list[Call] = field(factory=list)
    sittings: dict[str, list[Sitting]] = field(factory=dict)
    """By session, oldest first."""
    stored: dict[Key, list[tuple[int, Log | None]]] = field(factory=dict)
    """What was stored from which moment on, as far as no sitting was writing."""
    bindings: list[tuple[int, str | None]] = field(factory=list)
    """Which store was bound from which moment on."""
    faults: int = 0
    """How many faults there have been so far."""
    changes: list[tuple[int, str | None]] = field(factory=list)
    """Moments at which something visible may have begun to change; ``None``: of any session."""

    def tick(self) -> int:
        """The next moment."""
        self.moment += 1
        return self.moment

    def change(self, session_id: str | None) -> int:
        """The next moment, at which something becomes visible or may from now on."""
        moment = self.tick()
        self.changes.append((moment, session_id))
        return moment

    # -- recording ----------------------------------------------------------------------------

    def ask(self, who: str, what: str, *arguments: object) -> Call:
        """Record that a request is made."""
        call = Call(len(self.calls), who, what, arguments, self.tick(), self.faults)
        self.calls.append(call)
        return call

    def answer(self, call: Call) -> None:
        """Record that a request has come back, in whatever way."""
        call.answered = self.tick()
        call.faults_after = self.faults

    def store(self, store: str, session_id: str, log: Log | None) -> None:
        """Record what a store holds of a session from now on."""
        moment = self.change(session_id)
        self.stored.setdefault((store, session_id), []).append((moment, log))

    def sit(self, sitting: Sitting) -> Sitting:
        """Record that a session is being opened."""
        self.sittings.setdefault(sitting.header.id, []).append(sitting)
        return sitting

    def leave(self, sitting: Sitting, log: Log | None) -> None:
        """Record that a sitting is over, and what its store then holds."""
        sitting.left = self.change(sitting.header.id)
        if sitting.store is not None:
            key = (sitting.store, sitting.header.id)
            self.stored.setdefault(key, []).append((sitting.left, log))

    def bind(self, store: str | None) -> None:
        """Record that another store is bound, or none."""
        self.bindings.append((self.change(None), store))

    # -- looking ------------------------------------------------------------------------------

    @property
    def ids(self) -> tuple[str, ...]:
        """Every session that ever was, by id."""
        return tuple(sorted({*self.sittings, *(session_id for _, session_id in self.stored)}))

    @property
    def bound(self) -> str | None:
        """The store that is bound now."""
        return self.bindings[-1][1]

    def current(self, store: str, session_id: str) -> Log | None:
        """What was recorded last of a stored session."""
        changes = self.stored.get((store, session_id))
        return changes[-1][1] if changes else None

    def since(self, store: str, session_id: str) -> int:
        """From which moment on ``current`` is so; 0 from the beginning."""
        changes = self.stored.get((store, session_id))
        return changes[-1][0] if changes else 0

    def sitting(self, session_id: str) -> Sitting | None:
        """The sitting of a session that has not ended, if there is one."""
        sittings = self.sittings.get(session_id)
        return sittings[-1] if sittings and sittings[-1].left is None else None

    def stores(self, since: int, until: int) -> tuple[str | None, ...]:
        """Which stores were bound between two moments, each once."""
        later = [store for moment, store in self.bindings if since < moment <= until]
        return tuple(dict.fromkeys([_in_force(self.bindings, since), *later]))

    def changed(self, session_id: str | None, since: int, until: int) -> bool:
        """Whether a session, or any of them, may have changed between two moments.

        A new session becomes a stored one at any time, even without a flush.
        """
        return any(
            since <= moment <= until and (session_id is None or changed in (None, session_id))
            for moment, changed in self.changes
        ) or any(
            sitting.asked <= until and not sitting.stored_lengths(since, until)[2]
            for each, sittings in self.sittings.items()
            for sitting in sittings
            if session_id in (None, each) and sitting.store and not (sitting.left or since) < since
        )

    def options(
        self, session_id: str, store: str | None, at: int, until: int
    ) -> tuple[Option, ...]:
        """How a session may be found by who looks at what is live at a moment, and then, until
        another one, at what this store holds."""
        found: list[Option] = []
        surely_live = False
        for sitting in self.sittings.get(session_id, ()):
            if not sitting.may_be_live(at):
                continue
            surely_live = surely_live or sitting.is_live(at)
            presence = self._presence(sitting, store, at, until)
            for length in sitting.lengths(at):
                log = sitting.log(length)
                found += [Option(log, True, there, length, sitting) for there in presence]
        if not surely_live:
            stored = self.stored_states(session_id, store, at, until)
            found += [Option(log, persisted=log is not None) for log in stored]
        return tuple(found)

    def _presence(
        self, sitting: Sitting, store: str | None, since: int, until: int
    ) -> tuple[bool, ...]:
        """Whether a store may list a live session."""
        if store is None:
            return (False,)
        if sitting.store == store:
            _, _, present = sitting.stored_lengths(since, until)
            return (True,) if present else (True, False)
        states = self.stored_states(sitting.header.id, store, since, until)
        return tuple(dict.fromkeys(log is not None for log in states))

    def stored_states(
        self, session_id: str, store: str | None, since: int, until: int
    ) -> list[Log | None]:
        """What a store may have held of a session between two moments, by who sees it not live."""
        if store is None:
            return [None]
        changes = self.stored.get((store, session_id), [])
        base = _in_force(changes, since)
        states = [log for moment, log in changes if since < moment <= until]
        for sitting in self.sittings.get(session_id, ()):
            over = sitting.left is not None and sitting.left <= since
            if sitting.store != store or sitting.asked > until or over:
                continue
            left = sitting.left if sitting.left is not None else self.moment
            if since <= (sitting.entered or left) or sitting.failed:
                # It became live after it was looked for, and what it wrote was seen then.
                fewest, most, present = sitting.stored_lengths(since, until)
                states += [sitting.log(length) for length in range(fewest, most + 1)]
                states += [] if present else [None]
                if sitting.leaving is not None and sitting.leaving <= until < left:
                    states.append(_in_force(changes, left))
            else:
                # It had ended before it was looked for, with all that it had to store.
                base = _in_force(changes, left)
        return [base, *states]


def _in_force(changes: Sequence[tuple[int, T]], moment: int) -> T | None:
    """What the last change until a moment brought."""
    at = bisect_right(changes, moment, key=lambda change: change[0])
    return changes[at - 1][1] if at else None
