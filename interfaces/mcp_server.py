"""The MCP server: the five tools over one service, for a client that a host has started it for.

Built on the official SDK, under Trio. A result that is too long for a conversation is kept in a
file for as long as the server runs, and the client is given its beginning, its end and a link.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, cast

import mcp_types as types
import trio
from anyio import AsyncFile
from attrs import define, field
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from ..actors.nursery import PlainNursery
from ..actors.runtime import Runtime
from ..actors.service import SessionQuery
from ..harness.checkpoints import Checkpoints
from ..harness.composition import mount_policies, open_spill
from ..harness.execution import ToolCall
from ..harness.outcome import Outcome
from ..harness.registry import ToolRegistry
from ..messages.config import SpillConfig
from ..messages.errors import SessionQueryError
from ..messages.records import Progress
from ..storage.spill_files import Spilled
from ..tools.definition import Tool
from ..tools.prompt import PROMPT_TEXT, WORKSPACE_PROMPT_TEXT
from ..tools.session_tools import session_tools, workspace_tools
from .mcp_caller import McpCaller
from .mcp_wire import claimed_wire

NAME: Final = "session-query"
KEPT: Final = 1_000
"""Long results that can be read again; those before them are forgotten."""

_Context = ServerRequestContext[Any, Any]

_ANNOTATIONS: Final = types.ToolAnnotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)
_LINK_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "spilled": {
            "type": "object",
            "properties": {"uri": {"type": "string"}, "size": {"type": "integer"}},
            "required": ["uri", "size"],
        }
    },
    "required": ["spilled"],
}


async def serve(query: SessionQuery, caller: McpCaller, runtime: Runtime) -> None:
    """Serve one client on standard input and output until it closes them."""
    async with open_tools(query, caller, runtime) as tools:
        server = tools.server()
        with claimed_wire(runtime) as (source, sink):
            stdin, stdout = cast("AsyncFile[str]", source), cast("AsyncFile[str]", sink)
            async with stdio_server(stdin, stdout) as (incoming, outgoing):
                await server.run(incoming, outgoing, server.create_initialization_options())


@asynccontextmanager
async def open_tools(
    query: SessionQuery, caller: McpCaller, runtime: Runtime
) -> AsyncIterator[McpTools]:
    """What a server answers from, for the length of the block; long results end with it."""
    owner = caller.session_id or f"workspace {caller.cwd}"
    async with open_spill(SpillConfig(), runtime, lambda _call: owner) as spill:
        with ExitStack() as mounted:
            registry = ToolRegistry()
            make = session_tools if caller.session_id is not None else workspace_tools
            for tool in make(query):
                mounted.enter_context(registry.register(tool))
            mounted.enter_context(mount_policies(registry, Checkpoints(query.sessions), spill))
            yield McpTools(query, caller, runtime, registry)


@define(eq=False)
class McpTools:
    """The five tools as MCP has them, for the client that ``caller`` stands for."""

    _query: SessionQuery
    _caller: McpCaller
    _runtime: Runtime
    registry: ToolRegistry
    _indexed: bool = field(default=False, init=False)
    """Whether the index has been brought up to date once."""
    _kept: OrderedDict[str, tuple[types.ResourceLink, Path]] = field(
        factory=OrderedDict, init=False
    )
    """Long results by their URI, and the files that they are in."""

    def server(self) -> Server[Any]:
        """A server, to be run over any transport of the SDK."""
        own = self._caller.session_id is not None
        return Server(
            NAME,
            version=_version(),
            instructions=PROMPT_TEXT if own else WORKSPACE_PROMPT_TEXT,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_read_resource=self._read_resource,
        )

    async def _list_tools(
        self, _context: _Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_described(tool) for tool in self.registry.tools])

    async def _call_tool(
        self, context: _Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        tool = next((tool for tool in self.registry.tools if tool.name == params.name), None)
        if tool is None:
            raise MCPError(types.INVALID_PARAMS, f"there is no tool {params.name!r:.80}")
        if tool.timeout_ms is not None and not self._indexed:
            await self._index(context)
        caller = await self._caller.now()
        call = ToolCall(str(context.request_id), tool.name, params.arguments or {}, caller)
        return await self._result(tool.name, await self.registry.call(call))

    async def _index(self, context: _Context) -> None:
        """Build the index before the first search, which has a deadline; the client is told."""
        send, receive = trio.open_memory_channel[Progress](1)

        def moved(progress: Progress) -> None:
            with suppress(trio.WouldBlock):
                send.send_nowait(progress)

        # What fails here fails the search that follows, which knows how to say it.
        with suppress(SessionQueryError):
            async with PlainNursery() as nursery:
                nursery.start_soon(_report, receive, context)
                with send:
                    await self._query.refresh(moved)
            self._indexed = True

    async def _result(self, name: str, outcome: Outcome) -> types.CallToolResult:
        content: list[types.ContentBlock] = [
            types.TextContent(text=text) for text in (outcome.text, *outcome.contexts)
        ]
        if outcome.fault is not None:
            error = {"name": outcome.fault.name, "code": outcome.fault.code}
            return types.CallToolResult(
                content=content, structured_content={"error": error}, is_error=True
            )
        if outcome.spilled is None:
            return types.CallToolResult(content=content, structured_content=outcome.structured)
        link = await self._link(name, outcome.spilled)
        content.append(link)
        spilled = {"uri": link.uri, "size": link.size}
        return types.CallToolResult(content=content, structured_content={"spilled": spilled})

    async def _link(self, name: str, spilled: Spilled) -> types.ResourceLink:
        link = types.ResourceLink(
            name=f"{name}.txt",
            uri=Path(spilled.locator).as_uri(),
            description=f"The whole result of a call of {name}",
            mime_type="text/plain",
            size=await self._runtime.call(os.path.getsize, spilled.locator),
        )
        self._kept[link.uri] = link, Path(spilled.locator)
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return link

    async def _list_resources(
        self, _context: _Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        links = (link for link, _path in self._kept.values())
        return types.ListResourcesResult(
            resources=[types.Resource(**link.model_dump(exclude={"type"})) for link in links]
        )

    async def _read_resource(
        self, _context: _Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        try:
            _link, path = self._kept[params.uri]
            text = (await self._runtime.call(path.read_bytes)).decode()
        except (KeyError, OSError) as error:
            message = f"no result is kept at {params.uri!r:.200}"
            raise MCPError(types.INVALID_PARAMS, message) from error
        contents = types.TextResourceContents(uri=params.uri, mime_type="text/plain", text=text)
        return types.ReadResourceResult(contents=[contents])


def _described(tool: Tool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        title=tool.name.replace("_", " ").capitalize(),
        description=tool.description,
        input_schema=tool.parameters,
        output_schema={"type": "object", "anyOf": [tool.output, _LINK_SCHEMA]},
        annotations=_ANNOTATIONS,
    )


async def _report(receive: trio.MemoryReceiveChannel[Progress], context: _Context) -> None:
    told = -1
    async with receive:
        async for progress in receive:
            if progress.sessions_done > told:
                told = progress.sessions_done
                await context.session.report_progress(
                    told, progress.sessions_total, "reading sessions for the search index"
                )


def _version() -> str:
    try:
        return version(NAME)
    except PackageNotFoundError:
        return ""
