"""What changes in a store while somebody watches: generations and the sessions behind them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import trio
from attrs import frozen

from ..actors.service import SessionQuery


@frozen
class Change:
    """A new generation and the sessions that it is news of."""

    generation: int
    sessions: tuple[str, ...]
    """Ids; none of those that are gone."""


async def changes(
    service: SessionQuery, every: float, still_there: Callable[[], object]
) -> AsyncIterator[Change]:
    """The present generation, then each next one; the store is looked at ``every`` so many seconds.

    ``still_there`` is called before each look and raises where the store has gone: to the service a
    missing folder is an empty store.

    Raises:
        SessionQueryError: the store or the index cannot be read.
    """
    seen = await service.refresh()
    yield Change(seen, ())
    while True:
        await trio.sleep(every)
        still_there()
        generation = await service.refresh()
        if generation > seen:
            yield Change(generation, await service.changed_sessions(seen))
            seen = generation
