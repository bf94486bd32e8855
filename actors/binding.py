"""Which store the service reads from; it can be exchanged while the service runs."""

from __future__ import annotations

from attrs import define, field, frozen

from ..storage.contract import SessionStore
from .watch import Watch


@frozen(eq=False)
class Mounted:
    """What is bound from one change of the binding to the next."""

    store: SessionStore | None
    epoch: int
    """How often the binding had changed before."""


@define(eq=False)
class StoreBinding:
    """The bound store, or none, and how often that has changed.

    Whoever reads more than once keeps what was ``mounted`` as it began, so that all of it is of one
    store, and compares the ``epoch`` afterwards where what is newer would be better.
    """

    store: SessionStore | None = None
    moves: Watch = field(factory=Watch, init=False)
    """How often the binding has changed, for those who wait for it."""

    @property
    def epoch(self) -> int:
        """How often the binding has changed."""
        return self.moves.value

    @property
    def mounted(self) -> Mounted:
        """What is bound now."""
        return Mounted(self.store, self.epoch)

    def mount(self, store: SessionStore) -> None:
        """Bind ``store`` in place of the one that was bound, if any."""
        self.store = store
        self.moves.advance()

    def unmount(self) -> None:
        """Bind no store."""
        self.store = None
        self.moves.advance()
