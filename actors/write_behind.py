"""Write-behind: how the events of one live session reach its store.

The first event after idle opens a window; what is committed within it is written together. A
failed write keeps every event in its place, and nothing is tried again until the next commit opens
a window or a flush asks. There is one append at a time, in log order, whoever asked for it.

Waiting for a store ends when the session has to close, also where the store hangs. The visit is
then abandoned, and its worker closes the handle when the store has let go of it: ownership is given
up late rather than beneath a write that may still happen.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Final, TypeVar, TypeVarTuple

import trio
from attrs import define, field, frozen
from trio.lowlevel import checkpoint_if_cancelled

from ..messages.errors import LiveErrorCode, LiveSessionError
from ..messages.event import Event
from ..storage.contract import StoreFailed, WriteHandle
from .runtime import Runtime, nothing

WINDOW_SECONDS: Final = 0.2
"""How long a first event waits for others to be written with it."""

BATCH_EVENTS: Final = 2_000
"""Events in one append."""

RELEASE_SECONDS: Final = 1.0
"""How long a closing session waits for its handle where the drain has used up the time."""

R = TypeVar("R")
Ts = TypeVarTuple("Ts")

_log = logging.getLogger(__name__)


@frozen
class Stored:
    """A state of a stored log."""

    revision: str | None
    """As the store returned it; ``None`` where nothing was stored yet."""
    length: int
    """Events."""


@define(eq=False)
class WriteBehind:
    """The store side of one live session: its write handle and what is not written yet."""

    _session_id: str
    _handle: WriteHandle
    _events: list[Event]
    """The session's log itself; this side reads it and remembers how far it is stored."""
    _runtime: Runtime
    _limiter: trio.CapacityLimiter
    """Shared by all sessions of a service: how many write at the same time."""
    stored: Stored
    _lock: trio.Lock = field(factory=trio.Lock, init=False)
    _window: trio.CancelScope | None = field(default=None, init=False)
    """Present while the window task exists."""
    _visit: trio.CancelScope | None = field(default=None, init=False)
    """The newest visit to the store."""
    _abandoned: bool = field(default=False, init=False)
    """Whether a worker is left to close the handle."""
    _deadline: float = field(default=math.inf, init=False)
    """On Trio's clock: when waiting for the store ends."""

    @property
    def pending(self) -> int:
        """Events that are not stored."""
        return len(self._events) - self.stored.length

    @property
    def armed(self) -> bool:
        """Whether a window is open or its batch is being written."""
        return self._window is not None

    def arm(self, nursery: trio.Nursery) -> None:
        """Open a window, unless one is open, nothing is to be written, or the drain will do it."""
        if self._window is None and self.pending and self._deadline == math.inf:
            self._window = trio.CancelScope()
            nursery.start_soon(self._write_windows, self._window, name="write-behind")

    async def _write_windows(self, window: trio.CancelScope) -> None:
        with window:
            while self.pending:
                await trio.sleep(WINDOW_SECONDS)
                try:
                    await self.flush(len(self._events))
                except LiveSessionError as error:
                    _log.warning("%s; the next commit or flush tries again", error)
                    break
        self._window = None

    async def flush(self, length: int) -> None:
        """Return once the first ``length`` events are durable, an empty log included.

        Raises:
            LiveSessionError: ``NOT_STORED``; every event keeps its place.
        """
        try:
            async with self._lock:
                while self.stored.length < length:
                    await self._append()
                if self.stored.revision is None:
                    revision = await self._visit_store(self._handle.flush)
                    self.stored = Stored(revision, self.stored.length)
        except Exception as error:
            await checkpoint_if_cancelled()
            raise self._not_stored(error) from error

    async def _append(self) -> None:
        start = self.stored.length
        batch = tuple(self._events[start : start + BATCH_EVENTS])
        revision = await self._visit_store(self._handle.append, batch)
        self.stored = Stored(revision, start + len(batch))

    async def _visit_store(self, fn: Callable[[*Ts], R], *args: *Ts) -> R:
        """Call the store; what has started is awaited until the deadline of the close."""
        with trio.CancelScope(deadline=self._deadline) as self._visit:
            async with self._limiter:
                self._visit.shield = True
                return await self._runtime.call_or_abandon(fn, *args, afterwards=self._close_handle)
        self._abandoned |= self._visit.shield
        raise StoreFailed("the store did not answer before the session had to close")

    def _close_handle(self) -> None:
        """Give up ownership; runs on a worker thread."""
        try:
            self._handle.close()
        except Exception as error:
            _log.warning("session %r: its handle did not close: %s", self._session_id, error)

    def _not_stored(self, error: Exception) -> LiveSessionError:
        return LiveSessionError(
            LiveErrorCode.NOT_STORED,
            f"session {self._session_id!r}: {self.pending} of {len(self._events)} events "
            f"are not stored: {error}",
        )

    def begin_close(self, deadline: float) -> None:
        """Close the window and bound what is under way; the drain writes the rest."""
        self._deadline = deadline
        if self._visit is not None:
            self._visit.deadline = deadline
        if self._window is not None:
            self._window.cancel(reason="the session closes")

    async def drain(self) -> None:
        """Write what is pending, then give the handle back in any case. Cancellation is kept out.

        Raises:
            LiveSessionError: ``NOT_STORED``, saying how many events are lost with this session.
        """
        with trio.CancelScope(shield=True):
            try:
                if self.pending:
                    await self.flush(len(self._events))
            finally:
                async with self._lock:  # a flush that began before the close may have the handle
                    await self._release()

    async def _release(self) -> None:
        if not self._abandoned:
            patience = max(self._deadline, trio.current_time() + RELEASE_SECONDS)
            with trio.CancelScope(deadline=patience):
                await self._runtime.call_or_abandon(self._close_handle, afterwards=nothing)
