"""Snippets: the windowed excerpt against a walk over the whole text (search-index §11)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from session_query.history.snippets import excerpt
from session_query.simulations.search_model import cut_snippet

TEXTS = st.text("ab登 \n\u00a0\ufeff\ufffd", max_size=40)


@st.composite
def marked_texts(draw: st.DrawFn) -> tuple[str, tuple[int, int]]:
    """A text and a match in it that neither begins nor ends with white space."""
    match = draw(st.text("ab登", min_size=1, max_size=4))
    if draw(st.booleans()):
        match += draw(st.text("a \n", max_size=12)) + "b"
    before = draw(TEXTS)
    return before + match + draw(TEXTS), (len(before), len(before) + len(match))


@given(marked_texts(), st.integers(1, 50))
def test_an_excerpt_is_what_a_walk_over_the_whole_text_gives(
    marked: tuple[str, tuple[int, int]], limit: int
) -> None:
    text, span = marked
    shown = excerpt(text, span, limit)
    assert (shown.text, shown.match) == cut_snippet(text, span, limit)


@given(TEXTS, st.integers(1, 50))
def test_without_a_match_an_excerpt_starts_at_the_beginning(text: str, limit: int) -> None:
    shown = excerpt(text, None, limit)
    assert (shown.text, shown.match) == cut_snippet(text, None, limit)


@given(marked_texts(), st.integers(1, 6), st.sampled_from([" ", "\n \u00a0", "a "]))
def test_long_runs_around_the_match_change_nothing(
    marked: tuple[str, tuple[int, int]], limit: int, run: str
) -> None:
    text, (start, end) = marked
    padding = run * 200
    padded = padding + text[:start] + padding + text[start:] + padding
    span = (start + 2 * len(padding), end + 2 * len(padding))
    shown = excerpt(padded, span, limit)
    assert (shown.text, shown.match) == cut_snippet(padded, span, limit)


@given(marked_texts(), st.integers(1, 50))
def test_a_marked_match_is_a_part_of_the_snippet_and_of_the_text(
    marked: tuple[str, tuple[int, int]], limit: int
) -> None:
    text, span = marked
    shown = excerpt(text, span, limit)
    assert len(shown.text) <= limit
    if shown.match is not None:
        start, end = shown.match
        assert text[span[0]] == shown.text[start]
        assert "…" not in shown.text[start:end]


@pytest.mark.parametrize(
    ("text", "span", "limit", "snippet"),
    [
        ("abcdefghij", None, 5, "abcd…"),
        ("abcdefghij", (2, 3), 5, "…bcd…"),
        ("abcdefghij", (2, 3), 3, "…c…"),
        ("abcdef", (5, 6), 2, "…f"),
        ("abcdef", (5, 6), 5, "…cdef"),
        ("  short\ntext  ", None, 20, "short text"),
        ("abcdef", (0, 1), 1, "…"),
    ],
)
def test_the_worked_examples_hold(
    text: str, span: tuple[int, int] | None, limit: int, snippet: str
) -> None:
    assert excerpt(text, span, limit).text == snippet
    assert cut_snippet(text, span, limit)[0] == snippet
