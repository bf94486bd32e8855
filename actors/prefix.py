"""An immutable view of the beginning of a list that only grows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TypeVar, final, overload

T = TypeVar("T")


@final
class Prefix(Sequence[T]):
    """The items that an append-only list held when the view was made; O(1) to make.

    The list may grow afterwards, the view does not. Slices are tuples.
    """

    __slots__ = ("_items", "_length")

    def __init__(self, items: list[T]) -> None:
        self._items = items
        self._length = len(items)

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._length)
            # Below zero a stop means "before the first item", which a slice cannot say.
            return tuple(self._items[start : None if stop < 0 else stop : step])
        if not -self._length <= index < self._length:
            raise IndexError(f"index {index} is outside a view of {self._length} items")
        return self._items[index if index >= 0 else index + self._length]

    def __iter__(self) -> Iterator[T]:
        return islice(self._items, self._length)

    def __repr__(self) -> str:
        return f"<Prefix of {self._length} items>"
