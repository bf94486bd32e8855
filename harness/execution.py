"""The execution of one call: the body of a tool, and the policies around it.

The caller's own cancellation leaves an execution bare. What a host then records for the call stands
in ``if_cancelled``: that the tool never began, that it was stopped, that its deadline had come
first, or the answer that it had already given.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from enum import IntEnum
from functools import partial
from typing import TypeAlias

from attrs import define, field, frozen
from trio.lowlevel import checkpoint_if_cancelled

from ..tools.definition import Caller, Tool, ToolError
from .outcome import ABORTED, NEVER_DISPATCHED, TOOL_FAILED, Outcome

_log = logging.getLogger(__name__)

Proceed: TypeAlias = Callable[[], Awaitable[Outcome]]
"""Goes on inwards, at most once: to the next policy, and at last to the tool."""


@frozen
class ToolCall:
    """One call that a model, or a tool on its behalf, asks for."""

    id: str
    name: str
    arguments: object
    """Decoded JSON."""
    caller: Caller | None
    """Made by the host; ``None`` where it knows of no agent."""
    parent: str | None = field(default=None, kw_only=True)
    """The id of the call in whose course this one is made; ``None`` for a model's own."""


@define(eq=False)
class Execution:
    """One call on its way."""

    call: ToolCall
    tool: Tool
    _policies: tuple[Policy, ...]
    """Outermost first."""
    if_cancelled: Outcome = field(default=NEVER_DISPATCHED, init=False)
    """What is known of the call at this moment, should nobody be there to wait for more."""

    @property
    def parallel(self) -> bool:
        """Whether the tool says that the call may run beside others; in doubt it may not."""
        try:
            return self.tool.parallel(self.call.arguments) is True
        except Exception:
            _log.warning("%s cannot say whether it is parallel", self.tool.name, exc_info=True)
            return False

    async def run(self) -> Outcome:
        """Check the arguments and carry the call out, once.

        A cancelled caller is told so before a fault of the arguments is looked for. Errors of the
        tool are outcomes; what a policy raises leaves.
        """
        await checkpoint_if_cancelled()
        try:
            self.tool.checked(self.call.arguments)
        except ToolError as error:
            return Outcome.refusal(error)
        proceed: Proceed = self._body
        for policy in reversed(self._policies):
            proceed = partial(policy, self, proceed)
        return await proceed()

    async def _body(self) -> Outcome:
        await checkpoint_if_cancelled()
        self.if_cancelled = ABORTED
        self.if_cancelled = outcome = await self._answer()
        return outcome

    async def _answer(self) -> Outcome:
        try:
            return Outcome.of(await self.tool.run(self.call.caller, self.call.arguments))
        except ToolError as error:
            return Outcome.refusal(error)
        except Exception:
            _log.warning("tool %s failed", self.tool.name, exc_info=True)
            return TOOL_FAILED


Policy: TypeAlias = Callable[[Execution, Proceed], Awaitable[Outcome]]
"""Stands around every call: decides whether it proceeds, and sees what it comes to."""


class Place(IntEnum):
    """Where a policy stands, outermost first; within one place, who came first is outside."""

    SPILL = 0
    """Sees what all others have left of the result."""
    HOST = 1
    """A host's own policies: they see the whole result, and no deadline is running."""
    CHECKPOINT = 2
    """Nothing further in begins before the history up to here is stored."""
    DEADLINE = 3
    """Measures the tool alone."""
