"""News of generations: who waits for one, and the passes that are run for them.

Whoever waits is told at the end of whatever pass comes next. While somebody waits, a commit is
followed by a pass of its own, once more commits have had the time to join it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final

import trio
from attrs import define, field

from ..messages.errors import SessionQueryError
from .watch import Watch, WatchClosed

NEWS_SECONDS: Final = 0.25
"""From a commit to the pass that makes news of it."""

_log = logging.getLogger(__name__)


@define(eq=False)
class GenerationNews:
    """The generations of one index, for those who wait for them."""

    _commits: Watch
    generations: Watch = field(factory=Watch, init=False)
    """The generation as of the end of the last pass."""
    opened: trio.Event = field(factory=trio.Event, init=False)
    """Set once the index is open; no pass is run for news before."""
    _covered: int = field(default=0, init=False)
    """The commits that the newest pass has seen."""
    _waiting: int = field(default=0, init=False)
    _arrival: trio.Event = field(factory=trio.Event, init=False)

    def cover(self) -> None:
        """Say that a pass begins, which sees every commit so far."""
        self._covered = self._commits.value

    async def after(self, generation: int) -> int:
        """Wait for a generation beyond this one, and return the newest.

        Raises:
            WatchClosed: the index has closed.
        """
        self._waiting += 1
        self._arrival.set()
        try:
            return await self.generations.changed(generation)
        finally:
            self._waiting -= 1

    async def run(self, refresh: Callable[[], Awaitable[None]]) -> None:
        """Follow the commits with passes while somebody waits, until the service closes."""
        await self.opened.wait()
        while True:
            await self._arrival.wait()
            try:
                await self._commits.changed(self._covered)
            except WatchClosed:
                return
            await trio.sleep(NEWS_SECONDS)
            if not self._waiting:
                self._arrival = trio.Event()
            elif self._covered < self._commits.value:
                try:
                    await refresh()
                except SessionQueryError as error:
                    _log.warning("no news of generations: %s", error)
