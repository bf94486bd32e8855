"""The worked example of ``docs/sources.md``, as the store it makes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from foreign_logs import CLAUDE_START, add, clock, write
from store_contract import Corpus, ReadingContract

from session_query.messages.event import Event
from session_query.messages.header import SessionHeader
from session_query.messages.json import encode

SOURCES = (Path(__file__).parent.parent / "docs" / "sources.md").read_text("utf-8")
OPENING, SEVERAL, EXAMPLE = re.findall(
    r"^```python\n(.*?)^```\n", SOURCES, re.DOTALL | re.MULTILINE
)


class NotebookCorpus(Corpus):
    """Rows of an imaginary agent, one an event."""

    def __init__(self, root: Path) -> None:
        names: dict[str, Any] = {}
        exec(compile(EXAMPLE, "docs/sources.md", "exec"), names)
        super().__init__(names["NotebookStore"](root))
        self._root = root

    def put(self, session_id: str, begin: int, end: int) -> None:
        rows = [self._row(seq) for seq in range(begin, end)]
        (add if begin else write)(self._root / f"{session_id}.jsonl", *rows)

    def events(self, session_id: str, count: int) -> tuple[Event, ...]:
        return tuple(self._event(seq) for seq in range(count))

    def header(self, session_id: str) -> SessionHeader:
        return SessionHeader(session_id, CLAUDE_START, cwd="/work")

    def _row(self, seq: int) -> bytes:
        return encode({"at": clock(seq), "dir": "/work", "who": "user", "say": f"Line {seq}"})

    def _event(self, seq: int) -> Event:
        raw = (
            b'{"id":"notebook-%d","role":"user","content":[{"type":"text","text":"Line %d"},'
            b'{"type":"record","record":%s}],"source":{"kind":"user"}}'
        ) % (seq, seq, self._row(seq))
        return Event("user/message", seq, CLAUDE_START + 1000 * seq, raw, "append")


class TestNotebookStore(ReadingContract):
    @pytest.fixture
    def corpus(self, tmp_path: Path) -> Corpus:
        return NotebookCorpus(tmp_path / "notebook")


def test_the_example_is_short() -> None:
    assert len(EXAMPLE.splitlines()) <= 48


def test_a_store_is_opened_as_the_page_says() -> None:
    exec(compile(OPENING + SEVERAL, "docs/sources.md", "exec"), {})
