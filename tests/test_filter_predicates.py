"""Filters as predicates: each clause by itself, and the literal text clause."""

from __future__ import annotations

import re
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from service_world import refused
from strategies import words

from session_query.history.case_folding import fold_case
from session_query.history.filtering import event_predicates, session_predicate, text_test
from session_query.messages.errors import ErrorCode
from session_query.messages.filters import (
    AvailabilityIn,
    CreatedAt,
    Cwd,
    EventFilter,
    Ids,
    Parent,
    SeqRange,
    SessionFilter,
    SurfaceIn,
    Text,
    TimeRange,
    TypeIn,
    event_filter_from_json,
    session_filter_from_json,
)
from session_query.messages.header import SessionHeader
from session_query.messages.json import Json
from session_query.messages.records import EventRecord, SessionRecord, Surface


def record(
    session_id: str = "s",
    *,
    created_at: int = 100,
    cwd: str | None = "/work",
    parent: str | None = None,
    live: bool = False,
    persisted: bool = True,
) -> SessionRecord:
    header = SessionHeader(session_id, created_at, cwd=cwd, parent_session=parent)
    return SessionRecord(header, live, persisted)


def event(
    seq: int = 5, type: str = "user/message", surface: Surface = Surface.CURRENT
) -> EventRecord:
    return EventRecord("s", seq, type, 1000 + seq, surface)


@pytest.mark.parametrize(
    ("clause", "passes", "fails"),
    [
        (Ids(["s", "t"]), record("t"), record("u")),
        (Cwd(["/work"]), record(), record(cwd="/work/")),
        (Cwd([None, "/x"]), record(cwd=None), record()),
        (Cwd(["/x"]), record(cwd="/x"), record(cwd=None)),
        (CreatedAt(100, 200), record(created_at=100), record(created_at=99)),
        (CreatedAt(100, 200), record(created_at=200), record(created_at=201)),
        (CreatedAt(end=100.5), record(created_at=100), record(created_at=101)),
        (CreatedAt(start=99.5), record(created_at=100), record(created_at=99)),
        (Parent(["p"]), record(parent="p"), record()),
        (Parent([None]), record(), record(parent="p")),
        (AvailabilityIn(["live"]), record(live=True, persisted=False), record()),
        (AvailabilityIn(["persisted"]), record(), record(live=True, persisted=False)),
    ],
)
def test_a_clause_for_sessions_tells_those_it_wants_from_others(
    clause: SessionFilter, passes: SessionRecord, fails: SessionRecord
) -> None:
    wanted = session_predicate([clause])
    assert wanted(passes)
    assert not wanted(fails)


@pytest.mark.parametrize(
    ("clause", "passes", "fails"),
    [
        (SeqRange(5, 5), event(5), event(6)),
        (SeqRange(end=4.5), event(4), event(5)),
        (TimeRange(1005), event(5), event(4)),
        (TypeIn(["a", "b"]), event(type="b"), event(type="c")),
        (SurfaceIn(["shadowed", "log-only"]), event(surface=Surface.LOG_ONLY), event()),
    ],
)
def test_a_clause_for_events_tells_those_it_wants_from_others(
    clause: EventFilter, passes: EventRecord, fails: EventRecord
) -> None:
    wanted, holds = event_predicates([clause])
    assert wanted(passes)
    assert not wanted(fails)
    assert holds("")


def test_no_clause_accepts_everything() -> None:
    wanted, holds = event_predicates([])
    assert session_predicate([])(record()) and wanted(event()) and holds("")


@pytest.mark.parametrize("clause", [Ids([]), Cwd([]), Parent([]), AvailabilityIn([])], ids=str)
def test_an_empty_list_matches_no_session(clause: SessionFilter) -> None:
    assert not session_predicate([clause])(record(live=True))


@pytest.mark.parametrize("clause", [TypeIn([]), SurfaceIn([])], ids=str)
def test_an_empty_list_matches_no_event(clause: EventFilter) -> None:
    assert not event_predicates([clause])[0](event())


def test_clauses_are_anded_and_may_come_twice() -> None:
    wanted = session_predicate([Ids(["s"]), Ids(["s", "t"]), Cwd(["/work"])])
    assert wanted(record("s"))
    assert not wanted(record("t"))
    assert not wanted(record("s", cwd="/x"))


def test_an_open_range_accepts_everything() -> None:
    assert session_predicate([CreatedAt()])(record())
    assert event_predicates([SeqRange(), TimeRange()])[0](event())


