"""The search index: what its one writer can be asked to do.

Every method that touches the database runs on the writer's lane, one at a time, and is one
transaction at most. See ``index_tables`` for how rows stand, ``stored_arm`` and ``live_arm`` for
what they say of stored and of live sessions.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Final

import apsw
from attrs import evolve

from ..history.cursor import decode_cursor, stale_cursor
from ..history.request import SearchRequest
from ..messages.config import IndexConfig
from ..messages.errors import ErrorCode, SessionQueryError
from ..messages.records import IndexStatus, SessionTitle, Skipped
from .contract import SessionStore
from .counting import register_counting
from .full_text import FAN_IN, FullText
from .index_file import IndexDamaged, index_errors, index_failed, open_index_file
from .index_query import (
    best_of_extent,
    best_of_sessions_by_count,
    integers,
    recent_predicates,
)
from .index_scan import count_function, reaches, scan_limit
from .index_tables import IndexTables
from .index_values import blob, decode_header, decode_title, integer, text, text_of
from .index_view import (
    IndexedDocument,
    Match,
    Overtaken,
    Ranking,
    Reader,
    Target,
    View,
    indexed_document,
    matches_of,
)
from .live_arm import LiveArm, LiveEntry, LiveSnapshot
from .log_slices import Continuation, Extract, Piece
from .stored_arm import StoredArm
from .tokens import match_expression, phrase_tokens
from .write_ahead import WriteAheadLog

MAX_QUERY_TOKENS: Final = 300
"""Words of a query; full text opens a posting list for each."""

SLICE_EVENTS: Final = 4_000
"""Events or documents that one transaction writes, some 70 ms of CPU."""

_MERGE_AFTER: Final = 128
"""Segments of the file's full text that may have gathered before they are merged."""

_MERGE_RECENT_AFTER: Final = FAN_IN
"""Likewise in memory, where merging costs little beside looking for each word in all of them."""

_MERGE_PAGES: Final = 32
"""Fewest pages that one merge writes: below 10 ms, which is what a commit may have to wait."""

_PURGE_PAGES: Final = 1_000
"""Fewest pages that one merge of a purge writes, about 50 ms: nobody can write meanwhile."""

_BUILD_MERGE_PAGES: Final = 4_000
"""Pages that one merge writes where everybody waits for the build anyway."""

_TIDY_DOCUMENTS: Final = 256
_INTERRUPT_CHECK: Final = 10_000
"""SQLite instructions between two looks at whether a call was interrupted."""


