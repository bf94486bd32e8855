"""Which sessions a JSONL store holds and what their headers say, looked at as little as possible.

What was seen stays known with the state it was seen in. A directory or file whose state is the
same as then, and was old enough then that any change would show, is not opened again; so a sweep
over an unchanged store costs two ``stat`` calls a session.
"""

from __future__ import annotations

import errno
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from sys import intern
from typing import Final, TypeAlias

from attrs import define, evolve, field, frozen

from ..messages.errors import ErrorCode
from ..messages.header import SessionHeader
from .contract import CorruptLog, Damaged, Snapshot, StoreError, StoreFailed, Sweep, UnsupportedLog
from .files import Files, FileStat, of_same_file
from .large_records import carry_on
from .layout import (
    LogName,
    decode_segment,
    encode_segment,
    is_flat_log,
    parse_log_name,
    project_name,
)
from .log_file import ForeignFormat, LogFile, first_header, is_young
from .log_text import NotASession

_SLICE: Final = 64
"""Sessions that a sweep looks at before it asks whether it is still wanted."""


@frozen
class Refusal:
    """Why something that should be a session is not readable as one."""

    error: StoreError
    damaged: Damaged


@frozen
class Stored:
    """A readable session and where it is. There is one for every session of a store."""

    root: str
    state: bytes
    """The packed state of its file."""
    snapshot: Snapshot

    @property
    def log(self) -> LogFile:
        """The file."""
        where = self.snapshot.location
        parsed = parse_log_name(where.rpartition("/")[2])
        assert parsed is not None
        return LogFile(f"{self.root}/{where}", where, parsed.version, parsed.compressed)


Found: TypeAlias = Stored | Refusal | None
"""What a session directory holds; nothing where there is no log in it."""


@frozen
class _Look:
    """One look at a session directory, complete enough to know when it need not be repeated."""

    directory: bytes
    """Its packed state, and that of the log."""
    file: bytes | None
    location: str
    """Of the log below the root, where there is one."""
    found: Found
    names_settled: bool
    """Whether any change to the names in the directory would show in its state."""
    file_settled: bool
    """The same of the log's content, and of what else was looked at."""
    alone: bool
    """Whether nothing but this directory leads to the log, and the log to nothing else."""


@define
class Place:
    """A session directory and the last look at it; replaced as a whole, so threads may share it."""

    root: str
    project: str
    segment: str
    look: _Look | None = None

    @property
    def path(self) -> str:
        """The directory."""
        return f"{self.root}/{self.project}/{self.segment}"


@frozen
class _Project:
    """The names in a project directory as they were in one state of it."""

    stat: FileStat
    settled: bool
    places: dict[str, Place]
    flat: tuple[Damaged, ...]


