"""The bar on standard error while much is indexed, and what is said where that is broken off."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import trio
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from ..actors.service import SessionQuery
from ..messages.records import Progress
from .pages import Screen, tell

_WORTH_A_BAR: Final = 10
"""Sessions; fewer are read before a bar could be seen."""


async def bring_up_to_date(service: SessionQuery) -> None:
    """Index what has changed where somebody watches, who may break it off; else the search does."""
    if not sys.stderr.isatty():
        return
    with bar() as move:
        try:
            await service.refresh(progress=move)
        except trio.Cancelled:  # only whoever watches breaks it off
            tell("interrupted; what is indexed stays, and the next search goes on from there")
            raise


@contextmanager
def bar() -> Iterator[Callable[[Progress], None]]:
    """Give the callback that shows and moves a bar, which is gone afterwards."""
    columns = (
        TextColumn("indexing"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("sessions"),
        TimeRemainingColumn(),
    )
    shown = Bar(*columns, console=Screen(sys.stderr), transient=True)
    task = shown.add_task("indexing", total=None)

    def move(progress: Progress) -> None:
        if progress.sessions_total >= _WORTH_A_BAR:
            shown.start()
            shown.update(task, completed=progress.sessions_done, total=progress.sessions_total)

    try:
        yield move
    finally:
        shown.stop()
