"""Following the logs of another agent: what a watcher tells, made into changed sessions.

Whatever directory is listed is watched first, with those above it. A log that grew is looked at
alone; where more than that was touched, everything is, which costs what a sweep does. Where a link
or another disk is in the way, the answer is that nothing can be told.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from attrs import define, field

from .contract import Snapshot, StoreFailed, Sweep
from .files import Files, FileStat
from .told import ToldBySweeps
from .watcher import Untold, Watcher


class Logs(Protocol):
    """A store of logs that nobody else looks at, and that says which directories it lists."""

    def sweep(self) -> Sweep: ...

    def look_again(self, paths: Iterable[str]) -> dict[str, Snapshot] | None:
        """What the sessions in these logs are now; nothing where more than those has changed."""
        ...

    def doubtful(self, paths: Iterable[str] | None = None) -> set[str]:
        """Which of these logs, or of all, may change without being told."""
        ...

    def is_log(self, path: str) -> bool:
        """Whether the last sweep found a log there."""
        ...

    def is_listed_as_before(self, path: str) -> bool:
        """Whether the directory of a path has the names that the last sweep found in it."""
        ...


@define(eq=False)
class FollowedLogs:
    """A root under watch, and the picture of it as of the last ``catch_up``."""

    _watcher: Watcher
    _files: Files
    _root: str
    _state: FileStat = field(init=False)
    """What the root was as it was put under watch."""
    _logs: Logs = field(init=False)
    _paths: dict[int, str] = field(factory=dict, init=False)
    """Directories under watch, by number."""
    _watched: dict[str, int] = field(factory=dict, init=False)
    """Those that the present look has come by."""
    _untold: set[str] = field(factory=set, init=False)
    """Logs that are looked at each time."""
    picture: ToldBySweeps = field(factory=ToldBySweeps, init=False)

    def begin(self, logs: Logs) -> None:
        """Put everything under watch that ``logs`` lists; raises as ``catch_up``."""
        self._state = self._files.stat(self._root)
        self._logs = logs
        self._look()

    def watch(self, path: str) -> None:
        """Watch a directory that is listed next, or where it would be."""
        above = path.rpartition("/")[0]
        if path != self._root:
            self.watch(above)
        if path in self._watched or (path != self._root and above not in self._watched):
            return
        try:
            # The root may be a link; what it leads to is looked at each time.
            number = self._watcher.add(path if path != self._root else f"{path}/.")
            device = self._files.stat(path).device
        except FileNotFoundError:
            return
        except OSError as error:
            raise Untold(f"{path} cannot be watched: {error}") from error
        self._watched[path] = number
        self._paths[number] = path
        if device != self._state.device:
            raise Untold(f"{path} is on another disk than the root")

    def catch_up(self) -> None:
        """See ``Followed``."""
        if not self._is_in_place():
            raise Untold(f"{self._root} is another directory now")
        touched = self._touched() | self._untold
        if not touched:
            return
        logs = {path for path in touched if self._logs.is_log(path)}
        found: dict[str, Snapshot] | None = None
        if all(self._logs.is_listed_as_before(path) for path in touched - logs):
            found = self._logs.look_again(sorted(logs))
        if found is None:
            self._look()
            return
        for session_id, snapshot in found.items():
            self.picture.hold(session_id, snapshot)
        self._untold = (self._untold - logs) | self._logs.doubtful(logs)

    def is_quiet(self) -> bool:
        """See ``Followed``."""
        return self._is_in_place() and self._watcher.is_quiet() and not self._untold

    def close(self) -> None:
        """See ``Followed``."""
        self._watcher.close()

    def _look(self) -> None:
        self._watched = {}
        try:
            self.picture.replace(self._logs.sweep())
        except StoreFailed as error:
            raise Untold(str(error)) from error
        for number in self._paths.keys() - self._watched.values():
            del self._paths[number]
            self._watcher.remove(number)
        self._untold = self._logs.doubtful()

    def _touched(self) -> set[str]:
        """What something has happened to; a directory itself as a nameless entry in it."""
        touched = self._watcher.drain()
        return {
            f"{self._paths[number]}/{name}" for number, name in touched if number in self._paths
        }

    def _is_in_place(self) -> bool:
        return self._files.stat(self._root).is_same_file(self._state)
