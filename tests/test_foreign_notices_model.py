"""What is told of other agents' logs, whatever is done to them: what two sweeps tell apart."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from foreign_logs import MAIN, OTHER, THIRD, add, message, meta, prompt, write
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonl_files import OsFilesAt
from told_changes import begun, watched

from session_query.storage.claude_code import ClaudeCodeStore
from session_query.storage.codex import CodexStore
from session_query.storage.contract import SessionStore, Snapshot
from session_query.storage.several import SeveralStores

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")

LATE = 1 << 62
IDS = (MAIN, OTHER, THIRD)
PROJECTS = ("-a", "-b")


class Disk:
    """Logs of two agents, and what may be done to them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.claude = root / "claude" / "projects"
        self.codex = root / "codex" / "sessions"
        self.claude.mkdir(parents=True)
        self.codex.mkdir(parents=True)

    def log(self, project: str, session_id: str) -> Path:
        return self.claude / project / f"{session_id}.jsonl"

    def begin(self, project: str, session_id: str) -> None:
        write(self.log(project, session_id), prompt(0, "hello", session_id))

    def grow(self, project: str, session_id: str) -> None:
        add(self.log(project, session_id), prompt(1, "more", session_id))

    def fork(self, project: str, session_id: str) -> None:
        other = IDS[IDS.index(session_id) - 1]
        write(self.log(project, session_id), prompt(0, "hello", other), prompt(1, "on", session_id))

    def delegate(self, project: str, session_id: str) -> None:
        agents = self.log(project, session_id).with_suffix("") / "subagents"
        write(agents / "wf" / "agent-a.jsonl", prompt(1, "look", session_id))

    def delegate_within(self, project: str, session_id: str) -> None:
        row = prompt(2, "look", session_id, isSidechain=True, parentUuid=None, version="1.0.24")
        write(self.log(project, session_id), row)

    def spoil(self, project: str, session_id: str) -> None:
        self.log(project, session_id).write_bytes(b"nonsense\n")

    def empty(self, project: str, session_id: str) -> None:
        os.truncate(self.log(project, session_id), 0)

    def remove(self, project: str, session_id: str) -> None:
        self.log(project, session_id).unlink()

    def move(self, project: str, session_id: str) -> None:
        self.log(project, session_id).rename(self.log("-b", session_id))

    def move_agents(self, project: str, session_id: str) -> None:
        folder = self.log(project, session_id).with_suffix("")
        folder.rename(self.claude / "-b" / folder.name)

    def move_project(self, project: str, _session_id: str) -> None:
        (self.claude / project).rename(self.claude / "-c")

    def link(self, project: str, session_id: str) -> None:
        self.log(project, session_id).symlink_to(self.root / "far")

    def grow_far(self, _project: str, session_id: str) -> None:
        add(self.root / "far", prompt(3, "far", session_id))

    def name_twice(self, project: str, session_id: str) -> None:
        os.link(self.log(project, session_id), self.root / "far")
        # The system tells of a second name no sooner than of the next change.
        self.touch(project, session_id)

    def roll(self, project: str, session_id: str) -> None:
        write(self.codex / project / f"rollout-{session_id}.jsonl", meta(session_id))

    def roll_on(self, project: str, session_id: str) -> None:
        add(self.codex / project / f"rollout-{session_id}.jsonl", message(1, "user", "more"))

    def touch(self, project: str, session_id: str) -> None:
        os.utime(self.log(project, session_id), ns=(7, 7))


ACTIONS = st.sampled_from([name for name in vars(Disk) if name != "log" and "__" not in name])
STEP = st.tuples(ACTIONS, st.sampled_from(PROJECTS), st.sampled_from(IDS))
STEPS = st.lists(st.lists(STEP, min_size=1, max_size=3), max_size=12)


def stores(root: Path) -> dict[str, SessionStore]:
    return {
        "claude": ClaudeCodeStore(root / "claude", files=OsFilesAt(LATE)),
        "codex": CodexStore(root / "codex", files=OsFilesAt(LATE)),
    }


def fresh(root: Path) -> tuple[dict[str, Snapshot], list[str]]:
    """What stores that never looked before find."""
    sweep = SeveralStores(stores(root)).sweep()
    return {found.header.id: found for found in sweep.snapshots}, sorted(map(repr, sweep.damaged))


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_what_is_told_is_what_two_sweeps_tell_apart(
    rounds: list[list[tuple[str, str, str]]],
) -> None:
    with TemporaryDirectory() as folder:
        root = Path(folder)
        disk = Disk(root)
        disk.begin("-a", MAIN)
        disk.roll("-a", OTHER)
        with watched(SeveralStores(stores(root))) as store:
            token = begun(store)
            before, _ = fresh(root)
            for steps in rounds:
                for action, project, session_id in steps:
                    with suppress(OSError):
                        getattr(disk, action)(project, session_id)
                changes = store.changes(token)
                assert changes is not None
                after, damaged = fresh(root)
                assert changes.changed == {one for one in after if after[one] != before.get(one)}
                assert changes.gone == before.keys() - after.keys()
                assert sorted(map(repr, changes.damaged)) == damaged
                # What is asked next is answered by what was told.
                assert {one: store.stat(one) for one in changes.changed} == {
                    one: after[one] for one in changes.changed
                }
                token, before = changes.token, after
