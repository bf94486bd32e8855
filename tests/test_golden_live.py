"""The reference's script of live sessions and store changes, replayed against the whole service.

Its live sessions are of format 0, as the logs of its corpus; ours are of format 2. So the session
that is new here has another ``version`` in its header, and a ``stream`` in its message where theirs
has ``sourceEventSeqs``; neither is compared. Headers that lack a ``delegationDepth`` have 0.
"""

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from attrs import define, field
from inline_runtime import InlineRuntime
from search_world import Held, hold
from service_world import refused
from test_golden_reads import trace_to_json
from test_golden_search import joined, page_to_json, title_to_json
from trio.testing import MockClock

from session_query.actors.composition import open_session_query
from session_query.actors.folded_log import FoldedLog
from session_query.actors.live_session import LiveSession
from session_query.actors.service import SessionQuery
from session_query.actors.write_behind import Stored
from session_query.messages.config import IndexConfig, QueryConfig
from session_query.messages.errors import (
    ErrorCode,
    LiveErrorCode,
    LiveSessionError,
    SessionQueryError,
)
from session_query.messages.event import EventDraft, Replace, event_to_json
from session_query.messages.filters import event_filter_from_json, session_filter_from_json
from session_query.messages.header import SessionHeader, header_to_json
from session_query.messages.json import Json, decode, elements, member
from session_query.messages.records import LineageTrace, SessionRecord
from session_query.storage.jsonl import JsonlStore

GOLDEN: Final = Path(__file__).parent / "data" / "golden"

DAMAGED: Final = "s004-27674b0d"

DECISIONS: Final = Path(__file__).parent.parent / "docs" / "decisions.md"

Departure = tuple[int, str, str, str]
"""Step, operation, what was recorded, and what is answered here, in short."""


def departures() -> set[Departure]:
    """The table in the decisions."""
    text = DECISIONS.read_text("utf-8")
    _, _, section = text.partition("## Departures from the recorded script of live sessions")
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if line[:3].strip("| ").isdigit()
    ]
    return {
        (int(step), operation, recorded, ours)
        for step, operations, recorded, ours, _reason in rows
        for operation in operations.split(", ")
    }


@define(eq=False)
class ClockedRuntime(InlineRuntime):
    """What the script says that the time is."""

    now: int = 0

    def now_ms(self) -> int:
        return self.now


