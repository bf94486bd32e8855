"""Which store the service reads from; it can be exchanged while the service runs."""

from __future__ import annotations

from attrs import define, field

from ..storage.contract import SessionStore


@define(eq=False)
class StoreBinding:
    """The bound store, or none, and how often that has changed.

    Whoever works on several reads of one store keeps the ``epoch`` and compares it afterwards.
    """

    store: SessionStore | None = None
    epoch: int = field(default=0, init=False)

    def mount(self, store: SessionStore) -> None:
        """Bind ``store`` in place of the one that was bound, if any."""
        self.store = store
        self.epoch += 1

    def unmount(self) -> None:
        """Bind no store."""
        self.store = None
        self.epoch += 1
