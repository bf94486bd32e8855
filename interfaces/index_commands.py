"""The commands about the index itself: what it holds, building it anew, removing a session."""

from __future__ import annotations

import sys
from contextlib import AbstractAsyncContextManager

from cyclopts import App

from ..actors.service import SessionQuery
from ..messages.config import MEMORY, IndexConfig, Tokenizer
from . import json_lines, pages, progress
from .commands import JsonOption, StoreOption, asking
from .commands import app as app
from .errors import Unusable, WrongUse
from .places import index_file
from .sources import sessions_in

index_app = App(name="index", help="Look after the search index of a store.")
app.command(index_app)


@index_app.command
async def status(
    *,
    store: StoreOption = None,
    index: str | None = None,
    tokenizer: Tokenizer = Tokenizer.CJK,
    json: JsonOption = False,
) -> None:
    """Show what the index of a store holds, as of the last search.

    Parameters
    ----------
    index
        The index file; without it, the one that a search of this store uses.
    tokenizer
        The one that the index was made with; each has an index of its own.
    """
    async with _indexing(store, index, tokenizer) as service:
        found = await service.index_status()
    if json:
        json_lines.write_records([found])
    else:
        pages.show_index(pages.Screen(sys.stdout), found)


@index_app.command
async def rebuild(
    *, store: StoreOption = None, index: str | None = None, tokenizer: Tokenizer = Tokenizer.CJK
) -> None:
    """Empty the index of a store and build it anew; purged sessions come back.

    Parameters
    ----------
    index
        The index file; without it, the one that a search of this store uses.
    tokenizer
        The one to build with; each has an index of its own.
    """
    async with _indexing(store, index, tokenizer) as service:
        if sys.stderr.isatty():
            with progress.bar() as move:
                await service.rebuild_index(move)
        else:
            await service.rebuild_index()


@index_app.command
async def purge(
    session: str,
    /,
    *,
    store: StoreOption = None,
    index: str | None = None,
    tokenizer: Tokenizer = Tokenizer.CJK,
) -> None:
    """Remove SESSION from the index, leave no byte of it there, and keep it out.

    The log in the store is not touched. A rebuild lets the session in again.

    Parameters
    ----------
    index
        The index file; without it, the one that a search of this store uses.
    tokenizer
        Each has an index of its own; purge the session from every one that was used.
    """
    async with _indexing(store, index, tokenizer) as service:
        listing = await service.list_sessions()
        held = await service.purge(session)
    listed = {record.header.id for record in listing.sessions}
    listed.update(found.session_id for found in listing.skipped if found.session_id is not None)
    if not held and session not in listed:
        raise Unusable(f"neither the store nor its index has a session {session!r}; check the id")
    pages.show_purged(pages.Screen(sys.stdout), session)


def _indexing(
    store: str | None, index: str | None, tokenizer: Tokenizer
) -> AbstractAsyncContextManager[SessionQuery]:
    sessions = sessions_in(store)
    path = index_file(index, sessions.roots, tokenizer)
    if path == MEMORY:
        raise WrongUse("an index in memory ends with the command; name a file")
    config = IndexConfig(path=path, tokenizer=tokenizer, shared=True)
    return asking(sessions.store, config)
