"""Deadlines: a tool that declares how long it may take is stopped then, and its call answered."""

from __future__ import annotations

import trio

from ..actors.nursery import PlainNursery
from .execution import Execution, Proceed
from .outcome import HarnessErrorCode, Outcome


async def deadline(execution: Execution, proceed: Proceed) -> Outcome:
    """Cancel the tool after its ``timeout_ms`` and await it; the outcome is then ``TOOL_TIMEOUT``.

    Whatever a tool answers after its time is dropped. A tool without ``timeout_ms`` may take as
    long as it likes. Who came first decides: a caller who is cancelled before the time is over
    leaves bare, and a timeout stays one if the caller is cancelled while the tool cleans up.
    """
    limit = execution.tool.timeout_ms
    if limit is None:
        return await proceed()
    timeout = _timed_out(limit)
    expired = False

    async def expire() -> None:
        # A task and not a deadline of the scope: that would not tell which of two came first.
        nonlocal expired
        await trio.sleep(limit / 1000)
        expired = True
        body.cancel(reason=f"{execution.tool.name} has had its {limit} ms")

    answer = timeout
    body = trio.CancelScope()
    try:
        async with PlainNursery() as nursery:
            nursery.start_soon(expire)
            with body:
                answer = await proceed()
            nursery.cancel_scope.cancel()
    finally:
        if expired:
            execution.if_cancelled = timeout
    return timeout if expired else answer


def _timed_out(limit: int) -> Outcome:
    return Outcome.error(
        "ToolTimeoutError",
        HarnessErrorCode.TOOL_TIMEOUT,
        f"the tool was stopped after {limit} ms, its limit. Ask for less, or go on without it.",
    )
