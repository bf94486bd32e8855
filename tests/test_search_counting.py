"""Match counts: auxiliary functions against every text, and counts read back from FTS5's rank."""

from __future__ import annotations

from collections.abc import Sequence

import apsw
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from session_query.storage.counting import (
    INSTANCES,
    MIN_AVERAGE_LENGTH,
    SPANS,
    average_length,
    counts_from_ranks,
    register_counting,
)

WORDS = st.sampled_from("aabc")
TEXTS = st.lists(WORDS, min_size=1, max_size=12).map(" ".join)
PHRASES = st.lists(st.sampled_from("aab"), min_size=1, max_size=3).map(" ".join)


def indexed(texts: Sequence[str]) -> apsw.Connection:
    """The texts in a table such as the index has."""
    db = apsw.Connection(":memory:")
    db.execute("CREATE VIRTUAL TABLE fts USING fts5(text, content='', columnsize=0)")
    db.executemany("INSERT INTO fts(rowid, text) VALUES (?, ?)", [*enumerate(texts, 1)])
    register_counting(db)
    return db


def places(phrase: str, text: str) -> list[int]:
    """Every word of a text at which the phrase begins."""
    wanted, words = phrase.split(), text.split()
    return [at for at in range(len(words)) if words[at : at + len(wanted)] == wanted]


def spans(phrase: str, text: str) -> int:
    """Occurrences, those that overlap taken together."""
    length, free_from, found = len(phrase.split()), 0, 0
    for at in places(phrase, text):
        found += at >= free_from
        free_from = at + length
    return found


def counted(db: apsw.Connection, function: str, phrase: str) -> dict[int, object]:
    statement = f"SELECT rowid, {function}(fts) FROM fts WHERE fts MATCH ?"
    return {int(str(row)): count for row, count in db.execute(statement, (f'"{phrase}"',))}


@given(st.lists(TEXTS, min_size=1, max_size=8), PHRASES)
def test_auxiliary_functions_count_instances_and_spans(texts: list[str], phrase: str) -> None:
    db = indexed(texts)
    matching = {row: text for row, text in enumerate(texts, 1) if places(phrase, text)}
    assert counted(db, INSTANCES, phrase) == {
        row: len(places(phrase, text)) for row, text in matching.items()
    }
    assert counted(db, SPANS, phrase) == {
        row: spans(phrase, text) for row, text in matching.items()
    }


@given(st.lists(TEXTS, max_size=8))
def test_the_average_length_is_that_of_all_texts(texts: list[str]) -> None:
    lengths = [len(text.split()) for text in texts]
    expected = sum(lengths) / len(lengths) if lengths else 0
    assert average_length(indexed(texts)) == expected


def test_the_average_length_follows_a_removed_text() -> None:
    db = indexed(["a", "a b c d e"])
    db.execute("INSERT INTO fts(fts, rowid, text) VALUES ('delete', 1, 'a')")
    assert average_length(db) == 5


def ranked(db: apsw.Connection, phrase: str) -> tuple[list[float], list[int]]:
    """Ranks in their own order, and the counts of the same rows."""
    rows = db.execute(
        f"SELECT rank, {INSTANCES}(fts) FROM fts WHERE fts MATCH ? ORDER BY rank", (f'"{phrase}"',)
    ).fetchall()
    return [float(str(rank)) for rank, _ in rows], [int(str(count)) for _, count in rows]


@given(st.lists(TEXTS, min_size=1, max_size=8), PHRASES, st.integers(0, 3))
def test_rank_order_is_count_order_and_counts_can_be_read_back(
    texts: list[str], phrase: str, more: int
) -> None:
    db = indexed([*texts, *["x y z w v u t s r q"] * more])
    average = average_length(db)
    assume(average >= MIN_AVERAGE_LENGTH)
    ranks, counts = ranked(db, phrase)
    assert counts == sorted(counts, reverse=True)
    if ranks:
        assert counts_from_ranks(ranks, counts[0], average) == counts


@pytest.mark.parametrize("count", [7, 300, 4_000, 30_000])
def test_large_counts_are_told_apart(count: int) -> None:
    db = indexed(["a " * (count + 1), "a " * count, "b", "b c"])
    ranks, counts = ranked(db, "a")
    assert counts == [count + 1, count]
    assert average_length(db) >= MIN_AVERAGE_LENGTH
    assert counts_from_ranks(ranks, counts[0], average_length(db)) == counts


def test_ranks_of_another_scale_are_refused() -> None:
    db = indexed(["a a a a a a", "a b c d e f", "b c d e f g"])
    ranks, counts = ranked(db, "a")
    assert counts_from_ranks(ranks, counts[0] + 1, average_length(db)) is None


def test_short_texts_have_ranks_that_cannot_be_trusted() -> None:
    db = indexed(["a", "a a", "a a a", "b", "c", "d", "e", "g"])
    assert average_length(db) < MIN_AVERAGE_LENGTH
    _, counts = ranked(db, "a")
    assert counts != sorted(counts, reverse=True)
