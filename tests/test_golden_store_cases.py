"""The reference's answers over tiny stores, most of them damaged in one way each.

A service that leaves nothing out answers alike but for the departures below, which the design
decides: damage has one code, whatever part of a session it hits, and a fault makes unreadable what
it hits and nothing else. One that isolates damage serves the rest and names the fault.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal, TypeVar

import pytest
from attrs import frozen
from builders import user_data
from jsonl_files import row, session_line, write_log
from test_golden_history import GOLDEN, without_wording
from test_golden_live import DECISIONS

from session_query.actors.composition import open_session_query
from session_query.actors.service import SessionQuery
from session_query.messages.config import QueryConfig
from session_query.messages.errors import ErrorCode, SessionQueryError
from session_query.messages.event import event_to_json
from session_query.messages.header import header_to_json
from session_query.messages.json import Json, decode, elements, member, text_member
from session_query.messages.records import Skipped
from session_query.storage.jsonl import JsonlStore

T = TypeVar("T")

CASES = {
    text_member(case, "case"): case
    for case in map(decode, (GOLDEN / "store_cases.jsonl").read_bytes().splitlines())
}
LIST, READ, DOCUMENTS, SEARCH = "list", "read", "documents", "searchAlpha"
CORRUPT, FAILED = "CORRUPT_SESSION", "PERSISTENCE_FAILED"


@frozen
class Departure:
    """Where an answer of ours is another one than the reference's, and why."""

    answer: str
    """``read`` stands for surface and documents too, which begin with it.

    Refused searches have one recorded code, for which the code of the damage stands here.
    """
    theirs: str
    """A code without its prefix, or ``ok``."""
    ours: str
    reason: str


def _departures() -> Iterator[tuple[str, Departure]]:
    damaged_header = Departure(READ, "SESSION_NOT_FOUND", CORRUPT, "a damaged header is damage")
    for fault in (
        *("no delegationDepth", "no createdAt", "no version", "no id", "createdAt negative"),
        *("createdAt fraction", "createdAt string", "createdAt -0", "createdAt 2^53"),
        *("depth negative", "origin unknown", "agentPreset number"),
    ):
        yield f"header: {fault}", damaged_header
    yield "header only, no newline", damaged_header
    yield "empty file", damaged_header

    for fault in ("seedLength fraction", "parent number", "parent null"):
        yield (
            f"header: {fault}",
            Departure(LIST, "ok", CORRUPT, "a header is checked before it is listed"),
        )
    for case in (
        *("header: cwd null", "header: id differs from directory", "header: empty id"),
        *("header: cwd differs from directory", "same id in two project directories"),
    ):
        yield case, Departure(LIST, FAILED, CORRUPT, "damage has one code, header included")
        yield case, Departure(READ, FAILED, CORRUPT, "damage has one code, header included")
    for case in (
        *("row: blank line in the middle, turn end later", "row: broken JSON then a turn end"),
        *("row: gap then a turn end", "row: gap and the gapped row itself is a turn end"),
        *("row: repeated seq", "row: null in the middle", "row: type missing"),
        "packed: malformed then turn end",
    ):
        yield case, Departure(READ, FAILED, CORRUPT, "damage has one code")

    reason = "format 1 is read, so this header contradicts the name of its file"
    yield "header: version 1", Departure(LIST, "ok", CORRUPT, reason)
    yield "header: version 1", Departure(READ, FAILED, CORRUPT, reason)
    reason = "an unsupported format is left out of a listing, as the newer reference does"
    yield "header: version -1", Departure(LIST, "ok", "ok", reason)
    yield "header: version -1", Departure(SEARCH, FAILED, "ok", reason)
    for event in ("request header delta", "request header reason fallback"):
        reason = "a retired shape is intact: unsupported, never corrupt"
        yield f"older: {event}", Departure(READ, CORRUPT, FAILED, reason)

    case, reason = "header: byte order mark before it", "a byte order mark hides nothing"
    yield case, Departure(LIST, "ok", "ok", reason)
    yield case, Departure(READ, "SESSION_NOT_FOUND", "ok", reason)
    yield case, Departure(SEARCH, "ok", "ok", reason)
    case, reason = "other encoding in another session directory", "both encodings in one root"
    yield case, Departure(LIST, FAILED, "ok", reason)
    yield case, Departure(READ, FAILED, "ok", reason)
    yield case, Departure(SEARCH, FAILED, "ok", reason)
    for case in ("flat file in the project directory", "directory named session.jsonl"):
        yield case, Departure(READ, FAILED, "ok", "a fault elsewhere makes no session unreadable")
    for answer in (READ, SEARCH):
        reason = "a bad last line is torn whatever it holds"
        yield "row: null", Departure(answer, FAILED, "ok", reason)
    for case in (
        *("message: user text block without text", "message: user block null"),
        *("tool call without name", "turn end: error without message"),
    ):
        yield case, Departure(DOCUMENTS, "TypeError", "ok", "the reference crashed")
        yield case, Departure(SEARCH, FAILED, "ok", "the reference crashed")
    for case in (
        *("surface: marker missing", "surface: sources on a non-surface type"),
        *("replace: no sources", "replace: unknown start", "replace: start after end"),
        *("replace: itself", "sources: duplicate", "sources: itself", "sources: later"),
        *("sources: empty on a user message", "result rewrite: adds isError"),
        *("result rewrite: adds error", "result rewrite: two nodes"),
        "result rewrite: replaces an assistant message",
    ):
        reason = "each event is sound, the surface is not"
        yield case, Departure(READ, CORRUPT, "INVALID_SURFACE", reason)


