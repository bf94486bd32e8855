"""The play: incarnations one after the other with every role in them, then the liveness phase.

The *safety phase* has all faults and ends each incarnation in a crash or in order. In the
*liveness phase* nothing fails any more, and within a bound everything has to come to rest: each
search finds what is there, sessions can be written to, and nothing runs or is held.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from random import Random
from typing import Final, Literal

import trio

from ..actors.live_session import LiveSession
from ..messages.config import MEMORY
from .callers import ask_at_rest, call_tools
from .faults import Configuration, hasty_inventory, small_bounds
from .history import Sitting
from .logs import PHRASES, draw_drafts
from .questions import Question
from .stage import IDS, RESTING, Stage
from .verdict import Violation
from .workload import ROLES, Role, ask_page, crash, populate, resuming, watch
from .world import World

End = Literal["crash", "restart", "calm"]

_FIRST_PAGE: Final = 4096
"""Bytes of an index file that say whose it is."""

REST_SECONDS: Final = 60.0
"""Virtual seconds that the liveness phase may take."""


async def play(world: World, configuration: Configuration) -> None:
    """Run the whole of one seed.

    Raises:
        Violation: something was answered that the history cannot explain.
        NotLive: something did not come to an end.
    """
    bounds = configuration.bounds
    with small_bounds(bounds) if bounds else nullcontext(), hasty_inventory(configuration):
        stage = Stage(world, configuration)
        populate(stage)
        for end in ends(configuration, world.stream("ends")):
            await incarnation(stage, end)


def ends(configuration: Configuration, rng: Random) -> Sequence[End]:
    """How each incarnation ends; the last one comes to rest."""
    drawn: list[End] = ["crash"] * configuration.crashes
    drawn += ["restart"] * configuration.restarts
    rng.shuffle(drawn)
    return [*drawn, "calm"]


async def incarnation(stage: Stage, end: End) -> None:
    """One life of the process, and the judgement of what was asked in it."""
    world, first_call = stage.world, len(stage.history.calls)
    world.disk.faults, world.latency = stage.configuration.faults, stage.configuration.pace
    world.disk.medium.tells = stage.configuration.tells > 0
    _lose_index(stage)
    with world.incarnation() as life:
        async with trio.open_nursery() as callers, stage.service(life):
            acted = trio.Event()
            callers.start_soon(_act, stage, acted)
            for number in range(stage.configuration.watchers):
                callers.start_soon(watch, stage, f"watcher {number}")
            await _until(stage, end, acted)
    if life.crashed:
        stage.audit()
    stage.check(first_call)


async def _act(stage: Stage, acted: trio.Event) -> None:
    """Play every role to its end."""
    async with trio.open_nursery() as roles:
        for name, (role, count) in (ROLES | CALLERS).items():
            for number in range(count(stage)):
                who = f"{name} {stage.life.number}.{number}"
                roles.start_soon(_perform, role, stage, who, name=who)
    acted.set()


async def _perform(role: Role, stage: Stage, who: str) -> None:
    await role(stage, who)


async def _until(stage: Stage, end: End, acted: trio.Event) -> None:
    """Let the roles play until this incarnation is to end."""
    world, number = stage.world, stage.life.number
    match end:
        case "restart":
            rng = world.stream(f"restart {number}")
            with trio.move_on_after(round(rng.random() * 4 * stage.configuration.think, 4)):
                await acted.wait()
            world.marks.hit("a service closes with requests under way" if stage.open else "a close")
        case "crash":
            await crash(stage, f"crasher {number}")
            await acted.wait()
            world.crash()
            await trio.sleep_forever()
        case "calm":
            await acted.wait()
            world.calm()
            with world.within(REST_SECONDS, "the liveness phase"):
                await _rest(stage)


async def _rest(stage: Stage) -> None:
    """Everything works again, and then nothing is left to do."""
    rng, limit = stage.world.stream("rest"), min(50, stage.configuration.page)
    for session_id in IDS:
        await _write_again(stage, session_id, rng)
    phrases = sorted(set(PHRASES))
    for phrase in phrases[:2] if stage.configuration.callers else phrases:
        await ask_page(stage, RESTING, Question(None, phrase, limit=limit))
    for session_id in stage.history.ids:
        await ask_page(stage, RESTING, Question(session_id, rng.choice(PHRASES), limit=limit))
    if stage.configuration.callers:
        await ask_at_rest(stage)
    generations = []
    for _ in range(2):
        await trio.sleep(1)
        with stage.asking(RESTING, "refresh", ()) as call:
            call.reply = await stage.query.refresh()
            generations.append(call.reply)
    if generations[0] != generations[1]:
        raise Violation(f"nothing changes, and the generation goes from {generations}")
    while stage.world.runtime.calls:  # noqa: ASYNC110 - nobody tells
        await trio.sleep(0.1)


async def _write_again(stage: Stage, session_id: str, rng: Random) -> None:
    """Resume or create one session, commit and flush."""
    history, store = stage.history, stage.history.bound
    if store is None or history.sitting(session_id) or (store, session_id) in stage.hand.torn:
        return
    base = history.current(store, session_id)
    if base is None or base.damage is not None:
        return
    sitting, manager = resuming(stage, base)

    async def body(live: LiveSession, sitting: Sitting) -> None:
        drafts = draw_drafts(rng, stage.voice, sitting.known, 2)
        await stage.commit(RESTING, live, sitting, drafts)
        await stage.flush(RESTING, live, sitting)

    await stage.sit(RESTING, sitting, manager, body)
    if sitting.failed:
        raise Violation(f"{session_id} could not be written to on a disk that is well again")


CALLERS: Final[dict[str, tuple[Role, Callable[[Stage], int]]]] = {
    "caller": (call_tools, lambda stage: stage.configuration.callers)
}


def _lose_index(stage: Stage) -> None:
    """Maybe the index file is gone, or damaged, when a service opens it."""
    rng, path = stage.world.stream("index"), stage.world.index_path
    lost = rng.random() < stage.configuration.lose_index
    if path == MEMORY or not lost or not os.path.exists(path):
        return
    if rng.random() < 0.5:
        for suffix in ("", "-wal", "-shm", "-journal"):
            if os.path.exists(path + suffix):
                os.unlink(path + suffix)
        stage.world.marks.hit("a lost index")
        return
    size = os.path.getsize(path)
    if size > _FIRST_PAGE:  # without its first page it would be somebody else's file
        with open(path, "r+b") as file:
            file.seek(rng.randrange(_FIRST_PAGE, size))
            file.write(rng.randbytes(200))
        stage.world.marks.hit("a damaged index")
