"""How much memory indexing takes: it follows what is read at once, not what a store holds.

Everything that is held at once is made smaller, so that a store of a few megabytes shows what one
of gigabytes would take. Python's memory and SQLite's are measured, each at its highest.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest
import trio
from attrs import frozen
from builders import START, header, user_data

from session_query.actors import reconciliation
from session_query.actors.composition import open_session_query
from session_query.messages.config import IndexConfig
from session_query.messages.event import Event
from session_query.messages.json import encode
from session_query.storage import index, index_file, log_slices, stored_arm
from session_query.storage.jsonl import JsonlStore

KIB = 1024
MIB = 1024 * KIB
BATCH = 500


@pytest.fixture(autouse=True)
def _smaller(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for module in (index, reconciliation):
        monkeypatch.setattr(module, "SLICE_EVENTS", 40)
    monkeypatch.setattr(reconciliation, "CHUNK_SESSIONS", 8)
    monkeypatch.setattr(reconciliation, "BATCH_CHARS", 64 * KIB)
    monkeypatch.setattr(log_slices, "BUILD_BYTES", 32 * KIB)
    monkeypatch.setattr(stored_arm, "WARM_PROJECTIONS", 4)
    monkeypatch.setattr(index_file, "WRITER_CACHE_KIB", 512)
    monkeypatch.setattr(index_file, "READER_CACHE_KIB", 128)
    monkeypatch.setattr(index_file, "FTS_HASH_BYTES", 128 * KIB)
    tracemalloc.start()
    yield
    tracemalloc.stop()


@frozen
class Shape:
    """The shape of a store."""

    sessions: int
    events: int
    """Of each session."""
    size: int
    """Code points of each event."""

    @property
    def total(self) -> int:
        return self.sessions * self.events * self.size

    def write(self, root: Path) -> None:
        store, number = JsonlStore(root), 0
        for name in range(self.sessions):
            with store.create(header(f"s{name}")) as handle:
                for first in range(0, self.events, BATCH):
                    seqs = range(first, min(first + BATCH, self.events))
                    handle.append(tuple(self._event(seq, number + seq) for seq in seqs))
            number += self.events

    def _event(self, seq: int, number: int) -> Event:
        words = "".join(f"word{number * 31 % 977 + k * 7} " for k in range(self.size // 9))
        return Event("user/message", seq, START, encode(user_data(words, f"m{seq}")), "append")


@frozen
class Peak:
    """The most memory that was held at a time, in bytes."""

    python: int
    sqlite: int


def peak_of_indexing(directory: Path, shape: Shape) -> Peak:
    """Index a store of this shape."""
    shape.write(directory / "store")

    async def build() -> None:
        config = IndexConfig(path=str(directory / "index.db"))
        async with open_session_query(store=JsonlStore(directory / "store"), index=config) as query:
            await query.refresh()
            assert (await query.index_status()).documents == shape.sessions * shape.events

    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    apsw.memory_high_water(True)
    trio.run(build)
    return Peak(tracemalloc.get_traced_memory()[1] - before, apsw.memory_high_water(True))


@pytest.mark.parametrize(
    ("small", "grown", "python_of_each"),
    [
        # Of an event on the surface its node stays, whatever its text.
        pytest.param(Shape(1, 300, 1_000), Shape(1, 1_800, 1_000), 100, id="one-huge-session"),
        # Of a session its header and its revision stay.
        pytest.param(Shape(40, 6, 900), Shape(290, 6, 900), 4 * KIB, id="many-sessions"),
        pytest.param(Shape(2, 3, 100_000), Shape(4, 9, 100_000), 0, id="huge-records"),
    ],
)
def test_indexing_takes_memory_for_what_is_in_hand(
    tmp_path: Path, small: Shape, grown: Shape, python_of_each: int
) -> None:
    peak_of_indexing(tmp_path / "warm", Shape(1, 1, 9))
    first = peak_of_indexing(tmp_path / "small", small)
    second = peak_of_indexing(tmp_path / "grown", grown)
    added = grown.sessions - small.sessions or grown.events - small.events
    assert grown.total - small.total > MIB
    assert second.python < first.python + added * python_of_each + MIB // 2
    assert second.sqlite < first.sqlite + MIB // 2
