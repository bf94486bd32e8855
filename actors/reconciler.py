"""The index reconciler: the one writer of the search index, and who opens views on it.

A *pass* makes the index agree with the live sessions as they were when it began and with the store
as it was observed afterwards. One pass serves every search that was waiting when it began: each
joins the next pass and then opens its view. A waiter leaves at once while others wait; the last one
cancels the pass and, where it has begun, awaits it. Finished slices stay.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias, assert_never

import trio
from attrs import define, field, frozen

from ..history.request import SearchRequest
from ..messages.config import IndexConfig, QueryConfig
from ..messages.errors import SessionQueryError
from ..messages.records import Progress, SessionTitle, Skipped
from ..storage.index import SearchIndex
from ..storage.index_view import Ranking, Reader, View
from .binding import StoreBinding
from .lane import WriterLane
from .mailbox import Mailbox, Request
from .nursery import PlainNursery
from .reader_pool import LogReaderPool
from .reconciliation import Reconciliation, observe
from .registry import Sessions
from .runtime import Runtime
from .watch import Watch

RANK: Final = 1

SPARE_SERVERS: Final = 4
"""Requests beyond one of each search that the reconciler can have in hand."""

MOVABLE_EVENTS: Final = 512
"""Stored events of a live session that stay in memory before they are moved to the file."""

_log = logging.getLogger(__name__)

Titles: TypeAlias = dict[str, tuple[str, SessionTitle | None]]


@frozen
class OpenView(Request[View]):
    """Bring the index up to date and fix what a page is made from, pinning ``reader`` to it."""

    reader: Reader
    request: SearchRequest
    ranking: Ranking | None


@frozen
class OpenReader(Request[Reader]):
    """Open the index if need be, and a reader of it."""


@frozen
class Refresh(Request[int]):
    """Bring the index up to date; the reply is its generation."""

    progress: Callable[[Progress], None] | None


@frozen
class ReadTitles(Request[Titles]):
    """The titles that the index has, with the revisions they belong to."""

    session_ids: tuple[str, ...]


ReconcilerRequest: TypeAlias = OpenView | OpenReader | Refresh | ReadTitles


@define(eq=False)
class Pass:
    """One reconciliation and who waits for it."""

    scope: trio.CancelScope = field(factory=trio.CancelScope)
    settled: trio.Event = field(factory=trio.Event)
    waiters: int = 0
    begun: bool = False
    completed: bool = False
    error: SessionQueryError | None = None
    listeners: list[Callable[[Progress], None]] = field(factory=list)

    def report(self, progress: Progress) -> None:
        """Tell everyone who asked how far the pass has come."""
        for listener in list(self.listeners):
            try:
                listener(progress)
            except Exception:
                _log.exception("a progress callback failed and is not called again")
                self.listeners.remove(listener)


class IndexReconciler:
    """See the module's text. ``run`` serves the mailbox and runs the passes."""

    def __init__(
        self,
        index_config: IndexConfig,
        config: QueryConfig,
        sessions: Sessions,
        binding: StoreBinding,
        pool: LogReaderPool,
        runtime: Runtime,
    ) -> None:
        self.mailbox = Mailbox("index reconciler", RANK)
        self.generations = Watch()
        """The generation of the index as of the end of the last pass."""
        self.instance: Final = runtime.new_id()
        """What cursors of this service are bound to."""
        self._index_config = index_config
        self._config = config
        self._sessions = sessions
        self._binding = binding
        self._pool = pool
        self._runtime = runtime
        self._lane: WriterLane | None = None
        self._opening = trio.Lock()
        self._showing = trio.Lock()
        """Held while live sessions are brought to one instant, so that no view sees two."""
        self._next: Pass | None = None
        self._wanted = trio.Event()
        self._epoch: int | None = None
        self._skipped: tuple[Skipped, ...] = ()

    # -- what others call ---------------------------------------------------------------------

    async def open_view(
        self, reader: Reader, request: SearchRequest, ranking: Ranking | None
    ) -> View:
        """A view at least as fresh as this call. ``give_back`` the reader, whatever happens.

        Raises:
            SessionQueryError: the pass failed, or the view cannot be opened.
        """
        return await self.mailbox.ask(OpenView(reader, request, ranking))

    async def open_reader(self) -> Reader:
        """A reader of the index, which is opened for it; its owner closes it."""
        return await self.mailbox.ask(OpenReader())

    async def refresh(self, progress: Callable[[Progress], None] | None = None) -> int:
        """Run a pass that begins after this call, and return the generation behind it."""
        return await self.mailbox.ask(Refresh(progress))

    async def titles(self, session_ids: tuple[str, ...]) -> Titles:
        """Titles that the index has, without bringing it up to date."""
        return await self.mailbox.ask(ReadTitles(session_ids))

    def give_back(self, reader: Reader) -> None:
        """Let go of a view."""
        if self._lane is not None:
            self._lane.give_back(reader)

    # -- serving ------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve the mailbox and run passes until the mailbox is closed and drained."""
        try:
            async with PlainNursery() as passes:
                passes.start_soon(self._run_passes, name="reconciler passes")
                async with PlainNursery() as servers:
                    for number in range(self._config.search_concurrency + SPARE_SERVERS):
                        servers.start_soon(self._serve, name=f"reconciler {number}")
                passes.cancel_scope.cancel(reason="the reconciler has closed")
        finally:
            if self._lane is not None:
                with trio.CancelScope(shield=True):
                    await self._runtime.call(self._lane.index.close)

    async def open(self) -> WriterLane:
        """The lane of the index, which is opened where it is not open yet."""
        async with self._opening:
            if self._lane is None:
                index = await self._runtime.call(
                    SearchIndex, self._index_config, self._config.extract
                )
                self._lane = WriterLane(index, self._runtime)
                self.generations.publish(index.generation)
            return self._lane

    async def _serve(self) -> None:
        await self.mailbox.serve(self._handle, answers=(SessionQueryError,))

    async def _handle(self, request: ReconcilerRequest) -> object:
        match request:
            case OpenView():
                return await self._open_view(request)
            case OpenReader():
                lane = await self.open()
                return await self._runtime.call(lane.index.open_reader)
            case Refresh(progress):
                await self._fresh(progress)
                return self.generations.value
            case ReadTitles(session_ids):
                if self._lane is None:
                    return {}
                return await self._lane.call(self._lane.index.titles, session_ids)
        assert_never(request)

    async def _open_view(self, request: OpenView) -> View:
        await self._fresh(None)
        lane = await self.open()
        open_view = partial(self._view, lane.index, request)
        async with self._showing:
            if lane.index.has_snapshots:
                return await lane.call(open_view)
            return await lane.lend(request.reader, open_view)

    def _view(self, index: SearchIndex, request: OpenView) -> View:
        return index.open_view(
            request.reader,
            request.request,
            instance=self.instance,
            epoch=self._epoch or 0,
            store_bound=self._binding.store is not None,
            ranking=request.ranking,
            skipped=self._skipped,
        )

    # -- passes -------------------------------------------------------------------------------

    async def _fresh(self, progress: Callable[[Progress], None] | None) -> None:
        """Return after a pass that began after this call."""
        while True:
            joined = self._join()
            if progress is not None:
                joined.listeners.append(progress)
            joined.waiters += 1
            try:
                await joined.settled.wait()
            except trio.Cancelled:
                joined.waiters -= 1
                await self._leave(joined)
                raise
            joined.waiters -= 1
            if joined.error is not None:
                raise joined.error
            if joined.completed:
                return

    def _join(self) -> Pass:
        if self._next is None:
            self._next = Pass()
            self._wanted.set()
        return self._next

    async def _leave(self, joined: Pass) -> None:
        """Cancel a pass that nobody waits for; await it where it has begun."""
        if joined.waiters:
            return
        joined.scope.cancel(reason="nobody waits for this pass")
        if joined.begun:
            with trio.CancelScope(shield=True):
                await joined.settled.wait()
        elif self._next is joined:
            self._next = None
            self._wanted = trio.Event()

    async def _run_passes(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            current, self._next = self._next, None
            if current is not None:
                await self._run_pass(current)
            await self._tidy()

    async def _run_pass(self, current: Pass) -> None:
        current.begun = True
        try:
            with current.scope:
                await self._reconcile(current)
                current.completed = True
        except SessionQueryError as error:
            current.error = error
        finally:
            current.settled.set()

    async def _reconcile(self, current: Pass) -> None:
        lane = await self.open()
        index = lane.index
        try:
            observation = await observe(self._sessions, self._binding, self._pool)
            if self._epoch is not None and self._epoch != observation.epoch:
                await lane.call(index.rebind)
            self._epoch = observation.epoch
            steps = Reconciliation(
                index,
                lane,
                self._pool,
                self._config,
                observation,
                self._showing,
                current.report,
            )
            self._skipped = await steps.run()
        finally:
            self.generations.publish(index.generation)

    async def _tidy(self) -> None:
        """Do upkeep in small pieces until a pass is wanted."""
        lane = self._lane
        try:
            while lane is not None and self._next is None:
                if not await lane.call(lane.index.tidy, MOVABLE_EVENTS):
                    break
        except SessionQueryError as error:
            _log.warning("upkeep of the index failed and is left for later: %s", error)
