"""Actors: typed requests, the mailbox that carries them, and the lifetime of who serves it.

A request is queued, then either withdrawn or started, then settled exactly once. A caller who is
cancelled before the start takes its request back and leaves at once; after the start its handler is
cancelled and awaited first, so that nothing runs for a caller who has gone. Every request that was
accepted is answered, refused or told of the crash: nobody waits for a mailbox that has closed.

Deadlock is excluded by rank, not detected: a task that serves a mailbox may ask only mailboxes of a
higher rank, so no chain of asks can lead back to where it began.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, Final, Generic, Protocol, TypeVar

import outcome
import trio
from attrs import define, frozen
from trio.lowlevel import (
    Abort,
    RaiseCancelT,
    Task,
    checkpoint_if_cancelled,
    current_task,
    reschedule,
    wait_task_rescheduled,
)

from ..messages.errors import SessionError
from .nursery import PlainNursery

CAPACITY: Final = 16
"""Requests that wait in a mailbox before the next ``ask`` has to wait for room."""

R = TypeVar("R")

_rank: ContextVar[float] = ContextVar("rank of the served mailbox", default=-math.inf)


class MailboxClosed(SessionError):
    """The actor takes no more requests, or stopped before it answered this one."""


class ActorCrashed(MailboxClosed):
    """The actor stopped because of an error that is no declared reply; the cause is chained."""


class RankViolation(RuntimeError):
    """An actor asked one of its own rank or a lower one: a mistake in the program."""


class Request(Generic[R]):
    """Base class of every message; ``R`` is the type of its reply. Subclasses are frozen values."""

    __slots__ = ()


@frozen
class MailboxStatistics:
    """How busy a mailbox is."""

    capacity: int
    queued: int
    """Requests in the queue, withdrawn ones included until they are skipped."""
    waiting_for_room: int
    """Callers whose request does not fit into the queue yet."""
    servers: int
    """Tasks that serve the mailbox."""
    in_hand: int
    """Requests that were started and are not settled yet."""
    closed: bool


@define(eq=False)
class _Envelope(Generic[R]):
    """One request on its way: queued, then withdrawn or started, then settled once."""

    request: Request[R]
    caller: Task | None = None
    scope: trio.CancelScope | None = None
    """Present once a handler has started."""
    result: outcome.Outcome[R] | None = None
    withdrawn: bool = False

    def settle(self, result: outcome.Outcome[R]) -> None:
        """Give the caller its result; without effect after the first time."""
        if self.result is None and not self.withdrawn:
            self.result = result
            if self.caller is not None:
                reschedule(self.caller)

    async def reply(self) -> R:
        """Wait for the result. On cancellation: withdraw, or stop the handler and await it.

        A value wins over a cancellation that came while the handler ran, as what it stands for has
        happened; the caller's next checkpoint raises. An error gives way to the cancellation.
        """
        raise_cancel: RaiseCancelT | None = None

        def abort(raise_: RaiseCancelT) -> Abort:
            nonlocal raise_cancel
            if self.scope is None:
                self.withdrawn = True
                return Abort.SUCCEEDED
            raise_cancel = raise_
            self.scope.cancel(reason="the caller was cancelled")
            return Abort.FAILED

        if self.result is None:
            self.caller = current_task()
            await wait_task_rescheduled(abort)
        assert self.result is not None
        try:
            return self.result.unwrap()
        except Exception:
            if raise_cancel is not None:
                raise_cancel()
            raise


class Mailbox:
    """The address of one actor: a bounded queue of requests, served by one task or by several."""

    __slots__ = (
        "_failure",
        "_in_hand",
        "_receive",
        "_send",
        "_servers",
        "capacity",
        "name",
        "rank",
    )

    def __init__(self, name: str, rank: int, capacity: int = CAPACITY) -> None:
        self.name: Final = name
        self.rank: Final = rank
        """Place in the order of actors; a task that serves this mailbox asks higher ranks only."""
        self.capacity: Final = capacity
        self._send, self._receive = trio.open_memory_channel[_Envelope[Any]](capacity)
        self._failure: Exception | None = None
        self._servers = 0
        self._in_hand = 0

    async def ask(self, request: Request[R]) -> R:
        """Send ``request`` and return its reply, waiting for room where the queue is full.

        Raises:
            MailboxClosed: the actor has closed; ``ActorCrashed`` with its cause if it crashed.
            RankViolation: the calling task serves a mailbox of this rank or a higher one.
            Exception: a declared error, as the handler raised it.
        """
        if self.rank <= _rank.get():
            raise RankViolation(
                f"{self.name} has rank {self.rank} and was asked from rank {_rank.get()}: "
                "an actor asks higher ranks only"
            )
        await checkpoint_if_cancelled()
        envelope = _Envelope(request)
        try:
            try:
                # One schedule point an ask: waiting for the reply is enough of a checkpoint.
                self._send.send_nowait(envelope)
            except trio.WouldBlock:
                await self._send.send(envelope)
        except (trio.ClosedResourceError, trio.BrokenResourceError):
            raise self.refusal() from self._failure
        return await envelope.reply()

    async def serve(
        self,
        handle: Callable[[Any], Awaitable[object]],
        *,
        answers: tuple[type[Exception], ...] = (),
    ) -> None:
        """Handle one request at a time until the mailbox is closed and drained.

        A pool is several tasks that serve the same mailbox. An exception of a class in ``answers``
        is a reply; any other one is a crash: it leaves this function, closes the mailbox, and every
        caller who still waits is told with the cause.
        """
        token = _rank.set(self.rank)
        self._servers += 1
        try:
            while await self._serve_next(handle, answers):
                pass
        finally:
            self._servers -= 1
            _rank.reset(token)
            self._send.close()
            while self._receive.statistics().current_buffer_used:
                self._refuse(self._receive.receive_nowait())
            self._receive.close()

    async def _serve_next(
        self, handle: Callable[[Any], Awaitable[object]], answers: tuple[type[Exception], ...]
    ) -> bool:
        """Handle the next request; false once the mailbox is closed and drained."""
        try:
            envelope = await self._receive.receive()
        except (trio.EndOfChannel, trio.ClosedResourceError):
            return False
        if envelope.withdrawn:
            return True
        self._in_hand += 1
        try:
            with trio.CancelScope() as envelope.scope:
                try:
                    envelope.settle(outcome.Value(await handle(envelope.request)))
                except answers as error:
                    envelope.settle(outcome.Error(error))
        except Exception as failure:
            self._failure = self._failure or failure
            raise
        finally:
            self._in_hand -= 1
            self._refuse(envelope)  # no effect where it was settled above
        return True

    def _refuse(self, envelope: _Envelope[Any]) -> None:
        if envelope.result is not None:
            return
        envelope.settle(outcome.Error(self.refusal()))

    def refusal(self) -> MailboxClosed:
        """What ``ask`` raises once the mailbox is closed, with its cause."""
        if self._failure is None:
            return MailboxClosed(f"{self.name} is closed")
        refusal = ActorCrashed(f"{self.name} crashed: {self._failure!r}")
        refusal.__cause__ = self._failure
        return refusal

    def close(self) -> None:
        """Take no more requests; the queued ones are still handled. Again is harmless."""
        self._send.close()

    def crash(self, failure: Exception) -> None:
        """Close because a task of the actor beside those that serve has failed; callers are told.

        The failure itself is for that task to raise.
        """
        self._failure = failure
        self.close()

    @property
    def closed(self) -> bool:
        """Whether ``ask`` is refused."""
        return self._receive.statistics().open_send_channels == 0

    @property
    def crashed(self) -> bool:
        """Whether it closed because its actor failed."""
        return self._failure is not None

    def statistics(self) -> MailboxStatistics:
        """A snapshot for logs, tests and curious people."""
        queue = self._receive.statistics()
        return MailboxStatistics(
            capacity=self.capacity,
            queued=queue.current_buffer_used,
            waiting_for_room=queue.tasks_waiting_send,
            servers=self._servers,
            in_hand=self._in_hand,
            closed=self.closed,
        )


class Actor(Protocol):
    """Something that is reached by a mailbox and serves it while it runs."""

    @property
    def mailbox(self) -> Mailbox: ...

    async def run(self) -> None:
        """Serve the mailbox until it is closed and drained."""


A = TypeVar("A", bound=Actor)


@asynccontextmanager
async def running(actor: A) -> AsyncIterator[A]:
    """Run ``actor`` for the length of the block; leaving closes its mailbox and drains it first.

    A crash of the actor cancels the block and leaves it bare. Nest these blocks with what is
    depended on outermost: shutdown then goes from the callers to the called.
    """
    async with PlainNursery() as nursery:
        nursery.start_soon(actor.run, name=actor.mailbox.name)
        try:
            yield actor
        finally:
            actor.mailbox.close()
