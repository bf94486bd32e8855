"""The index reconciler: the one writer of the search index, and who opens views on it.

A *pass* makes the index agree with the live sessions as they were when it began and with the store
as it was observed afterwards. One pass serves every search that was waiting when it began: each
joins the next pass and then opens its view. A waiter leaves at once while others wait; the last one
cancels the pass and, where it has begun, awaits it. Finished slices stay. Where a pass would do
nothing there is none, and where it would follow a few commits and no more, a search follows them
itself.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final, TypeAlias, TypeVar, TypeVarTuple, assert_never

import trio
from attrs import define, evolve, field, frozen

from ..history.request import SearchRequest, in_stored_workspaces
from ..messages.config import IndexConfig, QueryConfig, identity
from ..messages.errors import SessionQueryError
from ..messages.records import IndexStatus, Progress, SessionTitle, Skipped
from ..storage.contract import SessionStore
from ..storage.index import SearchIndex
from ..storage.index_file import IndexDamaged, index_failed
from ..storage.index_view import Overtaken, Ranking, Reader, View
from .holding import holding
from .inventory import Inventory
from .lane import WriterLane
from .log_keeper import LogKeeper
from .mailbox import Mailbox, MailboxClosed, Request
from .news import GenerationNews
from .nursery import PlainNursery
from .reader_pool import LogReaderPool
from .reconciliation import Agreement, Gains, Observation, Reconciliation, observe, small_gains
from .registry import Sessions
from .runtime import Runtime, nothing

RANK: Final = 1

UNKEPT_EVENTS: Final = 16
"""Events that searches follow by themselves before upkeep is thought of."""

SERVERS: Final = 8
"""Requests that the reconciler can have in hand."""

MOVABLE_EVENTS: Final = 512
"""Stored events of a live session that stay in memory before they are moved to the file."""

QUIET_SECONDS: Final = 0.2
"""How long nobody must have searched behind a change before upkeep begins."""

RETRY_SECONDS: Final = 0.02
"""Between two attempts at what another reader or process is in the way of."""

PATIENCE_SECONDS: Final = 10.0
"""How long such a thing is attempted."""

R = TypeVar("R")
Ts = TypeVarTuple("Ts")

_log = logging.getLogger(__name__)

Titles: TypeAlias = dict[str, tuple[str, SessionTitle | None]]


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
    store: SessionStore | None


@frozen
class ChangedSince(Request[tuple[str, ...]]):
    """The sessions that changed after a generation, without bringing the index up to date."""

    generation: int


@frozen
class Rebuild(Request[None]):
    """Empty the index, so that the next pass builds it anew; purged sessions are let in again."""


@frozen
class Mend(Request[None]):
    """Empty an index that was found damaged, if it still is of this incarnation."""

    incarnation: int
    damage: IndexDamaged


@frozen
class Purge(Request[bool]):
    """Remove a session from the index so that no byte of it is left, and keep it out.

    The reply tells whether the index had it.
    """

    session_id: str


@frozen
class ReadStatus(Request[IndexStatus]):
    """What the index holds."""


ReconcilerRequest: TypeAlias = (
    OpenReader | Refresh | ReadTitles | ChangedSince | Rebuild | Mend | Purge | ReadStatus
)


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
        inventory: Inventory,
        pool: LogReaderPool,
        runtime: Runtime,
    ) -> None:
        self.mailbox = Mailbox("index reconciler", RANK)
        self.news = GenerationNews(sessions.commits)
        self.generations = self.news.generations
        """The generation of the index as of the last pass, or search that followed commits."""
        self.instance: Final = runtime.new_id()
        """What cursors of this service are bound to."""
        self._index_config = index_config
        self._config = config
        self._sessions = sessions
        self._binding = pool.binding
        self._inventory = inventory
        self._pool = pool
        self._runtime = runtime
        self._lane: WriterLane | None = None
        self._opening = trio.Lock()
        self._showing = trio.Lock()
        """Held while live sessions are brought to one instant, so that no view sees two."""
        self._changing = trio.CapacityLimiter(1)
        """Held by whoever changes what the index holds: a pass, upkeep, a purge, a rebuild."""
        self._next: Pass | None = None
        self._wanted = trio.Event()
        self._unkept = 0
        """Events that were followed since upkeep was last thought of."""
        self._upkeep = trio.CancelScope()
        """Of the upkeep that is done while no pass is wanted."""
        self._log_keeper = LogKeeper(runtime, self._mend)
        self._epoch: int | None = None
        self._store_bound = False
        """Whether the last pass had a store."""
        self._skipped: tuple[Skipped, ...] = ()
        self._agreement: Agreement | None = None
        self._agreed_incarnation = -1
        """Which of the indexes a pass has made to agree with its sources last."""

    # -- what others call ---------------------------------------------------------------------

    async def show(
        self,
        reader: Reader,
        request: SearchRequest,
        ranking: Ranking | None,
        read: Callable[[View], R],
    ) -> R:
        """What ``read`` makes of a view that is at least as fresh as this call.

        The view is opened and read in one visit of a worker thread, for the task that asks: a
        round by the mailbox would cost as much. ``give_back`` the reader, whatever happens.

        Raises:
            SessionQueryError: the pass failed, or the view cannot be opened or read.
            MailboxClosed: the reconciler has crashed.
        """
        while True:
            open_view = partial(self._view, reader, request, ranking)
            lane = self._lane
            gains = self._small_gains(lane) if lane is not None else None
            try:
                if lane is not None and gains is not None:
                    return await self._follow_and_show(lane, gains, reader, open_view, read)
                await self._fresh(None)
                lane = await self.open()
                # Whoever brings live sessions to one instant is not between two slices then.
                async with holding(self._showing):
                    await lane.take(reader)
                return await lane.show(reader, partial(open_view, lane.index), read, nothing)
            except Overtaken:
                # The next pass needs the lane, which the reader may hold.
                self.give_back(reader)
                # Whatever seemed to agree, only a pass finds out what the index is like now.
                self._disagree()

    async def open_reader(self) -> Reader:
        """A reader of the index, which is opened for it; its owner closes it."""
        return await self.mailbox.ask(OpenReader())

    async def refresh(self, progress: Callable[[Progress], None] | None = None) -> int:
        """Run a pass that begins after this call, and return the generation behind it."""
        return await self.mailbox.ask(Refresh(progress))

    async def titles(self, session_ids: tuple[str, ...], store: SessionStore | None) -> Titles:
        """Titles that the index has of logs of ``store``, without bringing it up to date."""
        return await self.mailbox.ask(ReadTitles(session_ids, store))

    async def changed_since(self, generation: int) -> tuple[str, ...]:
        """Ids of the sessions that changed after a generation, without bringing it up to date."""
        return await self.mailbox.ask(ChangedSince(generation))

    async def rebuild(self) -> None:
        """Empty the index; the next pass builds it anew and lets purged sessions in again."""
        await self.mailbox.ask(Rebuild())

    async def mend(self, incarnation: int, damage: IndexDamaged) -> None:
        """Empty a damaged index, if it still is of this incarnation; purged sessions stay out."""
        await self.mailbox.ask(Mend(incarnation, damage))

    async def purge(self, session_id: str) -> bool:
        """Remove a session, leaving no byte of it, and keep it out; whether the index had it."""
        return await self.mailbox.ask(Purge(session_id))

    async def status(self) -> IndexStatus:
        """What the index holds, which is opened for it."""
        return await self.mailbox.ask(ReadStatus())

    @property
    def incarnation(self) -> int:
        """Which of the indexes that this service began is the present one."""
        return self._lane.index.incarnation if self._lane is not None else 0

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
                passes.start_soon(self._keep_log, name="reconciler log")
                refresh = partial(self._fresh, None)
                passes.start_soon(self.news.run, refresh, name="reconciler news")
                passes.start_soon(
                    self.news.run_beside, self._unseen, refresh, name="reconciler store news"
                )
                async with PlainNursery() as servers:
                    for number in range(SERVERS):
                        servers.start_soon(self._serve, name=f"reconciler {number}")
                passes.cancel_scope.cancel(reason="the reconciler has closed")
        finally:
            self.generations.close()
            if self._lane is not None:
                # Searches that are cancelled together with it may still use the connection.
                with trio.CancelScope(shield=True):
                    await self._lane.close()

    async def open(self) -> WriterLane:
        """The lane of the index, which is opened where it is not open yet."""
        if self._lane is not None:
            return self._lane
        async with self._opening:
            if self._lane is None:
                index = await self._runtime.call(
                    SearchIndex, self._index_config, self._config.extract
                )
                self._lane = WriterLane(index, self._runtime)
                self.generations.publish(index.generation)
                self.news.opened.set()
            return self._lane

    async def _serve(self) -> None:
        await self.mailbox.serve(self._handle, answers=(SessionQueryError, MailboxClosed))

    async def _handle(self, request: ReconcilerRequest) -> object:
        match request:
            case OpenReader():
                lane = await self.open()
                return await self._runtime.call(lane.index.open_reader)
            case Refresh(progress):
                await self._fresh(progress)
                return self.generations.value
            case ReadTitles(session_ids, store):
                return await self._titles(session_ids, store)
            case ChangedSince(generation):
                if self._lane is None:
                    return ()
                return await self._lane.call(_changed_since, self._lane.index, generation)
            case Rebuild():
                await self._rebuild()
                return None
            case Mend(incarnation, damage):
                await self._mend(incarnation, damage)
                return None
            case Purge(session_id):
                return await self._purge(session_id)
            case ReadStatus():
                lane = await self.open()
                return await lane.call(lane.index.status)
        assert_never(request)

    def _small_gains(self, lane: WriterLane) -> Gains | None:
        """What live sessions have gained, where that alone is new, and so little that no pass is
        worth waiting for; ``None`` otherwise."""
        agreed = self._agreement
        if (
            agreed is None
            or agreed.commits == self._sessions.commits.value
            or self._next is not None
            or not self._agrees_but_for_commits()
            or lane.index.log.is_held
        ):
            return None
        return small_gains(self._sessions, agreed, lane.index.live)

    async def _follow_and_show(
        self,
        lane: WriterLane,
        gains: Gains,
        reader: Reader,
        open_view: Callable[[SearchIndex], View],
        read: Callable[[View], R],
    ) -> R:
        """Do what a pass would, in the visit of the thread that opens the view."""
        index, followed, released = lane.index, False, False

        def follow_and_open() -> View:
            nonlocal followed
            while index.follow(gains.snapshots):
                pass
            followed = True
            return open_view(index)

        def opened() -> None:
            nonlocal released
            if followed:
                self._remember(lane, gains)
            released = True
            self._changing.release_on_behalf_of(reader)

        self._changing.acquire_on_behalf_of_nowait(reader)
        try:
            await lane.take(reader)
            return await lane.show(reader, follow_and_open, read, opened)
        finally:
            if not released:
                # It was cancelled before it had begun.
                self._changing.release_on_behalf_of(reader)

    def _remember(self, lane: WriterLane, gains: Gains) -> None:
        """Know what the index has been made to agree with, without a pass."""
        assert self._agreement is not None
        self._agreement = evolve(
            self._agreement, generation=lane.index.generation, commits=gains.commits
        )
        self.news.cover(gains.commits)
        self.generations.publish(lane.index.generation)
        self._log_keeper.mind(lane.index)
        self._unkept += gains.events
        if self._unkept >= UNKEPT_EVENTS:
            # Wakes who runs passes, and so the upkeep behind them.
            self._wanted.set()

    async def _titles(self, session_ids: tuple[str, ...], store: SessionStore | None) -> Titles:
        if self._lane is None:
            return {}
        incarnation = self.incarnation
        try:
            return await self._lane.call(self._lane.index.titles, session_ids, store)
        except IndexDamaged as damage:
            await self._mend(incarnation, damage)
            return {}

    # -- remaking -----------------------------------------------------------------------------

    async def _rebuild(self) -> None:
        async with self._changing:
            lane = await self.open()
            async with self._turn(lane):
                await self._renew(lane, lane.index.rebuild)
                await _until(partial(lane.call, lane.index.scrub), "built anew")

    async def _mend(self, incarnation: int, damage: IndexDamaged) -> None:
        async with self._changing:
            lane = await self.open()
            async with self._turn(lane):
                with suppress(IndexDamaged):
                    await self._catch_up(lane)
                if incarnation == lane.index.incarnation:
                    await self._replace(lane, damage)

    async def _replace(self, lane: WriterLane, damage: IndexDamaged) -> None:
        """Begin a damaged index anew. What was purged stays out."""
        _log.warning("the search index is damaged and is built anew: %s", damage)
        await self._renew(lane, lane.index.mend)

    async def _renew(self, lane: WriterLane, begin_anew: Callable[[], bool]) -> None:
        """Begin the index anew, as soon as no reader is in the way."""
        self._agreement = None
        await _until(partial(lane.call_whole, begin_anew), "built anew")
        self.generations.publish(lane.index.generation)

    async def _purge(self, session_id: str) -> bool:
        async with self._changing:
            if self._sessions.get(session_id) is not None:
                raise index_failed(
                    f"session {session_id!r} is live: let it end before it is purged from the index"
                )
            lane = await self.open()
            async with self._turn(lane):
                return await self._mended(lane, partial(self._remove, lane, session_id))

    async def _remove(self, lane: WriterLane, session_id: str) -> bool:
        index = lane.index
        held = await lane.call(index.purge, session_id)
        self.generations.publish(index.generation)
        while await lane.call(index.purge_on):
            pass
        await _until(partial(lane.call, index.scrub), "purged")
        return held

    async def _mended(self, lane: WriterLane, change: Callable[[], Awaitable[R]]) -> R:
        """Change the index in this process's turn; once more where it is found damaged."""
        try:
            await self._catch_up(lane)
            return await change()
        except IndexDamaged as damage:
            await self._replace(lane, damage)
            return await change()

    @asynccontextmanager
    async def _turn(self, lane: WriterLane) -> AsyncIterator[None]:
        """Be the one process that writes to the index; others that share it wait."""
        if not self._index_config.shared:
            yield
            return
        try:
            while not await lane.call(lane.index.take_turn):  # noqa: ASYNC110 - nobody tells
                await trio.sleep(RETRY_SECONDS)
            yield
        finally:
            lane.index.end_turn()

    async def _catch_up(self, lane: WriterLane) -> None:
        """Know what other processes wrote before this one had its turn."""
        if self._index_config.shared:
            await lane.call(lane.index.catch_up)

    def _view(
        self,
        reader: Reader,
        request: SearchRequest,
        ranking: Ranking | None,
        index: SearchIndex,
    ) -> View:
        if index.incarnation != self._agreed_incarnation:
            # Emptied, or about to be brought in order, since the pass that this search waited for.
            raise Overtaken
        asked, canonical_cwd = request, self._config.canonical_cwd
        if canonical_cwd is not identity and asked.session_filters:
            try:
                asked = in_stored_workspaces(asked, index.workspaces(), canonical_cwd)
            except Exception as error:
                raise index_failed(f"canonical_cwd failed: {error!r}") from error
        return index.open_view(
            reader,
            asked,
            instance=self.instance,
            epoch=self._epoch or 0,
            store_bound=self._store_bound,
            ranking=ranking,
            skipped=self._skipped,
        )

    # -- passes -------------------------------------------------------------------------------

    async def _unseen(self) -> int | None:
        """The moment of the last change that the store told and no pass has seen, if there is."""
        stock = await self._inventory.told()
        if stock is None:
            return None
        moment, agreed = stock.journal.number, self._agreement
        if agreed is not None and (agreed.epoch, agreed.moment) == (stock.mounted.epoch, moment):
            return None
        return moment

    async def _fresh(self, progress: Callable[[Progress], None] | None) -> None:
        """Return after a pass that began after this call, or at once where it would do nothing.

        Raises:
            SessionQueryError: the pass failed.
            MailboxClosed: the reconciler has crashed, so that no pass will run.
        """
        if self._agrees():
            return
        while True:
            if self.mailbox.crashed:
                raise self.mailbox.refusal()
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

    def _agrees(self) -> bool:
        """Whether a pass that began now would certainly find nothing to do."""
        agreed = self._agreement
        return (
            agreed is not None
            and agreed.commits == self._sessions.commits.value
            and self._agrees_but_for_commits()
        )

    def _agrees_but_for_commits(self) -> bool:
        """Whether a pass that began now could only find changes of live sessions."""
        lane, agreed = self._lane, self._agreement
        return (
            lane is not None
            and agreed is not None
            and not agreed.unsettled
            and self._changing.available_tokens == 1
            and not self._index_config.shared
            and agreed.generation == lane.index.generation
            and self._agreed_incarnation == lane.index.incarnation
            and self._inventory.is_unchanged(agreed.epoch, agreed.moment)
        )

    def _join(self) -> Pass:
        if self._next is None:
            self._next = Pass()
            self._wanted.set()
            self._upkeep.cancel(reason="a pass is wanted")
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
        try:
            while True:
                if not self._wanted.is_set():
                    await self._wanted.wait()
                self._wanted, self._unkept = trio.Event(), 0
                current, self._next = self._next, None
                if current is not None:
                    await self._run_pass(current)
                lane = self._lane
                if lane is not None and lane.index.is_overdue:
                    # Without it, FTS5 would one day merge a thousand segments in one commit.
                    await self._keep_up(partial(self._change, lane, lane.index.merge))
                if await self._is_quiet():
                    await self._keep_up(self._tidy)
        except Exception as failure:
            self.mailbox.crash(failure)
            raise
        finally:
            if self._next is not None:
                # Whoever waits finds out why it will not run.
                self._next.settled.set()

    async def _is_quiet(self) -> bool:
        """Wait for a while without searches behind a change; false once a pass is wanted."""
        while True:
            unkept = self._unkept
            with trio.move_on_after(QUIET_SECONDS) as waiting:
                await self._wanted.wait()
            if not waiting.cancelled_caught:
                return False
            if unkept == self._unkept:
                return True

    async def _keep_log(self) -> None:
        try:
            await self._log_keeper.run()
        except Exception as failure:
            self.mailbox.crash(failure)
            raise

    async def _run_pass(self, current: Pass) -> None:
        current.begun = True
        try:
            with current.scope:
                async with holding(self._changing):
                    await self._reconcile(current)
                current.completed = True
        except SessionQueryError as error:
            current.error = error
        except Exception as failure:
            self.mailbox.crash(failure)
            raise
        finally:
            current.settled.set()

    async def _reconcile(self, current: Pass) -> None:
        lane = await self.open()
        try:
            with self.news.covering():
                async with self._turn(lane):
                    await self._mended(lane, partial(self._agree, lane, current))
        finally:
            self.generations.publish(lane.index.generation)
            self._log_keeper.mind(lane.index)

    async def _agree(self, lane: WriterLane, current: Pass) -> None:
        """Make the index agree with its sources; once more where another store was bound meanwhile.

        What an earlier store still had to say is then neither shown nor raised.
        """
        await self._log_keeper.wait_for_readers(lane)
        while True:
            agreed = self._agreement
            if agreed is not None and agreed.generation != lane.index.generation:
                agreed = None
            observation = await observe(self._sessions, self._binding, self._inventory, agreed)
            try:
                await self._follow(lane, current, observation)
            except SessionQueryError:
                if self._binding.epoch == observation.mounted.epoch:
                    raise
            if self._binding.epoch == observation.mounted.epoch:
                return

    async def _follow(self, lane: WriterLane, current: Pass, observation: Observation) -> None:
        index, mounted = lane.index, observation.mounted
        if self._epoch is not None and self._epoch != mounted.epoch:
            await lane.call(index.rebind)
        self._epoch, self._store_bound = mounted.epoch, mounted.store is not None
        if mounted.store is not None and mounted.store is not index.store:
            await lane.call(index.read_from, mounted.store)

        def written(progress: Progress) -> None:
            current.report(progress)
            # A build logs more than its writer should copy itself.
            self._log_keeper.mind(index)

        steps = Reconciliation(
            index,
            lane,
            self._pool,
            self._config,
            observation,
            self._showing,
            written,
            self._disagree,
        )
        self._agreement = None
        self._skipped = await steps.run()
        self._agreement = steps.agreement
        self._agreed_incarnation = index.incarnation

    def _disagree(self) -> None:
        self._agreed_incarnation = -1

    async def _tidy(self) -> None:
        """Do upkeep in small pieces until a pass is wanted, which stops the piece under way."""
        lane, more = self._lane, True
        if lane is None or self._next is not None:
            return
        with trio.CancelScope() as self._upkeep:
            while more and lane.index.needs_tidying(MOVABLE_EVENTS):
                more = await self._change(lane, lane.index.tidy, MOVABLE_EVENTS)

    async def _change(self, lane: WriterLane, piece: Callable[[*Ts], R], *args: *Ts) -> R:
        """Do one piece of upkeep."""
        try:
            async with self._changing, self._turn(lane):
                await self._catch_up(lane)
                return await lane.call(piece, *args)
        finally:
            self._log_keeper.mind(lane.index)

    async def _keep_up(self, upkeep: Callable[[], Awaitable[object]]) -> None:
        """Do upkeep; damage that it meets is mended, any other failure left for later."""
        try:
            try:
                await upkeep()
            except IndexDamaged as damage:
                await self._mend(self.incarnation, damage)
        except SessionQueryError as error:
            _log.warning("upkeep of the index failed and is left for later: %s", error)


async def _until(attempt: Callable[[], Awaitable[bool]], what: str) -> None:
    """Repeat what a reader of the index may be in the way of, until it is done."""
    deadline = trio.current_time() + PATIENCE_SECONDS
    while not await attempt():
        if trio.current_time() >= deadline:
            raise index_failed(
                f"the index cannot be {what} while another connection goes on reading it: "
                "end that first"
            )
        await trio.sleep(RETRY_SECONDS)


def _changed_since(index: SearchIndex, generation: int) -> tuple[str, ...]:
    changed = {
        session_id
        for session_id, stored in index.stored.entries.items()
        if stored.state.generation > generation
    }
    changed |= {
        session_id
        for session_id, live in index.live.entries.items()
        if live.visible and live.generation > generation
    }
    return tuple(sorted(changed))
