"""A hand from outside: another process that writes the same logs, and what an auditor reads.

Every change is made in one step, without a wait in it, so that it happens at one moment. A session
that the service has live, or may have, is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from random import Random
from typing import Any, Final

import msgspec
from attrs import define, evolve, field

from ..messages.errors import ErrorCode, InvalidJson
from ..messages.event import Event, Replace
from ..messages.header import SessionHeader
from ..messages.json import decode, encode
from .disk import SimulatedDisk
from .history import History, Log
from .logs import (
    WORKSPACES,
    Voice,
    directory_of,
    draw_events,
    event_line,
    header_line,
    header_of,
    path_of,
)
from .oracle import check_audit
from .verdict import Violation
from .world import World

OUTSIDER: Final = 2
AUDITOR: Final = 3


@define(eq=False)
class Hand:
    """Changes logs of any store of a world, and records it."""

    _world: World
    _history: History
    _voice: Voice
    _families: int = 0
    """Draws the headers of sessions, as in ``header_of``."""
    torn: dict[tuple[str, str], tuple[Log, bytes]] = field(factory=dict, init=False)
    """What is missing of a record that was begun, and the log that it completes."""
    _gone_on: set[tuple[str, str]] = field(factory=set, init=False)
    """Logs in which somebody went on behind a record that their own writer could not cut."""

    @property
    def _disk(self) -> SimulatedDisk:
        return self._world.disk.peer(OUTSIDER)

    def header_of(self, session_id: str) -> SessionHeader:
        """The header that a session of this id is born with."""
        return header_of(session_id, self._families)

    def meddle(self, rng: Random, store: str, session_id: str) -> str:
        """Make some change to a session, if it is free; what was done."""
        key = (store, session_id)
        if self._history.sitting(session_id) is not None:
            return ""
        if key in self.torn:
            return self._complete(*key)
        log = self._history.current(store, session_id)
        acts: list[Callable[[Random, str, Log], str]] = [
            *[self._append] * 4,
            self._tear,
            self._replace,
            self._rewrite,
            self._cut,
            self._delete,
            self._damage,
        ]
        if log is None:
            return self.write(store, self.header_of(session_id), self._draw(rng, ()))
        if log.damage is not None:
            return rng.choice([self._replace, self._rewrite, self._delete])(rng, store, log)
        return rng.choice(acts)(rng, store, log)

    def move(self, rng: Random, store: str, session_id: str) -> str:
        """Rewrite the header of a session, if it is free, so that it is of another workspace.

        It may go on there, or begin anew.
        """
        log = self._history.current(store, session_id)
        free = self._history.sitting(session_id) is None and (store, session_id) not in self.torn
        if log is None or log.damage is not None or not free:
            return ""
        elsewhere = [cwd for cwd in dict.fromkeys(WORKSPACES) if cwd != log.header.cwd]
        self._remove(store, log, whole=True)
        events, way = log.events, rng.choice(("stays", "goes on", "begins anew"))
        if way != "stays":
            anew = way == "begins anew" and not log.inherited
            events = self._more(rng, () if anew else events)
        moved = Log(evolve(log.header, cwd=rng.choice(elsewhere)), events, log.inherited)
        self._put(store, moved)
        return self._record(f"moves to {moved.header.cwd}", store, moved)

    def write(self, store: str, header: SessionHeader, events: tuple[Event, ...]) -> str:
        """Store a new log."""
        log = Log(header, events)
        self._put(store, log)
        return self._record("writes", store, log)

    def _put(self, store: str, log: Log) -> None:
        disk, header = self._disk, log.header
        self._make_directories(store, header)
        with disk.create(path_of(store, header)) as file:
            file.append(_content(log))
            file.sync()
        disk.sync_directory(directory_of(store, header))

    def _draw(self, rng: Random, log: tuple[Event, ...]) -> tuple[Event, ...]:
        return draw_events(rng, self._voice, log, rng.randint(1, 4))

    def _record(self, what: str, store: str, log: Log) -> str:
        self._history.store(store, log.header.id, log)
        return f"{what} {log.header.id} in {store}: {len(log.events)} events"

    def _append_bytes(self, store: str, log: Log, data: bytes) -> None:
        with self._disk.open_appending(path_of(store, log.header)) as file:
            file.append(data)
            file.sync()

    def _go_on(self, store: str, log: Log, data: bytes) -> None:
        """Append what begins with a new record, whatever stands before it."""
        if not self._disk.content(path_of(store, log.header)).endswith(b"\n"):
            self._gone_on.add((store, log.header.id))
        self._append_bytes(store, log, data)

    def _append(self, rng: Random, store: str, log: Log) -> str:
        added = self._draw(rng, log.events)
        self._go_on(store, log, b"".join(map(event_line, added)))
        return self._record("appends to", store, Log(log.header, (*log.events, *added)))

    def _tear(self, rng: Random, store: str, log: Log) -> str:
        """Some records, and the beginning of another one."""
        added = self._draw(rng, log.events)
        last = event_line(added[-1])
        at = rng.randrange(len(last))
        self._go_on(store, log, b"".join(map(event_line, added[:-1])) + last[:at])
        now = Log(log.header, (*log.events, *added[:-1]))
        self.torn[store, log.header.id] = Log(log.header, (*log.events, *added)), last[at:]
        return self._record("tears", store, now)

    def _complete(self, store: str, session_id: str) -> str:
        log, rest = self.torn.pop((store, session_id))
        self._append_bytes(store, log, rest)
        return self._record("completes", store, log)

    def _replace(self, rng: Random, store: str, log: Log) -> str:
        """Another file in the place of the log."""
        kept = log.events[: rng.choice((0, len(log.events)))] if log.damage is None else ()
        new, disk = Log(log.header, self._more(rng, kept)), self._disk
        path = path_of(store, log.header)
        with disk.create(f"{path}.new") as file:
            file.append(_content(new))
            file.sync()
        disk.rename(f"{path}.new", path)
        disk.sync_directory(directory_of(store, log.header))
        return self._record("replaces", store, new)

    def _rewrite(self, rng: Random, store: str, log: Log) -> str:
        """The same file with another content, no longer than before.

        A file that grows while it is read is taken for appended to.
        """
        new = Log(log.header, self._more(rng, ()))
        if len(_content(new)) > len(self._disk.content(path_of(store, log.header))):
            return self._replace(rng, store, log)
        with self._disk.open_appending(path_of(store, log.header)) as file:
            file.truncate(0)
            file.append(_content(new))
            file.sync()
        return self._record("rewrites", store, new)

    def _more(self, rng: Random, kept: tuple[Event, ...]) -> tuple[Event, ...]:
        return (*kept, *self._draw(rng, kept))

    def _cut(self, rng: Random, store: str, log: Log) -> str:
        """The end of the log is gone, maybe in the middle of a record."""
        kept = rng.randint(0, len(log.events))
        short = Log(log.header, log.events[:kept])
        size = len(_content(short))
        if kept < len(log.events):
            size += rng.randrange(len(event_line(log.events[kept])))
        with self._disk.open_appending(path_of(store, log.header)) as file:
            file.truncate(size)
            file.sync()
        if kept == len(log.events):
            # What was torn is gone; where nothing was, the file is touched all the same.
            self.torn.pop((store, log.header.id), None)
            return self._record("cuts", store, log)
        torn = event_line(log.events[kept])[size - len(_content(short)) :]
        whole = Log(log.header, log.events[: kept + 1])
        self.torn[store, log.header.id] = whole, torn
        return self._record("cuts", store, short)

    def _delete(self, rng: Random, store: str, log: Log) -> str:
        self._remove(store, log, whole=rng.random() < 0.5)
        self._history.store(store, log.header.id, None)
        return f"deletes {log.header.id} in {store}"

    def _remove(self, store: str, log: Log, *, whole: bool) -> None:
        disk, directory = self._disk, directory_of(store, log.header)
        for entry in disk.entries(directory):
            if whole or entry.name.endswith(".jsonl"):
                disk.unlink(f"{directory}/{entry.name}")
        disk.sync_directory(directory)
        if whole:
            disk.remove_directory(directory)
            disk.sync_directory(directory.rpartition("/")[0])

    def _damage(self, rng: Random, store: str, log: Log) -> str:
        """A record that is none, with whole ones behind it."""
        ended = Event("turn/end", len(log.events) + 1, 0, encode({"reason": {"kind": "completed"}}))
        self._append_bytes(store, log, b'{"type": \n' + event_line(ended))
        damaged = Log(log.header, log.events, damage=ErrorCode.CORRUPT_SESSION)
        return self._record("damages", store, damaged)

    def _make_directories(self, store: str, header: SessionHeader) -> None:
        disk, directory = self._disk, directory_of(store, header)
        above = directory.rpartition("/")[0]
        for path in (store, above, directory):
            with suppress(FileExistsError):
                disk.make_directory(path)
            # Somebody else may have made it and failed to say so to the medium.
            disk.sync_directory(path.rpartition("/")[0] or "/")

    # -- audits -------------------------------------------------------------------------------

    def read(self, store: str, header: SessionHeader) -> Log | None:
        """What is on the disk, as anybody can read it: whole records up to the first bad line."""
        try:
            content = self._world.disk.peer(AUDITOR).content(path_of(store, header))
        except (FileNotFoundError, NotADirectoryError):
            return None
        first, *lines = content.split(b"\n")[:-1]
        events: list[Event] = []
        for line in lines:
            event = _event(line)
            if event is None and (store, header.id) in self._gone_on:
                event = _behind_torn(line)
            if event is None or event.seq != len(events):
                break
            events.append(event)
        inherited = [each.seq for each in events if b'"inherited"' in each.raw]
        assert first + b"\n" == header_line(header), first
        return Log(header, tuple(events), inherited[0] if inherited else 0)

    def audit(self, store: str, session_id: str) -> None:
        """Check one stored session after the power failed, and record what is left of it.

        Raises:
            Violation: something acknowledged is lost, or nobody ever wrote what is there.
        """
        sittings = self._history.sittings.get(session_id, [])
        sitting = sittings[-1] if sittings and sittings[-1].left is None else None
        if sitting is not None and sitting.store == store:
            found = self.read(store, sitting.header)
            check_audit(store, session_id, sitting, found)
            self._history.leave(sitting, found)
            return
        known = self._history.current(store, session_id)
        if sittings and self._history.since(store, session_id) == sittings[-1].left:
            # What was taken back after a failure may be there again.
            found = self.read(store, sittings[-1].header)
            if sittings[-1].store == store:
                check_audit(store, session_id, sittings[-1], found)
                self._history.store(store, session_id, found)
                return
        if known is not None and known.damage is None:
            found = self.read(store, known.header)
            if found is None or found.events != known.events:
                raise Violation(f"{session_id} in {store} is {found}, not {known}")


class _Record(msgspec.Struct, rename="camel"):
    """One line of a log."""

    type: str
    seq: int
    time: int
    data: msgspec.Raw
    surface_op: Any = None
    source_event_seqs: tuple[int | tuple[int, int], ...] | None = None
    """Single seqs, and ranges from and to."""
    ignorable: bool = False


def _event(line: bytes) -> Event | None:
    try:
        found = msgspec.json.decode(line, type=_Record)
    except msgspec.MsgspecError:
        return _odd_event(line)
    op = found.surface_op
    if isinstance(op, dict):
        start, end = op["start"], op["end"]
        assert isinstance(start, int)
        assert isinstance(end, int)
        placed: Replace | None = Replace(start, end)
    else:
        placed = None
    sources = found.source_event_seqs
    return Event(
        found.type,
        found.seq,
        found.time,
        bytes(found.data),
        "append" if op == "append" else placed,
        None if sources is None else tuple(seq for source in sources for seq in _seqs(source)),
        found.ignorable,
    )


def _behind_torn(line: bytes) -> Event | None:
    """A whole record behind one that broke off and could not be cut, where somebody went on."""
    at = line.find(b'{"type":', 1)
    while at > 0:
        event = _event(line[at:])
        if event is not None:
            return event
        at = line.find(b'{"type":', at + 1)
    return None


def _odd_event(line: bytes) -> Event | None:
    """An event with lone surrogates, which are written as escapes and read with care."""
    try:
        whole = decode(line)
    except InvalidJson:
        return None
    if not isinstance(whole, dict) or "data" not in whole:
        return None
    plain = _event(encode({**whole, "data": None}))
    return plain and msgspec.structs.replace(plain, raw=encode(whole["data"]))


def _seqs(source: int | tuple[int, int]) -> Iterable[int]:
    return (source,) if isinstance(source, int) else range(source[0], source[1] + 1)


def _content(log: Log) -> bytes:
    return header_line(log.header) + b"".join(map(event_line, log.events))
