"""The search executor: a bounded number of searches side by side, each on a view of its own."""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from typing import Final

from attrs import define, field, frozen

from ..history.cursor import encode_cursor
from ..history.request import SearchRequest
from ..messages.config import IndexConfig, QueryConfig
from ..messages.errors import SessionQueryError
from ..messages.header import SessionHeader
from ..messages.records import Skipped
from ..storage.index_file import IndexDamaged
from ..storage.index_scan import Found, scan
from ..storage.index_view import Ranking, Reader, View
from .mailbox import Mailbox, Request
from .nursery import PlainNursery
from .reconciler import IndexReconciler

RANK: Final = 0

KEPT_RANKINGS: Final = 64
"""Requests whose ranking is kept, so that further pages cost no scan."""


@frozen
class SearchResult:
    """What one search found, and what its page needs besides."""

    found: Found
    next_cursor: str | None
    target: SessionHeader | None
    """The session of an event search."""
    skipped: tuple[Skipped, ...]
    searchable: bool


@frozen
class Search(Request[SearchResult]):
    """Find one page."""

    request: SearchRequest


@define(eq=False)
class SearchExecutor:
    """Serves searches with ``search_concurrency`` tasks; each owns one reader of the index."""

    _reconciler: IndexReconciler
    _config: QueryConfig
    _index_config: IndexConfig
    mailbox: Mailbox = field(factory=lambda: Mailbox("search executor", RANK), init=False)
    _rankings: OrderedDict[str, Ranking] = field(factory=OrderedDict, init=False)
    _readers: list[Reader] = field(factory=list, init=False)

    async def search(self, request: SearchRequest) -> SearchResult:
        """The page of a request, at least as fresh as this call.

        Raises:
            SessionQueryError: as the request deserves.
            MailboxClosed: the executor has closed.
        """
        return await self.mailbox.ask(Search(request))

    async def run(self) -> None:
        """Serve the mailbox until it is closed and drained."""
        async with PlainNursery() as nursery:
            for number in range(self._config.search_concurrency):
                nursery.start_soon(self._work, name=f"search {number}")

    @property
    def pinned(self) -> int:
        """Views that are open."""
        return sum(reader.pinned for reader in self._readers)

    async def _work(self) -> None:
        reader: Reader | None = None

        async def handle(request: Search) -> SearchResult:
            incarnation = self._reconciler.incarnation
            try:
                return await attempt(request.request)
            except IndexDamaged as damage:
                # What failed halfway holds the snapshot of before as long as its error is known.
                discard()
                await self._reconciler.mend(incarnation, damage)
                return await attempt(request.request)

        async def attempt(request: SearchRequest) -> SearchResult:
            nonlocal reader
            if reader is None:
                reader = await self._reconciler.open_reader()
                self._readers.append(reader)
            return await self._search(reader, request)

        def discard() -> None:
            nonlocal reader
            if reader is not None:
                self._readers.remove(reader)
                reader.close()
                reader = None

        try:
            await self.mailbox.serve(handle, answers=(SessionQueryError,))
        finally:
            discard()

    async def _search(self, reader: Reader, request: SearchRequest) -> SearchResult:
        kept = self._rankings.get(request.fingerprint)
        try:
            view, found = await self._reconciler.show(
                reader, request, kept, partial(self._scan, reader)
            )
        finally:
            self._reconciler.give_back(reader)
        self._keep(request, found.ranking)
        next_cursor = None
        if found.more:
            offset = view.offset + request.limit
            next_cursor = encode_cursor(request, self._reconciler.instance, view.generation, offset)
        target = view.target.header if view.target is not None else None
        return SearchResult(found, next_cursor, target, view.skipped, bool(view.tokens))

    def _scan(self, reader: Reader, view: View) -> tuple[View, Found]:
        return view, scan(reader, view, self._index_config, self._config.redact)

    def _keep(self, request: SearchRequest, ranking: Ranking) -> None:
        self._rankings[request.fingerprint] = ranking
        self._rankings.move_to_end(request.fingerprint)
        while len(self._rankings) > KEPT_RANKINGS:
            self._rankings.popitem(last=False)
