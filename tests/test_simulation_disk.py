"""The simulated disk behaves as the real one does, and a crash of it leaves what POSIX promises."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from itertools import count
from typing import Literal

import pytest
from builders import header
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule
from store_contract import StoreContract, turns

from session_query.simulations.disk import NO_FAULTS, DiskFaults, SimulatedDisk
from session_query.simulations.medium import Medium
from session_query.storage.contract import NotFound, SessionStore, StoreFailed
from session_query.storage.files import Files, OpenFile, OsFiles
from session_query.storage.jsonl import JsonlStore

NAMES = st.sampled_from(["a", "b"])
COMPRESSIONS: st.SearchStrategy[Literal["none", "zstd"]] = st.sampled_from(["none", "zstd"])
BYTES = st.binary(min_size=1, max_size=12)


def new_disk(seed: int = 0, faults: DiskFaults = NO_FAULTS) -> SimulatedDisk:
    times = count(1_700_000_000_000_000_000, 5_000_000)
    return SimulatedDisk(Medium(), random.Random(seed), lambda: next(times), faults=faults)


def after_power_loss(disk: SimulatedDisk, seed: int) -> SimulatedDisk:
    left = disk.medium.after_power_loss(random.Random(seed))
    disk.medium.frozen = True
    return SimulatedDisk(left, random.Random(seed), disk.now_ns)


def put(files: Files, path: str, data: bytes) -> None:
    """A new file whose content and name are safe."""
    with files.create(path) as file:
        file.append(data)
        file.sync()
    files.sync_directory(path.rpartition("/")[0] or "/")


class TestJsonlStoreOnSimulatedDisk(StoreContract):
    @pytest.fixture
    def make(self) -> Callable[[], SessionStore]:
        return lambda: JsonlStore("/stores/sessions", files=new_disk())


# --- alike


Step = Callable[[Files, str, "dict[int, OpenFile]"], object]
"""One operation on a disk, below a root, with the files that were opened so far."""


def shape(files: Files, path: str) -> object:
    stat = files.stat(path)
    return (
        stat.is_directory,
        stat.links if not stat.is_directory else 0,
        stat.size * (not stat.is_directory),
    )


def opened(step: Callable[[Files, str], OpenFile], slot: int) -> Step:
    def run(files: Files, root: str, slots: dict[int, OpenFile]) -> object:
        file = step(files, root)
        if slot in slots:
            slots.pop(slot).close()
        slots[slot] = file
        return "open"

    return run


def on_slot(step: Callable[[OpenFile], object], slot: int) -> Step:
    def run(_files: Files, _root: str, slots: dict[int, OpenFile]) -> object:
        return step(slots[slot]) if slot in slots else "none"

    return run


def closed(slot: int) -> Step:
    def run(_files: Files, _root: str, slots: dict[int, OpenFile]) -> object:
        # Nothing is done with a closed file: the system gives its number to the next one.
        if slot in slots:
            slots.pop(slot).close()
        return "closed"

    return run


def below(step: Callable[[Files, str], object]) -> Step:
    return lambda files, root, _slots: step(files, root)


@st.composite
def paths(draw: st.DrawFn) -> str:
    return "/" + "/".join(draw(st.lists(NAMES, min_size=1, max_size=2)))


def steps() -> st.SearchStrategy[Step]:
    slots = st.integers(0, 2)
    return st.one_of(
        st.builds(lambda p: below(lambda f, r: shape(f, r + p)), paths()),
        st.builds(
            lambda p: below(lambda f, r: [(e.name, e.is_directory) for e in f.entries(r + p)]),
            paths(),
        ),
        st.builds(lambda p: below(lambda f, r: f.make_directory(r + p)), paths()),
        st.builds(lambda p: below(lambda f, r: f.sync_directory(r + p)), paths()),
        st.builds(lambda p, q: below(lambda f, r: f.link(r + p, r + q)), paths(), paths()),
        st.builds(lambda p: below(lambda f, r: f.unlink(r + p)), paths()),
        st.builds(lambda p, n: opened(lambda f, r: f.create(r + p), n), paths(), slots),
        st.builds(lambda p, n: opened(lambda f, r: f.open_reading(r + p), n), paths(), slots),
        st.builds(lambda p, n: opened(lambda f, r: f.open_appending(r + p), n), paths(), slots),
        st.builds(lambda p, n: opened(lambda f, r: f.lock(r + p), n), paths(), slots),
        st.builds(lambda data, n: on_slot(lambda o: o.append(data), n), BYTES, slots),
        st.builds(
            lambda size, n: on_slot(lambda o: o.truncate(size), n), st.integers(0, 20), slots
        ),
        st.builds(
            lambda at, size, n: on_slot(lambda o: o.read(at, size), n),
            st.integers(0, 20),
            st.integers(0, 20),
            slots,
        ),
        st.builds(lambda n: on_slot(lambda o: o.sync(), n), slots),
        st.builds(closed, slots),
    )


def answer(step: Step, files: Files, root: str, slots: dict[int, OpenFile]) -> object:
    """What a step gives, or the number of the error that it raises."""
    try:
        return step(files, root, slots)
    except OSError as error:
        # A descriptor that cannot be cut is "invalid" on Linux, and not "bad".
        number = error.errno
        return errno.errorcode[errno.EBADF if number == errno.EINVAL else number or 0]


@given(script=st.lists(steps(), max_size=40))
@settings(max_examples=150)
def test_any_operations_answer_as_on_the_real_disk(
    script: list[Step], tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = str(tmp_path_factory.mktemp("real"))
    simulated = new_disk()
    simulated.make_directory("/real")
    real_files: dict[int, OpenFile] = {}
    our_files: dict[int, OpenFile] = {}
    try:
        for step in script:
            assert answer(step, simulated, "/real", our_files) == answer(
                step, OsFiles(), root, real_files
            )
    finally:
        for file in real_files.values():
            file.close()


def test_two_changes_within_one_tick_of_the_clock_have_one_time() -> None:
    disk = SimulatedDisk(Medium(), random.Random(0), lambda: 1_700_000_000_001_000_000)
    put(disk, "/log", b"one")
    before = disk.stat("/log")
    with disk.open_appending("/log") as file:
        file.truncate(0)
        file.append(b"two")
    assert disk.stat("/log") == before


def test_a_file_that_another_one_replaced_stays_readable_for_those_who_have_it_open() -> None:
    disk = new_disk()
    put(disk, "/log", b"old")
    put(disk, "/new", b"new")
    reader = disk.open_reading("/log")
    disk.rename("/new", "/log")
    assert (reader.read(0, 9), disk.content("/log")) == (b"old", b"new")
    assert [entry.name for entry in disk.entries("/")] == ["log"]


# --- faults


def test_a_full_disk_takes_what_fits_and_says_so() -> None:
    disk = new_disk(faults=DiskFaults(capacity=5))
    with disk.create("/log") as file:
        file.append(b"abc")
        with pytest.raises(OSError, match="full") as caught:
            file.append(b"defg")
    assert caught.value.errno == errno.ENOSPC
    assert disk.content("/log") == b"abcde"
    disk.unlink("/log")
    put(disk, "/other", b"12345")


def test_a_failed_append_has_written_a_part_at_most() -> None:
    lengths = set()
    for seed in range(40):
        disk = new_disk(seed)
        with disk.create("/log") as file:
            disk.faults = DiskFaults(write_error=1.0)
            with pytest.raises(OSError, match="append"):
                file.append(b"abcdef")
        lengths.add(len(disk.content("/log")))
        assert b"abcdef".startswith(disk.content("/log"))
    assert lengths >= {0, 3, 6}


def test_what_a_failed_sync_dropped_a_later_one_does_not_save() -> None:
    left = set()
    for seed in range(40):
        disk = new_disk(seed)
        put(disk, "/log", b"safe ")
        with disk.open_appending("/log") as file:
            file.append(b"lost")
            disk.faults = DiskFaults(sync_error=1.0)
            with pytest.raises(OSError, match="sync"):
                file.sync()
            disk.faults = NO_FAULTS
            file.sync()
        left.add(after_power_loss(disk, seed).content("/log"))
    assert left == {b"safe ", b"safe lost"}


@pytest.mark.parametrize("step", ["stat", "entries", "open_reading"])
def test_looking_fails_where_it_is_to(step: str) -> None:
    disk = new_disk(faults=DiskFaults(read_error=1.0))
    with pytest.raises(OSError, match="simulated fault"):
        getattr(disk, step)("/")


def test_slow_operations_are_charged_once() -> None:
    disk = new_disk(faults=DiskFaults(slow=1.0, slow_seconds=0.5))
    disk.stat("/")
    disk.entries("/")
    assert (disk.spent(), disk.spent()) == (1.0, 0.0)


def test_something_can_be_done_between_two_operations_of_a_call() -> None:
    disk = new_disk()
    disk.before(2, lambda: put(disk.peer(7), "/theirs", b"x"))
    assert disk.entries("/") == []
    assert [entry.name for entry in disk.entries("/")] == ["theirs"]


def test_another_process_meets_no_faults_and_has_another_number() -> None:
    disk = new_disk(faults=DiskFaults(read_error=1.0, write_error=1.0))
    other = disk.peer(7)
    put(other, "/log", b"x")
    assert (disk.process_id(), other.process_id()) == (1, 7)


# --- crashes


def test_after_a_crash_every_operation_of_the_old_disk_is_refused() -> None:
    disk = new_disk()
    put(disk, "/log", b"x")
    lock = disk.lock("/lock")
    reader = disk.open_reading("/log")
    after = after_power_loss(disk, 1)
    for refused in (
        lambda: disk.stat("/log"),
        lambda: disk.peer(3).entries("/"),
        lambda: disk.create("/more"),
        lambda: disk.sync_directory("/"),
        lambda: reader.read(0, 1),
        lambda: lock.append(b"1"),
    ):
        with pytest.raises(OSError, match="crashed"):
            refused()
    reader.close()
    assert after.content("/log") == b"x"
    after.lock("/lock").close()


def test_a_killed_process_loses_nothing_but_its_locks() -> None:
    disk = new_disk()
    held = disk.lock("/lock")
    with disk.create("/log") as file:
        file.append(b"unsynced")
    with pytest.raises(BlockingIOError):
        disk.lock("/lock")
    after = SimulatedDisk(disk.medium.after_kill(), random.Random(0), disk.now_ns)
    assert after.content("/log") == b"unsynced"
    after.lock("/lock").close()
    held.close()


def test_unsynced_writes_are_lost_torn_and_reordered() -> None:
    left = set()
    for seed in range(300):
        disk = new_disk()
        put(disk, "/log", b"0")
        with disk.open_appending("/log") as file:
            file.append(b"11")
            file.append(b"22")
        left.add(after_power_loss(disk, seed).content("/log"))
    assert left >= {b"0", b"01", b"011", b"0112", b"01122", b"0\0\x0022", b"0\0\x002"}


def test_a_file_with_two_names_stays_one_file() -> None:
    disk = new_disk()
    put(disk, "/log", b"x")
    disk.link("/log", "/again")
    disk.sync_directory("/")
    after = after_power_loss(disk, 1)
    assert after.stat("/log").is_same_file(after.stat("/again"))
    assert after.stat("/log").links == 2


class CrashingDisk(RuleBasedStateMachine):
    """A few files in one directory, compared with the promises that hold at each moment."""

    names: Bundle[str] = Bundle("names")

    @initialize()
    def begin(self) -> None:
        self.disk = new_disk()
        self.seen: dict[str, bytes] = {}
        self.synced: dict[str, bytes] = {}
        self.maybe_cut: dict[str, int] = {}
        """Down to which size a file may have been cut since its last sync."""
        self.safe_names: set[str] = set()
        self.unsafe_names: set[str] = set()

    @rule(target=names, name=NAMES)
    def create(self, name: str) -> str:
        if name not in self.seen:
            self.disk.create(f"/{name}").close()
            self.seen[name] = self.synced[name] = b""
            self.maybe_cut[name] = 0
            self.unsafe_names.add(name)
        return name

    @rule(name=names, data=BYTES)
    def append(self, name: str, data: bytes) -> None:
        if name in self.seen:
            with self.disk.open_appending(f"/{name}") as file:
                file.append(data)
            self.seen[name] += data

    @rule(name=names, size=st.integers(0, 10))
    def cut(self, name: str, size: int) -> None:
        if name in self.seen and size <= len(self.seen[name]):
            with self.disk.open_appending(f"/{name}") as file:
                file.truncate(size)
            self.seen[name] = self.seen[name][:size]
            self.maybe_cut[name] = min(self.maybe_cut[name], size)

    @rule(name=names)
    def sync(self, name: str) -> None:
        if name in self.seen:
            with self.disk.open_appending(f"/{name}") as file:
                file.sync()
            self.synced[name] = self.seen[name]
            self.maybe_cut[name] = len(self.seen[name])

    @rule(name=names)
    def unlink(self, name: str) -> None:
        if name in self.seen:
            self.disk.unlink(f"/{name}")
            del self.seen[name]
            self.unsafe_names.add(name)

    @rule()
    def sync_directory(self) -> None:
        self.disk.sync_directory("/")
        self.safe_names, self.unsafe_names = set(self.seen), set()

    @rule(seed=st.integers(0, 1000))
    def crash(self, seed: int) -> None:
        self.disk = after_power_loss(self.disk, seed)
        found = {entry.name for entry in self.disk.entries("/")}
        assert found ^ self.safe_names <= self.unsafe_names
        for name in found & set(self.seen):
            content = self.disk.content(f"/{name}")
            safe = min(self.maybe_cut[name], len(self.synced[name]))
            if name not in self.unsafe_names:
                assert content[:safe] == self.synced[name][:safe]
        self.seen = {name: self.disk.content(f"/{name}") for name in found}
        self.synced = dict(self.seen)
        self.maybe_cut = {name: len(content) for name, content in self.seen.items()}
        self.safe_names, self.unsafe_names = found, set()

    @invariant()
    def everybody_sees_what_was_written(self) -> None:
        names = [entry.name for entry in self.disk.entries("/")]
        assert {name: self.disk.content(f"/{name}") for name in names} == self.seen


TestCrashingDisk = CrashingDisk.TestCase
TestCrashingDisk.settings = settings(max_examples=60, stateful_step_count=25)


# --- the JSONL store on it


@given(
    batches=st.lists(st.integers(1, 3), min_size=1, max_size=4),
    operation=st.integers(1, 60),
    seed=st.integers(0, 10_000),
    compression=COMPRESSIONS,
)
@settings(max_examples=150)
def test_no_acknowledged_event_is_lost_at_whatever_operation_the_power_fails(
    batches: list[int], operation: int, seed: int, compression: Literal["none", "zstd"]
) -> None:
    disk = new_disk()
    crashed: list[SimulatedDisk] = []
    disk.before(operation, lambda: crashed.append(after_power_loss(disk, seed)))
    events = turns(sum(batches))
    acknowledged, attempted = 0, 0
    try:
        with JsonlStore("/store", files=disk, compression=compression).create(header()) as writer:
            for size in batches:
                attempted += size
                writer.append(events[acknowledged:attempted])
                acknowledged = attempted
    except (StoreFailed, OSError):
        assert crashed
    after = crashed[0] if crashed else after_power_loss(disk, seed)
    store = JsonlStore("/store", files=after)
    assert store.sweep().damaged == ()
    try:
        with store.open("s", "write") as writer:
            found = writer.read()
            assert events[:acknowledged] == found[:acknowledged]
            assert found == events[: len(found)]
            assert len(found) <= attempted
            writer.append(turns(len(found) + 1)[len(found) :])
    except NotFound:
        assert acknowledged == 0


@pytest.mark.parametrize("made", ["/store/--work--", "/store/--work--/s"])
@pytest.mark.parametrize("seed", range(12))
def test_a_log_in_directories_that_nobody_made_durable_survives_a_loss_of_power(
    made: str, seed: int
) -> None:
    disk = new_disk()
    disk.make_directory("/store")
    disk.sync_directory("/")
    for depth in range(3, made.count("/") + 2):
        disk.make_directory("/".join(made.split("/")[:depth]))
    with JsonlStore("/store", files=disk).create(header()) as writer:
        writer.append(turns(2))
    with JsonlStore("/store", files=after_power_loss(disk, seed)).open("s", "read") as reader:
        assert reader.read() == turns(2)
