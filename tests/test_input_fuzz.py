"""A fixed share of the fuzzer of what callers pass in."""

from __future__ import annotations

import pytest
from fuzz_inputs import Run

from session_query.messages.errors import ErrorCode


@pytest.mark.parametrize("seed", [1, 2])
async def test_whatever_is_passed_in_is_answered_or_refused(seed: int) -> None:
    run = Run()
    await run.feed(seed * 1_000_000, 1500)
    assert run.failures == []
    # Every way out is taken, so that the inputs are worth their time.
    assert {"sessions found", "events found", "configured", "built"} <= run.outcomes.keys()
    assert {ErrorCode.INVALID_CURSOR, ErrorCode.INVALID_FILTER} <= run.outcomes.keys()