@pytest.mark.parametrize(
    "clause",
    [
        {"kind": "created-at", "from": float("nan")},
        {"kind": "created-at", "to": float("inf")},
        {"kind": "created-at", "from": 2, "to": 1},
        {"kind": "created-at", "from": None},
        {"kind": "created-at", "from": True},
        {"kind": "id", "values": "abc"},
        {"kind": "id"},
        {"kind": "availability", "values": ["gone"]},
        {"kind": "nope", "values": []},
        {"values": []},
        [],
        None,
    ],
    ids=str,
)
def test_a_malformed_clause_is_invalid_whatever_there_is_to_filter(clause: Json) -> None:
    with refused(ErrorCode.INVALID_FILTER):
        session_filter_from_json(clause)
    with refused(ErrorCode.INVALID_FILTER):
        event_filter_from_json(clause)


def test_a_clause_of_the_other_kind_is_invalid() -> None:
    with refused(ErrorCode.INVALID_FILTER, "Ids"):
        session_predicate([SeqRange()])
    with refused(ErrorCode.INVALID_FILTER, "SeqRange"):
        event_predicates([Ids([])])


# -- text -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("searched", "text"),
    [
        ("quick brown", "a quick\n\t brown fox"),
        ("quick\u3000brown", "quick brown"),
        ("quick brown", "quick\u2028\ufeffbrown"),
        ("  fox ", "the fox"),
        ("ick bro", "quick brown"),
        ("a.b*(c)[d]\\", "a.b*(c)[d]\\"),
        ("CAFÉ", "café"),
        ("ÄÖ", "äö"),
        ("СЕССИЯ", "сессия"),
        ("ΣΊΣΥΦΟΣ", "Σίσυφος"),
        ("K", "\N{KELVIN SIGN}"),
        ("\N{KELVIN SIGN}", "k"),
        ("\N{LATIN SMALL LETTER LONG S}harp", "SHARP"),
        ("stra\N{LATIN CAPITAL LETTER SHARP S}e", "straße"),
        ("\N{OHM SIGN}", "ω"),
        ("\u1f88", "\u1f80"),
        ("\ufb05", "\ufb06"),
        ("Ꭰ", "ꭰ"),
        ("登录", "请登录"),
        ("\ud800", "a \ud800 b"),
        ("\U0001f600", "ha \U0001f600"),
    ],
)
def test_words_are_found_whatever_their_case_and_the_space_between(
    searched: str, text: str
) -> None:
    assert text_test(searched)(text)


@pytest.mark.parametrize(
    ("searched", "text"),
    [
        ("quick brown", "quickbrown"),
        ("a.b", "axb"),
        ("cafe", "café"),
        ("cafe\u0301", "café"),
        ("strasse", "straße"),
        ("i", "\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}"),
        ("\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}", "i\u0307"),
        ("I", "\N{LATIN SMALL LETTER DOTLESS I}"),
        ("ffi", "\N{LATIN SMALL LIGATURE FFI}"),
        ("a b", "a\x1cb"),
        ("a b", "a\x85b"),
    ],
)
def test_other_words_are_not_found(searched: str, text: str) -> None:
    assert not text_test(searched)(text)


@pytest.mark.parametrize("blank", ["", " ", "\t\n", "\ufeff\u3000"])
def test_blank_words_are_refused_as_the_predicate_is_built(blank: str) -> None:
    with refused(ErrorCode.INVALID_FILTER, "blank"):
        event_predicates([Text(blank)])


def test_characters_that_python_alone_calls_white_space_are_words() -> None:
    assert text_test("\x1c")("a\x1cb")
    assert text_test("\x85")("a\x85b")


def test_each_text_clause_must_hold() -> None:
    _wanted, holds = event_predicates([Text("a"), Text("b")])
    assert holds("b a")
    assert not holds("a")


@given(st.lists(words.filter(lambda word: word.split() == [word] and "\ufeff" not in word)), words)
def test_words_joined_by_any_white_space_are_found_in_any_surroundings(
    parts: list[str], around: str
) -> None:
    if parts:
        text = f"{around}{' '.join(parts).upper()}{around}"
        if len(text) == 2 * len(around) + len(" ".join(parts)):  # no ß became SS
            assert text_test("\n ".join(parts))(text)


@given(st.text(max_size=20))
def test_folding_keeps_every_length_and_folds_once(text: str) -> None:
    folded = fold_case(text)
    assert len(folded) == len(text)
    assert fold_case(folded) == folded


def test_folding_differs_from_python_ignoring_case_in_four_letters_alone() -> None:
    """What this library cannot leave to ``re.IGNORECASE``: i with İ, i with ı, and their images."""
    differing = set()
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        if 0xD800 <= code < 0xE000 or unicodedata.category(character)[0] not in "LMNS":
            continue
        for other in {character.lower()[:1], character.upper()[:1]} - {character}:
            python = re.fullmatch(re.escape(character), other, re.IGNORECASE) is not None
            if python != (fold_case(character) == fold_case(other)):
                differing.add((character, other))
    assert differing == {("İ", "i"), ("ı", "I")}
