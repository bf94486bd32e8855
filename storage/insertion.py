"""Insertion: many rows by few statements.

Each statement lets go of the interpreter lock and waits for it afterwards, up to 5 ms where another
thread is busy. So a transaction gathers its rows and adds them together.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Final, TypeAlias

import apsw

Row: TypeAlias = Sequence[int | str | bytes | None]

_MOST_VALUES: Final = 4_096
"""Values of one statement; more take longer a row to prepare than is gained."""


def insert_rows(connection: apsw.Connection, insert: str, rows: Sequence[Row]) -> None:
    """Add rows of one width. ``insert`` is the statement up to its values."""
    if not rows:
        return
    width = len(rows[0])
    count = _MOST_VALUES // width
    row = f"({','.join('?' * width)})"
    for start in range(0, len(rows), count):
        some = rows[start : start + count]
        connection.execute(
            f"{insert} VALUES {','.join([row] * len(some))}", tuple(chain.from_iterable(some))
        )
