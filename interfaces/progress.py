"""The bar on standard error while a first index is built."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from ..messages.records import Progress
from .pages import Screen


def is_wanted(index: str) -> bool:
    """Whether the index is still to be built and somebody watches standard error."""
    return sys.stderr.isatty() and not os.path.exists(index)


@contextmanager
def bar() -> Iterator[Callable[[Progress], None]]:
    """Show a bar, gone afterwards, and give the callback that moves it."""
    columns = (
        TextColumn("indexing"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("sessions"),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Screen(sys.stderr), transient=True) as shown:
        task = shown.add_task("indexing", total=None)

        def move(progress: Progress) -> None:
            shown.update(task, completed=progress.sessions_done, total=progress.sessions_total)

        yield move
