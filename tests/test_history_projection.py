"""The incremental projection equals the whole-log folds, can step back, and survives storage."""

from __future__ import annotations

import pytest
from attrs import evolve
from builders import START, Log, header, interrupted_turn_closers, tool_call
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import logs

from session_query.history.documents import Document, search_documents, shadowed
from session_query.history.fold import fold_surface
from session_query.history.projection import Advance, SessionProjection
from session_query.history.replay import check_restored
from session_query.history.titles import fold_title
from session_query.messages.errors import InvalidJson, ReplayError, SurfaceError, UnsupportedFormat
from session_query.messages.event import Event
from session_query.messages.json import Json, encode


def project(events: tuple[Event, ...]) -> tuple[SessionProjection, list[Advance]]:
    projection = SessionProjection(header())
    return projection, [projection.advance(event) for event in events]


def final_documents(advances: list[Advance]) -> tuple[Document, ...]:
    """The documents after all flips that the advances report."""
    documents = {each.event.seq: each.document for each in advances if each.document is not None}
    for seq in (seq for each in advances for seq in each.shadowed):
        if seq in documents:
            documents[seq] = shadowed(documents[seq])
    return tuple(documents.values())


@given(logs())
@settings(max_examples=80)
def test_the_incremental_projection_equals_the_folds_of_the_whole_log(
    events: tuple[Event, ...],
) -> None:
    projection, advances = project(events)
    folded = fold_surface(events, 2)
    assert tuple(projection.surface.nodes()) == folded.nodes
    assert projection.surface.replace_generation == len(folded.replacements)
    shadowed_at = {each.event.seq: each.shadowed for each in advances if each.shadowed}
    assert shadowed_at == {each.seq: each.shadowed for each in folded.replacements}
    assert final_documents(advances) == search_documents(events, 2)
    assert projection.title == fold_title(events)
    assert projection.closers() == interrupted_turn_closers(events)
    assert projection.next_seq == len(events)
    assert projection.last_time == (events[-1].time if events else 0)


@given(logs(), st.data())
@settings(max_examples=60)
def test_retracting_restores_every_earlier_state(
    events: tuple[Event, ...], data: st.DataObject
) -> None:
    kept = data.draw(st.integers(0, len(events)))
    expected, _ = project(events[:kept])
    projection, advances = project(events)
    final = projection.encode()
    for advance in reversed(advances[kept:]):
        projection.retract(advance)
    assert projection.encode() == expected.encode()
    assert [projection.advance(event) for event in events[kept:]] == advances[kept:]
    assert projection.encode() == final


@given(logs(), st.data())
@settings(max_examples=60)
def test_a_stored_state_continues_like_the_original(
    events: tuple[Event, ...], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(events)))
    original, _ = project(events[:cut])
    blob = original.encode()
    restored = SessionProjection.decode(header(), blob)
    assert restored.encode() == blob
    assert restored.turn == original.turn and restored.title == original.title
    for event in events[cut:]:
        mine, theirs = original.advance(event), restored.advance(event)
        assert (mine.document, mine.shadowed) == (theirs.document, theirs.shadowed)
    assert restored.encode() == original.encode()
    assert restored.closers() == original.closers()


@given(logs())
@settings(max_examples=40)
def test_a_copy_does_not_follow_its_original(events: tuple[Event, ...]) -> None:
    projection = SessionProjection(header())
    for event in events:
        twin, before = projection.copy(), projection.encode()
        projection.advance(event)
        assert twin.encode() == before
        twin.advance(event)
        assert twin.encode() == projection.encode()


def test_lone_surrogates_in_titles_and_call_ids_survive_storage() -> None:
    log = Log()
    log.turn_start()
    log.title("half \ud83d")
    log.assistant(tool_call("c\udc00", "session_search"))
    projection, _ = project(tuple(log.events))
    restored = SessionProjection.decode(header(), projection.encode())
    assert restored.title == projection.title
    assert restored.closers() == projection.closers()