class SearchIndex:
    """The index of one service, for its writer."""

    def __init__(self, config: IndexConfig, extract: Extract) -> None:
        """Open the file; raises ``SessionQueryError`` (``INDEX_FAILED``)."""
        self.config = config
        self.incarnation = 0
        """Moves each time the index is emptied and begun anew."""
        self._extract = extract
        self.store: SessionStore | None = None
        """The store that stored sessions were read from last."""
        self._interrupted = False
        self._file = open_index_file(config)
        self._db = self._file.connection
        try:
            register_counting(self._db)
            self._load_or_recreate()
            self._db.set_progress_handler(self._must_stop, _INTERRUPT_CHECK)
        except BaseException:
            self._file.close()
            raise
        self.has_snapshots = self._file.has_snapshots
        """Whether readers see a fixed state beside the writer, or must borrow its lane."""

    def _load_or_recreate(self) -> None:
        with index_errors(f"index {self.config.path} cannot be read"):
            try:
                self._load()
            except IndexDamaged:
                self._file.mend()
                self._load()

    def _load(self) -> None:
        with index_errors("the index cannot be read"):
            self._load_rows()

    def _load_rows(self) -> None:
        # Before the rows, so that what others write meanwhile is seen as a change.
        version = self._db.pragma("data_version")
        tables = IndexTables(self._db, self.config.tokenizer, self._file.log.make_room)
        stored = StoredArm(tables)
        self._tables, self.stored = tables, stored
        self.live = LiveArm(tables, stored, self._extract)
        self.live.store = self.store
        self._version = version
        """Moves when another process writes to the file."""

    @property
    def generation(self) -> int:
        """Grows with every transaction that changed what a search can see."""
        return self._tables.generation

    def open_reader(self) -> Reader:
        """A reader of this index; one that borrows the writer's connection needs its lane."""
        if not self.has_snapshots:
            return Reader(self._db, self.interrupt, owned=False)
        with index_errors(f"index {self.config.path} cannot be read"):
            connection = self._file.open_reader()
        register_counting(connection)
        return Reader(connection, connection.interrupt, owned=True)

    def close(self) -> None:
        """Close the file; no call may be under way and no reader open."""
        self._file.close()

    def arm(self) -> None:
        """Forget an earlier interruption; with the lane held, before a call is started."""
        self._interrupted = False

    def interrupt(self) -> None:
        """Stop the call that is under way, from any thread; it fails and changes nothing."""
        self._interrupted = True
        self._db.interrupt()

    def _must_stop(self) -> bool:
        return self._interrupted and not self._tables.ending

    # -- turns and remaking -------------------------------------------------------------------

    def take_turn(self) -> bool:
        """Begin to write to a shared file; false while another process is writing.

        Raises:
            SessionQueryError: ``INDEX_FAILED`` where the lock file cannot be had.
        """
        return self._file.try_pass_lock()

    def end_turn(self) -> None:
        """Let other processes write; again is harmless."""
        self._file.release_pass_lock()

    def catch_up(self) -> None:
        """Know what other processes have written since this one last had its turn.

        Raises:
            SessionQueryError: ``INDEX_FAILED``.
        """
        with index_errors("the index could not be read"):
            if self._db.pragma("data_version") == self._version:
                return
            generation, making = self.generation, self._tables.making
            self._load()
            if self._tables.making != making:
                if not self._file.fits():
                    raise index_failed(
                        f"index {self.config.path} was begun anew by another tokenizer or version "
                        "of this library; choose another path"
                    )
                # Begun anew, maybe by a process that could not read how far it had come.
                self.incarnation += 1
                self._tables.generation = max(generation, self.generation)
                self.rebind()

    def rebuild(self, purged: Iterable[bytes] = ()) -> bool:
        """Empty the index and begin anew, whatever is in it; false while a reader prevents it.

        Of the sessions that were purged, those of the digests in ``purged`` stay out. Not to be
        interrupted: what is remembered would be of another file.

        Raises:
            SessionQueryError: ``INDEX_FAILED``.
        """
        with index_errors("the index could not be rebuilt"):
            try:
                self._file.recreate(self.generation + 1, purged)
            except apsw.BusyError:
                return False
            self.incarnation += 1
            self._load()
        return True

    def mend(self) -> bool:
        """As ``rebuild``, but all that was purged stays out, also what others may have purged."""
        return self.rebuild(self.stored.purged.union(self._file.purged()))

    def purge(self, session_id: str) -> bool:
        """Remove a session and keep it out; ``purge_on`` and ``scrub`` remove its bytes.

        Whether there was anything of it.
        """
        entry = self.live.entries.get(session_id)
        held = entry is not None or self.stored.holds(session_id)
        with self._tables.transaction() as tx:
            if entry is not None:
                self.live.let_go(tx, entry)
            self.stored.purge(tx, session_id)
        return held

    def purge_on(self) -> bool:
        """One bounded piece of removing what is dead, also from full text; whether to go on."""
        if self._tables.reclaim(self._wanted_numbers(), SLICE_EVENTS):
            return True
        if self.live.has_unwanted:
            with self._tables.transaction() as tx:
                self.live.reclaim(tx, SLICE_EVENTS)
            return True
        if self._tables.optimize(_PURGE_PAGES):
            return True
        self._tables.forget_types()
        return False

    def scrub(self) -> bool:
        """Leave no byte of what was deleted in any file; false while a reader prevents it."""
        with index_errors("the index could not be scrubbed"):
            try:
                return self._file.scrub()
            except apsw.BusyError:
                return False

    @property
    def log(self) -> WriteAheadLog:
        """The length of the file's log of changes."""
        return self._file.log

    def copy_log(self) -> None:
        """Copy what transactions have logged into the file, so that the log can begin anew.

        Needs no lane, but runs beside the writer; one call at a time. Errors as in ``write``.
        """
        with index_errors("the log of the index could not be copied"):
            self._file.log.copy()

    def restart_log(self) -> bool:
        """Let the next transaction begin the log anew; false while a reader needs what is in it."""
        with index_errors("the log of the index could not be copied"):
            return self._file.log.restart()

    def status(self) -> IndexStatus:
        """What the index holds."""
        with index_errors("the index could not be read"):
            documents: object = self._db.execute("SELECT count(*) FROM doc").get
            return IndexStatus(
                path=self.config.path,
                size_bytes=self._file.size(),
                generation=self.generation,
                sessions=len(self.stored.entries),
                documents=integer(documents),
                skipped=tuple(
                    unreadable.skipped for _, unreadable in sorted(self.stored.unreadable.items())
                ),
                purged=len(self.stored.purged),
                tokenizer=self.config.tokenizer,
            )

    # -- following the store and the live sessions --------------------------------------------

    def read_from(self, store: SessionStore) -> None:
        """Say that what is written from now on comes from this store, and distrust what did not."""
        if self.store is not None and self.store is not store:
            self.stored.distrust()
        self.store = self.live.store = store

    def write(self, pieces: Sequence[Piece]) -> None:
        """Write slices of stored sessions in one transaction.

        Raises:
            SessionQueryError: ``INDEX_FAILED``; nothing was written, the same may be tried again.
        """
        self._tables.raise_first()
        with self._tables.transaction() as tx:
            self.stored.write(tx, pieces)

    def continuations(self, session_ids: Iterable[str]) -> dict[str, Continuation]:
        """Where appends to these sessions continue; ids that must be built anew are left out."""
        with index_errors("the index could not be read"):
            found = {each: self.stored.continuation(each) for each in session_ids}
        return {session_id: kept for session_id, kept in found.items() if kept is not None}

    def forget(self, session_ids: Sequence[str]) -> None:
        """Remove sessions that are stored no longer, in one transaction; errors as in ``write``."""
        with self._tables.transaction() as tx:
            for session_id in session_ids:
                self.stored.forget(tx, session_id)

    def prepare(self, snapshot: LiveSnapshot) -> bool:
        """Index a slice of a live session that has more than one to catch up; whether it had.

        A session that does not show yet stays so.
        """
        if self.live.lag(snapshot) <= SLICE_EVENTS:
            return False
        with self._tables.transaction() as tx:
            self.live.sync(tx, snapshot, SLICE_EVENTS)
        return True

    def follow(self, snapshots: Sequence[LiveSnapshot]) -> bool:
        """Index what live sessions have gained, one bounded transaction; whether more is left."""
        pending = [snapshot for snapshot in snapshots if self.live.needs(snapshot)]
        if not pending:
            return False
        room = SLICE_EVENTS
        with self._tables.transaction() as tx:
            for snapshot in pending:
                room -= self.live.sync(tx, snapshot, room)
                if room <= 0:
                    break
        return any(self.live.needs(snapshot) for snapshot in pending)

    def settle(self, entry: LiveEntry) -> bool:
        """Turn a session that is live no longer into a stored one; whether more is left to do."""
        with self._tables.transaction() as tx:
            if not self.live.is_stored_whole(entry):
                self.live.drop(tx, entry)
                return False
            if entry.in_file and not self.live.movable(entry):
                self.live.settle(tx, entry)
                return False
            self.live.move(tx, entry, SLICE_EVENTS)
            return True

    def rebind(self) -> None:
        """Move the generation because another store is read from now on."""
        with self._tables.transaction() as tx:
            tx.visible = True

    def needs_tidying(self, movable_events: int) -> bool:
        """Whether ``tidy`` may have something to do; not while a call changes the index."""
        return (
            self._tables.may_hold_dead
            or self.is_overdue
            or self.live.has_unwanted
            or self._movable(movable_events) is not None
        )

    def tidy(self, movable_events: int) -> bool:
        """One bounded piece of upkeep that no search can see; whether more is left.

        Moves stored documents of live sessions to the file once there are ``movable_events`` of
        one, merges full-text segments, reclaims dead rows.
        """
        entry = self._movable(movable_events)
        if entry is not None:
            with self._tables.transaction() as tx:
                self.live.move(tx, entry, _TIDY_DOCUMENTS)
            return True
        if self.live.has_unwanted:
            with self._tables.transaction() as tx:
                self.live.reclaim(tx, _TIDY_DOCUMENTS)
            return True
        if self.is_overdue:
            self.merge()
            return True
        return self._tables.reclaim(self._wanted_numbers(), _TIDY_DOCUMENTS)

    @property
    def is_overdue(self) -> bool:
        """Whether segments should be merged without waiting for a quiet time."""
        return self._overdue is not None

    @property
    def _overdue(self) -> FullText | None:
        filed, recent = self._tables.filed_text, self._tables.recent_text
        if recent.unmerged > _MERGE_RECENT_AFTER:
            return recent
        return filed if filed.unmerged > _MERGE_AFTER else None

    def merge(self) -> None:
        """Merge segments a little where that is overdue, which no search can see."""
        full_text = self._overdue
        if full_text is not None:
            # Each merge opens all segments, so that it should write in proportion.
            self._tables.merge(full_text, max(_MERGE_PAGES, full_text.unmerged // 4))

    def merge_build(self) -> bool:
        """Merge what a build of many transactions left, in large pieces; whether to go on."""
        return self._tables.settle_build(_BUILD_MERGE_PAGES)

    def _movable(self, events: int) -> LiveEntry | None:
        """A live session with at least so many stored events in memory."""
        shown = (entry for entry in self.live.entries.values() if entry.visible)
        return next((entry for entry in shown if self.live.movable(entry) >= events), None)

    def _wanted_numbers(self) -> frozenset[int]:
        return self.stored.building | {entry.no for entry in self.live.entries.values()}

    # -- answering ----------------------------------------------------------------------------

    def titles(
        self, session_ids: Sequence[str], store: SessionStore | None
    ) -> dict[str, tuple[str, SessionTitle | None]]:
        """Titles of settled sessions of this store, each with the revision it belongs to."""
        if store is None or (self.store is not None and self.store is not store):
            return {}
        numbers = {
            entry.no: session_id
            for session_id in session_ids
            if (entry := self.stored.entries.get(session_id)) is not None
            and entry.state.settled
            and not entry.provisional
        }
        if not numbers:
            return {}
        with index_errors("the index could not be read"):
            rows = self._db.execute(
                "SELECT s.no, s.revision, s.title FROM carray(?) AS wanted "
                "CROSS JOIN session AS s ON s.no = wanted.value WHERE s.settled",
                (integers(numbers),),
            )
            return {
                numbers[integer(no)]: (
                    text(revision),
                    decode_title(title) if isinstance(title, bytes) else None,
                )
                for no, revision, title in rows
            }

    def workspaces(self) -> tuple[str | None, ...]:
        """The distinct working directories of the sessions that the index holds."""
        with index_errors("the index could not be read"):
            rows = self._db.execute("SELECT cwd FROM session UNION SELECT cwd FROM recent_session")
            return tuple(None if cwd is None else text_of(blob(cwd)) for (cwd,) in rows)

    def open_view(
        self,
        reader: Reader,
        request: SearchRequest,
        *,
        instance: str,
        epoch: int,
        store_bound: bool,
        ranking: Ranking | None,
        skipped: tuple[Skipped, ...],
    ) -> View:
        """Fix what a page is made from and pin the reader to it.

        Raises:
            SessionQueryError: ``SESSION_NOT_FOUND`` for the target of an event search,
                ``INVALID_CURSOR``, ``STALE_CURSOR``, ``INDEX_FAILED``.
            Overtaken: another process has written since this one looked.
        """
        with index_errors("the index could not be read"):
            if self.has_snapshots and reader.pin() != (self.generation, self._tables.making):
                raise Overtaken
            target = self._target(request, epoch, store_bound, skipped)
            generation = target.generation if target is not None else str(self.generation)
            offset = _offset(request, instance, generation)
            view = View(
                request=request,
                tokens=self._tokens(request.query),
                generation=generation,
                offset=offset,
                store_bound=store_bound,
                overlay=self.live.overlay,
                types=self._tables.types,
                target=target,
                skipped=skipped,
            )
            return self._with_matches(view, ranking)

    def _target(
        self, request: SearchRequest, epoch: int, store_bound: bool, skipped: tuple[Skipped, ...]
    ) -> Target | None:
        """The session of an event search, as the index has it."""
        session_id = request.session_id
        if session_id is None:
            return None
        live = self.live.entries.get(session_id)
        if live is not None and live.visible:
            filed = self._tables.sessions.extents(live.no) if live.in_file else ()
            return Target(live.source.header, filed, live.extents, f"live:{live.generation}")
        stored = self.stored.entries.get(session_id) if store_bound else None
        if stored is not None:
            raw: object = self._db.execute(
                "SELECT header FROM session WHERE no = ?", (stored.no,)
            ).get
            generation = f"persisted:{epoch}:{stored.state.generation}"
            header = decode_header(blob(raw))
            return Target(header, self._tables.sessions.extents(stored.no), (), generation)
        if store_bound and session_id in self.stored.unreadable:
            # A pass under way may know more than the last one that was completed.
            skipped = (self.stored.unreadable[session_id].skipped, *skipped)
        if store_bound and self.stored.is_purged(session_id):
            raise SessionQueryError(
                ErrorCode.SESSION_NOT_FOUND,
                f"session {session_id!r} was purged from the index; a rebuild lets it in again",
            )
        for left_out in skipped:
            if left_out.session_id == session_id:
                raise SessionQueryError(left_out.code, left_out.message)
        raise SessionQueryError(
            ErrorCode.SESSION_NOT_FOUND, f"session {session_id!r} is neither live nor stored"
        )

    def _tokens(self, query: str) -> tuple[str, ...]:
        tokens = phrase_tokens(self._db, query, self.config.tokenizer)
        if len(tokens) > MAX_QUERY_TOKENS:
            raise SessionQueryError(
                ErrorCode.INVALID_QUERY,
                f"query has {len(tokens)} words, at most {MAX_QUERY_TOKENS} are looked for: give"
                " a shorter piece of the text",
            )
        return tuple(tokens)

    def _with_matches(self, view: View, ranking: Ranking | None) -> View:
        """The view with what the page needs of the recent documents, or with its ranking."""
        if (
            ranking is not None
            and ranking.generation == view.generation
            and reaches(ranking, view.wanted)
        ):
            shown = ranking.matches[view.offset : view.wanted - 1]
            return evolve(view, ranking=ranking, recent_documents=self._recent(shown))
        if not view.tokens:
            return view
        matches, complete = self._recent_matches(view)
        documents = self._recent(matches[: view.wanted])
        return evolve(
            view,
            recent_matches=tuple(matches),
            recent_complete=complete,
            recent_documents=documents,
        )

    def _recent_matches(self, view: View) -> tuple[list[Match], bool]:
        """The strongest matches outside the file, one a session in a session search."""
        where = recent_predicates(view.request, view.types)
        phrase = match_expression(view.request.query, self.config.tokenizer)
        count, limit = count_function(view.tokens), scan_limit(view)
        if view.target is None:
            if self.live.is_in_file:
                return [], True
            statement = best_of_sessions_by_count(where, count, "recent_")
            rows = self._db.execute(statement, (phrase, *where.bindings, limit)).fetchall()
            return matches_of(rows), len(rows) < limit
        statement = best_of_extent(where, count, "recent_")
        arms: list[list[Match]] = []
        for extent in view.target.recent:
            bindings = (phrase, extent.lo, extent.hi, *where.bindings, limit)
            arms.append(matches_of(self._db.execute(statement, bindings).fetchall()))
        matches = list(heapq.merge(*arms))
        complete = len(matches) <= limit and all(len(arm) < limit for arm in arms)
        return matches[:limit], complete

    def _recent(self, matches: Iterable[Match]) -> dict[int, IndexedDocument]:
        """Those of the matched documents that are not in the file."""
        documents: dict[int, IndexedDocument] = {}
        for match in matches:
            found = self._db.execute(
                "SELECT d.seq, d.time, d.type, d.surface, b.text FROM recent_doc AS d "
                "JOIN recent_body AS b ON b.id = d.id WHERE d.id = ?",
                (match.id,),
            ).fetchone()
            if found is not None:
                documents[match.id] = indexed_document(found)
        return documents


def _offset(request: SearchRequest, instance: str, generation: str) -> int:
    """Where the page begins; the request's cursor must belong to this generation."""
    place = decode_cursor(request, instance)
    if place is None:
        return 0
    made_at, offset = place
    if made_at != generation:
        raise stale_cursor()
    return offset
