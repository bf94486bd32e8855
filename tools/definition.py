"""What a tool is: its name, what it takes and answers, who calls it, and how it fails."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from attrs import field, frozen

from ..messages.errors import SessionError
from ..messages.json import Json
from .quoting import scrubbed, scrubbed_json
from .schema import fault

if TYPE_CHECKING:
    from ..actors.live_session import LiveSession

Arguments: TypeAlias = Mapping[str, Any]
"""The arguments of one call, checked against the schema of the tool."""


class ToolErrorCode(StrEnum):
    """The codes that tools add to those of ``ErrorCode``."""

    INVALID_ARGS = "INVALID_ARGS"
    """The arguments break the schema."""
    MISSING_AGENT = "SESSION_QUERY_TOOL_MISSING_AGENT"
    UNAUTHORIZED = "SESSION_QUERY_TOOL_UNAUTHORIZED"
    """The session is in another workspace, or there is none of that id: nobody is told which."""
    NO_CURRENT_STEP = "SESSION_QUERY_TOOL_NO_CURRENT_STEP"
    FAILED = "SESSION_QUERY_TOOL_FAILED"
    """Something went wrong that a model can do nothing about; the cause is in the log."""


class ToolError(SessionError):
    """A call failed. The message is written for the model; it names no cause and has none."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(scrubbed(message))
        self.code = str(code)


def _no_step() -> int | None:
    return None


@frozen
class Caller:
    """Who calls a tool. A host makes one for every call, from what it knows, never from arguments.

    Only sessions whose working directory is just ``cwd`` may be seen, and the caller's own.
    """

    session_id: str | None
    """The caller's own session; ``None`` where a workspace asks, as over MCP."""
    cwd: str | None
    """Where ``None``, nothing but the own session may be seen."""
    step_start: Callable[[], int | None] = field(default=_no_step, kw_only=True)
    """The seq of the last ``step/start`` of the own session: what follows is going on just now."""

    @classmethod
    def of(cls, live: LiveSession) -> Caller:
        """The agent whose session this is."""

        def step_start() -> int | None:
            starts = (event.seq for event in reversed(live.events) if event.type == "step/start")
            return next(starts, None)

        return cls(live.id, live.header.cwd, step_start=step_start)

    @classmethod
    def of_workspace(cls, cwd: str) -> Caller:
        """Somebody without a session, who may see all sessions of one working directory."""
        return cls(None, cwd)


def _scrubbed_object(value: dict[str, Json]) -> dict[str, Json]:
    return {key: scrubbed_json(item) for key, item in value.items()}


@frozen
class ToolResult:
    """What a call answers: the same facts as a text for the model and as data for programs.

    Neither holds a lone surrogate.
    """

    text: str = field(converter=scrubbed)
    structured: dict[str, Json] = field(converter=_scrubbed_object)
    """Valid under the ``output`` schema of the tool."""


@frozen
class CallCard:
    """How a call is shown to people while it runs."""

    kind: Literal["search", "read"]
    title: str = field(converter=scrubbed)
    raw_input: Json = field(default=None, converter=scrubbed_json)
    """The telling part of the arguments; ``None`` where there is none."""


def _exclusive(_arguments: Arguments) -> bool:
    return False


def _no_card(_arguments: Arguments) -> CallCard | None:
    return None


@frozen
class Tool:
    """One tool, ready to be called."""

    name: str
    description: str
    parameters: dict[str, Json]
    """JSON schema of the arguments; an open object."""
    output: dict[str, Json]
    """JSON schema of ``ToolResult.structured``."""
    _run: Callable[[Caller | None, Arguments], Awaitable[ToolResult]] = field(alias="run")
    timeout_ms: int | None = None
    """After how many ms a host should cancel the call; ``None``: it needs no deadline."""
    _parallel: Callable[[Arguments], bool] = field(default=_exclusive, alias="parallel")
    _card: Callable[[Arguments], CallCard | None] = field(default=_no_card, alias="card")

    def checked(self, arguments: object) -> Arguments:
        """The arguments, where they keep to the schema; unknown keys are let pass.

        Raises:
            ToolError: ``INVALID_ARGS``, naming the argument and what it has to be.
        """
        found = fault(arguments, self.parameters)
        if found is not None:
            raise ToolError(ToolErrorCode.INVALID_ARGS, f"{self.name}: {found}")
        assert isinstance(arguments, Mapping)
        return arguments

    def parallel(self, arguments: object) -> bool:
        """Whether the call may run beside others; never with arguments that break the schema."""
        return fault(arguments, self.parameters) is None and self._parallel(self.checked(arguments))

    def card(self, arguments: object) -> CallCard | None:
        """How the call is shown; ``None`` with arguments that break the schema."""
        if fault(arguments, self.parameters) is not None:
            return None
        return self._card(self.checked(arguments))

    async def run(self, caller: Caller | None, arguments: object) -> ToolResult:
        """Carry out one call. The caller's cancellation leaves it bare.

        Args:
            caller: ``None`` where the host knows of no agent: the call is refused.

        Raises:
            ToolError: always with a code and a message that a model may read.
        """
        return await self._run(caller, self.checked(arguments))
