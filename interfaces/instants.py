"""Points in time as the command line reads and shows them: never without an offset, always UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from .errors import WrongUse

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def parse_instant(option: str, text: str) -> float:
    """The ms since the epoch that ``text`` names.

    Raises:
        WrongUse: it is no date and time with an offset; a date alone means another moment in each
            time zone.
    """
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        instant = None
    if instant is None or instant.tzinfo is None:
        raise WrongUse(
            f"{option} {text!r} is no date and time with an offset;"
            " write it like 2026-03-02T09:14:00Z or 2026-03-02T09:14:00+08:00"
        )
    milliseconds = (instant - _EPOCH) / _MILLISECOND
    return int(milliseconds) if milliseconds.is_integer() else milliseconds


def show_instant(time: int) -> str:
    """A time in ms since the epoch in UTC, to the second; its number where no calendar has it."""
    try:
        instant = _EPOCH + (time // 1000) * timedelta(seconds=1)
    except OverflowError:
        return str(time)
    return instant.isoformat().replace("+00:00", "Z")
