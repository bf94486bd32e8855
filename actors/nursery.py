"""A nursery from which a lone exception leaves as itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from types import TracebackType

import trio
from attrs import define, field


@define(eq=False)
class PlainNursery:
    """A nursery whose block raises what was raised in it, not a group around it.

    Trio wraps even a single exception, so that ``except trio.Cancelled`` or ``except ValueError``
    around a library call would never see it. Here one error leaves bare, and so does a cancellation
    that came with no error. Two or more errors still leave as Trio's group: dropping one of them
    would hide it.
    """

    _manager: AbstractAsyncContextManager[trio.Nursery, bool | None] = field(
        factory=trio.open_nursery, init=False
    )

    async def __aenter__(self) -> trio.Nursery:
        return await self._manager.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        try:
            return await self._manager.__aexit__(kind, error, trace)
        except BaseExceptionGroup as group:
            lone = _lone(group)
            if lone is None:
                raise
        if lone is error:
            return False
        # Raised here and not in the handler above, which would chain the group to its own member.
        raise lone


def _lone(group: BaseExceptionGroup[BaseException]) -> BaseException | None:
    leaves = list(_leaves(group))
    errors = [leaf for leaf in leaves if not isinstance(leaf, trio.Cancelled)]
    if not errors:
        return leaves[0]
    return errors[0] if len(errors) == 1 else None


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error
