"""Packed chunk rows."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import words

from session_query.messages.event import Event
from session_query.messages.json import Json
from session_query.storage.packing import MalformedRow, is_packed, unpack

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


@given(
    st.lists(st.tuples(words, st.integers(-1000, 2000)), min_size=1, max_size=6),
    st.integers(0, 50),
)
def test_packing_then_unpacking_changes_nothing(members: list[tuple[str, int]], seq: int) -> None:
    texts, times = zip(*members, strict=True)
    gaps: list[Json] = [later - earlier for earlier, later in pairwise(times)]
    data: dict[str, Json] = {**TEXT, "dt": gaps, "texts": list(texts)}
    events = unpack(packed(data, seq0=seq, time0=times[0]))
    assert [event.seq for event in events] == list(range(seq, seq + len(members)))
    assert [event.time for event in events] == list(times)
    assert [_text(event) for event in events] == list(texts)


def _text(event: Event) -> Json:
    data = event.data
    assert isinstance(data, dict) and isinstance(data["chunk"], dict)
    return data["chunk"]["text"]
