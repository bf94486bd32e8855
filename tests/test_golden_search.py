"""The reference's answers over its generated corpus, through the whole service.

Equal creation times are ordered by code points here and by locale there. A header in a search hit
of the reference lacks ``origin``; ours has it, and it is dropped before the comparison.
"""

from __future__ import annotations

import gzip
import re
import tarfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import groupby
from pathlib import Path

import pytest
import trio
from attrs import define, field

from session_query.actors.composition import open_session_query
from session_query.actors.service import SessionQuery
from session_query.messages.config import IndexConfig, QueryConfig
from session_query.messages.errors import SessionQueryError
from session_query.messages.event import event_to_json
from session_query.messages.filters import event_filter_from_json, session_filter_from_json
from session_query.messages.header import SessionHeader, header_to_json
from session_query.messages.json import Json, decode, elements, member
from session_query.messages.records import (
    EventSearchHit,
    EventSearchPage,
    SessionSearchPage,
    SessionTitle,
)
from session_query.storage.jsonl import JsonlStore

GOLDEN = Path(__file__).parent / "data" / "golden"

Page = SessionSearchPage | EventSearchPage


@define
class Comparison:
    """How many answers of one kind were compared, and the cases in which ours is another."""

    compared: int = 0
    wrong: list[str] = field(factory=list)

    def check(self, case: object, expected: Json, found: Json) -> None:
        self.compared += 1
        if found != expected:
            self.wrong.append(f"{case}: {found!r}, not {expected!r}"[:1000])


Comparisons = dict[str, Comparison]


@pytest.fixture(scope="module")
def comparisons(tmp_path_factory: pytest.TempPathFactory) -> Comparisons:
    """Every comparison of this module, made by one service but for the lengths of snippets."""
    root = tmp_path_factory.mktemp("golden")
    with tarfile.open(GOLDEN / "corpus.tar.gz") as archive:
        archive.extractall(root, filter="data")
    return trio.run(compare_all, root)


async def compare_all(root: Path) -> Comparisons:
    results = {compare.__name__: Comparison() for compare in (*COMPARES, compare_snippets)}
    async with service(root) as query:
        for compare in COMPARES:
            await compare(query, results[compare.__name__])
    snippets = vectors("snippets.jsonl")
    for size, cases in groupby(snippets, lambda case: member(case, "snippetChars")):
        assert isinstance(size, int)
        async with service(root, snippet_chars=size) as query:
            await compare_snippets(query, results["compare_snippets"], cases)
    return results


@asynccontextmanager
async def service(root: Path, snippet_chars: int = 240) -> AsyncIterator[SessionQuery]:
    path = str(root / "index.db")
    index = IndexConfig(path=path, tokenizer="unicode61", snippet_chars=snippet_chars)
    config = QueryConfig(on_damaged="fail")
    async with open_session_query(
        store=JsonlStore(root / "store"), index=index, config=config
    ) as query:
        yield query


def vectors(name: str) -> Iterator[Json]:
    path = GOLDEN / name
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as lines:
        for line in lines:
            yield decode(line)


async def ok_or_error(answer: Awaitable[Json]) -> Json:
    try:
        return await answer
    except SessionQueryError as error:
        return {"error": {"code": error.code.value}}


# -- searches -------------------------------------------------------------------------------------


async def compare_session_searches(query: SessionQuery, comparison: Comparison) -> None:
    for case in vectors("search_sessions.jsonl.gz"):
        request = member(case, "request")

        async def page(cursor: str | None, request: Json = request) -> SessionSearchPage:
            return await query.search_sessions(
                str(member(request, "query")),
                session_filters=[
                    session_filter_from_json(clause)
                    for clause in elements(member(request, "sessionFilters"))
                ],
                event_filters=[
                    event_filter_from_json(clause)
                    for clause in elements(member(request, "eventFilters"))
                ],
                limit=limit_of(request),
                cursor=cursor,
            )

        comparison.check(member(case, "case"), expected(case), await ok_or_error(pages(page)))


async def compare_event_searches(query: SessionQuery, comparison: Comparison) -> None:
    for case in vectors("search_events.jsonl.gz"):
        request = member(case, "request")

        async def page(cursor: str | None, request: Json = request) -> EventSearchPage:
            return await query.search_events(
                str(member(request, "sessionId")),
                str(member(request, "query")),
                filters=[
                    event_filter_from_json(clause)
                    for clause in elements(member(request, "filters"))
                ],
                limit=limit_of(request),
                cursor=cursor,
            )

        comparison.check(member(case, "case"), expected(case), await ok_or_error(pages(page)))


async def compare_snippets(
    query: SessionQuery, comparison: Comparison, cases: Iterator[Json]
) -> None:
    for case in cases:
        page = await query.search_events(
            str(member(case, "sessionId")), str(member(case, "query")), limit=100
        )
        found: Json = [[hit.seq, hit.snippet] for hit in page.items]
        comparison.check(
            (member(case, "snippetChars"), member(case, "query")), member(case, "items"), found
        )


async def pages(page: Callable[[str | None], Awaitable[Page]]) -> Json:
    """All pages of a search, in the form of the vectors."""
    found: list[Json] = []
    cursor: str | None = None
    while not found or cursor is not None:
        one = await page(cursor)
        cursor = one.next_cursor
        found.append(page_to_json(one))
    return {"pages": found}


def page_to_json(page: Page) -> Json:
    more = page.next_cursor is not None
    if isinstance(page, EventSearchPage):
        session = header_without_origin(page.session)
        return {"session": session, "items": [*map(hit_to_json, page.items)], "hasMore": more}
    items: list[Json] = [
        {
            "id": hit.header.id,
            "header": header_without_origin(hit.header),
            "live": hit.live,
            "persisted": hit.persisted,
            "bestMatch": hit_to_json(hit.best_match),
        }
        for hit in page.items
    ]
    return {"items": items, "hasMore": more}


