"""The boundary between the query service and a model: what goes wrong behind it is told in fixed
sentences, and in full only to the log."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from ..actors.recall import cancellation_first
from ..messages.errors import ErrorCode, SessionError, SessionQueryError
from .definition import ToolError, ToolErrorCode
from .quoting import scrubbed

R = TypeVar("R")

_log = logging.getLogger(__name__)

_CAUSES: Final = 32
"""Errors of one chain that are written to the log."""

_UNPRINTABLE: Final = "<an error that cannot be shown>"

UNAUTHORIZED: Final = (
    "There is no such session in this workspace. Use an id that session_search or session_trace"
    " has shown."
)
_FAILED: Final = "The session history could not be read. Go on without it."

_TOLD: Final[dict[str, tuple[ErrorCode, str]]] = {
    str(code): (code, sentence)
    for code, sentence in {
        ErrorCode.ABORTED: "The session history is being closed. Go on without it.",
        ErrorCode.CORRUPT_SESSION: "The log of this session is damaged and cannot be read.",
        ErrorCode.EVENT_NOT_FOUND: (
            "The session has no event of that seq. Use a seq that a search or a trace has shown."
        ),
        ErrorCode.INDEX_FAILED: (
            "The search index cannot be used at the moment. Reading and tracing still work."
        ),
        ErrorCode.INVALID_CURSOR: "The search broke off between two pages. Search again.",
        ErrorCode.INVALID_FILTER: (
            "The filters cannot be used together: give fewer of them, or shorter lists."
        ),
        ErrorCode.INVALID_LIMIT: "The search asked for a page size that the service refuses.",
        ErrorCode.INVALID_QUERY: "The query cannot be searched for: give a shorter piece of text.",
        ErrorCode.INVALID_LINEAGE: (
            "The parents of this session run in a circle, so its family cannot be shown."
        ),
        ErrorCode.INVALID_SURFACE: (
            "The log of this session contradicts itself. session_event_read still works on it."
        ),
        ErrorCode.INVALID_WINDOW: "before or after is too large: ask for fewer neighbours.",
        ErrorCode.PERSISTENCE_FAILED: "The stored sessions cannot be read at the moment.",
        ErrorCode.SEARCH_DISABLED: "Search is switched off here. Reading and tracing still work.",
        ErrorCode.SESSION_NOT_FOUND: "The session is gone.",
        ErrorCode.STALE_CURSOR: (
            "The history changed while it was being searched. Repeat the whole call."
        ),
    }.items()
}
"""What a model is told, by the code of the service; anything else is ``FAILED``."""


async def guarded(label: str, call: Callable[[], Awaitable[R]]) -> R:
    """What ``call`` answers; its failure is logged in full and told in a sentence.

    The caller's cancellation comes first and passes untouched.

    Raises:
        ToolError: new, without the cause, so that nothing of it can reach a model.
    """
    try:
        return await cancellation_first(call)
    except Exception as error:
        told = sanitised(label, error)
    raise told


def sanitised(label: str, error: BaseException) -> ToolError:
    """What a model may know of an error; the error itself is logged, once."""
    try:
        told = _classified(error)
    except Exception:
        told = ToolError(ToolErrorCode.FAILED, _FAILED)
    try:
        _log.warning("%s failed: %s", label, _diagnostic(error))
    except Exception:
        return ToolError(ToolErrorCode.FAILED, _FAILED)
    return told


def _classified(error: BaseException) -> ToolError:
    code: object = getattr(error, "code", None)
    if isinstance(code, str):
        if isinstance(error, SessionError) and code == ToolErrorCode.UNAUTHORIZED:
            return ToolError(ToolErrorCode.UNAUTHORIZED, UNAUTHORIZED)
        if isinstance(error, SessionQueryError) and code in _TOLD:
            return ToolError(*_TOLD[code])
    return ToolError(ToolErrorCode.FAILED, _FAILED)


def _diagnostic(error: BaseException) -> str:
    """The stack of an error and of each of its causes; a fixed text where they resist."""
    try:
        return scrubbed("\ncaused by: ".join(_chain(error)))
    except Exception:
        return _UNPRINTABLE


def _chain(error: BaseException) -> list[str]:
    shown: list[str] = []
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None:
        if id(current) in seen:
            return [*shown, "<the causes run in a circle>"]
        if len(seen) == _CAUSES:
            return [*shown, "<more causes>"]
        seen.add(id(current))
        stack = traceback.format_tb(current.__traceback__)
        shown.append("".join(stack) + f"{type(current).__name__}: {current}")
        current = _cause(current)
    return shown


def _cause(error: BaseException) -> BaseException | None:
    if error.__cause__ is not None or error.__suppress_context__:
        return error.__cause__
    return error.__context__
