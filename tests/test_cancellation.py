"""Every public coroutine, cancelled at every step that the whole service takes for it.

A caller who is cancelled gets its own bare ``Cancelled``; when it leaves, nothing that was started
for it is running, nothing is pinned or held, and whoever comes next is answered rightly.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar, TypeVarTuple

import apsw
import pytest
import trio
import trio.testing
from actor_world import Hang, message, replacement
from attrs import define, field
from builders import START, Log, header
from inline_runtime import InlineRuntime
from service_world import CountingStore, append, events_of, session, sessions_of

from session_query.actors import reconciler, reconciliation
from session_query.actors.composition import open_session_query
from session_query.actors.runtime import Runtime, TrioRuntime, TwoParts
from session_query.actors.service import SessionQuery
from session_query.messages.config import MEMORY, IndexConfig
from session_query.messages.records import Progress
from session_query.storage import index, log_slices
from session_query.storage.contract import SessionStore
from session_query.storage.memory import MemoryStore

R = TypeVar("R")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# -- the world ------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the index does takes several transactions."""
    monkeypatch.setattr(index, "SLICE_EVENTS", 3)
    monkeypatch.setattr(reconciliation, "SLICE_EVENTS", 3)
    monkeypatch.setattr(reconciliation, "CHUNK_SESSIONS", 1)
    monkeypatch.setattr(reconciler, "MOVABLE_EVENTS", 2)
    monkeypatch.setattr(log_slices, "BUILD_BYTES", 300)


@define(eq=False)
class WatchedRuntime(InlineRuntime):
    """Knows what is running."""

    in_flight: Counter[str] = field(factory=Counter, init=False)

    async def call(
        self,
        fn: Callable[[*Ts], R],
        *args: *Ts,
        interrupt: Callable[[], None] | None = None,
        limiter: trio.CapacityLimiter | None = None,
    ) -> R:
        async with self._flying(fn):
            return await super().call(fn, *args, interrupt=interrupt, limiter=limiter)

    async def call_in_two(self, work: TwoParts[T, R]) -> R:
        async with self._flying(work.second):
            return await super().call_in_two(work)

    @asynccontextmanager
    async def _flying(self, fn: Callable[..., object]) -> AsyncIterator[None]:
        name = getattr(fn, "__name__", "") or getattr(fn, "func", fn).__name__
        self.in_flight[name] += 1
        try:
            yield
        except apsw.InterruptError:
            # Here nothing is told of a cancellation while a function runs; on threads it is.
            await trio.sleep_forever()
            raise
        finally:
            self.in_flight[name] -= 1

    @property
    def running(self) -> set[str]:
        """What is under way, but for the upkeep of the index, which is nobody's."""
        return {name for name, count in self.in_flight.items() if count} - {"tidy"}


@define(eq=False)
class CancelAfterSteps(trio.abc.Instrument):
    """Cancels a scope when all tasks together have taken so many steps."""

    scope: trio.CancelScope
    steps: int

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.steps -= 1
        if self.steps == 0:
            self.scope.cancel()


Operation = Callable[[SessionQuery], Awaitable[object]]


@asynccontextmanager
async def service(
    store: SessionStore, runtime: Runtime, path: str, journal: str = "wal"
) -> AsyncIterator[SessionQuery]:
    config = IndexConfig(path=path, journal_mode=journal, open_at="first-search")  # type: ignore[arg-type]
    async with open_session_query(store=store, index=config, runtime=runtime) as query:
        await trio.testing.wait_all_tasks_blocked()
        yield query


def corpus() -> MemoryStore:
    interrupted = Log()
    interrupted.turn_start()
    for number in range(2):
        interrupted.user(f"word {number}")
    return MemoryStore(
        [
            session("long", *(f"word {number}" for number in range(6))),
            session("short", "word", created_at=START + 1),
            (header("interrupted"), interrupted.events),
        ]
    )


