"""A whole agent loop with everything around its tools; only its model is a script.

    python examples/harness.py [FOLDER]

An agent looks up what an earlier session found out, reads it, meets a tool that answers too much
and one that takes too long, and leaves a log like any other. Without FOLDER all of it is kept in a
temporary one.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import trio
from attrs import frozen

from session_query import (
    Caller,
    Event,
    EventDraft,
    Execution,
    Harness,
    LiveSession,
    Outcome,
    Proceed,
    Tool,
    ToolCall,
    ToolError,
    ToolResult,
    open_harness,
    parse_configuration,
)

CONFIGURATION = """
[store]
root = "sessions"

[index]
path = "index.db"

[tools]
max_search_results = 20

[spill]
max_inline_bytes = 2000
root = "results"
"""


# -- the model ----------------------------------------------------------------------------------


@frozen
class Reply:
    """What a model says, and the calls that it asks for: a name and arguments each."""

    text: str
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()


class ScriptedModel:
    """Says one reply after the other. A real one would be sent all that ``ask`` is given."""

    def __init__(self, *replies: Reply | Callable[[Sequence[Event]], Reply]) -> None:
        self._replies = iter(replies)

    async def ask(self, system: str, tools: Sequence[Tool], messages: Sequence[Event]) -> Reply:
        await trio.lowlevel.checkpoint()
        print(f"model: asked with {len(tools)} tools and {len(messages)} messages")
        reply = next(self._replies)
        return reply if isinstance(reply, Reply) else reply(messages)


def read_on(messages: Sequence[Event]) -> Reply:
    """Go on with the result that was too long, where the notice at its end says that it is."""
    text = json.dumps(messages[-1].data)
    path = re.search(r"the whole result: ([^;]+);", text)
    assert path is not None
    more: tuple[tuple[str, dict[str, Any]], ...] = (
        ("read", {"path": path[1]}),
        ("read", {"path": "nowhere.py"}),
        ("run_tests", {}),
        ("session_event_read", {}),
    )
    return Reply("I want all of that, and the tests.", more)


# -- the host's own tools and policy ------------------------------------------------------------


def tool(name: str, run: Any, *required: str, **more: Any) -> Tool:
    """A tool whose arguments are texts, and which answers with text alone."""

    async def answer(caller: Caller | None, arguments: Mapping[str, Any]) -> ToolResult:
        return ToolResult(await run(arguments), {})

    properties: Any = {argument: {"type": "string"} for argument in required}
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return Tool(name, f"Runs {name}.", parameters, {"type": "object"}, answer, **more)


async def grep(arguments: Mapping[str, Any]) -> str:
    lines = (f"src/module_{number}.py:7: {arguments['pattern']} = 30" for number in range(400))
    return "\n".join(lines)


async def read(arguments: Mapping[str, Any]) -> str:
    try:
        return await trio.Path(arguments["path"]).read_text("utf-8")
    except OSError as error:
        raise ToolError("NO_FILE", f"{arguments['path']} cannot be read; check it") from error


async def run_tests(arguments: Mapping[str, Any]) -> str:
    return await trio.sleep_forever()


def recording(live: LiveSession) -> Any:
    """A policy: each call stands in the log, and thereby in the store, before its tool begins."""

    async def record(execution: Execution, proceed: Proceed) -> Outcome:
        call = execution.call
        called = {"callId": call.id, "name": call.name, "arguments": json.dumps(call.arguments)}
        await live.commit(EventDraft("tool/call", called))
        return await proceed()

    return record


# -- the loop -----------------------------------------------------------------------------------


async def run_turn(
    kit: Harness, live: LiveSession, question: str, model: ScriptedModel, turn: int = 1
) -> None:
    """Ask, run what the model calls, tell it what came of that, until it calls nothing more."""
    await live.commit(EventDraft("turn/start", {"turn": turn}))
    await live.commit(said(live, {"kind": "user"}, {"type": "text", "text": question}))
    for step in count(1):
        place = {"turn": turn, "step": step}
        await kit.checkpoints.store(live.id)  # the hook before a step
        await live.commit(EventDraft("step/start", place))
        await kit.checkpoints.store(live.id)  # no model sees what a crash could still take back
        messages = [live.events[seq] for seq in live.surface]
        reply = await model.ask(kit.prompt.text, kit.tools.tools, messages)
        calls = [
            ToolCall(f"t{turn}s{step}c{number}", name, arguments, Caller.of(live))
            for number, (name, arguments) in enumerate(reply.calls, 1)
        ]
        await live.commit(answered(live, place, reply, calls))
        outcomes = await kit.scheduler.run(calls)
        for call, outcome in zip(calls, outcomes, strict=True):
            await live.commit(came_to(live, place, call, outcome))
            show(call, outcome)
        await live.commit(EventDraft("step/end", place))
        if not calls:
            break
    await live.commit(EventDraft("turn/end", {"turn": turn, "reason": {"kind": "completed"}}))
    print(f"model: {reply.text}")


def said(live: LiveSession, source: dict[str, str], *content: Any) -> EventDraft:
    data = {"id": f"m{live.length}", "role": "user", "source": source, "content": list(content)}
    return EventDraft("user/message", data, surface_op="append")


def answered(
    live: LiveSession, place: dict[str, int], reply: Reply, calls: Sequence[ToolCall]
) -> EventDraft:
    asked = [
        {
            "type": "tool-call",
            "id": call.id,
            "name": call.name,
            "arguments": json.dumps(call.arguments),
        }
        for call in calls
    ]
    message = {
        "id": f"m{live.length}",
        "role": "assistant",
        "source": {"kind": "model", "provider": "example", "model": "script"},
        "content": [{"type": "text", "text": reply.text}, *asked],
    }
    data = {**place, "message": message, "stream": []}
    return EventDraft("assistant/message", data, surface_op="append")


def came_to(
    live: LiveSession, place: dict[str, int], call: ToolCall, outcome: Outcome
) -> EventDraft:
    texts = [{"type": "text", "text": text} for text in (outcome.text, *outcome.contexts)]
    block: dict[str, Any] = {"type": "tool-result", "toolCallId": call.id, "content": texts}
    error: dict[str, Any] = {}
    if outcome.fault is not None:
        block["isError"] = True
        error = {"error": {"name": outcome.fault.name, "code": outcome.fault.code}}
    message = {
        "id": f"m{live.length}",
        "role": "user",
        "source": {"kind": "tool", "callId": call.id},
        "content": [block],
    }
    return EventDraft("tool/result", {**place, "message": message, **error}, surface_op="append")


def show(call: ToolCall, outcome: Outcome) -> None:
    code = "" if outcome.fault is None else f" {outcome.fault.code}"
    kept = "" if outcome.spilled is None else f", the whole in {Path(outcome.spilled.locator).name}"
    print(f"  {call.name}{code}: {len(outcome.text.encode())} bytes{kept}")


# -- two sessions -------------------------------------------------------------------------------


async def earlier_session(kit: Harness) -> None:
    """What the agent found out last week."""
    async with kit.query.sessions.create(id="last-week", cwd="/work/shop") as live:
        found = Reply("The login timeout is the wait for a connection: the pool holds only five.")
        await run_turn(kit, live, "Why does the login hang?", ScriptedModel(found))


async def todays_session(kit: Harness) -> None:
    """Four steps, of which three call tools."""
    async with kit.query.sessions.create(id="today", cwd="/work/shop") as live:
        model = ScriptedModel(
            Reply("Have I seen this?", (("session_search", {"query": "login timeout"}),)),
            Reply(
                "I have. What was it?",
                (
                    ("session_event_read", {"session_id": "last-week", "seq": 3, "before": 2}),
                    ("session_trace", {"session_id": "last-week"}),
                    ("grep", {"pattern": "POOL_TIMEOUT"}),
                ),
            ),
            read_on,
            Reply("It is the connection pool again: it holds only five."),
        )
        with kit.tools.wrap(recording(live)):
            await run_turn(kit, live, "The login hangs again.", model)


async def main(folder: str) -> None:
    """Run both sessions and leave their logs in ``folder``."""
    configuration = parse_configuration(CONFIGURATION, folder)
    async with open_harness(configuration) as kit:
        await earlier_session(kit)
        for own in (
            tool("grep", grep, "pattern", parallel=lambda arguments: True),
            tool("read", read, "path", parallel=lambda arguments: True),
            tool("run_tests", run_tests, timeout_ms=50),
        ):
            kit.tools.register(own)
        await todays_session(kit)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        trio.run(main, sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as temporary:
            trio.run(main, temporary)
