"""What a call comes to: a result, an error that a model may read, or no answer of its own."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from attrs import field, frozen

from ..messages.json import Json
from ..storage.spill_files import Spilled
from ..tools.definition import ToolError, ToolResult
from ..tools.quoting import scrubbed


class HarnessErrorCode(StrEnum):
    """The codes that a host's machinery adds to those of the tools."""

    UNKNOWN_TOOL = "UNKNOWN_TOOL"
    ABORTED_BEFORE_DISPATCH = "ABORTED_BEFORE_DISPATCH"
    """The turn was stopped before the tool began: it has done nothing."""
    ABORTED = "ABORTED"
    """The turn was stopped while the tool ran: what it has done is unknown."""
    TOOL_TIMEOUT = "TOOL_TIMEOUT"
    TOOL_FAILED = "TOOL_FAILED"
    """The tool broke in a way that nobody foresaw; the cause is in the log."""
    NOT_STORED = "HISTORY_NOT_STORED"
    """What came before the call could not be stored, so the tool was not begun."""


class Verdict(StrEnum):
    """What the policies around a tool made of its result."""

    ACCEPTED = "accepted"
    REPLACED = "replaced"
    """A policy put a value of its own in its place, which further policies leave as it is."""
    REFUSED = "refused"
    """A policy turned the result, or the call, down."""


@frozen
class Fault:
    """An error as it is recorded beside its text: a class of errors, and a stable code."""

    name: str
    code: str


@frozen
class Outcome:
    """What the model and the log of a session get for a call."""

    text: str = field(converter=scrubbed)
    structured: dict[str, Json] | None = None
    """The same as data for the host's programs, whole even where the text was shortened."""
    fault: Fault | None = field(default=None, kw_only=True)
    """Present for an error, whose text begins with ``Error:``."""
    verdict: Verdict = field(default=Verdict.ACCEPTED, kw_only=True)
    contexts: tuple[str, ...] = field(default=(), kw_only=True)
    """What policies have to say beside the result; the host shows it to the model after it."""
    spilled: Spilled | None = field(default=None, kw_only=True)
    """Where the whole text is, if this is a part of it."""

    @classmethod
    def of(cls, result: ToolResult) -> Outcome:
        """A tool has answered."""
        return cls(result.text, result.structured)

    @classmethod
    def error(
        cls, name: str, code: str, message: str, verdict: Verdict = Verdict.ACCEPTED
    ) -> Outcome:
        """A call has failed; the message is for the model."""
        return cls(f"Error: {message}", fault=Fault(name, str(code)), verdict=verdict)

    @classmethod
    def refusal(cls, error: ToolError) -> Outcome:
        """A tool, or the check of its arguments, has said what is wrong."""
        return cls.error(type(error).__name__, error.code, str(error))


NEVER_DISPATCHED: Final = Outcome.error(
    "ToolAbortedError",
    HarnessErrorCode.ABORTED_BEFORE_DISPATCH,
    "the turn was stopped before this tool began. It has done nothing.",
)
ABORTED: Final = Outcome.error(
    "ToolAbortedError",
    HarnessErrorCode.ABORTED,
    "the turn was stopped while this tool was running. What it has done is unknown.",
)
TOOL_FAILED: Final = Outcome.error(
    "ToolFailedError",
    HarnessErrorCode.TOOL_FAILED,
    "the tool broke. The cause is in the host's log.",
)
