"""The logs of another agent as a store of sessions that is only read: nothing is written, locked
or repaired, and whatever is not a log is never opened.

A subclass says where logs lie, what their first records make of a header, and how records become
events. What was seen of a file stays known with the state it was seen in, so that a sweep over an
unchanged store costs one ``stat`` a directory and one a log.
"""

from __future__ import annotations

import os
import threading  # noqa: TID251  # looks of several threads, of which the newest counts
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from copy import copy
from functools import cached_property, partial
from itertools import count
from typing import ClassVar, Final, Literal, NoReturn, overload

from attrs import define, field, frozen

from ..history.foreign import Copies, Progress, Translator
from ..messages.errors import ErrorCode
from ..messages.header import FORMAT_VERSION, SessionHeader
from ..messages.json import Json
from .contract import (
    TAIL_BYTES,
    AlreadyExists,
    Changes,
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
from .followed_logs import FollowedLogs
from .foreign_lines import Line
from .foreign_log import ForeignLog, ForeignMark, Part, read_foreign, read_head
from .large_records import carry_on
from .log_file import LogFile, Piece, is_young
from .log_reader import LogReader
from .log_text import NotASession
from .notices import Notices
from .prefix_guard import Mark, decode_mark
from .watcher import Watchable

_COPIES_ELSEWHERE: Final = ":copied"
"""What the revision of a fork ends in while its parent is here, where the copies are found; with
the number of generations between, where the parent is not here but its own parent is."""


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

    @cached_property
    def links(self) -> frozenset[str]:
        """Those that are links."""
        return frozenset(entry.name for entry in self.entries if entry.is_link)


@frozen
class _Look:
    """One look at a log."""

    stat: FileStat
    settled: bool
    found: tuple[Part, ...] | StoreError
    """The sessions in it, none where there is none yet."""


@frozen
class _Found:
    """A session and where it is."""

    place: Place
    stat: FileStat
    part: Part
    young: bool

    @property
    def header(self) -> SessionHeader:
        return self.part.header

    @property
    def rank(self) -> tuple[bool, int, str]:
        """Of several that are one session the first says all that the others do, or owns it."""
        copied = self.part.end is not None and bool(self.part.sources)
        return copied, -self.stat.size, self.place.file.name


_Seen = tuple[_Found, ...] | StoreError
"""What is in a file."""


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

    mapping: ClassVar[int] = 0
    """Counted up when the same records make other events than before: it is part of revisions and
    marks, so that indexes and tails begin anew by themselves."""

    def __init__(self, root: str | os.PathLike[str], *, files: Files | None = None) -> None:
        """``root`` is made absolute once and need not exist. ``files`` is the disk."""
        self.root = os.path.abspath(root)
        self._files: Files = files if files is not None else OsFiles()
        self._names: dict[str, _Names] = {}
        self._looks: dict[str, _Look] = {}
        self._known: dict[str, Place] = {}
        """Where each session is, as of the newest look."""
        self._numbers = count(1)
        self._newest = 0
        self._newest_lock = threading.Lock()
        """Never held while anything is looked at."""
        self._places: dict[str, Place] = {}
        """Every file that should be a log, by path, as of the latest look at everything."""
        self._ambiguous: set[str] = set()
        """Sessions that are in several of them."""
        self._unreadable: dict[str, StoreError] = {}
        """Directories that could not be listed by a look, which is made by a copy of the store."""
        self._dangling: set[str] = set()
        """Links that led nowhere at that look, and to no log: to a folder perhaps at the next."""
        self._twin: ForeignStore | None = None
        """What looks while changes are followed; nobody else uses it."""
        self._before_listing: Callable[[str], None] | None = None
        self._notices = Notices(self._files.process_id, self._follow)

    # --- what an agent's own store says

    @abstractmethod
    def places(self) -> Iterator[Place]:
        """Every file that should be a log, found through ``entries``."""

    @abstractmethod
    def header_of(
        self, place: Place, records: Iterator[Mapping[str, Json]]
    ) -> SessionHeader | None:
        """The header that the first records of a log give, or nothing where they give none."""

    def parts_of(
        self, place: Place, header: SessionHeader, lines: Iterator[Line]
    ) -> Iterable[Part]:
        """The sessions in a log: the one of this header, and others whose rows are among its own.

        ``lines`` are those of the whole log, which is read as far as they are asked for.
        """
        parent = header.parent_session if header.is_seeded else None
        return (Part(header, () if parent is None else (parent,)),)

    @abstractmethod
    def translator(
        self, header: SessionHeader, copies: Copies, progress: Progress | None
    ) -> Translator:
        """What turns the records of a session into events."""

    def translator_within(
        self, header: SessionHeader, copies: Copies, progress: Progress | None
    ) -> Translator:
        """The same for a session whose records are among those of another, which it passes over."""
        return self.translator(header, copies, progress)

    # --- the contract

    def sweep(self) -> Sweep:
        looked = self._look_at_all()
        places = looked.places
        snapshots = (self._log(found, places).snapshot() for found in looked.sessions.values())
        return self._notices.seen(Sweep(tuple(snapshots), tuple(looked.damaged)))

    def stat(self, session_id: str) -> Snapshot | None:
        found = self._find(session_id)
        return self._log(found).snapshot() if found is not None else None

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

    def changes(self, token: str | None) -> Changes | None:
        changes = self._notices.changes(token)
        twin = self._twin
        if changes is not None and twin is not None:
            # Whether copies are found elsewhere depends on who else is here.
            self._learn(next(self._numbers), dict(twin._known))
        return changes

    def is_unchanged(self, token: str) -> bool:
        return self._notices.is_quiet(token)

    def unwatch(self) -> None:
        self._twin = None
        self._notices.close()

    # --- following what changes

    def _follow(self) -> FollowedLogs | None:
        if not isinstance(self._files, Watchable):
            return None
        watcher = self._files.watcher(self.root)
        if watcher is None:
            return None
        followed = FollowedLogs(watcher, self._files, self.root)
        # A twin that knew the one before it would keep that alive, and so on.
        self._twin = None
        twin = copy(self)
        twin._names, twin._looks, twin._before_listing = {}, dict(self._looks), followed.watch
        try:
            followed.begin(twin)
        except BaseException:
            followed.close()
            raise
        # What the twin has opened need not be opened again.
        self._looks, self._twin = dict(twin._looks), twin
        return followed

    def look_again(self, paths: Iterable[str]) -> dict[str, Snapshot] | None:
        """See ``Logs``."""
        sessions: dict[str, Snapshot] = {}
        for path in paths:
            before = self._looks.get(path)
            try:
                seen = self._look(self._places[path])
            except FileNotFoundError:
                return None
            if (
                before is None
                or isinstance(before.found, StoreError)
                or not isinstance(seen, tuple)
            ):
                return None
            now = {found.header.id: self._log(found).snapshot() for found in seen}
            same = now.keys() == {part.header.id for part in before.found}
            # Where there are several logs of one session, another may count now.
            if not now or not same or now.keys() & self._ambiguous:
                return None
            sessions |= now
        return sessions

    def doubtful(self, paths: Iterable[str] | None = None) -> set[str]:
        """See ``Logs``."""
        doubtful = set[str]()
        for path in self._places if paths is None else paths:
            look = self._looks.get(path)
            directory, _, name = path.rpartition("/")
            names = self._names.get(directory)
            alone = look is not None and look.settled and look.stat.links == 1
            if not alone or names is None or name in names.links:
                doubtful.add(path)
        return doubtful if paths is not None else doubtful | self._dangling

    def is_log(self, path: str) -> bool:
        """See ``Logs``."""
        return path in self._places

    def is_listed_as_before(self, path: str) -> bool:
        """See ``Logs``."""
        directory = path.rpartition("/")[0]
        known = self._names.get(directory)
        try:
            same = known is not None and known.settled and self._files.stat(directory) == known.stat
        except OSError:
            return False
        return same and (path not in self._dangling or self._leads_nowhere(path))

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
                seen = self._look(known)
                for found in seen if isinstance(seen, tuple) else ():
                    if found.header.id == session_id:
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
        here = self._known if known is None else known
        sources = found.part.sources if found.header.is_seeded else ()
        stored = (source for source in sources if source in here and source != found.header.id)
        copies = Copies(sources, frozenset(stored))

        def translate(progress: Progress | None) -> Translator:
            within = found.part.end is not None
            make = self.translator_within if within else self.translator
            return make(found.header, copies, progress)

        variant = f":{self.mapping}" if self.mapping else ""
        if copies.nearest is not None:
            variant += f"{_COPIES_ELSEWHERE}{copies.nearest or ''}"
        return ForeignLog(
            found.place.file, found.part, found.stat, found.young, variant, translate,
            found.place.document,
        )  # fmt: skip

    # --- all sessions

    def _look_at_all(self) -> _Looked:
        number = next(self._numbers)
        looking, looks, complete = self._look_once()
        if not complete:
            # Compressing or moving a log replaces its name: it is there under another one.
            looking, looks, _ = self._look_once()
        unreadable = looking._unreadable.items()
        looked = _Looked([_damaged(name, None, error) for name, error in unreadable])
        held: defaultdict[str, list[_Found]] = defaultdict(list)
        for place, found in looks:
            if isinstance(found, StoreError):
                looked.damaged.append(_damaged(place.file.name, place.session_id, found))
                looked.refused[place.session_id] = found
                continue
            for one in found:
                held[one.header.id].append(one)
        places = {place.file.path: place for place, _ in looks}
        for path in self._looks.keys() - places.keys():
            self._looks.pop(path, None)
        self._places, self._dangling = places, looking._dangling - places.keys()
        self._ambiguous = {session_id for session_id, several in held.items() if len(several) > 1}
        for session_id, several in held.items():
            several.sort(key=lambda found: found.rank)
            looked.sessions[session_id] = several[0]
            looked.damaged += [
                _twice(session_id, other, several[0])
                for other in several[1:]
                if other.part.end is None
            ]
        self._learn(number, looked.places)
        return looked

    def _learn(self, number: int, known: dict[str, Place]) -> None:
        """Know where sessions are by a look of this number, unless a later one has told."""
        with self._newest_lock:
            if number > self._newest:
                self._newest, self._known = number, known

    def _look_once(self) -> tuple[ForeignStore, list[tuple[Place, _Seen]], bool]:
        """Who looked, what is in each file, and whether each was there when it was looked at."""
        looking = copy(self)
        looking._unreadable, looking._dangling = {}, set()
        looks: list[tuple[Place, _Seen]] = []
        complete = True
        for place in looking.places():
            carry_on()
            try:
                looks.append((place, self._look(place)))
            except FileNotFoundError:
                complete = False
                self._looks.pop(place.file.path, None)
                looks.append((place, ()))
        return looking, looks, complete

    def _look(self, place: Place) -> _Seen:
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
            self._looks.pop(path, None)
            return _failed(place.file.name, error)
        if isinstance(look.found, StoreError):
            return look.found
        return tuple(_Found(place, look.stat, part, not look.settled) for part in look.found)

    def _open(self, place: Place) -> _Look:
        now_ns = self._files.now_ns()
        stat = self._files.stat(place.file.path)
        found: tuple[Part, ...] | StoreError
        try:
            stat, found = read_head(
                self._files,
                place.file,
                place.document,
                partial(self.header_of, place),
                partial(self.parts_of, place),
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
        if self._before_listing is not None:
            self._before_listing(path)
        try:
            now_ns = self._files.now_ns()
            stat = self._files.stat(path)
            known = self._names.get(path)
            # What a link leads to may become a directory while nothing happens to the link.
            unchanged = known is not None and known.settled and known.stat == stat
            if known is not None and unchanged and not known.links:
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
        self._names[path] = names = _Names(stat, not is_young(stat, now_ns), entries)
        links = (f"{path}/{name}" for name in names.links)
        self._dangling.update(link for link in links if self._leads_nowhere(link))
        return entries

    def _leads_nowhere(self, link: str) -> bool:
        try:
            self._files.stat(link)
        except OSError:
            return True
        return False

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
