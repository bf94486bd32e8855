"""A log as an exact read sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from attrs import frozen

from ..history.cold_read import checked_closers
from ..history.replay import check_header
from ..messages.event import Event
from ..messages.header import SessionHeader
from ..storage.contract import StoredLog
from ..storage.located import located

R = TypeVar("R")


@frozen
class LoadedLog:
    """A live log as of one moment, or a stored one with its in-memory closers."""

    header: SessionHeader
    inherited_event_count: int
    events: Sequence[Event]
    live: bool
    left_out: str | None = None
    location: str = ""
    """Where a stored log is, in the terms of its store."""


def cold_log(stored: StoredLog) -> LoadedLog:
    """Check the header and each event of a stored log by itself, and close its open turn.

    Raises:
        ReplayError, UnsupportedFormat, InvalidJson: one of them is damaged or not understood.
    """
    header, location = stored.snapshot.header, stored.snapshot.location
    with located(location):
        check_header(header)
        events = stored.events + checked_closers(stored.events, header.version)
    return LoadedLog(
        header,
        stored.inherited_event_count,
        events,
        live=False,
        left_out=stored.left_out,
        location=location,
    )


def fold_located(fold: Callable[[LoadedLog], R], log: LoadedLog) -> R:
    """``fold`` of a log; what it finds wrong with the log names the place of the log."""
    with located(log.location):
        return fold(log)