async def assert_right(query: SessionQuery, store: SessionStore) -> None:
    """Searches find what the store holds, with nothing live."""
    assert not query.sessions.live
    holding = set()
    for snapshot in store.sweep().snapshots:
        session_id = snapshot.header.id
        with store.open(session_id, "read") as handle:
            wanted = [event.seq for event in handle.read() if b"word" in event.raw]
        assert sorted(await events_of(query, session_id, "word", limit=100)) == wanted
        holding |= {session_id} if wanted else set()
    assert set(await sessions_of(query, "word")) == holding


def assert_quiet(query: SessionQuery) -> None:
    """Nothing is pinned, and nobody holds the writer's lane."""
    assert query.statistics().pinned_views == 0
    assert query._reconciler is not None
    lane = query._reconciler._lane
    assert lane is None or not lane.busy


# -- what is cancelled ----------------------------------------------------------------------------


async def list_sessions(query: SessionQuery) -> object:
    return await query.list_sessions()


async def read_session(query: SessionQuery) -> object:
    return await query.read_session("long")


async def list_events(query: SessionQuery) -> object:
    return await query.list_events("long")


async def read_event(query: SessionQuery) -> object:
    return await query.read_event("long", 3, before=1)


async def read_titles(query: SessionQuery) -> object:
    return await query.read_titles(["long", "short", "nowhere", "interrupted"])


async def read_title(query: SessionQuery) -> object:
    return await query.read_title("long")


async def search_sessions(query: SessionQuery) -> object:
    return await query.search_sessions("word", limit=1)


async def search_events(query: SessionQuery) -> object:
    return await query.search_events("long", "word", limit=2)


async def refresh(query: SessionQuery) -> object:
    return await query.refresh()


async def create(query: SessionQuery) -> object:
    async with query.sessions.create(id="new") as live:
        await live.commit(message("word"), message("word"))
        await live.flush()
        await live.commit(replacement(0, 0, 0), message("word"))
    return None


async def create_and_search(query: SessionQuery) -> object:
    async with query.sessions.create(id="new") as live:
        await live.commit(*(message("word") for _ in range(5)))
        await query.search_sessions("word")
        await live.flush()
        await live.commit(replacement(0, 1, 0, 1))
        await query.search_events("new", "word")
    return None


async def resume(query: SessionQuery) -> object:
    async with query.sessions.resume("interrupted") as live:
        await live.commit(message("word"))
        await query.search_events("interrupted", "word")
        await live.commit(message("word"))
        await live.flush()
    return None


async def fork(query: SessionQuery) -> object:
    async with (
        query.sessions.resume("long") as live,
        query.sessions.fork(live, 4, new_id="child") as child,
    ):
        await child.commit(message("word"))
        await query.refresh()
        await live.flush()
    return None


READS = [list_sessions, read_session, list_events, read_event, read_titles, read_title]
SEARCHES = [search_sessions, search_events, refresh]
SESSIONS = [create, create_and_search, resume, fork]


# -- each step ------------------------------------------------------------------------------------


def cancel_everywhere(scenario: Callable[[int], Awaitable[bool]], stride: int = 1) -> int:
    """Run a scenario anew for each number of steps until it was not cancelled; how often it was."""

    async def bounded(steps: int) -> bool:
        with trio.fail_after(3600):  # in virtual time: whoever hangs is found at once
            return await scenario(steps)

    for times in itertools.count():
        clock = trio.testing.MockClock(autojump_threshold=0)
        if not trio.run(bounded, 1 + times * stride, clock=clock):
            return times
    raise AssertionError


