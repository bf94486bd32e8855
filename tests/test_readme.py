"""The README: its example runs, and its console blocks show what the commands print."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from session_query.interfaces.command_line import main

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


def commands() -> Iterator[tuple[str, str]]:
    for block in blocks("console"):
        for part in block.removeprefix("$ ").split("\n$ "):
            command, _, output = part.partition("\n")
            yield command, output.removesuffix("\n")


def test_the_example_prints_what_the_readme_says(tmp_path: Path) -> None:
    (example,), (printed,) = blocks("python"), blocks("text")
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", example],
        cwd=tmp_path,
        capture_output=True,
        encoding="utf-8",
    )
    assert (run.stdout, run.stderr) == (printed, "")


def test_the_example_is_short() -> None:
    (example,) = blocks("python")
    assert len(example.strip().splitlines()) <= 20


def test_there_is_one_command_to_try_it_and_one_to_check_it() -> None:
    trial, check = (block.strip() for block in blocks("sh"))
    assert trial.startswith("python3 -m venv ") and trial.endswith("--store examples/store")
    assert check.startswith("python3 -m venv ") and check.endswith("scripts/check.py")


@pytest.mark.parametrize(("command", "output"), list(commands()))
def test_a_command_prints_what_the_readme_shows(
    command: str,
    output: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    name, *arguments = shlex.split(command)
    assert (name, main(arguments)) == ("session-query", 0)
    shown = capfd.readouterr()
    assert shown.err == ""
    assert [line.rstrip() for line in shown.out.strip().splitlines()] == output.splitlines()
