"""A query service over a corpus that changes in every way, compared with the model of search.

One world is one Trio run in virtual time without threads; steps are drawn from seeds of their own,
so that any of them can be left out of a script.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import Final, Generic, Literal, TypeVar, TypeVarTuple, overload

import trio
from attrs import define, evolve, field, frozen
from inline_runtime import InlineRuntime
from search_corpus import (
    CWDS,
    IDS,
    PHRASES,
    JsonlHand,
    MemoryHand,
    OutsideHand,
    StoredSession,
    random_drafts,
    random_events,
    random_header,
    voice_of,
)

from session_query.actors.composition import open_session_query
from session_query.actors.live_session import LiveSession
from session_query.actors.runtime import TwoParts
from session_query.actors.service import SessionQuery
from session_query.messages.config import MEMORY, IndexConfig, Tokenizer
from session_query.messages.errors import ErrorCode, LiveSessionError, SessionQueryError
from session_query.messages.event import Event
from session_query.messages.filters import (
    AvailabilityIn,
    CreatedAt,
    Cwd,
    EventFilter,
    Ids,
    Parent,
    SeqRange,
    SessionFilter,
    SurfaceIn,
    TimeRange,
    TypeIn,
)
from session_query.messages.header import SessionHeader
from session_query.messages.records import (
    Availability,
    EventSearchHit,
    EventSearchPage,
    EventWindow,
    SessionSearchHit,
    SessionSearchPage,
    Surface,
)
from session_query.simulations.logs import Voice
from session_query.simulations.search_model import (
    ModelSession,
    find_events,
    find_sessions,
    model_records,
)
from session_query.storage.contract import (
    TAIL_BYTES,
    ReadHandle,
    SessionStore,
    Snapshot,
    StoredLog,
    StoreFailed,
    Sweep,
    Tail,
    WriteHandle,
)

T = TypeVar("T")
R = TypeVar("R")
U = TypeVar("U")
Ts = TypeVarTuple("Ts")

MOST_LIVE: Final = 4
JOURNALS: Final[tuple[Literal["wal", "delete", "truncate", "persist"], ...]] = (
    *("wal", "wal", "wal"),
    *("delete", "truncate", "persist"),
)


@define(eq=False)
class Line(SessionStore):
    """The way of one service to its store; nothing is written once it is ``down``."""

    inner: SessionStore
    down: bool = False

    def sweep(self) -> Sweep:
        return self.inner.sweep()

    def stat(self, session_id: str) -> Snapshot | None:
        return self.inner.stat(session_id)

    @overload
    def open(self, session_id: str, access: Literal["read"]) -> ReadHandle: ...
    @overload
    def open(self, session_id: str, access: Literal["write"]) -> WriteHandle: ...
    def open(self, session_id: str, access: Literal["read", "write"]) -> ReadHandle:
        if access == "read":
            return self.inner.open(session_id, "read")
        return _LineWriter(self, self.inner.open(session_id, "write"))

    def create(self, header: SessionHeader, inherited_event_count: int = 0) -> WriteHandle:
        return _LineWriter(self, self.inner.create(header, inherited_event_count))

    def read_tail(self, session_id: str, mark: bytes | None, limit: int = TAIL_BYTES) -> Tail:
        return self.inner.read_tail(session_id, mark, limit)

    def flush(self) -> None:
        self.inner.flush()


class _LineWriter(WriteHandle):
    def __init__(self, line: Line, inner: WriteHandle) -> None:
        self.header = inner.header
        self._line = line
        self._inner = inner

    def read(self, offset: int = 0, length: int | None = None) -> tuple[Event, ...]:
        return self._inner.read(offset, length)

    def read_log(self) -> StoredLog:
        return self._inner.read_log()

    def append(self, events: tuple[Event, ...]) -> str:
        self._check()
        return self._inner.append(events)

    def flush(self) -> str:
        self._check()
        return self._inner.flush()

    def close(self) -> None:
        self._inner.close()

    def _check(self) -> None:
        if self._line.down:
            raise StoreFailed("the line to the store is down")


@define(eq=False)
class MortalRuntime(InlineRuntime):
    """Few different times, and a moment at which the process is taken to have died."""

    clock: Random = field(factory=Random)
    calls_to_live: int | None = None
    die: Callable[[], None] = lambda: None

    def now_ms(self) -> int:
        return self.clock.randint(1, 3)

    async def call(
        self,
        fn: Callable[[*Ts], R],
        *args: *Ts,
        interrupt: Callable[[], None] | None = None,
        limiter: trio.CapacityLimiter | None = None,
    ) -> R:
        result = await super().call(fn, *args, interrupt=interrupt, limiter=limiter)
        self._grow_older()
        return result

    async def call_in_two(self, work: TwoParts[U, R]) -> R:
        def older() -> None:
            work.between()
            self._grow_older()

        result = await super().call_in_two(evolve(work, between=older))
        self._grow_older()
        return result

    def _grow_older(self) -> None:
        if self.calls_to_live is not None:
            self.calls_to_live -= 1
            if self.calls_to_live == 0:
                self.die()


@define(eq=False)
class Held(Generic[T]):
    """A context manager that a task of its own stays inside until it is told to leave."""

    value: T
    _leave: trio.Event = field(factory=trio.Event)
    _left: trio.Event = field(factory=trio.Event)

    async def leave(self) -> None:
        self._leave.set()
        await self._left.wait()


async def hold(nursery: trio.Nursery, manager: AbstractAsyncContextManager[T]) -> Held[T]:
    """Enter ``manager`` in a task of its own; a live session may end without being stored."""

    async def stay(*, task_status: trio.TaskStatus[Held[T]]) -> None:
        held: Held[T] | None = None
        try:
            async with manager as value:
                held = Held(value)
                task_status.started(held)
                await held._leave.wait()
        except LiveSessionError:
            if held is None:
                raise
        finally:
            if held is not None:
                held._left.set()

    held: Held[T] = await nursery.start(stay)
    return held


@frozen
class Question:
    """A search without its cursor; of sessions where there is no ``session_id``."""

    session_id: str | None
    query: str
    session_filters: tuple[SessionFilter, ...]
    event_filters: tuple[EventFilter, ...]
    limit: int


@frozen
class Bookmark:
    """A cursor that was given for a page of a question."""

    question: Question
    cursor: str
    offset: int


@frozen
class Corpus:
    """What can be found at one moment, and the stored sessions that cannot."""

    sessions: dict[str, ModelSession]
    left_out: tuple[str, ...]


@frozen
class Found:
    """One page."""

    hits: tuple[SessionSearchHit | EventSearchHit, ...]
    more: bool
    session: SessionHeader | None
    left_out: tuple[str, ...]


Answer = Found | ErrorCode
REFUSALS: Final = (
    ErrorCode.STALE_CURSOR,
    ErrorCode.SESSION_NOT_FOUND,
    ErrorCode.INVALID_SURFACE,
)
"""What a search of a world may be refused with."""


@define(eq=False)
class SearchWorld:
    """The service, its store, and what is live."""

    nursery: trio.Nursery
    directory: Path
    hand: OutsideHand
    config: IndexConfig
    voice: Voice
    steps: int = 0
    bound: bool = True
    lives: dict[str, Held[LiveSession]] = field(factory=dict)
    bookmarks: list[Bookmark] = field(factory=list)
    line: Line = field(init=False)
    runtime: MortalRuntime = field(init=False)
    service: Held[SessionQuery] = field(init=False)

    @property
    def query(self) -> SessionQuery:
        return self.service.value

    # -- the service --------------------------------------------------------------------------

    async def begin(self) -> None:
        """Start a service on the index of the configuration."""
        self.line, self.bound = Line(self.hand.store), True
        self.runtime = MortalRuntime(clock=Random(self.steps))
        self.bookmarks = []
        manager = open_session_query(store=self.line, index=self.config, runtime=self.runtime)
        self.service = await hold(self.nursery, manager)

    async def end(self) -> None:
        """End the service and everything that is live."""
        for live in [*self.lives.values()]:
            await live.leave()
        self.lives = {}
        await self.service.leave()

    async def step(self, kind: str, seed: int) -> None:
        """One step of a script; one that is not possible now does nothing."""
        self.steps += 1
        rng = Random(f"{kind} {seed}")
        steps: dict[str, Callable[[Random], Awaitable[None]]] = {
            "idle": _idle,
            "search": self._search,
            "create": self._create,
            "resume": self._resume,
            "fork": self._fork,
            "commit": self._commit,
            "flush": self._flush,
            "close": self._close,
            "wait": self._wait,
            "outside": self._outside,
            "fail": self._fail,
            "mount": self._mount,
            "restart": self._restart,
            "die": self._die,
            "cancel": self._cancel,
            "talk": self._talk,
        }
        await steps[kind](rng)
        if kind != "idle" and rng.random() < 0.7:
            await self.check(rng)

    async def _search(self, rng: Random) -> None:
        await self.check(rng)

    async def _create(self, rng: Random) -> None:
        session_id = rng.choice(IDS)
        if session_id in self.lives or len(self.lives) >= MOST_LIVE:
            return
        stored = self.hand.sessions().get(session_id)
        header = stored.header if stored is not None else random_header(rng, session_id)
        durable = stored is None and rng.random() < 0.9
        if header.is_seeded:
            return
        manager = self.query.sessions.create(
            id=session_id,
            created_at=header.created_at,
            cwd=header.cwd,
            parent=header.parent_session,
            durable=durable,
        )
        self.lives[session_id] = await hold(self.nursery, manager)
        await self._say(self.lives[session_id].value, rng)

    async def _resume(self, rng: Random) -> None:
        """A damaged session is mended first, behind the back of the index."""
        cold = self._cold()
        if cold and self.bound and len(self.lives) < MOST_LIVE:
            damaged = [each for each in sorted(cold) if not cold[each].readable]
            session_id = rng.choice(damaged or sorted(cold))
            if damaged:
                header = random_header(rng, session_id)
                self.hand.write(header, random_events(rng, self.voice, (), 3))
            manager = self.query.sessions.resume(session_id)
            self.lives[session_id] = await hold(self.nursery, manager)
            await self._say(self.lives[session_id].value, rng)

    async def _fork(self, rng: Random) -> None:
        taken = {*self.lives, *self.hand.sessions()}
        free = [session_id for session_id in IDS if session_id not in taken]
        if self.lives and free and len(self.lives) < MOST_LIVE:
            source = self.lives[rng.choice(sorted(self.lives))].value
            new_id = rng.choice(free)
            boundary = rng.choice([None, *range(source.length)])
            manager = self.query.sessions.fork(source, boundary, new_id=new_id)
            with suppress(LiveSessionError):  # a turn is open at the boundary
                self.lives[new_id] = await hold(self.nursery, manager)

    async def _commit(self, rng: Random) -> None:
        if self.lives:
            for _ in range(rng.randint(1, 3)):
                await self._say(self.lives[rng.choice(sorted(self.lives))].value, rng)

    async def _say(self, live: LiveSession, rng: Random) -> None:
        await live.commit(*random_drafts(rng, self.voice, live.events, rng.randint(0, 4)))

    async def _flush(self, rng: Random) -> None:
        if self.lives:
            with suppress(LiveSessionError):  # the line may be down
                await self.lives[rng.choice(sorted(self.lives))].value.flush()

    async def _close(self, rng: Random) -> None:
        if self.lives:
            await self.lives.pop(rng.choice(sorted(self.lives))).leave()

    async def _wait(self, rng: Random) -> None:
        await trio.sleep(rng.choice([0, 0.1, 1]))
        await trio.testing.wait_all_tasks_blocked()  # what is due now belongs to this step

    async def _outside(self, rng: Random) -> None:
        """Somebody else changes the store."""
        session_id = rng.choice(IDS)
        live = self.lives.get(session_id)
        if live is not None and (live.value.durable or live.value.header.is_seeded):
            return
        stored = self.hand.sessions().get(session_id)
        count = rng.randint(1, 5)
        if stored is None or not stored.readable or rng.random() < 0.3:
            header = random_header(rng, session_id) if live is None else live.value.header
            kept = stored.events if stored is not None and rng.random() < 0.5 else ()
            if header.is_seeded or (stored is not None and stored.header.is_seeded):
                kept = ()
            added = random_events(rng, self.voice, kept, count)
            self.hand.write(header, (*kept, *added))
        elif rng.random() < 0.7:
            self.hand.append(session_id, rng, self.voice, count)
        elif rng.random() < 0.5:
            self.hand.damage(session_id)
        else:
            self.hand.delete(session_id)

    async def _fail(self, _rng: Random) -> None:
        """The line to the store breaks, or is mended."""
        self.line.down = not self.line.down

    async def _mount(self, rng: Random) -> None:
        """The store is taken away, or given back, or another one takes its place."""
        if rng.random() < 0.5 and self.bound:
            await self.query.refresh()
            lives = {each: held.value.header for each, held in self.lives.items()}
            directory = self.directory / f"store-{self.steps}"
            self.hand = random_hand(rng, self.voice, directory, lives)
            self.line, self.bound = Line(self.hand.store), True
            self.query.mount(self.line)
            await self.query.refresh()  # what a later process finds in the index is of this store
            return
        if self.bound:
            self.query.unmount()
        else:
            self.query.mount(self.line)
        self.bound = not self.bound

    async def _restart(self, _rng: Random) -> None:
        await self.end()
        await self.begin()

    async def _die(self, rng: Random) -> None:
        """The process ends at some moment of a search; a new one finds the files of that moment."""
        after = self.config

        def freeze() -> None:
            nonlocal after
            if after is self.config:
                self.line.down = True
                after = self._copied()

        self.runtime.die, self.runtime.calls_to_live = freeze, rng.randint(1, 12)
        with suppress(SessionQueryError):
            await self.query.search_sessions("a")
        if rng.random() < 0.5:
            await trio.testing.wait_all_tasks_blocked()
        freeze()
        await self.end()
        self.config = after
        await self.begin()

    def _copied(self) -> IndexConfig:
        """The index as it stands in its files now."""
        if self.config.path == MEMORY:
            return evolve(self.config)
        copy = self.directory / f"index-{self.steps}.db"
        for suffix in ("", "-wal", "-journal"):
            with suppress(FileNotFoundError):
                shutil.copyfile(f"{self.config.path}{suffix}", f"{copy}{suffix}")
        return evolve(self.config, path=str(copy))

    async def _cancel(self, rng: Random) -> None:
        """A search whose caller leaves somewhere on the way."""
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_cancel_after, scope, rng.randint(1, 40))
                await self.query.search_sessions(rng.choice(PHRASES))
                scope.cancel()

    async def _talk(self, rng: Random) -> None:
        """Searches beside commits: each sees the corpus of one moment since it was asked."""
        moments = [self.corpus()]

        async def ask(question: Question) -> None:
            since = len(moments) - 1
            answer, _ = await self._ask(question, None)
            answers.append((question, since, answer))

        answers: list[tuple[Question, int, Answer]] = []
        async with trio.open_nursery() as nursery:
            for _ in range(rng.randint(1, 4)):
                for _ in range(rng.randint(1, 2)):
                    nursery.start_soon(ask, random_question(rng))
                if self.lives:
                    await self._say(self.lives[rng.choice(sorted(self.lives))].value, rng)
                    moments.append(self.corpus())
                for _ in range(rng.randint(0, 12)):
                    await trio.lowlevel.checkpoint()
        for question, since, answer in answers:
            right = [self._right_answer(corpus, question, 0) for corpus in moments[since:]]
            assert answer in right, question

    # -- what must be found -------------------------------------------------------------------

    def _cold(self) -> dict[str, StoredSession]:
        """What is stored and not live."""
        stored = self.hand.sessions()
        return {each: stored[each] for each in stored if each not in self.lives}

    def corpus(self) -> Corpus:
        """Everything that can be found now."""
        cold = self._cold() if self.bound else {}
        found = {
            session_id: ModelSession(session.header, session.events, False, True)
            for session_id, session in cold.items()
            if session.readable
        }
        listed = self.hand.sessions().keys() if self.bound else set()
        for session_id, held in self.lives.items():
            live = held.value
            events = tuple(live.events)
            found[session_id] = ModelSession(live.header, events, True, session_id in listed)
        return Corpus(found, tuple(sorted(each for each in cold if not cold[each].readable)))

    async def check(self, rng: Random) -> None:
        """Old cursors, then a few searches with all of their pages."""
        if rng.random() < 0.5:
            await trio.testing.wait_all_tasks_blocked()
        corpus = self.corpus()
        bookmarks, self.bookmarks = self.bookmarks, []
        for bookmark in bookmarks:
            await self._check_bookmark(corpus, bookmark)
        for _ in range(rng.randint(1, 3)):
            await self._check_question(corpus, random_question(rng))
        await self._check_reads(corpus, rng)

    async def _check_reads(self, corpus: Corpus, rng: Random) -> None:
        """The listing, and the exact reads of one session."""
        cold = self._cold() if self.bound else {}
        headers = {each: session.header for each, session in (cold | corpus.sessions).items()}
        listed = sorted(headers.values(), key=lambda header: (-header.created_at, header.id))
        found = (await self.query.list_sessions()).sessions
        assert [record.header for record in found] == listed
        session_id = rng.choice(IDS)
        session = corpus.sessions.get(session_id)
        records = await self._read(self.query.list_events(session_id))
        if session is None:
            damaged = session_id in corpus.left_out
            missing = ErrorCode.INVALID_SURFACE if damaged else ErrorCode.SESSION_NOT_FOUND
            assert records == missing
            return
        assert records == tuple(model_records(session))
        seq, before, after = rng.randint(-1, len(session.events)), *rng.choices(range(4), k=2)
        window = await self._read(self.query.read_event(session_id, seq, before, after))
        if 0 <= seq < len(session.events):
            start = max(0, seq - before)
            assert isinstance(window, EventWindow)
            assert (window.header, window.start_seq) == (session.header, start)
            assert window.target == session.events[seq]
            assert window.events == session.events[start : seq + after + 1]
        else:
            assert window == ErrorCode.EVENT_NOT_FOUND

    async def _read(self, read: Awaitable[T]) -> T | ErrorCode:
        try:
            return await read
        except SessionQueryError as error:
            return error.code

    async def _check_question(self, corpus: Corpus, question: Question) -> None:
        offset: int = 0
        cursor: str | None = None
        while offset == 0 or cursor is not None:
            answer, cursor = await self._ask(question, cursor)
            assert answer == self._right_answer(corpus, question, offset), question
            offset += question.limit
            if cursor is not None:
                self.bookmarks.append(Bookmark(question, cursor, offset))

    async def _check_bookmark(self, corpus: Corpus, bookmark: Bookmark) -> None:
        """An old cursor is refused or still gives the page that is right now."""
        answer, _ = await self._ask(bookmark.question, bookmark.cursor)
        if answer != ErrorCode.STALE_CURSOR:
            right = self._right_answer(corpus, bookmark.question, bookmark.offset)
            assert answer == right, bookmark

    async def _ask(self, question: Question, cursor: str | None) -> tuple[Answer, str | None]:
        """What the service says, and its next cursor."""
        page: SessionSearchPage | EventSearchPage
        try:
            if question.session_id is None:
                page = await self.query.search_sessions(
                    question.query,
                    session_filters=question.session_filters,
                    event_filters=question.event_filters,
                    limit=question.limit,
                    cursor=cursor,
                )
            else:
                page = await self.query.search_events(
                    question.session_id,
                    question.query,
                    filters=question.event_filters,
                    limit=question.limit,
                    cursor=cursor,
                )
        except SessionQueryError as error:
            if error.code not in REFUSALS:
                raise
            return error.code, None
        left_out = tuple(sorted(str(skipped.session_id) for skipped in page.skipped))
        header = page.session if isinstance(page, EventSearchPage) else None
        return Found(page.items, page.next_cursor is not None, header, left_out), page.next_cursor

    def _right_answer(self, corpus: Corpus, question: Question, offset: int) -> Answer:
        how = self.config.tokenizer, self.config.snippet_chars
        hits: Sequence[SessionSearchHit | EventSearchHit]
        header = None
        if question.session_id is None:
            filters = question.session_filters, question.event_filters
            hits = find_sessions(corpus.sessions.values(), question.query, *filters, *how)
        elif question.session_id in corpus.sessions:
            session = corpus.sessions[question.session_id]
            header = session.header
            hits = find_events(session, question.query, question.event_filters, *how)
        elif question.session_id in corpus.left_out:
            return ErrorCode.INVALID_SURFACE
        else:
            return ErrorCode.SESSION_NOT_FOUND
        end = offset + question.limit
        return Found(tuple(hits[offset:end]), len(hits) > end, header, corpus.left_out)


async def _idle(_rng: Random) -> None:
    """What a failing script shrinks to."""


async def _cancel_after(scope: trio.CancelScope, checkpoints: int) -> None:
    for _ in range(checkpoints):
        await trio.lowlevel.checkpoint()
    scope.cancel()


def random_question(rng: Random) -> Question:
    """A search of sessions or of the events of one, with up to three filters of each kind."""
    session_id = rng.choice(IDS) if rng.random() < 0.5 else None
    kinds = rng.choice([0, 0, 1, 1, 2, 3])
    return Question(
        session_id,
        rng.choice(PHRASES),
        tuple(_session_filter(rng) for _ in range(kinds)) if session_id is None else (),
        tuple(_event_filter(rng) for _ in range(rng.choice([0, 0, 1, 2]))),
        rng.choice([1, 1, 2, 3, 5, 20]),
    )


def _session_filter(rng: Random) -> SessionFilter:
    match rng.randrange(5):
        case 0:
            return Ids(_some(rng, IDS))
        case 1:
            return Cwd(_some(rng, CWDS))
        case 2:
            return Parent(_some(rng, (None, *IDS)))
        case 3:
            return CreatedAt(*_range(rng, 3))
        case _:
            return AvailabilityIn(_some(rng, tuple(Availability)))


def _event_filter(rng: Random) -> EventFilter:
    match rng.randrange(5):
        case 0:
            return SeqRange(*_range(rng, 12))
        case 1:
            return TimeRange(*_range(rng, 3))
        case 2:
            types = ("user/message", "assistant/message", "tool/call", "tool/result", "no/such")
            return TypeIn(_some(rng, types))
        case _:
            return SurfaceIn(_some(rng, tuple(Surface)))


def _some(rng: Random, values: tuple[T, ...]) -> tuple[T, ...]:
    return tuple(rng.choices(values, k=rng.choice([0, 1, 1, 2, 3, len(values)])))


def _range(rng: Random, top: int) -> tuple[float | None, float | None]:
    low, high = sorted((rng.randint(0, 2 * top) / 2, rng.randint(0, 2 * top) / 2))
    return rng.choice([None, low, low, -(10**30)]), rng.choice([None, high, high, 10**30])


def random_hand(
    rng: Random, voice: Voice, directory: Path, lives: Mapping[str, SessionHeader] | None = None
) -> OutsideHand:
    """A store with some logs, those of live sessions with the header that these have."""
    lives = lives or {}
    hand = JsonlHand(directory) if rng.random() < 0.2 else MemoryHand()
    for session_id in rng.sample(IDS, rng.randint(0, len(IDS))):
        header = lives.get(session_id) or random_header(rng, session_id)
        if header.is_seeded:
            continue
        hand.write(header, random_events(rng, voice, (), rng.randint(1, 12)))
    return hand


@asynccontextmanager
async def search_world(directory: Path, seed: int) -> AsyncIterator[SearchWorld]:
    """A world with a service whose index, store and texts are drawn from ``seed``."""
    rng = Random(f"world {seed}")
    voice = rng.choice([voice_of(0, 2), voice_of(1, 8), voice_of(4, 9)])
    config = IndexConfig(
        path=str(directory / "index.db") if rng.random() < 0.9 else MEMORY,
        journal_mode=rng.choice(JOURNALS),
        open_at=rng.choice(["startup", "first-search"]),
        snippet_chars=rng.choice([1, 2, 3, 5, 12, 240]),
        tokenizer=rng.choice(list(Tokenizer)),
    )
    hand = random_hand(rng, voice, directory / "store")
    async with trio.open_nursery() as nursery:
        world = SearchWorld(nursery, directory, hand, config, voice)
        await world.begin()
        yield world
        await world.end()