@define
class Catalogue:
    """What is known of the sessions below one root."""

    root: str
    files: Files
    _projects: dict[str, _Project] = field(init=False, factory=dict)
    _by_id: dict[str, Place] = field(init=False, factory=dict)

    def sweep(self) -> Sweep:
        """Look at every session.

        Raises:
            StoreFailed: the root cannot be read.
            GaveUp: the piece of work that this belongs to was interrupted.
        """
        now_ns = self.files.now_ns()
        snapshots: dict[str, Snapshot] = {}
        damaged: list[Damaged] = []
        places: dict[str, Place] = {}
        claims: defaultdict[str, list[Found]] = defaultdict(list)
        for project in self._look_at_projects(now_ns, damaged):
            damaged += project.flat
            for number, place in enumerate(project.places.values()):
                if number % _SLICE == 0:
                    carry_on()
                found = self.look(place, now_ns)
                if isinstance(found, Stored):
                    session_id = found.snapshot.header.id
                    if session_id in places:
                        claims[session_id].append(found)
                    else:
                        places[session_id] = place
                        snapshots[session_id] = found.snapshot
                elif found is not None:
                    damaged.append(found.damaged)
        for session_id, others in claims.items():
            settled = settle([self.look(places[session_id], now_ns), *others])
            if isinstance(settled, Refusal):
                del snapshots[session_id], places[session_id]
                damaged.append(settled.damaged)
        self._by_id = places
        return Sweep(tuple(snapshots.values()), tuple(damaged))

    def find(self, session_id: str) -> Stored | None:
        """The session of an id, verified by a fresh look; ``None`` where it is absent.

        Raises:
            CorruptLog, UnsupportedLog, StoreFailed
        """
        now_ns = self.files.now_ns()
        known = self._by_id.get(session_id)
        if known is not None:
            found = self.look(known, now_ns)
            if isinstance(found, Stored) and found.snapshot.header.id == session_id:
                return found
        candidates = self._candidates(session_id, now_ns)
        settled = settle([found for _, found in candidates])
        if isinstance(settled, Refusal):
            raise type(settled.error)(settled.damaged.message) from settled.error
        if settled is not None:
            self._by_id[session_id] = next(place for place, found in candidates if found is settled)
        return settled

    def _candidates(self, session_id: str, now_ns: int) -> list[tuple[Place, Found]]:
        """The places, one a project, where a session of this id would be, and what they hold."""
        try:
            segment = encode_segment(session_id)
        except ValueError:
            return []
        places = [self.place(project, segment) for project in self._project_names()]
        return [(place, self.look(place, now_ns)) for place in places]

    # --- directories

    def _project_names(self) -> list[str]:
        try:
            return [entry.name for entry in self.files.entries(self.root) if entry.is_directory]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StoreFailed(f"the store {self.root} cannot be read: {error}") from error

    def _look_at_projects(self, now_ns: int, damaged: list[Damaged]) -> list[_Project]:
        projects: dict[str, _Project] = {}
        for name in self._project_names():
            try:
                projects[name] = self._look_at_project(name, now_ns)
            except FileNotFoundError:
                continue
            except OSError as error:
                damaged.append(failed(name, None, error).damaged)
        self._projects = projects
        return list(projects.values())

    def _look_at_project(self, name: str, now_ns: int) -> _Project:
        path = f"{self.root}/{name}"
        stat = self.files.stat(path)
        known = self._projects.get(name)
        if known is not None and known.settled and known.stat == stat:
            return known
        places: dict[str, Place] = {}
        flat: list[Damaged] = []
        for entry in self.files.entries(path):
            if entry.is_directory:
                places[entry.name] = self.place(name, entry.name)
            elif is_flat_log(entry.name):
                flat.append(flat_log(f"{name}/{entry.name}").damaged)
        return _Project(stat, not is_young(stat, now_ns), places, tuple(flat))

    def place(self, project: str, segment: str) -> Place:
        """A session directory, with the last look at it where it is known."""
        known = self._projects.get(project)
        place = known.places.get(segment) if known is not None else None
        return place or Place(self.root, project, segment)

    # --- one session

    def look(self, place: Place, now_ns: int) -> Found:
        """What a session directory holds now."""
        try:
            directory = self.files.stat(place.path)
            look = place.look
            if look is not None and look.names_settled and look.directory == directory.packed:
                if look.file is None:
                    return look.found
                if look.file_settled:
                    path = f"{self.root}/{look.location}"
                    if self.files.stat(path).packed == look.file:
                        return look.found
            look = place.look = self._open(place, directory, now_ns)
            return look.found
        except (FileNotFoundError, NotADirectoryError):
            place.look = None
            return None
        except OSError as error:
            place.look = None
            if error.errno == errno.ENAMETOOLONG:
                return None
            return failed(f"{place.project}/{place.segment}", decode_segment(place.segment), error)

    def _open(self, place: Place, directory: FileStat, now_ns: int) -> _Look:
        settled = not is_young(directory, now_ns)
        chosen, alone = self._choose_log(place)
        if not isinstance(chosen, LogFile):
            return _Look(directory.packed, None, "", chosen, settled, True, alone)
        stat = self.files.stat(chosen.path)
        young, at_home = is_young(stat, now_ns), True
        try:
            stat, header = first_header(self.files, chosen)
            young = is_young(stat, now_ns)
            at_home = _is_at_home(place, chosen, header)
            if not at_home:
                self._check_second_name(chosen, stat, header)
            snapshot = Snapshot(
                _sharing(header, place), stat.revision, young, stat.size, chosen.name
            )
            found: Found = Stored(self.root, stat.packed, snapshot)
        except StoreError as error:
            found = _refusal(
                error,
                chosen.name,
                decode_segment(place.segment),
                header=error.header if isinstance(error, ForeignFormat) else None,
                conflict=not isinstance(error, NotASession | ForeignFormat),
            )
        alone = alone and at_home and stat.links == 1
        state = found.state if isinstance(found, Stored) else stat.packed
        unchanging = at_home and not young
        return _Look(directory.packed, state, chosen.name, found, settled, unchanging, alone)

    def _choose_log(self, place: Place) -> tuple[LogFile | Refusal | None, bool]:
        """The log of the highest format in a session directory; whether none there is a link."""
        logs: list[tuple[LogName, str]] = []
        alone = True
        for entry in self.files.entries(place.path):
            parsed = parse_log_name(entry.name)
            if parsed is not None:
                logs.append((parsed, entry.name))
                alone = alone and not entry.is_link
        if not logs:
            return None, alone
        highest = max(parsed.version for parsed, _ in logs)
        (parsed, name), *others = [log for log in logs if log[0].version == highest]
        where = f"{place.project}/{place.segment}/{name}"
        session_id = decode_segment(place.segment)
        if others:
            error: StoreError = CorruptLog(f"{where} exists both plain and compressed")
            return _refusal(error, where, session_id), alone
        log = LogFile(f"{place.path}/{name}", where, parsed.version, parsed.compressed)
        return log, alone

    def _check_second_name(self, log: LogFile, stat: FileStat, header: SessionHeader) -> None:
        """Check that a log which is not at home is the same physical file as the one that is."""
        home = _home(header)
        name = log.path.rpartition("/")[2]
        with suppress(OSError):
            if self.files.stat(f"{self.root}/{home}/{name}").is_same_file(stat):
                return
        raise CorruptLog(
            f"{log.name} line 1: id {header.id!r} and cwd {header.cwd!r} belong to {home}"
        )


