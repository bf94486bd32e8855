"""A corpus that others write all the time, in virtual time: no search fails or lags behind."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, overload

from attrs import define, field
from inline_runtime import InlineRuntime, lasting
from service_world import CountingStore, append, events_of, session, sessions_of, store_of
from trio.testing import MockClock

from session_query.actors.composition import open_session_query
from session_query.messages.config import IndexConfig
from session_query.storage.contract import (
    TAIL_BYTES,
    ReadHandle,
    Snapshot,
    Sweep,
    Tail,
    WriteHandle,
)

SESSIONS = 1_000
SEARCHES = 12


@define(eq=False)
class BusyStore(CountingStore):
    """Another writer appends one event before every operation, to one session after the other."""

    appended: int = field(default=0, init=False)
    last: str = field(default="", init=False)
    """Where the newest event was appended."""

    def write(self) -> None:
        self.last = name(self.appended * 7 % SESSIONS)
        self.appended += 1
        append(self.inner, self.last, f"word w{self.appended}")

    def sweep(self) -> Sweep:
        self.write()
        return super().sweep()

    def stat(self, session_id: str) -> Snapshot | None:
        self.write()
        return super().stat(session_id)

    @overload
    def open(self, session_id: str, access: Literal["read"]) -> ReadHandle: ...
    @overload
    def open(self, session_id: str, access: Literal["write"]) -> WriteHandle: ...
    def open(self, session_id: str, access: Literal["read", "write"]) -> ReadHandle:
        self.write()
        return super().open(session_id, access)

    def read_tail(self, session_id: str, mark: bytes | None, limit: int = TAIL_BYTES) -> Tail:
        self.write()
        return super().read_tail(session_id, mark, limit)


def name(number: int) -> str:
    return f"s{number:04}"


async def test_twelve_of_twelve_searches_succeed_while_others_write_between_any_two_operations(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    corpus = store_of(*(session(name(n), "word") for n in range(SESSIONS)))
    busy, runtime = BusyStore(corpus.inner), InlineRuntime(pace=lasting(0.001))
    index = IndexConfig(path=str(tmp_path / "index.db"))
    async with open_session_query(store=busy, index=index, runtime=runtime) as query:
        page = await query.search_sessions("word", limit=100)
        assert (len(page.items), page.skipped) == (100, ())
        for number in range(1, SEARCHES):
            before = busy.appended
            # What was there as the search began is found, across sessions and within one.
            newest, where = f"w{before}", busy.last
            if number % 2:
                assert await sessions_of(query, newest) == [where]
            else:
                assert len(await events_of(query, where, newest)) == 1
            assert busy.appended > before + 1
        assert busy.calls["sweep"] == SEARCHES
