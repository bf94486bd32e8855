"""The reference's filters, surfaces and traces over its generated corpus, through the service.

Equal creation times are ordered by code points here and by locale there.
"""

from __future__ import annotations

import gzip
import tarfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from attrs import define, field

from session_query.actors.composition import open_session_query
from session_query.actors.service import SessionQuery
from session_query.history.filtering import event_predicates
from session_query.messages.config import IndexConfig, QueryConfig
from session_query.messages.errors import ErrorCode, SessionQueryError
from session_query.messages.filters import event_filter_from_json, session_filter_from_json
from session_query.messages.header import header_to_json
from session_query.messages.json import Json, decode, elements, member
from session_query.messages.records import EventTrace, LineageTrace
from session_query.storage.jsonl import JsonlStore

GOLDEN = Path(__file__).parent / "data" / "golden"


@define
class Comparison:
    """How many answers were compared, and the cases in which ours is another."""

    compared: int = 0
    wrong: list[str] = field(factory=list)

    def check(self, case: object, expected: Json, found: Json) -> None:
        self.compared += 1
        if found != expected:
            self.wrong.append(f"{case}: {found!r}, not {expected!r}"[:1000])


@pytest.fixture(scope="module")
def comparisons(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Comparison]:
    root = tmp_path_factory.mktemp("golden")
    with tarfile.open(GOLDEN / "corpus.tar.gz") as archive:
        archive.extractall(root, filter="data")
    return trio.run(compare_all, JsonlStore(root / "store"))


async def compare_all(store: JsonlStore) -> dict[str, Comparison]:
    results = {compare.__name__: Comparison() for compare in COMPARES}
    async with service(store) as query:
        for compare in COMPARES:
            await compare(query, results[compare.__name__])
    return results


@asynccontextmanager
async def service(store: JsonlStore) -> AsyncIterator[SessionQuery]:
    index = IndexConfig(path=":memory:", open_at="never")
    config = QueryConfig(on_damaged="fail")
    async with open_session_query(store=store, index=index, config=config) as query:
        yield query


def sessions() -> Iterator[tuple[str, Json]]:
    with gzip.open(GOLDEN / "sessions.jsonl.gz") as lines:
        for line in lines:
            golden = decode(line)
            yield str(member(golden, "id")), golden


async def compare_surfaces(query: SessionQuery, comparison: Comparison) -> None:
    for session_id, golden in sessions():
        wanted = member(golden, "readSurface")
        found = await query.read_surface(session_id)
        comparison.check(
            session_id,
            [member(wanted, key) for key in ("session", "capturedThroughSeq", "seqs")],
            [
                header_to_json(found.header),
                found.captured_through_seq,
                [event.seq for event in found.events],
            ],
        )


async def compare_lineages(query: SessionQuery, comparison: Comparison) -> None:
    for session_id, golden in sessions():
        try:
            found: Json = lineage_to_json(await query.trace_session(session_id))
        except SessionQueryError as error:
            found = {"error": {"code": error.code.value}}
        comparison.check(session_id, member(golden, "traceSession"), found)


def lineage_to_json(trace: LineageTrace) -> Json:
    end: dict[str, Json] = (
        {"root": trace.root.header.id}
        if trace.root is not None
        else {"unresolvedParentId": trace.unresolved_parent_id}
    )
    below: dict[int, list[Json]] = {0: []}
    for depth, record in trace.walk():
        children: list[Json] = []
        below[depth - 1].append([record.header.id, children])
        below[depth] = children
    return {
        "target": trace.target.header.id,
        "ancestors": [record.header.id for record in trace.ancestors],
        "descendants": below[0],
        "complete": trace.complete,
        **end,
    }


async def compare_traces(query: SessionQuery, comparison: Comparison) -> None:
    for session_id, golden in sessions():
        for wanted in elements(member(golden, "traceEvents")):
            seq = member(wanted, "target", "seq")
            assert isinstance(seq, int)
            found = trace_to_json(await query.trace_event(session_id, seq))
            comparison.check((session_id, seq), wanted, found)


