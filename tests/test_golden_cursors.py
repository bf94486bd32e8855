"""The reference's script of cursors that are used again, replayed against the whole service.

Each label tells what has happened since the cursor that it begins with was given; what that is here
stands in ``CHANGES``.
"""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from actor_world import turn
from attrs import define, field
from inline_runtime import InlineRuntime
from search_world import Held, hold
from trio.testing import MockClock

from session_query.actors.composition import open_session_query
from session_query.actors.live_session import LiveSession
from session_query.actors.service import SessionQuery
from session_query.messages.config import IndexConfig, QueryConfig
from session_query.messages.errors import SessionQueryError
from session_query.messages.filters import event_filter_from_json, session_filter_from_json
from session_query.messages.json import Json, decode, elements, member
from session_query.messages.records import EventSearchPage, SessionSearchPage
from session_query.storage.jsonl import JsonlStore

GOLDEN: Final = Path(__file__).parent / "data" / "golden"


@define(eq=False)
class Script:
    """The service over the corpus, and the cursors that it gave."""

    root: Path
    nursery: trio.Nursery
    setup: dict[str, Any]
    store: JsonlStore = field(init=False)
    service: Held[SessionQuery] = field(init=False)
    live: Held[LiveSession] = field(init=False)
    runtime: InlineRuntime = field(factory=InlineRuntime)
    cursors: dict[str, str | None] = field(factory=dict)
    wrong: list[str] = field(factory=list)
    compared: int = 0

    @property
    def query(self) -> SessionQuery:
        return self.service.value

    async def open(self) -> None:
        self.store = JsonlStore(self.root / "store")
        index = IndexConfig(path=str(self.root / "index.db"), tokenizer="unicode61")
        service = open_session_query(
            store=self.store,
            index=index,
            config=QueryConfig(on_damaged="fail"),
            runtime=self.runtime,
        )
        self.service = await hold(self.nursery, service)

    async def take(self, *names: str) -> None:
        """Keep the cursors of first pages under their names in the script."""
        for name in names:
            page = await self.page(FIRST_PAGES[name[0] if name != "E2" else name](self.setup))
            self.cursors[name] = page.next_cursor
            assert page.next_cursor is not None

    async def page(
        self, request: dict[str, Any], cursor: str | None = None
    ) -> SessionSearchPage | EventSearchPage:
        event_filters = [
            event_filter_from_json(clause)
            for clause in request.get("filters", request.get("eventFilters", []))
        ]
        query, limit = request["query"], request["limit"]
        if "sessionId" in request:
            return await self.query.search_events(
                request["sessionId"], query, filters=event_filters, limit=limit, cursor=cursor
            )
        return await self.query.search_sessions(
            query,
            session_filters=[
                session_filter_from_json(clause) for clause in request.get("sessionFilters", [])
            ],
            event_filters=event_filters,
            limit=limit,
            cursor=cursor,
        )

    async def follow(self, step: dict[str, Any]) -> None:
        label = step["label"]
        await CHANGES.get(label, nothing)(self)
        wanted = {name: step[name] for name in ("ids", "hasMore", "error") if name in step}
        try:
            page = await self.page(step["request"], self.cursors[label.split()[0]])
        except SessionQueryError as error:
            found: dict[str, Json] = {"error": {"code": error.code.value}}
        else:
            ids: list[Json] = (
                [hit.seq for hit in page.items]
                if isinstance(page, EventSearchPage)
                else [hit.header.id for hit in page.items]
            )
            found = {"ids": ids, "hasMore": page.next_cursor is not None}
        self.compared += 1
        if found != wanted:
            self.wrong.append(f"{label}: {found}, not {wanted}")


FIRST_PAGES: Final[dict[str, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    "S": lambda setup: {"query": "needle", "limit": 3},
    "E": lambda setup: {"sessionId": setup["e"], "query": "needle", "limit": 2},
    "E2": lambda setup: {"sessionId": setup["e2"], "query": "needle", "limit": 2},
    "F": lambda setup: {"query": "needle", "limit": 2, "sessionFilters": setup["f"]},
}
"""What the cursors belong to, by their first letters."""


async def nothing(_script: Script) -> None:
    """Nothing has happened."""


async def attach_empty(script: Script) -> None:
    session = script.query.sessions.create(cwd="/work/alpha")
    script.live = await hold(script.nursery, session)


async def commit_without_text(script: Script) -> None:
    await script.take("S2")
    await script.live.value.commit(turn("start"))


async def take_third(script: Script) -> None:
    await script.take("S3")


async def flush(script: Script) -> None:
    await script.live.value.flush()


async def touch(script: Script) -> None:
    entries = elements(member(decode((script.root / "manifest.json").read_bytes()), "entries"))
    (path,) = [
        str(member(entry, "path")) for entry in entries if member(entry, "id") == script.setup["e"]
    ]
    await script.take("S4")
    os.utime(script.root / "store" / path / "session.jsonl", ns=(1, 1))


async def unmount(script: Script) -> None:
    await script.take("S5", "E5")
    script.query.unmount()


async def mount(script: Script) -> None:
    script.query.mount(script.store)


async def reopen(script: Script) -> None:
    await script.take("S6")
    await script.live.leave()
    await script.service.leave()
    await script.open()


CHANGES: Final[dict[str, Callable[[Script], Awaitable[None]]]] = {
    "S after an empty live session appeared": attach_empty,
    "S2 (taken after that) once the live session got an event without text": commit_without_text,
    "S3 (taken after that) with nothing changed": take_third,
    "S3 after the live session was flushed to the store": flush,
    "E after its stored file only changed its modification time": touch,
    "S5 after the store was unmounted": unmount,
    "S5 after the store was mounted again": mount,
    "S6 in a new service over the same index file": reopen,
}


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Script:
    root = tmp_path_factory.mktemp("golden")
    with tarfile.open(GOLDEN / "corpus.tar.gz") as archive:
        archive.extractall(root, filter="data")
    return trio.run(play, root, clock=MockClock())


async def play(root: Path) -> Script:
    """All steps, in a time that stands still: nothing is stored by itself."""
    setup, *steps = map(json.loads, (GOLDEN / "cursors.jsonl").read_bytes().splitlines())
    async with trio.open_nursery() as nursery:
        script = Script(root, nursery, setup)
        await script.open()
        await script.take("S", "E", "E2", "F")
        for step in steps:
            await script.follow(step)
        await script.service.leave()
    return script


def test_every_cursor_is_valid_stale_or_invalid_as_recorded(script: Script) -> None:
    assert script.wrong == []
    assert script.compared == 30


def test_every_change_of_the_script_was_made() -> None:
    labels = {
        json.loads(line)["label"] for line in (GOLDEN / "cursors.jsonl").read_bytes().splitlines()
    }
    assert CHANGES.keys() <= labels
