"""The logs of another agent as a store of sessions that is only read: nothing is written, locked
or repaired, and whatever is not a log is never opened.

A subclass says where logs lie, what their first records make of a header, and how records become
events. What was seen of a file stays known with the state it was seen in, so that a sweep over an
unchanged store costs one ``stat`` a directory and one a log.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import ClassVar, Final, Literal, NoReturn, overload

from attrs import define, field, frozen

from ..history.foreign import Progress, Translator
from ..messages.errors import ErrorCode
from ..messages.header import FORMAT_VERSION, SessionHeader
from ..messages.json import Json
from .contract import (
    TAIL_BYTES,
    AlreadyExists,
    CorruptLog,
    Damaged,
    NotFound,
    ReadHandle,
    SessionStore,
    Snapshot,
    StoreError,
    StoreFailed,
    Sweep,
    Tail,
    UnsupportedLog,
    WriteHandle,
)
from .files import Entry, Files, FileStat, OsFiles
from .foreign_log import ForeignLog, ForeignMark, read_foreign, read_head
from .log_file import LogFile, Piece, is_young
from .log_reader import LogReader
from .log_text import NotASession
from .prefix_guard import Mark, decode_mark

_COPIES_ELSEWHERE: Final = ":copied"
"""What the revision of a fork ends in while its parent is here, where the copies are found."""


@frozen
class Place:
    """A file that should be a log."""

    file: LogFile
    session_id: str | None = None
    """Which session it should be, where its path tells."""
    parent: str | None = None
    document: bool = False
    """Whether it is one JSON object instead of lines."""


@frozen
class _Names:
    """The names in a directory, in one state of it."""

    stat: FileStat
    settled: bool
    """Whether any change would show in the state."""
    entries: tuple[Entry, ...]


@frozen
class _Look:
    """One look at a log."""

    stat: FileStat
    settled: bool
    found: SessionHeader | StoreError | None


@frozen
class _Found:
    """A session and where it is."""

    place: Place
    stat: FileStat
    header: SessionHeader
    young: bool


@define
class _Looked:
    """What one look at everything found."""

    damaged: list[Damaged]
    sessions: dict[str, _Found] = field(init=False, factory=dict)
    refused: dict[str | None, StoreError] = field(init=False, factory=dict)
    """Why a session cannot be read, by the id that its path tells."""

    @property
    def places(self) -> dict[str, Place]:
        """Where each session is."""
        return {session_id: found.place for session_id, found in self.sessions.items()}


class ForeignStore(SessionStore):
    """Sessions in the files of another agent."""

    agent: ClassVar[str]
    """What messages call the agent."""

    def __init__(self, root: str | os.PathLike[str], *, files: Files | None = None) -> None:
        """``root`` is made absolute once and need not exist. ``files`` is the disk."""
        self.root = os.path.abspath(root)
        self._files: Files = files if files is not None else OsFiles()
        self._names: dict[str, _Names] = {}
        self._looks: dict[str, _Look] = {}
        self._known: dict[str, Place] = {}
        self._unreadable: dict[str, StoreError] = {}
        """Directories that could not be listed by the latest look at everything."""

    # --- what an agent's own store says

    @abstractmethod
    def places(self) -> Iterator[Place]:
        """Every file that should be a log, found through ``entries``."""

    @abstractmethod
    def header_of(
        self, place: Place, records: Iterator[Mapping[str, Json]]
    ) -> SessionHeader | None:
        """The header that the first records of a log give, or nothing where they give none."""

    @abstractmethod
    def translator(
        self, header: SessionHeader, inherited_text: bool, progress: Progress | None
    ) -> Translator:
        """What turns the records of a session into events."""

    # --- the contract

    def sweep(self) -> Sweep:
        looked = self._look_at_all()
        places = looked.places
        snapshots = (
            self._log(found, places).snapshot(found.stat, found.young)
            for found in looked.sessions.values()
        )
        return Sweep(tuple(snapshots), tuple(looked.damaged))

    def stat(self, session_id: str) -> Snapshot | None:
        found = self._find(session_id)
        return self._log(found).snapshot(found.stat, found.young) if found is not None else None

    @overload
    def open(self, session_id: str, access: Literal["read"]) -> ReadHandle: ...
    @overload
    def open(self, session_id: str, access: Literal["write"]) -> WriteHandle: ...
    def open(self, session_id: str, access: Literal["read", "write"]) -> ReadHandle:
        header = self._stored(session_id).header
        if access == "write":
            raise UnsupportedLog(
                f"session {session_id!r} is a log of {self.agent}, which is only read;"
                " read its events and begin a session of your own"
            )
        return LogReader(header, self.stat, self._read)

    def create(self, header: SessionHeader, inherited_event_count: int = 0) -> NoReturn:
        """Refused: only the agent itself writes here.

        Raises:
            AlreadyExists: the id is taken.
            ValueError: it is not.
        """
        if self._find(header.id) is not None:
            raise AlreadyExists(f"session {header.id!r} is stored already, by {self.agent}")
        raise ValueError(
            f"session {header.id!r} cannot be created among the logs of {self.agent},"
            " which are only read"
        )

    def read_tail(self, session_id: str, mark: bytes | None, limit: int = TAIL_BYTES) -> Tail:
        return self._read(session_id, decode_mark(mark, ForeignMark), limit).tail()

    def flush(self) -> None:
        """Nothing is ever written."""

    # --- one session

    def _stored(self, session_id: str) -> _Found:
        found = self._find(session_id)
        if found is None:
            raise NotFound(f"session {session_id!r} is not stored below {self.root}")
        return found

    def _find(self, session_id: str) -> _Found | None:
        """A session, verified by a fresh look; ``None`` where it is absent.

        Raises:
            CorruptLog, UnsupportedLog, StoreFailed
        """
        known = self._known.get(session_id)
        if known is not None:
            with suppress(FileNotFoundError):
                found = self._look(known)
                if isinstance(found, _Found) and found.header.id == session_id:
                    return found
        looked = self._look_at_all()
        refused = looked.refused.get(session_id)
        if session_id not in looked.sessions and refused is not None:
            raise type(refused)(str(refused)) from refused
        return looked.sessions.get(session_id)

    def _read(self, session_id: str, mark: Mark | None, limit: int | None) -> Piece:
        try:
            return self._read_once(session_id, mark, limit)
        except FileNotFoundError:
            # It may have been moved or compressed since it was looked at.
            self._known.pop(session_id, None)
        try:
            return self._read_once(session_id, mark, limit)
        except FileNotFoundError as error:
            raise NotFound(f"session {session_id!r} was removed") from error

    def _read_once(self, session_id: str, mark: Mark | None, limit: int | None) -> Piece:
        log = self._log(self._stored(session_id))
        try:
            return read_foreign(self._files, log, mark, limit)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _failed(log.file.name, error) from error

    def _log(self, found: _Found, known: Mapping[str, Place] | None = None) -> ForeignLog:
        """How a session is read; the text of copies only where nobody else has it."""
        header = found.header
        parent = header.parent_session if header.is_seeded else None
        elsewhere = parent != header.id and parent in (self._known if known is None else known)

        def translate(header: SessionHeader, progress: Progress | None) -> Translator:
            return self.translator(header, not elsewhere, progress)

        variant = _COPIES_ELSEWHERE if elsewhere else ""
        return ForeignLog(found.place.file, header, variant, translate, found.place.document)

    # --- all sessions

    def _look_at_all(self) -> _Looked:
        looks, complete = self._look_once()
        if not complete:
            # Compressing or moving a log replaces its name: it is there under another one.
            looks, _ = self._look_once()
        looked = _Looked([_damaged(name, None, error) for name, error in self._unreadable.items()])
        held: defaultdict[str, list[_Found]] = defaultdict(list)
        for place, found in looks:
            if isinstance(found, _Found):
                held[found.header.id].append(found)
            elif found is not None:
                looked.damaged.append(_damaged(place.file.name, place.session_id, found))
                looked.refused[place.session_id] = found
        for path in self._looks.keys() - {place.file.path for place, _ in looks}:
            self._looks.pop(path, None)
        for session_id, several in held.items():
            # Of copies of one log the longest says all that the others do.
            several.sort(key=lambda found: (-found.stat.size, found.place.file.name))
            looked.sessions[session_id] = several[0]
            looked.damaged += [_twice(session_id, other, several[0]) for other in several[1:]]
        self._known = looked.places
        return looked

    def _look_once(self) -> tuple[list[tuple[Place, _Found | StoreError | None]], bool]:
        """What is in each file, and whether each was there when it was looked at."""
        self._unreadable = {}
        looks: list[tuple[Place, _Found | StoreError | None]] = []
        complete = True
        for place in self.places():
            try:
                looks.append((place, self._look(place)))
            except FileNotFoundError:
                complete = False
        return looks, complete

    def _look(self, place: Place) -> _Found | StoreError | None:
        """What is in a file now. Raises ``FileNotFoundError``."""
        path = place.file.path
        try:
            stat = self._files.stat(path)
            look = self._looks.get(path)
            if look is None or not look.settled or look.stat != stat:
                look = self._looks[path] = self._open(place)
        except FileNotFoundError:
            raise
        except OSError as error:
            return _failed(place.file.name, error)
        if isinstance(look.found, SessionHeader):
            return _Found(place, look.stat, look.found, not look.settled)
        return look.found

    def _open(self, place: Place) -> _Look:
        now_ns = self._files.now_ns()
        stat = self._files.stat(place.file.path)
        found: SessionHeader | StoreError | None
        try:
            stat, found = read_head(
                self._files, place.file, place.document, lambda head: self.header_of(place, head)
            )
        except (CorruptLog, UnsupportedLog) as error:
            found = error
        return _Look(stat, not is_young(stat, now_ns), found)

    def place(
        self,
        path: str,
        session_id: str | None = None,
        parent: str | None = None,
        *,
        compressed: bool = False,
        document: bool = False,
    ) -> Place:
        """A file below the root; ``compressed`` with Zstandard, ``document`` as in ``Place``."""
        name = path.removeprefix(f"{self.root}/")
        file = LogFile(path, name, FORMAT_VERSION, compressed=compressed)
        return Place(file, session_id, parent, document)

    def entries(self, path: str) -> tuple[Entry, ...]:
        """The names in a directory, sorted; none where there is none.

        Raises:
            StoreFailed: the root is there and cannot be read.
        """
        try:
            now_ns = self._files.now_ns()
            stat = self._files.stat(path)
            known = self._names.get(path)
            if known is not None and known.settled and known.stat == stat:
                return known.entries
            entries = tuple(self._files.entries(path))
        except (FileNotFoundError, NotADirectoryError):
            self._names.pop(path, None)
            if path == self.root and not self._is_absent():
                raise StoreFailed(f"the store {self.root} is no directory") from None
            return ()
        except OSError as error:
            if path == self.root:
                raise StoreFailed(f"the store {self.root} cannot be read: {error}") from error
            name = path.removeprefix(f"{self.root}/")
            self._unreadable[name] = _failed(name, error)
            return ()
        self._names[path] = _Names(stat, not is_young(stat, now_ns), entries)
        return entries

    def _is_absent(self) -> bool:
        try:
            self._files.stat(self.root)
        except (FileNotFoundError, NotADirectoryError):
            return True
        return False


def _failed(name: str, error: OSError) -> StoreFailed:
    failure = StoreFailed(f"{name} cannot be read: {error}")
    failure.__cause__ = error
    return failure


def _damaged(name: str, session_id: str | None, error: StoreError) -> Damaged:
    damage = isinstance(error, CorruptLog)
    code = ErrorCode.CORRUPT_SESSION if damage else ErrorCode.PERSISTENCE_FAILED
    return Damaged(name, session_id, code, str(error), conflict=not isinstance(error, NotASession))


def _twice(session_id: str, other: _Found, shown: _Found) -> Damaged:
    message = (
        f"{other.place.file.name}: session {session_id!r} is read from {shown.place.file.name},"
        " which is longer or comes first"
    )
    code = ErrorCode.CORRUPT_SESSION
    return Damaged(other.place.file.name, None, code, message, other.header, conflict=False)
