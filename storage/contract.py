"""The contract of a session store, and the words its operations use.

A store is blocking and knows no Trio; the actors call it on worker threads. Nothing above it may
assume files. Every implementation passes the suite in ``tests/store_contract.py``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Literal, Self, overload

from attrs import field, frozen

from ..messages.errors import ErrorCode, SessionError
from ..messages.event import Event
from ..messages.header import SessionHeader
from ..messages.json import Json

TAIL_BYTES: Final = 8 * 1024 * 1024
"""Stored bytes that one ``read_tail`` decodes before it stops at the next whole record."""


class StoreError(SessionError):
    """A store refused an operation or failed at it."""


class NotFound(StoreError):
    """No session of that id is stored."""


class AlreadyExists(StoreError):
    """The id is taken by a stored session, or by one that was created and not written yet."""


class AlreadyOwned(StoreError):
    """Another write handle of the session is open."""


class HandleClosed(StoreError):
    """The handle was closed before; checked ahead of everything else."""


class StoreFailed(StoreError):
    """The medium failed: I/O errors, a root that cannot be read. The cause is chained."""


class CorruptLog(StoreError):
    """Stored bytes are damaged; the message names file, line and what is wrong."""


class UnsupportedLog(StoreError):
    """Stored bytes are intact but not readable by this version; the message names the place."""


@frozen
class Snapshot:
    """One stored session as a light look saw it."""

    header: SessionHeader
    revision: str
    """Opaque; equal means unchanged, for one session of one store."""
    provisional: bool = False
    """The log is so young that a further change might not show in the revision."""
    size_bytes: int | None = None
    location: str = ""
    """Where the session is stored, in the store's own terms; empty where a look does not tell."""


@frozen
class Damaged:
    """Something a sweep found that should be a session and is not readable as one."""

    path: str
    session_id: str | None
    code: ErrorCode
    message: str
    header: SessionHeader | None = None
    conflict: bool = True
    """False for a file that has no session header at all, such as an empty or foreign one."""


@frozen
class Sweep:
    """One observation of a whole store, sessions in no promised order."""

    snapshots: tuple[Snapshot, ...]
    damaged: tuple[Damaged, ...] = ()


@frozen
class Changes:
    """What changed since a token: ids to look at again, and the next token."""

    token: str
    changed: frozenset[str]
    gone: frozenset[str]
    """Ids that no readable session has now."""
    damaged: tuple[Damaged, ...] = ()
    """All that is damaged now, as a sweep would name it."""


@frozen
class Tail:
    """The events behind a mark."""

    snapshot: Snapshot
    events: tuple[Event, ...]
    mark: bytes
    """Where the next tail begins; opaque, stays valid in other processes."""
    appended: bool
    """False where the mark no longer fits the log: ``events`` then begin at seq 0."""
    complete: bool
    """False where more events are stored behind ``mark``."""
    left_out: str | None = None
    """Which stored lines are not part of the log and why, or nothing."""
    payloads: Mapping[int, Json] = field(factory=dict, eq=False, repr=False)
    """Payloads by seq that had to be decoded to read the events; to be looked at, not changed."""


@frozen
class StoredLog:
    """A whole stored log, without in-memory closers."""

    snapshot: Snapshot
    inherited_event_count: int
    events: tuple[Event, ...]
    left_out: str | None = field(default=None)


class StoredText(ABC):
    """The text of a stored log, uncompressed, as far as it went when it was opened."""

    first_line: bytes
    """The header, without its line end."""

    @abstractmethod
    def read(self, size: int) -> bytes:
        """The next piece from the beginning on, at most ``size`` bytes; nothing at the end.

        Raises:
            CorruptLog, UnsupportedLog
            StoreFailed: the log cannot be read, or became shorter.
        """

    @abstractmethod
    def close(self) -> None:
        """Give the text back; again is harmless."""


