"""The sample logs, folded to what is known about them."""

from __future__ import annotations

from pathlib import Path

import pytest
from attrs import evolve, frozen
from builders import interrupted_turn_closers

from session_query.history.documents import search_documents
from session_query.history.fold import Replacement, fold_surface
from session_query.history.projection import SessionProjection
from session_query.history.replay import validate_log
from session_query.history.titles import fold_title
from session_query.messages.errors import ReplayError, SurfaceError, UnsupportedFormat
from session_query.messages.event import Event
from session_query.messages.header import SessionHeader
from session_query.messages.json import Json, encode, member
from session_query.messages.records import SessionTitle
from session_query.storage.jsonl import JsonlStore

SAMPLES = Path(__file__).parent / "data" / "samples"


@frozen
class Sample:
    header: SessionHeader
    events: tuple[Event, ...]

    @property
    def nodes(self) -> tuple[int, ...]:
        return fold_surface(self.events, self.header.version).nodes


@pytest.fixture
def sample(request: pytest.FixtureRequest, tmp_path: Path) -> Sample:
    """The sample log that the test's ``sample`` parameter names, read from a store."""
    session_id: str = request.param
    file_name = "session.jsonl" if session_id == "old-0005" else "session.v2.jsonl"
    directory = tmp_path / "--srv-demo--" / session_id
    directory.mkdir(parents=True)
    (directory / file_name).write_bytes((SAMPLES / f"{session_id}.jsonl").read_bytes())
    with JsonlStore(tmp_path).open(session_id, "read") as handle:
        return Sample(handle.header, handle.read())


def of(session_id: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("sample", [session_id], indirect=True)


def with_raw(event: Event, raw: bytes) -> Event:
    return Event(event.type, event.seq, event.time, raw, event.surface_op, event.source_event_seqs)


@of("plain-0001")
def test_the_plain_log(sample: Sample) -> None:
    assert validate_log(sample.header, sample.events) == 0
    assert sample.nodes == (2, 7, 9, 12)
    assert interrupted_turn_closers(sample.events) == ()
    assert fold_title(sample.events) == SessionTitle(
        "Which files are in the demo", (2,), {"kind": "fallback"}, 3, 1760000000040
    )
    texts = {document.seq: document.text for document in search_documents(sample.events, 2)}
    assert [*texts] == [2, 7, 8, 9, 12]
    assert texts[7] == 'I will look.\nls\n{"path":"."}'
    assert texts[9] == "alpha.txt\nbeta.txt"


@of("plain-0001")
def test_the_ignorable_note_of_the_plain_log_is_unsupported_without_its_flag(
    sample: Sample,
) -> None:
    note = sample.events[15]
    events = (*sample.events[:15], with_raw(note, note.raw))
    assert note.ignorable and not events[15].ignorable
    with pytest.raises(UnsupportedFormat, match="event 15"):
        validate_log(sample.header, events)


@of("plain-0001")
def test_the_stream_of_the_plain_log_has_to_match_its_message(sample: Sample) -> None:
    data = sample.events[7].data
    assert isinstance(data, dict)
    forged: Json = {**data, "usage": {"inputTokens": 0}}
    events = (*sample.events[:7], with_raw(sample.events[7], encode(forged)))
    with pytest.raises(ReplayError, match="event 7: its stream does not rebuild its usage"):
        validate_log(sample.header, events)


@of("fork-0002")
def test_the_forked_log(sample: Sample) -> None:
    assert validate_log(sample.header, sample.events) == 15
    assert sample.nodes == (2, 7, 9, 12, 18, 20)
    assert interrupted_turn_closers(sample.events) == ()
    title = fold_title(sample.events)
    assert title == SessionTitle("Second look", (), {"kind": "user"}, 24, sample.events[24].time)


@of("fork-0002")
def test_the_forked_log_is_damaged_where_header_and_marker_disagree(sample: Sample) -> None:
    with pytest.raises(ReplayError, match="not seeded"):
        validate_log(evolve(sample.header, is_seeded=False), sample.events)
    untagged = with_raw(sample.events[15], b"{}")
    events = (*sample.events[:15], untagged, *sample.events[16:])
    with pytest.raises(ReplayError, match="no session/end-seed"):
        validate_log(sample.header, events)


@of("compact-0003")
def test_the_compacted_log(sample: Sample) -> None:
    assert validate_log(sample.header, sample.events) == 0
    folded = fold_surface(sample.events, 2)
    assert folded.nodes == (20, 15, 21, 23)
    assert folded.replacements == (
        Replacement(14, 11, 11, (11,)),
        Replacement(20, 2, 14, (2, 3, 8, 9, 14)),
    )
    assert sample.events[20].source_event_seqs == (2, 3, 8, 9, 10, 11, 14)


@of("compact-0003")
def test_the_summary_of_the_compacted_log_has_to_cite_all_it_removes(sample: Sample) -> None:
    summary = sample.events[20]
    cited = tuple(seq for seq in summary.source_event_seqs or () if seq != 9)
    forged = Event(summary.type, 20, summary.time, summary.raw, summary.surface_op, cited)
    with pytest.raises(SurfaceError, match="replaces 9 without citing"):
        fold_surface((*sample.events[:20], forged), 2)


@of("torn-0004")
def test_the_torn_log_is_closed_in_memory(sample: Sample) -> None:
    assert len(sample.events) == 6
    assert sample.nodes == (2, 4)
    closers = interrupted_turn_closers(sample.events)
    assert {event.time for event in closers} == {1760000040060}
    assert [(event.seq, event.type, event.source_event_seqs) for event in closers] == [
        (6, "tool/result", (5,)),
        (7, "tool/result", None),
        (8, "step/end", None),
        (9, "turn/end", None),
    ]
    assert [member(event.data, "error", "code") for event in closers[:2]] == [
        "TOOL_OUTCOME_UNKNOWN",
        "TOOL_NOT_STARTED",
    ]
    assert [member(event.data, "message", "id") for event in closers[:2]] == [
        "interrupted-tool-result-call-a-6",
        "interrupted-tool-result-call-b-7",
    ]
    repaired = (*sample.events, *closers)
    assert fold_surface(repaired, 2).nodes == (2, 4, 6, 7)
    assert validate_log(sample.header, repaired) == 0
    assert interrupted_turn_closers(repaired) == ()


@of("old-0005")
def test_the_old_log_keeps_its_stored_seqs(sample: Sample) -> None:
    assert validate_log(sample.header, sample.events) == 0
    assert [event.seq for event in sample.events] == [*range(11)]
    assert sample.nodes == (2, 8)
    assert sample.events[8].source_event_seqs == (3, 4, 5, 6, 7)
    texts = [(document.seq, document.text) for document in search_documents(sample.events, 0)]
    assert texts == [(2, "Say hi."), (8, "Hi there.")]
    projection = SessionProjection(sample.header)
    for event in sample.events:
        projection.advance(event)
    assert projection.closers() == ()
