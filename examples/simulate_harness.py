"""A small agent harness in a simulated world: other schedules, cancellations and crashes per seed.

    python examples/simulate_harness.py [SEEDS]

The harness asks a scripted model, runs the tools that it calls, and commits all of it. Each seed
cancels a turn somewhere and cuts the power somewhere; the scenario checks what the harness promises
its user, and the kit replays a seed that breaks a promise, step by step.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from random import Random  # noqa: TID251 - the type of what the kit draws from

import trio
from attrs import define, field, frozen

from session_query import (
    Event,
    EventDraft,
    IndexConfig,
    JsonlStore,
    LiveSession,
    SessionQuery,
    SessionQueryError,
    open_session_query,
)
from session_query.simulations import Kind, Violation, World, simulate

SESSION = "agent"
QUESTIONS = ("Why does the login hang?", "Which pool is too small?", "Is the login well again?")

# -- the harness: what you would bring -----------------------------------------------------------


@define
class Harness:
    """Runs turns of one session; a turn that was told to be done is stored."""

    query: SessionQuery
    done: list[str] = field(factory=list)
    """Questions whose turn is stored, as far as the user was told."""

    async def run_turn(self, live: LiveSession, question: str) -> None:
        await live.commit(said(live, "user", question))
        for call in model(question):
            await live.commit(EventDraft("tool/call", {"name": call, "arguments": question}))
            result = await self.run_tool(call)
            await live.commit(said(live, "tool", result))
        await live.commit(said(live, "model", f"Answered: {question}"))
        await live.flush()
        self.done.append(question)

    async def run_tool(self, name: str) -> str:
        if name == "search":
            page = await self.query.search_sessions("login")
            return f"{len(page.items)} sessions know of it"
        await trio.sleep(0.5)
        return "the tests pass"


def model(question: str) -> tuple[str, ...]:
    """The tools that a model would call; this one is a script."""
    return ("search", "run_tests") if "login" in question else ("search",)


def said(live: LiveSession, who: str, text: str) -> EventDraft:
    data = {
        "id": f"m{live.length}",
        "role": "user",
        "content": [{"type": "text", "text": text}],
        "source": {"kind": "user"} if who == "user" else {"kind": who},
    }
    return EventDraft("user/message", data, surface_op="append")


# -- the scenario: what happens to it, and what must hold ----------------------------------------


@frozen
class Plan:
    """When things go wrong, in virtual seconds."""

    cancel_at: float
    crash_at: float


@frozen
class Agent:
    """Turns of an agent, of which one is cancelled, until the power fails; then a new process."""

    name: str = "agent"
    marks: frozenset[str] = frozenset({"a turn was cancelled", "the power failed"})

    def configure(self, stream: Random, overrides: Mapping[str, str]) -> Plan:
        if overrides:
            raise ValueError(f"the agent knows no settings, got {', '.join(sorted(overrides))}")
        return Plan(round(stream.uniform(0, 0.6), 3), round(stream.uniform(0.1, 2), 3))

    async def run(self, world: World, plan: Plan) -> None:
        told: list[str] = []
        with world.incarnation():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.cut_power, world, plan)
                await self.work(world, plan, told)
        world.calm()
        with world.incarnation():
            async with service(world) as query:
                await check(query, told)

    async def work(self, world: World, plan: Plan, told: list[str]) -> None:
        async with service(world) as query:
            harness = Harness(query, told)
            async with query.sessions.create(id=SESSION, cwd="/work") as live:
                with trio.move_on_after(plan.cancel_at) as turn:
                    await harness.run_turn(live, QUESTIONS[0])
                if turn.cancelled_caught:
                    world.marks.hit("a turn was cancelled")
                for question in QUESTIONS[1:]:
                    await harness.run_turn(live, question)

    async def cut_power(self, world: World, plan: Plan) -> None:
        await trio.sleep(plan.crash_at)
        world.marks.hit("the power failed")
        world.crash()


def service(world: World) -> AbstractAsyncContextManager[SessionQuery]:
    """The service in this world: its disk, its index files, its clock."""
    return open_session_query(
        store=JsonlStore("/sessions", files=world.disk),
        index=IndexConfig(path=world.index_path),
        runtime=world.runtime,
    )


async def check(query: SessionQuery, told: list[str]) -> None:
    """Whatever the user was told to be done is there, and is found."""
    try:
        events = (await query.read_session(SESSION)).events
    except SessionQueryError:
        events = ()
    texts = [text_of(event) for event in events if event.type == "user/message"]
    for question in told:
        if f"Answered: {question}" not in texts:
            raise Violation(f"the user was told of {question!r}, and the log has {texts}")
    found = (await query.search_sessions("answered")).items
    answered = any(text.startswith("Answered") for text in texts)
    if bool(found) != answered:
        raise Violation(f"an answer is stored: {answered}, and found: {found}")


def text_of(event: Event) -> str:
    match event.data:
        case {"content": [{"text": str(text)}]}:
            return text
    return ""


# -- many runs -----------------------------------------------------------------------------------


def main(seeds: int = 25) -> int:
    """Run so many seeds and say what they reached; the exit code."""
    reached: Counter[str] = Counter()
    for seed in range(seeds):
        outcome = simulate(Agent(), seed)
        if outcome.kind is not Kind.PASS:
            print(f"seed {seed}, {outcome.kind.title}: {outcome.message}")
            print("\n".join(outcome.trace[-20:]))
            return int(outcome.kind.value)
        reached.update(outcome.marks.keys())
    print(f"{seeds} seeds: every turn that was told to be done is stored and found")
    for mark, runs in sorted(reached.items()):
        print(f"  in {runs} of them {mark}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:2])))
