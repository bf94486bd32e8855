"""The commands of the command line: each opens the service, asks, and shows the answer."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import islice
from typing import Annotated, Final, TypeAlias

from attrs import evolve
from cyclopts import App, Parameter

from ..actors.composition import open_session_query
from ..actors.service import SessionQuery
from ..history.whitespace import trim
from ..messages.config import MEMORY, IndexConfig, QueryConfig, Tokenizer
from ..messages.filters import (
    Cwd,
    EventFilter,
    SeqRange,
    SurfaceIn,
    Text,
    TimeRange,
    TypeIn,
)
from ..messages.records import EventSearchPage, SessionSearchPage, SessionTitle, Surface
from ..storage.contract import SessionStore
from . import json_lines, pages, progress
from .errors import WrongUse
from .instants import parse_instant
from .paging import PAGE, gather
from .places import STORE_VARIABLE, index_file
from .sources import Sessions, sessions_in
from .stopping import ending_when_told
from .watching import changes

app = App(
    name="session-query",
    help=(
        "Search and read the logs of agent sessions. Nothing is ever written to the store."
        " An argument that begins with a hyphen stands after --."
    ),
    help_format="plaintext",
    backend="trio",
    result_action="return_value",
    suppress_keyboard_interrupt=False,
)

ONE_SHOT: Final = QueryConfig(notify=False)
"""For commands that look at the store once."""

StoreOption: TypeAlias = Annotated[
    str | None,
    Parameter(
        env_var=STORE_VARIABLE,
        help="The folder that holds the sessions; without it, the logs of this user's agents.",
        name="--store",
    ),
]
AgentOption: TypeAlias = Annotated[
    list[str] | None,
    Parameter(
        negative=(),
        help="Only sessions of this agent, as the command stores names it; may be repeated.",
    ),
]
HereOption: TypeAlias = Annotated[
    bool, Parameter(negative=(), help="Only sessions of the current folder.")
]
JsonOption: TypeAlias = Annotated[
    bool,
    Parameter(negative=(), help="One JSON object a line, nothing else on standard output."),
]


@app.command
async def search(
    query: str,
    /,
    *,
    store: StoreOption = None,
    index: str | None = None,
    agent: AgentOption = None,
    session: str | None = None,
    cwd: str | None = None,
    here: HereOption = False,
    type: Annotated[list[str] | None, Parameter(negative=())] = None,
    surface: Annotated[list[Surface] | None, Parameter(negative=())] = None,
    since: str | None = None,
    until: str | None = None,
    limit: int = 20,
    tokenizer: Tokenizer = Tokenizer.CJK,
    json: JsonOption = False,
) -> None:
    """Find the sessions that hold the words of QUERY side by side, strongest first.

    Parameters
    ----------
    query
        Words as they stand side by side; quotes and operators among them are ordinary text.
    index
        The index file; without it, one file a store in the user's cache directory.
    session
        Search the events of this session alone.
    cwd
        Only sessions of this working directory, as it is stored.
    type
        Only events of this type, such as user/message; may be repeated.
    surface
        Only events that stand there relative to what the model sees; may be repeated.
    since
        Only events from this time on, such as 2026-03-02T09:14:00Z.
    until
        Only events up to this time, inclusive.
    limit
        Most hits that are shown.
    tokenizer
        How text is cut into words: cjk finds Chinese, Japanese and Korean by the character.
    """
    if not trim(query):
        raise WrongUse("the query is blank; say at least one word")
    if limit < 1:
        raise WrongUse(f"--limit must be a whole number from 1, got {limit}")
    if session is not None and (cwd is not None or here or agent):
        raise WrongUse("--cwd, --here and --agent choose among sessions; not beside --session")
    filters = _event_filters(type or [], surface or [], since, until)
    folders = _folders(cwd, here)
    sessions = sessions_in(store, agent)
    path = index_file(index, sessions.roots, tokenizer)
    config = IndexConfig(path=path, tokenizer=tokenizer, shared=path != MEMORY)
    async with asking(sessions.store, config) as service:
        await progress.bring_up_to_date(service)
        if session is None:
            await _show_sessions(service, query, folders, filters, sessions, limit, json)
        else:
            await _show_events(service, query, session, filters, limit, json)


@app.command(name="list")
async def list_sessions(
    *,
    store: StoreOption = None,
    agent: AgentOption = None,
    cwd: str | None = None,
    here: HereOption = False,
    json: JsonOption = False,
) -> None:
    """List every session, newest first.

    Parameters
    ----------
    cwd
        Only sessions of this working directory, as it is stored.
    """
    folders = _folders(cwd, here)
    sessions = sessions_in(store, agent)
    async with reading(sessions.store) as service:
        listing = await service.filter_sessions(folders)
        pages.tell_skipped(listing.skipped)
        records = [found for found in listing.sessions if sessions.is_wanted(found.header.id)]
        if json:
            json_lines.write_records(records)
            return
        screen = pages.Screen(sys.stdout)
        for start in range(0, len(records), PAGE):
            batch = records[start : start + PAGE]
            titles = await _titles(service, [record.header.id for record in batch])
            pages.show_sessions(screen, batch, titles)


@app.command
async def events(session: str, /, *, store: StoreOption = None, json: JsonOption = False) -> None:
    """List the events of SESSION in order.

    Parameters
    ----------
    session
        The id of a session.
    """
    async with reading(sessions_in(store).store) as service:
        records = await service.list_events(session)
    if json:
        json_lines.write_records(records)
    else:
        pages.show_events(pages.Screen(sys.stdout), records)


@app.command(name="filter")
async def filter_events(
    session: str,
    /,
    *,
    text: Annotated[list[str] | None, Parameter(negative=())] = None,
    type: Annotated[list[str] | None, Parameter(negative=())] = None,
    surface: Annotated[list[Surface] | None, Parameter(negative=())] = None,
    from_seq: int | None = None,
    to_seq: int | None = None,
    since: str | None = None,
    until: str | None = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Show the events of SESSION that have text and meet every condition, in order.

    Parameters
    ----------
    session
        The id of a session.
    text
        Only events that hold these words literally, whatever the case; may be repeated.
    type
        Only events of this type, such as user/message; may be repeated.
    surface
        Only events that stand there relative to what the model sees; may be repeated.
    from_seq
        Only events from this number on.
    to_seq
        Only events up to this number, inclusive.
    since
        Only events from this time on, such as 2026-03-02T09:14:00Z.
    until
        Only events up to this time, inclusive.
    """
    if from_seq is not None and to_seq is not None and from_seq > to_seq:
        raise WrongUse(f"--from-seq {from_seq} is after --to-seq {to_seq}")
    filters: list[EventFilter] = [
        *(Text(words) for words in text or []),
        *_event_filters(type or [], surface or [], since, until),
        SeqRange(from_seq, to_seq),
    ]
    async with reading(sessions_in(store).store) as service:
        found = await service.filter_events(session, filters)
    if json:
        json_lines.write_records(found)
        return
    if not found:
        pages.tell("nothing found")
    pages.show_documents(pages.Screen(sys.stdout), found)


