"""The errors this library raises on purpose: one base class, stable codes."""

from __future__ import annotations

from enum import StrEnum


class ErrorCode(StrEnum):
    """The closed set of codes of the query service (founding document, section on errors)."""

    ABORTED = "SESSION_QUERY_ABORTED"
    CORRUPT_SESSION = "SESSION_QUERY_CORRUPT_SESSION"
    EVENT_NOT_FOUND = "SESSION_QUERY_EVENT_NOT_FOUND"
    INDEX_FAILED = "SESSION_QUERY_INDEX_FAILED"
    INVALID_CONFIG = "SESSION_QUERY_INVALID_CONFIG"
    INVALID_CURSOR = "SESSION_QUERY_INVALID_CURSOR"
    INVALID_FILTER = "SESSION_QUERY_INVALID_FILTER"
    INVALID_LIMIT = "SESSION_QUERY_INVALID_LIMIT"
    INVALID_LINEAGE = "SESSION_QUERY_INVALID_LINEAGE"
    INVALID_QUERY = "SESSION_QUERY_INVALID_QUERY"
    INVALID_SURFACE = "SESSION_QUERY_INVALID_SURFACE"
    INVALID_WINDOW = "SESSION_QUERY_INVALID_WINDOW"
    PERSISTENCE_FAILED = "SESSION_QUERY_PERSISTENCE_FAILED"
    SEARCH_DISABLED = "SESSION_QUERY_SEARCH_DISABLED"
    SESSION_NOT_FOUND = "SESSION_QUERY_SESSION_NOT_FOUND"
    SOURCE_CONFLICT = "SESSION_QUERY_SOURCE_CONFLICT"
    STALE_CURSOR = "SESSION_QUERY_STALE_CURSOR"


class LiveErrorCode(StrEnum):
    """Why a live session could not be created, resumed, forked or written to."""

    ALREADY_EXISTS = "SESSION_ALREADY_EXISTS"
    NOT_FOUND = "SESSION_NOT_FOUND"
    NOT_LIVE = "SESSION_NOT_LIVE"
    INVALID_BOUNDARY = "INVALID_BOUNDARY"
    OPEN_TURN = "OPEN_TURN"
    INVALID_HEADER = "INVALID_HEADER"
    INVALID_DRAFT = "INVALID_DRAFT"
    NOT_STORED = "SESSION_NOT_STORED"


class SessionError(Exception):
    """Base class of every error this library raises on purpose."""


class SessionQueryError(SessionError):
    """A query was refused or failed; ``code`` says which kind, the message what to change."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class LiveSessionError(SessionError):
    """A live session refused an operation; its log is as it was before the call.

    ``NOT_STORED`` is the exception to the second half: the events stay in the session, in order,
    and the next flush tries again.
    """

    def __init__(self, code: LiveErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class InvalidJson(SessionError, ValueError):
    """A value is outside lossless JSON; the message begins with the path of the value."""


class SurfaceError(SessionError, ValueError):
    """An event breaks a rule of the surface fold; the state is as it was before the event."""


class ReplayError(SessionError, ValueError):
    """A log is damaged: an event or a header breaks a rule that every valid log keeps."""


class UnsupportedFormat(SessionError, ValueError):
    """A log is intact but not readable by this version: a newer format or an unknown event."""
