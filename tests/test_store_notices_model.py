"""Notices of a real directory against what two whole sweeps, before and after, tell apart."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st
from jsonl_files import BODY, OsFilesAt, row, session_line
from told_changes import begun, watched

from session_query import JsonlStore
from session_query.messages.header import SessionHeader
from session_query.storage.contract import Snapshot, Sweep
from session_query.storage.layout import encode_segment

LATE = 1 << 62
"""A time at which no file is young."""

PROJECTS = ("--w--", "--v--")
CWD = {"--w--": "/w", "--v--": "/v"}
IDS = ("s", "t", "a b")


class Disk:
    """A store directory, and what anybody may do to it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def log(self, project: str, session_id: str, name: str = "session.v2.jsonl") -> Path:
        return self.root / project / encode_segment(session_id) / name

    def write(self, project: str, session_id: str) -> None:
        path = self.log(project, session_id)
        path.parent.mkdir(parents=True, exist_ok=True)
        header = session_line(id=session_id, cwd=CWD.get(project, "/elsewhere"))
        path.write_bytes(b"\n".join([header, *BODY, b""]))

    def replace(self, project: str, session_id: str) -> None:
        path = self.log(project, session_id)
        fresh = path.with_name("fresh")
        fresh.write_bytes(path.read_bytes() + row(3, "demo/note", {}, ignorable=True) + b"\n")
        fresh.rename(path)

    def append(self, project: str, session_id: str) -> None:
        with self.log(project, session_id).open("ab") as file:
            file.write(row(3, "demo/note", {"text": "more"}, ignorable=True) + b"\n")

    def damage(self, project: str, session_id: str) -> None:
        self.log(project, session_id).write_bytes(b"\0" * 50)

    def outdate(self, project: str, session_id: str) -> None:
        self.log(project, session_id).with_name("session.v9.jsonl").write_bytes(b"{}\n")

    def compress(self, project: str, session_id: str) -> None:
        self.log(project, session_id).with_name("session.v2.jsonl.zstd").write_bytes(b"")

    def empty(self, project: str, session_id: str) -> None:
        self.log(project, session_id).parent.mkdir(parents=True)

    def unlink(self, project: str, session_id: str) -> None:
        self.log(project, session_id).unlink()

    def remove(self, project: str, session_id: str) -> None:
        shutil.rmtree(self.log(project, session_id).parent)

    def remove_project(self, project: str, _session_id: str) -> None:
        shutil.rmtree(self.root / project)

    def rename(self, project: str, session_id: str) -> None:
        others = [other for other in IDS if other != session_id]
        self.log(project, session_id).parent.rename(self.log(project, others[0]).parent)

    def swap_projects(self, _project: str, _session_id: str) -> None:
        first, second = (self.root / name for name in PROJECTS)
        first.rename(self.root / "aside")
        second.rename(first)
        (self.root / "aside").rename(second)

    def rename_project(self, project: str, _session_id: str) -> None:
        (self.root / project).rename(self.root / "other")

    def flat(self, project: str, session_id: str) -> None:
        (self.root / project / f"{encode_segment(session_id)}.jsonl").write_bytes(b"")

    def link_session(self, project: str, session_id: str) -> None:
        target = self.log(project, "t").parent
        self.log(project, session_id).parent.symlink_to(target, target_is_directory=True)

    def link_log(self, project: str, session_id: str) -> None:
        self.log(project, session_id).symlink_to(self.root / "far")

    def grow_far(self, _project: str, _session_id: str) -> None:
        with (self.root / "far").open("ab") as file:
            file.write(session_line(id="s") + b"\n")

    def touch(self, project: str, session_id: str) -> None:
        os.utime(self.log(project, session_id), ns=(7, 7))


ACTIONS = st.sampled_from(
    [name for name in vars(Disk) if name not in ("log",) and "__" not in name]
)
STEP = st.tuples(ACTIONS, st.sampled_from(PROJECTS), st.sampled_from(IDS))
STEPS = st.lists(st.lists(STEP, min_size=1, max_size=3), max_size=12)


def by_id(sweep: Sweep) -> dict[str, Snapshot]:
    return {snapshot.header.id: snapshot for snapshot in sweep.snapshots}


def contents(root: Path, sweep: Sweep) -> dict[str, tuple[SessionHeader, bytes]]:
    """What each session of a sweep consists of."""
    return {
        snapshot.header.id: (snapshot.header, (root / snapshot.location).read_bytes())
        for snapshot in sweep.snapshots
    }


def differing(before: Mapping[str, object], after: Mapping[str, object]) -> set[str]:
    return {session_id for session_id in after if after[session_id] != before.get(session_id)}


@settings(max_examples=100, deadline=None)
@given(STEPS)
def test_what_is_told_is_what_two_sweeps_tell_apart(
    rounds: list[list[tuple[str, str, str]]],
) -> None:
    with TemporaryDirectory() as folder:
        root = Path(folder)
        disk = Disk(root)
        disk.write("--w--", "s")
        disk.write("--v--", "t")
        with watched(JsonlStore(root, files=OsFilesAt(LATE))) as store:
            token = begun(store)
            before = fresh(root)
            held = contents(root, before)
            for steps in rounds:
                for action, project, session_id in steps:
                    with suppress(OSError):
                        getattr(disk, action)(project, session_id)
                changes = store.changes(token)
                assert changes is not None
                after = fresh(root)
                holds = contents(root, after)
                assert differing(held, holds) <= changes.changed <= holds.keys()
                assert held.keys() - holds.keys() <= changes.gone
                assert not changes.gone & holds.keys()
                assert sorted(map(repr, changes.damaged)) == sorted(map(repr, after.damaged))
                if len(steps) == 1:
                    assert changes.changed == differing(by_id(before), by_id(after))
                token, before, held = changes.token, after, holds


def fresh(root: Path) -> Sweep:
    """What a store that never looked before finds."""
    return JsonlStore(root, files=OsFilesAt(LATE)).sweep()
