"""The reference's five model tools over its corpus: what they answered, and what they asked for.

The live sessions of the recording are of format 0 and never stored. Where an answer of ours is
another one, the table in the decisions says so.
"""

from __future__ import annotations

import json
import logging
import re
import tarfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from attrs import define, evolve, field
from inline_runtime import InlineRuntime
from search_world import Held, hold
from service_world import refused
from test_golden_search import vectors
from tool_world import OPERATIONS, Call, WatchedRecall, clauses, tool_named
from trio.testing import MockClock

from session_query.actors.composition import open_session_query
from session_query.actors.folded_log import FoldedLog
from session_query.actors.live_session import LiveSession
from session_query.actors.service import SessionQuery
from session_query.actors.write_behind import Stored
from session_query.harness.execution import ToolCall
from session_query.harness.registry import ToolRegistry
from session_query.harness.scheduler import Scheduler
from session_query.messages.config import IndexConfig, QueryConfig, ToolsConfig
from session_query.messages.errors import ErrorCode, SessionError, SessionQueryError
from session_query.messages.event import Event, EventDraft
from session_query.messages.header import SessionHeader
from session_query.messages.json import encode
from session_query.messages.records import SessionRecord, TitleResult
from session_query.storage.jsonl import JsonlStore
from session_query.tools.definition import Caller, Tool, ToolError
from session_query.tools.prompt import PROMPT_SECTION, PROMPT_TEXT
from session_query.tools.session_tools import session_tools

GOLDEN: Final = Path(__file__).parent / "data" / "golden"
DECISIONS: Final = Path(__file__).parent.parent / "docs" / "decisions.md"

TOUCHED: Final = "tie-10"
"""The only stored session that the recording changes."""

TOOL_FAILED: Final = "SESSION_QUERY_TOOL_FAILED"


