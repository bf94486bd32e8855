"""Where the command line finds a store and keeps its index."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ..messages.config import MEMORY, Tokenizer
from .errors import Unusable, WrongUse

STORE_VARIABLE: Final = "SESSION_QUERY_STORE"
"""The environment variable that names the store where ``--store`` does not."""

_DIGITS: Final = 16
"""Hexadecimal digits, made of the paths of stores, that name their index."""


def checked_store(given: str) -> str:
    """The directory of the store.

    Raises:
        WrongUse: it is no name.
        Unusable: it is absent, no directory, or cannot be looked at.
    """
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


def index_file(given: str | None, roots: Sequence[str], tokenizer: Tokenizer) -> str:
    """The index file: the named one, or that of these stores in the user's cache directory.

    Raises:
        WrongUse: an empty name was given.
        Unusable: there is no cache directory.
    """
    if given is not None:
        if not given.strip() or "\0" in given:
            raise WrongUse(f"--index {given!r} names no file")
        if given == MEMORY:
            return given
        if _is_inside(given, roots):
            raise WrongUse(f"--index {given!r} lies inside the store, which is never written to")
        return given
    names = b"\0".join(os.fsencode(os.path.realpath(root)) for root in roots)
    name = hashlib.sha256(names).hexdigest()[:_DIGITS]
    return str(_cache_directory() / f"{name}-{tokenizer}.db")


def output_file(given: str, roots: Sequence[str]) -> str:
    """The file that an archive is written to.

    Raises:
        WrongUse: no file is named, or one inside the store.
        Unusable: what is named is a folder or a device, or would be in no folder.
    """
    if not os.path.basename(given).strip() or "\0" in given:
        raise WrongUse(f"--output {given!r} names no file")
    if _is_inside(given, roots):
        raise WrongUse(f"--output {given!r} lies inside the store, which is never written to")
    if os.path.exists(given) and not os.path.isfile(given):
        raise Unusable(f"{given!r} is there and is no file; --output takes the file to write")
    folder = os.path.dirname(given) or "."
    if not os.path.isdir(folder):
        raise Unusable(f"there is no folder {folder!r} to write the file to")
    return given


def _is_inside(path: str, roots: Sequence[str]) -> bool:
    real = os.path.realpath(path)
    return any(os.path.commonpath([real, root]) == root for root in map(os.path.realpath, roots))


def _cache_directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        base = os.path.join(os.path.expanduser("~"), ".cache")
    if not os.path.isabs(base):
        raise Unusable("there is no home directory to keep the index in; say --index FILE")
    return Path(base, "session-query")
