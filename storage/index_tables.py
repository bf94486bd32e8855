"""The tables of an index and the one way to change them: a transaction.

Rows of a session carry its number, never its id. A new build of a session gets a new number and
becomes visible when its ``session`` row is inserted; a number without such a row is dead, and its
rows are reclaimed later. What is remembered beside the database is changed after COMMIT alone, so
that a rolled back transaction leaves no trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from typing import Final, Literal

import apsw
from attrs import define, field

from ..history.documents import Document
from ..messages.config import Tokenizer
from .document_rows import DocumentRows, Extent, divided, joined
from .full_text import FullText
from .index_file import index_errors
from .index_values import blob, integer, key, text, text_of
from .session_rows import SessionRows

_RAISING_PAGES: Final = 1_000
"""Most pages that merging the first two segments of an index writes."""

_MIN_BLOCK: Final = 64
_MAX_BLOCK: Final = 4_096


@define(eq=False)
class Transaction:
    """One transaction under way."""

    generation: int
    """What the index will have when it is committed, if it is visible."""
    visible: bool = False
    """Whether it changes what a search can see."""
    wrote: set[FullText] = field(factory=set)
    """Full text that it has changed."""
    after: list[Callable[[], None]] = field(factory=list)
    """What to remember once it is committed, in order."""
    types: dict[str, int] = field(factory=dict)
    """Event types that it was the first to write."""
    on_failure: list[Callable[[], None]] = field(factory=list)
    """What to take back where it fails, latest first."""


class IndexTables:
    """The rows of one index, for its writer."""

    def __init__(
        self, connection: apsw.Connection, tokenizer: Tokenizer, make_room: Callable[[], None]
    ) -> None:
        self.db = connection
        self._make_room = make_room
        """Called before each transaction."""
        self.filed = DocumentRows(connection, "", tokenizer)
        """Documents in the file."""
        self.recent = DocumentRows(connection, "recent_", tokenizer)
        """Documents of live sessions that are not in the file."""
        self.sessions = SessionRows(connection)
        """What the file keeps of each session beside its documents."""
        meta = {text(name): value for name, value in connection.execute("SELECT * FROM meta")}
        self.generation = integer(meta.get("generation"))
        self.making = text(meta.get("making"))
        """Tells this file from what it was before it was last begun anew."""
        self.types = {
            text_of(blob(name)): integer(code)
            for name, code in connection.execute("SELECT name, code FROM event_type")
        }
        """The codes of event types. Never changed in place: views keep it."""
        self.filed_text = FullText(connection, "fts")
        self.recent_text = FullText(connection, "recent_fts")
        self.may_hold_dead = True
        """Whether ``reclaim`` has not found the file free of dead rows since some became so."""
        self.ending = False
        """Whether a transaction ends at this moment, which a progress handler must not stop.

        A COMMIT that it stops may be done or undone; one that ``interrupt`` stops is undone.
        """
        self._next_id = integer(meta.get("next_id"))
        self._next_no = integer(meta.get("next_no"))
        self._written = (self._next_id, self._next_no)
        """The counters as the file has them."""
        self._is_new = self._next_id == 1
        """Whether the file was empty when it was opened, and nothing was merged since."""
        self._settled_id = self._next_id
        """The first id that was not used yet when a build was last merged, or the file opened."""
        self._blocks: dict[int, range] = {}

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """One atomic change of the index.

        Raises:
            SessionQueryError: ``INDEX_FAILED`` where the database refused; nothing has changed.
            apsw.InterruptError: the change was interrupted; nothing has changed.
        """
        tx = Transaction(self.generation + 1)
        with index_errors("the index could not be written"):
            self._make_room()
            try:
                self.db.execute("BEGIN IMMEDIATE")
                yield tx
                self.sessions.write_gathered()
                self.filed.write_gathered()
                self.recent.write_gathered()
                if tx.visible:
                    self._set_meta("generation", tx.generation)
                self._write_counters(tx)
                # COMMIT adds what FTS5 still holds in memory.
                segments = [(full_text, full_text.count() + 1) for full_text in tx.wrote]
                self._end("COMMIT")
            except BaseException:
                self._roll_back(tx)
                raise
        if tx.visible:
            self.generation = tx.generation
        if tx.types:
            self.types = {**self.types, **tx.types}
        for full_text, count in segments:
            full_text.has_grown_to(count)
        for remember in tx.after:
            remember()

    def _roll_back(self, tx: Transaction) -> None:
        self.sessions.forget_gathered()
        self.filed.forget_gathered()
        self.recent.forget_gathered()
        while self.db.in_transaction:
            with suppress(apsw.InterruptError):
                self._end("ROLLBACK")
        for take_back in reversed(tx.on_failure):
            take_back()

    def _end(self, how: Literal["COMMIT", "ROLLBACK"]) -> None:
        self.ending = True
        try:
            self.db.execute(how)
        finally:
            self.ending = False

    def take_no(self) -> int:
        """A session number that was never used."""
        no = self._next_no
        self._next_no += 1
        self.sessions.begin(no)
        return no

    def insert(
        self,
        tx: Transaction,
        rows: DocumentRows,
        no: int,
        documents: Sequence[Document],
        ids: Iterable[range],
    ) -> None:
        """Add documents of one session under ids from ``take_ids`` or ``take_block_ids``."""
        if not documents:
            return
        types = dict.fromkeys(document.type for document in documents)
        codes = {name: self._type_code(tx, name) for name in types}
        rows.insert(no, chain.from_iterable(ids), documents, codes)
        tx.wrote.add(self.filed_text if rows is self.filed else self.recent_text)

    def take_ids(self, count: int) -> list[range]:
        """``count`` ids in one run, none of them used before."""
        if not count:
            return []
        run = range(self._next_id, self._next_id + count)
        self._next_id = run.stop
        return [run]

    def take_block_ids(self, no: int, count: int, used: int) -> list[range]:
        """``count`` ids for a session that grows, from its reserved blocks.

        A session of ``used`` documents has few blocks: each is about as long as all before it.
        """
        runs: list[range] = []
        while count:
            block = self._blocks.get(no, range(0))
            if not block:
                size = max(count, min(max(used, _MIN_BLOCK), _MAX_BLOCK))
                block = range(self._next_id, self._next_id + size)
                self._next_id = block.stop
            run = block[:count]
            self._blocks[no] = block[len(run) :]
            runs.append(run)
            count -= len(run)
            used += len(run)
        return runs

    def release_block(self, no: int) -> None:
        """Reserve nothing more for a session."""
        self._blocks.pop(no, None)

    # -- what the file holds ------------------------------------------------------------------

    def add_to_file(self, no: int, runs: Sequence[range]) -> None:
        """Record that the file keeps these runs of ids for a session."""
        if not runs:
            return
        extents = self.sessions.extents(no)
        for run in runs:
            extents = joined(extents, run)
        self.sessions.replace_extents(no, extents)

    def remove_from_file(self, no: int, gone: Sequence[Extent]) -> None:
        """Delete the last documents that the file keeps of a session: these whole extents."""
        if not gone:
            return
        self.filed.delete(gone)
        kept, _ = divided(self.sessions.extents(no), gone[0].lo)
        self.sessions.replace_extents(no, kept)

    def mark_dead(self, no: int) -> None:
        """Say that the rows of a number are to be reclaimed unless a session takes them."""
        self.may_hold_dead = True
        self.db.execute("INSERT OR IGNORE INTO dead VALUES (?)", (no,))

    def mark_alive(self, no: int) -> None:
        """Take back ``mark_dead``."""
        self.db.execute("DELETE FROM dead WHERE session = ?", (no,))

    def bury(self, tx: Transaction, no: int) -> None:
        """Remove a session that nobody has to see any more; its rows are reclaimed later."""
        self.sessions.remove(no)
        self.mark_dead(no)
        self.release_block(no)

    # -- upkeep -------------------------------------------------------------------------------

    def reclaim(self, alive: frozenset[int], limit: int) -> bool:
        """Delete up to about ``limit`` dead documents; whether there is more to do."""
        with index_errors("the index could not be read"):
            dead = self.db.execute("SELECT session FROM dead ORDER BY session").fetchall()
        self.may_hold_dead = bool(dead)
        for (no,) in dead:
            number = integer(no)
            if number in alive:
                continue
            with self.transaction() as tx:
                tx.wrote.add(self.filed_text)
                extents = self.sessions.extents(number)
                if not extents:
                    self.mark_alive(number)
                    continue
                last = extents[-1]
                self.remove_from_file(number, (Extent(max(last.lo, last.hi - limit), last.hi),))
            return True
        return False

    def merge(self, full_text: FullText, pages: int) -> None:
        """Merge a little of one full text."""
        self._merge(full_text, full_text.merge, pages)

    def optimize(self, pages: int) -> bool:
        """Merge the file's full text into one segment, a little at a time; whether to go on."""
        return self._merge(self.filed_text, self.filed_text.merge_all, pages)

    def raise_first(self) -> None:
        """Merge the first two segments of a new index, before a third is added.

        Without their level, what a build leaves would stand right above what commits add, and be
        written again with the first few hundred of them.
        """
        if self._is_new and self.filed_text.unmerged >= 2:
            self._is_new = False
            self.optimize(_RAISING_PAGES)

    def settle_build(self, pages: int) -> bool:
        """Merge a little of what a build of many transactions left; whether to go on.

        With it goes all that was there before, where that is less.
        """
        filed = self.filed_text
        outweighs = self._next_id >= 2 * self._settled_id
        more = self._merge(filed, filed.merge_all if outweighs else filed.merge, pages)
        if not more:
            self._settled_id = self._next_id
        return more

    def _merge(self, full_text: FullText, piece: Callable[[int], bool], pages: int) -> bool:
        with self.transaction():
            more = piece(pages)
            segments = full_text.count()
        full_text.has_shrunk_to(segments)
        if not more:
            full_text.unmerged = 0
        return more

    def forget_types(self) -> None:
        """Forget the event types that no document has any more."""
        with self.transaction() as tx:
            used = self.db.execute("SELECT type FROM doc UNION SELECT type FROM recent_doc")
            codes = {integer(code) for (code,) in used}
            unused = [code for code in self.types.values() if code not in codes]
            self.db.executemany(
                "DELETE FROM event_type WHERE code = ?", [(code,) for code in unused]
            )
            kept = {name: code for name, code in self.types.items() if code in codes}
            tx.after.append(lambda: setattr(self, "types", kept))

    # -- inside -------------------------------------------------------------------------------

    def _type_code(self, tx: Transaction, name: str) -> int:
        code = self.types.get(name)
        if code is None:
            code = tx.types.get(name)
        if code is None:
            code = max([-1, *self.types.values(), *tx.types.values()]) + 1
            self.db.execute("INSERT INTO event_type VALUES (?, ?)", (code, key(name)))
            tx.types[name] = code
        return code

    def _write_counters(self, tx: Transaction) -> None:
        """Once a transaction is enough: what a rolled back one has used is not used again."""
        counters = (self._next_id, self._next_no)
        if counters != self._written:
            self._set_meta("next_id", self._next_id)
            self._set_meta("next_no", self._next_no)

            def remember() -> None:
                self._written = counters

            tx.after.append(remember)

    def _set_meta(self, name: str, value: int) -> None:
        self.db.execute("UPDATE meta SET value = ? WHERE key = ?", (value, name))
