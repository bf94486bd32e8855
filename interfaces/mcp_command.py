"""The command that serves the five tools to a model over MCP."""

from __future__ import annotations

import os

from ..actors.composition import open_session_query
from ..actors.runtime import TrioRuntime
from ..messages.config import MEMORY, IndexConfig, Tokenizer
from .commands import StoreOption, app
from .errors import Unusable
from .mcp_caller import caller_of
from .places import index_file
from .sources import sessions_in
from .stopping import ending_when_told


@app.command
async def mcp(
    *,
    store: StoreOption = None,
    index: str | None = None,
    cwd: str | None = None,
    caller: str | None = None,
    tokenizer: Tokenizer = Tokenizer.CJK,
) -> None:
    """Serve the tools for models over MCP, on standard input and output, until they are closed.

    Which sessions may be seen is decided here, and never by a call: those of one workspace.

    Parameters
    ----------
    index
        The index file; without it, the one that search uses.
    cwd
        The workspace, as its sessions name it; without it, the current folder.
    caller
        The id of the session that the calls come from; its workspace is the one that counts.
    tokenizer
        As for search.
    """
    try:
        from .mcp_server import serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("anyio", "mcp", "mcp_types"):
            raise
        raise Unusable("install the MCP server first: pip install 'session-query[mcp]'") from error
    sessions = sessions_in(store)
    path = index_file(index, sessions.roots, tokenizer)
    config = IndexConfig(path=path, tokenizer=tokenizer, shared=path != MEMORY)
    files, runtime = sessions.store, TrioRuntime()
    bound = await runtime.call(caller_of, files, runtime, os.getcwd(), cwd, caller)
    async with (
        ending_when_told(),
        open_session_query(store=files, index=config, runtime=runtime) as service,
    ):
        await serve(service, bound, runtime)
