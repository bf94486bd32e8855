"""Tokens: the model's tokenizer against FTS5's, and the place of a match against ``highlight``."""

from __future__ import annotations

import unicodedata

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st
from search_corpus import GAPS, PHRASES, WORDS

from session_query.history.long_payload import MAX_INDEXED_CHARS
from session_query.messages.config import Tokenizer
from session_query.simulations.search_model import spans_of, stored_text, tokens
from session_query.storage.tokens import (
    MatchFinder,
    indexed_form,
    match_expression,
    overlaps_itself,
    phrase_tokens,
    storable,
)

TEXTS = st.lists(st.sampled_from([*WORDS, *GAPS, "\u0301"]), max_size=14).map("".join)
USUAL = st.text(alphabet="aB1 -_\uff0c\u3002\u201c\u2026\u203f\n用户の文ガー\u30fb々é", max_size=12)
"""Mostly what is common in text of ASCII, Chinese and Japanese, and a little of what is not."""
TOKENIZERS = st.sampled_from(Tokenizer)

database = apsw.Connection(":memory:")
database.execute("CREATE VIRTUAL TABLE t USING fts5(text, tokenize='unicode61')")


def words_of(text: str, tokenizer: Tokenizer) -> list[str]:
    """The tokens that a query of this text has."""
    return phrase_tokens(database, text, tokenizer)


def highlighted(form: str, expression: str) -> list[str]:
    """The spans that FTS5 marks in a text as it is indexed."""
    database.execute("DELETE FROM t")
    database.execute("INSERT INTO t VALUES (?)", (form,))
    marked = database.execute(
        "SELECT highlight(t, 0, '\ufdd0', '\ufdd1') FROM t WHERE t MATCH ?", (expression,)
    ).get
    if marked is None:
        return []
    return [part.split("\ufdd1")[0] for part in str(marked).split("\ufdd0")[1:]]


def place_of(query: str, text: str, tokenizer: Tokenizer) -> tuple[int, int] | None:
    return MatchFinder(query, words_of(query, tokenizer), tokenizer).find(text)


@given(TEXTS, TOKENIZERS)
def test_the_model_cuts_its_alphabet_as_fts5_does(text: str, tokenizer: Tokenizer) -> None:
    text = stored_text(text)
    assert [token.word for token in tokens(text, tokenizer)] == words_of(text, tokenizer)


@given(TEXTS, st.sampled_from(PHRASES), TOKENIZERS)
def test_the_model_counts_the_spans_that_highlight_marks(
    text: str, phrase: str, tokenizer: Tokenizer
) -> None:
    text, query = stored_text(text), stored_text(phrase)
    wanted = [token.word for token in tokens(query, tokenizer)]
    form = indexed_form(text, tokenizer)
    marked = highlighted(form, match_expression(query, tokenizer))
    assert len(spans_of(wanted, tokens(text, tokenizer))) == len(marked)


@given(TEXTS, st.sampled_from(PHRASES), TOKENIZERS)
def test_a_match_is_found_where_the_first_span_stands_in_the_original_text(
    text: str, phrase: str, tokenizer: Tokenizer
) -> None:
    text, query = stored_text(text), stored_text(phrase)
    wanted = [token.word for token in tokens(query, tokenizer)]
    spans = spans_of(wanted, tokens(text, tokenizer))
    assert place_of(query, text, tokenizer) == (spans[0] if spans else None)


@given(USUAL, USUAL, TOKENIZERS)
def test_a_match_in_a_usual_text_is_found_where_fts5_finds_one(
    text: str, phrase: str, tokenizer: Tokenizer
) -> None:
    """Without FTS5 where all signs are usual ones, and so for each piece of the text as phrase."""
    for query in (phrase, *(text[at : at + 3] for at in range(len(text)))):
        finder = MatchFinder(query, words_of(query, tokenizer), tokenizer)
        careful = MatchFinder(query, words_of(query, tokenizer), tokenizer)
        careful._usual = None
        assert finder.find(text) == careful.find(text)


@given(st.text(max_size=12), st.text(max_size=3), TOKENIZERS)
def test_a_match_in_any_text_is_found_exactly_where_fts5_finds_one(
    text: str, phrase: str, tokenizer: Tokenizer
) -> None:
    text, query = storable(text), storable(phrase).replace("\0", " ")
    marked = highlighted(indexed_form(text, tokenizer), match_expression(query, tokenizer))
    place = place_of(query, text, tokenizer)
    assert (place is None) == (not marked)
    if place is not None:
        form = unicodedata.normalize("NFC", text[place[0] : place[1]])
        assert 0 <= place[0] < place[1] <= len(text)
        if tokenizer is Tokenizer.UNICODE61:
            assert text[place[0] : place[1]] == marked[0]
        else:
            assert marked[0].replace(" ", "") in form.replace(" ", "")


@given(st.text(max_size=20))
def test_a_text_and_its_other_normal_form_are_indexed_alike(text: str) -> None:
    decomposed = unicodedata.normalize("NFD", text)
    composed = unicodedata.normalize("NFC", text)
    assert indexed_form(decomposed, Tokenizer.CJK) == indexed_form(composed, Tokenizer.CJK)


@given(st.text(max_size=20))
def test_a_storable_text_keeps_every_offset(text: str) -> None:
    kept = storable(text + "\ud800")
    kept.encode()
    assert len(kept) == len(text) + 1
    assert all(old == new or new == "\ufffd" for old, new in zip(text, kept, strict=False))
    assert not {"\0", "\ufdd0", "\ufdd1"} & {*kept}


def test_only_the_first_million_code_points_are_searchable() -> None:
    assert len(storable("x" * (MAX_INDEXED_CHARS + 1))) == MAX_INDEXED_CHARS


@pytest.mark.parametrize(
    ("phrase", "overlapping"),
    [("a", False), ("a b", False), ("a a", True), ("a b a", True), ("A á", True), ("a b b", False)],
)
def test_a_phrase_overlaps_itself_when_it_ends_as_it_begins(phrase: str, overlapping: bool) -> None:
    assert overlaps_itself(words_of(phrase, Tokenizer.UNICODE61)) == overlapping


@pytest.mark.parametrize("query", ['a"b', "a* OR b", "text:a", "NEAR(a b)", "^a", "a AND", '"'])
def test_operators_of_fts5_are_words_of_the_phrase(query: str) -> None:
    assert highlighted(f"x {query} y", match_expression(query, Tokenizer.UNICODE61)) == (
        [query.strip('"^()* ')] if words_of(query, Tokenizer.UNICODE61) else []
    )


@pytest.mark.parametrize(
    ("query", "text", "found"),
    [
        ("登录超时", "今天登录超时了", "登录超时"),
        ("登录", "用户login登录页", "登录"),
        ("login", "用户login登录页", "login"),
        ("登录超时", "登录。超时", "登录。超时"),
        ("が", "か\u3099く", "か\u3099"),
        ("한글", "큰한글날", "한글"),
        ("cafe", "ein cafe\u0301!", "cafe\u0301"),
        ("café", "ein cafe\u0301\u00a0noir", "cafe\u0301"),
    ],
)
def test_cjk_finds_any_fragment_and_any_spelling(query: str, text: str, found: str) -> None:
    place = place_of(query, text, Tokenizer.CJK)
    assert place is not None
    assert text[place[0] : place[1]] == found