DEPARTURES = list(_departures())


@pytest.fixture(params=CASES)
def name(request: pytest.FixtureRequest) -> str:
    case: str = request.param
    return case


def unpack(case: Json, root: Path) -> JsonlStore:
    for file in elements(member(case, "files")):
        path = root / text_member(file, "path")
        path.parent.mkdir(parents=True, exist_ok=True)
        text, packed = member(file, "text"), text_member(file, "base64")
        path.write_bytes(text.encode() if isinstance(text, str) else b64decode(packed))
    return JsonlStore(root)


def session_of(name: str) -> str:
    return "y" if name == "directory named session.jsonl" else "x"


@asynccontextmanager
async def service(
    store: JsonlStore, on_damaged: Literal["isolate", "fail"]
) -> AsyncIterator[SessionQuery]:
    async with open_session_query(store=store, config=QueryConfig(on_damaged=on_damaged)) as query:
        yield query


async def shown(call: Awaitable[T], show: Callable[[T], Json]) -> Json:
    """What a call answers, in the form of the vectors."""
    try:
        return show(await call)
    except SessionQueryError as error:
        return {"error": {"code": str(error.code)}}


async def answers(query: SessionQuery, session_id: str) -> dict[str, Json]:
    """What the reads and the search of a case answer."""
    return {
        LIST: await shown(
            query.list_sessions(),
            lambda found: {"headers": [header_to_json(each.header) for each in found.sessions]},
        ),
        READ: await shown(
            query.read_session(session_id),
            lambda log: {
                "session": header_to_json(log.header),
                "events": [event_to_json(event) for event in log.events],
            },
        ),
        "surface": await shown(
            query.list_events(session_id),
            lambda events: {"surfaces": [each.surface.value for each in events]},
        ),
        DOCUMENTS: await shown(
            query.filter_events(session_id, []),
            lambda documents: [[each.seq, each.text] for each in documents],
        ),
        SEARCH: await shown(
            query.search_sessions("alpha"),
            lambda page: [[hit.header.id, hit.best_match.seq] for hit in page.items],
        ),
    }


def outcome(answer: Json) -> str:
    error = member(answer, "error")
    return (text_member(error, "code") or text_member(error, "type") or "ok").removeprefix(
        "SESSION_QUERY_"
    )


def departure(name: str, answer: str) -> Departure | None:
    alone = answer in (LIST, SEARCH)
    for case, found in DEPARTURES:
        if case == name and found.answer in (answer, answer if alone else READ):
            return found
    return None


async def test_every_answer_is_the_references_or_a_departure(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    async with service(unpack(case, tmp_path), "fail") as query:
        ours = await answers(query, session_of(name))
    for answer, found in ours.items():
        expected, listed = member(case, answer), departure(name, answer)
        if listed is not None:
            assert found != expected, f"{answer} is no departure any more: {listed}"
            assert (outcome(expected), outcome(found)) == (listed.theirs, listed.ours), answer
        elif answer == SEARCH and outcome(expected) == FAILED:
            assert outcome(found) in {outcome(ours[LIST]), outcome(ours[READ])} - {"ok"}
        else:
            assert without_wording(found) == without_wording(expected), answer


def test_there_are_as_many_cases_as_were_recorded() -> None:
    assert len(CASES) == 152
    assert {case for case, _ in DEPARTURES} <= CASES.keys()


def test_the_decisions_list_every_departure() -> None:
    rows: defaultdict[Departure, list[str]] = defaultdict(list)
    for case, found in DEPARTURES:
        rows[found].append(case)
    _, _, section = DECISIONS.read_text("utf-8").partition("## Departures from the recorded stores")
    section, _, _ = section.partition("\n## ")
    listed = [line for line in section.splitlines() if line.startswith("| ")][1:]
    assert sorted(listed) == sorted(
        [
            f"| {', '.join(sorted(cases))} | {found.answer} | {found.theirs} | {found.ours} |"
            f" {found.reason} |"
            for found, cases in rows.items()
        ]
    )


async def test_a_healthy_neighbour_is_served_and_the_fault_is_named(
    tmp_path: Path, name: str
) -> None:
    store, session_id = unpack(CASES[name], tmp_path), session_of(name)
    healthy = row(0, "user/message", user_data("alpha"), surfaceOp="append")
    write_log(tmp_path, [healthy], segment="healthy", header=session_line(id="healthy"))
    async with service(store, "isolate") as query:
        listing, page = await query.list_sessions(), await query.search_sessions("alpha")
        assert "healthy" in {each.header.id for each in listing.sessions}
        assert "healthy" in {hit.header.id for hit in page.items}
        assert len(await query.list_events("healthy")) == 1
        for skipped in (*listing.skipped, *page.skipped):
            assert is_located(skipped, name)
        try:
            await query.list_events(session_id)
        except SessionQueryError as error:
            if error.code is not ErrorCode.SESSION_NOT_FOUND:
                assert session_id in {skipped.session_id for skipped in page.skipped}
                assert f"--w--/{session_id}/session.jsonl" in str(error)
        else:
            assert session_id not in {skipped.session_id for skipped in page.skipped}


def is_located(skipped: Skipped, name: str) -> bool:
    """Whether a message says in which file something is wrong, and where in it."""
    where = re.search(r"\bline \d+|\bevent \d+|\bheader: ", skipped.message) is not None
    return skipped.path in skipped.message and where == (not name.startswith(WITHOUT_LINES))


WITHOUT_LINES = (
    *("empty file", "header only, no newline", "same id in two"),
    *("flat file in", "directory named session.jsonl", "other encoding in another"),
)
"""Faults that are not in a line."""
