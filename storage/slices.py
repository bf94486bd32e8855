"""The arguments of handle operations, checked alike by every store."""

from __future__ import annotations

from ..messages.event import Event
from ..messages.json import is_safe_integer


def check_bounds(offset: int, length: int | None) -> int | None:
    """The end of the slice that ``read(offset, length)`` asks for.

    Raises:
        ValueError: a bound is no whole number ≥ 0.
    """
    if not is_safe_integer(offset):
        raise ValueError(f"offset must be a whole number ≥ 0, got {offset!r}")
    if length is None:
        return None
    if not is_safe_integer(length):
        raise ValueError(f"length must be a whole number ≥ 0, got {length!r}")
    return offset + length


def check_batch(events: tuple[Event, ...], next_seq: int) -> None:
    """Check that a batch continues a log.

    Raises:
        ValueError: naming the first seq that is not the next one.
    """
    for due, event in enumerate(events, next_seq):
        if event.seq != due:
            raise ValueError(f"event with seq {event.seq} where seq {due} is due")
