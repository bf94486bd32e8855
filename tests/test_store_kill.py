"""A writer that is killed at any of its file operations, or halfway through a write.

A child process kills itself at its k-th operation, for k = 1 until it ends by itself. What it
reported as stored is there, no event is served that was not whole, and the next writer goes on.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

import pytest
from builders import header
from jsonl_files import FailingFiles
from store_contract import store_session, turns

from session_query.storage.jsonl import JsonlStore

Compression: TypeAlias = Literal["none", "zstd"]
Acknowledge: TypeAlias = Callable[[int], object]
Scene: TypeAlias = Callable[[JsonlStore, Acknowledge], None]

EVENTS = turns(8)
MOST_OPERATIONS = 40


class KilledFiles(FailingFiles):
    """A disk that takes its process with it; what an append had written by then stays."""

    def fail(self, name: str) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def first_append(store: JsonlStore, acknowledge: Acknowledge) -> None:
    writer = store.create(header())
    writer.append(EVENTS[:3])
    acknowledge(3)


def later_append(store: JsonlStore, acknowledge: Acknowledge) -> None:
    writer = store.open("s", "write")
    for seq in range(2, 6, 2):
        writer.append(EVENTS[seq : seq + 2])
        acknowledge(seq + 2)


def flush(store: JsonlStore, acknowledge: Acknowledge) -> None:
    writer = store.create(header())
    writer.flush()
    acknowledge(0)
    store.flush()


def close(store: JsonlStore, acknowledge: Acknowledge) -> None:
    with store.open("s", "write") as writer:
        writer.append(EVENTS[2:5])
        acknowledge(5)
    acknowledge(5)


def resume(store: JsonlStore, acknowledge: Acknowledge) -> None:
    """Go on with a log that an earlier death left torn."""
    with store.open("s", "write") as writer:
        length = len(writer.read())
        acknowledge(2)
        writer.append(EVENTS[length : length + 2])
        acknowledge(length + 2)


SCENES: dict[Scene, int] = {first_append: 0, later_append: 2, flush: 0, close: 2, resume: 2}
"""What is done, and how many events are stored before."""


def prepare(root: Path, compression: Compression, scene: Scene) -> None:
    if SCENES[scene]:
        store_session(JsonlStore(root, compression=compression), EVENTS[: SCENES[scene]])
    if scene is resume:
        tear(root)


def tear(root: Path) -> None:
    """Die while two events are appended, with most of them written."""
    disk = KilledFiles(3)  # lock, open, append
    disk.part = 0.97
    run(lambda: JsonlStore(root, files=disk).open("s", "write").append(EVENTS[2:4]))


def run(action: Callable[[], object]) -> int:
    """Do something in a child process; its wait status."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            action()
            code = 0
        finally:
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return status


def acknowledged_before_death(play: Callable[[Acknowledge], None]) -> tuple[bool, int]:
    """Whether a child lived to its end, and the most that it saw acknowledged."""
    receiver, sender = os.pipe()
    status = run(lambda: play(lambda length: os.write(sender, bytes([length]))))
    os.close(sender)
    with open(receiver, "rb") as reports:
        lengths = reports.read()
    return not os.WIFSIGNALED(status), max(lengths, default=-1)


def check(root: Path, compression: Compression, acknowledged: int) -> None:
    """What was acknowledged is served, nothing torn is, and the next writer goes on."""
    store = JsonlStore(root, compression=compression)
    swept = store.sweep()
    assert swept.damaged == ()
    if not swept.snapshots:
        assert acknowledged < 0
        store_session(store, EVENTS)
    else:
        with store.open("s", "read") as reader:
            served = reader.read()
        assert served == EVENTS[: len(served)]
        assert len(served) >= acknowledged
        with store.open("s", "write") as writer:
            writer.append(EVENTS[len(served) :])
    with JsonlStore(root).open("s", "read") as reader:
        log = reader.read_log()
    assert (log.events, log.left_out) == (EVENTS, None)


@pytest.mark.parametrize(("compression", "part"), [("none", 0.5), ("zstd", 0.97)])
@pytest.mark.parametrize("scene", SCENES)
def test_a_writer_killed_at_any_operation_loses_nothing_it_acknowledged(
    tmp_path: Path, scene: Scene, compression: Compression, part: float
) -> None:
    for turn in range(1, MOST_OPERATIONS):
        root = tmp_path / str(turn)
        prepare(root, compression, scene)
        disk = KilledFiles(turn)
        disk.part = part
        store = JsonlStore(root, compression=compression, files=disk)
        ended, acknowledged = acknowledged_before_death(partial(scene, store))
        check(root, compression, acknowledged)
        if ended:
            assert turn > 1
            return
    raise AssertionError(f"{scene.__name__} takes {MOST_OPERATIONS} operations or more")


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_death_in_an_append_leaves_a_torn_log(tmp_path: Path, compression: Compression) -> None:
    prepare(tmp_path, compression, resume)
    with JsonlStore(tmp_path).open("s", "read") as reader:
        log = reader.read_log()
    assert log.left_out is not None
    # Of a compressed batch what was written can be read; of plain rows, the whole ones.
    assert log.events == EVENTS[: {"none": 3, "zstd": 4}[compression]]
