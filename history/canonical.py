"""One spelling per JSON value, by which payloads are compared as JavaScript compares them.

Key order does not matter, ``1`` and ``1.0`` are one number, ``true`` and ``1`` are not.
"""

from __future__ import annotations

import msgspec

from ..messages.json import MAX_SAFE_INTEGER, Json, encode

_sorting = msgspec.json.Encoder(order="deterministic")


def canonical(value: Json) -> bytes:
    """A spelling that two values share exactly when they are equal."""
    if not _has_odd_number(value):
        try:
            return _sorting.encode(value)
        except UnicodeEncodeError:
            pass
    return encode(_normal(value))


def same(one: Json, other: Json) -> bool:
    """Whether two JSON values are equal."""
    return canonical(one) == canonical(other)


def _has_odd_number(value: Json) -> bool:
    """Whether a number occurs that may have a second spelling."""
    if isinstance(value, str) or value is None:
        return False
    if isinstance(value, dict):
        return any(map(_has_odd_number, value.values()))
    if isinstance(value, list):
        return any(map(_has_odd_number, value))
    return isinstance(value, float) or abs(value) > MAX_SAFE_INTEGER


def _normal(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _normal(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [_normal(item) for item in value]
    if isinstance(value, float):
        exact = value.is_integer() and abs(value) <= MAX_SAFE_INTEGER
        return int(value) if exact else value
    if type(value) is int and abs(value) > MAX_SAFE_INTEGER:
        return _rounded(value)
    return value


def _rounded(value: int) -> float | str:
    """The double nearest to a large integer; a number beyond all doubles stays as its digits."""
    try:
        return float(value)
    except OverflowError:
        return str(value)