@app.command
async def trace(
    session: str, seq: int | None = None, /, *, store: StoreOption = None, json: JsonOption = False
) -> None:
    """Show where SESSION comes from and what came from it, or the relations of its event SEQ.

    Parameters
    ----------
    session
        The id of a session.
    seq
        The number of an event, as search and events show it.
    """
    sessions = sessions_in(store)
    async with reading(sessions.store) as service:
        if seq is None:
            await _show_lineage(service, session, sessions, json)
            return
        found = await service.trace_event(session, seq)
    if json:
        json_lines.write_records([found])
    else:
        pages.show_trace(pages.Screen(sys.stdout), found)


@app.command
async def watch(
    *,
    store: StoreOption = None,
    index: str | None = None,
    every: float = 1.0,
    tokenizer: Tokenizer = Tokenizer.CJK,
    json: JsonOption = False,
) -> None:
    """Print each generation of the index and the sessions that changed, until it is interrupted.

    Parameters
    ----------
    index
        The index file; without it, the one that search uses.
    every
        Seconds between two looks at the store.
    tokenizer
        As for search.
    """
    if not 0 < every < 2**31:
        raise WrongUse(f"--every must be a number of seconds above 0, got {every}")
    sessions = sessions_in(store)
    path = index_file(index, sessions.roots, tokenizer)
    config = IndexConfig(path=path, tokenizer=tokenizer, shared=path != MEMORY)
    screen = pages.Screen(sys.stdout)
    async with asking(sessions.store, config, QueryConfig()) as service:
        async for change in changes(service, every, sessions.check):
            if json:
                json_lines.write_records([change])
            else:
                pages.show_change(screen, change)
            sys.stdout.flush()