async def cancelled_after(steps: int, operation: Operation, query: SessionQuery) -> bool:
    """Whether the operation was cancelled, or would have been, before its end."""
    with trio.CancelScope() as scope:
        instrument = CancelAfterSteps(scope, steps)
        trio.lowlevel.add_instrument(instrument)
        try:
            await operation(query)
        except trio.Cancelled:
            assert scope.cancel_called
            raise
        finally:
            trio.lowlevel.remove_instrument(instrument)
    return scope.cancel_called


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
@pytest.mark.parametrize("operation", [*READS, *SEARCHES, *SESSIONS])
def test_whoever_is_cancelled_at_any_step_leaves_nothing_behind(
    operation: Operation, warm: bool
) -> None:
    async def scenario(steps: int) -> bool:
        store, runtime = corpus(), WatchedRuntime()
        async with service(store, runtime, MEMORY) as query:
            if warm:
                await query.refresh()
                append(store, "short", "word more")
            cancelled = await cancelled_after(steps, operation, query)
            assert not runtime.running
            assert not query.sessions.live
            await trio.testing.wait_all_tasks_blocked()
            assert runtime.calls == 0
            assert_quiet(query)
            await assert_right(query, store)
        return cancelled

    assert cancel_everywhere(scenario) >= 2


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_a_search_of_a_file_that_is_cancelled_at_any_step_leaves_nothing_behind(
    tmp_path: Path, journal: str
) -> None:
    async def scenario(steps: int) -> bool:
        store, runtime = corpus(), WatchedRuntime()
        path = str(tmp_path / f"{steps}.db")
        async with service(store, runtime, path, journal) as query:
            cancelled = await cancelled_after(steps, search_sessions, query)
            assert not runtime.running
            await trio.testing.wait_all_tasks_blocked()
            assert runtime.calls == 0
            assert_quiet(query)
            await assert_right(query, store)
        return cancelled

    assert cancel_everywhere(scenario) >= 20


class Tripwire:
    """In the place of the index's flag, which SQLite looks at every few instructions.

    At one of the looks it cancels the scope and stops what is running: by the flag itself, or as
    another thread stops it.
    """

    def __init__(self, *, by_flag: bool) -> None:
        self.by_flag = by_flag
        self.set(0)

    def set(self, looks: int) -> None:
        self.runtime = WatchedRuntime()
        self.scope = trio.CancelScope()
        self.looks_left = looks

    def __get__(self, searched: index.SearchIndex, _kind: object = None) -> bool:
        if not self.runtime.running or self.scope.cancel_called:
            return False
        self.looks_left -= 1
        if self.looks_left:
            return False
        self.scope.cancel()
        if not self.by_flag:
            searched._db.interrupt()
        return self.by_flag

    def __set__(self, _index: object, interrupted: bool) -> None:
        """A function that is interrupted before it begins is left to run."""


@pytest.mark.parametrize("by_flag", [True, False], ids=["flag", "thread"])
@pytest.mark.parametrize("operation", [search_sessions, create_and_search, resume])
def test_whoever_is_cancelled_inside_a_transaction_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, operation: Operation, by_flag: bool
) -> None:
    tripwire = Tripwire(by_flag=by_flag)
    monkeypatch.setattr(index, "_INTERRUPT_CHECK", 5)
    monkeypatch.setattr(index.SearchIndex, "_interrupted", tripwire, raising=False)

    async def scenario(looks: int) -> bool:
        tripwire.set(looks)
        store, runtime, scope = corpus(), tripwire.runtime, tripwire.scope
        async with service(store, runtime, MEMORY) as query:
            with scope:
                await operation(query)
            tripwire.looks_left = 0
            await trio.testing.wait_all_tasks_blocked()
            assert runtime.calls == 0
            assert_quiet(query)
            await assert_right(query, store)
        return scope.cancel_called

    assert cancel_everywhere(scenario, stride=11) >= 20