@pytest.mark.parametrize("blob", [b"", b"\x93\x01\x02\x03", b"\x80"])
def test_a_blob_that_is_no_state_is_a_value_error(blob: bytes) -> None:
    with pytest.raises(ValueError):
        SessionProjection.decode(header(), blob)


def test_a_state_of_another_version_is_refused() -> None:
    blob = bytearray(SessionProjection(header()).encode())
    assert blob[1] == 1
    blob[1] = 2
    with pytest.raises(ValueError, match="format 2"):
        SessionProjection.decode(header(), bytes(blob))


UNSEEDED_MARKER = Event("session/end-seed", 2, 0, b'{"inherited":true}')


@pytest.mark.parametrize(
    ("event", "error"),
    [
        (Event("turn/end", 3, 0, b"{}"), ReplayError),
        (Event("user/message", 2, 0, b"{}", "append"), ReplayError),
        (UNSEEDED_MARKER, ReplayError),
        (Event("turn/end", 2, 0, b"{}", "append"), SurfaceError),
        (Event("demo/note", 2, 0, b"{}"), UnsupportedFormat),
        (Event("plan/mode", 2, 0, b"[" * 400 + b"]" * 400), UnsupportedFormat),
        (Event("plan/mode", 2, 0, b"{"), InvalidJson),
    ],
)
def test_a_refused_event_leaves_the_projection_unchanged(
    event: Event, error: type[Exception]
) -> None:
    log = Log()
    log.turn_start()
    log.user("A")
    projection, _ = project(tuple(log.events))
    before = projection.encode()
    with pytest.raises(error):
        projection.advance(event)
    assert projection.encode() == before


def test_a_failing_text_hook_leaves_the_projection_unchanged() -> None:
    def extract(_event_type: str, _data: Json) -> str:
        raise ZeroDivisionError

    projection = SessionProjection(header(), extract)
    with pytest.raises(ZeroDivisionError):
        projection.advance(Event("demo/note", 0, 0, b"{}", ignorable=True))
    assert projection.next_seq == 0


def test_streams_are_verified_where_the_caller_asks_for_it() -> None:
    raw = encode({"stream": [None]})
    event = Event("assistant/attempt", 0, 0, raw)
    assert SessionProjection(header()).advance(event).document is None
    with pytest.raises(ReplayError, match="stream"):
        SessionProjection(header(), check=check_restored).advance(event)


def test_only_the_latest_advance_can_be_retracted() -> None:
    log = Log()
    log.turn_start()
    log.turn_end()
    projection, advances = project(tuple(log.events))
    with pytest.raises(ValueError, match="latest"):
        projection.retract(advances[0])


def test_the_inherited_count_follows_the_last_marker() -> None:
    log = Log()
    log.user("A")
    log.add("session/end-seed", {"inherited": True})
    log.add("session/end-seed", {})
    projection = SessionProjection(header(seeded=True))
    with pytest.raises(ReplayError, match="no session/end-seed"):
        projection.finish()
    for event in log.events:
        projection.advance(event)
    projection.finish()
    assert projection.inherited_event_count == 1


def test_the_inherited_count_of_an_old_log_never_exceeds_what_was_seen() -> None:
    log = Log()
    log.user("A")
    log.user("B")
    old = evolve(header(version=0), is_seeded=True, seed_length=5)
    projection = SessionProjection(old)
    for event in log.events:
        projection.advance(event)
    projection.finish()
    assert projection.inherited_event_count == 2


def test_closers_advance_a_projection_to_a_closed_turn_and_can_be_taken_back() -> None:
    log = Log()
    log.turn_start()
    log.step_start()
    log.assistant(tool_call("c", "ls"))
    projection, _ = project(tuple(log.events))
    before = projection.encode()
    advances = [projection.advance(event) for event in projection.closers()]
    assert projection.closers() == ()
    assert [each.document.seq for each in advances if each.document] == [3, 5]
    assert {each.event.time for each in advances} == {START + 2}
    for advance in reversed(advances):
        projection.retract(advance)
    assert projection.encode() == before
