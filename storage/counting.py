"""Match counts: how often a phrase stands in a document, without reading its text.

In a table that keeps no column sizes, FTS5's ``rank`` depends on the number of instances alone and
rises with it, as long as documents are longer than three tokens on average (fts_design §1, P2).
Where that does not hold, or a phrase overlaps itself, auxiliary functions count.
"""

from __future__ import annotations

from typing import Final

import apsw

INSTANCES: Final = "instances"
"""Auxiliary function: how often the phrase occurs."""

SPANS: Final = "spans"
"""Auxiliary function: the same, overlapping occurrences taken together."""

MIN_AVERAGE_LENGTH: Final = 4
"""Tokens a document must have on average before ``rank`` is trusted."""

_K1: Final = 1.2
_B: Final = 0.75
_UNKNOWN_LENGTH: Final = -1
"""The document length that FTS5 reports where it keeps none."""


def register_counting(connection: apsw.Connection) -> None:
    """Make the auxiliary functions known to a connection."""
    connection.register_fts5_function(INSTANCES, _instances)
    connection.register_fts5_function(SPANS, _spans)


def _instances(api: apsw.FTS5ExtensionApi, *_arguments: object) -> int:
    return api.inst_count


def _spans(api: apsw.FTS5ExtensionApi, *_arguments: object) -> int:
    length = len(api.phrases[0])
    spans, free_from = 0, 0
    for offset in api.phrase_column_offsets(0, 0):
        spans += offset >= free_from
        free_from = offset + length
    return spans


def average_length(connection: apsw.Connection) -> float:
    """Tokens of a document of the file on average; 0 where there is none."""
    record: object = connection.execute("SELECT block FROM fts_data WHERE id = 1").get
    if not isinstance(record, bytes) or not record:
        return 0.0
    rows, position = _varint(record, 0)
    tokens, _ = _varint(record, position)
    return tokens / rows if rows else 0.0


def counts_from_ranks(ranks: list[float], first_count: int, average: float) -> list[int] | None:
    """The match counts behind ranks of one statement, given that of the first row.

    ``rank`` is -weight·f·(k1+1)/(f+c) with a weight that one known pair fixes. ``None`` where a
    count does not come out whole.
    """
    c = _K1 * (1 - _B + _B * _UNKNOWN_LENGTH / average)
    weight = -ranks[0] * (first_count + c) / first_count
    counts: list[int] = []
    for rank in ranks:
        share = -rank / weight
        exact = c * share / (1 - share) if share < 1 else 0.0
        count = round(exact)
        if count < 1 or abs(exact - count) > 0.01:
            return None
        counts.append(count)
    return counts


def _varint(record: bytes, position: int) -> tuple[int, int]:
    """SQLite's variable-length integer at ``position``, and the position behind it."""
    value = 0
    for index in range(9):
        if position >= len(record):
            break
        byte = record[position]
        position += 1
        if index == 8:
            return value << 8 | byte, position
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            break
    return value, position
