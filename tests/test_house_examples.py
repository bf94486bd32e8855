"""The example store: every session of it is whole, and shows what the README says of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import interrupted_turn_closers

from session_query.history.fold import fold_surface
from session_query.history.replay import validate_log
from session_query.history.titles import fold_title
from session_query.storage.contract import StoredLog
from session_query.storage.jsonl import JsonlStore

ROOT = Path(__file__).parent.parent / "examples" / "store"
IDS = sorted(path.parent.name for path in ROOT.glob("*/*/session.v2.jsonl"))


def log_of(session_id: str) -> StoredLog:
    with JsonlStore(ROOT).open(session_id, "read") as handle:
        return handle.read_log()


def test_the_store_holds_a_dozen_sessions_and_no_damage() -> None:
    sweep = JsonlStore(ROOT).sweep()
    assert sorted(snapshot.header.id for snapshot in sweep.snapshots) == IDS
    assert (len(IDS), sweep.damaged) == (12, ())


@pytest.mark.parametrize("session_id", IDS)
def test_an_example_passes_every_check_of_a_restored_log(session_id: str) -> None:
    log = log_of(session_id)
    assert log.left_out is None
    assert validate_log(log.snapshot.header, log.events) == log.inherited_event_count


def test_one_session_is_a_fork_that_begins_with_what_it_inherited() -> None:
    child = log_of("0a42-login-retry")
    parent = log_of(child.snapshot.header.parent_session or "")
    inherited = child.inherited_event_count
    assert inherited > 0
    assert child.events[:inherited] == parent.events[:inherited]


def test_one_session_was_compacted_and_pruned() -> None:
    log = log_of("0c33-orders-migration")
    surface = fold_surface(log.events, log.snapshot.header.version)
    assert [len(replacement.shadowed) for replacement in surface.replacements] == [1, 9]


def test_one_session_was_interrupted_before_its_second_call_began() -> None:
    log = log_of("0d02-deploy-interrupted")
    closers = interrupted_turn_closers(log.events)
    assert [event.type for event in closers] == [
        "tool/result",
        "tool/result",
        "step/end",
        "turn/end",
    ]


def test_one_session_has_no_title() -> None:
    untitled = [session_id for session_id in IDS if fold_title(log_of(session_id).events) is None]
    assert untitled == ["0e11-find-callers"]
