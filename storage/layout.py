"""Where a JSONL store keeps a session: names of projects, session directories and log files.

``<root>/<project>/<encoded session id>/session[.vN].jsonl[.zstd]`` (persistence §3). Names are
counted and escaped by UTF-16 code unit, so that lone surrogates have a name too.
"""

from __future__ import annotations

import re
from typing import Final

from attrs import frozen

NO_CWD: Final = "_no-cwd"
"""The project directory of sessions without a working directory."""

LOCK_NAME: Final = "session.lock"
"""The file in a session directory that its writer locks."""

COMPRESSED: Final = ".zstd"
"""What follows the name of a compressed log."""

_SLUG_UNITS: Final = 251
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")
_SEPARATORS = re.compile(r"[/\\:]+")
_ESCAPE = re.compile(r"~([0-9A-F]{4})")
_LOG_NAME = re.compile(r"session(?:\.v([1-9][0-9]*))?\.jsonl(\.zstd)?")
_FLAT_NAME = re.compile(r".+\.jsonl(\.zstd)?")


@frozen
class LogName:
    """What the name of a log file says."""

    version: int
    compressed: bool


def encode_segment(session_id: str) -> str:
    """The directory name of a session id; different ids have different names.

    Raises:
        ValueError: the id is empty.
    """
    if not session_id:
        raise ValueError("a session id must not be empty")
    if session_id in (".", ".."):
        return "~002E" * len(session_id)
    return _UNSAFE.sub(_escape, session_id)


def decode_segment(name: str) -> str | None:
    """The session id a directory name stands for, or ``None`` where it stands for none."""
    units = _ESCAPE.sub(lambda found: chr(int(found[1], 16)), name)
    session_id = units.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return session_id if session_id and encode_segment(session_id) == name else None


def project_name(cwd: str | None) -> str:
    """The directory name of a working directory; several may share one."""
    if cwd is None:
        return NO_CWD
    slug = _UNSAFE.sub(_escape, _SEPARATORS.sub("-", cwd)).lstrip("-")
    return f"--{(slug or 'root')[:_SLUG_UNITS]}--"


def log_name(version: int, *, suffix: str = "") -> str:
    """The file name of a log of a format; ``suffix`` is empty or ``COMPRESSED``."""
    return (f"session.v{version}.jsonl" if version else "session.jsonl") + suffix


def parse_log_name(name: str) -> LogName | None:
    """What a file name says about the log in it, or ``None`` where it is no log."""
    found = _LOG_NAME.fullmatch(name)
    return LogName(int(found[1] or 0), found[2] is not None) if found else None


def is_flat_log(name: str) -> bool:
    """Whether a file right in a project directory is a log of the oldest, retired layout."""
    return _FLAT_NAME.fullmatch(name) is not None


def _escape(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"~{units[at]:02X}{units[at + 1]:02X}" for at in range(0, len(units), 2))
