"""Checkpoints: nothing acts on history that a crash could still take back."""

from __future__ import annotations

import logging

from attrs import frozen

from ..actors.registry import Sessions
from ..messages.errors import LiveSessionError
from .execution import Execution, Proceed
from .outcome import HarnessErrorCode, Outcome, Verdict

_log = logging.getLogger(__name__)

_NOT_STORED = Outcome.error(
    "HistoryNotStoredError",
    HarnessErrorCode.NOT_STORED,
    "the history of this session could not be stored, so the tool was not begun.",
    Verdict.REFUSED,
)


@frozen
class Checkpoints:
    """Stores a live session before what cannot be undone: a step, a model request, a tool."""

    _sessions: Sessions

    async def store(self, session_id: str) -> None:
        """Return once every event of a live session is stored; others have nothing to store.

        A host calls this in its hook before a step and before each model request.

        Raises:
            LiveSessionError: ``NOT_STORED`` or ``NOT_LIVE``; what was to follow must not begin.
        """
        live = self._sessions.get(session_id)
        if live is not None:
            await live.flush()

    async def policy(self, execution: Execution, proceed: Proceed) -> Outcome:
        """Store the caller's session before a tool that the model called itself.

        Where that fails the tool is not begun, the outcome says so, and the cause is logged. A
        nested call is covered by the checkpoint of the call around it.
        """
        call = execution.call
        if call.parent is None and call.caller is not None and call.caller.session_id is not None:
            try:
                await self.store(call.caller.session_id)
            except LiveSessionError:
                _log.warning("%s is not begun", execution.tool.name, exc_info=True)
                return _NOT_STORED
        return await proceed()
