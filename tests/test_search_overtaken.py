"""A search whose index was begun anew, or brought in order, between its pass and its view."""

from __future__ import annotations

import pytest
import trio
from builders import Log, header
from inline_runtime import InlineRuntime

from session_query import open_session_query
from session_query.actors.reconciler import IndexReconciler
from session_query.messages.config import IndexConfig
from session_query.storage.index_view import Overtaken
from session_query.storage.memory import MemoryStore


async def test_a_search_that_was_overtaken_gives_the_writer_back_to_the_next_pass(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In memory, a search borrows the writer's connection, which that pass writes with."""
    store, view, overtaken = MemoryStore(), IndexReconciler._view, list[str]()

    def overtake(*of: object) -> object:
        if not overtaken:
            log = Log()
            log.user("alpha")
            with store.create(header("late")) as writer:
                writer.append(tuple(log.events))
            overtaken.append("late")
            raise Overtaken
        return view(*of)  # type: ignore[arg-type]

    monkeypatch.setattr(IndexReconciler, "_view", overtake)
    index = IndexConfig(path=":memory:")
    async with open_session_query(store=store, index=index, runtime=InlineRuntime()) as query:
        with trio.fail_after(60):
            page = await query.search_sessions("alpha")
    assert [hit.header.id for hit in page.items] == overtaken == ["late"]
