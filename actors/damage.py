"""What a service says of sessions that it cannot answer from."""

from __future__ import annotations

from ..messages.errors import ErrorCode, SessionQueryError
from ..messages.records import Skipped
from ..storage.contract import Damaged, Sweep


def source_conflict(session_id: str) -> SessionQueryError:
    """The error of a live session whose stored namesake is another session."""
    return SessionQueryError(
        ErrorCode.SOURCE_CONFLICT,
        f"session {session_id!r} is live with another header than it is stored with",
    )


def skipped_of(damaged: Damaged) -> Skipped:
    """What an answer says of something that the store could not read as a session."""
    return Skipped(damaged.path, damaged.session_id, damaged.code, damaged.message, damaged.header)


def refuse_damage(sweep: Sweep) -> None:
    """Raise the first damage that makes a whole listing unusable where nothing is left out."""
    for damaged in sweep.damaged:
        if damaged.conflict:
            raise SessionQueryError(damaged.code, damaged.message)
