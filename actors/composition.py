"""The composition root: a query service, assembled for the length of a block."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, nullcontext

from attrs import evolve

from ..history.hooks import forgiving
from ..messages.config import MEMORY, IndexConfig, QueryConfig
from ..storage.contract import SessionStore
from .binding import StoreBinding
from .corpus import Corpus
from .inventory import Inventory, following
from .mailbox import running
from .reader_pool import LogReaderPool
from .registry import Sessions
from .runtime import Runtime, TrioRuntime
from .service import SessionQuery


@asynccontextmanager
async def open_session_query(
    *,
    store: SessionStore | None = None,
    index: IndexConfig | None = None,
    config: QueryConfig | None = None,
    runtime: Runtime | None = None,
) -> AsyncIterator[SessionQuery]:
    """Run a query service for the length of the block. Nothing of it runs afterwards.

    Leaving closes from the callers to the called: searches first, then the reconciler and its
    index, then the readers. Sessions that were created here end with their own blocks.

    Args:
        store: the stored sessions, if there are any.
        index: where the search index lives; in memory and built by the first search by default.
        config: how the service reads.
        runtime: the world outside Trio; a simulation gives its own.

    Raises:
        SessionQueryError: ``INDEX_FAILED`` where the index is to be opened at startup and cannot
            be; no service is then running.
    """
    config = config or QueryConfig()
    config = evolve(config, extract=forgiving(config.extract))
    index = index or IndexConfig(path=MEMORY, open_at="first-search")
    runtime = runtime or TrioRuntime()
    binding = StoreBinding(store)
    sessions = Sessions(runtime, binding, config, refused=index.shared)
    pool = LogReaderPool(binding, runtime, config.persisted_read_concurrency)
    inventory = Inventory(pool)
    corpus = Corpus(sessions, pool, inventory, config)
    async with running(pool), following(inventory) if config.notify else nullcontext():
        if index.open_at == "never":
            service = SessionQuery(sessions, corpus, config, index, None, None)
            with closing(service):
                yield service
            return
        # SQLite is imported by those who search, not by those who only read.
        from .reconciler import IndexReconciler
        from .search_executor import SearchExecutor

        reconciler = IndexReconciler(index, config, sessions, inventory, pool, runtime)
        executor = SearchExecutor(reconciler, config, index)
        async with running(reconciler):
            if index.open_at == "startup":
                await reconciler.open()
            async with running(executor):
                service = SessionQuery(sessions, corpus, config, index, reconciler, executor)
                with closing(service):
                    yield service
