"""Several stores as one: one listing, one index, each session under an id that nobody else has.

A session keeps its id unless a source named before holds that id as well; then it is
``source:id``. A parent is looked for in the source of its child first. A source that cannot be read
is named among what is damaged and hides no other.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Final, Literal, overload

from attrs import define, evolve, field, frozen

from ..messages.errors import ErrorCode
from ..messages.event import Event
from ..messages.header import SessionHeader
from .claims import flush_all
from .contract import (
    TAIL_BYTES,
    AlreadyExists,
    Changes,
    Damaged,
    NotFound,
    ReadHandle,
    SessionStore,
    Snapshot,
    StoredLog,
    StoredText,
    StoreFailed,
    Sweep,
    Tail,
    WriteHandle,
)
from .followed_sources import FollowedSources
from .notices import Notices

_SEPARATOR: Final = ":"


@frozen
class _Home:
    """Where a session is kept: its source, and its id there."""

    source: str
    session_id: str


@define
class _Directory:
    """Which session of which source every id stands for."""

    homes: dict[str, _Home] = field(init=False, factory=dict)
    names: dict[_Home, str] = field(init=False, factory=dict)

    def add(self, home: _Home) -> bool:
        """Give a session its id; whether one of its two forms was free."""
        for name in (home.session_id, f"{home.source}{_SEPARATOR}{home.session_id}"):
            if name not in self.homes:
                self.homes[name] = home
                self.names[home] = name
                return True
        return False

    def name(self, source: str, session_id: str) -> str:
        """The id of a session of ``source``, the bare one where it is not there."""
        return self.names.get(_Home(source, session_id), session_id)

    def header(self, source: str, header: SessionHeader) -> SessionHeader:
        """A header of ``source`` with the ids of this directory."""
        name, parent = self.name(source, header.id), header.parent_session
        if parent is not None:
            parent = self.name(source, parent)
        if (name, parent) == (header.id, header.parent_session):
            return header
        return evolve(header, id=name, parent_session=parent)

    def snapshot(self, source: str, found: Snapshot) -> Snapshot:
        """A snapshot of ``source`` that tells it from those of other sources."""
        header = self.header(source, found.header)
        revision = f"{source}{_SEPARATOR}{found.revision}"
        if header.parent_session != found.header.parent_session:
            revision += f"{_SEPARATOR}{header.parent_session}"
        location = f"{source}{_SEPARATOR}{found.location}"
        return evolve(found, header=header, revision=revision, location=location)


class SeveralStores(SessionStore):
    """The sessions of several stores. What changed is told as far as each of them tells."""

    def __init__(
        self, sources: Mapping[str, SessionStore], *, created_in: str | None = None
    ) -> None:
        """Take ``sources`` by name, in the order in which their sessions keep their ids.

        Args:
            sources: at least one, under names without a colon.
            created_in: the source that new sessions are stored in; without it none is created.

        Raises:
            ValueError: there is no source, a name is empty or holds a colon, or ``created_in`` is
                none of them.
        """
        if not sources:
            raise ValueError("at least one store is needed")
        for name in sources:
            if not name or _SEPARATOR in name:
                raise ValueError(f"a source has a name without {_SEPARATOR!r}, got {name!r}")
        if created_in is not None and created_in not in sources:
            raise ValueError(f"created_in must be one of {', '.join(sources)}, got {created_in!r}")
        self._sources = dict(sources)
        self._created_in = created_in
        self._directory: _Directory | None = None
        self._notices = Notices(os.getpid, self._follow)

    def source_of(self, session_id: str) -> tuple[str, str] | None:
        """The source of a session, and its id there; ``None`` where it was not found last time."""
        home = (self._directory or _Directory()).homes.get(session_id)
        return None if home is None else (home.source, home.session_id)

    # --- the contract

    def sweep(self) -> Sweep:
        swept = {name: _swept(store) for name, store in self._sources.items()}
        return self._notices.seen(self._merge(swept))

    def _merge(self, swept: Mapping[str, Sweep | StoreFailed]) -> Sweep:
        """The sweeps of all sources as one. Raises ``StoreFailed`` where every one failed."""
        failures = [failure for failure in swept.values() if isinstance(failure, StoreFailed)]
        if len(failures) == len(swept):
            raise failures[0]
        directory = _Directory()
        damaged: list[Damaged] = []
        for name, found in swept.items():
            if isinstance(found, StoreFailed):
                damaged.append(
                    Damaged(name, None, ErrorCode.PERSISTENCE_FAILED, f"{name}: {found}")
                )
                continue
            for snapshot in found.snapshots:
                if not directory.add(_Home(name, snapshot.header.id)):
                    damaged.append(_homeless(name, snapshot))
        snapshots = [
            directory.snapshot(name, snapshot)
            for name, found in swept.items()
            if isinstance(found, Sweep)
            for snapshot in found.snapshots
            if _Home(name, snapshot.header.id) in directory.names
        ]
        for name, found in swept.items():
            if isinstance(found, Sweep):
                damaged += [_damaged(directory, name, damage) for damage in found.damaged]
        self._directory = directory
        return Sweep(tuple(snapshots), tuple(damaged))

    def changes(self, token: str | None) -> Changes | None:
        return self._notices.changes(token)

    def is_unchanged(self, token: str) -> bool:
        return self._notices.is_quiet(token)

    def unwatch(self) -> None:
        self._notices.close()

    def _follow(self) -> FollowedSources | None:
        followed = FollowedSources(self._sources, self._merge, self._named)
        began = False
        try:
            began = followed.begin()
        finally:
            if not began:
                followed.close()
        return followed if began else None

    def _named(self, source: str, found: Snapshot) -> Snapshot:
        return (self._directory or _Directory()).snapshot(source, found)

    def stat(self, session_id: str) -> Snapshot | None:
        for directory, home in self._homes(session_id):
            found = self._sources[home.source].stat(home.session_id)
            if found is not None:
                return directory.snapshot(home.source, found)
        return None

    @overload
    def open(self, session_id: str, access: Literal["read"]) -> ReadHandle: ...
    @overload
    def open(self, session_id: str, access: Literal["write"]) -> WriteHandle: ...
    def open(self, session_id: str, access: Literal["read", "write"]) -> ReadHandle:
        for directory, home in self._homes(session_id):
            store = self._sources[home.source]
            try:
                if access == "read":
                    return _Reader(home.source, directory, store.open(home.session_id, "read"))
                return _Writer(home.source, directory, store.open(home.session_id, "write"))
            except NotFound:
                continue
        raise _not_found(session_id)

    def create(self, header: SessionHeader, inherited_event_count: int = 0) -> WriteHandle:
        if self._created_in is None:
            raise ValueError(
                f"session {header.id!r} cannot be created: none of these stores takes new sessions"
            )
        if self.stat(header.id) is not None:
            raise AlreadyExists(f"session {header.id!r} is stored already")
        handle = self._sources[self._created_in].create(header, inherited_event_count)
        return _Writer(self._created_in, self._directory or _Directory(), handle)

    def read_tail(self, session_id: str, mark: bytes | None, limit: int = TAIL_BYTES) -> Tail:
        for directory, home in self._homes(session_id):
            prefix = f"{home.source}{_SEPARATOR}".encode()
            own = mark[len(prefix) :] if mark is not None and mark.startswith(prefix) else None
            try:
                tail = self._sources[home.source].read_tail(home.session_id, own, limit)
            except NotFound:
                continue
            snapshot = directory.snapshot(home.source, tail.snapshot)
            return evolve(tail, snapshot=snapshot, mark=prefix + tail.mark)
        raise _not_found(session_id)

    def open_text(self, session_id: str) -> StoredText | None:
        for _directory, home in self._homes(session_id):
            try:
                return self._sources[home.source].open_text(home.session_id)
            except NotFound:
                continue
        raise _not_found(session_id)

    def flush(self) -> None:
        flush_all(self._sources.values())

    def _homes(self, session_id: str) -> Iterator[tuple[_Directory, _Home]]:
        """Where a session was at the last look, and, where it is not there, where it is now."""
        known = self._directory
        if known is not None and (home := known.homes.get(session_id)) is not None:
            yield known, home
        self.sweep()
        known = self._directory
        assert known is not None
        if (home := known.homes.get(session_id)) is not None:
            yield known, home


class _Reader(ReadHandle):
    """A handle of one source, under the ids of all."""

    def __init__(self, source: str, directory: _Directory, handle: ReadHandle) -> None:
        self._source = source
        self._directory = directory
        self._handle = handle
        self.header = directory.header(source, handle.header)

    def read(self, offset: int = 0, length: int | None = None) -> tuple[Event, ...]:
        return self._handle.read(offset, length)

    def read_log(self) -> StoredLog:
        log = self._handle.read_log()
        return evolve(log, snapshot=self._directory.snapshot(self._source, log.snapshot))

    def close(self) -> None:
        self._handle.close()


class _Writer(_Reader, WriteHandle):
    """The same for writing."""

    def __init__(self, source: str, directory: _Directory, handle: WriteHandle) -> None:
        super().__init__(source, directory, handle)
        self._writer = handle

    def append(self, events: tuple[Event, ...]) -> str:
        return self._revision(self._writer.append(events))

    def flush(self) -> str:
        return self._revision(self._writer.flush())

    def _revision(self, revision: str) -> str:
        found = Snapshot(self._handle.header, revision)
        return self._directory.snapshot(self._source, found).revision


def _swept(store: SessionStore) -> Sweep | StoreFailed:
    try:
        return store.sweep()
    except StoreFailed as error:
        return error


def _damaged(directory: _Directory, source: str, damage: Damaged) -> Damaged:
    path = f"{source}{_SEPARATOR}{damage.path}"
    session_id, header = damage.session_id, damage.header
    if session_id is not None and directory.homes.get(session_id) not in (
        None,
        _Home(source, session_id),
    ):
        session_id = f"{source}{_SEPARATOR}{session_id}"
    if header is not None and session_id is not None:
        header = evolve(directory.header(source, header), id=session_id)
    return evolve(damage, path=path, session_id=session_id, header=header)


def _homeless(source: str, snapshot: Snapshot) -> Damaged:
    session_id = snapshot.header.id
    return Damaged(
        f"{source}{_SEPARATOR}{snapshot.location}",
        session_id,
        ErrorCode.CORRUPT_SESSION,
        f"{source}: session {session_id!r} has an id that other sources hold in both its forms",
    )


def _not_found(session_id: str) -> NotFound:
    return NotFound(f"session {session_id!r} is in none of the stores")
