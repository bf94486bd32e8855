"""Spilling: a result that is too long for the conversation goes to a store, and a part stays."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from attrs import evolve, frozen

from ..actors.runtime import Runtime
from ..messages.config import SpillConfig
from ..storage.spill_files import Spilled
from .execution import Execution, Proceed, ToolCall
from .outcome import Outcome, Verdict
from .preview import shortened

_log = logging.getLogger(__name__)


class SpillStore(Protocol):
    """Keeps whole results. Called on a worker thread; any error means: not kept."""

    def save(self, owner: str, name: str, unique: str, content: bytes) -> Spilled:
        """Keep the UTF-8 ``content`` of the session ``owner``; see ``SpillFiles.save``."""
        ...


def caller_session(call: ToolCall) -> str | None:
    """The session that a result belongs to: the caller's, if there is one."""
    return None if call.caller is None else call.caller.session_id


@frozen
class Spill:
    """Bounds the text of results to ``max_inline_bytes``.

    Where the whole cannot be kept, it stays in the conversation: nothing is ever lost.
    """

    _config: SpillConfig
    _store: SpillStore
    _runtime: Runtime
    _owner: Callable[[ToolCall], str | None] = caller_session
    """Whose result it is; what belongs to nobody stays whole."""

    async def policy(self, execution: Execution, proceed: Proceed) -> Outcome:
        """Bound what a model's own call comes to, once all other policies have seen it.

        What a policy has put in place of a result, or refused, stays as it is; so do the results
        of ``inline_tools``, and of nested calls, which no model sees.
        """
        outcome = await proceed()
        call = execution.call
        if outcome.verdict is not Verdict.ACCEPTED or call.parent is not None:
            return outcome
        if call.name in self._config.inline_tools:
            return outcome
        return await self._bounded(call, outcome)

    async def for_log(self, call: ToolCall, outcome: Outcome) -> Outcome:
        """The copy of a nested call's outcome that goes into the log of a session, bounded."""
        return await self._bounded(call, outcome)

    async def _bounded(self, call: ToolCall, outcome: Outcome) -> Outcome:
        content = outcome.text.encode()
        if len(content) <= self._config.max_inline_bytes:
            return outcome
        spilled = await self._kept(call, content)
        if spilled is None:
            return outcome
        text = shortened(content, self._config.max_inline_bytes, spilled)
        return outcome if text is None else evolve(outcome, text=text, spilled=spilled)

    async def _kept(self, call: ToolCall, content: bytes) -> Spilled | None:
        owner = self._owner(call)
        if owner is None:
            _log.warning("%s: a long result belongs to nobody and stays whole", call.name)
            return None
        name, unique = f"{call.name}.txt", self._runtime.new_id()
        try:
            return await self._runtime.call(self._store.save, owner, name, unique, content)
        except Exception:
            _log.warning("%s: a long result could not be kept", call.name, exc_info=True)
            return None
