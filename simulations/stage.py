"""The stage: what all tasks of one run share, and how each request is made and recorded."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from random import Random
from typing import Final

import trio
from attrs import define, field

from ..actors.composition import open_session_query
from ..actors.live_session import LiveSession
from ..actors.service import SessionQuery
from ..messages.config import MEMORY, IndexConfig, QueryConfig
from ..messages.errors import ErrorCode, LiveErrorCode, LiveSessionError, SessionQueryError
from ..messages.event import EventDraft
from ..storage.jsonl import JsonlStore
from .faults import Configuration
from .hand import Hand
from .history import Call, Commit, History, Sitting
from .logs import TellingVoice, Voice, event_of
from .marked_store import MarkedStore
from .oracle import Oracle, check_audit
from .probe import FOLLOWING, UPKEEP, Probe
from .tool_oracle import ToolOracle
from .verdict import NotLive, Violation
from .world import Life, World

STORES: Final = ("/a", "/b")
"""The roots of the two stores that there are."""

IDS: Final = ("s0", "s1", "s2", "s3", "s4")
"""Sessions that may be stored, created and resumed; forks have fresh ids."""

RESTING: Final = "rest"
"""Who asks in the liveness phase, and waits for every answer."""

OF_SESSIONS: Final = frozenset({"sit", "fork", "commit", "flush"})
"""Requests for which neither index nor readers do anything."""

PATIENCE: Final = 600.0
"""Virtual seconds after which a request that has no deadline of its own is taken to hang."""

_REFUSED_OPENINGS: Final = (
    LiveErrorCode.ALREADY_EXISTS,
    LiveErrorCode.NOT_FOUND,
    LiveErrorCode.NOT_LIVE,
    LiveErrorCode.NOT_STORED,
    ErrorCode.PERSISTENCE_FAILED,
)


@define(eq=False)
class Stage:
    """One run: its world, its history, and the service that is running now."""

    world: World
    configuration: Configuration
    history: History = field(factory=History)
    hand: Hand = field(init=False)
    voice: Voice = field(init=False)
    index: IndexConfig = field(init=False)
    probe: Probe = field(init=False)
    query: SessionQuery = field(init=False)
    life: Life = field(init=False)
    closing: bool = True
    forks: int = 0
    watchers: int = 0
    """Tasks that wait for generations, for whom passes are run."""
    open: dict[int, trio.CancelScope] = field(factory=dict)
    """Requests under way by number; each may be cancelled."""

    def __attrs_post_init__(self) -> None:
        configuration = self.configuration
        voice = TellingVoice if configuration.callers else Voice
        self.voice = voice(0 if configuration.words < 3 else 1, configuration.words)
        self.hand = Hand(self.world, self.history, self.voice, configuration.families)

    # -- the service --------------------------------------------------------------------------

    @asynccontextmanager
    async def service(self, life: Life) -> AsyncIterator[SessionQuery]:
        """A service of this incarnation over the first store, until the block is left."""
        configuration = self.configuration
        follows = configuration.tells and configuration.notify
        self.life = life
        self.probe = Probe(self.world.runtime, FOLLOWING if follows else UPKEEP)
        self.index = IndexConfig(
            path=self.world.index_path,
            journal_mode=configuration.journal if self.world.index_path != MEMORY else "wal",
            open_at=self.world.stream("service").choice(("startup", "first-search")),
            snippet_chars=configuration.snippet,
            default_limit=min(20, configuration.page),
            max_limit=configuration.page,
        )
        config = QueryConfig(
            search_concurrency=configuration.search_concurrency,
            persisted_read_concurrency=configuration.readers_at_once,
            prepared_session_cache_size=configuration.kept_logs,
            notify=configuration.notify > 0,
        )
        self.history.bind(STORES[0])
        try:
            async with open_session_query(
                store=self.store(STORES[0]), index=self.index, config=config, runtime=self.probe
            ) as self.query:
                self.closing = False
                try:
                    yield self.query
                finally:
                    self.closing = True
        finally:
            self.closing = True
            self.world.trace.note("the service has closed")
            if not life.crashed:
                self._check_end()

    def store(self, root: str) -> JsonlStore:
        """One of the stores as this process has it."""
        return MarkedStore(root, self.world.disk, self.world.marks)

    def check(self, first_call: int) -> None:
        """Judge what was asked from this call on, all of one incarnation.

        Raises:
            Violation: something that was answered cannot be explained.
        """
        calls = self.history.calls[first_call:]
        Oracle(self.history, self.index).check(calls)
        ToolOracle(self.history, self.index, self.configuration.shown, self.world.marks).check(
            calls
        )
        limits = {
            "log reader": self.configuration.readers_at_once,
            "search": self.configuration.search_concurrency,
        }
        for kind, limit in limits.items():
            if self.probe.most.get(kind, 0) > limit:
                raise Violation(f"{self.probe.most[kind]} of {kind!r} ran at once, {limit} may")

    def audit(self) -> None:
        """Judge what a crash has left on the disk.

        Raises:
            Violation: something acknowledged is lost, or something is there that never was.
        """
        for store in STORES:
            for session_id in self.history.ids:
                self.hand.audit(store, session_id)
        for session_id in self.history.ids:
            sitting = self.history.sitting(session_id)
            if sitting is not None:
                self.history.leave(sitting, None)

    def _check_end(self) -> None:
        """Nothing of a service runs when it has ended."""
        left = self.probe.working("log reader", "search", "reconciler", "reconciler passes")
        if left:
            raise Violation(f"the service has closed, and there still run {left}")
        watched = sum(watcher.count() for watcher in self.world.disk.medium.watchers)
        if watched:
            raise Violation(f"the service has closed, and {watched} directories are watched")

    # -- requests -----------------------------------------------------------------------------

    @property
    def failures(self) -> int:
        """How many operations of the disk have failed so far."""
        return self.world.disk.failures

    async def think(self, rng: Random) -> None:
        """Wait for a while."""
        await trio.sleep(round(rng.random() * self.configuration.think, 4))

    async def request(
        self,
        who: str,
        what: str,
        arguments: tuple[object, ...],
        ask: Callable[[], Awaitable[object]],
        *,
        before: Call | None = None,
    ) -> Call:
        """Make one request and record what comes of it.

        Whoever is cancelled by the run's own choice, or by a deadline, gets a call that says so.
        """
        with self.asking(who, what, arguments, before) as call:
            try:
                call.reply = await ask()
            except SessionQueryError as error:
                call.error = error
        return call

    @contextmanager
    def asking(
        self, who: str, what: str, arguments: tuple[object, ...], before: Call | None = None
    ) -> Iterator[Call]:
        """Record the block as one request, which may have a deadline and may be cancelled."""
        self.history.faults = self.failures
        call = self.history.ask(who, what, *arguments)
        call.before = before
        self.world.trace.note(f"{call}")
        rng = self.world.stream(f"deadlines {who}")
        impatient = who != RESTING and rng.random() < self.configuration.deadlines
        patience = round(rng.random() ** 2, 3) if impatient else PATIENCE
        with trio.move_on_after(patience) as scope:
            self.open[call.number] = scope
            call.cancelled = True
            try:
                yield call
                call.cancelled = self.life.crashed
            finally:
                del self.open[call.number]
                self._answered(call)
        if scope.cancelled_caught and not impatient and trio.current_time() >= scope.deadline:
            raise NotLive(f"{call} was not answered within {PATIENCE:g} virtual seconds")

    def _answered(self, call: Call) -> None:
        self.history.faults = self.failures
        self.history.answer(call)
        call.closing = self.closing
        if not self.closing and not call.cancelled:
            call.generation = self.query.generation
        outcome = "cancelled" if call.cancelled else call.error or "answered"
        self.world.trace.note(f"#{call.number} {outcome}")
        if not self.closing and not self.life.crashed and not self._waits_for_index():
            self._check_quiet(call)

    def _waits_for_index(self) -> bool:
        """Whether any caller waits for a search or a read."""
        calls = (self.history.calls[number] for number in self.open)
        return self.watchers > 0 or any(call.what not in OF_SESSIONS for call in calls)

    def _check_quiet(self, call: Call) -> None:
        """Nothing runs for callers when there are none."""
        left = self.probe.working("log reader", "search")
        if left:
            raise Violation(f"{call} has ended, nobody else waits, and there still run {left}")
        if self.query.statistics().pinned_views:
            raise Violation(f"{call} has ended, nobody else waits, and a view is still pinned")

    # -- live sessions ------------------------------------------------------------------------

    async def sit(
        self,
        who: str,
        sitting: Sitting,
        manager: AbstractAsyncContextManager[LiveSession],
        body: Callable[[LiveSession, Sitting], Awaitable[None]],
    ) -> None:
        """Hold a session live while ``body`` runs, and record its life from beginning to end."""
        self.history.sit(sitting)
        try:
            async with manager as live:
                self._entered(sitting, live)
                try:
                    await body(live, sitting)
                finally:
                    sitting.leaving = self.history.change(sitting.header.id)
                    self.world.trace.note(f"{who} leaves {sitting.header.id}")
        except (LiveSessionError, SessionQueryError) as error:
            self._refused(sitting, error)
        finally:
            if not self.life.crashed:
                await self._left(sitting)

    def _entered(self, sitting: Sitting, live: LiveSession) -> None:
        sitting.entered = self.history.change(sitting.header.id)
        if sitting.durable:  # another one may have been bound meanwhile
            sitting.store = live.store.root if isinstance(live.store, JsonlStore) else None
        self.world.trace.note(f"{sitting.header.id} is live with {live.length} events")
        found = tuple(live.events)
        if (live.header, found) != (sitting.header, sitting.stem):
            raise Violation(f"{sitting.header.id} opened with\n  {found}\n  not\n  {sitting.stem}")

    def _refused(self, sitting: Sitting, error: LiveSessionError | SessionQueryError) -> None:
        sitting.failed = True
        self.world.trace.note(f"{sitting.header.id}: {error.code}")
        if sitting.entered is None:
            if error.code not in _REFUSED_OPENINGS:
                raise error
        elif error.code is not LiveErrorCode.NOT_STORED:
            raise error

    async def _left(self, sitting: Sitting) -> None:
        """Record what a session left behind, when nothing can change it any more."""
        with trio.CancelScope(shield=True):
            while self.probe.late and not self.life.crashed:  # noqa: ASYNC110 - nobody tells
                await trio.sleep(0.05)
        if self.life.crashed:
            return
        session_id = sitting.header.id
        if not sitting.stem and sitting.entered is None:
            sitting.store = None  # there was nothing to store
        if sitting.store is None:
            self.history.leave(sitting, None)
            return
        if sitting.entered is None and sitting.base is None:
            # Another store may have been bound before a place was reserved in one.
            bound = self.history.stores(sitting.asked, self.history.moment)
            written = [root for root in bound if root and self.hand.read(root, sitting.header)]
            sitting.store = written[0] if written else sitting.store
        found = self.hand.read(sitting.store, sitting.header)
        if not sitting.failed and sitting.entered is not None and sitting.events:
            sitting.acknowledged.append((self.history.tick(), len(sitting.events)))
        check_audit(sitting.store, session_id, sitting, found)
        self.history.leave(sitting, found)

    async def commit(
        self, who: str, live: LiveSession, sitting: Sitting, drafts: list[EventDraft]
    ) -> None:
        """Commit drafts and record what was accepted."""
        session_id = sitting.header.id
        with self.asking(who, "commit", (session_id, len(drafts))) as call:
            self.history.changes.append((call.asked, session_id))
            try:
                events = await live.commit(*drafts)
            except LiveSessionError as error:
                call.error = error
                if error.code is LiveErrorCode.INVALID_DRAFT and len(self.open) > 1:
                    return  # another commit came first and took away what these stand on
                raise
            first, time = (events[0].seq, events[0].time) if events else (0, 0)
            expected = tuple(event_of(draft, first + at, time) for at, draft in enumerate(drafts))
            if events != expected:
                raise Violation(f"{call} gave\n  {events}\n  not\n  {expected}")
            sitting.add(Commit(call.asked, self.history.moment + 1, events))

    async def flush(self, who: str, live: LiveSession, sitting: Sitting) -> None:
        """Wait until everything is stored, and record that it is."""
        length = len(sitting.known)
        with self.asking(who, "flush", (sitting.header.id,)) as call:
            self.history.changes.append((call.asked, sitting.header.id))
            try:
                await live.flush()
            except LiveSessionError as error:
                call.error = error
                if error.code is not LiveErrorCode.NOT_STORED:
                    raise
                return
            if not self.life.crashed:
                sitting.acknowledged.append((self.history.moment + 1, length))
