"""Tools, calls and policies that the tests of the host's kit share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio
from attrs import define, field

from session_query.harness.execution import Execution, Proceed, ToolCall
from session_query.harness.outcome import Outcome
from session_query.messages.json import Json
from session_query.tools.definition import Arguments, Caller, Tool, ToolResult

CALLER = Caller("s", "/work")

SCHEMA: dict[str, Json] = {
    "type": "object",
    "properties": {"seconds": {"type": "number"}},
}


@define(eq=False)
class Workshop:
    """Makes tools that tell when they begin and end."""

    story: list[str] = field(factory=list, init=False)

    def tool(
        self,
        name: str = "work",
        *,
        parallel: bool = False,
        timeout_ms: int | None = None,
        answer: Callable[[], Awaitable[str]] | None = None,
        cleanup: float = 0,
    ) -> Tool:
        """A tool that takes the ``seconds`` of its arguments, and ``cleanup`` more if cancelled."""

        async def run(_caller: Caller | None, arguments: Arguments) -> ToolResult:
            self.story.append(f"{name} begins")
            try:
                await trio.sleep(arguments.get("seconds", 0))
                text = f"{name} answers" if answer is None else await answer()
            except trio.Cancelled:
                with trio.CancelScope(shield=True):
                    await trio.sleep(cleanup)
                self.story.append(f"{name} is cancelled")
                raise
            self.story.append(f"{name} ends")
            return ToolResult(text, {"name": name})

        return Tool(
            name,
            f"Does {name}.",
            SCHEMA,
            {"type": "object"},
            run,
            timeout_ms=timeout_ms,
            parallel=lambda _arguments: parallel,
        )

    def policy(self, name: str) -> Callable[[Execution, Proceed], Awaitable[Outcome]]:
        """A policy that tells when it is passed inwards and outwards."""

        async def pass_through(_execution: Execution, proceed: Proceed) -> Outcome:
            self.story.append(f"into {name}")
            outcome = await proceed()
            self.story.append(f"out of {name}")
            return outcome

        return pass_through


def call(
    name: str = "work",
    arguments: object = None,
    *,
    id: str = "c1",
    caller: Caller | None = CALLER,
    parent: str | None = None,
) -> ToolCall:
    """One call, without arguments unless they are given."""
    return ToolCall(id, name, {} if arguments is None else arguments, caller, parent=parent)


def code(outcome: Outcome) -> str | None:
    """The code of an error."""
    return None if outcome.fault is None else outcome.fault.code