@define(eq=False)
class Setup:
    """A service in the state that calls start from, put back after each call that changed it."""

    root: Path
    nursery: trio.Nursery
    recorded: dict[str, Any]
    service: Held[SessionQuery]
    lives: dict[str, Held[LiveSession]] = field(factory=dict)
    log: bytes = b""
    """The log of ``TOUCHED`` as it was."""

    @property
    def query(self) -> SessionQuery:
        return self.service.value

    @classmethod
    async def open(cls, root: Path, nursery: trio.Nursery, recorded: dict[str, Any]) -> Setup:
        settings = recorded.get("query", {})
        limit = settings.get("defaultLimit", 20)
        index = IndexConfig(
            path=":memory:",
            open_at=settings.get("openAt", "first-search"),
            tokenizer="unicode61",
            default_limit=limit,
            max_limit=limit,  # the tools ask for the largest pages, the reference for default ones
        )
        config = QueryConfig(on_damaged="fail", read_window_max=settings.get("readWindowMax", 50))
        opened = open_session_query(
            store=JsonlStore(root / "store"), index=index, config=config, runtime=InlineRuntime()
        )
        setup = cls(root, nursery, recorded, await hold(nursery, opened))
        setup.log = setup.touched.read_bytes()
        for action in recorded.get("actions", []):
            await setup.act(action)
        return setup

    async def close(self) -> None:
        for session_id in [*self.lives]:
            await self.detach(session_id)
        await self.service.leave()

    @property
    def touched(self) -> Path:
        (path,) = (self.root / "store").rglob(f"{TOUCHED}/session.jsonl")
        return path

    async def act(self, action: dict[str, Any]) -> None:
        match action:
            case {"do": "unmount the store"}:
                self.query.unmount()
            case {"do": "attach", "header": header}:
                await self.attach(header, action.get("events", []))
            case {"do": "resume", "sessionId": session_id}:
                opening = self.query.sessions.resume(session_id)
                self.lives[session_id] = await hold(self.nursery, opening)
            case {"do": "detach", "sessionId": session_id}:
                await self.detach(session_id)
            case {"do": "append", "sessionId": session_id}:
                op = action.get("surfaceOp")
                draft = EventDraft(action["type"], action["data"], surface_op=op)
                await self.lives[session_id].value.commit(draft)
            case {"do": "attach again with another cwd", "sessionId": session_id, "cwd": cwd}:
                (again,) = [
                    one
                    for one in self.recorded["actions"]
                    if one.get("header", {}).get("id") == session_id
                ]
                await self.detach(session_id)
                await self.attach({**again["header"], "cwd": cwd}, again["events"])
            case {"do": "only the modification time of the stored file changes"}:
                self.touched.write_bytes(self.log)
            case {"do": "delete"}:
                self.touched.unlink()
            case {"do": str(do)}:
                header, *rows = [json.loads(line) for line in self.log.splitlines()]
                message = next(n for n, row in enumerate(rows) if row["type"] == "user/message")
                if do == "damage: row removed":
                    del rows[message]
                elif do == "damage: newer version":
                    header["version"] = 99
                else:
                    assert do == "damage: no surface marker"
                    del rows[message]["surfaceOp"]
                lines = (json.dumps(row) + "\n" for row in (header, *rows))
                self.touched.write_text("".join(lines))

    async def attach(self, header: dict[str, Any], events: list[dict[str, Any]]) -> None:
        log = FoldedLog.of(
            SessionHeader(
                header["id"],
                header["createdAt"],
                0,
                cwd=header.get("cwd"),
                parent_session=header.get("parentSession"),
                origin=header.get("origin"),
                delegation_depth=header.get("delegationDepth", 0),
            ),
            [
                Event(
                    event["type"],
                    seq,
                    event["time"],
                    encode(event["data"]),
                    event.get("surfaceOp"),
                    tuple(event["sourceEventSeqs"]) if "sourceEventSeqs" in event else None,
                )
                for seq, event in enumerate(events)
            ],
        )
        opening = self.query.sessions._attached(log, None, None, Stored(None, 0))
        self.lives[header["id"]] = await hold(self.nursery, opening)

    async def detach(self, session_id: str) -> None:
        await self.lives.pop(session_id).leave()

    async def put_back(self, during: list[dict[str, Any]]) -> None:
        """Undo what a call's disturbances did."""
        for done in during:
            session_id = done.get("sessionId") or done.get("header", {}).get("id")
            if session_id == TOUCHED and done["do"] != "attach":
                folder = self.root / "store"
                (place,) = folder.rglob(TOUCHED)
                (place / "session.jsonl").write_bytes(self.log)
            elif done["do"] in ("detach", "append", "attach", "attach again with another cwd"):
                if session_id in self.lives:
                    await self.detach(session_id)
                for one in self.recorded.get("actions", []):
                    if one.get("header", {}).get("id") == session_id:
                        await self.act(one)


class OddFailure(Exception):
    """Stands for a thrown value that is no error: nothing of it can be used."""

    @property
    def code(self) -> str:
        raise RuntimeError("no code here")

    def __str__(self) -> str:
        raise RuntimeError("no text here")


def failure(how: dict[str, Any]) -> Exception:
    code, kind = how.get("code"), how["kind"]
    if kind == "query error" and code in tuple(ErrorCode):
        return SessionQueryError(ErrorCode(code), "secret")
    error: Exception = OddFailure()
    if kind == "query error":
        error = SessionQueryError(ErrorCode.ABORTED, "secret")
    elif kind == "harness error":
        error = SessionError("secret")
    elif kind == "plain error":
        error = RuntimeError("secret")
    if code is not None:
        error.code = code  # type: ignore[attr-defined]
    return error


