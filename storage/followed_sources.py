"""Following several stores: what each of them tells, made into changed sessions of all.

A source that does not tell is swept each time, and asked again. Where only sessions that are known
became otherwise, they alone are looked at; everything else may give sessions other ids.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from attrs import define, field

from .contract import Changes, Damaged, SessionStore, Snapshot, StoreError, StoreFailed, Sweep
from .told import ToldBySweeps
from .watcher import Untold


@define(eq=False)
class FollowedSources:
    """The sources of a store, and the picture of them as of the last ``catch_up``."""

    _sources: Mapping[str, SessionStore]
    _merge: Callable[[Mapping[str, Sweep | StoreFailed]], Sweep]
    """The sweeps of all sources as one; raises ``StoreFailed``."""
    _named: Callable[[str, Snapshot], Snapshot]
    """A session of a source under its id among all, as the latest merge has it."""
    _tokens: dict[str, str] = field(factory=dict, init=False)
    """Of the sources that tell."""
    _sessions: dict[str, dict[str, Snapshot]] = field(factory=dict, init=False)
    _damaged: dict[str, tuple[Damaged, ...]] = field(factory=dict, init=False)
    _failed: dict[str, StoreFailed] = field(factory=dict, init=False)
    """What became of the sources that could not be swept."""
    picture: ToldBySweeps = field(factory=ToldBySweeps, init=False)

    def begin(self) -> bool:
        """Have the sources tell from now on; whether any does. Raises as ``catch_up``."""
        for name in self._sources:
            self._begin(name)
        if self._tokens:
            self._merge_all()
        return bool(self._tokens)

    def catch_up(self) -> None:
        """See ``Followed``."""
        grown: list[tuple[str, Snapshot]] = []
        merge = False
        for name in self._sources:
            token = self._tokens.get(name)
            if token is not None and self._sources[name].is_unchanged(token):
                continue
            known = self._news(name, token) if token is not None else None
            if known is None:
                merge |= self._begin(name)
            else:
                grown += [(name, snapshot) for snapshot in known]
        if not self._tokens:
            raise Untold("no source tells what changes")
        if merge:
            self._merge_all()
        for name, snapshot in grown:
            named = self._named(name, snapshot)
            self.picture.hold(named.header.id, named)

    def is_quiet(self) -> bool:
        """See ``Followed``."""
        tokens = self._tokens
        return len(tokens) == len(self._sources) and all(
            self._sources[name].is_unchanged(token) for name, token in tokens.items()
        )

    def close(self) -> None:
        """See ``Followed``."""
        for store in self._sources.values():
            store.unwatch()

    def _news(self, name: str, token: str) -> list[Snapshot] | None:
        """Known sessions of a source that are otherwise now; nothing where more has changed."""
        store, sessions = self._sources[name], self._sessions[name]
        try:
            changes = store.changes(token)
            if changes is None or not self._is_growth(name, changes):
                return None
            found = [store.stat(session_id) for session_id in sorted(changes.changed)]
        except StoreError:
            return None
        now = [snapshot for snapshot in found if snapshot is not None]
        if len(now) < len(found):
            return None
        self._tokens[name] = changes.token
        sessions.update((snapshot.header.id, snapshot) for snapshot in now)
        return now

    def _is_growth(self, name: str, changes: Changes) -> bool:
        sessions = self._sessions[name]
        return (
            not changes.gone
            and changes.changed <= sessions.keys()
            and set(changes.damaged) == set(self._damaged[name])
        )

    def _begin(self, name: str) -> bool:
        """Sweep a source, and have it tell from before that on; whether it is otherwise now."""
        store = self._sources[name]
        before = self._swept(name)
        self._tokens.pop(name, None)
        try:
            began = store.changes(None)
            if began is not None:
                self._tokens[name] = began.token
            swept = store.sweep()
        except StoreError as error:
            self._tokens.pop(name, None)
            failure = error if isinstance(error, StoreFailed) else StoreFailed(str(error))
            self._failed[name] = failure
            return not isinstance(before, StoreFailed) or str(before) != str(failure)
        self._failed.pop(name, None)
        self._damaged[name] = swept.damaged
        self._sessions[name] = {found.header.id: found for found in swept.snapshots}
        return before != swept or any(found.provisional for found in swept.snapshots)

    def _swept(self, name: str) -> Sweep | StoreFailed:
        if name in self._failed:
            return self._failed[name]
        sessions = self._sessions.get(name, {})
        return Sweep(tuple(sessions.values()), self._damaged.get(name, ()))

    def _merge_all(self) -> None:
        try:
            self.picture.replace(self._merge({name: self._swept(name) for name in self._sources}))
        except StoreFailed as error:
            raise Untold(str(error)) from error
