"""The exact JSON of an event: what a formatter refuses is shown all the same."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from session_query.messages.event import Event
from session_query.tools.exact_json import event_json

_ESCAPES = st.sampled_from(
    [r"\ud800", r"\uDBff", r"\udc00", r"\ufffd", r"\uFFFD", r"\\", r"\\ud800", r"\ud83d\ude00", "x"]
)


@settings(max_examples=100)
@given(st.lists(_ESCAPES, max_size=8))
def test_every_escape_keeps_its_spelling(escapes: list[str]) -> None:
    raw = f'["{"".join(escapes)}", 1.0, 1e2]'
    shown = event_json(Event("demo/x", 0, 1, raw.encode()))
    assert "".join(escapes) in shown
    assert json.loads(shown)["data"] == json.loads(raw)
    assert shown.encode().decode() == shown
