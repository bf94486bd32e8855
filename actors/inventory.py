"""The inventory: what the bound store holds, kept from one look at it to the next.

A store that can tell what changed is asked for that alone, others are swept. A look begins after
the call that asks for it, so that what it finds is at least as fresh; looks at one store take
turns, so that none undoes a newer one.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import trio
from attrs import define, field, frozen

from ..storage.contract import Damaged, SessionStore, Snapshot, StoreError, Sweep
from ..storage.journal import Journal
from .binding import Mounted
from .holding import holding
from .listing import StoredListing
from .nursery import PlainNursery
from .reader_pool import LogReaderPool

VERIFY_SECONDS: Final = 60.0
"""Between two sweeps that find what a store did not tell."""

RENEW_SECONDS: Final = 1.0
"""From the end of what a store tells to the next attempt to have it tell."""

_log = logging.getLogger(__name__)


@frozen
class News:
    """What some sessions are now, after a store told that they changed."""

    sessions: dict[str, Snapshot | None]
    """``None`` for those that are gone."""
    damaged: tuple[Damaged, ...]
    token: str | None


@define(eq=False)
class Stock:
    """What one mounted store holds, as of the last look; changed by its ``Inventory`` alone."""

    mounted: Mounted
    sessions: dict[str, Snapshot] = field(factory=dict, init=False)
    """Every readable session, by id."""
    damaged: tuple[Damaged, ...] = field(default=(), init=False)
    doubted: frozenset[Damaged] = field(default=frozenset(), init=False)
    """What a sweep found damaged, until the store tells of it too: what only that sweep failed to
    read has not changed, and would not be told of again."""
    journal: Journal = field(factory=Journal, init=False)
    """The ids of sessions that changed."""
    token: str | None = field(default=None, init=False)
    """Where the store continues to tell what changes; without one it is swept."""
    looking: trio.Lock = field(factory=trio.Lock, init=False)
    looked: trio.Event = field(factory=trio.Event, init=False)
    silent: trio.Event = field(factory=trio.Event, init=False)
    """Set when the store stops telling; replaced when it begins."""
    _swept: tuple[Snapshot, ...] | None = field(default=None, init=False)
    """The sweep whose sessions these still are."""
    _listing: StoredListing | None = field(default=None, init=False)

    @property
    def listing(self) -> StoredListing:
        """The sessions in order."""
        if self._listing is None:
            self._listing = StoredListing(found.header for found in self.sessions.values())
        return self._listing

    def replace(self, sweep: Sweep) -> None:
        """Hold what a sweep found, and nothing else."""
        self.damaged, self.doubted = sweep.damaged, frozenset(sweep.damaged)
        # An unchanged store gives the very snapshots that it gave before: equal at a glance.
        if sweep.snapshots != self._swept:
            self.update(dict(self.differing(sweep)))
            self._swept = sweep.snapshots
        self.looked.set()

    def differing(self, sweep: Sweep) -> Iterator[tuple[str, Snapshot | None]]:
        """The sessions that a sweep found otherwise, as it found them."""
        found = {snapshot.header.id: snapshot for snapshot in sweep.snapshots}
        for session_id, snapshot in found.items():
            known = self.sessions.get(session_id)
            if known is not snapshot and known != snapshot:
                yield session_id, snapshot
        for session_id in self.sessions:
            if session_id not in found:
                yield session_id, None

    def update(self, sessions: dict[str, Snapshot | None]) -> bool:
        """Hold these sessions as they are now; whether any was otherwise before."""
        differed = False
        for session_id, snapshot in sessions.items():
            before = self.sessions.get(session_id)
            if snapshot is not None:
                self.sessions[session_id] = snapshot
            elif before is not None:
                del self.sessions[session_id]
            differed = differed or snapshot != before
            self.journal.note(session_id)
            self._swept = None
            if self._listing is not None:
                if before is not None:
                    self._listing.drop(before.header)
                if snapshot is not None:
                    self._listing.put(snapshot.header)
        return differed

    def stop(self) -> None:
        """Take no token for good any more."""
        self.token = None
        self.silent.set()


@define(eq=False)
class Inventory:
    """See the module's text. While ``following`` it, stores are asked to tell what changes."""

    _pool: LogReaderPool
    _stock: Stock = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._stock = Stock(self._pool.binding.mounted)

    async def look(self) -> Stock:
        """What the store that is bound now holds, at least as fresh as this call.

        Raises:
            StoreFailed: it cannot be looked at.
        """
        stock = self._present()
        async with holding(stock.looking):
            if not await self._ask(stock):
                stock.replace(await self._pool.sweep(stock.mounted))
        return stock

    def tells(self, mounted: Mounted) -> bool:
        """Whether a look at this store costs what changed, and no more."""
        stock = self._stock
        return stock.mounted.epoch == mounted.epoch and stock.token is not None

    def is_unchanged(self, epoch: int, moment: int) -> bool:
        """Whether a look would certainly find what was held at a moment; never blocks."""
        stock = self._present()
        store, token = stock.mounted.store, stock.token
        if (stock.mounted.epoch, stock.journal.number) != (epoch, moment):
            return False
        if store is None:
            return True
        return token is not None and not stock.doubted and store.is_unchanged(token)

    async def told(self) -> Stock | None:
        """As ``look``, but ``None`` where that would take a sweep."""
        stock = self._present()
        async with holding(stock.looking):
            return stock if await self._ask(stock) else None

    def _present(self) -> Stock:
        mounted = self._pool.binding.mounted
        if self._stock.mounted.epoch != mounted.epoch:
            self._stock = Stock(mounted)
        return self._stock

    async def _ask(self, stock: Stock) -> bool:
        """Let the store tell what changed; false where a sweep has to."""
        token = stock.token
        if token is None:
            return False
        if self.is_unchanged(stock.mounted.epoch, stock.journal.number):
            return True
        try:
            news = await self._pool.visit(partial(_news, token), stock.mounted)
        except StoreError:
            # Of a session that changed just now, and whose damage only a sweep describes.
            return False
        if news is None:
            stock.stop()
            return False
        if not stock.doubted.issubset(news.damaged):
            return False
        if news.sessions:
            stock.update(news.sessions)
        stock.damaged, stock.token = news.damaged, news.token
        stock.doubted = frozenset()
        return True

    # -- having stores tell -------------------------------------------------------------------

    async def follow(self) -> None:
        """Have each store tell from the first look at it on, as far as it can; until cancelled."""
        while True:
            stock = self._present()
            async with PlainNursery() as nursery:
                nursery.start_soon(self._follow, stock)
                await self._pool.binding.moves.changed(stock.mounted.epoch)
                nursery.cancel_scope.cancel(reason="another store is bound")

    async def _follow(self, stock: Stock) -> None:
        if stock.mounted.store is None:
            return
        await stock.looked.wait()
        try:
            while True:
                try:
                    await (self._begin if stock.token is None else self._verify)(stock)
                except StoreError as error:
                    _log.warning("the store cannot be looked at in the background: %s", error)
                with trio.move_on_after(VERIFY_SECONDS):
                    await stock.silent.wait()
                    await trio.sleep(RENEW_SECONDS)
        finally:
            stock.stop()
            with trio.CancelScope(shield=True):
                await self._pool.runtime.call(stock.mounted.store.unwatch)

    async def _begin(self, stock: Stock) -> None:
        began = await self._pool.visit(_begin, stock.mounted)
        if began is None:
            return
        async with holding(stock.looking):
            stock.replace(await self._pool.sweep(stock.mounted))
            stock.silent, stock.token = trio.Event(), began

    async def _verify(self, stock: Stock) -> None:
        """Sweep beside the looks; where something was not told, have the store begin anew."""
        sweep = await self._pool.sweep(stock.mounted)
        async with holding(stock.looking):
            if not await self._ask(stock):
                return
            # What differs may have changed since the sweep.
            suspects = dict(stock.differing(sweep))
            now = await self._pool.visit(partial(_stat, suspects), stock.mounted)
            if not stock.update(now) and set(stock.damaged) == set(sweep.damaged):
                return
            _log.info("a store did not tell of every change, and is asked to begin anew")
            stock.replace(await self._pool.sweep(stock.mounted))
            stock.stop()
            await self._pool.visit(_end, stock.mounted)


@asynccontextmanager
async def following(inventory: Inventory) -> AsyncIterator[None]:
    """Have stores tell what changes for the length of the block."""
    async with PlainNursery() as nursery:
        nursery.start_soon(inventory.follow, name="inventory")
        yield
        nursery.cancel_scope.cancel(reason="the service has closed")


def _begin(store: SessionStore) -> str | None:
    began = store.changes(None)
    return began.token if began is not None else None


def _end(store: SessionStore) -> None:
    store.unwatch()


def _news(token: str, store: SessionStore) -> News | None:
    changes = store.changes(token)
    if changes is None:
        return None
    gone: dict[str, Snapshot | None] = dict.fromkeys(sorted(changes.gone))
    now = _stat(sorted(changes.changed), store)
    return News({**gone, **now}, changes.damaged, changes.token)


def _stat(session_ids: Iterable[str], store: SessionStore) -> dict[str, Snapshot | None]:
    return {session_id: store.stat(session_id) for session_id in session_ids}