@pytest.mark.parametrize("operation", SEARCHES)
def test_who_stays_is_answered_though_another_leaves_at_any_step(operation: Operation) -> None:
    async def scenario(steps: int) -> bool:
        store, runtime = corpus(), WatchedRuntime()
        found: list[list[str]] = []

        async def stay(query: SessionQuery) -> None:
            found.append(await sessions_of(query, "word"))

        async with (
            service(store, runtime, MEMORY) as query,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(stay, query)
            cancelled = await cancelled_after(steps, operation, query)
            nursery.start_soon(stay, query)
        assert found == [["short", "long", "interrupted"]] * 2
        assert runtime.calls == 0
        return cancelled

    assert cancel_everywhere(scenario) >= 2


async def test_what_a_cancelled_build_finished_is_not_read_again() -> None:
    store, runtime = CountingStore(corpus()), InlineRuntime()
    async with service(store, runtime, MEMORY) as query:
        with trio.CancelScope() as scope:

            def leave(progress: Progress) -> None:
                if progress.sessions_done == 1:
                    scope.cancel()

            await query.refresh(leave)
        assert scope.cancelled_caught
        begun = {session_id for session_id, _ in store.tails}
        assert query.generation == 1
        store.forget()
        await assert_right(query, store.inner)
        again = {session_id for session_id, _ in store.tails}
        assert len(begun - again) == 1
        assert len(again) == 2


async def test_a_waiter_leaves_at_once_while_another_waits_for_the_same_pass() -> None:
    hang = Hang("sweep")
    store, runtime = corpus(), InlineRuntime(pace=hang)
    found: list[list[str]] = []
    async with service(store, runtime, MEMORY) as query, trio.open_nursery() as nursery:

        async def stay() -> None:
            found.append(await sessions_of(query, "word"))

        async def cancel_in_the_second_pass() -> None:
            await trio.testing.wait_all_tasks_blocked()
            first, hang.over = hang.over, trio.Event()
            first.set()
            await cancel_when_blocked(scope)

        nursery.start_soon(stay)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(stay)
        with trio.fail_after(60), trio.CancelScope() as scope:
            nursery.start_soon(cancel_in_the_second_pass)
            await query.search_sessions("word")
        assert scope.cancelled_caught
        assert len(found) == 1
        assert not hang.over.is_set()
        hang.over.set()
    assert found == [["short", "long", "interrupted"]] * 2


async def test_the_last_waiter_leaves_when_what_had_begun_has_ended() -> None:
    hang = Hang("sweep")
    store, runtime = CountingStore(corpus()), WatchedRuntime(pace=hang)
    async with service(store, runtime, MEMORY) as query, trio.open_nursery() as nursery:

        async def cancel_and_let_go() -> None:
            await cancel_when_blocked(scope)
            await trio.testing.wait_all_tasks_blocked()
            assert runtime.running == {"sweep"}
            hang.over.set()

        with trio.CancelScope() as scope:
            nursery.start_soon(cancel_and_let_go)
            await query.search_sessions("word")
        assert scope.cancelled_caught
        assert not runtime.running
        assert store.logs_read == 0


async def cancel_when_blocked(scope: trio.CancelScope) -> None:
    await trio.testing.wait_all_tasks_blocked()
    scope.cancel()


async def test_a_call_that_is_cancelled_already_asks_nothing() -> None:
    store, runtime = corpus(), WatchedRuntime()
    async with service(store, runtime, MEMORY) as query:
        for operation in (*READS, *SEARCHES, *SESSIONS):
            with trio.CancelScope() as scope:
                scope.cancel()
                await operation(query)
            assert scope.cancelled_caught
        assert not [*runtime.in_flight.elements()]
        assert runtime.in_flight == Counter()
        assert not query.sessions.live


# -- threads --------------------------------------------------------------------------------------


@pytest.mark.parametrize("journal", ["wal", MEMORY])
async def test_two_hundred_cancellations_beside_a_writer_leave_nothing_behind(
    tmp_path: Path, journal: str
) -> None:
    choose = random.Random(1)
    store, runtime = corpus(), TrioRuntime()
    path = MEMORY if journal == MEMORY else str(tmp_path / "index.db")
    victims = [*READS, *SEARCHES]
    outcomes: Counter[bool] = Counter()
    async with service(store, runtime, path, "wal" if journal == MEMORY else journal) as query:
        async with query.sessions.create(id="busy") as live, trio.open_nursery() as nursery:

            async def write() -> None:
                while True:
                    await live.commit(message("word"))
                    append(store, "short", "word")
                    await live.flush()
                    await trio.lowlevel.checkpoint()

            nursery.start_soon(write)
            for _ in range(200):
                operation = choose.choice(victims)
                steps = choose.randint(1, 60)
                outcomes[await cancelled_after(steps, operation, query)] += 1
            nursery.cancel_scope.cancel()
        with trio.fail_after(5):
            while runtime.statistics().calls:  # the upkeep of the index ends by itself
                await trio.lowlevel.checkpoint()
        assert runtime.statistics().abandoned == 0
        assert_quiet(query)
        assert {*await sessions_of(query, "word")} == {"long", "short", "interrupted", "busy"}
    assert outcomes[True] > 50
