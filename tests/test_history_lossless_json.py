"""Lossless JSON: what may enter a log (session-model.md §3, reference-tests.md C)."""

from __future__ import annotations

import datetime
import math
from collections import OrderedDict

import pytest
from hypothesis import given, settings
from strategies import json_values

from session_query.messages.errors import InvalidJson
from session_query.messages.json import MAX_DEPTH, Json, decode, encode_lossless


class Text(str):
    """A subclass, which would come back as something else."""


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        -math.inf,
        -0.0,
        2**53,
        -(2**53),
        (1, 2),
        {1, 2},
        b"bytes",
        Text("text"),
        OrderedDict(a=1),
        {1: "key"},
        {None: "key"},
        datetime.date(2026, 1, 1),
        object(),
        len,
    ],
)
def test_a_value_outside_json_is_refused_with_its_path(value: object) -> None:
    with pytest.raises(InvalidJson, match=r"^data\.a\[1\]"):
        encode_lossless({"a": [0, value]})


@given(json_values)
@settings(max_examples=100)
def test_an_accepted_value_comes_back_equal(value: Json) -> None:
    back = decode(encode_lossless(value))
    assert repr(back) == repr(value)


def test_a_shared_value_is_fine_and_a_cycle_is_too_deep() -> None:
    shared: list[object] = [1]
    assert decode(encode_lossless([shared, shared])) == [[1], [1]]
    shared.append(shared)
    with pytest.raises(InvalidJson, match=f"more than {MAX_DEPTH} levels"):
        encode_lossless(shared)


def test_nesting_is_bounded_by_the_limit_and_not_by_the_call_stack() -> None:
    value: object = None
    for _ in range(MAX_DEPTH):
        value = [value]
    assert encode_lossless(value).count(b"[") == MAX_DEPTH
    for _ in range(100_000):
        value = [value]
    with pytest.raises(InvalidJson, match=f"more than {MAX_DEPTH} levels"):
        encode_lossless(value)


def test_lone_surrogates_are_kept() -> None:
    assert decode(encode_lossless({"a\ud800": "\udc00"})) == {"a\ud800": "\udc00"}
