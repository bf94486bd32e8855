"""The hand-made sample stores, read as their descriptions say."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from session_query.messages.event import Event
from session_query.storage.contract import StoredLog
from session_query.storage.jsonl import JsonlStore
from session_query.storage.records import render_event
from session_query.storage.zstandard import compress

SAMPLES = Path(__file__).parent / "data" / "samples"


def read(session_id: str, store: str = "store") -> StoredLog:
    with JsonlStore(SAMPLES / store).open(session_id, "read") as reader:
        return reader.read_log()


@pytest.mark.parametrize(
    ("session_id", "store", "events", "inherited"),
    [
        ("plain-0001", "store", 16, 0),
        ("fork-0002", "store", 25, 15),
        ("compact-0003", "store", 26, 0),
        ("torn-0004", "store", 6, 0),
        ("old-0005", "store-v0", 11, 0),
    ],
)
def test_a_sample_has_the_events_it_was_made_with(
    session_id: str, store: str, events: int, inherited: int
) -> None:
    log = read(session_id, store)
    assert (len(log.events), log.inherited_event_count) == (events, inherited)
    assert log.snapshot.header.cwd == "/srv/demo"


def test_every_sample_is_swept() -> None:
    swept = JsonlStore(SAMPLES / "store").sweep()
    ids = sorted(found.header.id for found in swept.snapshots)
    assert ids == ["compact-0003", "fork-0002", "plain-0001", "torn-0004"]
    assert swept.damaged == ()


def test_a_fork_begins_with_the_bytes_of_its_parent() -> None:
    parent, fork = read("plain-0001"), read("fork-0002")
    assert fork.events[:15] == parent.events[:15]
    assert fork.snapshot.header.parent_session == "plain-0001"


def test_a_stored_range_is_expanded() -> None:
    log = read("compact-0003")
    assert log.events[20].source_event_seqs == (2, 3, 8, 9, 10, 11, 14)


def test_a_torn_sample_says_where_it_is_torn() -> None:
    assert "line 8: 120 bytes without a line end" in str(read("torn-0004").left_out)


def test_a_packed_row_of_the_old_format_becomes_chunks() -> None:
    log = read("old-0005", "store-v0")
    assert [(event.type, event.seq, event.time) for event in log.events[4:7]] == [
        ("assistant/chunk", 4, 1760000060041),
        ("assistant/chunk", 5, 1760000060042),
        ("assistant/chunk", 6, 1760000060044),
    ]
    assert log.events[8].source_event_seqs == (3, 4, 5, 6, 7)


@pytest.mark.parametrize("session_id", ["plain-0001", "compact-0003"])
def test_writing_a_sample_back_gives_its_bytes(tmp_path: Path, session_id: str) -> None:
    log = read(session_id)
    with JsonlStore(tmp_path).create(log.snapshot.header) as writer:
        for event in log.events:
            writer.append((event,))
    path = Path("--srv-demo--") / session_id / "session.v2.jsonl"
    assert (tmp_path / path).read_bytes() == (SAMPLES / "store" / path).read_bytes()


def test_a_torn_sample_can_be_continued(tmp_path: Path) -> None:
    shutil.copytree(SAMPLES / "store", tmp_path / "store")
    path = tmp_path / "store" / "--srv-demo--" / "torn-0004" / "session.v2.jsonl"
    with JsonlStore(tmp_path / "store").open("torn-0004", "write") as writer:
        assert path.stat().st_size == 1325
        [last] = writer.read(5)
        writer.append((type(last)("demo/x", 6, 1, b"{}", ignorable=True),))
    assert path.read_bytes()[1205:] == (
        b'{"type":"demo/x","seq":6,"time":1,"data":{},"ignorable":true}\n'
    )


def test_the_torn_frame_of_a_sample_is_stored_again_whole(tmp_path: Path) -> None:
    shutil.copytree(SAMPLES / "store-zstd", tmp_path / "store")
    [path] = (tmp_path / "store").rglob("*.zstd")
    with JsonlStore(tmp_path / "store").open("torn-0004", "write") as writer:
        events = writer.read()
        assert (len(events), path.stat().st_size) == (6, 686)
        writer.append((type(events[0])("demo/x", 6, 1, b"{}", ignorable=True),))
    rows = [b"".join(map(render_event, batch)) for batch in (events[4:], writer_events(path)[6:])]
    [original] = (SAMPLES / "store-zstd").rglob("*.zstd")
    assert path.read_bytes() == original.read_bytes()[:428] + b"".join(map(compress, rows))


def writer_events(path: Path) -> tuple[Event, ...]:
    with JsonlStore(path.parents[2]).open("torn-0004", "read") as reader:
        return reader.read()
