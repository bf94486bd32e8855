"""Which directories of a JSONL store are under watch, and which places were touched in them."""

from __future__ import annotations

from attrs import define, field

from .picture import Key
from .watcher import Watcher


@define(eq=False)
class WatchTree:
    """The watches of one root, by place."""

    _watcher: Watcher
    _root: str
    _numbers: dict[Key, int] = field(factory=dict, init=False)
    _keys: dict[int, tuple[Key, ...]] = field(factory=dict, init=False)
    """Two places share a watch while a renamed directory is known by both of its names."""

    def watch(self, key: Key) -> None:
        """Watch the directory at a place from now on, whichever stood there before.

        Raises:
            Untold, NotADirectoryError, FileNotFoundError, PermissionError: nothing is watched now.
        """
        try:
            number = self._watcher.add("/".join((self._root, *key)))
        except BaseException:
            self.unwatch(key)
            raise
        if self._numbers.get(key) != number:
            self.unwatch(key)
            self._numbers[key] = number
            self._keys[number] = (*self._keys.get(number, ()), key)

    def unwatch(self, key: Key) -> None:
        """Watch a place no longer; harmless where it is not watched."""
        number = self._numbers.pop(key, None)
        if number is None:
            return
        others = tuple(other for other in self._keys[number] if other != key)
        if others:
            self._keys[number] = others
        else:
            del self._keys[number]
            self._watcher.remove(number)

    def touched(self) -> set[Key]:
        """The places where something has happened since the last time.

        Raises:
            Untold: something may be missing.
        """
        touched: set[Key] = set()
        for number, name in self._watcher.drain():
            for key in self._keys.get(number, ()):
                # What lies in a session directory matters only as a part of it.
                touched.add((*key, name) if name and len(key) < 2 else key)
        return touched

    def is_quiet(self) -> bool:
        """Whether nothing has happened since the last time."""
        return self._watcher.is_quiet()

    def close(self) -> None:
        """End all watches."""
        self._watcher.close()
