"""News of generations: who waits for one, and the passes that are run for them.

Whoever waits is told at the end of whatever pass comes next, or when a search has followed commits
by itself. While somebody waits, a commit is followed by a pass of its own, once more commits have
had the time to join it, and so is a change that the store tells of.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final

import trio
from attrs import define, field

from ..messages.errors import SessionQueryError
from .mailbox import MailboxClosed
from .watch import Watch, WatchClosed

NEWS_SECONDS: Final = 0.25
"""From a commit to the pass that makes news of it."""

_log = logging.getLogger(__name__)


@define(eq=False)
class GenerationNews:
    """The generations of one index, for those who wait for them."""

    _commits: Watch
    generations: Watch = field(factory=Watch, init=False)
    """The generation as of the last pass, or search that followed commits."""
    opened: trio.Event = field(factory=trio.Event, init=False)
    """Set once the index is open; no pass is run for news before."""
    _covered: int = field(default=0, init=False)
    """The commits that the newest pass has seen."""
    _waiting: int = field(default=0, init=False)
    _wanted: trio.Event = field(factory=trio.Event, init=False)
    """Set while somebody waits."""

    @contextmanager
    def covering(self) -> Iterator[None]:
        """A pass, which sees every commit so far unless it is cancelled."""
        seen = self._commits.value
        try:
            yield
        except trio.Cancelled:
            seen = self._covered
            raise
        finally:
            self._covered = seen

    def cover(self, commits: int) -> None:
        """Know that the index holds everything up to this number of commits, without a pass."""
        self._covered = commits

    async def after(self, generation: int) -> int:
        """Wait for a generation beyond this one, and return the newest.

        Raises:
            WatchClosed: the index has closed.
        """
        self._waiting += 1
        self._wanted.set()
        try:
            return await self.generations.changed(generation)
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._wanted = trio.Event()

    async def run(self, refresh: Callable[[], Awaitable[None]]) -> None:
        """Follow the commits with passes while somebody waits, until the service closes."""
        await self.opened.wait()
        while True:
            await self._wanted.wait()
            try:
                await self._commits.changed(self._covered)
            except WatchClosed:
                return
            await trio.sleep(NEWS_SECONDS)
            if self._waiting and self._covered < self._commits.value:
                await _refreshed(refresh)

    async def run_beside(
        self, unseen: Callable[[], Awaitable[int | None]], refresh: Callable[[], Awaitable[None]]
    ) -> None:
        """Follow what the store tells with passes while somebody waits, until cancelled.

        Args:
            unseen: the moment of the newest change that no pass has seen, if there is one.
        """
        await self.opened.wait()
        tried: int | None = None
        while True:
            await self._wanted.wait()
            await trio.sleep(NEWS_SECONDS)
            moment = await unseen() if self._waiting else None
            if moment is not None and moment != tried:
                tried = moment
                await _refreshed(refresh)


async def _refreshed(refresh: Callable[[], Awaitable[None]]) -> None:
    try:
        await refresh()
    except (SessionQueryError, MailboxClosed) as error:
        _log.warning("no news of generations: %s", error)
