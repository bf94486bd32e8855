"""The benchmark of large stores: what it writes is whole, and its rows can be read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from large_store import write

from session_query.storage.jsonl import JsonlStore

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "large_store.py"


@pytest.mark.parametrize("shape", ["small", "huge"])
def test_a_store_has_its_size_and_no_damage(tmp_path: Path, shape: str) -> None:
    written = write(tmp_path, shape, 300_000)
    logs = sorted(tmp_path.rglob("*.jsonl"))
    assert written == sum(log.stat().st_size for log in logs) >= 300_000
    swept = JsonlStore(tmp_path).sweep()
    assert (len(swept.snapshots), swept.damaged) == (len(logs), ())
    for snapshot in swept.snapshots:
        assert JsonlStore(tmp_path).read_tail(snapshot.header.id, None, 10**9).left_out is None


def test_a_run_prints_one_object_a_row() -> None:
    command = [sys.executable, str(SCRIPT), "--gigabytes", "0.0003", "--shape", "small", "--json"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    time, rate, memory = map(json.loads, run.stdout.splitlines())
    assert [row["unit"] for row in (time, rate, memory)] == ["s", "MB/s", "MB"]
    assert time["ours"] > 0
    assert memory["ok"] is True
