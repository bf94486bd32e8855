"""Zstandard, imported at the first compressed log: an extra, from Python 3.14 on built in."""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from backports.zstd import ZstdDecompressor

_MODULE: Final = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"


class ZstdMissing(Exception):
    """This Python has no Zstandard; the message names the extra that brings it."""


@cache
def _zstd() -> ModuleType:
    try:
        return import_module(_MODULE)
    except ImportError as error:
        raise ZstdMissing(
            f"compressed logs need {_MODULE}: install session-query with its extra 'zstd'"
        ) from error


def require_zstd() -> None:
    """Check that compressed logs can be read and written. Raises ``ZstdMissing``."""
    _zstd()


def compress(text: bytes) -> bytes:
    """One frame with a checksum of its content. Raises ``ZstdMissing``."""
    zstd = _zstd()
    frame: bytes = zstd.compress(text, options={zstd.CompressionParameter.checksum_flag: 1})
    return frame


def decompressor() -> ZstdDecompressor:
    """What decompresses one frame, piece by piece. Raises ``ZstdMissing``."""
    made: ZstdDecompressor = _zstd().ZstdDecompressor()
    return made


def zstd_error() -> type[Exception]:
    """What a decompressor raises. Raises ``ZstdMissing``."""
    kind: type[Exception] = _zstd().ZstdError
    return kind