@define(eq=False)
class Played:
    """One recorded call, carried out."""

    setup: Setup
    case: dict[str, Any]
    requests: list[dict[str, Any]] = field(factory=list)
    scope: trio.CancelScope = field(factory=trio.CancelScope)
    first_page: Any = None

    async def disturb(self, method: str, number: int, call: Callable[[], Awaitable[Any]]) -> Any:
        operation = OPERATIONS[method]
        during = self.case.get("during", [])
        moments = {f"before {operation} page {number}", *([f"before {operation}"] * (number == 1))}
        for one in during:
            if one["when"] in moments:
                await self.disturb_now(one)
            elif one["when"] == f"after {operation} page {number} was started":
                self.setup.nursery.start_soon(self.cancel_soon)
        replaced = [
            one
            for one in during
            if one["when"] in (f"{operation} page {number}", f"every page of {operation}")
        ]
        for one in replaced:
            if one["do"] == "throw":
                raise failure(one)
            if one["do"].startswith("waits for its signal"):
                await trio.sleep_forever()
        again = any(one["do"].startswith("the first page again") for one in replaced)
        answer = self.first_page if again and number > 1 else await call()
        self.first_page = self.first_page or answer
        for one in replaced:
            answer = self.replaced(one, answer)
        if any(one["when"] == f"after {operation} page {number} was answered" for one in during):
            self.scope.cancel()
        return answer

    async def disturb_now(self, one: dict[str, Any]) -> None:
        if one["do"] == "abort":
            self.scope.cancel()
        else:
            await self.setup.act(one)

    async def cancel_soon(self) -> None:
        self.scope.cancel()

    def replaced(self, one: dict[str, Any], answer: Any) -> Any:
        lives = self.setup.lives
        match one["do"]:
            case "reject the item":
                told = failure(one)
                return tuple(
                    TitleResult(item.session_id, error=told)  # type: ignore[arg-type]
                    if item.session_id == one["sessionId"]
                    else item
                    for item in answer
                )
            case "the record is returned twice":
                return evolve(answer, sessions=answer.sessions * 2)
            case "no record is returned":
                return evolve(answer, sessions=())
            case (
                "one record of another session is returned" | "the record of live-child is returned"
            ):
                header = lives["live-child"].value.header
                return evolve(answer, sessions=(SessionRecord(header, True, False),))
            case "the returned records read cwd /elsewhere":
                return evolve(
                    answer,
                    sessions=tuple(
                        evolve(record, header=evolve(record.header, cwd="/elsewhere"))
                        for record in answer.sessions
                    ),
                )
            case "the cwd of live-child reads /elsewhere":
                return evolve(
                    answer,
                    items=tuple(
                        evolve(hit, header=evolve(hit.header, cwd="/elsewhere"))
                        if hit.header.id == "live-child"
                        else hit
                        for hit in answer.items
                    ),
                )
            case "live and persisted are false in every hit":
                items = tuple(evolve(hit, live=False, persisted=False) for hit in answer.items)
                return evolve(answer, items=items)
            case "the page names session live-child":
                return evolve(answer, session=lives["live-child"].value.header)
        assert one["do"] == "the first page again, with the same cursor"
        return evolve(self.first_page, next_cursor="again")

    async def play(self) -> dict[str, Any]:
        case, given = self.case, self.case["caller"]
        caller = given and Caller(
            given["session"], given.get("cwd"), step_start=lambda: given.get("lastStepStart")
        )
        recall = WatchedRecall(self.setup.query.recall(), self.disturb)
        config = {
            ours: case[theirs]
            for ours, theirs in (("max_search_results", "maxSearchResults"),)
            if theirs in case
        }
        tool = tool_named(recall, case["tool"], **config)
        outcome: dict[str, Any] = {}
        if "signal" in case:
            call = ToolCall("call", tool.name, expanded(case["args"]), caller)
            return {"error": await stopped_beforehand(tool, call), "requests": [*recall.calls]}
        deadline = trio.CancelScope()
        if "searchTimeoutMs" in case:
            deadline.deadline = trio.current_time() + 1
        with deadline, self.scope:
            try:
                result = await tool.run(caller, expanded(case["args"]))
                outcome["facts"] = facts(case["tool"], result.structured, given)
                assert_faithful(result.text, result.structured)
            except ToolError as error:
                outcome["error"] = error.code
        if deadline.cancelled_caught:
            outcome["error"] = "TOOL_TIMEOUT"
        if self.scope.cancelled_caught:
            outcome["cancelled"] = True
        outcome["requests"] = requested(recall.calls)
        return outcome


