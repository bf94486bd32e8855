"""The export of a session: its log, and those of its descendants, as one ZIP archive.

Entries in order: the log of the session under the name that a store gives it; each descendant
before its own children, ``subagents/<id>/<log>``; with an attachment store also each image,
``media/<id>.<png|jpg|webp|gif>``, and file, ``files/<2 hex>/<digest>/<name>``. Logs are copied as
they are: nothing is redacted.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import Self, TypeAlias

from attrs import define, field

from ..actors.runtime import Runtime, TrioRuntime
from ..actors.service import SessionQuery
from ..history.attachments import Attachment
from ..messages.errors import ErrorCode, SessionQueryError
from ..messages.records import LineageTrace, Skipped
from .entry_names import EntryNames, archive_name
from .references import References
from .zip_stream import LEVEL, ZipStream

AttachmentStore: TypeAlias = Callable[
    [Attachment], AbstractAsyncContextManager[AsyncIterable[bytes]]
]
"""Opens an attachment and gives its bytes in pieces; an error of it fails the whole archive."""


@define(eq=False)
class Archive:
    """An archive that is made while it is read: an async iterator of its bytes.

    Nothing is made ahead of the reader, and never more than a few MiB are in memory. An error half
    way makes worthless what was read before.
    """

    name: str
    """A file name, such as ``session-7c1f.zip``."""
    sessions: tuple[str, ...]
    """The ids of the sessions whose logs are in it, in order."""
    skipped: tuple[Skipped, ...]
    """What the store holds, damaged, and hides whether it is a descendant."""
    notes: list[str]
    """What stored logs hold and the archive does not, such as a torn line; known at its end."""
    _pieces: AsyncIterator[bytes]
    _first: bytes
    _closed: bool = field(default=False, init=False)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if self._closed:
            raise SessionQueryError(ErrorCode.ABORTED, "the archive was closed")
        first, self._first = self._first, b""
        return first or await anext(self._pieces)

    def close(self) -> None:
        """Refuse to go on; called as the block of ``open_archive`` is left."""
        self._closed = True


@asynccontextmanager
async def open_archive(
    query: SessionQuery,
    session_id: str,
    *,
    descendants: bool = False,
    attachments: AttachmentStore | None = None,
    level: int = LEVEL,
    runtime: Runtime | None = None,
) -> AsyncIterator[Archive]:
    """The archive of one session, for the length of the block.

    The log of the session has been found and begun when the block begins: a web route can still
    answer with a status. A message may hold paths of the host; such a route keeps it to itself.
    A live session is flushed right before its log is read.

    Args:
        descendants: with all that came from the session; one that cannot be read fails the archive.
        attachments: where images and files are; without, only logs are exported.
        level: how hard to compress, 0 to 9.
        runtime: where compressing runs; worker threads by default.

    Raises:
        SessionQueryError: ``INVALID_CONFIG`` for a level; ``SESSION_NOT_FOUND``,
            ``CORRUPT_SESSION``, ``PERSISTENCE_FAILED``; with descendants also as ``trace_session``.
            The same while the archive is read.
    """
    if type(level) is not int or not 0 <= level <= 9:
        raise SessionQueryError(
            ErrorCode.INVALID_CONFIG, f"level must be a whole number from 0 to 9, got {level!r}"
        )
    ids: tuple[str, ...] = (session_id,)
    skipped: tuple[Skipped, ...] = ()
    if descendants:
        lineage = await query.trace_session(session_id)
        ids = (session_id, *(record.header.id for _depth, record in lineage.walk()))
        skipped = _undecided(lineage, frozenset(ids))
    making = _Making(query, ZipStream(level), attachments, runtime or TrioRuntime())
    async with aclosing(making.pieces(ids)) as pieces:
        first = await anext(pieces)
        archive = Archive(archive_name(session_id), ids, skipped, making.notes, pieces, first)
        try:
            yield archive
        finally:
            archive.close()


def _undecided(lineage: LineageTrace, ids: frozenset[str]) -> tuple[Skipped, ...]:
    """What may belong to a lineage and cannot be read; what does belong to it is an error."""
    for damaged in lineage.skipped:
        if damaged.header is not None and damaged.header.parent_session in ids:
            raise SessionQueryError(
                damaged.code, f"descendant {damaged.header.id!r} cannot be read: {damaged.message}"
            )
    return tuple(damaged for damaged in lineage.skipped if damaged.header is None)


@define(eq=False)
class _Making:
    """One archive on its way."""

    _query: SessionQuery
    _zip: ZipStream
    _attachments: AttachmentStore | None
    _runtime: Runtime
    _names: EntryNames = field(factory=EntryNames, init=False)
    _references: References = field(factory=References, init=False)
    notes: list[str] = field(factory=list, init=False)

    async def pieces(self, ids: tuple[str, ...]) -> AsyncGenerator[bytes, None]:
        folders = ("", *map(self._names.descendant, ids[1:]))
        try:
            for session_id, folder in zip(ids, folders, strict=True):
                async with self._query.copy_log(session_id) as copy:
                    self._zip.begin(folder + copy.name)
                    while text := await copy.read():
                        if packed := await self._runtime.call(self._add_text, text):
                            yield packed
                    self.notes += copy.notes
                self._references.end()
            for attachment in self._references.found:
                assert self._attachments is not None
                async with self._attachments(attachment) as content:
                    self._zip.begin(self._names.attachment(attachment))
                    async for data in content:
                        if packed := await self._runtime.call(self._zip.add, data):
                            yield packed
            yield self._zip.finish()
        finally:
            self._zip.finish()

    def _add_text(self, text: bytes) -> bytes:
        if self._attachments is not None:
            self._references.feed(text)
        return self._zip.add(text)