@define(eq=False)
class Script:
    """The service, its store and what is live, between two steps."""

    root: Path
    nursery: trio.Nursery
    service: Held[SessionQuery] = field(init=False)
    runtime: ClockedRuntime = field(factory=ClockedRuntime)
    lives: dict[str, Held[LiveSession]] = field(factory=dict)
    cursors: dict[str, str | None] = field(factory=dict)
    differences: list[tuple[Departure, Json]] = field(factory=list)
    """What differs, and the answer in full."""
    compared: int = 0
    _store: JsonlStore = field(init=False)

    @property
    def query(self) -> SessionQuery:
        return self.service.value

    async def open(self) -> None:
        self._store = JsonlStore(self.root / "store")
        index = IndexConfig(path=str(self.root / "index.db"), tokenizer="unicode61")
        service = open_session_query(
            store=self._store,
            index=index,
            config=QueryConfig(on_damaged="fail"),
            runtime=self.runtime,
        )
        self.service = await hold(self.nursery, service)

    async def close(self) -> None:
        for session_id in [*self.lives]:
            await self.detach(session_id)
        await self.service.leave()

    async def attach(self, session: AbstractAsyncContextManager[LiveSession]) -> None:
        held = await hold(self.nursery, session)
        self.lives[held.value.id] = held

    async def detach(self, session_id: str) -> None:
        await self.lives.pop(session_id).leave()

    def log_of(self, session_id: str) -> Path:
        """The file of a stored session."""
        entries = elements(member(decode((self.root / "manifest.json").read_bytes()), "entries"))
        (path,) = [member(entry, "path") for entry in entries if member(entry, "id") == session_id]
        return self.root / "store" / str(path) / "session.jsonl"

    # -- what is done -------------------------------------------------------------------------

    async def act(self, action: dict[str, Any]) -> None:
        match action:
            case {"do": "open"}:
                await self.open()
            case {"do": "attach a new empty live session", "header": header}:
                await self.attach(
                    self.query.sessions.create(
                        id=header["id"],
                        created_at=header["createdAt"],
                        cwd=header["cwd"],
                        parent=header["parentSession"],
                        agent_preset=header["agentPreset"],
                    )
                )
            case {"do": str(do), "events": events} if do.startswith("append"):
                for event in events:
                    self.runtime.now = event["time"]
                    await self.lives[action["sessionId"]].value.commit(draft_of(event))
            case {"refused": True, "sessionId": session_id}:
                with pytest.raises(LiveSessionError) as error:
                    await self.lives[session_id].value.commit(
                        EventDraft(
                            "user/message",
                            {"id": "u3", "role": "user", "content": [], "source": {"kind": "user"}},
                            surface_op=Replace(1, 1),
                            source_event_seqs=(1,),
                        )
                    )
                assert error.value.code is LiveErrorCode.INVALID_DRAFT
            case {"do": str(do), "sessionId": session_id} if do.startswith("resume"):
                await self.attach(self.query.sessions.resume(session_id))
            case {"do": "resume live-1"}:
                await self.attach(self.query.sessions.resume("live-1"))
            case {"do": "flush it", "sessionId": session_id}:
                await self.flush_resumed(session_id, action)
            case {"do": "flush to the store", "sessionId": session_id}:
                await self.lives[session_id].value.flush()
            case {"do": "detach it", "sessionId": session_id}:
                await self.detach(session_id)
            case {"persistedHeader": {"id": session_id}, "header": header}:
                if session_id in self.lives:
                    await self.detach(session_id)
                await self.attach(self.live_with(header))
            case {"do": "conflicting session detached"}:
                await self.detach("s012-fd5d912a")
            case {"do": str(do)} if do.startswith("flush live-1, close everything"):
                await self.lives["live-1"].value.flush()
                await self.close()
                await self.open()
            case {"do": str(do)} if do.startswith("detach live-1"):
                await self.detach("live-1")
            case {"do": "another writer appends to a stored file", "events": events}:
                with self.log_of(action["sessionId"]).open("a", encoding="utf-8") as log:
                    log.writelines(json.dumps(event) + "\n" for event in events)
            case {"do": "a stored session is deleted", "sessionId": session_id}:
                shutil.rmtree(self.log_of(session_id).parent)
            case {"do": str(do)} if do.startswith("a stored session is damaged"):
                self.damage(do.partition(": ")[2])
            case {"do": "the damaged session is restored byte for byte"}:
                self.restore()
            case {"do": "the store is unmounted"}:
                self.query.unmount()
            case {"do": "the store is mounted again"}:
                self.query.mount(self._store)
            case {"do": "three searches started together", "counts": counts}:
                assert await self.three_searches() == counts
            case {"do": "searches given an already cancelled signal"}:
                await self.cancelled_searches()
            case {"do": "calls after the search service was closed"}:
                await self.close()
            case {"do": str(do)}:
                assert do.startswith(("observe", "before"))

    def live_with(self, header: dict[str, Any]) -> AbstractAsyncContextManager[LiveSession]:
        """A live session with any header, that of an older format included; it is never stored."""
        log = FoldedLog.of(
            SessionHeader(
                header["id"],
                header["createdAt"],
                header["version"],
                cwd=header["cwd"],
                parent_session=header.get("parentSession"),
                is_seeded="seedLength" in header,
                seed_length=header.get("seedLength"),
                origin=header.get("origin"),
                delegation_depth=header.get("delegationDepth", 0),
                agent_preset=header.get("agentPreset"),
            )
        )
        return self.query.sessions._attached(log, None, None, Stored(None, 0))

    async def flush_resumed(self, session_id: str, action: dict[str, Any]) -> None:
        log = self.log_of(session_id)
        assert len(log.read_bytes().splitlines()) == action["storedRowsBefore"]
        await self.lives[session_id].value.flush()
        rows = [decode(line) for line in log.read_bytes().splitlines()]
        assert len(rows) == action["storedRowsAfter"]
        last = [[member(row, "seq"), member(row, "type")] for row in rows[-6:]]
        assert last == action["lastStoredTypes"]

    def damage(self, how: str) -> None:
        self.restore()
        log = self.log_of(DAMAGED)
        header, *rows = [json.loads(line) for line in log.read_bytes().splitlines()]
        message = next(n for n, row in enumerate(rows) if row["type"] == "user/message")
        if how.startswith("a row in the middle removed"):
            del rows[message]
        elif how.startswith("header of a newer format"):
            header["version"] = 1
        elif how.startswith("an event of an unknown type"):
            rows[message]["type"] = "no/such"
        elif how.startswith("header no longer names"):
            header["id"] = "another"
        else:
            assert how == "a surface marker missing on a message"
            del rows[message]["surfaceOp"]
        log.write_text("".join(json.dumps(row) + "\n" for row in (header, *rows)))

    def restore(self) -> None:
        kept = self.root / "kept.jsonl"
        if not kept.exists():
            shutil.copyfile(self.log_of(DAMAGED), kept)
        shutil.copyfile(kept, self.log_of(DAMAGED))

    async def three_searches(self) -> list[int]:
        counts: list[int] = []

        async def search() -> None:
            counts.append(len((await self.query.search_sessions("needle", limit=2)).items))

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(search)
        return counts

    async def cancelled_searches(self) -> None:
        """Cancellation is the caller's own, never an error; what is invalid comes before it."""
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: self.query.search_sessions("needle"),
            lambda: self.query.search_events("no such", "needle"),
            lambda: self.query.list_sessions(),
            lambda: self.query.read_event("emoji😀id", 0),
        ]
        for call in calls:
            with trio.CancelScope() as scope:
                scope.cancel()
                await call()
            assert scope.cancelled_caught
        with trio.CancelScope() as scope:
            scope.cancel()
            with refused(ErrorCode.INVALID_QUERY):
                await self.query.search_sessions(" ")

    # -- what is seen -------------------------------------------------------------------------

    async def observe(self, step: int, observation: dict[str, Any]) -> None:
        operation = observation["op"]
        arguments = observation.get("args", {})
        wanted: Json = (
            {"error": observation["error"]}
            if "error" in observation
            else joined(observation["result"])
        )
        try:
            found = await getattr(self, f"see_{operation}")(**arguments)
        except SessionQueryError as error:
            found = {"error": {"code": error.code.value}}
        self.compared += 1
        if comparable(found) != comparable(wanted):
            self.differences.append(((step, operation, outcome(wanted), outcome(found)), found))

    async def see_list(self, only: list[str] | None = None) -> Json:
        records = (await self.query.list_sessions()).sessions
        shown = [record for record in records if only is None or record.header.id in only]
        return {"total": len(records), "records": [*map(record_to_json, shown)]}

    async def see_searchSessions(
        self,
        query: str,
        limit: int | None = None,
        sessionFilters: Json = (),  # type: ignore[assignment]
        eventFilters: Json = (),  # type: ignore[assignment]
        saveCursor: str | None = None,
        useCursor: str | None = None,
    ) -> Json:
        page = await self.query.search_sessions(
            query,
            session_filters=[*map(session_filter_from_json, elements(sessionFilters))],
            event_filters=[*map(event_filter_from_json, elements(eventFilters))],
            limit=limit,
            cursor=self.cursors[useCursor] if useCursor else None,
        )
        if saveCursor:
            self.cursors[saveCursor] = page.next_cursor
        return page_to_json(page)

    async def see_searchEvents(
        self,
        sessionId: str,
        query: str,
        limit: int | None = None,
        filters: Json = (),  # type: ignore[assignment]
        saveCursor: str | None = None,
        useCursor: str | None = None,
    ) -> Json:
        page = await self.query.search_events(
            sessionId,
            query,
            filters=[*map(event_filter_from_json, elements(filters))],
            limit=limit,
            cursor=self.cursors[useCursor] if useCursor else None,
        )
        if saveCursor:
            self.cursors[saveCursor] = page.next_cursor
        return page_to_json(page)

    async def see_listEvents(self, sessionId: str, last: int = 0) -> Json:
        rows: list[Json] = [
            [record.seq, record.type, record.time, record.surface.value]
            for record in await self.query.list_events(sessionId)
        ]
        return {"rows": rows[-last:]}

    async def see_readSurface(self, sessionId: str) -> Json:
        surface = await self.query.read_surface(sessionId)
        return {
            "session": header_to_json(surface.header),
            "capturedThroughSeq": surface.captured_through_seq,
            "seqs": [event.seq for event in surface.events],
        }

    async def see_readEvent(self, sessionId: str, seq: int, before: int = 0) -> Json:
        window = await self.query.read_event(sessionId, seq, before)
        return {
            "session": header_to_json(window.header),
            "target": event_to_json(window.target),
            "startSeq": window.start_seq,
            "endSeq": window.end_seq,
        }

    async def see_traceSession(self, sessionId: str) -> Json:
        return lineage_to_json(await self.query.trace_session(sessionId))

    async def see_traceEvent(self, sessionId: str, seq: int) -> Json:
        trace = await self.query.trace_event(sessionId, seq)
        session: dict[str, Json] = {"session": header_to_json(trace.header)}
        relations = trace_to_json(trace)
        assert isinstance(relations, dict)
        return session | relations

    async def see_filterEvents(self, sessionId: str, filters: Json) -> Json:
        clauses = [*map(event_filter_from_json, elements(filters))]
        found = await self.query.filter_events(sessionId, clauses)
        return {"seqs": [document.seq for document in found]}

    async def see_readTitles(self, ids: list[str]) -> Json:
        shown: list[Json] = []
        for result in await self.query.read_titles(ids):
            outcome: dict[str, Json] = {"sessionId": result.session_id}
            if result.error is not None:
                outcome |= {"status": "rejected", "error": {"code": result.error.code.value}}
            else:
                assert result.header is not None
                value: dict[str, Json] = {"session": header_to_json(result.header)}
                if result.title is not None:
                    value["title"] = title_to_json(result.title)
                outcome |= {"status": "fulfilled", "value": value}
            shown.append(outcome)
        return shown


