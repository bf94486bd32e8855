"""A live session: the single writer of one event log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import trio
from attrs import define, field, frozen
from trio.lowlevel import checkpoint, current_task

from ..history.projection import Advance
from ..messages.errors import (
    InvalidJson,
    LiveErrorCode,
    LiveSessionError,
    ReplayError,
    SurfaceError,
    UnsupportedFormat,
)
from ..messages.event import Event, EventDraft
from ..messages.header import SessionHeader
from ..messages.records import SessionTitle
from ..storage.contract import SessionStore
from .drafts import event_of
from .folded_log import FoldedLog
from .mailbox import Mailbox, MailboxClosed, MailboxStatistics, Request
from .prefix import Prefix
from .runtime import Runtime
from .write_behind import Stored, WriteBehind

RANK: Final = 3


@frozen
class Commit(Request[tuple[Event, ...]]):
    """Append drafts to the log, all or none."""

    drafts: tuple[EventDraft, ...]


@frozen
class LiveSessionStatistics:
    """Where a live session stands."""

    length: int
    """Events that are accepted and visible."""
    pending: int
    """Events that a store would lose if the process died now; 0 without a store."""
    window_open: bool
    """Whether a write is on its way by itself."""
    mailbox: MailboxStatistics


@define(eq=False)
class LiveSession:
    """A session that is being written, its log in memory.

    Reads are synchronous views and need no actor: nothing changes between two checkpoints.
    ``commit`` goes through the mailbox, one batch after the other. *Accepted* means visible here
    and lost if the process dies before it is stored; *acknowledged* means covered by a ``flush``,
    or by leaving the session's block, that returned.
    """

    _log: FoldedLog
    _runtime: Runtime
    _announce: Callable[[], None]
    """Told after every commit."""
    base: Stored
    """The stored log that this session was resumed from: no revision, no events for a new one."""
    _writer: WriteBehind | None
    store: SessionStore | None = None
    """The store that the session is written to, whatever is mounted later; ``None`` for none."""
    mailbox: Mailbox = field(init=False)
    _nursery: trio.Nursery | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.mailbox = Mailbox(f"live session {self.id!r}", RANK)

    @property
    def header(self) -> SessionHeader:
        """What the session is; its ``version`` is the format that the log goes on in."""
        return self._log.projection.header

    @property
    def id(self) -> str:
        """The id in the header."""
        return self.header.id

    @property
    def durable(self) -> bool:
        """Whether the session has a write handle; without one it is never stored."""
        return self._writer is not None

    @property
    def length(self) -> int:
        """Events in the log, which is the seq of the next one."""
        return len(self._log.events)

    @property
    def events(self) -> Sequence[Event]:
        """The log as it is now; the view costs O(1) and never grows."""
        return Prefix(self._log.events)

    @property
    def surface(self) -> tuple[int, ...]:
        """The seqs of the current nodes in surface order; costs O(nodes)."""
        return tuple(self._log.projection.surface.nodes())

    @property
    def title(self) -> SessionTitle | None:
        """The newest title of the log."""
        return self._log.projection.title

    @property
    def inherited_event_count(self) -> int:
        """How many leading events came from the session this one was forked from."""
        return self._log.projection.inherited_event_count

    @property
    def stored(self) -> Stored:
        """The newest state of this session that is known to be in the store."""
        return self.base if self._writer is None else self._writer.stored

    def is_stored(self, store: SessionStore | None) -> bool:
        """Whether ``store`` is where this session is written to, and holds some of it."""
        return (
            self.store is not None
            and store is not None
            and self.store.is_same_as(store)
            and self.stored.revision is not None
        )

    async def commit(self, *drafts: EventDraft) -> tuple[Event, ...]:
        """Append the drafts as one batch and return the events. Never waits for the store.

        Raises:
            LiveSessionError: ``INVALID_DRAFT``, naming the draft and what is wrong with it, and the
                log is untouched; ``NOT_LIVE`` when the session is closing.
        """
        try:
            return await self.mailbox.ask(Commit(drafts))
        except MailboxClosed as refusal:
            raise self._not_live() from refusal

    async def flush(self) -> None:
        """Return once everything that was committed before the call is stored durably.

        An empty session becomes visible in its store. Without a store this does nothing.

        Raises:
            LiveSessionError: ``NOT_STORED``, saying how many events are not; they keep their order
                and the next flush tries again. ``NOT_LIVE`` when the session is closing.
        """
        await checkpoint()
        if self.mailbox.closed:
            raise self._not_live()
        if self._writer is not None:
            await self._writer.flush(self.length)

    async def run(self) -> None:
        """Serve commits until the mailbox is closed and drained."""
        self._nursery = current_task().parent_nursery
        self._arm()
        await self.mailbox.serve(self._handle, answers=(LiveSessionError,))

    def close(self, timeout: float) -> None:
        """Take no more commits, and give the store ``timeout`` seconds from now."""
        self.mailbox.close()
        if self._writer is not None:
            self._writer.begin_close(trio.current_time() + timeout)

    async def drain(self) -> None:
        """Store what is left and give up ownership, after ``close``; cancellation is kept out.

        Raises:
            LiveSessionError: ``NOT_STORED``, saying how many events are lost with this session.
        """
        if self._writer is not None:
            await self._writer.drain()

    def statistics(self) -> LiveSessionStatistics:
        """A snapshot for logs, tests and curious people."""
        return LiveSessionStatistics(
            length=self.length,
            pending=0 if self._writer is None else self._writer.pending,
            window_open=self._writer is not None and self._writer.armed,
            mailbox=self.mailbox.statistics(),
        )

    async def _handle(self, request: Commit) -> tuple[Event, ...]:
        advances = self._fold(request.drafts)
        self._log.add(advances)
        if advances:
            self._arm()
            self._announce()
        return tuple(advance.event for advance in advances)

    def _fold(self, drafts: tuple[EventDraft, ...]) -> list[Advance]:
        first, time, index = self.length, self._runtime.now_ms(), 0

        def events() -> Iterator[Event]:
            nonlocal index
            for index, draft in enumerate(drafts):
                yield event_of(draft, first + index, time, self.header.version)

        try:
            return self._log.fold(events())
        except (InvalidJson, SurfaceError, ReplayError, UnsupportedFormat) as error:
            raise LiveSessionError(
                LiveErrorCode.INVALID_DRAFT,
                f"session {self.id!r}: draft {index + 1} of {len(drafts)} is refused "
                f"and nothing was committed: {error}",
            ) from error

    def _arm(self) -> None:
        if self._writer is not None:
            assert self._nursery is not None, "the actor has not started"
            self._writer.arm(self._nursery)

    def _not_live(self) -> LiveSessionError:
        return LiveSessionError(LiveErrorCode.NOT_LIVE, f"session {self.id!r} is closed")
