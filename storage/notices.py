"""Taking notice of changes in a store: what a watcher tells, made into changed sessions.

In a JSONL store a directory is watched first and looked at afterwards, so that nothing falls
between the two. What a watcher cannot tell of, such as the far end of a link, is looked at each
time; where that is more than a session here and there, and where notices were lost, the answer is
that nothing can be told.
"""

from __future__ import annotations

import threading  # noqa: TID251  # one queue of notices, and threads that ask for them
from collections.abc import Callable
from itertools import count
from typing import Final, Protocol

from attrs import define, field

from .catalogue import Catalogue, Found, Place, Refusal, Stored, failed, flat_log
from .contract import Changes, Sweep, UnsupportedLog
from .files import Entry, FileStat, on_same_device
from .large_records import GaveUp, carry_on
from .layout import is_flat_log
from .picture import Key, Picture
from .told import Told
from .watch_tree import WatchTree
from .watcher import Untold, Watchable

_beginnings: Final = count()
"""Tells the tokens of one beginning from those of any other in this process."""


class Followed(Protocol):
    """A store under watch. Only ``close`` raises nothing."""

    @property
    def picture(self) -> Told:
        """What is in the store, as of the last ``catch_up``."""
        ...

    def catch_up(self) -> None:
        """Look at what changed; raises ``Untold``, ``OSError``, ``GaveUp``."""
        ...

    def is_quiet(self) -> bool:
        """Whether ``catch_up`` would look at nothing; never blocks. Raises ``OSError``."""
        ...

    def close(self) -> None:
        """End all watches."""
        ...


@define(eq=False)
class Notices:
    """The notices of one store, for any number of those who hold a token; safe in threads.

    A process that was forked begins for itself.
    """

    _process_id: Callable[[], int]
    _follow: Callable[[], Followed | None]
    """Puts the store under watch, where that can be done; raises as ``catch_up``."""
    _followed: Followed | None = field(default=None, init=False)
    _number: int = field(default=0, init=False)
    """Of the beginning."""
    _lock: threading.Lock = field(factory=threading.Lock, init=False)
    _owner: int | None = field(default=None, init=False)
    """The process that watches."""
    _passing: set[str] = field(factory=set, init=False)
    """Sessions that a sweep saw and nobody else yet: they may be gone before anybody does."""

    def changes(self, token: str | None) -> Changes | None:
        """See ``SessionStore.changes``."""
        with self._own_lock():
            try:
                return self._begun() if token is None else self._since(token)
            except (Untold, OSError):
                self._end()
                return None
            except GaveUp:
                self._end()
                raise

    def seen(self, sweep: Sweep) -> Sweep:
        """Take notice of what a sweep saw, and give it back.

        Nothing waits: who sweeps may keep to itself what others need who hold the lock.
        """
        followed = self._followed
        if followed is not None:
            seen = (snapshot.header.id for snapshot in sweep.snapshots)
            self._passing.update([each for each in seen if not followed.picture.holds(each)])
        return sweep

    def is_quiet(self, token: str) -> bool:
        """See ``SessionStore.is_unchanged``."""
        lock = self._own_lock()
        if not lock.acquire(blocking=False):
            return False
        try:
            followed = self._followed
            if followed is None or self._passing or token != self._token(followed):
                return False
            return followed.is_quiet()
        except OSError:
            return False
        finally:
            lock.release()

    def close(self) -> None:
        """End all watches; again is harmless."""
        with self._own_lock():
            self._end()

    def _own_lock(self) -> threading.Lock:
        process = self._process_id()
        if self._owner not in (None, process):
            # Whoever held the lock as this process was forked does not exist in it.
            self._lock = threading.Lock()
            self._end()
        self._owner = process
        return self._lock

    def _begun(self) -> Changes | None:
        if self._followed is None:
            self._followed = self._follow()
            if self._followed is None:
                return None
            self._number = next(_beginnings)
        self._catch_up(self._followed)
        damaged = self._followed.picture.damaged
        return Changes(self._token(self._followed), frozenset(), frozenset(), damaged)

    def _since(self, token: str) -> Changes | None:
        followed = self._followed
        beginning, _, moment = token.rpartition(":")
        if followed is None or beginning != self._beginning or not moment.isdecimal():
            return None
        self._catch_up(followed)
        return followed.picture.since(int(moment), self._token(followed))

    def _catch_up(self, followed: Followed) -> None:
        followed.catch_up()
        # One by one, since more may be added meanwhile.
        while self._passing:
            followed.picture.miss(self._passing.pop())

    def _token(self, followed: Followed) -> str:
        return f"{self._beginning}:{followed.picture.moment}"

    @property
    def _beginning(self) -> str:
        return f"{self._owner}:{self._number}"

    def _end(self) -> None:
        if self._followed is not None:
            self._followed.close()
            self._followed = None
            self._passing.clear()


def follow_root(catalogue: Catalogue) -> FollowedRoot | None:
    """Put a root under watch and look at it; nothing where its disk does not tell.

    Raises:
        Untold, OSError, GaveUp
    """
    files = catalogue.files
    if not isinstance(files, Watchable):
        return None
    root = files.stat(catalogue.root)
    watcher = files.watcher(catalogue.root)
    if watcher is None:
        return None
    followed = FollowedRoot(catalogue, WatchTree(watcher, catalogue.root), root)
    try:
        followed.begin()
    except BaseException:
        followed.close()
        raise
    return followed


