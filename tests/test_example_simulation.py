"""Simulation for harness authors: example and document run, and the public names are these."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from session_query import simulations

ROOT = Path(__file__).parent.parent
DOCUMENT = (ROOT / "docs" / "simulation.md").read_text("utf-8")
PIECES = re.findall(
    r"^```python\n(.*?)^```\n\n```text\n(.*?)^```\n", DOCUMENT, re.DOTALL | re.MULTILINE
)

PUBLIC = [
    "CALM",
    "Deadlock",
    "DiskFaults",
    "GuestRun",
    "Job",
    "Kind",
    "Latency",
    "Life",
    "Marks",
    "NO_FAULTS",
    "NotLive",
    "Outcome",
    "RunEnded",
    "Scenario",
    "SimulatedDisk",
    "SimulatedRuntime",
    "StepBudgetExceeded",
    "Trapped",
    "Violation",
    "World",
    "main",
    "simulate",
]


def test_the_example_prints_what_it_checked_and_the_same_each_time() -> None:
    command = [sys.executable, "-W", "error", str(ROOT / "examples" / "simulate_harness.py"), "8"]
    runs = [
        subprocess.run(command, capture_output=True, encoding="utf-8", cwd=ROOT.anchor)
        for _ in range(2)
    ]
    assert [(run.returncode, run.stderr) for run in runs] == [(0, ""), (0, "")]
    assert runs[0].stdout.startswith("8 seeds: every turn that was told to be done is stored")
    assert runs[0].stdout == runs[1].stdout


def test_the_pieces_of_the_document_print_what_it_shows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    names: dict[str, object] = {"__name__": "document"}
    for program, _ in PIECES:
        exec(compile(program, "simulation.md", "exec"), names)
    assert capsys.readouterr().out == "".join(printed for _, printed in PIECES)
    assert len(PIECES) == 2


def test_the_public_names_are_these_and_documented() -> None:
    assert dir(simulations) == PUBLIC
    missing = [name for name in PUBLIC if not re.search(rf"`[^`]*\b{name}\b[^`]*`", DOCUMENT)]
    assert missing == []


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_can_be_imported(name: str) -> None:
    assert getattr(simulations, name) is not None


def test_type_checkers_see_the_names_that_run_time_has() -> None:
    tree = ast.parse((ROOT / "simulations" / "__init__.py").read_text("utf-8"))
    (guarded,) = [statement for statement in tree.body if isinstance(statement, ast.If)]
    seen = {
        (alias.asname, node.module)
        for node in guarded.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == set(simulations._HOME.items())
