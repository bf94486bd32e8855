"""Live sessions over a store that can fail, in virtual time: what the actor tests share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

import trio
from attrs import define, field
from builders import user_data
from faulty_store import FaultyStore
from inline_runtime import InlineRuntime, Wait, lasting
from trio.testing import MockClock

from session_query.actors.binding import StoreBinding
from session_query.actors.registry import Sessions
from session_query.messages.config import QueryConfig
from session_query.messages.event import Event, EventDraft, Replace
from session_query.messages.header import SessionHeader
from session_query.storage.memory import MemoryStore

CLOSE_TIMEOUT = 5.0


@define(eq=False)
class World:
    """Sessions, their store, and the pretended worker threads between them."""

    store: FaultyStore = field(factory=FaultyStore)
    runtime: InlineRuntime = field(factory=InlineRuntime)
    binding: StoreBinding = field(init=False)
    sessions: Sessions = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.binding = StoreBinding(self.store)
        config = QueryConfig(close_timeout=CLOSE_TIMEOUT)
        self.sessions = Sessions(self.runtime, self.binding, config)

    def assert_quiet(self) -> None:
        """Nothing is live, owned or under way."""
        assert not self.sessions.live
        assert not self.sessions._claimed
        assert self.store.open_handles == 0
        assert self.runtime.calls == 0


def world_of(*logs: tuple[SessionHeader, Iterable[Event]]) -> World:
    """A world with stored sessions."""
    return World(FaultyStore(MemoryStore(logs)))


@define(eq=False)
class Hang:
    """A pace that keeps the named store operation waiting until it is let go."""

    operation: str
    over: trio.Event = field(factory=trio.Event)

    def __call__(self, fn: Callable[..., object]) -> Wait:
        name = getattr(getattr(fn, "func", fn), "__name__", "")
        return self.over.wait if name == self.operation else lasting(0)(fn)


def message(text: str) -> EventDraft:
    """A user message at the end of the surface."""
    return EventDraft("user/message", user_data(text, text), surface_op="append")


def replacement(start: int, end: int, *sources: int) -> EventDraft:
    """A message in the place of nodes ``start`` to ``end``."""
    data = user_data("summary", f"summary of {start} to {end}")
    return EventDraft(
        "user/message", data, surface_op=Replace(start, end), source_event_seqs=sources
    )


def title(text: str) -> EventDraft:
    data = {"title": text, "messageSeqs": [], "source": {"kind": "user"}}
    return EventDraft("session/title", data)


def turn(kind: str, number: int = 1) -> EventDraft:
    """The ``start`` or the ``end`` of a turn."""
    reason = {} if kind == "start" else {"reason": {"kind": "completed"}}
    return EventDraft(f"turn/{kind}", {"turn": number, **reason})


@define(eq=False)
class CancelAfterSteps(trio.abc.Instrument):
    """Cancels a scope when its task has taken so many steps."""

    scope: trio.CancelScope
    task: trio.lowlevel.Task
    steps: int

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self.task:
            self.steps -= 1
            if self.steps == 0:
                self.scope.cancel()


def cancelled_everywhere(scenario: Callable[[], Awaitable[None]]) -> int:
    """Run ``scenario`` again and again, cancelled one step later each time; how often it was.

    Each run has its own clock and starts from nothing, so what must hold afterwards is asserted by
    the scenario itself, in a ``finally``.
    """
    times = 0
    while trio.run(_cancelled_after, scenario, times + 1, clock=MockClock(autojump_threshold=0)):
        times += 1
    return times


async def _cancelled_after(scenario: Callable[[], Awaitable[None]], steps: int) -> bool:
    with trio.CancelScope() as scope:
        instrument = CancelAfterSteps(scope, trio.lowlevel.current_task(), steps)
        trio.lowlevel.add_instrument(instrument)
        try:
            await scenario()
        finally:
            trio.lowlevel.remove_instrument(instrument)
    return scope.cancel_called
