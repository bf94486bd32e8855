"""Packed chunk rows."""

from __future__ import annotations

from itertools import groupby, pairwise
from pathlib import Path

import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st
from jsonl_files import session_line, write_log
from strategies import words

from session_query.messages.event import Event
from session_query.messages.json import Json, encode
from session_query.storage import packing
from session_query.storage.jsonl import JsonlStore
from session_query.storage.packing import MalformedRow, is_packed, unpack
from session_query.storage.records import read_events, render_event

TEXT: dict[str, Json] = {"turn": 1, "step": 2, "index": 0, "dt": [5, -1], "texts": ["a", "", "c"]}
CALL: dict[str, Json] = {"turn": 1, "step": 2, "index": 3, "id": "c", "dt": [], "args": ["{"]}


def packed(data: Json, kind: str = "text-chunks", **changes: Json) -> dict[str, Json]:
    return {"type": kind, "seq0": 3, "time0": 10, "data": data, **changes}


def test_a_text_row_stands_for_its_deltas() -> None:
    events = unpack(packed(TEXT))
    assert [(event.type, event.seq, event.time) for event in events] == [
        ("assistant/chunk", 3, 10),
        ("assistant/chunk", 4, 15),
        ("assistant/chunk", 5, 14),
    ]
    assert events[0].raw == (
        b'{"turn":1,"step":2,"chunk":{"type":"text-delta","index":0,"text":"a"}}'
    )


def test_a_reasoning_row_stands_for_reasoning_deltas() -> None:
    [first, *_] = unpack(packed(TEXT, "reasoning-chunks"))
    assert b'"chunk":{"type":"reasoning-delta","index":0,"text":"a"}' in first.raw


@pytest.mark.parametrize("name", [None, "", "read"])
def test_a_call_row_keeps_an_absent_name_absent(name: str | None) -> None:
    data: dict[str, Json] = CALL if name is None else {**CALL, "name": name}
    [event] = unpack(packed(data, "tool-call-chunks"))
    named: dict[str, Json] = {} if name is None else {"name": name}
    chunk: dict[str, Json] = {"type": "tool-call-delta", "index": 3, "id": "c", **named}
    assert event.data == {"turn": 1, "step": 2, "chunk": {**chunk, "argumentsDelta": "{"}}


def test_whole_numbers_count_however_they_are_spelled() -> None:
    spelled = packed({**TEXT, "turn": 1.0, "step": 2.0, "index": 0.0, "dt": [5.0, -1.0]})
    assert unpack({**spelled, "seq0": 3.0, "time0": 1e1}) == unpack(packed(TEXT))


def test_the_last_member_may_have_the_last_exact_seq_and_time() -> None:
    last = 2**53 - 1
    events = unpack(packed(TEXT, seq0=last - 2, time0=last - 5))
    assert (events[2].seq, events[1].time) == (last, last)
    events = unpack(packed({**TEXT, "dt": [-5, 5]}, time0=5 - last))
    assert events[1].time == -last


def test_a_row_that_would_fill_the_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "UNPACKED_BYTES", 2_000)
    assert len(unpack(packed(TEXT))) == 3
    many: list[Json] = ["a"] * 4
    with pytest.raises(packing.OverfullRow, match="a packed row of 4 events, over 2000 bytes"):
        unpack(packed({**TEXT, "dt": [1, 1, 1], "texts": many}))


def test_a_lone_surrogate_in_a_member_is_kept() -> None:
    [event] = unpack(packed({**TEXT, "dt": [], "texts": ["\ud83d"]}))
    assert b'"text":"\\ud83d"' in event.raw


@pytest.mark.parametrize(
    "row",
    [
        packed(TEXT, extra=1),
        packed(TEXT, seq0=-1),
        packed(TEXT, seq0=1.5),
        packed(TEXT, seq0="3"),
        packed(TEXT, seq0=True),
        packed(TEXT, seq0=2**53 - 2),
        packed(TEXT, time0=1.5),
        packed(TEXT, time0=None),
        packed(TEXT, time0=2**53 - 3),
        packed(None),
        packed([]),
        packed({**TEXT, "extra": 1}),
        packed({key: TEXT[key] for key in TEXT if key != "index"}),
        packed({**TEXT, "turn": -1}),
        packed({**TEXT, "step": "1"}),
        packed({**TEXT, "index": 0.5}),
        packed({**TEXT, "texts": []}),
        packed({**TEXT, "texts": [], "dt": []}),
        packed({**TEXT, "texts": ["a", 1, "b"]}),
        packed({**TEXT, "texts": "abc"}),
        packed({**TEXT, "dt": [1]}),
        packed({**TEXT, "dt": [1, 2, 3]}),
        packed({**TEXT, "dt": [1, 1.5]}),
        packed({**TEXT, "dt": [1, "1"]}),
        packed({**TEXT, "dt": [1, 2**53]}),
        packed({**TEXT, "dt": [1, True]}),
        packed({**TEXT, "dt": None}),
        packed(TEXT, "tool-call-chunks"),
        packed(CALL),
        packed({**CALL, "id": 1}, "tool-call-chunks"),
        packed({**CALL, "name": None}, "tool-call-chunks"),
        packed({**CALL, "texts": ["x"]}, "tool-call-chunks"),
    ],
)
def test_a_malformed_row_is_refused_whole(row: dict[str, Json]) -> None:
    with pytest.raises(MalformedRow):
        unpack(row)


