"""What a store tells of its changes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from session_query.storage.contract import SessionStore

S = TypeVar("S", bound=SessionStore)


@contextmanager
def watched(store: S) -> Iterator[S]:
    """A store that takes no more notice of changes behind the block."""
    try:
        yield store
    finally:
        store.unwatch()


def begun(store: SessionStore) -> str:
    changes = store.changes(None)
    assert changes is not None
    return changes.token


def told(store: SessionStore, token: str) -> tuple[set[str], set[str], str]:
    """What changed, what is gone, and the next token."""
    changes = store.changes(token)
    assert changes is not None
    return set(changes.changed), set(changes.gone), changes.token