async def stopped_beforehand(tool: Tool, call: ToolCall) -> str | None:
    """The code of a call whose turn was stopped before it was dispatched."""
    registry, turn = ToolRegistry(), trio.CancelScope()
    registry.register(tool)
    turn.cancel()
    (outcome,) = await Scheduler(registry).run([call], turn)
    return None if outcome.fault is None else outcome.fault.code


def expanded(value: Any) -> Any:
    if isinstance(value, dict) and "$series" in value:
        return [f"{value['$series']}{number}" for number in range(value["count"])]
    if isinstance(value, dict):
        return {key: expanded(item) for key, item in value.items()}
    return value


def requested(calls: list[Call]) -> list[dict[str, Any]]:
    """The calls as the recording writes them; pages of one search are one request."""
    found: list[dict[str, Any]] = []
    for call in calls:
        match call.method, call.arguments:
            case "filter_sessions", (filters,):
                shown: dict[str, Any] = {"filters": clauses(filters)}
            case "search_sessions", (query, sessions, events, cursor):
                shown = {
                    "query": query,
                    "sessionFilters": clauses(sessions),
                    "eventFilters": clauses(events),
                }
            case "search_events", (session_id, query, events, cursor):
                shown = {"sessionId": session_id, "query": query, "filters": clauses(events)}
            case "read_titles", (ids,):
                shown = {"ids": [*ids]}
            case "read_event", (session_id, seq, before, after):
                shown = {"sessionId": session_id, "seq": seq, "before": before, "after": after}
            case "trace_event", (session_id, seq):
                shown = {"sessionId": session_id, "seq": seq}
            case _, (session_id, _visible):
                shown = {"sessionId": session_id}
        shown = {"op": OPERATIONS[call.method], **shown}
        if call.method.startswith("search"):
            if found and cursor is not None and found[-1]["op"] == shown["op"]:
                found[-1]["pages"] += 1
                continue
            shown["pages"] = 1
        found.append(shown)
    return found


def normal_requests(requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    shown = []
    for request in requests:
        request = {
            key: (
                [{**c, "values": expanded(c["values"])} if "values" in c else c for c in value]
                if key in ("filters", "sessionFilters", "eventFilters")
                else expanded(value)
            )
            for key, value in request.items()
            if key not in ("found", "error")
        }
        if request["op"] == "readEvent":
            request = {"before": 0, "after": 0, **request}
        shown.append(request)
    return shown


def title_of(found: dict[str, Any]) -> Any:
    return {"unavailable": found["title_error"]} if found["title_error"] else found["title"]


def place(found: dict[str, Any]) -> list[Any]:
    return [found["seq"], found["type"], found["surface"], found["time"]]


def facts(tool: str, found: dict[str, Any], caller: dict[str, Any]) -> dict[str, Any]:
    """What a result holds, in the words of the recording."""
    if tool == "session_search":
        parents = {"root": "root", "outside": "outside"}
        return {
            "hits": [
                [
                    hit["session_id"],
                    *place(hit["best_match"]),
                    hit["availability"],
                    parents.get(hit["parent"]["kind"], {"id": hit["parent"]["session_id"]}),
                    hit["created_at"],
                    title_of(hit),
                ]
                for hit in found["hits"]
            ],
            "capped": found["capped"],
        }
    if tool == "session_trace":

        def node(one: dict[str, Any]) -> list[Any]:
            return [one["session_id"], one["created_at"], one["availability"], title_of(one)]

        below: dict[int, list[Any]] = {0: []}
        for one in found["descendants"]:
            shown = one["session"] and [*node(one["session"]), []]
            below[one["depth"] - 1].append(shown)
            if shown:
                below[one["depth"]] = shown[-1]
        return {
            "target": node(found["target"]),
            "ancestors": [node(one) for one in found["ancestors"]],
            "boundary": found["boundary"],
            "root": not found["ancestors"] and not found["boundary"],
            "descendants": below[0],
        }
    about = {"session": found["session_id"], "title": title_of(found)}
    if tool == "session_event_search":
        clipped = found["searched_to"]
        return {
            **about,
            "hits": [place(hit) for hit in found["hits"]],
            "capped": found["capped"],
            **({} if clipped is None else {"clippedTo": clipped}),
        }
    if tool == "session_event_trace":
        return {
            **about,
            "target": place(found["event"]),
            "replacedBy": found["replaced_by"],
            "replacementChain": found["replacement_chain"],
            "replaced": found["replaces"],
            "sources": found["cites"],
            "derived": found["cited_by"],
        }

    def neighbours(side: str) -> list[Any]:
        return [
            [one["seq"], one["type"], one["time"], one["text"] is not None] for one in found[side]
        ]

    return {
        **about,
        "target": found["event"]["seq"],
        "before": neighbours("before"),
        "after": neighbours("after"),
    }


def assert_faithful(text: str, structured: dict[str, Any]) -> None:
    """A text names every id and number of its data, and holds nothing that cannot be encoded."""
    text.encode()
    for hit in structured.get("hits", []):
        assert str(hit.get("seq", hit.get("best_match", hit).get("seq"))) in text
    if "event_json" in structured:
        assert json.loads(structured["event_json"])["seq"] == structured["event"]["seq"]


Departure = tuple[str, str, str]
"""Group of cases, what was recorded, what is answered here."""


def departures() -> list[Departure]:
    text = DECISIONS.read_text("utf-8")
    _, _, section = text.partition("## Departures from the recorded model tools")
    rows = [
        [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip("|"))]
        for line in section.splitlines()
        if line.startswith("| `")
    ]
    return [
        (pattern.strip("`"), recorded, ours)
        for cases, recorded, ours, _reason in rows
        for pattern in cases.split(", ")
    ]