def outcome(answer: Json) -> str:
    """An answer in one word, the codes of a list of answers one after the other."""
    if isinstance(answer, list):
        return ", ".join(map(outcome, answer))
    code = member(answer, "error", "code")
    return "ok" if code is None else str(code).removeprefix("SESSION_QUERY_")


def draft_of(event: dict[str, Any]) -> EventDraft:
    """A draft of a recorded event; a message of format 2 has a stream instead of sources."""
    op, data, sources = event.get("surfaceOp"), event["data"], event.get("sourceEventSeqs")
    if event["type"] == "assistant/message":
        data, sources = {**data, "stream": []}, None
    return EventDraft(
        event["type"],
        data,
        surface_op=Replace(op["start"], op["end"]) if isinstance(op, dict) else op,
        source_event_seqs=None if sources is None else tuple(sources),
    )


def record_to_json(record: SessionRecord) -> Json:
    header = header_to_json(record.header)
    return {"header": header, "live": record.live, "persisted": record.persisted}


def lineage_to_json(trace: LineageTrace) -> Json:
    below: dict[int, list[Json]] = {0: []}
    for depth, record in trace.walk():
        children: list[Json] = []
        below[depth - 1].append([record.header.id, children])
        below[depth] = children
    return {
        "target": record_to_json(trace.target),
        "ancestors": [record.header.id for record in trace.ancestors],
        "descendants": below[0],
        "complete": trace.complete,
    }


