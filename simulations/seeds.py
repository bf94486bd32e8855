"""Seeds from the command line, or, where none is given, from the version of what is tested.

A continuous integration that runs the same command at each commit tries new seeds each time, and
whoever checks that commit out tries the same ones.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from hashlib import blake2b
from importlib.metadata import version
from itertools import count
from typing import Final

COMMIT_VARIABLE: Final = "SESSION_QUERY_COMMIT"
"""Names the commit where the files are a copy of a checkout."""

DEFAULT_COUNT: Final = 100
_DIGITS: Final = 9
_COMMIT_DIGITS: Final = 40


def parse_seed(text: str) -> int:
    """A seed: an integer, or the 40 digits of a commit id taken as a number.

    Raises:
        ValueError: neither of both.
    """
    try:
        return int(text, 16) if len(text) == _COMMIT_DIGITS else int(text)
    except ValueError:
        raise ValueError(f"a seed is an integer or a commit id, got {text!r}") from None


def parse_seeds(text: str) -> range:
    """``"10:20"`` are ten seeds, from the first up to the last, which is left out.

    Raises:
        ValueError: it is no range, or one that holds none.
    """
    first, colon, last = text.partition(":")
    if not colon:
        raise ValueError(f"seeds are FIRST:LAST, got {text!r}")
    seeds = range(parse_seed(first), parse_seed(last))
    if not seeds:
        raise ValueError(f"no seed lies in {text!r}")
    return seeds


def fresh_seeds(number: int | None = DEFAULT_COUNT) -> tuple[str, Iterable[int]]:
    """What names this state of the project, and so many seeds made of it; endless for ``None``."""
    source = _state()
    digest = int.from_bytes(blake2b(source.encode(), digest_size=8).digest(), "big")
    first = digest % 10**_DIGITS
    return source, count(first) if number is None else range(first, first + number)


def _state() -> str:
    """The commit that is checked out where we run, or the version where that is no checkout."""
    named = os.environ.get(COMMIT_VARIABLE)
    if named:
        return f"commit {named}"
    command = ["git", "-c", "safe.directory=*", "rev-parse", "HEAD"]
    try:
        found = subprocess.run(command, capture_output=True, check=True, text=True)
        return f"commit {found.stdout.strip()}"
    except (OSError, subprocess.CalledProcessError):
        pass
    return f"version {version('session-query')}"
