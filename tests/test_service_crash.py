"""A mistake in the program ends the service, and says what it was."""

from __future__ import annotations

import pytest

from session_query import ErrorCode, MemoryStore, SessionQueryError, open_session_query
from session_query.storage.contract import Sweep


class BrokenStore(MemoryStore):
    """A store that breaks its contract: it raises what no store may raise."""

    def sweep(self) -> Sweep:
        raise ZeroDivisionError("a mistake in this store")


async def test_whoever_waits_for_a_crashed_service_is_told_the_cause() -> None:
    told: list[SessionQueryError] = []
    with pytest.raises(BaseExceptionGroup) as stopped:
        async with open_session_query(store=BrokenStore()) as query:
            try:
                await query.search_sessions("word")
            except SessionQueryError as refusal:
                told.append(refusal)
                raise
    assert stopped.value.subgroup(ZeroDivisionError) is not None
    (error,) = told
    assert error.code is ErrorCode.INDEX_FAILED
    assert "a mistake in this store" in str(error)
