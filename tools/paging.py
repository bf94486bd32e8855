"""All pages of a search, up to the number of hits that are shown."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar

from attrs import frozen

from ..messages.errors import ErrorCode
from ..messages.records import Skipped
from .definition import ToolError

Item = TypeVar("Item", covariant=True)
T = TypeVar("T")


class Page(Protocol[Item]):
    """A page of a search of either kind."""

    @property
    def items(self) -> tuple[Item, ...]: ...
    @property
    def next_cursor(self) -> str | None: ...
    @property
    def skipped(self) -> tuple[Skipped, ...]: ...
    @property
    def searchable(self) -> bool: ...


@frozen
class Collected(Generic[T]):
    """What the pages of one search held."""

    items: tuple[T, ...]
    capped: bool
    """Whether at least one more hit would have been accepted."""
    searchable: bool = True
    skipped: tuple[Skipped, ...] = ()
    """What the last page left out."""


async def collect(
    page: Callable[[str | None], Awaitable[Page[T]]], accepts: Callable[[T], bool], most: int
) -> Collected[T]:
    """The first ``most`` accepted hits; once more from the start where the history has changed.

    Raises:
        ToolError: ``STALE_CURSOR`` where it changes again; ``INVALID_CURSOR`` where the pages run
            in a circle; whatever ``page`` raises.
    """
    try:
        return await _collect(page, accepts, most)
    except ToolError as error:
        if error.code != ErrorCode.STALE_CURSOR:
            raise
    return await _collect(page, accepts, most)


async def _collect(
    page: Callable[[str | None], Awaitable[Page[T]]], accepts: Callable[[T], bool], most: int
) -> Collected[T]:
    collected: list[T] = []
    seen: set[str] = set()
    cursor: str | None = None
    while True:
        found = await page(cursor)
        for item in filter(accepts, found.items):
            if len(collected) == most:
                return Collected(tuple(collected), True, found.searchable, found.skipped)
            collected.append(item)
        cursor = found.next_cursor
        if cursor is None:
            return Collected(tuple(collected), False, found.searchable, found.skipped)
        if cursor in seen:
            raise ToolError(
                ErrorCode.INVALID_CURSOR,
                "The search gave the same page twice and was ended. Search again.",
            )
        seen.add(cursor)
