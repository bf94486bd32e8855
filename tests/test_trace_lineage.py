"""Lineages: ancestors, descendants, what is missing, what runs in a circle; at any depth."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from service_world import CountingStore, append, refused, session, store_of

from session_query import IndexConfig, JsonlStore, MemoryStore, QueryConfig, open_session_query
from session_query.history.lineage import trace_lineage
from session_query.messages.errors import ErrorCode
from session_query.messages.header import SessionHeader
from session_query.messages.records import LineageNode, LineageTrace, SessionRecord

DEPTH = 100_000


def record(session_id: str, parent: str | None = None, created_at: int = 0) -> SessionRecord:
    header = SessionHeader(session_id, created_at, parent_session=parent)
    return SessionRecord(header, live=False, persisted=True)


def ids(records: tuple[SessionRecord, ...]) -> list[str]:
    return [each.header.id for each in records]


def below(trace: LineageTrace) -> list[tuple[int, str]]:
    return [(depth, each.header.id) for depth, each in trace.walk()]


FAMILY = [
    record("root"),
    record("parent", "root", 1),
    record("uncle", "root", 2),
    record("me", "parent", 3),
    record("sister", "parent", 3),
    record("late", "me", 9),
    record("early", "me", 4),
    record("b", "me", 5),
    record("B", "me", 5),
    record("grandchild", "early", 4),
    record("stranger"),
]


def test_ancestors_stand_nearest_first_up_to_the_root() -> None:
    trace = trace_lineage(FAMILY, "me")
    assert ids(trace.ancestors) == ["parent", "root"]
    assert trace.root == FAMILY[0]
    assert (trace.complete, trace.unresolved_parent_id) == (True, None)


def test_children_stand_by_time_and_then_by_code_points_at_every_level() -> None:
    trace = trace_lineage(FAMILY, "me")
    assert [node.session.header.id for node in trace.descendants] == ["early", "B", "b", "late"]
    assert below(trace) == [(1, "early"), (2, "grandchild"), (1, "B"), (1, "b"), (1, "late")]


def test_the_order_of_the_listing_does_not_matter() -> None:
    shuffled = FAMILY.copy()
    random.Random(1).shuffle(shuffled)
    for each in FAMILY:
        session_id = each.header.id
        assert trace_lineage(shuffled, session_id) == trace_lineage(FAMILY, session_id)


def test_a_session_without_parent_is_its_own_root() -> None:
    trace = trace_lineage(FAMILY, "stranger")
    assert (trace.ancestors, trace.descendants) == ((), ())
    assert trace.root == trace.target


def test_a_parent_that_is_not_there_leaves_the_lineage_incomplete() -> None:
    sessions = [record("me", "parent"), record("parent", "gone"), record("child", "me")]
    trace = trace_lineage(sessions, "me")
    assert ids(trace.ancestors) == ["parent"]
    assert (trace.complete, trace.root, trace.unresolved_parent_id) == (False, None, "gone")
    assert below(trace) == [(1, "child")]


@pytest.mark.parametrize(
    ("target", "repeated"), [("self", "self"), ("a", "a"), ("b", "b"), ("below", "a")]
)
def test_ancestors_that_run_in_a_circle_are_refused_by_name(target: str, repeated: str) -> None:
    sessions = [record("self", "self"), record("a", "b"), record("b", "a"), record("below", "a")]
    with refused(ErrorCode.INVALID_LINEAGE, repr(repeated)):
        trace_lineage(sessions, target)


def test_a_circle_elsewhere_does_not_matter() -> None:
    sessions = [record("a", "b"), record("b", "a"), record("me")]
    assert trace_lineage(sessions, "me").descendants == ()


@pytest.mark.parametrize("target", ["nowhere", "", None, 5, ["me"]])
def test_a_session_that_is_not_listed_is_not_found(target: object) -> None:
    with refused(ErrorCode.SESSION_NOT_FOUND):
        trace_lineage(FAMILY, target)


def test_a_hundred_thousand_levels_are_traced_compared_and_forgotten() -> None:
    chain = [record("0"), *(record(str(n), str(n - 1)) for n in range(1, DEPTH))]
    down = trace_lineage(chain, "0")
    assert list(down.walk())[-1] == (DEPTH - 1, chain[-1])
    assert down == trace_lineage(reversed(chain), "0")
    assert len(repr(down)) < 1000
    up = trace_lineage(chain, str(DEPTH - 1))
    assert (len(up.ancestors), up.root) == (DEPTH - 1, chain[0])


def test_nodes_differ_where_one_has_more_below() -> None:
    leaf, other = LineageNode(record("a")), LineageNode(record("b"))
    assert LineageNode(record("a"), (leaf,)) != leaf
    assert LineageNode(record("a"), (leaf, other)) != LineageNode(record("a"), (leaf,))
    assert LineageNode(record("a"), (leaf, other)) != LineageNode(record("a"), (other, leaf))
    flat = LineageNode(record("x"), (leaf, other))
    assert flat != LineageNode(record("x"), (LineageNode(record("a"), (other,)),))
    assert leaf != "a"


@given(st.lists(st.integers(0, 12), max_size=12))
def test_every_session_descends_from_its_ancestors_and_from_nobody_else(parents: list[int]) -> None:
    """``parents[n]`` is the parent of session n where it comes before it, else it has none."""
    sessions = [
        record(str(n), str(parent) if parent < n else None, created_at=parent)
        for n, parent in enumerate(parents)
    ]
    for one in sessions:
        reached = {each.header.id for _depth, each in trace_lineage(sessions, one.header.id).walk()}
        for other in sessions:
            ancestors = ids(trace_lineage(sessions, other.header.id).ancestors)
            assert (one.header.id in ancestors) == (other.header.id in reached)


# -- through the service --------------------------------------------------------------------------


def family_store() -> CountingStore:
    return store_of(
        session("root", "a"),
        session("me", "b", parent_session="root", created_at=2),
        session("child", "c", parent_session="me", created_at=3),
    )


async def test_a_lineage_costs_one_listing_and_no_log() -> None:
    store = family_store()
    async with open_session_query(store=store) as query:
        trace = await query.trace_session("me")
        assert ids(trace.ancestors) == ["root"]
        assert below(trace) == [(1, "child")]
        assert store.calls == {"sweep": 1}


async def test_live_sessions_are_part_of_a_lineage() -> None:
    async with (
        open_session_query(store=family_store()) as query,
        query.sessions.create(id="live", parent="me", created_at=1),
    ):
        trace = await query.trace_session("me")
        assert below(trace) == [(1, "live"), (1, "child")]
        assert trace.descendants[0].session.live
        assert ids((await query.trace_session("live")).ancestors) == ["me", "root"]


async def test_a_lineage_stays_as_it_was() -> None:
    store = family_store()
    async with open_session_query(store=store) as query:
        before = await query.trace_session("me")
        append(store, "me", "more")
        async with query.sessions.create(id="live", parent="me"):
            assert before != await query.trace_session("me")
        assert before == await query.trace_session("me")


async def test_a_listing_that_fails_fails_the_lineage(tmp_path: object) -> None:
    root = f"{tmp_path}/store"
    with open(root, "w") as file:
        file.write("a file where a folder should be")
    async with open_session_query(store=JsonlStore(root)) as query:
        with refused(ErrorCode.PERSISTENCE_FAILED):
            await query.trace_session("me")
        with refused(ErrorCode.PERSISTENCE_FAILED):
            await query.filter_sessions([])


async def test_a_conflict_of_headers_fails_the_lineage() -> None:
    async with (
        open_session_query(store=MemoryStore([session("me", "a")])) as query,
        query.sessions.create(id="me", cwd="/elsewhere", durable=False),
    ):
        with refused(ErrorCode.SOURCE_CONFLICT, "'me'"):
            await query.trace_session("me")


async def test_a_lineage_needs_no_store_and_no_index() -> None:
    index = IndexConfig(path=":memory:", open_at="never")
    async with (
        open_session_query(index=index, config=QueryConfig()) as query,
        query.sessions.create(id="me", parent="gone"),
    ):
        assert (await query.trace_session("me")).unresolved_parent_id == "gone"