def test_other_objects_are_no_packed_rows() -> None:
    assert is_packed(packed(TEXT))
    assert not is_packed({"type": "text-chunks", "seq": 1})
    assert not is_packed({"type": "turn/start", "seq0": 1})


# --- whole batches, packed as the writers of formats 0 and 1 do


@frozen
class Delta:
    """What one chunk says, as far as a run must agree on it."""

    kind: str
    turn: int
    step: int
    index: int
    call: str | None = None
    name: str | None = None

    @property
    def named(self) -> dict[str, Json]:
        """Id and name of a tool call, absent where they are."""
        values: dict[str, str | None] = {"id": self.call, "name": self.name}
        return {key: value for key, value in values.items() if value is not None}

    def chunk(self, text: str) -> dict[str, Json]:
        words = "argumentsDelta" if self.kind == "tool-call" else "text"
        kind = f"{self.kind}-delta"
        return {"type": kind, "index": self.index, **self.named, words: text}

    def row(self, members: list[Member], seq: int) -> bytes:
        gaps: list[Json] = [later.time - earlier.time for earlier, later in pairwise(members)]
        data: dict[str, Json] = {"turn": self.turn, "step": self.step, "index": self.index}
        data |= {**self.named, "dt": gaps}
        data["args" if self.kind == "tool-call" else "texts"] = [each.text for each in members]
        kind = f"{self.kind}-chunks"
        return encode({"type": kind, "seq0": seq, "time0": members[0].time, "data": data})


@frozen
class Member:
    """One event of a batch; without a delta it is of another kind, or of a shape of its own."""

    delta: Delta | None
    text: str
    time: int

    def event(self, seq: int) -> Event:
        if self.delta is None:
            odd: Json = {"turn": 1, "step": 1, "chunk": {"type": "text-delta", "more": self.text}}
            return Event("assistant/chunk", seq, self.time, encode(odd))
        chunk = self.delta.chunk(self.text)
        data: Json = {"turn": self.delta.turn, "step": self.delta.step, "chunk": chunk}
        return Event("assistant/chunk", seq, self.time, encode(data))


def pack(members: list[Member]) -> list[bytes]:
    """The lines of a batch: a row for three or more that agree, all else as it is."""
    lines: list[bytes] = []
    seq = 0
    for delta, run in groupby(members, lambda member: member.delta):
        alike = [*run]
        if delta is not None and len(alike) >= 3:
            lines.append(delta.row(alike, seq))
        else:
            lines += [
                render_event(member.event(seq + at)).removesuffix(b"\n")
                for at, member in enumerate(alike)
            ]
        seq += len(alike)
    return lines


small = st.integers(1, 2)
deltas = st.one_of(
    st.builds(Delta, st.sampled_from(["text", "reasoning"]), small, small, small),
    st.builds(
        Delta, st.just("tool-call"), small, small, small, words, st.sampled_from([None, "", "read"])
    ),
)
runs = st.tuples(st.none() | deltas, st.lists(st.tuples(words, st.integers()), min_size=1))


@given(st.lists(runs, max_size=5))
def test_a_packed_batch_is_read_as_what_it_was(
    batch: list[tuple[Delta | None, list[tuple[str, int]]]],
) -> None:
    members = [
        Member(delta, text, 1_760_000_000_000 + time % 2_000_000)
        for delta, texts in batch
        for text, time in texts
    ]
    found: list[Event] = []
    for line in pack(members):
        found += read_events(line, 0, len(found))
    assert found == [member.event(seq) for seq, member in enumerate(members)]


@pytest.mark.parametrize("version", [0, 1])
def test_chunks_are_stored_one_by_one_and_read_back(tmp_path: Path, version: int) -> None:
    delta = Delta("text", 1, 1, 0)
    chunks = tuple(Member(delta, f"{seq}", 5).event(seq) for seq in range(4))
    name = f"session.v{version}.jsonl" if version else "session.jsonl"
    line = session_line(version=version, isSeeded=None)
    path = write_log(tmp_path, [], name=name, header=line)
    with JsonlStore(tmp_path).open("s", "write") as writer:
        writer.append(chunks)
    assert path.read_bytes() == line + b"\n" + b"".join(map(render_event, chunks))
    with JsonlStore(tmp_path).open("s", "read") as reader:
        assert reader.read() == chunks
