"""The simulated watcher tells what the kernel's does, and loses what the kernel's loses."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Protocol

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from session_query.simulations.disk import NO_FAULTS, DiskFaults, SimulatedDisk
from session_query.simulations.medium import Medium
from session_query.storage.files import Files, OpenFile, OsFiles
from session_query.storage.jsonl import JsonlStore
from session_query.storage.watcher import Untold, Watchable, Watcher

REAL = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")


class Disk(Files, Watchable, Protocol):
    """A disk that others change as well."""

    def rename(self, source: str, target: str) -> None: ...
    def remove_directory(self, path: str) -> None: ...


class RealDisk(OsFiles):
    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)


def simulated(faults: DiskFaults = NO_FAULTS, seed: int = 0) -> SimulatedDisk:
    times = count(1_700_000_000_000_000_000, 5_000_000)
    medium = Medium(tells=True)
    disk = SimulatedDisk(medium, random.Random(seed), lambda: next(times), faults=faults)
    disk.make_directory("/d")
    return disk


@pytest.fixture(params=[pytest.param("real", marks=REAL), "simulated"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Disk, str]:
    """A disk, and an empty directory on it."""
    return (RealDisk(), str(tmp_path)) if request.param == "real" else (simulated(), "/d")


@pytest.fixture
def watcher(place: tuple[Disk, str]) -> Iterator[Watcher]:
    watcher = open_on(*place)
    yield watcher
    watcher.close()


def open_on(disk: Disk, root: str) -> Watcher:
    watcher = disk.watcher(root)
    assert watcher is not None
    return watcher


def write(disk: Files, path: str, data: bytes = b"x") -> None:
    with disk.create(path) as file:
        file.append(data)


def told(watcher: Watcher) -> list[tuple[int, str]]:
    return list(watcher.drain())


# -- alike ----------------------------------------------------------------------------------------


def test_a_new_file_is_told_when_it_is_created_written_and_closed(
    place: tuple[Disk, str], watcher: Watcher
) -> None:
    disk, root = place
    number = watcher.add(root)
    with disk.create(f"{root}/a") as file:
        assert told(watcher) == [(number, "a")]
        file.append(b"x")
        assert told(watcher) == [(number, "a")]
        assert watcher.is_quiet()
        file.truncate(0)
        assert told(watcher) == [(number, "a")]
    assert not watcher.is_quiet()
    assert told(watcher) == [(number, "a")]


def test_nothing_is_told_of_what_was_done_before_the_watch_began(
    place: tuple[Disk, str], watcher: Watcher
) -> None:
    disk, root = place
    disk.make_directory(f"{root}/sub")
    watcher.add(root)
    write(disk, f"{root}/sub/a")
    watcher.add(f"{root}/sub")
    assert told(watcher) == []


def test_a_move_is_told_where_it_begins_and_where_it_ends(
    place: tuple[Disk, str], watcher: Watcher
) -> None:
    disk, root = place
    for name in ("left", "right"):
        disk.make_directory(f"{root}/{name}")
    write(disk, f"{root}/left/a")
    left, right = watcher.add(f"{root}/left"), watcher.add(f"{root}/right")
    disk.rename(f"{root}/left/a", f"{root}/right/b")
    assert told(watcher) == [(left, "a"), (right, "b")]


def test_writing_to_an_open_file_is_told_under_the_name_it_was_moved_to(
    place: tuple[Disk, str], watcher: Watcher
) -> None:
    disk, root = place
    with disk.create(f"{root}/a") as file:
        disk.rename(f"{root}/a", f"{root}/b")
        number = watcher.add(root)
        file.append(b"x")
        assert told(watcher) == [(number, "b")]
        disk.unlink(f"{root}/b")
        told(watcher)
        file.append(b"y")
        assert told(watcher) == [(number, "b")]


def test_writing_under_one_name_is_not_told_where_the_other_one_stands(
    place: tuple[Disk, str], watcher: Watcher
) -> None:
    disk, root = place
    disk.make_directory(f"{root}/sub")
    write(disk, f"{root}/a")
    disk.link(f"{root}/a", f"{root}/sub/a")
    watcher.add(f"{root}/sub")
    with disk.open_appending(f"{root}/a") as file:
        file.append(b"x")
    assert told(watcher) == []


def test_a_moved_directory_keeps_its_watch_and_its_number(
    place: tuple[Disk, str], watcher: Watcher
) -> None:
    disk, root = place
    disk.make_directory(f"{root}/a")
    number = watcher.add(f"{root}/a")
    disk.rename(f"{root}/a", f"{root}/b")
    assert told(watcher) == []
    write(disk, f"{root}/b/file")
    assert set(told(watcher)) == {(number, "file")}
    assert watcher.add(f"{root}/b") == number


def test_a_removed_directory_ends_its_watch_and_says_so(
    place: tuple[Disk, str], watcher: Watcher
) -> None:
    disk, root = place
    disk.make_directory(f"{root}/a")
    number = watcher.add(f"{root}/a")
    disk.remove_directory(f"{root}/a")
    assert told(watcher) == [(number, "")]
    disk.make_directory(f"{root}/a")
    write(disk, f"{root}/a/file")
    assert told(watcher) == []
    assert watcher.add(f"{root}/a") != number


def test_two_watchers_are_told_each(place: tuple[Disk, str], watcher: Watcher) -> None:
    disk, root = place
    second = open_on(disk, root)
    watcher.add(root)
    second.add(root)
    disk.make_directory(f"{root}/a")
    watcher.close()
    assert [name for _, name in second.drain()] == ["a"]
    second.close()


def test_only_a_directory_that_is_there_can_be_watched(
    place: tuple[Disk, str], watcher: Watcher
) -> None:
    disk, root = place
    write(disk, f"{root}/a")
    with pytest.raises(FileNotFoundError):
        watcher.add(f"{root}/none")
    with pytest.raises(NotADirectoryError):
        watcher.add(f"{root}/a")


def test_a_closed_watcher_watches_nothing_more(place: tuple[Disk, str], watcher: Watcher) -> None:
    watcher.close()
    watcher.close()
    with pytest.raises(ValueError, match="closed"):
        watcher.add(place[1])


@pytest.mark.parametrize("bound", [pytest.param(None, marks=REAL), 4])
def test_a_full_queue_tells_what_it_holds_and_that_the_rest_is_lost(
    bound: int | None, tmp_path: Path
) -> None:
    disk, root = (
        (RealDisk(), str(tmp_path))
        if bound is None
        else (simulated(DiskFaults(notices=bound)), "/d")
    )
    size = bound or int(Path("/proc/sys/fs/inotify/max_queued_events").read_text(encoding="ascii"))
    watcher = open_on(disk, root)
    with disk.create(f"{root}/a") as a, disk.create(f"{root}/b") as b:
        number = watcher.add(root)
        for turn in range(size + 3):
            (a, b)[turn % 2].append(b"x")
        drained = until_lost(watcher)
        assert drained[:3] == [(number, "a"), (number, "b"), (number, "a")]
        assert len(drained) <= size
    watcher.close()


def until_lost(watcher: Watcher) -> list[tuple[int, str]]:
    drained = []
    with pytest.raises(Untold, match="lost"):
        for notice in watcher.drain():
            drained.append(notice)  # what comes before the error is wanted
    return drained


NAMES = st.sampled_from(["a", "b"])
PATHS = st.lists(NAMES, min_size=1, max_size=2).map(lambda names: "/" + "/".join(names))

Step = Callable[[Disk, str, Watcher, "dict[int, OpenFile]"], object]


def changing(step: Callable[[Disk, str], object]) -> Step:
    return lambda disk, root, _watcher, _files: step(disk, root)


def opening(step: Callable[[Disk, str], OpenFile], slot: int) -> Step:
    def run(disk: Disk, root: str, _watcher: Watcher, files: dict[int, OpenFile]) -> object:
        file = step(disk, root)
        if slot in files:
            files.pop(slot).close()
        files[slot] = file
        return "open"

    return run


def writing(step: Callable[[OpenFile], object], slot: int) -> Step:
    return lambda _disk, _root, _watcher, files: step(files[slot]) if slot in files else None


def closing(slot: int) -> Step:
    def run(_disk: Disk, _root: str, _watcher: Watcher, files: dict[int, OpenFile]) -> None:
        if slot in files:
            files.pop(slot).close()

    return run


def watching(step: Callable[[Watcher, str], object]) -> Step:
    return lambda _disk, root, watcher, _files: step(watcher, root)


def steps() -> st.SearchStrategy[Step]:
    slots = st.integers(0, 1)
    two = st.tuples(PATHS, PATHS)
    return st.one_of(
        st.builds(lambda p: watching(lambda w, r: w.add(r + p)), PATHS),
        st.builds(lambda n: watching(lambda w, _r: w.remove(n)), st.integers(1, 4)),
        st.just(watching(lambda w, _r: list(w.drain()))),
        st.just(watching(lambda w, _r: w.is_quiet())),
        st.builds(lambda p: changing(lambda d, r: d.make_directory(r + p)), PATHS),
        st.builds(lambda p: changing(lambda d, r: d.remove_directory(r + p)), PATHS),
        st.builds(lambda p: changing(lambda d, r: d.unlink(r + p)), PATHS),
        st.builds(lambda pq: changing(lambda d, r: d.link(r + pq[0], r + pq[1])), two),
        st.builds(lambda pq: changing(lambda d, r: d.rename(r + pq[0], r + pq[1])), two),
        st.builds(lambda p, n: opening(lambda d, r: d.create(r + p), n), PATHS, slots),
        st.builds(lambda p, n: opening(lambda d, r: d.open_appending(r + p), n), PATHS, slots),
        st.builds(lambda p, n: opening(lambda d, r: d.lock(r + p), n), PATHS, slots),
        st.builds(lambda n: writing(lambda f: f.append(b"x"), n), slots),
        st.builds(lambda n: writing(lambda f: f.truncate(0), n), slots),
        st.builds(closing, slots),
    )


def answer(
    step: Step, disk: Disk, root: str, watcher: Watcher, files: dict[int, OpenFile]
) -> object:
    try:
        return step(disk, root, watcher, files)
    except OSError as error:
        return error.errno


@REAL
@given(script=st.lists(steps(), max_size=40))
@settings(max_examples=200)
def test_any_changes_are_told_as_the_kernel_tells_them(
    script: list[Step], tmp_path_factory: pytest.TempPathFactory
) -> None:
    real, ours = (RealDisk(), str(tmp_path_factory.mktemp("d"))), (simulated(), "/d")
    watchers = [open_on(*place) for place in (real, ours)]
    files: tuple[dict[int, OpenFile], ...] = ({}, {})
    try:
        assert watchers[0].add(real[1]) == watchers[1].add(ours[1])
        for step in script:
            expected = answer(step, *real, watchers[0], files[0])
            assert answer(step, *ours, watchers[1], files[1]) == expected
        assert told(watchers[1]) == told(watchers[0])
    finally:
        for file in files[0].values():
            file.close()
        watchers[0].close()


# -- faults, and what only the simulated one does -------------------------------------------------


def test_watches_beyond_the_limit_are_refused_until_others_end() -> None:
    disk = simulated(DiskFaults(watches=1))
    first, second = open_on(disk, "/d"), open_on(disk, "/d")
    first.add("/d")
    first.add("/d")
    with pytest.raises(Untold, match="too many"):
        second.add("/")
    first.close()
    second.add("/")


def test_watching_is_refused_where_it_is_to() -> None:
    disk = simulated()
    watcher = open_on(disk, "/d")
    disk.faults = DiskFaults(refused_watch=1.0)
    with pytest.raises(Untold):
        watcher.add("/d")
    with pytest.raises(Untold):
        disk.watcher("/d")


def test_a_lost_notice_is_one_that_the_watcher_says_is_lost() -> None:
    disk = simulated(DiskFaults(lost_notice=1.0))
    watcher = open_on(disk, "/d")
    watcher.add("/d")
    write(disk, "/d/a")
    with pytest.raises(Untold):
        told(watcher)
    assert watcher.is_quiet()


def test_another_process_is_told_of_what_this_one_does() -> None:
    disk = simulated()
    watcher = open_on(disk.peer(7), "/d")
    number = watcher.add("/d")
    disk.make_directory("/d/a")
    assert told(watcher) == [(number, "a")]


def test_a_change_between_the_watch_and_the_listing_is_told() -> None:
    disk = simulated()
    watcher = open_on(disk, "/d")
    disk.before(2, lambda: write(disk.peer(7), "/d/a"))
    number = watcher.add("/d")
    assert [entry.name for entry in disk.entries("/d")] == ["a"]
    assert set(told(watcher)) == {(number, "a")}


def test_nothing_is_told_after_a_crash_and_no_watch_outlives_it() -> None:
    disk = simulated()
    watcher = open_on(disk, "/d")
    watcher.add("/d")
    file = disk.create("/d/a")
    told(watcher)
    left = disk.medium.after_kill()
    disk.medium.frozen = True
    file.close()
    assert watcher.is_quiet()
    with pytest.raises(OSError, match="crashed"):
        watcher.drain()
    assert (left.tells, left.watchers) == (True, [])


def test_a_disk_that_does_not_tell_offers_no_watcher() -> None:
    disk = simulated()
    disk.medium.tells = False
    assert disk.watcher("/d") is None
    assert JsonlStore("/d", files=disk).changes(None) is None
