"""The surface of the package: what is public, and what an import of it costs."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import session_query

ROOT = Path(__file__).parent.parent

PUBLIC = [
    "Archive",
    "Attachment",
    "Availability",
    "AvailabilityIn",
    "Caller",
    "Checkpoints",
    "ClaudeCodeStore",
    "CodexStore",
    "Configuration",
    "CreatedAt",
    "Cwd",
    "ErrorCode",
    "Event",
    "EventDraft",
    "EventFilter",
    "EventRecord",
    "EventSearchHit",
    "EventSearchPage",
    "EventTrace",
    "EventWindow",
    "Execution",
    "Fault",
    "Harness",
    "HarnessErrorCode",
    "Ids",
    "IndexConfig",
    "IndexStatus",
    "JsonlStore",
    "LineageNode",
    "LineageTrace",
    "LiveErrorCode",
    "LiveSession",
    "LiveSessionError",
    "MemoryStore",
    "Observation",
    "Outcome",
    "Parent",
    "Place",
    "Proceed",
    "Progress",
    "Projected",
    "PromptSections",
    "QueryConfig",
    "Registration",
    "Replace",
    "Scheduler",
    "SchedulerConfig",
    "SearchDocument",
    "SeqRange",
    "SessionError",
    "SessionFilter",
    "SessionHeader",
    "SessionListing",
    "SessionLog",
    "SessionQuery",
    "SessionQueryError",
    "SessionRecord",
    "SessionSearchHit",
    "SessionSearchPage",
    "SessionStore",
    "SessionSurface",
    "SessionTitle",
    "SeveralStores",
    "Skipped",
    "Spill",
    "SpillConfig",
    "SpillFiles",
    "SpillStore",
    "Spilled",
    "StoreConfig",
    "Surface",
    "SurfaceIn",
    "Text",
    "TimeRange",
    "TitleResult",
    "Tokenizer",
    "Tool",
    "ToolCall",
    "ToolError",
    "ToolErrorCode",
    "ToolRegistry",
    "ToolResult",
    "ToolsConfig",
    "TypeIn",
    "Verdict",
    "configuration_toml",
    "event_filter_from_json",
    "mount_policies",
    "mount_session_tools",
    "open_archive",
    "open_harness",
    "open_session_query",
    "open_spill",
    "parse_configuration",
    "read_configuration",
    "session_filter_from_json",
    "session_tools",
    "workspace_tools",
]


def test_the_public_names_are_these() -> None:
    assert dir(session_query) == PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_can_be_imported(name: str) -> None:
    assert getattr(session_query, name) is not None


def test_type_checkers_see_the_names_and_homes_that_run_time_has() -> None:
    tree = ast.parse((ROOT / "__init__.py").read_text("utf-8"))
    (guarded,) = [statement for statement in tree.body if isinstance(statement, ast.If)]
    seen = {
        (alias.asname, node.module)
        for node in guarded.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == set(session_query._HOME.items())


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        session_query.__getattr__("nonsense")


def loaded_after(statement: str) -> set[str]:
    script = f"{statement}\nimport sys\nprint(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT.anchor
    )
    return set(run.stdout.split())


def test_importing_the_package_loads_none_of_its_dependencies() -> None:
    assert not loaded_after("import session_query") & {"trio", "apsw", "attrs", "msgspec"}


def test_values_and_pure_logic_load_neither_trio_nor_sqlite() -> None:
    loaded = loaded_after("from session_query import Event, Cwd, IndexConfig")
    assert "session_query.messages.event" in loaded
    assert not loaded & {"trio", "apsw", "sqlite3"}


def test_the_service_loads_sqlite_only_when_an_index_is_opened() -> None:
    loaded = loaded_after("from session_query import open_session_query, JsonlStore")
    assert "trio" in loaded
    assert "apsw" not in loaded


def test_every_room_is_installed() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    found = [*ROOT.glob("*/__init__.py"), *ROOT.glob("*/*/__init__.py")]
    rooms = sorted(".".join(file.parent.relative_to(ROOT).parts) for file in found)
    installed = settings["tool"]["setuptools"]["packages"]
    assert sorted(installed) == ["session_query", *(f"session_query.{room}" for room in rooms)]
