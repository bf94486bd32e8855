"""Fixtures that several test modules share."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line_runs import CommandLine
from hypothesis import settings

settings.register_profile("session-query", deadline=None)
settings.load_profile("session-query")


@pytest.fixture
def command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> CommandLine:
    """The command line in surroundings that are the test's alone."""
    cache = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    for name in ("SESSION_QUERY_STORE", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    return CommandLine(cache, capfd)
