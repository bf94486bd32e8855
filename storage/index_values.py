"""How headers, titles and ids stand in the rows of the index."""

from __future__ import annotations

from typing import Any

import attrs
import msgspec

from ..messages.errors import ErrorCode
from ..messages.header import SessionHeader
from ..messages.json import decode, encode
from ..messages.records import SessionTitle, Skipped


def integer(value: object) -> int:
    """A value that SQLite returned, known to be an integer."""
    assert isinstance(value, int)
    return value


def blob(value: object) -> bytes:
    """A value that SQLite returned, known to be bytes."""
    assert isinstance(value, bytes)
    return value


def text(value: object) -> str:
    """A value that SQLite returned, known to be text."""
    assert isinstance(value, str)
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


def decode_header(raw: bytes) -> SessionHeader:
    """The header of a row."""
    return SessionHeader(**_fields(raw))


def encode_title(title: SessionTitle) -> bytes:
    """A title for a row."""
    return encode(attrs.asdict(title))


def decode_title(raw: bytes) -> SessionTitle:
    """The title of a row."""
    fields = _fields(raw)
    return SessionTitle(**{**fields, "message_seqs": tuple(fields["message_seqs"])})


def encode_skipped(skipped: Skipped) -> bytes:
    """A skipped session for a row."""
    return encode(attrs.asdict(skipped))


def decode_skipped(raw: bytes) -> Skipped:
    """The skipped session of a row."""
    fields = _fields(raw)
    header = fields["header"]
    return Skipped(
        **{
            **fields,
            "code": ErrorCode(fields["code"]),
            "header": SessionHeader(**header) if header is not None else None,
        }
    )


def _fields(raw: bytes) -> dict[str, Any]:
    return msgspec.convert(decode(raw), dict[str, Any])
