"""Where the command line finds a store and keeps its index."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final

from ..messages.config import MEMORY, Tokenizer
from .errors import Unusable, WrongUse

STORE_VARIABLE: Final = "SESSION_QUERY_STORE"
"""The environment variable that names the store where ``--store`` does not."""

_DIGITS: Final = 16
"""Hexadecimal digits of a store's path that name its index."""


def checked_store(given: str | None) -> str:
    """The directory of the store.

    Raises:
        WrongUse: none was named.
        Unusable: it is absent, no directory, or cannot be looked at.
    """
    if given is None:
        raise WrongUse(f"which store? Say --store DIR or set {STORE_VARIABLE}")
    if not given.strip() or "\0" in given:
        raise WrongUse(f"the store {given!r} names no folder; say --store DIR")
    try:
        with os.scandir(given):
            return given
    except FileNotFoundError as error:
        raise Unusable(
            f"there is no store at {given!r}; --store takes an existing folder"
        ) from error
    except NotADirectoryError as error:
        raise Unusable(
            f"{given!r} is a file; --store takes the folder that holds the sessions"
        ) from error
    except OSError as error:
        raise Unusable(f"the store {given!r} cannot be read: {error.strerror}") from error


def index_file(given: str | None, store: str, tokenizer: Tokenizer) -> str:
    """The index file: the named one, or this store's own in the user's cache directory.

    Raises:
        WrongUse: an empty name was given.
        Unusable: there is no cache directory.
    """
    if given is not None:
        if not given.strip() or "\0" in given:
            raise WrongUse(f"--index {given!r} names no file")
        if given == MEMORY:
            return given
        inside = os.path.commonpath([os.path.realpath(given), os.path.realpath(store)])
        if inside == os.path.realpath(store):
            raise WrongUse(f"--index {given!r} lies inside the store, which is never written to")
        return given
    name = hashlib.sha256(os.fsencode(os.path.realpath(store))).hexdigest()[:_DIGITS]
    return str(_cache_directory() / f"{name}-{tokenizer}.db")


def _cache_directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        base = os.path.join(os.path.expanduser("~"), ".cache")
    if not os.path.isabs(base):
        raise Unusable("there is no home directory to keep the index in; say --index FILE")
    return Path(base, "session-query")
