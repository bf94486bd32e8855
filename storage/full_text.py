"""A full-text table and its segments: how many there are, and how they become fewer.

Every transaction that writes text adds a segment or a few on the lowest level. How many, FTS5 says
itself (``count``): one that adds fifty must not pass for one. Left to itself, FTS5 merges when it
must, and one commit of some thousands waits for seconds. Here nothing is merged but by the
calls below, each of which writes a bounded number of pages, or one word's postings where those are
more: FTS5 stops only between two words.

``FAN_IN`` segments of a level become one of the next, so what stands high is hardly ever written
again. A build comes to stand high by ``merge_all``, which puts its result above every level there
is; that needs a second level, so the first two segments of a new table are merged at once.
"""

from __future__ import annotations

from typing import Final

import apsw
from attrs import define, field

from .index_values import Garbled, blob

FAN_IN: Final = 16
"""Segments that one level must have before they are merged; the most that FTS5 allows."""

_STRUCTURE: Final = 10
"""The row of the table's data in which FTS5 lists the segments."""

_SEGMENTS_AT: Final = 5
"""Where that row has their number, behind four bytes and the number of levels, which is one."""


@define(eq=False)
class FullText:
    """The segments of one table."""

    _db: apsw.Connection
    _table: str
    unmerged: int = field(init=False)
    """At most so many segments were added since nothing was left to merge."""
    _segments: int = field(init=False)
    """At most so many there were after the last transaction."""

    def __attrs_post_init__(self) -> None:
        self.unmerged = self._segments = self.count()

    def count(self) -> int:
        """How many segments the tables hold, on whatever level; FTS5 may hold one more in memory.

        Raises:
            Garbled: the row that tells is none of FTS5's.
        """
        found = self._db.execute(
            f"SELECT block FROM {self._table}_data WHERE id = {_STRUCTURE}"
        ).get
        number = blob(found)[_SEGMENTS_AT : _SEGMENTS_AT + 2]
        if len(number) < 2:
            raise Garbled("the list of the segments of full text is cut short")
        # Seven bits a byte, the highest first, which suffices for the 2 000 that FTS5 allows.
        first, second = number
        return first if first < 0x80 else (first & 0x7F) << 7 | second

    def has_grown_to(self, segments: int) -> None:
        """Count what a transaction added, after which there are at most so many segments."""
        self.unmerged += max(0, segments - self._segments)
        self._segments = segments

    def has_shrunk_to(self, segments: int) -> None:
        """Know that there are so many segments after some were merged."""
        self._segments = segments

    def merge(self, pages: int) -> bool:
        """Merge a level that has ``FAN_IN`` segments; whether there was any."""
        return self._merge(pages)

    def merge_all(self, pages: int) -> bool:
        """Merge all segments into one, whatever their levels; whether there was more than one.

        Only then is nothing left of what was taken out.
        """
        return self._merge(-pages)

    def _merge(self, pages: int) -> bool:
        before = self._db.total_changes()
        self._db.execute(
            f"INSERT INTO {self._table}({self._table}, rank) VALUES ('merge', ?)", (pages,)
        )
        # One change is counted for the statement itself.
        return self._db.total_changes() - before >= 2
