"""A mistake in the program ends the service, and says what it was."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from unittest import mock

import pytest
import trio
from actor_world import Hang
from inline_runtime import InlineRuntime
from trio.testing import wait_all_tasks_blocked

from session_query import ErrorCode, MemoryStore, SessionQueryError, open_session_query
from session_query.storage.contract import Sweep
from session_query.storage.index import SearchIndex


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


async def test_who_waits_for_a_refresh_is_told_the_cause_and_it_leaves_the_service_bare() -> None:
    told: list[SessionQueryError] = []
    with pytest.raises(ZeroDivisionError, match="a mistake in this store"):
        async with open_session_query(store=BrokenStore()) as query:
            try:
                await query.refresh()
            except SessionQueryError as refusal:
                told.append(refusal)
    (error,) = told
    assert str(error).count("crashed") == 1
    assert isinstance(error.__cause__, Exception)
    assert isinstance(error.__cause__.__cause__, ZeroDivisionError)


async def test_a_search_that_waits_for_a_pass_is_told_what_else_has_crashed() -> None:
    told, hang = list[str](), Hang("sweep")

    async def ask(call: Callable[[], Awaitable[object]]) -> None:
        try:
            await call()
        except SessionQueryError as refusal:
            told.append(str(refusal))

    async def go_on() -> None:
        with trio.CancelScope(shield=True):
            await wait_all_tasks_blocked()
        hang.over.set()

    with (
        mock.patch.object(SearchIndex, "status", side_effect=ZeroDivisionError("a mistake")),
        pytest.raises(BaseExceptionGroup) as stopped,
    ):
        async with (
            trio.open_nursery() as nursery,
            open_session_query(store=MemoryStore(), runtime=InlineRuntime(pace=hang)) as query,
        ):
            for _ in range(3):
                nursery.start_soon(ask, partial(query.search_sessions, "word"))
            await wait_all_tasks_blocked()
            nursery.start_soon(go_on)
            nursery.start_soon(ask, query.index_status)
            await trio.sleep_forever()
    assert stopped.value.subgroup(ZeroDivisionError) is not None
    assert [refusal for refusal in told if "a mistake" not in refusal] == []
    assert len(told) == 4