def hit_to_json(hit: EventSearchHit) -> Json:
    return {
        "sessionId": hit.session_id,
        "seq": hit.seq,
        "type": hit.type,
        "time": hit.time,
        "surface": hit.surface.value,
        "snippet": masked(hit.snippet),
    }


def header_without_origin(header: SessionHeader) -> Json:
    return {name: value for name, value in header_to_json(header).items() if name != "origin"}


def expected(case: Json) -> Json:
    """The outcome of a search vector, its snippets put together."""
    assert isinstance(case, dict)
    if "error" in case:
        return {"error": case["error"]}
    return {"pages": joined(case["pages"])}


def joined(value: Json) -> Json:
    match value:
        case {"masked": True}:
            return "<masked>"
        case {"lead": lead, "body": str(body), "trail": trail}:
            return f"{'…' if lead else ''}{body}{'…' if trail else ''}"
        case dict():
            return {name: joined(item) for name, item in value.items()}
        case list():
            return [*map(joined, value)]
    return value


def masked(snippet: str) -> str:
    return re.sub(r"^The turn was interrupted .*", "<masked>", snippet)


def limit_of(request: Json) -> int | None:
    limit = member(request, "limit")
    assert limit is None or isinstance(limit, int)
    return limit


# -- exact reads ----------------------------------------------------------------------------------


async def compare_listing(query: SessionQuery, comparison: Comparison) -> None:
    listing = await query.list_sessions()
    found: list[Json] = [
        {
            "header": header_to_json(record.header),
            "live": record.live,
            "persisted": record.persisted,
        }
        for record in listing.sessions
    ]
    wanted = sorted(vectors("list_sessions.jsonl"), key=newest_first)
    comparison.check("list", wanted, found)


def newest_first(record: Json) -> tuple[float, str]:
    created_at = member(record, "header", "createdAt")
    assert isinstance(created_at, int)
    return -created_at, str(member(record, "header", "id"))


async def compare_titles(query: SessionQuery, comparison: Comparison) -> None:
    case = decode((GOLDEN / "titles.json").read_bytes())
    requested = [str(name) for name in elements(member(case, "requested"))]
    found: list[Json] = []
    for result in await query.read_titles(requested):
        if result.error is not None:
            error: Json = {"code": result.error.code.value}
            found.append({"sessionId": result.session_id, "status": "rejected", "error": error})
            continue
        assert result.header is not None
        value: dict[str, Json] = {"session": header_to_json(result.header)}
        if result.title is not None:
            value["title"] = title_to_json(result.title)
        found.append({"sessionId": result.session_id, "status": "fulfilled", "value": value})
    comparison.check("titles", member(case, "results"), found)


def title_to_json(title: SessionTitle) -> Json:
    return {
        "title": title.title,
        "messageSeqs": list(title.message_seqs),
        "source": title.source,
        "eventSeq": title.event_seq,
        "updatedAt": title.updated_at,
    }


async def compare_logs(query: SessionQuery, comparison: Comparison) -> None:
    for golden in vectors("sessions.jsonl.gz"):
        session_id = str(member(golden, "id"))
        log = await query.read_session(session_id)
        comparison.check(
            (session_id, "readSession"),
            [
                member(golden, "readSession", "session"),
                member(golden, "readSession", "eventCount"),
            ],
            [header_to_json(log.header), len(log.events)],
        )
        rows: list[Json] = [
            [record.seq, record.type, record.time, record.surface.value]
            for record in await query.list_events(session_id)
        ]
        comparison.check((session_id, "listEvents"), member(golden, "listEvents", "rows"), rows)


async def compare_windows(query: SessionQuery, comparison: Comparison) -> None:
    for golden in vectors("sessions.jsonl.gz"):
        session_id = str(member(golden, "id"))
        for case in elements(member(golden, "readEvents")):
            request = member(case, "request")
            assert isinstance(request, dict)
            found = await ok_or_error(window(query, session_id, request))
            assert isinstance(case, dict)
            wanted = {name: case[name] for name in case if name != "request"}
            comparison.check((session_id, request), masked_events(wanted), masked_events(found))


async def window(query: SessionQuery, session_id: str, request: dict[str, Json]) -> Json:
    found = await query.read_event(session_id, **request)  # type: ignore[arg-type]  # wrong ones too
    return {
        "startSeq": found.start_seq,
        "endSeq": found.end_seq,
        "eventSeqs": [event.seq for event in found.events],
        "target": event_to_json(found.target),
    }


def masked_events(value: Json) -> Json:
    """Without the wording of synthetic results, ours or the reference's."""
    match value:
        case str():
            return re.sub(r"^(<synthetic text|The turn was interrupted ).*", "<masked>", value)
        case dict():
            return {name: masked_events(item) for name, item in value.items()}
        case list():
            return [*map(masked_events, value)]
    return value


COMPARES = (
    compare_session_searches,
    compare_event_searches,
    compare_listing,
    compare_titles,
    compare_logs,
    compare_windows,
)


@pytest.mark.parametrize(
    ("compare", "cases"),
    [
        (compare_session_searches, 291),
        (compare_event_searches, 460),
        (compare_snippets, 140),
        (compare_listing, 1),
        (compare_titles, 1),
        (compare_logs, 80),
        (compare_windows, 440),
    ],
)
def test_every_answer_agrees_with_the_reference(
    comparisons: Comparisons, compare: Callable[..., object], cases: int
) -> None:
    found = comparisons[compare.__name__]
    assert found.wrong == []
    assert found.compared == cases
