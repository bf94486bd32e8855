"""The oracle of the model tools must not be fooled: answers that tell too much are refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from session_query.messages.config import MEMORY, IndexConfig
from session_query.messages.errors import ErrorCode
from session_query.messages.event import Event, EventDraft
from session_query.messages.header import SessionHeader
from session_query.messages.json import Json
from session_query.simulations.history import Call, History, Log
from session_query.simulations.logs import event_of
from session_query.simulations.marks import Marks
from session_query.simulations.tool_oracle import ToolOracle
from session_query.simulations.tool_questions import ToolQuestion
from session_query.simulations.verdict import Violation
from session_query.tools.boundary import UNAUTHORIZED
from session_query.tools.definition import ToolError, ToolErrorCode, ToolResult

STORE = "/a"
INDEX = IndexConfig(path=MEMORY, snippet_chars=20)


def user(seq: int, text: str) -> Event:
    data: Json = {"role": "user", "content": [{"type": "text", "text": text}]}
    return event_of(EventDraft("user/message", data, surface_op="append"), seq, seq)


def log_of(session_id: str, cwd: str, *texts: str, parent: str | None = None) -> Log:
    header = SessionHeader(session_id, 1_000, cwd=cwd, parent_session=parent)
    return Log(header, tuple(user(seq, text) for seq, text in enumerate(texts)))


def unreadable(log: Log) -> Log:
    return Log(log.header, log.events, damage=ErrorCode.CORRUPT_SESSION)


MINE = log_of("s0", "/w", "a q0q", "b q1q")
FOREIGN = log_of("s1", "/v", "a q2q")


def history_of(*logs: Log) -> History:
    history = History()
    history.bind(STORE)
    for log in logs:
        history.store(STORE, log.header.id, log)
    return history


def asked(
    history: History,
    tool: str,
    arguments: dict[str, Json],
    outcome: ToolResult | ToolError,
    *,
    own: str | None = None,
    step: int | None = None,
    meanwhile: Callable[[], object] = lambda: None,
) -> Call:
    """A call from the workspace ``/w`` that came to this outcome."""
    call = history.ask("somebody", "tool", ToolQuestion(tool, arguments, own, "/w", step))
    meanwhile()
    if isinstance(outcome, ToolError):
        call.error = outcome
    else:
        call.reply = outcome
    history.answer(call)
    return call


def check(history: History, *calls: Call) -> None:
    ToolOracle(history, INDEX, 100, Marks(frozenset())).check(calls)


def refuse(history: History, *calls: Call, because: str) -> None:
    with pytest.raises(Violation, match=because):
        check(history, *calls)


def found(*hits: Json, skipped: int = 0, text: str = "") -> ToolResult:
    data: dict[str, Json] = {"hits": list(hits), "capped": False, "searchable": True}
    return ToolResult(text, {**data, "skipped": skipped})


def hit(session_id: str, snippet: str, *, event_type: str = "user/message") -> Json:
    return {
        "session_id": session_id,
        "title": None,
        "title_error": None,
        "created_at": "1970-01-01T00:00:01.000Z",
        "availability": ["persisted"],
        "parent": {"kind": "root", "session_id": None},
        "best_match": {
            "seq": 0,
            "type": event_type,
            "time": "1970-01-01T00:00:00.000Z",
            "surface": "current",
            "snippet": snippet,
        },
    }


def family(target: str, *below: Json, skipped: int = 0) -> ToolResult:
    shown = hit(target, "")
    assert isinstance(shown, dict)
    record: Json = {name: shown[name] for name in list(shown)[:5]}
    data: dict[str, Json] = {"target": record, "ancestors": [], "boundary": False}
    return ToolResult("", {**data, "descendants": list(below), "skipped": skipped})


def refusal(code: str = ToolErrorCode.UNAUTHORIZED, text: str = UNAUTHORIZED) -> ToolError:
    return ToolError(code, text)


SEARCH: dict[str, Json] = {"query": "a"}


def test_what_is_of_the_workspace_may_be_found() -> None:
    history = history_of(MINE, FOREIGN)
    check(history, asked(history, "session_search", SEARCH, found(hit("s0", "a q0q"))))


def test_what_is_of_the_workspace_must_be_found() -> None:
    history = history_of(MINE, FOREIGN)
    refuse(history, asked(history, "session_search", SEARCH, found()), because="s0 is missing")


@pytest.mark.parametrize("told", ["in the data", "in the text"])
def test_neither_id_nor_words_of_another_workspace_may_be_told(told: str) -> None:
    history = history_of(MINE, FOREIGN)
    hits = [hit("s0", "a q0q")]
    for secret in ("s1", "q2q"):
        extra = [hit(secret, "")] if told == "in the data" else []
        answer = found(*hits, *extra, text=secret)
        call = asked(history, "session_search", SEARCH, answer)
        refuse(history, call, because=rf"\['{secret}'\] must not be told")


def test_damage_of_another_workspace_is_not_counted() -> None:
    damaged = unreadable(FOREIGN)
    history = history_of(MINE, damaged)
    call = asked(history, "session_search", SEARCH, found(hit("s0", "a q0q"), skipped=1))
    refuse(history, call, because="1 are skipped, not 0..0")


def test_damage_of_the_own_workspace_is_counted() -> None:
    damaged = unreadable(MINE)
    history = history_of(damaged, FOREIGN)
    check(history, asked(history, "session_search", SEARCH, found(skipped=1)))
    refuse(history, asked(history, "session_search", SEARCH, found()), because="not 1..1")


@pytest.mark.parametrize("code", [ErrorCode.EVENT_NOT_FOUND, ErrorCode.CORRUPT_SESSION])
def test_what_is_wrong_with_a_session_of_another_workspace_is_not_told(code: ErrorCode) -> None:
    history = history_of(MINE, unreadable(FOREIGN))
    arguments: dict[str, Json] = {"session_id": "s1", "seq": 9}
    call = asked(history, "session_event_read", arguments, refusal(code, "no"))
    refuse(history, call, because=f"is refused with {code}")


def test_a_session_of_elsewhere_and_one_that_is_not_are_refused_alike() -> None:
    history = history_of(MINE, FOREIGN)
    calls = [
        asked(history, "session_trace", {"session_id": session_id}, refusal(text=text))
        for session_id, text in (("nowhere", UNAUTHORIZED), ("s1", "That is none of yours."))
    ]
    check(history, calls[0])
    refuse(history, *calls, because="none of yours")


def test_a_refusal_without_a_reason_is_refused() -> None:
    history = history_of(MINE, FOREIGN)
    call = asked(history, "session_trace", {"session_id": "s0"}, refusal())
    refuse(history, call, because="UNAUTHORIZED")


def test_a_session_that_moves_meanwhile_may_be_seen_as_it_was_and_not_as_it_is() -> None:
    moved = log_of("s0", "/v", "a q0q", "b q1q", "a q3q")
    for words, fine in (("a q0q", True), ("a q3q", False)):
        history = history_of(MINE)
        answer = found(hit("s0", words), text=words)

        def move(history: History = history) -> None:
            history.store(STORE, "s0", moved)

        call = asked(history, "session_search", SEARCH, answer, meanwhile=move)
        if fine:
            check(history, call)
        else:
            refuse(history, call, because=r"\['q3q'\] must not be told")


def test_the_own_step_in_progress_is_not_searched() -> None:
    history = history_of(MINE)
    data: dict[str, Json] = {"session_id": "s0", "title": None, "title_error": None, "hits": []}
    for searched_to, because in ((0, ""), (1, "is searched up to 0")):
        structured = {**data, "capped": False, "searchable": True, "searched_to": searched_to}
        answer = ToolResult("", structured)
        arguments: dict[str, Json] = {"query": "b"}
        call = asked(history, "session_event_search", arguments, answer, own="s0", step=1)
        if because:
            refuse(history, call, because=because)
        else:
            check(history, call)


def test_an_echo_is_not_found() -> None:
    called: Json = {"callId": "c0", "name": "session_search", "arguments": "a"}
    echo = event_of(EventDraft("tool/call", called), 0, 0)
    history = history_of(Log(MINE.header, (echo,)))
    check(history, asked(history, "session_search", SEARCH, found()))
    shown = found(hit("s0", "session_search a", event_type="tool/call"))
    refuse(history, asked(history, "session_search", SEARCH, shown), because="cannot be found")


def test_a_hidden_child_is_one_mark_and_no_other() -> None:
    child = log_of("s1", "/v", "a", parent="s0")
    below = log_of("s2", "/w", "a", parent="s1")
    history = history_of(MINE, child, below)
    mark: Json = {"depth": 1, "session": None}
    arguments: dict[str, Json] = {"session_id": "s0"}
    check(history, asked(history, "session_trace", arguments, family("s0", mark)))
    for wrong in ((), (mark, mark)):
        call = asked(history, "session_trace", arguments, family("s0", *wrong))
        refuse(history, call, because="hidden below s0")


def test_a_lone_surrogate_is_refused_wherever_it_stands() -> None:
    history = history_of(MINE)
    answer = found(hit("s0", "a q0q"))
    object.__setattr__(answer, "text", "\ud800")
    call = asked(history, "session_search", SEARCH, answer)
    refuse(history, call, because="lone surrogate")


def test_a_call_has_one_outcome() -> None:
    history = history_of(MINE)
    call = asked(history, "session_search", SEARCH, found(hit("s0", "a q0q")))
    call.error = refusal()
    refuse(history, call, because="and There is no such session")
