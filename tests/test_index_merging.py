"""Merging: full text is kept in few segments, whether it came in a build or a commit at a time."""

from __future__ import annotations

import pytest
from actor_world import message
from service_world import session as stored_session
from service_world import sessions_of, store_of

from session_query import IndexConfig, MemoryStore, SessionQuery, open_session_query
from session_query.actors import reconciliation
from session_query.storage import index as index_module
from session_query.storage.index import SearchIndex

INDEX = IndexConfig(path=":memory:")


def index_of(query: SessionQuery) -> SearchIndex:
    reconciler = query._reconciler
    assert reconciler is not None
    assert reconciler._lane is not None
    return reconciler._lane.index


def segments(index: SearchIndex) -> int:
    """Segments of the full text in the file, as FTS5 itself numbers them."""
    found = index._db.execute("SELECT count(DISTINCT segid) FROM fts_idx").get
    assert isinstance(found, int)
    return found


async def test_a_build_of_many_transactions_leaves_few_segments(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reconciliation, "SLICE_EVENTS", 1)
    store = store_of(*(stored_session(f"s{number}", f"word {number}") for number in range(150)))
    async with open_session_query(store=store, index=INDEX) as query:
        await query.refresh()
        assert not index_of(query).is_overdue
        assert segments(index_of(query)) < 10
        assert len(await sessions_of(query, "word")) == 20


async def test_commits_without_a_pause_do_not_pile_up_segments(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(index_module, "_MERGE_AFTER", 8)
    async with (
        open_session_query(store=MemoryStore(), index=INDEX) as query,
        query.sessions.create(id="live") as live,
    ):
        for number in range(60):
            await live.commit(message(f"word {number}"))
            assert await sessions_of(query, "word") == ["live"]
            assert index_of(query)._tables.unmerged <= 12
