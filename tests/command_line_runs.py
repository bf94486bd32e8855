"""Runs of the command line for tests: in this process, or as a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import frozen

from session_query.interfaces.command_line import main
from session_query.messages.event import Event
from session_query.messages.header import SessionHeader
from session_query.storage.jsonl import JsonlStore

EXAMPLES: Final = Path(__file__).parent.parent / "examples" / "store"

PROCESS: Final = (sys.executable, "-m", "session_query.interfaces.command_line")
"""The words that run the command line as a process of its own."""


@frozen
class Run:
    """What one run gave."""

    status: int
    out: str
    err: str

    @property
    def records(self) -> list[Any]:
        """The JSON objects of standard output, which holds nothing else."""
        return [json.loads(line) for line in self.out.splitlines()]


@frozen
class CommandLine:
    """The command line with a cache directory of its own."""

    cache: Path
    _output: pytest.CaptureFixture[str]

    def __call__(self, *arguments: str | Path) -> Run:
        """Run it in this process."""
        self._output.readouterr()
        status = main([str(argument) for argument in arguments])
        out, err = self._output.readouterr()
        return Run(status, out, err)

    def process(self, *arguments: str | Path, **environment: str) -> Run:
        """Run it as a process of its own, without standard input."""
        done = subprocess.run(
            [*PROCESS, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            env={**os.environ, **environment},
        )
        return Run(done.returncode, done.stdout, done.stderr)

    def index_files(self) -> list[Path]:
        """The indexes in the cache directory."""
        return sorted(self.cache.glob("session-query/*.db"))


def write_session(root: Path, header: SessionHeader, events: Iterable[Event]) -> Path:
    """Store a session and return its log."""
    with JsonlStore(root).create(header) as handle:
        handle.append(tuple(events))
    (log,) = root.glob(f"*/{header.id}/session.v2.jsonl")
    return log


def contents(root: Path) -> dict[str, tuple[bytes, int, int]]:
    """Bytes, mode and time of change (ns) of every file and folder below ``root``."""
    return {
        str(path.relative_to(root)): (
            path.read_bytes() if path.is_file() else b"",
            path.stat().st_mode,
            path.stat().st_mtime_ns,
        )
        for path in sorted([root, *root.rglob("*")])
    }
