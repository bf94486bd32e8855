"""The reader pool: a bounded number of worker threads that look at stored sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final, Generic, TypeAlias, TypeVar, TypeVarTuple, assert_never

from attrs import define, field, frozen
from trio.lowlevel import checkpoint, checkpoint_if_cancelled

from ..messages.config import identity
from ..storage.contract import (
    NotFound,
    SessionStore,
    Snapshot,
    StoredLog,
    StoreError,
    Sweep,
)
from ..storage.large_records import Turn
from .binding import Mounted, StoreBinding
from .mailbox import Mailbox, MailboxClosed, RankViolation, Request
from .nursery import PlainNursery
from .runtime import Runtime

RANK: Final = 2

R = TypeVar("R")
Ts = TypeVarTuple("Ts")


@frozen
class Project(Request[R], Generic[R]):
    """Read one whole stored log and fold it."""

    store: SessionStore | None
    session_id: str
    fold: Callable[[StoredLog], R]


@frozen
class Visit(Request[R], Generic[R]):
    """Do one bounded piece of reading on a worker thread."""

    store: SessionStore | None
    work: Callable[[SessionStore], R]


@frozen
class SweepStore(Request[Sweep]):
    """Look at every stored session."""

    store: SessionStore | None


@frozen
class StatSession(Request["Snapshot | None"]):
    """Look at one stored session."""

    store: SessionStore | None
    session_id: str


PoolRequest: TypeAlias = Project[Any] | Visit[Any] | SweepStore | StatSession


@define(eq=False)
class LogReaderPool:
    """Worker threads over one mailbox; a request reads the store that was bound when it was made.

    What belongs together and takes several requests names what was ``mounted`` as it began.

    A worker folds a finished log to its small projection before it takes the next one, so that at
    most ``workers`` whole logs are in memory, and one of them with large records. A request that is
    cancelled in the queue never starts; one that has started is awaited, then its caller gets its
    own bare ``Cancelled``, never a late value.

    Whatever a store or a fold raises is the reply to that request alone: the pool has no state that
    an error could spoil. Every method raises ``MailboxClosed`` after the pool has closed. With no
    store bound the corpus is empty.
    """

    binding: StoreBinding
    runtime: Runtime
    workers: int
    mailbox: Mailbox = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.mailbox = Mailbox("log reader pool", RANK)

    async def run(self) -> None:
        """Serve the mailbox with all workers until it is closed and drained."""
        async with PlainNursery() as nursery:
            for number in range(self.workers):
                nursery.start_soon(self._work, name=f"log reader {number}")

    async def read_log(self, session_id: str) -> StoredLog:
        """The whole stored log.

        Raises:
            NotFound, CorruptLog, UnsupportedLog, StoreFailed
        """
        return await self.project(session_id, identity)

    async def project(
        self, session_id: str, fold: Callable[[StoredLog], R], mounted: Mounted | None = None
    ) -> R:
        """``fold`` of a whole stored log, made on the worker thread; errors as in ``read_log``."""
        return await self._ask(Project(self._store(mounted), session_id, fold))

    async def visit(self, work: Callable[[SessionStore], R], mounted: Mounted | None = None) -> R:
        """The result of ``work``, made on the worker thread with the store.

        Raises:
            NotFound: no store is bound.
        """
        return await self._ask(Visit(self._store(mounted), work))

    async def sweep(self, mounted: Mounted | None = None) -> Sweep:
        """One observation of the whole store; ``StoreFailed`` where its root cannot be read."""
        return await self._ask(SweepStore(self._store(mounted)))

    async def stat(self, session_id: str) -> Snapshot | None:
        """The stored header and revision of one session, or ``None``."""
        return await self._ask(StatSession(self._store(), session_id))

    async def project_many(
        self,
        session_ids: Iterable[str],
        fold: Callable[[StoredLog], R],
        mounted: Mounted | None = None,
        *,
        concurrency: int | None = None,
    ) -> dict[str, R | Exception]:
        """``fold`` of each stored log, or the error of that id alone, by first occurrence.

        At most ``concurrency`` requests are under way (all workers by default); one that leaves a
        worker free lets an exact read in after one log at most.
        """
        mounted = mounted or self.binding.mounted
        ids = list(dict.fromkeys(session_ids))
        pending = iter(ids)
        results: dict[str, R | Exception] = {}
        refusals: list[Exception] = []

        async def take_turns() -> None:
            for session_id in pending:
                try:
                    results[session_id] = await self.project(session_id, fold, mounted)
                except (MailboxClosed, RankViolation) as refusal:
                    refusals.append(refusal)
                    return
                except Exception as error:
                    results[session_id] = error

        await checkpoint()
        async with PlainNursery() as nursery:
            for _ in range(min(concurrency or self.workers, len(ids))):
                nursery.start_soon(take_turns)
        if refusals:
            raise refusals[0]
        return {session_id: results[session_id] for session_id in ids}

    def _store(self, mounted: Mounted | None = None) -> SessionStore | None:
        return self.binding.store if mounted is None else mounted.store

    async def _ask(self, request: Request[R]) -> R:
        reply = await self.mailbox.ask(request)
        await checkpoint_if_cancelled()
        return reply

    async def _work(self) -> None:
        await self.mailbox.serve(self._handle, answers=(Exception,))

    async def _handle(self, request: PoolRequest) -> object:
        store = request.store
        if store is None:
            return _without_store(request)
        match request:
            case Project(_, session_id, fold):
                return await self._call(_project, store, session_id, fold)
            case Visit(_, work):
                return await self._call(work, store)
            case SweepStore():
                return await self._call(store.sweep)
            case StatSession(_, session_id):
                return await self.runtime.call(store.stat, session_id)
        assert_never(request)

    async def _call(self, fn: Callable[[*Ts], R], *args: *Ts) -> R:
        turn = Turn()
        return await self.runtime.call(turn.doing(fn), *args, interrupt=turn.give_up)


def _project(store: SessionStore, session_id: str, fold: Callable[[StoredLog], R]) -> R:
    handle = store.open(session_id, "read")
    try:
        log = handle.read_log()
    finally:
        # What was read is good, and what a failed read says matters more.
        with suppress(StoreError):
            handle.close()
    return fold(log)


def _without_store(request: PoolRequest) -> Sweep | None:
    match request:
        case SweepStore():
            return Sweep(())
        case StatSession():
            return None
        case Project(_, session_id):
            raise NotFound(f"session {session_id!r} is not stored: no store is mounted")
        case Visit():
            raise NotFound("no store is mounted")
    assert_never(request)