def in_short(outcome: dict[str, Any]) -> str:
    if outcome.get("cancelled"):
        return "cancelled"
    if "errorType" in outcome:
        return str(outcome["errorType"])
    return str(outcome.get("error") or "ok").removeprefix("SESSION_QUERY_")


def cases() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    lines: list[Any] = list(vectors("tools.jsonl.gz"))
    setups = {line["setup"]: line for line in lines if "tool" not in line}
    for setup in setups.values():
        if "like" in setup:
            setup["actions"] = setups[setup["like"]]["actions"]
    return setups, [line for line in lines if "tool" in line]


class Warned(logging.Handler):
    """The lines that one call wrote to the log; it may be told to fail at each."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.fails = False

    def begin(self, case: dict[str, Any]) -> None:
        self.lines.clear()
        self.fails = any("loggerThrows" in one for one in case.get("during", []))

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        if self.fails:
            raise OSError("the log is full")


@define
class Report:
    compared: int = 0
    wrong: list[str] = field(factory=list)
    departed: list[tuple[str, str, str]] = field(factory=list)
    """Case, recorded, ours."""


async def play_all(root: Path, log: Warned) -> Report:
    report = Report()
    setups, calls = cases()
    for name, recorded in setups.items():
        place = root / name
        with tarfile.open(GOLDEN / "corpus.tar.gz") as archive:
            archive.extractall(place, filter="data")
        async with trio.open_nursery() as nursery:
            setup = await Setup.open(place, nursery, recorded)
            for case in calls:
                if case["setup"] == name:
                    log.begin(case)
                    await compare(setup, case, log, report)
            await setup.close()
    return report


async def compare(setup: Setup, case: dict[str, Any], log: Warned, report: Report) -> None:
    found = await Played(setup, case).play()
    await setup.put_back(case.get("during", []))
    report.compared += 1
    ours, theirs = in_short(found), in_short(case)
    wanted = case.get("facts")
    if wanted:
        wanted = {key: value for key, value in wanted.items() if key != "jsonEqualsStored"}
    same = ours == theirs and found.get("facts") == wanted
    asked = normal_requests(found["requests"]) == normal_requests(case["requests"])
    told = len(log.lines) == case.get("warnings", 0)
    if same and asked and told:
        return
    report.departed.append((case["case"], theirs, ours))
    parts = [] if same else [f"{found.get('facts')} not {wanted} ({ours} not {theirs})"]
    parts += [] if asked else [f"asked {found['requests']} not {case['requests']}"]
    parts += (
        []
        if told
        else [f"{len(log.lines)} warnings not {case.get('warnings', 0)}: {log.lines}"[:300]]
    )
    report.wrong.append(f"{case['case']}: " + "; ".join(parts)[:1500])


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    log, logger = Warned(), logging.getLogger("session_query.tools.boundary")
    logger.addHandler(log)
    logger.propagate = False
    try:
        root = tmp_path_factory.mktemp("tools")
        return trio.run(play_all, root, log, clock=MockClock(autojump_threshold=0))
    finally:
        logger.propagate = True
        logger.removeHandler(log)


def test_every_call_is_answered_as_recorded_or_departs_as_listed(report: Report) -> None:
    listed = departures()
    unlisted = []
    for (case, theirs, ours), text in zip(report.departed, report.wrong, strict=True):
        if not any(
            re.fullmatch(pattern, case) and (theirs, ours) == (recorded, answered)
            for pattern, recorded, answered in listed
        ):
            unlisted.append(text)
    assert not unlisted, f"{len(unlisted)}\n" + "\n".join(unlisted[:40])


def test_every_listed_departure_happens(report: Report) -> None:
    for pattern, recorded, ours in departures():
        assert any(
            re.fullmatch(pattern, case) and (theirs, answered) == (recorded, ours)
            for case, theirs, answered in report.departed
        ), pattern


def test_there_are_as_many_calls_as_were_recorded(report: Report) -> None:
    assert report.compared == 966


# -- what is registered ---------------------------------------------------------------------------

SCHEMAS: Final = json.loads((GOLDEN / "tool_schemas.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def tools() -> tuple[Tool, ...]:
    async def read() -> tuple[Tool, ...]:
        async with open_session_query() as query:
            return session_tools(query)

    return trio.run(read)


def test_the_tools_and_their_prompt_are_registered_as_recorded(tools: tuple[Tool, ...]) -> None:
    recorded = SCHEMAS["registration"]["order"]
    assert [tool.name for tool in tools] == [one["tool"] for one in recorded if "tool" in one]
    assert recorded[0]["section"] == PROMPT_SECTION
    assert all(tool.name in PROMPT_TEXT for tool in tools)


@pytest.mark.parametrize("recorded", SCHEMAS["tools"], ids=lambda one: str(one["name"]))
def test_a_tool_takes_the_recorded_arguments(
    recorded: dict[str, Any], tools: tuple[Tool, ...]
) -> None:
    (tool,) = [one for one in tools if one.name == recorded["name"]]
    properties: Any = tool.parameters["properties"]
    required: Any = tool.parameters["required"]
    assert "additionalProperties" not in tool.parameters
    assert [
        {
            "name": name,
            **{key: value for key, value in part.items() if key != "description"},
            "required": name in required,
        }
        for name, part in properties.items()
    ] == recorded["arguments"]
    assert tool.timeout_ms == recorded["timeoutMs"]
    for sample in recorded["concurrency"]:
        assert tool.parallel(sample["args"]) == (sample["mode"] == "parallel")
    for sample in recorded["card"]:
        card = tool.card(sample["args"])
        if sample["card"] is None:
            assert card is None
            continue
        assert card is not None
        assert (card.kind, card.raw_input) == (sample["kind"], sample.get("rawInput"))
        assert (str(sample["args"].get("session_id")) in card.title) == sample["titleNamesTarget"]
        assert (str(sample["args"].get("seq")) in card.title) == sample["titleNamesSeq"]


@pytest.mark.parametrize("recorded", SCHEMAS["config"], ids=lambda one: str(one["config"]))
def test_a_configuration_is_accepted_as_recorded(recorded: dict[str, Any]) -> None:
    names = {"maxSearchResults": "max_search_results", "searchTimeoutMs": "search_timeout_ms"}
    given = {names[key]: value for key, value in recorded["config"].items() if key in names}
    if not recorded["accepted"]:
        with refused(ErrorCode.INVALID_CONFIG, next(iter(given))):
            ToolsConfig(**given)
        return
    assert ToolsConfig(**given).search_timeout_ms == recorded["timeoutMs"]
