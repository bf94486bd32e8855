"""The reference's answers over tiny stores, most of them damaged in one way each.

Every answer agrees but for the departures below, which the design decides: damage has one code,
whatever part of a session it hits, and a fault makes unreadable what it hits and nothing else.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import frozen
from builders import interrupted_turn_closers
from jsonl_files import BODY, session_line, write_log
from test_golden_history import GOLDEN, without_wording

from session_query.history.documents import search_documents
from session_query.history.fold import fold_surface
from session_query.history.replay import validate_log
from session_query.messages.errors import (
    InvalidJson,
    ReplayError,
    SessionError,
    SurfaceError,
    UnsupportedFormat,
)
from session_query.messages.event import event_to_json
from session_query.messages.header import header_to_json
from session_query.messages.json import Json, decode, elements, member, text_member
from session_query.storage.contract import CorruptLog, NotFound, StoreError
from session_query.storage.jsonl import JsonlStore

CASES = {
    text_member(case, "case"): case
    for case in map(decode, (GOLDEN / "store_cases.jsonl").read_bytes().splitlines())
}
LIST, READ, DOCUMENTS = "list", "read", "documents"
CORRUPT, FAILED = "CORRUPT_SESSION", "PERSISTENCE_FAILED"


@frozen
class Departure:
    """Where an answer of ours is another one than the reference's, and why."""

    answer: str
    """``read`` stands for surface and documents too, which begin with it."""
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
    for event in ("request header delta", "request header reason fallback"):
        reason = "a retired shape is intact: unsupported, never corrupt"
        yield f"older: {event}", Departure(READ, CORRUPT, FAILED, reason)

    case, reason = "header: byte order mark before it", "a byte order mark hides nothing"
    yield case, Departure(LIST, "ok", "ok", reason)
    yield case, Departure(READ, "SESSION_NOT_FOUND", "ok", reason)
    case, reason = "other encoding in another session directory", "both encodings in one root"
    yield case, Departure(LIST, FAILED, "ok", reason)
    yield case, Departure(READ, FAILED, "ok", reason)
    for case in ("flat file in the project directory", "directory named session.jsonl"):
        yield case, Departure(READ, FAILED, "ok", "a fault elsewhere makes no session unreadable")
    yield "row: null", Departure(READ, FAILED, "ok", "a bad last line is torn whatever it holds")
    for case in (
        *("message: user text block without text", "message: user block null"),
        *("tool call without name", "turn end: error without message"),
    ):
        yield case, Departure(DOCUMENTS, "TypeError", "ok", "the reference crashed")


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


def _error(code: str) -> dict[str, Json]:
    return {"error": {"code": f"SESSION_QUERY_{code}"}}


def listing(store: JsonlStore) -> Json:
    """A listing that leaves nothing out but what is no session at all."""
    swept = store.sweep()
    for damaged in swept.damaged:
        if damaged.conflict:
            return {"error": {"code": str(damaged.code)}}
    return {"headers": [header_to_json(found.header) for found in swept.snapshots]}


def refusal(error: SessionError) -> dict[str, Json]:
    match error:
        case NotFound():
            return _error("SESSION_NOT_FOUND")
        case CorruptLog() | ReplayError() | SurfaceError() | InvalidJson():
            return _error(CORRUPT)
    assert isinstance(error, StoreError | UnsupportedFormat)
    return _error(FAILED)


def answers(store: JsonlStore, session_id: str) -> dict[str, Json]:
    """What the four reads of a case answer."""
    found: dict[str, Json] = {LIST: listing(store)}
    try:
        with store.open(session_id, "read") as handle:
            log = handle.read_log()
        header, events = log.snapshot.header, log.events
        validate_log(header, events)
        events = (*events, *interrupted_turn_closers(events))
        surface = fold_surface(events, header.version)
    except SessionError as error:
        return {**found, READ: refusal(error), "surface": refusal(error), DOCUMENTS: refusal(error)}
    shown: list[Json] = [event_to_json(event) for event in events]
    rows: list[Json] = [surface.surface_of(event.seq).value for event in events]
    documents: list[Json] = [
        [row.seq, row.text] for row in search_documents(events, header.version)
    ]
    found[READ] = {"session": header_to_json(header), "events": shown}
    return {**found, "surface": {"surfaces": rows}, DOCUMENTS: documents}


def outcome(answer: Json) -> str:
    error = member(answer, "error")
    return (text_member(error, "code") or text_member(error, "type") or "ok").removeprefix(
        "SESSION_QUERY_"
    )


def departure(name: str, answer: str) -> Departure | None:
    for case, found in DEPARTURES:
        if case == name and found.answer in (answer, READ if answer != LIST else LIST):
            return found
    return None


def test_every_answer_is_the_references_or_a_departure(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    ours = answers(unpack(case, tmp_path), session_of(name))
    for answer, found in ours.items():
        expected, listed = member(case, answer), departure(name, answer)
        if listed is None:
            assert without_wording(found) == without_wording(expected), answer
        else:
            assert found != expected, f"{answer} is no departure any more: {listed}"
            assert (outcome(expected), outcome(found)) == (listed.theirs, listed.ours), answer


def test_there_are_as_many_cases_as_were_recorded() -> None:
    assert len(CASES) == 152
    assert {case for case, _ in DEPARTURES} <= CASES.keys()


def test_a_healthy_neighbour_is_served_and_the_fault_is_named(tmp_path: Path, name: str) -> None:
    store = unpack(CASES[name], tmp_path)
    write_log(tmp_path, BODY, segment="healthy", header=session_line(id="healthy"))
    swept = store.sweep()
    assert "healthy" in {found.header.id for found in swept.snapshots}
    with store.open("healthy", "read") as handle:
        assert len(handle.read()) == len(BODY)
    for damaged in swept.damaged:
        assert damaged.path in damaged.message
    try:
        with store.open(session_of(name), "read") as handle:
            handle.read_log()
    except StoreError as error:
        assert f"--w--/{session_of(name)}/session.jsonl" in str(error)
        assert (" line " in str(error)) == (not name.startswith(WITHOUT_LINES))


WITHOUT_LINES = ("empty file", "header only, no newline", "same id in two")
"""Faults that are not in a line."""