class ReadHandle(ABC):
    """An open stored session. Reads never go back: a log that became shorter is an error."""

    header: SessionHeader

    @abstractmethod
    def read(self, offset: int = 0, length: int | None = None) -> tuple[Event, ...]:
        """The events from seq ``offset``, at most ``length`` of them, never from a torn tail.

        Raises:
            ValueError: a bound is no whole number ≥ 0.
            CorruptLog, UnsupportedLog, StoreFailed, HandleClosed
        """

    @abstractmethod
    def read_log(self) -> StoredLog:
        """The whole log and the revision it was read at; errors as in ``read``."""

    @abstractmethod
    def close(self) -> None:
        """Give the handle back; again is harmless."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class WriteHandle(ReadHandle):
    """The single writer of a stored session, from the moment it is opened until it is closed."""

    @abstractmethod
    def append(self, events: tuple[Event, ...]) -> str:
        """Store the events durably, all or none, and return the new revision.

        The first seq must be the stored length and the seqs contiguous. An empty batch is a no-op.

        Raises:
            ValueError: wrong seqs.
            StoreFailed: nothing was stored; the same batch may be tried again.
            HandleClosed
        """

    @abstractmethod
    def flush(self) -> str:
        """Make everything appended durable, a session without events included; the revision."""


class SessionStore(ABC):
    """Stored sessions. All methods may be called from several threads at once."""

    @abstractmethod
    def sweep(self) -> Sweep:
        """Look at every stored session, headers only.

        Raises:
            StoreFailed: the root itself cannot be read. An absent root is an empty store.
        """

    @abstractmethod
    def stat(self, session_id: str) -> Snapshot | None:
        """Look at one session, header only; ``None`` where it is absent.

        Raises:
            CorruptLog, UnsupportedLog, StoreFailed
        """

    @overload
    def open(self, session_id: str, access: Literal["read"]) -> ReadHandle: ...
    @overload
    def open(self, session_id: str, access: Literal["write"]) -> WriteHandle: ...
    @abstractmethod
    def open(self, session_id: str, access: Literal["read", "write"]) -> ReadHandle:
        """Open a stored session. Reading never takes ownership and works beside a writer.

        Raises:
            NotFound, AlreadyOwned, CorruptLog, UnsupportedLog, StoreFailed
        """

    @abstractmethod
    def create(self, header: SessionHeader, inherited_event_count: int = 0) -> WriteHandle:
        """Reserve an id and return its writer; nothing is stored before the first batch or flush.

        Raises:
            AlreadyExists
            ValueError: the header is not one this store can write.
        """

    @abstractmethod
    def read_tail(self, session_id: str, mark: bytes | None, limit: int = TAIL_BYTES) -> Tail:
        """The events behind ``mark`` (or from the beginning), about ``limit`` bytes of them.

        Growth is not proof of append: what stands before the mark is checked, and a log that was
        rewritten is read from the beginning.

        Raises:
            NotFound, CorruptLog, UnsupportedLog, StoreFailed
        """

    @abstractmethod
    def flush(self) -> None:
        """Flush every open write handle; failures are gathered in one ``ExceptionGroup``."""

    def open_text(self, session_id: str) -> StoredText | None:
        """The text of a log just as it is stored, or ``None`` where the store keeps none.

        Raises:
            NotFound, CorruptLog, UnsupportedLog, StoreFailed
        """
        return None

    def changes(self, token: str | None) -> Changes | None:
        """What changed since ``token``, or ``None`` where only a sweep can tell.

        What was changed before this call is told, whoever did it. Without a token, taking notice
        begins: nothing is named, and what the token of the answer is good for is told by a sweep
        that is made after it. A token that was refused never becomes good again.
        """
        return None

    def is_unchanged(self, token: str) -> bool:
        """Whether ``changes`` would name nothing; told at once, or else denied.

        Like ``is_same_as``, and unlike anything else here, it never blocks.
        """
        return False

    def is_same_as(self, other: SessionStore) -> bool:
        """Whether ``other`` surely shows what is stored here, as another object over one folder."""
        return other is self

    def unwatch(self) -> None:
        """Take no more notice of changes: tokens are void. Again, or before, is harmless."""
        return None
