"""The query service as model tools see it: largest pages, no echoes, the caller's wish first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from attrs import define
from trio.lowlevel import checkpoint_if_cancelled

from ..history.extraction import extract_text
from ..history.filtering import same_workspace
from ..history.lineage import trace_lineage
from ..history.payload import payload
from ..history.request import SearchRequest, event_search, session_search, without_echoes
from ..messages.config import IndexConfig, QueryConfig
from ..messages.event import Event
from ..messages.filters import EventFilter, SessionFilter
from ..messages.header import SessionHeader
from ..messages.records import (
    EventSearchPage,
    EventTrace,
    EventWindow,
    LineageTrace,
    SessionListing,
    SessionSearchPage,
    TitleResult,
)

if TYPE_CHECKING:
    from .service import SessionQuery

R = TypeVar("R")

Asked: TypeAlias = Callable[[IndexConfig], SearchRequest]
"""A search that is checked once the configuration of the index is at hand."""


@define(eq=False)
class Recall:
    """The seven calls that tools make, under the names they have in ``SessionQuery``.

    A search finds neither calls of the five tools nor their results: who looks for something a
    second time must not find the first search.
    """

    _query: SessionQuery
    config: QueryConfig
    """How the service reads; its hooks are applied here and by who renders an answer."""
    _largest_page: int
    _session_page: Callable[[Asked], Awaitable[SessionSearchPage]]
    _event_page: Callable[[Asked], Awaitable[EventSearchPage]]

    async def filter_sessions(self, filters: Sequence[SessionFilter]) -> SessionListing:
        return await self._query.filter_sessions(filters)

    async def trace_session(
        self, session_id: str, visible: Callable[[SessionHeader], bool]
    ) -> LineageTrace:
        """As there, but ancestors end before one that is not ``visible``, whatever lies behind."""
        listing = await self._query.list_sessions()
        return trace_lineage(listing.sessions, session_id, listing.skipped, visible)

    async def trace_event(self, session_id: str, seq: int) -> EventTrace:
        return await self._query.trace_event(session_id, seq)

    async def read_event(self, session_id: str, seq: int, before: int, after: int) -> EventWindow:
        return await self._query.read_event(session_id, seq, before, after)

    async def read_titles(self, session_ids: Sequence[str]) -> tuple[TitleResult, ...]:
        return await self._query.read_titles(session_ids)

    async def search_sessions(
        self,
        query: str,
        session_filters: Sequence[SessionFilter],
        event_filters: Sequence[EventFilter],
        cursor: str | None,
    ) -> SessionSearchPage:
        """A page of the largest size, so that the usual answer is made from one view."""

        def asked(config: IndexConfig) -> SearchRequest:
            return without_echoes(
                session_search(
                    query, session_filters, event_filters, self._largest_page, cursor, config
                )
            )

        return await self._session_page(asked)

    async def search_events(
        self, session_id: str, query: str, filters: Sequence[EventFilter], cursor: str | None
    ) -> EventSearchPage:
        """A page of the largest size, as in ``search_sessions``."""

        def asked(config: IndexConfig) -> SearchRequest:
            return without_echoes(
                event_search(session_id, query, filters, self._largest_page, cursor, config)
            )

        return await self._event_page(asked)

    def in_workspace(self, cwd: str | None, other: str | None) -> bool:
        """Whether two working directories are one workspace."""
        return same_workspace((cwd,), self.config.canonical_cwd)(other)

    def text_of(self, event: Event) -> str:
        """The text of an event, redacted; empty where it has none."""
        return self.config.redact(extract_text(event.type, payload(event), self.config.extract))


async def cancellation_first(call: Callable[[], Awaitable[R]]) -> R:
    """What ``call`` answers or raises, unless the caller has been cancelled before or meanwhile.

    A cancelled caller gets its ``Cancelled``, whatever else went wrong while the call settled.
    """
    await checkpoint_if_cancelled()
    failure: Exception | None = None
    try:
        answer = await call()
    except Exception as error:
        failure = error
    await checkpoint_if_cancelled()
    if failure is not None:
        raise failure
    return answer
