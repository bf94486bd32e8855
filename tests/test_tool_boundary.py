"""What goes wrong behind a tool: a fixed sentence for the model, everything else for the log."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from service_world import session, store_of
from tool_world import tool_named, watched

from session_query.actors.composition import open_session_query
from session_query.messages.config import QueryConfig
from session_query.messages.errors import ErrorCode, SessionError, SessionQueryError
from session_query.tools.boundary import UNAUTHORIZED, guarded, sanitised
from session_query.tools.definition import Caller, ToolError, ToolErrorCode

SECRET = "the-secret-of-the-store"


def caused(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


class Hostile(Exception):
    """Nothing of it can be read."""

    @property
    def code(self) -> str:
        raise RuntimeError(SECRET)

    def __str__(self) -> str:
        raise RuntimeError(SECRET)


class OddCode(SessionQueryError):
    def __init__(self, code: object) -> None:
        super().__init__(ErrorCode.ABORTED, SECRET)
        self.code = code  # type: ignore[assignment]


@pytest.mark.parametrize(
    "error",
    [
        SessionQueryError(ErrorCode.SOURCE_CONFLICT, SECRET),
        SessionQueryError(ErrorCode.INVALID_CONFIG, SECRET),
        OddCode("__proto__"),
        OddCode(None),
        OddCode(["SESSION_QUERY_ABORTED"]),
        RuntimeError(SECRET),
        SessionError(SECRET),
        Hostile(SECRET),
        ToolError(ErrorCode.STALE_CURSOR, SECRET),
        ExceptionGroup(SECRET, [SessionQueryError(ErrorCode.ABORTED, SECRET)]),
    ],
)
def test_an_error_that_says_nothing_to_a_model_is_generic(error: Exception) -> None:
    told = sanitised("call", error)
    assert told.code == ToolErrorCode.FAILED
    assert SECRET not in str(told)
    assert told.__cause__ is told.__context__ is None


@pytest.mark.parametrize(
    "code", set(ErrorCode) - {ErrorCode.SOURCE_CONFLICT, ErrorCode.INVALID_CONFIG}
)
def test_a_known_code_keeps_itself_and_gets_a_sentence(code: ErrorCode) -> None:
    told = sanitised("call", SessionQueryError(code, SECRET))
    assert told.code == code
    assert str(told).endswith(".")
    assert SECRET not in str(told)


def test_a_plain_error_with_a_known_code_is_generic() -> None:
    error = RuntimeError(SECRET)
    error.code = "SESSION_QUERY_STALE_CURSOR"  # type: ignore[attr-defined]
    assert sanitised("call", error).code == ToolErrorCode.FAILED


def test_unauthorized_is_told_in_the_same_words_from_wherever_it_comes() -> None:
    told = sanitised("call", ToolError(ToolErrorCode.UNAUTHORIZED, SECRET))
    assert (told.code, str(told)) == (ToolErrorCode.UNAUTHORIZED, UNAUTHORIZED)


def test_the_log_gets_the_whole_chain_in_one_line_of_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cause = caused(OSError("disk"), ValueError("sector"))
    sanitised("event read", caused(SessionQueryError(ErrorCode.PERSISTENCE_FAILED, "x"), cause))
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    message = record.getMessage()
    assert message.startswith("event read failed: ")
    assert message.index("SessionQueryError: x") < message.index("OSError: disk")
    assert message.index("OSError: disk") < message.index("ValueError: sector")


def test_causes_in_a_circle_end_with_a_mark(caplog: pytest.LogCaptureFixture) -> None:
    first, second = RuntimeError("first"), RuntimeError("second")
    first.__cause__, second.__cause__ = second, first
    assert sanitised("call", first).code == ToolErrorCode.FAILED
    assert caplog.text.count("RuntimeError: first") == 1
    assert "in a circle" in caplog.text


def test_a_chain_of_causes_has_an_end(caplog: pytest.LogCaptureFixture) -> None:
    error: BaseException = RuntimeError("0")
    for number in range(1, 100_000):
        error = caused(RuntimeError(str(number)), error)
    sanitised("call", error)
    assert "<more causes>" in caplog.text
    while error.__cause__ is not None:  # freed one by one, or the interpreter recurses
        error, error.__cause__ = error.__cause__, None


def test_an_unprintable_cause_does_not_hide_the_code(caplog: pytest.LogCaptureFixture) -> None:
    error = caused(SessionQueryError(ErrorCode.STALE_CURSOR, "x"), Hostile())
    assert sanitised("call", error).code == ErrorCode.STALE_CURSOR
    assert "cannot be shown" in caplog.text


def test_a_lone_surrogate_does_not_break_the_log(caplog: pytest.LogCaptureFixture) -> None:
    sanitised("call", RuntimeError("\ud83d"))
    caplog.text.encode()
    assert "\ufffd" in caplog.text


def test_a_log_that_fails_makes_the_failure_generic(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_arguments: object) -> None:
        raise OSError(SECRET)

    monkeypatch.setattr("session_query.tools.boundary._log.warning", broken)
    told = sanitised("call", SessionQueryError(ErrorCode.STALE_CURSOR, "x"))
    assert told.code == ToolErrorCode.FAILED
    assert SECRET not in str(told)


async def test_cancellation_wins_over_a_failure_and_is_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settled = False

    async def call() -> None:
        nonlocal settled
        try:
            scope.cancel()
            await trio.sleep_forever()
        except trio.Cancelled:
            settled = True
            raise SessionQueryError(ErrorCode.INVALID_LINEAGE, "x") from None

    with trio.CancelScope() as scope:
        await guarded("call", call)
    assert scope.cancelled_caught
    assert settled
    assert not caplog.records


async def test_an_answer_that_came_too_late_is_dropped() -> None:
    async def call() -> int:
        scope.cancel()
        return 1

    with trio.CancelScope() as scope:
        await guarded("call", call)
    assert scope.cancelled_caught


async def test_a_cancelled_caller_starts_nothing() -> None:
    async def call() -> None:
        raise AssertionError("started")

    with trio.CancelScope() as scope:
        scope.cancel()
        await guarded("call", call)
    assert scope.cancelled_caught


ARGUMENTS: dict[str, dict[str, Any]] = {
    "session_search": {"query": "words", "parent_session_ids": ["other"]},
    "session_event_search": {"query": "words", "session_id": "other"},
    "session_trace": {"session_id": "other"},
    "session_event_trace": {"session_id": "other", "seq": 0},
    "session_event_read": {"session_id": "other", "seq": 0},
}
CALLER = Caller("mine", "/work", step_start=lambda: 1)


@pytest.mark.parametrize("name", ARGUMENTS)
async def test_whatever_call_fails_its_text_stays_behind(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = store_of(session("mine"), session("other", "words", parent_session="mine"))
    async with open_session_query(store=store) as query:
        recall = watched(query)
        await tool_named(recall, name).run(CALLER, ARGUMENTS[name])
        steps = len(recall.calls)
        assert steps > 1
        for failing in range(steps):
            caplog.clear()

            async def disturb(
                _method: str, _number: int, call: Callable[[], Awaitable[Any]]
            ) -> Any:
                if len(recall.calls) - 1 == failing:  # noqa: B023
                    raise RuntimeError(SECRET)
                return await call()

            recall = watched(query, disturb)
            with pytest.raises(ToolError) as error:
                await tool_named(recall, name).run(CALLER, ARGUMENTS[name])
            assert error.value.code == ToolErrorCode.FAILED
            assert SECRET not in str(error.value)
            assert error.value.__cause__ is error.value.__context__ is None
            assert [SECRET in record.getMessage() for record in caplog.records] == [True]


@pytest.mark.parametrize("name", ARGUMENTS)
async def test_a_caller_who_is_cancelled_at_any_call_gets_its_own_cancellation(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = store_of(session("mine"), session("other", "words", parent_session="mine"))
    async with open_session_query(store=store) as query:
        at, finished = 0, False
        while not finished:
            at += 1

            async def disturb(
                _method: str, _number: int, call: Callable[[], Awaitable[Any]]
            ) -> Any:
                if len(recall.calls) == at:  # noqa: B023
                    scope.cancel()
                return await call()

            recall = watched(query, disturb)
            with trio.CancelScope() as scope:
                await tool_named(recall, name).run(CALLER, ARGUMENTS[name])
                finished = True
            assert scope.cancelled_caught is not finished
            assert finished or len(recall.calls) == at
        assert at > 2
        assert not caplog.records


async def test_a_hook_that_fails_is_told_as_any_failure(caplog: pytest.LogCaptureFixture) -> None:
    def canonical(_cwd: str) -> str:
        raise RuntimeError(SECRET)

    config = QueryConfig(canonical_cwd=canonical)
    async with open_session_query(store=store_of(session("mine")), config=config) as query:
        with pytest.raises(ToolError) as error:
            await tool_named(query.recall(), "session_trace").run(CALLER, {})
    assert error.value.code == ToolErrorCode.FAILED
    assert SECRET not in str(error.value)
    assert SECRET in caplog.text
