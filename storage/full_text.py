"""A full-text table and its segments: how many there are, and how they become fewer.

Every transaction that writes text adds a segment on the lowest level. Left to itself, FTS5 merges
when it must, and one commit of some thousands waits for seconds. Here nothing is merged but by the
calls below, each of which writes a bounded number of pages, or one word's postings where those are
more: FTS5 stops only between two words.

``FAN_IN`` segments of a level become one of the next, so what stands high is hardly ever written
again. A build comes to stand high by ``merge_all``, which puts its result above every level there
is; that needs a second level, so the first two segments of a new table are merged at once.
"""

from __future__ import annotations

from typing import Final

import apsw
from attrs import define

from .index_values import integer

FAN_IN: Final = 16
"""Segments that one level must have before they are merged; the most that FTS5 allows."""

_COUNT: Final = """
WITH RECURSIVE segment(id) AS (
    SELECT min(segid) FROM {table}_idx
    UNION ALL
    SELECT (SELECT min(segid) FROM {table}_idx WHERE segid > id) FROM segment WHERE id IS NOT NULL
)
SELECT count(id) FROM segment
"""


@define(eq=False)
class FullText:
    """The segments of one table."""

    _db: apsw.Connection
    _table: str
    unmerged: int = 0
    """At most so many segments were added since nothing was left to merge."""

    def count(self) -> int:
        """How many segments there are, on whatever level."""
        return integer(self._db.execute(_COUNT.format(table=self._table)).get)

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
