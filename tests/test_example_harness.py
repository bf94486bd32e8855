"""The example of a host: it runs, and what it leaves is what it shows."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from session_query.history.replay import validate_log
from session_query.messages.event import Event
from session_query.storage.contract import StoredLog
from session_query.storage.jsonl import JsonlStore

EXAMPLE = Path(__file__).parent.parent / "examples" / "harness.py"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one run of the example leaves."""
    folder = tmp_path_factory.mktemp("example")
    trio.run(runpy.run_path(str(EXAMPLE))["main"], str(folder))
    return folder


def log_of(folder: Path, session_id: str) -> StoredLog:
    with JsonlStore(str(folder / "sessions")).open(session_id, "read") as handle:
        return handle.read_log()


@pytest.fixture(scope="module")
def events(folder: Path) -> tuple[Event, ...]:
    return log_of(folder, "today").events


def results(events: tuple[Event, ...]) -> list[tuple[str, str, str | None]]:
    """The call id, the text and the error code of each tool result, in order."""
    shown: list[tuple[str, str, str | None]] = []
    for event in events:
        if event.type == "tool/result":
            data: Any = event.data
            (block,) = data["message"]["content"]
            code = data["error"]["code"] if "error" in data else None
            shown.append((block["toolCallId"], block["content"][0]["text"], code))
    return shown


def test_the_example_runs_by_itself_and_says_what_it_does() -> None:
    run = subprocess.run(
        [sys.executable, str(EXAMPLE)], capture_output=True, encoding="utf-8", cwd=EXAMPLE.anchor
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert "grep: 2000 bytes, the whole in " in run.stdout
    assert "run_tests TOOL_TIMEOUT: " in run.stdout
    assert run.stdout.endswith("model: It is the connection pool again: it holds only five.\n")


@pytest.mark.parametrize("session_id", ["last-week", "today"])
def test_its_logs_pass_every_check_of_a_restored_log(folder: Path, session_id: str) -> None:
    log = log_of(folder, session_id)
    assert log.left_out is None
    validate_log(log.snapshot.header, log.events)
    assert log.events[-1].type == "turn/end"


def test_results_stand_in_the_order_of_the_calls(events: tuple[Event, ...]) -> None:
    assert [(call_id, code) for call_id, _text, code in results(events)] == [
        ("t1s1c1", None),
        ("t1s2c1", None),
        ("t1s2c2", None),
        ("t1s2c3", None),
        ("t1s3c1", None),
        ("t1s3c2", "NO_FILE"),
        ("t1s3c3", "TOOL_TIMEOUT"),
        ("t1s3c4", "INVALID_ARGS"),
    ]


def test_every_call_that_was_dispatched_stands_in_the_log_before_its_result(
    events: tuple[Event, ...],
) -> None:
    called: dict[str, int] = {}
    for event in events:
        data: Any = event.data
        if event.type == "tool/call":
            called[data["callId"]] = event.seq
        elif event.type == "tool/result" and data["message"]["source"]["callId"] != "t1s3c4":
            assert called[data["message"]["source"]["callId"]] < event.seq
    assert len(called) == 7


def test_the_earlier_session_is_found_and_read(events: tuple[Event, ...]) -> None:
    texts = {call_id: text for call_id, text, _code in results(events)}
    assert "last-week" in texts["t1s1c1"]
    assert "the pool holds only five" in texts["t1s2c1"]


def test_what_was_too_long_is_kept_whole_and_read_again(
    folder: Path, events: tuple[Event, ...]
) -> None:
    texts = {call_id: text for call_id, text, _code in results(events)}
    (kept,) = (folder / "results").glob("*/*-grep.txt")
    assert json.dumps(str(kept))[1:-1] in texts["t1s2c3"]
    assert len(texts["t1s2c3"].encode()) <= 2000
    assert texts["t1s3c1"] == kept.read_text("utf-8")
