"""Search cursors: opaque text that names an instance, a request, a generation and an offset.

A cursor is checked, never trusted (search-index §12).
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

import msgspec

from ..messages.errors import ErrorCode, SessionQueryError
from ..messages.json import MAX_SAFE_INTEGER
from .request import SearchRequest

_VERSION: Final = 1


class _Payload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    instance: str
    scope: str
    fingerprint: str
    generation: str
    offset: int


_decoder = msgspec.json.Decoder(_Payload)


def encode_cursor(request: SearchRequest, instance: str, generation: str, offset: int) -> str:
    """The cursor of the page that begins at ``offset``."""
    payload = _Payload(
        _VERSION, instance, request.scope.value, request.fingerprint, generation, offset
    )
    return base64.urlsafe_b64encode(msgspec.json.encode(payload)).rstrip(b"=").decode()


def decode_cursor(request: SearchRequest, instance: str) -> tuple[str, int] | None:
    """The generation and offset of the request's cursor, or ``None`` where it has none.

    Raises:
        SessionQueryError: ``INVALID_CURSOR`` where the text is no cursor of this service for this
            very request.
    """
    if request.cursor is None:
        return None
    payload = _decoded(request.cursor)
    if payload is None or payload.version != _VERSION:
        raise _invalid("is not one that this service gave out")
    if payload.instance != instance:
        raise _invalid("belongs to another run of the service")
    if payload.scope != request.scope.value or payload.fingerprint != request.fingerprint:
        raise _invalid("belongs to another request: repeat the query, filters and limit exactly")
    if not 0 <= payload.offset <= MAX_SAFE_INTEGER:
        raise _invalid(f"holds the offset {payload.offset}, which is out of range")
    return payload.generation, payload.offset


def stale_cursor() -> SessionQueryError:
    """The error of a cursor whose results have changed since."""
    return SessionQueryError(
        ErrorCode.STALE_CURSOR, "the results changed since this cursor was given: search again"
    )


def _decoded(cursor: str) -> _Payload | None:
    try:
        text = cursor.encode("ascii")
        raw = base64.b64decode(text + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
        return _decoder.decode(raw)
    except (UnicodeEncodeError, binascii.Error, msgspec.DecodeError, ValueError):
        return None


def _invalid(reason: str) -> SessionQueryError:
    return SessionQueryError(ErrorCode.INVALID_CURSOR, f"the cursor {reason}")
