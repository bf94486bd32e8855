"""What the tests of the MCP server share: a store, and the server as a process with the client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from attrs import evolve, frozen
from builders import Log, header
from command_line_runs import PROCESS, write_session
from mcp import Client, StdioServerParameters
from mcp.types import CallToolResult, TextContent

from session_query import JsonlStore, SessionQuery, open_session_query
from session_query.actors.runtime import TrioRuntime
from session_query.interfaces.mcp_caller import caller_of
from session_query.interfaces.mcp_server import open_tools
from session_query.tools.definition import Tool

WORKSPACE = "/work"


@frozen
class McpWorld:
    """A store, a cache and a folder for temporary files that are the test's alone."""

    root: Path

    @property
    def store(self) -> Path:
        return self.root / "store"

    @property
    def temporary(self) -> Path:
        return self.root / "tmp"

    @property
    def environment(self) -> dict[str, str]:
        return {"XDG_CACHE_HOME": str(self.root / "cache"), "TMPDIR": str(self.temporary)}

    def arguments(self, *more: str) -> list[str]:
        return ["mcp", "--store", str(self.store), *more]

    def write(self, session_id: str, log: Log, cwd: str | None = WORKSPACE, **changes: Any) -> Path:
        """Store a session."""
        return write_session(self.store, evolve(header(session_id), cwd=cwd, **changes), log.events)

    @asynccontextmanager
    async def client(self, *more: str, cwd: Path | None = None) -> AsyncIterator[Client]:
        """A client of a server that runs as a process of its own."""
        command, *words = PROCESS
        server = StdioServerParameters(
            command=command,
            args=[*words, *self.arguments(*(more or ("--cwd", WORKSPACE)))],
            env={**self.environment, "PYTHONWARNINGS": "error"},
            cwd=cwd,
        )
        async with Client(server) as client:
            yield client

    @asynccontextmanager
    async def nearby(
        self, session_id: str | None = None, *more: Tool
    ) -> AsyncIterator[tuple[Client, SessionQuery]]:
        """A client of a server in this process, and the service behind it."""
        store, runtime = JsonlStore(self.store), TrioRuntime()
        caller = caller_of(store, runtime, WORKSPACE, None, session_id)
        async with (
            open_session_query(store=store) as query,
            open_tools(query, caller, runtime) as tools,
        ):
            for tool in more:
                tools.registry.register(tool)
            async with Client(tools.server()) as client:
                yield client, query


def make_world(root: Path) -> McpWorld:
    """An empty world."""
    world = McpWorld(root)
    world.store.mkdir()
    world.temporary.mkdir()
    return world


def family(world: McpWorld) -> None:
    """Two sessions of the workspace, parent and child, and one of another workspace."""
    log = Log()
    log.user("why does the login time out")
    log.user("because the pool is empty")
    log.replace(0, 1, [0, 1], "the login waited for a connection")
    log.title("Login")
    world.write("parent", log)
    log = Log()
    log.user("try the login again")
    world.write("child", log, parent_session="parent", created_at=header().created_at + 1)
    log = Log()
    log.user("another login, which is secret")
    world.write("foreign", log, cwd="/elsewhere")


def text_of(result: CallToolResult) -> str:
    """The first text of a result."""
    block = result.content[0]
    assert isinstance(block, TextContent)
    return block.text


def data_of(result: CallToolResult) -> dict[str, Any]:
    """The structured content of a result that is no error."""
    assert not result.is_error, result.content
    assert isinstance(result.structured_content, dict)
    return result.structured_content