def trace_to_json(trace: EventTrace) -> Json:
    target = trace.target
    replaced: dict[str, Json] = (
        {} if trace.replaced_by is None else {"replacedBy": trace.replaced_by}
    )
    return {
        "target": {
            "sessionId": target.session_id,
            "seq": target.seq,
            "type": target.type,
            "time": target.time,
            "surface": target.surface.value,
        },
        **replaced,
        "replacementChain": list(trace.replacement_chain),
        "replacedEventSeqs": list(trace.replaced_event_seqs),
        "sourceEventSeqs": list(trace.source_event_seqs),
        "derivedEventSeqs": list(trace.derived_event_seqs),
    }


async def compare_trace_errors(query: SessionQuery, comparison: Comparison) -> None:
    for session_id, golden in sessions():
        for wanted in elements(member(golden, "traceEventErrors")):
            seq = member(wanted, "seq")
            try:
                await query.trace_event(session_id, seq)  # type: ignore[arg-type]  # wrong ones too
                code = None
            except SessionQueryError as error:
                code = error.code.value
            comparison.check((session_id, seq), member(wanted, "error", "code"), code)


async def compare_event_filters(query: SessionQuery, comparison: Comparison) -> None:
    for session_id, golden in sessions():
        count = member(golden, "readSession", "eventCount")
        synthetic = elements(member(golden, "readSession", "synthetic"))
        assert isinstance(count, int)
        written = range(count - len(synthetic))  # the wording of the others is our own
        everything = await query.filter_events(session_id, [])
        for number, case in enumerate(elements(member(golden, "filterEvents"))):
            clauses = elements(member(case, "filters"))
            filters = [event_filter_from_json(clause) for clause in clauses]
            wanted, holds = event_predicates(filters)
            found = tuple(each for each in everything if wanted(each) and holds(each.text))
            if number % 10 == 0:
                assert await query.filter_events(session_id, filters) == found
            comparison.check(
                (session_id, clauses),
                [seq for seq in elements(member(case, "seqs")) if seq in written],
                [document.seq for document in found if document.seq in written],
            )


async def compare_session_filters(query: SessionQuery, comparison: Comparison) -> None:
    order = [record.header.id for record in (await query.list_sessions()).sessions]
    with (GOLDEN / "filter_sessions.jsonl").open("rb") as lines:
        for line in lines:
            case = decode(line)
            clauses = elements(member(case, "filters"))
            filters = [session_filter_from_json(clause) for clause in clauses]
            listing = await query.filter_sessions(filters)
            wanted = {str(session_id) for session_id in elements(member(case, "ids"))}
            comparison.check(
                clauses,
                [session_id for session_id in order if session_id in wanted],
                [record.header.id for record in listing.sessions],
            )


COMPARES = (
    compare_surfaces,
    compare_lineages,
    compare_traces,
    compare_trace_errors,
    compare_event_filters,
    compare_session_filters,
)


@pytest.mark.parametrize(
    ("name", "cases"),
    [
        ("compare_surfaces", 40),
        ("compare_lineages", 40),
        ("compare_traces", 660),
        ("compare_trace_errors", 120),
        ("compare_event_filters", 2680),
        ("compare_session_filters", 16),
    ],
)
def test_every_answer_agrees_with_the_reference(
    comparisons: dict[str, Comparison], name: str, cases: int
) -> None:
    found = comparisons[name]
    assert found.wrong == []
    assert found.compared == cases


def test_a_recorded_cycle_is_an_invalid_lineage() -> None:
    codes = {
        session_id: member(golden, "traceSession", "error", "code")
        for session_id, golden in sessions()
    }
    assert {session_id for session_id, code in codes.items() if code is not None} == {
        "self-parent",
        "cycle-a",
        "cycle-b",
    }
    assert set(codes.values()) == {None, ErrorCode.INVALID_LINEAGE.value}
