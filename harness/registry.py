"""The registry: which tools there are, and which policies stand around them."""

from __future__ import annotations

from functools import partial
from typing import Final, NoReturn

from attrs import define, field

from ..messages.errors import ErrorCode, SessionQueryError
from ..tools.definition import Arguments, Caller, Tool, ToolError, ToolResult
from ..tools.quoting import quoted
from .execution import Execution, Place, Policy, ToolCall
from .outcome import HarnessErrorCode, Outcome
from .registration import Registration

MAX_TIMEOUT_MS: Final = 2**31 - 1
_SHOWN: Final = 80
"""Code points of an unknown name that an error repeats."""


@define(eq=False)
class ToolRegistry:
    """The tools of a host under their names, its own and this library's alike."""

    _tools: dict[str, Tool] = field(factory=dict, init=False)
    _policies: list[tuple[Place, Policy]] = field(factory=list, init=False)

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools in the order in which they were registered."""
        return tuple(self._tools.values())

    def register(self, tool: Tool) -> Registration:
        """Offer a tool until its registration is disposed of. Calls on their way are not touched.

        Raises:
            SessionQueryError: ``INVALID_CONFIG`` where the name is taken, or ``timeout_ms`` is no
                whole number from 1 to 2 147 483 647.
        """
        if tool.name in self._tools:
            _refuse(f"a tool named {tool.name!r} is registered already; names are unique")
        limit = tool.timeout_ms
        if limit is not None and not (type(limit) is int and 1 <= limit <= MAX_TIMEOUT_MS):
            _refuse(
                f"timeout_ms of {tool.name!r} must be a whole number from 1 to {MAX_TIMEOUT_MS},"
                f" got {limit!r}"
            )
        self._tools[tool.name] = tool
        return Registration(partial(self._remove, tool))

    def wrap(self, policy: Policy, place: Place = Place.HOST) -> Registration:
        """Put a policy around every call that begins from now on."""
        entry = (place, policy)
        self._policies.append(entry)
        self._policies.sort(key=lambda entry: entry[0])
        return Registration(partial(self._unwrap, entry))

    def execution(self, call: ToolCall) -> Execution:
        """A call made ready, with the tool and the policies of this moment."""
        tool = self._tools.get(call.name) or _unknown(call.name)
        return Execution(call, tool, tuple(policy for _place, policy in self._policies))

    async def call(self, call: ToolCall) -> Outcome:
        """Carry out one call by itself; see ``Execution.run``."""
        return await self.execution(call).run()

    def _remove(self, tool: Tool) -> None:
        del self._tools[tool.name]

    def _unwrap(self, entry: tuple[Place, Policy]) -> None:
        at = next(at for at, known in enumerate(self._policies) if known is entry)
        del self._policies[at]


def _unknown(name: str) -> Tool:
    """What stands in for a tool that nobody has registered."""

    async def refuse(_caller: Caller | None, _arguments: Arguments) -> ToolResult:
        raise ToolError(
            HarnessErrorCode.UNKNOWN_TOOL,
            f"there is no tool {quoted(name[:_SHOWN])}; call one of those that are offered",
        )

    return Tool(name, "", {}, {}, refuse)


def _refuse(message: str) -> NoReturn:
    raise SessionQueryError(ErrorCode.INVALID_CONFIG, message)
