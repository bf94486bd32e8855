"""Pages gathered up to a limit, from one state of the index."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeVar

from ..messages.errors import ErrorCode, SessionQueryError

PAGE: Final = 100
"""Most hits that the service gives at a time."""


class _Page(Protocol):
    @property
    def items(self) -> tuple[object, ...]: ...
    @property
    def next_cursor(self) -> str | None: ...


PageT = TypeVar("PageT", bound=_Page)
Fetch = Callable[[int, str | None], Awaitable[PageT]]
"""Fetches the page of a size that begins at a cursor."""


async def gather(fetch: Fetch[PageT], limit: int) -> list[PageT]:
    """As many pages as hold ``limit`` hits, or all; at least one. Together they may hold more.

    Where the index changes between two pages, all are fetched once more from the start.
    """
    try:
        return await _gather_once(fetch, limit)
    except SessionQueryError as error:
        if error.code is not ErrorCode.STALE_CURSOR:
            raise
        return await _gather_once(fetch, limit)


async def _gather_once(fetch: Fetch[PageT], limit: int) -> list[PageT]:
    size = min(limit, PAGE)
    pages = [await fetch(size, None)]
    while pages[-1].next_cursor is not None and sum(len(page.items) for page in pages) < limit:
        pages.append(await fetch(size, pages[-1].next_cursor))
    return pages
