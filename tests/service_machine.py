"""The service under Hypothesis: a state machine over a guest run, judged by an oracle.

A rule starts one request, and says how far the run goes on before the next rule: not at all, until
everybody waits, or until this request has its answer. Whenever nothing is under way any more, all
answers since the service was opened have to be explained by the recorded history.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from functools import partial
from random import Random
from typing import Final, Literal

import trio
from attrs import define, field
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from session_query.actors.live_session import LiveSession
from session_query.messages.event import EventDraft, Replace
from session_query.messages.json import Json
from session_query.simulations.disk import NO_FAULTS, DiskFaults
from session_query.simulations.faults import Configuration
from session_query.simulations.guest import GuestRun, Job
from session_query.simulations.history import Call, Sitting
from session_query.simulations.index_files import private_directory
from session_query.simulations.logs import draw_drafts, header_of
from session_query.simulations.questions import Question
from session_query.simulations.search_model import surface_nodes
from session_query.simulations.stage import IDS, STORES, Stage
from session_query.simulations.workload import (
    READS,
    Opening,
    ask_page,
    ask_read,
    bind,
    creating,
    cursor_of,
    forkable,
    forking,
    populate,
    resuming,
)

How = Literal["to the answer", "until all wait", "not at all"]
"""How far the run goes on once a request was made."""

SETTLED_SECONDS: Final = 60.0
"""Virtual seconds within which everything has to come to an end."""
FAILING: Final = DiskFaults(read_error=1.0, write_error=1.0, sync_error=1.0)

# What is drawn often brings about that questions and logs have to do with each other.
hows: Final = st.sampled_from((*["to the answer"] * 4, "until all wait", "not at all"))
ids: Final = st.sampled_from((*[IDS[0]] * 2, *IDS[:3]))
places: Final = st.integers(0, 5)
phrases: Final = st.sampled_from((*["a"] * 4, "b", "a b", "登", "interrupted"))
words: Final = st.sampled_from((*["a"] * 4, "b", "a b", "登录 a"))
limits: Final = st.sampled_from((1, 1, 1, 2, 20))


@define(eq=False)
class Seat:
    """A session that a task of its own holds live until it is told to leave."""

    sitting: Sitting
    _leave: trio.Event = field(factory=trio.Event)
    _live: LiveSession | None = field(default=None, init=False)
    _nursery: trio.Nursery | None = field(default=None, init=False)

    @property
    def at_rest(self) -> bool:
        """Whether it is neither being opened nor left."""
        return self._nursery is not None

    async def hold(self, live: LiveSession, _sitting: Sitting) -> None:
        async with trio.open_nursery() as nursery:
            self._live, self._nursery = live, nursery
            try:
                await self._leave.wait()
            finally:
                self._nursery = None

    def leave(self) -> None:
        self._leave.set()

    async def perform(self, act: Callable[[LiveSession, Sitting], Awaitable[None]]) -> None:
        """Do something inside the block of the live session, which is not left before."""
        if self._nursery is None or self._live is None:
            return
        live, done = self._live, trio.Event()

        async def run() -> None:
            try:
                await act(live, self.sitting)
            finally:
                done.set()

        self._nursery.start_soon(run)
        await done.wait()


class ServiceMachine(RuleBasedStateMachine):
    """Whatever callers, other processes and a bad day may do to one service."""

    stage: Stage

    @initialize(
        tape=st.lists(st.integers(0, 5), max_size=30),
        stored=st.integers(0, 3),
        latency=st.sampled_from((0.0, 0.01)),
        on_disk=st.booleans(),
    )
    def begin(self, tape: list[int], stored: int, latency: float, on_disk: bool) -> None:
        self.resources = ExitStack()
        directory = self.resources.enter_context(private_directory()) if on_disk else None
        self.guest = GuestRun(tape=tape)
        self.guest.open()
        world = self.guest.world(index_directory=directory)
        world.latency = Configuration(latency=latency).pace
        self.stage = Stage(world, Configuration(sessions=stored, latency=latency))
        populate(self.stage)
        self.serving: Job[None] | None = None
        self._open()

    # -- the service --------------------------------------------------------------------------

    @precondition(lambda self: self.serving is None)
    @rule()
    def reopen(self) -> None:
        self._open()

    @precondition(lambda self: self.serving is not None)
    @rule(way=st.sampled_from(("close", "kill", "crash")))
    def end(self, way: str) -> None:
        """The service closes, its process is killed, or the power fails."""
        if way == "close":
            self._stop()
            return
        self.sound = False
        (self.stage.world.crash if way == "crash" else self.stage.world.kill)()
        self._ended()
        self.stage.audit()
        self.stage.check(self.first_call)

    @precondition(lambda self: self.serving is not None)
    @rule(store=st.sampled_from(STORES))
    def mount(self, store: str) -> None:
        bind(self.stage, "binder", store)

    @precondition(lambda self: self.serving is not None)
    @rule()
    def unmount(self) -> None:
        bind(self.stage, "binder", None)

    # -- live sessions ------------------------------------------------------------------------

    @precondition(lambda self: self.serving is not None)
    @rule(session_id=ids, durable=st.booleans(), how=hows)
    def open_session(self, session_id: str, durable: bool, how: How) -> None:
        """Resume a stored session, or create one."""
        self._do(how, self._sit, partial(self._opening, session_id, durable))

    @precondition(lambda self: bool(self._seated))
    @rule(at=places, boundary=places, how=hows)
    def fork(self, at: int, boundary: int, how: How) -> None:
        async def act(live: LiveSession, parent: Sitting) -> None:
            lengths = forkable(parent)
            if lengths:
                kept = lengths[boundary % len(lengths)]
                await self._sit(lambda: forking(self.stage, live, parent, kept))

        self._act(at, how, act)

    @precondition(lambda self: self.serving is not None)
    @rule(session_id=ids, texts=st.lists(words, min_size=1, max_size=3), how=hows)
    def commit(self, session_id: str, texts: list[str], how: How) -> None:
        """To a session that is opened first where nobody has."""

        async def act(live: LiveSession, sitting: Sitting) -> None:
            drafts = [said(sitting, text) for text in texts]
            await self.stage.commit("writer", live, sitting, drafts)

        async def open_and_act() -> None:
            await self._sit(partial(self._opening, session_id, True))
            for seat in self._seated:
                if seat.sitting.header.id == session_id:
                    await seat.perform(act)

        self._do(how, open_and_act)

    @precondition(lambda self: bool(self._seated))
    @rule(at=places, first=places, last=places, word=phrases, how=hows)
    def compact(self, at: int, first: int, last: int, word: str, how: How) -> None:
        def drafts(sitting: Sitting) -> list[EventDraft]:
            nodes = surface_nodes(sitting.known)[min(first, last) : max(first, last) + 1]
            return [said(sitting, word, nodes)] if nodes else []

        self._commit(at, how, drafts)

    @precondition(lambda self: bool(self._seated))
    @rule(at=places, seed=st.integers(0, 30), how=hows)
    def commit_other_events(self, at: int, seed: int, how: How) -> None:
        """Turns, steps, calls, titles."""
        rng = Random(seed)
        self._commit(at, how, lambda sitting: draw_drafts(rng, self.stage.voice, sitting.known, 3))

    @precondition(lambda self: bool(self._seated))
    @rule(at=places, how=hows)
    def flush(self, at: int, how: How) -> None:
        self._act(at, how, partial(self.stage.flush, "writer"))

    @precondition(lambda self: bool(self._seated))
    @rule(at=places)
    def leave(self, at: int) -> None:
        self._seat(at).leave()
        self._move()

    # -- questions ----------------------------------------------------------------------------

    @precondition(lambda self: self.serving is not None)
    @rule(phrase=phrases, within=st.sampled_from((*[None] * 3, *IDS[:2])), limit=limits, how=hows)
    def search(self, phrase: str, within: str | None, limit: int, how: How) -> None:
        self._do(how, self._page, Question(within, phrase, limit=limit))

    @precondition(lambda self: bool(self._bookmarks))
    @rule(at=places, how=hows)
    def page(self, at: int, how: How) -> None:
        """The next page of the newest search that has one, or of one before."""
        before = self._bookmarks[-1 - at % len(self._bookmarks)]
        question = before.arguments[0]
        assert isinstance(question, Question)
        self._do(how, self._page, question, before)

    @precondition(lambda self: self.serving is not None)
    @rule(session_id=ids, seq=places, how=hows)
    def trace(self, session_id: str, seq: int, how: How) -> None:
        self._do(how, self._read, "trace_event", session_id, seq)

    @precondition(lambda self: self.serving is not None)
    @rule(
        what=st.sampled_from([each for each in READS if each != "trace_event"]),
        session_id=ids,
        seq=places,
        how=hows,
    )
    def read(self, what: str, session_id: str, seq: int, how: How) -> None:
        self._do(how, self._read, what, session_id, seq)

    # -- time, and others ---------------------------------------------------------------------

    @rule(seconds=st.sampled_from((0.0, 0.004, 0.3, 2.0)))
    def advance(self, seconds: float) -> None:
        self._advance(seconds)

    @precondition(lambda self: bool(self.stage.open))
    @rule(at=places)
    def cancel(self, at: int) -> None:
        """Cancel a request that is under way; a live session is left then."""
        number = sorted(self.stage.open)[at % len(self.stage.open)]
        self.stage.open[number].cancel()
        self._move()

    @rule(session_id=ids, store=st.sampled_from(STORES), seed=st.integers(0, 30))
    def change_from_outside(self, session_id: str, store: str, seed: int) -> None:
        """Another process writes, cuts, damages or deletes a log that nobody has live."""
        self.stage.hand.meddle(Random(seed), store, session_id)

    @rule(seconds=st.sampled_from((0.004, 0.3)))
    def fail_for_a_while(self, seconds: float) -> None:
        """The disk fails, and is well again."""
        self.stage.world.disk.faults = FAILING
        self._advance(seconds)
        self.stage.world.disk.faults = NO_FAULTS

    # -- what must hold -----------------------------------------------------------------------

    @invariant()
    def every_answer_can_be_explained(self) -> None:
        self.sound = False
        if self.serving is not None and self._is_quiet():
            self.stage.check(self.first_call)
        self.sound = True

    def teardown(self) -> None:
        """Everything comes to an end on a disk that is well; then the run is closed in any case."""
        if not hasattr(self, "guest"):
            return
        try:
            if getattr(self, "sound", False):
                self._come_to_rest()
        finally:
            self.sound = False
            with self.resources:
                self.guest.close()

    def _come_to_rest(self) -> None:
        self.stage.world.calm()
        if self.serving is None:
            self._open()
        self.guest.advance(SETTLED_SECONDS)
        left = [str(self.stage.history.calls[number]) for number in self._asking]
        assert not left, f"these were never answered: {left}"
        self.guest.call(ask_page, self.stage, "rest", Question(None, "a", limit=50))
        self.stage.check(self.first_call)
        self._stop()

    # -- how ----------------------------------------------------------------------------------

    @property
    def _seated(self) -> list[Seat]:
        return [seat for seat in self.seats if seat.at_rest] if hasattr(self, "seats") else []

    @property
    def _bookmarks(self) -> Sequence[Call]:
        if self.serving is None:
            return []
        calls = self.stage.history.calls[self.first_call :]
        return [call for call in calls if cursor_of(call) is not None]

    @property
    def _asking(self) -> list[int]:
        """Requests under way, but for those that hold a session live."""
        calls = self.stage.history.calls
        return [number for number in sorted(self.stage.open) if calls[number].what != "sit"]

    def _is_quiet(self) -> bool:
        return not self._asking and all(seat.at_rest for seat in self.seats)

    def _seat(self, at: int) -> Seat:
        return self._seated[at % len(self._seated)]

    def _open(self) -> None:
        self.sound = False
        self.seats: list[Seat] = []
        self.first_call = len(self.stage.history.calls)
        self.callers: trio.Nursery | None = None
        self.opened = trio.Event()
        self.stopping = trio.Event()
        self.serving = self.guest.start(self._serve)
        self.guest.call(self.opened.wait)

    async def _serve(self) -> None:
        with self.stage.world.incarnation() as life:
            async with trio.open_nursery() as callers, self.stage.service(life):
                self.callers = callers
                self.opened.set()
                await self.stopping.wait()

    def _stop(self) -> None:
        self.sound = False
        self.stopping.set()
        for seat in self.seats:
            seat.leave()
        self._ended()

    def _ended(self) -> None:
        """The service is gone, and all of its callers; what they were told is judged."""
        assert self.serving is not None
        self.guest.finish(self.serving)
        self.serving = None
        if not self.stage.life.crashed:
            self.stage.check(self.first_call)

    def _do(self, how: How, request: Callable[..., Awaitable[object]], *arguments: object) -> None:
        self.sound = False
        job = self.guest.start(partial(request, *arguments), nursery=self.callers)
        if how == "to the answer":
            self.guest.finish(job)
        elif how == "until all wait":
            self.guest.settle()

    def _advance(self, seconds: float) -> None:
        self.sound = False
        self.guest.advance(seconds)

    def _move(self) -> None:
        self.sound = False
        self.guest.settle()

    def _opening(self, session_id: str, durable: bool) -> Opening | None:
        """How to open a session that nobody has; nothing where that makes no sense."""
        history, hand, store = self.stage.history, self.stage.hand, self.stage.history.bound
        torn = any((root, session_id) in hand.torn for root in STORES)
        if torn or history.sitting(session_id) is not None:
            return None
        base = history.current(store, session_id) if store is not None else None
        if base is None:
            durably = durable and store is not None
            return creating(self.stage, header_of(session_id), durable=durably)
        return resuming(self.stage, base) if base.damage is None else None

    async def _sit(self, opening: Callable[[], Opening | None]) -> None:
        """Open a session, which is held by a task of its own then."""
        opened = opening() if not self.stage.closing else None
        if opened is None or self.callers is None:
            return
        sitting, manager = opened
        seat, present = Seat(sitting), trio.Event()
        self.seats.append(seat)

        async def hold(live: LiveSession, sitting: Sitting) -> None:
            present.set()
            await seat.hold(live, sitting)

        async def stay() -> None:
            try:
                with self.stage.asking("writer", "sit", (sitting.header.id,)):
                    await self.stage.sit("writer", sitting, manager, hold)
            finally:
                self.seats.remove(seat)
                present.set()

        self.callers.start_soon(stay)
        await present.wait()

    def _act(
        self, at: int, how: How, act: Callable[[LiveSession, Sitting], Awaitable[None]]
    ) -> None:
        self._do(how, self._seat(at).perform, act)

    def _commit(self, at: int, how: How, draw: Callable[[Sitting], list[EventDraft]]) -> None:
        async def act(live: LiveSession, sitting: Sitting) -> None:
            await self.stage.commit("writer", live, sitting, draw(sitting))

        self._act(at, how, act)

    async def _page(self, question: Question, before: Call | None = None) -> None:
        if not self.stage.closing:
            await ask_page(self.stage, "searcher", question, before)

    async def _read(self, what: str, session_id: str, seq: int) -> None:
        if not self.stage.closing:
            await ask_read(self.stage, "reader", what, session_id, seq, 1, 1)


def said(sitting: Sitting, text: str, in_place_of: Sequence[int] = ()) -> EventDraft:
    """A message of the user, maybe in place of some that the model saw before."""
    content: Json = [{"type": "text", "text": text}]
    source: Json = {"kind": "user"}
    name = f"m{len(sitting.known)}"
    data: Json = {"id": name, "role": "user", "content": content, "source": source}
    if not in_place_of:
        return EventDraft("user/message", data, surface_op="append")
    placed = Replace(in_place_of[0], in_place_of[-1])
    seqs = tuple(in_place_of)
    return EventDraft("user/message", data, surface_op=placed, source_event_seqs=seqs)
