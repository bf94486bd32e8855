"""The query service: what a host calls.

Every call checks in one order: search disabled, arguments, closed, cancelled; only then is anything
read. Results are frozen and detached. The caller's own cancellation leaves a call bare, after
everything that it started has ended.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, closing
from functools import partial
from typing import TYPE_CHECKING, Self, TypeVar

from attrs import define, evolve, frozen
from trio.lowlevel import checkpoint

from ..history.filtering import event_predicates, session_predicate
from ..history.lineage import trace_lineage
from ..history.request import event_search, session_search
from ..messages.config import IndexConfig, QueryConfig
from ..messages.errors import ErrorCode, SessionQueryError
from ..messages.filters import EventFilter, SessionFilter
from ..messages.records import (
    EventRecord,
    EventSearchPage,
    EventTrace,
    EventWindow,
    IndexStatus,
    LineageTrace,
    Progress,
    Projected,
    SearchDocument,
    SessionListing,
    SessionLog,
    SessionSearchPage,
    SessionSurface,
    SessionTitle,
    TitleResult,
)
from ..storage.contract import SessionStore, Snapshot
from . import exact_reads
from .corpus import Corpus
from .damage import service_closed
from .loaded_log import LoadedLog
from .log_copy import LogCopy
from .mailbox import MailboxClosed
from .observations import Observation
from .recall import Asked, Recall
from .registry import Sessions
from .watch import WatchClosed

if TYPE_CHECKING:
    from .reconciler import IndexReconciler
    from .search_executor import SearchExecutor

R = TypeVar("R")


@frozen
class ServiceStatistics:
    """What a service is doing at this moment."""

    live_sessions: int
    generation: int
    """Of the index as it was last brought up to date; 0 without an index."""
    pinned_views: int
    """Snapshots of the index that searches hold."""
    notified: bool
    """Whether the store tells what changes, so that it need not be swept."""
    closed: bool


@define(eq=False)
class SessionQuery:
    """Reads and searches over live and stored sessions; see ``open_session_query``."""

    sessions: Sessions
    """The live sessions: create, resume and fork them here."""
    _corpus: Corpus
    _config: QueryConfig
    _index_config: IndexConfig
    _reconciler: IndexReconciler | None
    _executor: SearchExecutor | None
    _closed: bool = False

    # -- the store ----------------------------------------------------------------------------

    def mount(self, store: SessionStore) -> None:
        """Read stored sessions from ``store`` from now on, in place of the one mounted before.

        Nothing that runs is lost. A read that has begun goes on with the store that it began with,
        which therefore has to stay usable until then; whatever begins later sees ``store`` alone.
        A live session goes on in the store that it was created in or resumed from, and its write
        handle with it. A search that is under way is brought up to date again. Cursors of session
        searches, and those within a stored session, are stale from the next search on.

        Raises:
            SessionQueryError: ``INVALID_CONFIG`` where ``store`` is no ``SessionStore``;
                ``ABORTED`` once the service has closed.
        """
        if not isinstance(store, SessionStore):
            raise SessionQueryError(
                ErrorCode.INVALID_CONFIG,
                f"only a SessionStore can be mounted, got {store!r}; unmount() takes one away",
            )
        self._check_open()
        self._corpus.binding.mount(store)

    def unmount(self) -> None:
        """Read no stored sessions from now on; see ``mount``. Without a store this does nothing.

        The index keeps what it holds: with the same store mounted again only what has changed since
        is read.

        Raises:
            SessionQueryError: ``ABORTED`` once the service has closed.
        """
        self._check_open()
        if self._corpus.binding.store is not None:
            self._corpus.binding.unmount()

    # -- exact reads --------------------------------------------------------------------------

    async def list_sessions(self) -> SessionListing:
        """Every session, newest first and then by id, and what was left out.

        Raises:
            SessionQueryError: ``PERSISTENCE_FAILED``, ``SOURCE_CONFLICT``; under
                ``on_damaged="fail"`` also the code of a damage.
        """
        return await self._read(self._corpus.list_sessions)

    async def filter_sessions(self, filters: Iterable[SessionFilter]) -> SessionListing:
        """The sessions that pass every filter, in the order of ``list_sessions``.

        Raises:
            SessionQueryError: ``INVALID_FILTER``; otherwise as ``list_sessions``.
        """
        wanted = session_predicate(filters, self._config.canonical_cwd)
        listing = await self.list_sessions()
        return evolve(listing, sessions=tuple(filter(wanted, listing.sessions)))

    async def trace_session(self, session_id: str) -> LineageTrace:
        """The ancestors and descendants of one session, from one listing and no log.

        Raises:
            SessionQueryError: ``SESSION_NOT_FOUND``; ``INVALID_LINEAGE`` where its ancestors run in
                a circle; otherwise as ``list_sessions``.
        """
        listing = await self.list_sessions()
        return trace_lineage(listing.sessions, session_id, listing.skipped)

    async def read_session(self, session_id: str) -> SessionLog:
        """The whole log of one session, validated as for a resume.

        Raises:
            SessionQueryError: ``SESSION_NOT_FOUND``, ``CORRUPT_SESSION``, ``INVALID_SURFACE``,
                ``PERSISTENCE_FAILED``.
        """
        return await self._project(session_id, exact_reads.valid_log)

    async def list_events(self, session_id: str) -> tuple[EventRecord, ...]:
        """Where each event of one session stands, by seq; errors as in ``read_session``."""
        return await self._project(session_id, exact_reads.records)

    async def filter_events(
        self, session_id: str, filters: Iterable[EventFilter]
    ) -> tuple[SearchDocument, ...]:
        """The events of one session that have text and pass every filter, by seq.

        ``Text`` compares literally, whatever the case (one character for one) and the white space
        between words.

        Raises:
            SessionQueryError: ``INVALID_FILTER``, blank words included; otherwise as
                ``read_session``.
        """
        wanted, holds = event_predicates(filters)
        return await self._project(
            session_id,
            lambda log: exact_reads.documents(log, wanted, holds, self._config),
        )

    async def read_surface(self, session_id: str) -> SessionSurface:
        """What the model sees of one session; errors as in ``read_session``."""
        return await self._project(session_id, exact_reads.surface)

    async def trace_event(self, session_id: str, seq: int) -> EventTrace:
        """What replaced an event, what it replaced, what it cites and what cites it.

        Raises:
            SessionQueryError: ``EVENT_NOT_FOUND``; otherwise as ``read_session``.
        """
        return await self._project(session_id, exact_reads.traced(seq))

    async def read_event(
        self, session_id: str, seq: int, before: int = 0, after: int = 0
    ) -> EventWindow:
        """One event and its neighbours by seq, as many as there are on either side.

        The surface is not folded: a log whose surface is invalid can still be read.

        Args:
            before: 0 to ``read_window_max`` events.
            after: likewise.

        Raises:
            SessionQueryError: ``INVALID_WINDOW``, ``SESSION_NOT_FOUND``, ``EVENT_NOT_FOUND``,
                ``CORRUPT_SESSION``, ``PERSISTENCE_FAILED``.
        """
        for name, count in (("before", before), ("after", after)):
            if type(count) is not int or not 0 <= count <= self._config.read_window_max:
                raise SessionQueryError(
                    ErrorCode.INVALID_WINDOW,
                    f"{name} must be a whole number from 0 to {self._config.read_window_max}, "
                    f"got {count!r}",
                )
        return await self._project(session_id, exact_reads.window(seq, before, after))

    async def project_many(
        self, session_ids: Iterable[str], fold: Callable[[SessionLog], R]
    ) -> tuple[Projected[R], ...]:
        """``fold`` of each log, by first occurrence; a failure is that id's alone.

        Stored logs are folded on worker threads, ``persisted_read_concurrency`` at a time, each
        before the next is read. What ``fold`` raises is kept as the error of that id.
        """
        ids = tuple(dict.fromkeys(session_ids))

        def guarded(log: LoadedLog) -> Projected[R]:
            try:
                return Projected(log.header.id, fold(exact_reads.session_log(log)))
            except Exception as error:
                return Projected(log.header.id, error=error)

        results = await self._read(lambda: self._corpus.project_many(ids, guarded))
        return tuple(
            Projected(session_id, error=result)
            if isinstance(result, SessionQueryError)
            else evolve(result, session_id=session_id)
            for session_id, result in results.items()
        )

    @asynccontextmanager
    async def observe_session(self, session_id: str) -> AsyncIterator[Observation]:
        """One exact state of a session for the length of the block; ``retain`` keeps it longer.

        A stored log stays in memory while it is observed, so that who observes the same state, or
        reads of it, does not read the store again.

        Raises:
            SessionQueryError: ``SESSION_NOT_FOUND``, ``CORRUPT_SESSION``, ``PERSISTENCE_FAILED``.
        """
        _check_id(session_id)
        with await self._read(partial(self._corpus.observe, session_id)) as observation:
            yield observation

    @asynccontextmanager
    async def copy_log(self, session_id: str) -> AsyncIterator[LogCopy]:
        """The log of one session as the text of a file, for the length of the block.

        A live session is flushed right before; one that is never stored is copied from memory.
        Nothing is redacted.

        Raises:
            SessionQueryError: ``SESSION_NOT_FOUND``, ``CORRUPT_SESSION``, ``PERSISTENCE_FAILED``.
        """
        _check_id(session_id)
        copy = await self._read(partial(self._corpus.copy, session_id))
        with closing(copy):
            yield copy

    async def read_title(self, session_id: str) -> SessionTitle | None:
        """The newest title of one session; errors as in ``read_session``."""
        (result,) = await self.read_titles([session_id])
        if result.error is not None:
            raise result.error
        return result.title

    async def read_titles(self, session_ids: Iterable[str]) -> tuple[TitleResult, ...]:
        """The newest title of each session, by first occurrence; a failure is that id's alone.

        Titles come from memory for live sessions, from the index where it holds the present
        revision, and from the log otherwise.
        """
        ids = tuple(dict.fromkeys(session_ids))
        return await self._read(lambda: self._titles(ids))

    async def _titles(self, ids: tuple[str, ...]) -> tuple[TitleResult, ...]:
        results: dict[str, TitleResult] = {}
        mounted = self._corpus.mounted
        cold = tuple(session_id for session_id in ids if self.sessions.get(session_id) is None)
        indexed = (
            await self._reconciler.titles(cold, mounted.store)
            if self._reconciler is not None
            else {}
        )
        stored = await self._corpus.snapshots(list(indexed), mounted)
        for session_id, (revision, title) in indexed.items():
            now = stored.get(session_id)
            if self.sessions.get(session_id) is not None:
                continue
            if isinstance(now, Snapshot) and now.revision == revision and not now.provisional:
                results[session_id] = TitleResult(session_id, now.header, title)
        rest = [session_id for session_id in ids if session_id not in results]
        for session_id, outcome in (
            await self._corpus.project_many(rest, exact_reads.titled, mounted)
        ).items():
            if isinstance(outcome, SessionQueryError):
                results[session_id] = TitleResult(session_id, error=outcome)
            else:
                results[session_id] = evolve(outcome, session_id=session_id)
        return tuple(self._redacted(results[session_id]) for session_id in ids)

    def _redacted(self, result: TitleResult) -> TitleResult:
        if result.title is None:
            return result
        shown = self._config.redact(result.title.title)
        if shown == result.title.title:
            return result
        return evolve(result, title=evolve(result.title, title=shown))

    # -- searches -----------------------------------------------------------------------------

    async def search_sessions(
        self,
        query: str,
        *,
        session_filters: Iterable[SessionFilter] = (),
        event_filters: Iterable[EventFilter] = (),
        limit: int | None = None,
        cursor: str | None = None,
    ) -> SessionSearchPage:
        """Sessions with an event that holds the words of ``query`` as a phrase, strongest first.

        Args:
            limit: hits on the page; ``IndexConfig.default_limit`` by default.
            cursor: ``next_cursor`` of the page before, with everything else as it was.

        Raises:
            SessionQueryError: ``SEARCH_DISABLED``, ``INVALID_FILTER``, ``INVALID_CURSOR``,
                ``INVALID_QUERY``, ``INVALID_LIMIT``, ``STALE_CURSOR``, ``PERSISTENCE_FAILED``,
                ``SOURCE_CONFLICT``, ``INDEX_FAILED``; under ``on_damaged="fail"`` also the code of
                a damage.
        """
        return await self._session_page(
            partial(session_search, query, session_filters, event_filters, limit, cursor)
        )

    async def search_events(
        self,
        session_id: str,
        query: str,
        *,
        filters: Iterable[EventFilter] = (),
        limit: int | None = None,
        cursor: str | None = None,
    ) -> EventSearchPage:
        """Events of one session that hold the words of ``query`` as a phrase, strongest first.

        Arguments and errors as in ``search_sessions``, and ``SESSION_NOT_FOUND``.
        """
        return await self._event_page(
            partial(event_search, session_id, query, filters, limit, cursor)
        )

    def recall(self) -> Recall:
        """This service as the model tools see it: searches leave out what only echoes their use."""
        largest = self._index_config.max_limit
        return Recall(self, self._config, largest, self._session_page, self._event_page)

    async def _session_page(self, asked: Asked) -> SessionSearchPage:
        executor = self._enabled(self._executor)
        result = await self._ask(partial(executor.search, asked(self._index_config)))
        return SessionSearchPage(
            result.found.sessions, result.next_cursor, result.skipped, result.searchable
        )

    async def _event_page(self, asked: Asked) -> EventSearchPage:
        executor = self._enabled(self._executor)
        result = await self._ask(partial(executor.search, asked(self._index_config)))
        assert result.target is not None
        return EventSearchPage(
            result.target,
            result.found.events,
            result.next_cursor,
            result.skipped,
            result.searchable,
        )

    async def refresh(self, progress: Callable[[Progress], None] | None = None) -> int:
        """Bring the index up to date without searching, and return its generation.

        Args:
            progress: called on the Trio thread while changed sessions are read.

        Raises:
            SessionQueryError: as a search raises it where the pass fails.
        """
        reconciler = self._enabled(self._reconciler)
        return await self._ask(partial(reconciler.refresh, progress))

    async def rebuild_index(self, progress: Callable[[Progress], None] | None = None) -> int:
        """Empty the index and build it anew; purged sessions are let in again. The generation.

        Arguments and errors as in ``refresh``.
        """
        reconciler = self._enabled(self._reconciler)
        await self._ask(reconciler.rebuild)
        return await self._ask(partial(reconciler.refresh, progress))

    async def purge(self, session_id: str) -> bool:
        """Remove a session from the index, leave no byte of it in any index file, and keep it out.

        The log is not touched. The session comes back only with ``rebuild_index``. An id that the
        index does not hold is kept out all the same; the result tells whether it did.

        Raises:
            SessionQueryError: ``SEARCH_DISABLED``; ``SESSION_NOT_FOUND`` for an id that is no text;
                ``INDEX_FAILED``, also for a live session.
        """
        reconciler = self._enabled(self._reconciler)
        _check_id(session_id)
        return await self._ask(partial(reconciler.purge, session_id))

    async def index_status(self) -> IndexStatus:
        """What the index holds at this moment, without bringing it up to date.

        Raises:
            SessionQueryError: ``SEARCH_DISABLED``, ``INDEX_FAILED``.
        """
        reconciler = self._enabled(self._reconciler)
        return await self._ask(reconciler.status)

    @property
    def generation(self) -> int:
        """The generation of the index as it was last brought up to date.

        Raises:
            SessionQueryError: ``SEARCH_DISABLED``.
        """
        return self._enabled(self._reconciler).generations.value

    async def wait_for_generation(self, after: int) -> int:
        """Wait until the generation of the index is beyond ``after``, and return the newest one.

        While somebody waits here or on ``generations``, and once the index is open, a commit of a
        live session is followed by a pass within 250 ms.

        Raises:
            SessionQueryError: ``SEARCH_DISABLED``; ``INVALID_WINDOW`` where ``after`` is no whole
                number; ``INDEX_FAILED`` once the service has closed.
        """
        reconciler = self._enabled(self._reconciler)
        _check_whole("after", after)
        return await self._ask(partial(reconciler.news.after, after))

    def generations(self, after: int | None = None) -> Generations:
        """Every newest generation beyond ``after`` (by default the present one), without end.

        Who is slow misses those in between: a generation is a reason to look, not a thing to keep.
        Errors as in ``wait_for_generation``.
        """
        present = self.generation
        if after is not None:
            _check_whole("after", after)
        return Generations(self, present if after is None else after)

    async def changed_sessions(self, after: int) -> tuple[str, ...]:
        """Ids of the sessions that changed in the index after this generation, by id.

        The index is not brought up to date, and sessions that are gone are not named.

        Raises:
            SessionQueryError: as ``wait_for_generation``.
        """
        reconciler = self._enabled(self._reconciler)
        _check_whole("after", after)
        return await self._ask(partial(reconciler.changed_since, after))

    async def wait_for_session(self, session_id: str, after_seq: int = -1) -> int:
        """Wait until a live session has an event beyond ``after_seq``; the seq of its newest event.

        Raises:
            SessionQueryError: ``SESSION_NOT_FOUND`` where the session is not live, or ends before;
                ``INVALID_WINDOW`` where ``after_seq`` is no whole number; ``ABORTED`` once the
                service has closed.
        """
        _check_id(session_id)
        _check_whole("after_seq", after_seq)
        return await self._read(lambda: self._next_seq(session_id, after_seq))

    async def _next_seq(self, session_id: str, after_seq: int) -> int:
        await checkpoint()
        commits = self.sessions.commits
        while True:
            session = self.sessions.get(session_id)
            if session is None:
                raise SessionQueryError(
                    ErrorCode.SESSION_NOT_FOUND, f"session {session_id!r} is not live"
                )
            if session.length - 1 > after_seq:
                return session.length - 1
            await commits.changed(commits.value)

    def statistics(self) -> ServiceStatistics:
        """A snapshot for logs, tests and curious people."""
        reconciler, executor = self._reconciler, self._executor
        return ServiceStatistics(
            live_sessions=len(self.sessions.live),
            generation=reconciler.generations.value if reconciler is not None else 0,
            pinned_views=executor.pinned if executor is not None else 0,
            notified=self._corpus.is_told,
            closed=self._closed,
        )

    def close(self) -> None:
        """Refuse reads from now on; called by ``open_session_query`` as its block is left."""
        self._closed = True
        self.sessions.commits.close()

    # -- inside -------------------------------------------------------------------------------

    async def _project(self, session_id: str, fold: Callable[[LoadedLog], R]) -> R:
        _check_id(session_id)
        return await self._read(lambda: self._corpus.project(session_id, fold))

    async def _read(self, read: Callable[[], Awaitable[R]]) -> R:
        self._check_open()
        try:
            return await read()
        except (MailboxClosed, WatchClosed) as refusal:
            raise service_closed(refusal) from refusal

    def _check_open(self) -> None:
        if self._closed:
            raise SessionQueryError(ErrorCode.ABORTED, "the query service is closed")

    async def _ask(self, ask: Callable[[], Awaitable[R]]) -> R:
        """What needs the index, as ``_read`` is for what does not."""
        closed = "the query service is closed"
        if self._closed:
            raise SessionQueryError(ErrorCode.INDEX_FAILED, closed)
        try:
            return await ask()
        except (MailboxClosed, WatchClosed) as refusal:
            raise SessionQueryError(ErrorCode.INDEX_FAILED, f"{closed}: {refusal}") from refusal

    def _enabled(self, actor: R | None) -> R:
        if actor is None:
            raise SessionQueryError(
                ErrorCode.SEARCH_DISABLED, 'search is disabled: the index has open_at="never"'
            )
        return actor


@define(eq=False)
class Generations:
    """The generations of a service, one at a time: each newest one that was not seen yet."""

    _query: SessionQuery
    seen: int

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> int:
        self.seen = await self._query.wait_for_generation(self.seen)
        return self.seen


def _check_id(session_id: object) -> None:
    if not isinstance(session_id, str):
        raise SessionQueryError(
            ErrorCode.SESSION_NOT_FOUND, f"the id of a session is text, got {session_id!r}"
        )


def _check_whole(name: str, value: object) -> None:
    if type(value) is not int:
        raise SessionQueryError(
            ErrorCode.INVALID_WINDOW, f"{name} must be a whole number, got {value!r}"
        )
