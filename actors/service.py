"""The query service: what a host calls.

Every call checks in one order: search disabled, arguments, closed, cancelled; only then is anything
read. Results are frozen and detached. The caller's own cancellation leaves a call bare, after
everything that it started has ended.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from attrs import define, evolve, frozen

from ..history.fold import fold_surface
from ..history.replay import validate_log
from ..history.request import SearchRequest, event_search, session_search
from ..history.titles import fold_title
from ..messages.config import IndexConfig, QueryConfig
from ..messages.errors import ErrorCode, SessionQueryError
from ..messages.filters import EventFilter, SessionFilter
from ..messages.records import (
    EventRecord,
    EventSearchPage,
    EventWindow,
    Progress,
    SessionListing,
    SessionLog,
    SessionSearchPage,
    SessionTitle,
    TitleResult,
)
from ..storage.contract import Snapshot
from .corpus import Corpus, LoadedLog
from .mailbox import MailboxClosed
from .registry import Sessions

if TYPE_CHECKING:
    from .reconciler import IndexReconciler
    from .search_executor import SearchExecutor, SearchResult

R = TypeVar("R")


@frozen
class ServiceStatistics:
    """What a service is doing at this moment."""

    live_sessions: int
    generation: int
    """Of the index as of the last pass; 0 without an index."""
    pinned_views: int
    """Snapshots of the index that searches hold."""
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

    # -- exact reads --------------------------------------------------------------------------

    async def list_sessions(self) -> SessionListing:
        """Every session, newest first and then by id, and what was left out.

        Raises:
            SessionQueryError: ``PERSISTENCE_FAILED``, ``SOURCE_CONFLICT``; under
                ``on_damaged="fail"`` also the code of a damage.
        """
        return await self._read(self._corpus.list_sessions)

    async def read_session(self, session_id: str) -> SessionLog:
        """The whole log of one session, validated as for a resume.

        Raises:
            SessionQueryError: ``SESSION_NOT_FOUND``, ``CORRUPT_SESSION``, ``INVALID_SURFACE``,
                ``PERSISTENCE_FAILED``.
        """
        return await self._project(session_id, _whole_log)

    async def list_events(self, session_id: str) -> tuple[EventRecord, ...]:
        """Where each event of one session stands, by seq; errors as in ``read_session``."""
        return await self._project(session_id, _event_records)

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
        return await self._project(session_id, lambda log: _window(log, seq, before, after))

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
        cold = tuple(session_id for session_id in ids if self.sessions.get(session_id) is None)
        indexed = await self._reconciler.titles(cold) if self._reconciler is not None else {}
        stored = await self._corpus.snapshots(list(indexed))
        for session_id, (revision, title) in indexed.items():
            now = stored.get(session_id)
            if isinstance(now, Snapshot) and now.revision == revision and not now.provisional:
                results[session_id] = TitleResult(session_id, now.header, title)
        rest = [session_id for session_id in ids if session_id not in results]
        for session_id, outcome in (await self._corpus.project_many(rest, _titled)).items():
            if isinstance(outcome, SessionQueryError):
                results[session_id] = TitleResult(session_id, error=outcome)
            else:
                results[session_id] = evolve(outcome, session_id=session_id)
        return tuple(self._redacted(results[session_id]) for session_id in ids)

    def _redacted(self, result: TitleResult) -> TitleResult:
        if result.title is None:
            return result
        shown = self._config.redact(result.title.title)
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
        executor = self._enabled(self._executor)
        request = session_search(
            query, session_filters, event_filters, limit, cursor, self._index_config
        )
        result = await self._search(executor, request)
        return SessionSearchPage(
            result.found.sessions, result.next_cursor, result.skipped, result.searchable
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
        executor = self._enabled(self._executor)
        request = event_search(session_id, query, filters, limit, cursor, self._index_config)
        result = await self._search(executor, request)
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
        try:
            return await reconciler.refresh(progress)
        except MailboxClosed as refusal:
            raise _search_refused(refusal) from refusal

    @property
    def generation(self) -> int:
        """The generation of the index as of the last pass.

        Raises:
            SessionQueryError: ``SEARCH_DISABLED``.
        """
        return self._enabled(self._reconciler).generations.value

    def statistics(self) -> ServiceStatistics:
        """A snapshot for logs, tests and curious people."""
        reconciler, executor = self._reconciler, self._executor
        return ServiceStatistics(
            live_sessions=len(self.sessions.live),
            generation=reconciler.generations.value if reconciler is not None else 0,
            pinned_views=executor.pinned if executor is not None else 0,
            closed=self._closed,
        )

    def close(self) -> None:
        """Refuse reads from now on; called by ``open_session_query`` as its block is left."""
        self._closed = True

    # -- inside -------------------------------------------------------------------------------

    async def _project(self, session_id: str, fold: Callable[[LoadedLog], R]) -> R:
        return await self._read(lambda: self._corpus.project(session_id, fold))

    async def _read(self, read: Callable[[], Awaitable[R]]) -> R:
        if self._closed:
            raise SessionQueryError(ErrorCode.ABORTED, "the query service is closed")
        try:
            return await read()
        except MailboxClosed as refusal:
            raise SessionQueryError(
                ErrorCode.ABORTED, f"the query service has closed: {refusal}"
            ) from refusal

    async def _search(self, executor: SearchExecutor, request: SearchRequest) -> SearchResult:
        try:
            return await executor.search(request)
        except MailboxClosed as refusal:
            raise _search_refused(refusal) from refusal

    def _enabled(self, actor: R | None) -> R:
        if actor is None:
            raise SessionQueryError(
                ErrorCode.SEARCH_DISABLED, 'search is disabled: the index has open_at="never"'
            )
        return actor


def _search_refused(refusal: MailboxClosed) -> SessionQueryError:
    return SessionQueryError(ErrorCode.INDEX_FAILED, f"the query service has closed: {refusal}")


def _whole_log(log: LoadedLog) -> SessionLog:
    inherited = log.inherited_event_count
    if not log.live:
        inherited = validate_log(log.header, log.events)
    return SessionLog(log.header, inherited, tuple(log.events), log.left_out)


def _event_records(log: LoadedLog) -> tuple[EventRecord, ...]:
    surface = fold_surface(log.events, log.header.version)
    return tuple(
        EventRecord(log.header.id, event.seq, event.type, event.time, surface.surface_of(event.seq))
        for event in log.events
    )


def _window(log: LoadedLog, seq: object, before: int, after: int) -> EventWindow:
    if type(seq) is not int or not 0 <= seq < len(log.events):
        raise SessionQueryError(
            ErrorCode.EVENT_NOT_FOUND,
            f"session {log.header.id!r} has no event {seq!r}; it has {len(log.events)}, from seq 0",
        )
    start, end = max(0, seq - before), min(len(log.events) - 1, seq + after)
    events = tuple(log.events[start : end + 1])
    return EventWindow(
        header=log.header,
        inherited_event_count=log.inherited_event_count,
        target=events[seq - start],
        events=events,
        start_seq=start,
        end_seq=end,
    )


def _titled(log: LoadedLog) -> TitleResult:
    return TitleResult(log.header.id, log.header, fold_title(log.events))
