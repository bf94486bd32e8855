"""Lossless JSON: what a payload may hold, and how it is encoded, decoded and walked."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Final, NoReturn, TypeAlias

import msgspec

from .errors import InvalidJson

Json: TypeAlias = dict[str, "Json"] | list["Json"] | str | int | float | bool | None

MAX_DEPTH: Final = 256
"""Levels of nesting a payload may have; a scalar has none."""

MAX_SAFE_INTEGER: Final = 2**53 - 1
"""The largest integer that every JSON reader keeps exact."""

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()


def encode(value: object) -> bytes:
    """Encode a JSON value compactly; a lone surrogate becomes its ``\\uXXXX`` escape."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode()


def decode(raw: bytes | str) -> Json:
    """Decode one JSON value; lone surrogate escapes are kept, integers of any length are exact.

    Raises:
        InvalidJson: not JSON, NaN or infinite, or nested too deeply to decode.
    """
    try:
        return _decoder.decode(raw)  # type: ignore[no-any-return]
    except (msgspec.DecodeError, RecursionError, UnicodeError) as strict:
        try:
            return json.loads(  # type: ignore[no-any-return]
                raw, parse_float=_finite, parse_constant=_refuse_constant
            )
        except (ValueError, RecursionError):
            raise InvalidJson(f"not JSON: {strict}") from strict


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text} is too large")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def encode_lossless(value: object, *, root: str = "data") -> bytes:
    """Encode a payload that every JSON reader gives back exactly.

    Accepted are exact ``dict`` (``str`` keys), ``list``, ``str``, ``bool``, ``None``, ``int``
    within ±(2^53-1) and finite ``float`` other than -0.0, at most ``MAX_DEPTH`` levels deep.

    Raises:
        InvalidJson: naming the path of the first value that is none of these.
    """
    pending: list[tuple[object, str, int]] = [(value, root, 0)]
    while pending:
        item, path, depth = pending.pop()
        kind = type(item)
        if kind is str or item is None or kind is bool:
            continue
        if kind is int:
            assert isinstance(item, int)
            if abs(item) > MAX_SAFE_INTEGER:
                raise InvalidJson(f"{path}: {item} is outside ±(2^53-1)")
        elif kind is float:
            assert isinstance(item, float)
            if not math.isfinite(item) or (item == 0 and math.copysign(1, item) < 0):
                raise InvalidJson(f"{path}: {item!r} has no exact JSON form")
        elif kind is dict or kind is list:
            if depth == MAX_DEPTH:
                raise InvalidJson(f"{path}: nested more than {MAX_DEPTH} levels deep")
            pending.extend(_members(item, path, depth + 1))
        else:
            raise InvalidJson(f"{path}: {kind.__name__} is not a JSON type")
    return encode(value)


def _members(container: object, path: str, depth: int) -> Iterator[tuple[object, str, int]]:
    if isinstance(container, dict):
        for key, item in container.items():
            if type(key) is not str:
                raise InvalidJson(f"{path}: key {key!r} is not a string")
            yield item, f"{path}.{key}", depth
    elif isinstance(container, list):
        for index, item in enumerate(container):
            yield item, f"{path}[{index}]", depth


def child(value: Json, key: str) -> Json:
    """The value under ``key`` in an object, or ``None`` where it is missing or this is no object.

    (``member`` for one step, in half the time: a fold asks several times for every event.)
    """
    return value.get(key) if isinstance(value, dict) else None


def member(value: Json, *path: str) -> Json:
    """The value at ``path`` inside nested objects, or ``None`` where any step is missing."""
    for key in path:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def text_member(value: Json, *path: str) -> str:
    """The string at ``path``, or the empty string where it is missing or no string."""
    return text_or_empty(member(value, *path))


def text_or_empty(value: Json) -> str:
    """A string as it is, and the empty string for anything else."""
    return value if isinstance(value, str) else ""


def elements(value: Json) -> list[Json]:
    """The items of a JSON array, or an empty list for anything else."""
    return value if isinstance(value, list) else []


def is_safe_integer(value: object, *, minimum: int = 0) -> bool:
    """Whether ``value`` is an exact JSON integer of at least ``minimum`` (a ``bool`` is none)."""
    return type(value) is int and minimum <= value <= MAX_SAFE_INTEGER
