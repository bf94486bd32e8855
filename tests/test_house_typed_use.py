"""The public names as a host uses them; pyright checks this file strictly, beside mypy."""

from __future__ import annotations

import pytest

from session_query import (
    AvailabilityIn,
    CreatedAt,
    Cwd,
    ErrorCode,
    EventDraft,
    EventFilter,
    Ids,
    IndexConfig,
    MemoryStore,
    Parent,
    QueryConfig,
    SeqRange,
    SessionFilter,
    SessionQueryError,
    SurfaceIn,
    Text,
    TimeRange,
    Tokenizer,
    TypeIn,
    event_filter_from_json,
    open_session_query,
    session_filter_from_json,
)


async def test_a_host_commits_finds_and_reads() -> None:
    index = IndexConfig(path=":memory:", tokenizer=Tokenizer.UNICODE61)
    config = QueryConfig(on_damaged="fail", redact=str.upper, close_timeout=1)
    sessions: list[SessionFilter] = [
        Cwd(["/work", None]),
        Ids(["s"]),
        CreatedAt(0),
        Parent([None]),
        AvailabilityIn(["live"]),
        session_filter_from_json({"kind": "id", "values": ["s", "t"]}),
    ]
    events: list[EventFilter] = [
        SeqRange(0, 1),
        TimeRange(None, 2.0**52),
        TypeIn(["user/message"]),
        SurfaceIn(["current"]),
    ]
    message = {
        "id": "m",
        "role": "user",
        "source": {"kind": "user"},
        "content": [{"type": "text", "text": "hello"}],
    }
    async with open_session_query(store=MemoryStore(), index=index, config=config) as query:
        async with query.sessions.create(id="s", cwd="/work") as live:
            (event,) = await live.commit(EventDraft("user/message", message, surface_op="append"))
            page = await query.search_sessions(
                "hello", session_filters=sessions, event_filters=events, limit=1
            )
            assert [hit.best_match.snippet.lower() for hit in page.items] == ["hello"]
        window = await query.read_event("s", event.seq)
        assert window.target.raw == event.raw
        with pytest.raises(SessionQueryError) as refused:
            await query.read_event("s", 1)
    assert refused.value.code is ErrorCode.EVENT_NOT_FOUND


async def test_a_host_traces_observes_and_waits() -> None:
    filters: list[EventFilter] = [Text("hello"), event_filter_from_json({"kind": "seq"})]
    async with open_session_query(store=MemoryStore()) as query, query.sessions.create(id="s"):
        listing = await query.filter_sessions([Parent([None])])
        assert [record.header.id for record in listing.sessions] == ["s"]
        documents = await query.filter_events("s", filters)
        assert [document.text for document in documents] == []
        surface = await query.read_surface("s")
        assert surface.captured_through_seq is None
        lineage = await query.trace_session("s")
        assert [depth for depth, _record in lineage.walk()] == []
        lengths = await query.project_many(["s"], lambda log: len(log.events))
        assert [length.value for length in lengths] == [0]
        async with query.observe_session("s") as observed:
            with observed.retain() as kept:
                assert kept.cursor == -1
        await query.refresh()
        async for generation in query.generations(after=query.generation - 1):
            assert await query.wait_for_generation(generation - 1) == generation
            break