def _is_at_home(place: Place, log: LogFile, header: SessionHeader) -> bool:
    """Whether a header names the directory that it stands in."""
    if not header.id:
        raise CorruptLog(f"{log.name} line 1: the id is empty")
    return _home(header) == f"{place.project}/{place.segment}"


def _sharing(header: SessionHeader, place: Place) -> SessionHeader:
    """The header with one text for what stands in many places."""
    session_id = place.segment if place.segment == header.id else header.id
    return evolve(header, id=session_id, cwd=None if header.cwd is None else intern(header.cwd))


def _home(header: SessionHeader) -> str:
    return f"{project_name(header.cwd)}/{encode_segment(header.id)}"


def settle(found: Iterable[Found]) -> Found:
    """What an id means that several directories may hold."""
    held = [one for one in found if one is not None]
    stored = [one for one in held if isinstance(one, Stored)]
    if not stored:
        return held[0] if held else None
    first = stored[0]
    if all(of_same_file(one.state, first.state) for one in stored):
        return first
    header = first.snapshot.header
    where = " and ".join(one.log.name for one in stored)
    error = CorruptLog(f"session {header.id!r} is stored twice, in {where}")
    return _refusal(error, first.log.name, header.id, header=header)


def failed(where: str, session_id: str | None, error: OSError) -> Refusal:
    """What cannot be read."""
    failure = StoreFailed(f"{where} cannot be read: {error}")
    failure.__cause__ = error
    return _refusal(failure, where, session_id)


def flat_log(where: str) -> Refusal:
    """A log of the oldest layout."""
    error = UnsupportedLog(f"{where}: a log right in a project directory is a retired layout")
    return _refusal(error, where, None)


def _refusal(
    error: StoreError,
    where: str,
    session_id: str | None,
    *,
    header: SessionHeader | None = None,
    conflict: bool = True,
) -> Refusal:
    damage = isinstance(error, CorruptLog)
    code = ErrorCode.CORRUPT_SESSION if damage else ErrorCode.PERSISTENCE_FAILED
    return Refusal(error, Damaged(where, session_id, code, str(error), header, conflict))
