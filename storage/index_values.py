"""How headers, titles and ids stand in the rows of the index."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, TypeVar

import attrs
import msgspec

from ..messages.errors import ErrorCode
from ..messages.header import SessionHeader
from ..messages.json import decode, encode
from ..messages.records import SessionTitle, Skipped

KEPT_HEADERS: Final = 4_096
"""Headers that stay decoded: the same sessions are found again and again."""

_T = TypeVar("_T")


class Garbled(ValueError):
    """A row holds what was never written there."""


def integer(value: object) -> int:
    """A value of a row that is to be an integer, or else the row is ``Garbled``."""
    return _checked(value, int)


def blob(value: object) -> bytes:
    """A value of a row that is to be bytes."""
    return _checked(value, bytes)


def text(value: object) -> str:
    """A value of a row that is to be text."""
    return _checked(value, str)


def _checked(value: object, kind: type[_T]) -> _T:
    if not isinstance(value, kind):
        raise Garbled(f"a row holds {type(value).__name__} in the place of {kind.__name__}")
    return value


def key(text: str) -> bytes:
    """Text as it is compared in SQL: any Python string, in the order of its code points."""
    return text.encode("utf-8", "surrogatepass")


def optional_key(text: str | None) -> bytes | None:
    """``key``, with SQL's NULL for ``None``."""
    return None if text is None else key(text)


def text_of(raw: bytes) -> str:
    """The string behind a ``key``."""
    return raw.decode("utf-8", "surrogatepass")


def encode_header(header: SessionHeader) -> bytes:
    """A header for a row."""
    return encode(attrs.asdict(header))


@lru_cache(KEPT_HEADERS)
def decode_header(raw: bytes) -> SessionHeader:
    """The header of a row."""
    return _decoded(raw, lambda fields: SessionHeader(**fields))


def encode_title(title: SessionTitle) -> bytes:
    """A title for a row."""
    return encode(attrs.asdict(title))


def decode_title(raw: bytes) -> SessionTitle:
    """The title of a row."""
    return _decoded(
        raw,
        lambda fields: SessionTitle(**{**fields, "message_seqs": tuple(fields["message_seqs"])}),
    )


def encode_skipped(skipped: Skipped) -> bytes:
    """A skipped session for a row."""
    return encode(attrs.asdict(skipped))


def decode_skipped(raw: bytes) -> Skipped:
    """The skipped session of a row."""
    return _decoded(raw, _skipped)


def _skipped(fields: dict[str, Any]) -> Skipped:
    header = fields["header"]
    return Skipped(
        **{
            **fields,
            "code": ErrorCode(fields["code"]),
            "header": SessionHeader(**header) if header is not None else None,
        }
    )


def _decoded(raw: bytes, build: Callable[[dict[str, Any]], _T]) -> _T:
    try:
        return build(msgspec.convert(decode(raw), dict[str, Any]))
    except Exception as error:
        # Whatever is wrong with it, what we wrote can be decoded.
        raise Garbled(f"a row cannot be decoded: {error}") from error
