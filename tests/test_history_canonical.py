"""One spelling per JSON value: equal values share it, others do not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from session_query.history.canonical import canonical, same
from session_query.messages.json import MAX_SAFE_INTEGER, Json

whole = st.integers(-MAX_SAFE_INTEGER, MAX_SAFE_INTEGER)
scalars = st.none() | st.booleans() | whole | st.text(":,[1.e-0é\ud800", max_size=6)
values: st.SearchStrategy[Json] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=8,
)


def spelled_otherwise(value: Json) -> Json:
    """The same value with its keys the other way round and whole numbers as floats."""
    if isinstance(value, dict):
        return {key: spelled_otherwise(value[key]) for key in reversed(value)}
    if isinstance(value, list):
        return [spelled_otherwise(item) for item in value]
    return float(value) if type(value) is int else value


@given(values)
def test_key_order_and_the_form_of_a_number_make_no_difference(value: Json) -> None:
    assert canonical(value) == canonical(spelled_otherwise(value))


@given(values, values)
def test_only_equal_values_share_a_spelling(one: Json, other: Json) -> None:
    # ``repr`` tells true from 1, which are equal in Python.
    assert same(one, other) == (repr(ordered(one)) == repr(ordered(other)))


def ordered(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: ordered(value[key]) for key in sorted(value)}
    return [ordered(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([1], [1.0]),
        ({"a": -3}, {"a": -3.0}),
        (2**53 + 1, float(2**53)),
        ([0], [-0.0]),
        (10**22, 1e22),
        ({"a": ":1.5", "b": 2}, {"b": 2.0, "a": ":1.5"}),
    ],
)
def test_numbers_that_are_one_double_are_one_number(one: Json, other: Json) -> None:
    assert same(one, other)


@pytest.mark.parametrize(("one", "other"), [("1", "1.0"), (1, True), ([1, 5], [1.5]), (":1", 1)])
def test_what_looks_like_a_number_is_none(one: Json, other: Json) -> None:
    assert not same(one, other)
