"""Keeping the index's write-ahead log short, beside whatever is written and read meanwhile."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final

import trio
from attrs import define, field

from ..messages.errors import SessionQueryError
from ..storage.index import SearchIndex
from ..storage.index_file import IndexDamaged
from .lane import WriterLane
from .runtime import Runtime

HOLD_SECONDS: Final = 1.0
"""How long a pass waits for readers that keep the log from beginning anew."""

_RETRY_SECONDS: Final = 0.02

_log = logging.getLogger(__name__)


@define(eq=False)
class LogKeeper:
    """Copies the log into the index file whenever it is long; ``run`` does it."""

    _runtime: Runtime
    _mend: Callable[[int, IndexDamaged], Awaitable[None]]
    """Told of damage that was found, and in which incarnation of the index."""
    _long: trio.Event = field(factory=trio.Event, init=False)
    _index: SearchIndex | None = field(default=None, init=False)

    def mind(self, index: SearchIndex) -> None:
        """Look how long the log is, after something was written."""
        if index.log.is_long:
            self._index = index
            self._long.set()

    async def run(self) -> None:
        """Copy until cancelled. What goes wrong is left for the next time."""
        while True:
            await self._long.wait()
            self._long = trio.Event()
            assert self._index is not None
            await self._copy(self._index)

    async def _copy(self, index: SearchIndex) -> None:
        incarnation = index.incarnation
        try:
            try:
                await self._runtime.call(index.copy_log)
            except IndexDamaged as damage:
                await self._mend(incarnation, damage)
        except SessionQueryError as error:
            _log.warning("the log of the index is left as it is: %s", error)

    async def wait_for_readers(self, lane: WriterLane) -> None:
        """Wait before writing where readers keep a log from beginning anew that is far too long.

        Readers that overlap let it go once nothing is written; one that stays is not waited for
        again before the log has doubled.
        """
        log = lane.index.log
        if not log.is_held:
            return
        deadline = trio.current_time() + HOLD_SECONDS
        while not await lane.call(lane.index.restart_log):
            if trio.current_time() >= deadline:
                log.bear()
                _log.warning("somebody reads the index and keeps %d pages of its log", log.pages)
                return
            await trio.sleep(_RETRY_SECONDS)
