"""What a service says of sessions that it cannot answer from."""

from __future__ import annotations

from collections.abc import Iterable

from ..messages.errors import ErrorCode, SessionError, SessionQueryError
from ..messages.records import Skipped
from ..storage.contract import Damaged
from ..storage.log_slices import error_code
from .mailbox import MailboxClosed


def source_conflict(session_id: str) -> SessionQueryError:
    """The error of a live session whose stored namesake is another session."""
    return SessionQueryError(
        ErrorCode.SOURCE_CONFLICT,
        f"session {session_id!r} is live with another header than it is stored with",
    )


def skipped_of(damaged: Damaged) -> Skipped:
    """What an answer says of something that the store could not read as a session."""
    return Skipped(damaged.path, damaged.session_id, damaged.code, damaged.message, damaged.header)


def refuse_damage(found: Iterable[Damaged]) -> None:
    """Raise the first damage that makes a whole listing unusable where nothing is left out."""
    for damaged in found:
        if damaged.conflict:
            raise SessionQueryError(damaged.code, damaged.message)


def service_closed(refusal: SessionError) -> SessionQueryError:
    """The error of a read that an actor takes no more, which says nothing of any session."""
    return SessionQueryError(ErrorCode.ABORTED, f"the query service has closed: {refusal}")


def query_error(session_id: str, error: SessionError) -> SessionQueryError:
    """The query error of a failure to read one session; one that is such an error already stays."""
    if isinstance(error, SessionQueryError):
        return error
    if isinstance(error, MailboxClosed):
        return service_closed(error)
    code = error_code(error)
    if code is ErrorCode.SESSION_NOT_FOUND:
        return SessionQueryError(code, f"session {session_id!r} is neither live nor stored")
    return SessionQueryError(code, f"session {session_id!r}: {error}")
