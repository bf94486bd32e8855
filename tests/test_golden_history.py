"""The reference's answers over its generated corpus: rows, surfaces, documents and titles."""

from __future__ import annotations

import gzip
import re
import tarfile
from pathlib import Path

import pytest
from builders import interrupted_turn_closers

from session_query.history.documents import search_documents, shadowed
from session_query.history.fold import fold_surface
from session_query.history.projection import SessionProjection
from session_query.history.replay import validate_log
from session_query.history.titles import fold_title
from session_query.messages.event import Event, event_to_json
from session_query.messages.header import SessionHeader
from session_query.messages.json import Json, decode, elements, member
from session_query.storage.jsonl import JsonlStore

GOLDEN = Path(__file__).parent / "data" / "golden"

with gzip.open(GOLDEN / "sessions.jsonl.gz") as lines:
    SESSIONS = [decode(line) for line in lines]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> JsonlStore:
    root = tmp_path_factory.mktemp("golden")
    with tarfile.open(GOLDEN / "corpus.tar.gz") as archive:
        archive.extractall(root, filter="data")
    return JsonlStore(root / "store")


@pytest.fixture(params=SESSIONS, ids=[str(member(golden, "id")) for golden in SESSIONS])
def golden(request: pytest.FixtureRequest) -> Json:
    answers: Json = request.param
    return answers


def cold_read(store: JsonlStore, golden: Json) -> tuple[SessionHeader, tuple[Event, ...]]:
    """A session as a cold reader sees it, in-memory closers included."""
    with store.open(str(member(golden, "id")), "read") as handle:
        events = handle.read()
        return handle.header, (*events, *interrupted_turn_closers(events))


def masked(text: str) -> str:
    """A text without the wording of synthetic results, ours or the reference's."""
    return re.sub(r"^(<synthetic text[^>]*>|The turn was interrupted .*)", "<masked>", text)


def test_the_corpus_has_forty_sessions(store: JsonlStore) -> None:
    found = {snapshot.header.id for snapshot in store.sweep().snapshots}
    assert len(SESSIONS) == 40
    assert found == {member(golden, "id") for golden in SESSIONS}


def test_every_log_is_valid(store: JsonlStore, golden: Json) -> None:
    header, events = cold_read(store, golden)
    assert validate_log(header, events) == (header.seed_length or 0)
    assert len(events) == member(golden, "readSession", "eventCount")


def test_the_rows_of_every_log_agree(store: JsonlStore, golden: Json) -> None:
    header, events = cold_read(store, golden)
    folded = fold_surface(events, header.version)
    rows: list[Json] = [
        [event.seq, event.type, event.time, folded.surface_of(event.seq).value] for event in events
    ]
    assert rows == member(golden, "listEvents", "rows")


def test_the_closers_of_every_log_agree_but_for_their_wording(
    store: JsonlStore, golden: Json
) -> None:
    _header, events = cold_read(store, golden)
    expected = elements(member(golden, "readSession", "synthetic"))
    written = len(events) - len(expected)
    synthetic = [*map(event_to_json, events[written:])]
    assert [*map(without_wording, synthetic)] == [*map(without_wording, expected)]


def without_wording(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: without_wording(item) for key, item in value.items()}
    if isinstance(value, list):
        return [*map(without_wording, value)]
    return masked(value) if isinstance(value, str) else value


def test_the_surface_of_every_log_agrees(store: JsonlStore, golden: Json) -> None:
    header, events = cold_read(store, golden)
    nodes = fold_surface(events, header.version).nodes
    assert [*nodes] == member(golden, "readSurface", "seqs")
    shown: list[Json] = [without_wording(event_to_json(events[seq])) for seq in nodes]
    assert shown == without_wording(member(golden, "readSurface", "events"))


def test_the_documents_of_every_log_agree(store: JsonlStore, golden: Json) -> None:
    header, events = cold_read(store, golden)
    documents: list[Json] = [
        [document.seq, document.surface.value, masked(document.text)]
        for document in search_documents(events, header.version)
    ]
    assert documents == [*map(without_wording, elements(member(golden, "documents")))]


def test_the_title_of_every_log_agrees(store: JsonlStore, golden: Json) -> None:
    _header, events = cold_read(store, golden)
    title = fold_title(events)
    found: Json = None
    if title is not None:
        found = {
            "title": title.title,
            "messageSeqs": list(title.message_seqs),
            "source": title.source,
            "eventSeq": title.event_seq,
            "updatedAt": title.updated_at,
        }
    assert found == member(golden, "readTitle", "ok", "title")


def test_the_incremental_projection_of_every_log_agrees(store: JsonlStore, golden: Json) -> None:
    header, events = cold_read(store, golden)
    projection = SessionProjection(header)
    advances = [projection.advance(event) for event in events]
    projection.finish()
    flipped = {seq for advance in advances for seq in advance.shadowed}
    documents = [
        shadowed(document) if document.seq in flipped else document
        for document in (advance.document for advance in advances)
        if document is not None
    ]
    assert tuple(documents) == search_documents(events, header.version)
    assert [*projection.surface.nodes()] == member(golden, "readSurface", "seqs")