@app.command
async def read(
    session: str,
    seq: int,
    /,
    *,
    before: int = 0,
    after: int = 0,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Show event SEQ of SESSION, and its neighbours.

    Parameters
    ----------
    session
        The id of a session.
    seq
        The number of an event, as search and events show it.
    before
        How many events to show before it.
    after
        How many events to show after it.
    """
    sessions = sessions_in(store)
    async with reading(sessions.store) as service:
        window = await service.read_event(session, seq, before=before, after=after)
    if json:
        json_lines.write_window(window)
        return
    screen = pages.Screen(sys.stdout)
    pages.show_window(screen, window)
    pages.show_resuming(screen, sessions.resume_command(window.header))


def reading(store: SessionStore) -> AbstractAsyncContextManager[SessionQuery]:
    """A service for exact reads alone: it has no index."""
    return asking(store, IndexConfig(path=MEMORY, open_at="never"))


@asynccontextmanager
async def asking(
    store: SessionStore, index: IndexConfig, config: QueryConfig = ONE_SHOT
) -> AsyncIterator[SessionQuery]:
    """A service for the length of one command, which may be interrupted."""
    async with (
        ending_when_told(),
        open_session_query(store=store, index=index, config=config) as service,
    ):
        yield service


def _folders(cwd: str | None, here: bool) -> list[Cwd]:
    if not here:
        return [] if cwd is None else [Cwd([cwd])]
    if cwd is not None:
        raise WrongUse("--here is --cwd for the current folder; give one of them")
    folder, named = os.getcwd(), os.environ.get("PWD", "")
    # A shell that went through a link names the folder otherwise, and so do the logs.
    same = named != folder and os.path.isabs(named) and os.path.realpath(named) == folder
    return [Cwd([folder, named] if same else [folder])]


def _event_filters(
    types: list[str], surfaces: list[Surface], since: str | None, until: str | None
) -> list[EventFilter]:
    filters: list[EventFilter] = []
    if types:
        filters.append(TypeIn(types))
    if surfaces:
        filters.append(SurfaceIn(surfaces))
    start = None if since is None else parse_instant("--since", since)
    end = None if until is None else parse_instant("--until", until)
    if start is not None and end is not None and start > end:
        raise WrongUse(f"--since {since!r} is after --until {until!r}")
    if start is not None or end is not None:
        filters.append(TimeRange(start, end))
    return filters


async def _show_sessions(
    service: SessionQuery,
    query: str,
    folders: list[Cwd],
    filters: list[EventFilter],
    sessions: Sessions,
    limit: int,
    json: bool,
) -> None:
    async def fetch(size: int, cursor: str | None) -> SessionSearchPage:
        page = await service.search_sessions(
            query, session_filters=folders, event_filters=filters, limit=size, cursor=cursor
        )
        return evolve(page, items=tuple(h for h in page.items if sessions.is_wanted(h.header.id)))

    found = await gather(fetch, limit)
    pages.tell_outcome(found)
    hits = [hit for page in found for hit in page.items][:limit]
    if json:
        json_lines.write_records(hits)
    else:
        titles = await _titles(service, [hit.header.id for hit in hits])
        pages.show_session_hits(pages.Screen(sys.stdout), hits, titles, sessions.title_of)


async def _show_events(
    service: SessionQuery,
    query: str,
    session: str,
    filters: list[EventFilter],
    limit: int,
    json: bool,
) -> None:
    async def fetch(size: int, cursor: str | None) -> EventSearchPage:
        return await service.search_events(
            session, query, filters=filters, limit=size, cursor=cursor
        )

    found = await gather(fetch, limit)
    pages.tell_outcome(found)
    hits = [hit for page in found for hit in page.items][:limit]
    if json:
        json_lines.write_records(hits)
    elif hits:
        titles = await _titles(service, [session])
        pages.show_event_hits(pages.Screen(sys.stdout), found[-1].session, hits, titles)


async def _show_lineage(
    service: SessionQuery, session: str, sessions: Sessions, json: bool
) -> None:
    found = await service.trace_session(session)
    pages.tell_skipped(found.skipped)
    if json:
        json_lines.write_lineage(found)
        return
    screen = pages.Screen(sys.stdout)
    lines = pages.lineage_lines(found)
    while batch := list(islice(lines, PAGE)):
        titles = await _titles(service, [record.header.id for _depth, record in batch])
        pages.show_lineage(screen, found, batch, titles)
    pages.show_resuming(screen, sessions.resume_command(found.target.header))


async def _titles(service: SessionQuery, ids: Iterable[str]) -> dict[str, SessionTitle]:
    results = await service.read_titles(list(ids))
    return {result.session_id: result.title for result in results if result.title is not None}
