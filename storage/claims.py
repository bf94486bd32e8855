"""Which sessions have a writer in this process."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

from attrs import define, field

from .contract import AlreadyOwned, HandleClosed

Owner = TypeVar("Owner")


@define
class Claims(Generic[Owner]):
    """At most one owner an id; safe to use from several threads."""

    _owners: dict[str, Owner] = field(init=False, factory=dict)

    def take(self, session_id: str, owner: Owner) -> None:
        """Make ``owner`` the writer of a session. Raises ``AlreadyOwned`` where it has one."""
        if self._owners.setdefault(session_id, owner) is not owner:
            raise AlreadyOwned(f"session {session_id!r} is open for writing already")

    def release(self, session_id: str, owner: Owner) -> None:
        """Give a session free; harmless where ``owner`` is not its writer."""
        if self._owners.get(session_id) is owner:
            self._owners.pop(session_id, None)

    def owners(self) -> list[Owner]:
        """All writers of this moment."""
        return list(self._owners.values())


class _Flushable(Protocol):
    def flush(self) -> object: ...


def flush_all(writers: Iterable[_Flushable]) -> None:
    """Flush every writer, whatever becomes of the others; one closed meanwhile counts as flushed.

    Raises:
        ExceptionGroup: of the failures.
    """
    failures: list[Exception] = []
    for writer in writers:
        try:
            writer.flush()
        except HandleClosed:
            continue
        except Exception as error:
            failures.append(error)
    if failures:
        raise ExceptionGroup(f"{len(failures)} sessions could not be flushed", failures)
