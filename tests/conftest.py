"""Fixtures that several test modules share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from command_line_runs import CommandLine
from hypothesis import settings

from session_query.interfaces.sources import AGENTS

# The gate tries the same examples each time; at a desk every run tries others.
settings.register_profile("session-query", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("session-query")


@pytest.fixture
def command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> CommandLine:
    """The command line in surroundings that are the test's alone."""
    cache = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    agents = (agent.variable for agent in AGENTS)
    for name in ("SESSION_QUERY_STORE", "FORCE_COLOR", "TTY_COMPATIBLE", *agents):
        monkeypatch.delenv(name, raising=False)
    return CommandLine(cache, capfd)
