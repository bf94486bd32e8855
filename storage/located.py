"""Errors about what a log holds, told with the place of the log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..messages.errors import InvalidJson, ReplayError, SurfaceError, UnsupportedFormat


@contextmanager
def located(place: str) -> Iterator[None]:
    """Name ``place`` in what the block raises about a header or an event.

    Those who check events do not know where they are stored. Nothing is added where ``place`` is
    empty.
    """
    try:
        yield
    except (InvalidJson, ReplayError, SurfaceError, UnsupportedFormat) as error:
        if not place:
            raise
        raise type(error)(f"{place}: {error}") from error
