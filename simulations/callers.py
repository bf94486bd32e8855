"""Model callers: sessions whose steps call the five tools, and workspaces that ask without one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

import trio

from ..actors.live_session import LiveSession
from ..messages.config import ToolsConfig
from ..messages.event import EventDraft
from ..messages.json import Json, encode
from ..tools.definition import Caller, Tool, ToolError
from ..tools.session_tools import session_tools, workspace_tools
from .history import Call, Sitting
from .logs import draw_drafts, next_mark
from .stage import IDS, RESTING, Stage
from .tool_oracle import OWN_TOOLS
from .tool_questions import NOBODY, ToolQuestion, draw_arguments
from .verdict import Violation
from .workload import draw_opening, move_session

_KEPT: Final = 200
"""Code points of an answer that a caller writes down in its log."""

_STEPS: Final = 6
"""Half blocking calls that the call of a tool makes, more or less."""


async def call_tools(stage: Stage, who: str) -> None:
    """Hold sessions live, one after the other, whose steps call tools; else ask as a workspace."""
    rng = stage.world.stream(who)
    for _ in range(1 + stage.configuration.steps // 3):
        await stage.think(rng)
        if stage.closing:
            return
        opening = draw_opening(stage, rng) if rng.random() < 0.7 else None
        if opening is None:
            await _ask_as_workspace(stage, who, rng)
            continue
        sitting, manager = opening
        with stage.asking(who, "sit", (sitting.header.id, sitting.store or "nowhere")):
            await stage.sit(who, sitting, manager, partial(_take_steps, stage, who, rng))


async def _take_steps(
    stage: Stage, who: str, rng: Random, live: LiveSession, sitting: Sitting
) -> None:
    """Say something, then take steps that each call one or two tools and write the answers down."""
    caller, drafts = Caller.of(live), partial(draw_drafts, rng, stage.voice)
    await stage.commit(who, live, sitting, drafts(sitting.known, 2))
    for _ in range(rng.randint(1, 2)):
        if stage.closing:
            return
        tools = [_draw_tool(rng) for _ in range(rng.choice((1, 1, 2)))]
        while (mark := next_mark(sitting.known)) is not None:
            await stage.commit(who, live, sitting, [mark])
        asked = [
            (f"{who}.{number}", tool, _draw_arguments(stage, rng, tool, caller))
            for number, tool in enumerate(tools)
        ]
        first = len(sitting.known)
        requests = [_request(first + at, name, query) for at, (_, name, query) in enumerate(asked)]
        await stage.commit(who, live, sitting, requests)
        if len(sitting.known) == first:
            continue  # cancelled
        calls: dict[str, Call] = {}
        async with trio.open_nursery() as nursery:
            for each in asked:
                nursery.start_soon(_ask_beside, stage, caller, sitting, calls, *each)
        results = [_result(first + at, _told(calls[name])) for at, (name, _, _) in enumerate(asked)]
        await stage.commit(who, live, sitting, results)
    await stage.commit(who, live, sitting, drafts(sitting.known, 1))


async def _ask_beside(
    stage: Stage,
    caller: Caller,
    sitting: Sitting,
    calls: dict[str, Call],
    who: str,
    tool: str,
    arguments: dict[str, Json],
) -> None:
    calls[who] = await _ask_while_moving(stage, who, caller, sitting, tool, arguments)


def _draw_tool(rng: Random) -> str:
    return rng.choice((*OWN_TOOLS, "session_search", "session_event_search"))


def _request(seq: int, tool: str, arguments: dict[str, Json]) -> EventDraft:
    called: Json = {
        "turn": 1,
        "step": 1,
        "callId": f"c{seq}",
        "name": tool,
        "arguments": encode(arguments).decode(),
    }
    return EventDraft("tool/call", called)


def _result(call_seq: int, text: str) -> EventDraft:
    block: Json = {
        "type": "tool-result",
        "toolCallId": f"c{call_seq}",
        "isError": False,
        "content": [{"type": "text", "text": text}],
    }
    message: Json = {
        "id": f"r{call_seq}",
        "role": "user",
        "source": {"kind": "tool", "callId": f"c{call_seq}"},
        "content": [block],
    }
    return EventDraft(
        "tool/result",
        {"turn": 1, "step": 1, "message": message},
        surface_op="append",
        source_event_seqs=(call_seq,),
    )


def _told(call: Call) -> str:
    """What a model is told of a call."""
    text = getattr(call.reply, "text", None)
    return str(text if text is not None else call.error or "cancelled")[:_KEPT]


async def _ask_as_workspace(stage: Stage, who: str, rng: Random) -> None:
    cwd, tool = rng.choice(("/w", "/v")), _draw_tool(rng)
    caller = Caller.of_workspace(cwd)
    arguments = _draw_arguments(stage, rng, tool, caller)
    await _ask_while_moving(stage, who, caller, None, tool, arguments)


def _draw_arguments(stage: Stage, rng: Random, tool: str, caller: Caller) -> dict[str, Json]:
    """Arguments of a call, most about sessions that are of the workspace, if only for now."""
    history, store = stage.history, stage.history.bound
    logs = [history.current(store, each) for each in history.ids] if store is not None else []
    near = [log.header.id for log in logs if log is not None and log.header.cwd == caller.cwd]
    ids = near if near and rng.random() < 0.6 else history.ids
    return draw_arguments(rng, tool, ids, has_own=caller.session_id is not None)


async def _ask_while_moving(
    stage: Stage,
    who: str,
    caller: Caller,
    sitting: Sitting | None,
    tool: str,
    arguments: dict[str, Json],
) -> Call:
    """Call a tool while somebody may move what is asked about, or another session."""
    rng, chance = stage.world.stream(f"moves {who}"), stage.configuration.moves
    named = arguments.get("session_id")
    session_id = rng.choice(stage.history.ids or IDS) if named is None else str(named)
    async with trio.open_nursery() as nursery:
        if stage.history.bound is not None and rng.random() < chance:
            move = partial(move_session, stage, rng, stage.history.bound, session_id)
            nursery.start_soon(_do_soon, stage, rng, move)
        return await ask_tool(stage, who, caller, sitting, tool, arguments)


async def _do_soon(stage: Stage, rng: Random, action: Callable[[], None]) -> None:
    """Do something in the course of a call, between two steps of it or in the middle of one."""
    if rng.random() < 0.3:
        stage.world.meddle(rng.randint(1, 16), action)
        stage.world.marks.hit("a write in the middle of a call")
        return
    await trio.sleep(round(rng.random() * _STEPS * stage.configuration.latency, 4))
    action()


async def ask_tool(
    stage: Stage,
    who: str,
    caller: Caller,
    sitting: Sitting | None,
    tool: str,
    arguments: dict[str, Json],
) -> Call:
    """One call of one tool and what came of it: an answer, a refusal or a cancellation."""
    step = caller.step_start()
    if sitting is not None:
        starts = [event.seq for event in sitting.known if event.type == "step/start"]
        if step != (starts[-1] if starts else None):
            raise Violation(f"{who} is in the step of {step}, not of {starts}")
    question = ToolQuestion(tool, arguments, caller.session_id, caller.cwd, step)
    with stage.asking(who, "tool", (question,)) as call:
        try:
            call.reply = await _tool(stage, caller, tool).run(caller, arguments)
        except ToolError as error:
            call.error = error
    outcome = "cancelled" if call.cancelled else "refused" if call.error else "answered"
    stage.world.marks.hit(f"{tool} is {outcome}")
    return call


def _tool(stage: Stage, caller: Caller, name: str) -> Tool:
    config = ToolsConfig(max_search_results=stage.configuration.shown)
    tools = session_tools if caller.session_id is not None else workspace_tools
    return next(tool for tool in tools(stage.query, config) if tool.name == name)


async def ask_at_rest(stage: Stage) -> None:
    """Ask in both workspaces about every session there is, and about one that is not."""
    for cwd in ("/w", "/v"):
        ask = partial(ask_tool, stage, RESTING, Caller.of_workspace(cwd), None)
        await ask("session_search", {"query": "a"})
        for session_id in (*stage.history.ids, NOBODY):
            await ask("session_trace", {"session_id": session_id})
