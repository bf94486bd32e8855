"""Field reports R1, R3, R5, R7 and R9: what people type is text, and finds what is written."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

import pytest
from field_world import service, user_rows, write_session
from hypothesis import assume, given
from hypothesis import strategies as st
from service_world import events_of

from session_query.history.filtering import text_test
from session_query.messages.filters import Text
from session_query.messages.json import encode

OPERATORS = [
    "错题本 OR 错题 OR wrong-book OR mistakes",
    "NEAR(alpha beta)",
    "NEAR(alpha beta, 5)",
    "alph*",
    '"alpha" NOT gamma',
    "alpha AND beta",
    "alpha OR beta",
    "^beta",
    "{text}: beta",
    "text: beta",
    "text : (beta)",
    "- text: beta",
    "alpha + beta",
    '"alpha',
    "alpha\\",
    "rowid:1",
    "'; DROP TABLE doc; --",
    "ask-codex",
    "-x",
    "a--b",
    "a:b",
    "(alpha",
    "alpha)",
    "alpha,beta",
    "%alpha%",
    "a_b",
    "text = 'alpha'",
]
"""Each of them means something else to a full-text engine than to whoever types it."""

PLAIN = ["alpha beta", "alpha gamma", "beta alpha", "ask codex", "a b", "the alphabet", "x"]


def tokens(text: str) -> list[str]:
    """The words of a text: letters and digits count, a character of Chinese is a word by itself."""
    return re.findall("[0-9a-z]+|[\u4e00-\u9fff]", text.lower())


def holds(text: str, phrase: str) -> bool:
    """Whether the words of the phrase stand in the text, one right after the other."""
    words, wanted = tokens(text), tokens(phrase)
    return any(words[at : at + len(wanted)] == wanted for at in range(len(words)))


async def test_the_operators_of_an_engine_are_words_like_any_other(tmp_path: Path) -> None:
    """R1, R3: a query is one phrase; it stands in a text or it does not."""
    texts = [*PLAIN, *OPERATORS]
    write_session(tmp_path / "store", user_rows(*texts))
    async with service(tmp_path) as query:
        for words in texts:
            found = await events_of(query, "s", words, limit=100)
            assert sorted(found) == [at for at, text in enumerate(texts) if holds(text, words)]


@pytest.mark.parametrize("words", ["---", "-", "***", '"', "''", "()", "::", "😀", "…", "\u200b"])
async def test_a_query_without_a_word_finds_nothing_and_says_why(
    tmp_path: Path, words: str
) -> None:
    """R1: punctuation alone raises nothing and matches nothing."""
    write_session(tmp_path / "store", user_rows(words, f"alpha {words} beta"))
    async with service(tmp_path) as query:
        sessions = await query.search_sessions(words)
        events = await query.search_events("s", words)
        assert (sessions.items, sessions.searchable) == ((), False)
        assert (events.items, events.searchable) == ((), False)
        assert (await query.search_sessions("gamma")).searchable


GLUED = "修改youer服务端的计划v2版, naïveテスト한글abc"


WORDS_IN_GLUED = (
    "youer 服务端 修改youer youer服务端 v2 v2版 的计划v2 naïve テスト naïveテスト 한글 abc ト한"
).split()


@pytest.mark.parametrize("words", WORDS_IN_GLUED)
async def test_a_word_is_found_beside_letters_of_another_script(tmp_path: Path, words: str) -> None:
    """R5: the border between two scripts is the border of a word, on both sides."""
    write_session(tmp_path / "store", user_rows(GLUED, "something else"))
    async with service(tmp_path) as query:
        assert await events_of(query, "s", words) == [0]


@pytest.mark.parametrize("part", ["you", "ouer", "v", "2", "na", "bc"])
async def test_a_part_of_a_word_is_not_found(tmp_path: Path, part: str) -> None:
    """R5: borders are found between scripts, not inside a word."""
    write_session(tmp_path / "store", user_rows(GLUED))
    async with service(tmp_path) as query:
        assert await events_of(query, "s", part) == []


SPELLINGS = ["café", "Ångström", "ñandú", "Đà Nẵng", "が行", "ｶﾞｲﾄﾞ", "한국어", "ệ", "ḍ̇"]


@pytest.mark.parametrize("word", SPELLINGS)
async def test_every_spelling_of_an_accent_finds_every_other(tmp_path: Path, word: str) -> None:
    """R7: a composed and a decomposed letter are one; what is read is what was stored."""
    spellings = [unicodedata.normalize(form, word) for form in ("NFC", "NFD")]
    texts = [f"before {spelling} after" for spelling in spellings]
    write_session(tmp_path / "store", user_rows(*texts))
    async with service(tmp_path) as query:
        for spelling in spellings:
            assert sorted(await events_of(query, "s", spelling)) == [0, 1]
        for seq, text in enumerate(texts):
            (event,) = (await query.read_event("s", seq)).events
            assert encode(text) in event.raw


@given(st.text("ab_%\\.*+?()[]^$|{}- \"'", min_size=1, max_size=6), st.text("ab_%x. ", max_size=12))
def test_a_filter_on_text_takes_every_character_as_it_is(words: str, text: str) -> None:
    """R9: there are no wildcards; only case and the width of white space do not matter."""
    assume(words.strip())
    wanted = " ".join(words.split()) in " ".join(text.split())
    assert text_test(words)(text) == wanted


async def test_no_character_of_a_filter_is_a_wildcard(tmp_path: Path) -> None:
    """R9: through the service, with the characters that LIKE, GLOB and patterns know."""
    texts = [
        "done 100% of it",
        "done 1000 of it",
        "a_b",
        "axb",
        "a.b",
        "a*b",
        "a[b]c",
        "abc",
        "a\\b",
    ]
    write_session(tmp_path / "store", user_rows(*texts))
    async with service(tmp_path) as query:

        async def kept(words: str) -> list[int]:
            return [found.seq for found in await query.filter_events("s", [Text(words)])]

        assert await kept("100%") == [0]
        assert await kept("a_b") == [2]
        assert await kept("a.b") == [4]
        assert await kept("a*b") == [5]
        assert await kept("[b]") == [6]
        assert await kept("a\\b") == [texts.index("a\\b")]
        assert await kept("%") == [0]