@define(eq=False)
class FollowedRoot:
    """A root under watch, and the picture of it as of the last ``catch_up``."""

    _catalogue: Catalogue
    tree: WatchTree
    _root: FileStat
    """What the root was as it was put under watch."""
    picture: Picture = field(factory=Picture, init=False)
    _projects: dict[str, dict[str, Place]] = field(factory=dict, init=False)
    _untold: set[Key] = field(factory=set, init=False)
    """Places that are looked at each time, because something about them would not be told."""
    _now_ns: int = field(default=0, init=False)

    def begin(self) -> None:
        """Put everything under watch and look at it; raises ``Untold``, ``OSError``, ``GaveUp``."""
        self._now_ns = self._catalogue.files.now_ns()
        self.tree.watch(())
        found = [entry.name for entry in self._catalogue.files.entries(self._catalogue.root)]
        for project in sorted({*self._projects, *found}):
            self._follow_project(project)

    def is_quiet(self) -> bool:
        """Whether ``catch_up`` would look at nothing. Raises ``OSError``."""
        return self._is_in_place() and self.tree.is_quiet() and not self._untold

    def catch_up(self) -> None:
        """Look at what was touched since; raises as ``begin``."""
        files = self._catalogue.files
        if not self._is_in_place():
            raise Untold(f"{self._catalogue.root} is another directory now")
        touched = self.tree.touched() | self._untold
        if not touched:
            return
        if () in touched:
            self.begin()
            return
        self._now_ns = files.now_ns()
        for key in sorted(touched):
            if len(key) == 1:
                self._follow_project(*key)
            elif (key[0],) not in touched and key[0] in self._projects:
                self._follow_name(key)

    def close(self) -> None:
        """End all watches."""
        self.tree.close()

    def _is_in_place(self) -> bool:
        return self._catalogue.files.stat(self._catalogue.root).is_same_file(self._root)

    # -- projects

    def _follow_project(self, project: str) -> None:
        """Watch a project directory and all that is in it, whatever stood there before."""
        key = (project,)
        try:
            self._watch_project(key)
            entries = self._catalogue.files.entries(self._path(key))
        except (FileNotFoundError, NotADirectoryError):
            self._leave_project(project)
            return
        except OSError as error:
            self._leave_project(project)
            self.picture.put(key, failed(project, None, error))
            self._untold.add(key)
            return
        self._untold.discard(key)
        self.picture.put(key, None)
        names = {entry.name for entry in entries}
        for name in [each for each in self._projects.setdefault(project, {}) if each not in names]:
            self._forget((project, name))
        for entry in entries:
            carry_on()
            if entry.is_directory and not entry.is_link:
                self._follow_name((project, entry.name))
            else:
                self._follow_other((project, entry.name), entry)

    def _watch_project(self, key: Key) -> None:
        try:
            self.tree.watch(key)
        except NotADirectoryError:
            found = self._entry(key)
            if found is not None and found.is_link:
                raise Untold(f"{self._path(key)} is a link") from None
            raise
        except PermissionError:
            return  # nor can it be listed, which says so in the words of a sweep
        if self._catalogue.files.stat(self._path(key)).device != self._root.device:
            raise Untold(f"{self._path(key)} is on another disk than the root")

    def _leave_project(self, project: str) -> None:
        for name in self._projects.pop(project, ()):
            self._leave((project, name))
        self._leave((project,))

    # -- what is in them

    def _follow_name(self, key: Key) -> None:
        """Watch a session directory and look at it, whatever stood there before."""
        told = True
        try:
            self.tree.watch(key)
        except FileNotFoundError:
            self._forget(key)
            return
        except NotADirectoryError:
            self._follow_other(key, self._entry(key))
            return
        except PermissionError:
            told = False
        self._look(key, told)

    def _follow_other(self, key: Key, entry: Entry | None) -> None:
        """Look at a name that is no directory of its own."""
        if entry is None:
            self._forget(key)
        elif entry.is_directory:
            self._look(key, told=False)
        else:
            self._place(key)
            self.picture.put(key, flat_log("/".join(key)) if is_flat_log(key[1]) else None)
            self._trust(key, not entry.is_link)

    def _look(self, key: Key, told: bool) -> None:
        place = self._place(key)
        found = self._catalogue.look(place, self._now_ns)
        self.picture.put(key, found)
        self._trust(key, told and self._is_certain(place, found))
        if isinstance(found, Stored) and place.look is not None and not place.look.alone:
            # Giving a log a second name also changes what stands under the first.
            for other in self.picture.holders(found.snapshot.header.id) - self._untold:
                self._look(other, told=False)

    def _is_certain(self, place: Place, found: Found) -> bool:
        """Whether nothing can become of a place that its watch would not tell."""
        if isinstance(found, Refusal) and not isinstance(found.error, UnsupportedLog):
            return False  # it may depend on another place
        if isinstance(found, Stored) and found.snapshot.provisional:
            return False
        look = place.look
        return look is not None and look.alone and on_same_device(look.directory, self._root.packed)

    def _place(self, key: Key) -> Place:
        places = self._projects[key[0]]
        if key[1] not in places:
            places[key[1]] = self._catalogue.place(key[0], key[1])
        return places[key[1]]

    def _trust(self, key: Key, certain: bool) -> None:
        if certain:
            self._untold.discard(key)
        else:
            self._untold.add(key)

    def _forget(self, key: Key) -> None:
        self._projects[key[0]].pop(key[1], None)
        self._leave(key)

    def _leave(self, key: Key) -> None:
        self.tree.unwatch(key)
        self._untold.discard(key)
        self.picture.put(key, None)

    def _entry(self, key: Key) -> Entry | None:
        """What the directory above says of a name in it."""
        above = self._catalogue.files.entries(self._path(key[:-1]))
        return next((entry for entry in above if entry.name == key[-1]), None)

    def _path(self, key: Key) -> str:
        return "/".join((self._catalogue.root, *key))