def comparable(value: Json) -> Json:
    """Without what differs because the new session of the script is of another format."""
    match value:
        case {"createdAt": _, "id": _} if isinstance(value, dict):
            header: dict[str, Json] = {"delegationDepth": 0} | value
            if header["id"] == "live-1":
                header["version"] = 0
                header.pop("isSeeded", None)
            return header
        case dict():
            return {name: comparable(item) for name, item in value.items()}
        case list():
            return [*map(comparable, value)]
    return value


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Script:
    root = tmp_path_factory.mktemp("golden")
    with tarfile.open(GOLDEN / "corpus.tar.gz") as archive:
        archive.extractall(root, filter="data")
    return trio.run(play, root, clock=MockClock())


async def play(root: Path) -> Script:
    """All steps, in a time that passes only as the script says: nothing is stored by itself."""
    async with trio.open_nursery() as nursery:
        script = Script(root, nursery)
        for line in (GOLDEN / "live_scenario.jsonl").read_bytes().splitlines():
            step = json.loads(line)
            script.runtime.now = step.get("clock", script.runtime.now)
            await script.act(step["action"])
            if "clock" in step:
                for observation in step["observe"]:
                    await script.observe(step["step"], observation)
    return script


def test_every_observation_is_as_recorded_but_for_the_departures(script: Script) -> None:
    unlike = [each for each in script.differences if each[0] not in departures()]
    assert unlike == []
    assert {short for short, _ in script.differences} == departures()
    assert script.compared == 202
