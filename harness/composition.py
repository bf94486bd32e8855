"""The composition root of a host's kit: what is asked for is mounted, and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager

import trio
from attrs import define

from ..actors.composition import open_session_query
from ..actors.runtime import Runtime, TrioRuntime
from ..actors.service import SessionQuery
from ..messages.config import SpillConfig, ToolsConfig
from ..storage.contract import SessionStore
from ..storage.jsonl import JsonlStore
from ..storage.spill_files import SpillFiles, make_temporary_root, remove_temporary_root
from ..tools.prompt import PROMPT_SECTION, PROMPT_TEXT
from ..tools.session_tools import session_tools
from .checkpoints import Checkpoints
from .configuration import Configuration
from .deadlines import deadline
from .execution import Place, ToolCall
from .prompt import PromptSections
from .registration import Registration
from .registry import ToolRegistry
from .scheduler import Scheduler
from .spill import Spill, caller_session


@define(eq=False)
class Harness:
    """What an agent loop needs around its tools; lasts as long as the block of ``open_harness``."""

    query: SessionQuery
    tools: ToolRegistry
    """A host registers its own tools here, and wraps its own policies around all of them."""
    prompt: PromptSections
    scheduler: Scheduler
    checkpoints: Checkpoints
    spill: Spill | None


@asynccontextmanager
async def open_harness(
    configuration: Configuration,
    *,
    store: SessionStore | None = None,
    runtime: Runtime | None = None,
) -> AsyncIterator[Harness]:
    """Run a query service, and the kit around it, for the length of the block.

    Deadlines and checkpoints are always mounted; the five tools, with their prompt section, and
    spilling only where the configuration has them. Leaving disposes in the reverse order.

    Args:
        store: the stored sessions, in place of ``configuration.store``.
        runtime: the world outside Trio; a simulation gives its own.

    Raises:
        SessionQueryError: as ``open_session_query``.
        OSError: there can be no temporary folder for results.
    """
    runtime = runtime or TrioRuntime()
    if store is None and configuration.store is not None:
        store = JsonlStore(configuration.store.root)
    async with (
        open_session_query(
            store=store, index=configuration.index, config=configuration.query, runtime=runtime
        ) as query,
        AsyncExitStack() as mounted,
    ):
        spill = None
        if configuration.spill is not None:
            spill = await mounted.enter_async_context(open_spill(configuration.spill, runtime))
        tools, prompt, checkpoints = ToolRegistry(), PromptSections(), Checkpoints(query.sessions)
        mounted.enter_context(mount_policies(tools, checkpoints, spill))
        if configuration.tools is not None:
            mounted.enter_context(mount_session_tools(tools, prompt, query, configuration.tools))
        scheduler = Scheduler(tools, configuration.scheduler)
        yield Harness(query, tools, prompt, scheduler, checkpoints, spill)


def mount_session_tools(
    tools: ToolRegistry,
    prompt: PromptSections,
    query: SessionQuery,
    config: ToolsConfig | None = None,
) -> Registration:
    """Offer the five tools and the prompt section that explains them, all or none.

    Raises:
        SessionQueryError: ``INVALID_CONFIG`` where a name is taken; nothing is then registered.
    """
    with ExitStack() as mounted:
        for tool in session_tools(query, config):
            mounted.enter_context(tools.register(tool))
        mounted.enter_context(prompt.add(PROMPT_SECTION, PROMPT_TEXT))
        return Registration.of(mounted)


def mount_policies(
    tools: ToolRegistry, checkpoints: Checkpoints, spill: Spill | None = None
) -> Registration:
    """Put the policies around every call, each in its place."""
    with ExitStack() as mounted:
        mounted.enter_context(tools.wrap(deadline, Place.DEADLINE))
        mounted.enter_context(tools.wrap(checkpoints.policy, Place.CHECKPOINT))
        if spill is not None:
            mounted.enter_context(tools.wrap(spill.policy, Place.SPILL))
        return Registration.of(mounted)


@asynccontextmanager
async def open_spill(
    config: SpillConfig,
    runtime: Runtime,
    owner: Callable[[ToolCall], str | None] = caller_session,
) -> AsyncIterator[Spill]:
    """Keep whole results in private files; without a ``root`` they end with the block.

    Args:
        owner: to whom a result belongs, by default to the session of the caller.
    """
    if config.root is not None:
        yield Spill(config, SpillFiles(config.root), runtime, owner)
        return
    root = await runtime.call(make_temporary_root, runtime.new_id())
    try:
        yield Spill(config, SpillFiles(root), runtime, owner)
    finally:
        with trio.CancelScope(shield=True):
            await runtime.call(remove_temporary_root, root)
