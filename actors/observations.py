"""Observations: one session as it was at one moment, kept as long as somebody holds it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Literal, Self

from attrs import define, field

from ..history.replay import validate_log
from ..messages.errors import ErrorCode, ReplayError, SessionQueryError, SurfaceError
from ..messages.event import Event
from ..messages.header import SessionHeader
from ..storage.located import located
from .loaded_log import LoadedLog
from .prepared_logs import PreparedLog
from .runtime import nothing


@define(eq=False)
class Observation:
    """A lease on one exact state of a session; ``close`` it, or use it as a context manager.

    What it shows never changes and stays readable afterwards. The lease only keeps a stored log in
    the memory of the service, so that whoever observes the session next does not read it again.
    """

    _log: LoadedLog
    revision: str | None = None
    """The store's revision of a stored session; ``None`` for a live one."""
    _keep: Callable[[], None] = nothing
    _release: Callable[[], None] = nothing
    _closed: bool = field(default=False, init=False)

    @property
    def source(self) -> Literal["live", "prepared"]:
        """``live`` for a session of this service, ``prepared`` for a stored one."""
        return "live" if self._log.live else "prepared"

    @property
    def header(self) -> SessionHeader:
        """What the session is."""
        return self._log.header

    @property
    def inherited_event_count(self) -> int:
        """How many events came from the parent of a fork."""
        return self._log.inherited_event_count

    @property
    def events(self) -> Sequence[Event]:
        """The whole log; a stored one with an open turn ends with in-memory closers."""
        return self._log.events

    @property
    def cursor(self) -> int:
        """The last seq, -1 for a log without events."""
        return len(self._log.events) - 1

    @property
    def left_out(self) -> str | None:
        """Which stored lines are not part of the log and why, if there are any."""
        return self._log.left_out

    def retain(self) -> Observation:
        """Another lease on the same state, independent of this one.

        Raises:
            SessionQueryError: ``ABORTED``; this lease was closed.
        """
        if self._closed:
            raise SessionQueryError(
                ErrorCode.ABORTED,
                f"this observation of session {self.header.id!r} was closed; retain it before",
            )
        self._keep()
        return Observation(self._log, self.revision, self._keep, self._release)

    def close(self) -> None:
        """Give the lease back; again is harmless."""
        if not self._closed:
            self._closed = True
            self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def restore(entry: PreparedLog) -> None:
    """Check a prepared log as a resume would, the first time it is observed.

    Raises:
        ReplayError: it is damaged, its surface included.
        UnsupportedFormat, InvalidJson
    """
    if entry.restored:
        return
    with located(entry.log.location):
        try:
            validate_log(entry.log.header, entry.log.events)
        except SurfaceError as error:
            raise ReplayError(str(error)) from error
    entry.restored = True
