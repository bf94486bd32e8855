"""Taking notice of changes on a real disk, whoever makes them, and where nothing can be told."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from builders import header
from inotify_simple import INotify
from jsonl_files import BODY, OsFilesAt, age, row, session_line, write_log
from other_process import Other
from store_contract import store_session, turns
from told_changes import begun, told

from session_query import JsonlStore, MemoryStore
from session_query.storage import inotify
from session_query.storage.contract import Changes
from session_query.storage.files import OsFiles
from session_query.storage.inotify import InotifyWatcher, open_watcher
from session_query.storage.large_records import GaveUp, Turn
from session_query.storage.watcher import Untold, Watcher

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")

LATE = 1 << 62
"""A time at which no file is young."""

MORE = row(3, "demo/note", {"text": "more"}, ignorable=True) + b"\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store of one session."""
    write_log(tmp_path / "store", BODY, b"")
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> Iterator[JsonlStore]:
    store = JsonlStore(root, files=OsFilesAt(LATE))
    yield store
    store.unwatch()


def write_session(root: Path, session_id: str, project: str = "--w--") -> Path:
    head = session_line(id=session_id, cwd=f"/{project.strip('-')}")
    return write_log(root, BODY, b"", project=project, segment=session_id, header=head)


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(MORE)


# -- what is told ---------------------------------------------------------------------------------


def test_nothing_is_named_at_the_beginning_nor_while_nothing_changes(store: JsonlStore) -> None:
    began = store.changes(None)
    assert began is not None
    assert began == Changes(began.token, frozenset(), frozenset())
    assert store.changes(began.token) == began
    assert store.is_unchanged(began.token)


def test_a_change_is_told_once_to_each_token(root: Path, store: JsonlStore) -> None:
    first, second = begun(store), begun(store)
    append(root / "--w--" / "s" / "session.v2.jsonl")
    assert not store.is_unchanged(first)
    changed, gone, after = told(store, first)
    assert (changed, gone) == ({"s"}, set())
    assert told(store, second)[0] == {"s"}
    assert told(store, after)[0] == set()
    assert told(store, first)[0] == {"s"}


def test_what_a_write_handle_of_the_store_itself_appends_is_told(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path, files=OsFilesAt(LATE))
    store_session(store, turns(1))
    token = begun(store)
    with store.open("s", "write") as writer:
        token = told(store, token)[2]
        writer.append(turns(2)[1:])
        changed, _, token = told(store, token)
    assert changed == {"s"}
    store_session(store, turns(1), header("t"))
    assert told(store, token)[0] == {"t"}
    store.unwatch()


def test_damage_is_named_with_all_other_damage(root: Path, store: JsonlStore) -> None:
    write_session(root, "bad").write_bytes(b"\0")
    began = store.changes(None)
    assert began is not None
    assert [damaged.session_id for damaged in began.damaged] == ["bad"]
    (root / "--w--" / "s" / "session.v2.jsonl").write_bytes(b"\0")
    changes = store.changes(began.token)
    assert changes is not None
    assert not changes.changed
    assert changes.gone == {"s"}
    assert {damaged.session_id for damaged in changes.damaged} == {"bad", "s"}


def test_a_log_that_may_still_change_unseen_is_told_until_it_is_settled(root: Path) -> None:
    files = OsFilesAt(age(root) - 1_000_000_000)
    store = JsonlStore(root, files=files)
    token = begun(store)
    for _ in range(2):
        changed, _, token = told(store, token)
        assert changed == {"s"}
    files.now = LATE
    changed, _, token = told(store, token)
    assert changed == {"s"}
    assert told(store, token)[0] == set()
    store.unwatch()


def test_a_second_name_of_a_log_is_looked_at_each_time(root: Path, store: JsonlStore) -> None:
    token = begun(store)
    log = root / "--w--" / "s" / "session.v2.jsonl"
    (root.parent / "aside").hardlink_to(log)
    append(log)
    changed, _, token = told(store, token)
    assert changed == {"s"}
    append(root.parent / "aside")
    assert not store.is_unchanged(token)
    assert told(store, token)[0] == {"s"}


def test_a_log_behind_a_link_is_looked_at_each_time(root: Path, store: JsonlStore) -> None:
    far = root.parent / "far"
    (root / "--w--" / "s").rename(far)
    (root / "--w--" / "s").symlink_to(far)
    token = begun(store)
    append(far / "session.v2.jsonl")
    changed, _, token = told(store, token)
    assert changed == {"s"}
    shutil.rmtree(far)
    assert told(store, token)[1] == {"s"}


def test_a_session_that_only_a_sweep_saw_is_told_to_be_gone(root: Path, store: JsonlStore) -> None:
    token = told(store, begun(store))[2]
    log = write_session(root, "passing")
    assert "passing" in {each.header.id for each in store.sweep().snapshots}
    shutil.rmtree(log.parent)
    assert not store.is_unchanged(token)
    changed, gone, token = told(store, token)
    assert (changed, gone) == (set(), {"passing"})
    store.sweep()
    assert store.is_unchanged(token)


def test_a_session_that_came_and_went_before_the_first_news_is_told_to_be_gone(
    root: Path, store: JsonlStore
) -> None:
    token = begun(store)
    log = write_session(root, "passing")
    assert {each.header.id for each in store.sweep().snapshots} >= {"passing"}
    shutil.rmtree(log.parent)
    assert "passing" in told(store, token)[1]


def test_a_renamed_session_directory_is_followed_under_its_new_name(
    root: Path, store: JsonlStore
) -> None:
    token = begun(store)
    (root / "--w--" / "s").rename(root / "--w--" / "t")
    changed, gone, token = told(store, token)
    assert (changed, gone) == (set(), {"s"})
    (root / "--w--" / "t" / "session.v2.jsonl").write_bytes(session_line(id="t") + b"\n")
    changed, gone, token = told(store, token)
    assert (changed, gone) == ({"t"}, set())
    write_session(root, "s")
    assert told(store, token)[0] == {"s"}


# -- other processes ------------------------------------------------------------------------------


@pytest.fixture
def other() -> Iterator[Other]:
    other = Other()
    yield other
    other.end()


def test_what_another_process_has_done_is_told_at_once(
    root: Path, store: JsonlStore, other: Other
) -> None:
    token = begun(store)
    log = root / "--w--" / "s" / "session.v2.jsonl"
    for _ in range(20):
        other.do(f"open({str(log)!r}, 'ab').write({MORE!r})")
        changed, gone, token = told(store, token)
        assert (changed, gone) == ({"s"}, set())
    other.do(f"os.rename({str(log.parent)!r}, {str(root / 'moved')!r})")
    changed, gone, token = told(store, token)
    assert (changed, gone) == (set(), {"s"})
    other.do(f"os.rename({str(root / 'moved')!r}, {str(log.parent)!r})")
    changed, gone, token = told(store, token)
    assert (changed, gone) == ({"s"}, set())
    other.do(f"os.truncate({str(log)!r}, 0)")
    assert told(store, token)[1] == {"s"}
    other.do(f"shutil.rmtree({str(root / '--w--')!r})")
    assert told(store, token)[1] == {"s"}


def test_deep_trees_that_appear_at_full_speed_are_told_whole(
    root: Path, store: JsonlStore, other: Other
) -> None:
    source = root.parent / "source"
    wanted = {f"{letter}{number}" for letter in "abc" for number in range(60)}
    for session_id in wanted:
        write_session(source, session_id, f"--{session_id[0]}--")
    token, seen = begun(store), set[str]()
    with ThreadPoolExecutor(1) as thread:
        copied = thread.submit(
            other.do, f"shutil.copytree({str(source)!r}, {str(root)!r}, dirs_exist_ok=True)"
        )
        while not copied.done():
            changed, _, token = told(store, token)
            seen |= changed
    copied.result()
    assert seen | told(store, token)[0] == wanted
    assert {found.header.id for found in store.sweep().snapshots} == {"s", *wanted}


def test_a_process_that_was_forked_begins_for_itself(root: Path, store: JsonlStore) -> None:
    token = begun(store)
    append(root / "--w--" / "s" / "session.v2.jsonl")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            refused = store.changes(token) is None
            own = begun(store)
            write_session(root, "t")
            status = 0 if refused and told(store, own)[0] == {"t"} else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert told(store, token)[0] == {"s", "t"}


def test_threads_that_ask_side_by_side_all_learn_of_everything(
    root: Path, store: JsonlStore
) -> None:
    token = begun(store)

    def follow(_number: int) -> set[str]:
        at, seen = token, set[str]()
        while "last" not in seen:
            changed, _, at = told(store, at)
            seen |= changed
        return seen

    with ThreadPoolExecutor(4) as threads:
        following = [threads.submit(follow, number) for number in range(4)]
        names = [f"n{number}" for number in range(40)]
        for name in [*names, "last"]:
            write_session(root, name)
        for one in following:
            assert one.result(20) == {*names, "last"}


# -- where nothing can be told --------------------------------------------------------------------


def test_a_queue_that_overflowed_begins_anew(root: Path, store: JsonlStore) -> None:
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if limit > 200_000:
        pytest.skip("the queue is too long to overflow it")
    one, two = (write_session(root, name) for name in ("a", "b"))
    token = begun(store)
    for number in range(limit // 2 + 1):
        # By turns, since notices that repeat the last one are not queued.
        os.utime(one, ns=(number, number))
        os.utime(two, ns=(number, number))
    assert store.changes(token) is None
    assert store.changes(token) is None
    token = begun(store)
    assert told(store, token)[0] == set()
    append(one)
    assert told(store, token)[0] == {"a"}


@pytest.mark.parametrize("moved", ["store", "."])
def test_a_root_that_was_moved_away_is_not_trusted(
    root: Path, store: JsonlStore, moved: str
) -> None:
    token = begun(store)
    place = (root.parent / moved).resolve()
    place.rename(place.with_name("away"))
    assert not store.is_unchanged(token)
    assert store.changes(token) is None
    place.with_name("away").rename(place)
    assert store.changes(token) is None
    assert told(store, begun(store))[0] == set()


def test_a_root_that_was_exchanged_is_not_trusted(root: Path, store: JsonlStore) -> None:
    token = begun(store)
    root.rename(root.with_name("old"))
    write_session(root, "t")
    assert store.changes(token) is None


def test_a_root_that_was_made_anew_in_its_old_place_is_followed_again(
    root: Path, store: JsonlStore
) -> None:
    for _ in range(5):
        token = begun(store)
        shutil.rmtree(root)
        write_session(root, "t")
        changes = store.changes(token)  # the file system may give the new one the old number
        assert changes is None or changes.changed == {"t"}
        token = begun(store)
        append(root / "--w--" / "t" / "session.v2.jsonl")
        assert told(store, token)[0] == {"t"}


def test_what_is_done_to_the_root_itself_loses_nothing(root: Path, store: JsonlStore) -> None:
    token = begun(store)
    root.chmod(0o755)
    write_session(root, "t", "--v--")
    root.chmod(0o700)
    assert "t" in told(store, token)[0]


def test_a_root_that_does_not_exist_yet_is_followed_once_it_does(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path / "later", files=OsFilesAt(LATE))
    assert store.changes(None) is None
    write_session(tmp_path / "later", "s")
    token = begun(store)
    write_session(tmp_path / "later", "t")
    assert told(store, token)[0] == {"t"}
    store.unwatch()


def test_a_root_that_may_only_be_read_is_followed(root: Path, store: JsonlStore) -> None:
    for folder in (root / "--w--" / "s", root / "--w--", root):
        folder.chmod(0o500)
    try:
        token = begun(store)
        (root / "--w--" / "s").chmod(0o700)
        append(root / "--w--" / "s" / "session.v2.jsonl")
        assert told(store, token)[0] == {"s"}
    finally:
        for folder in (root, root / "--w--"):
            folder.chmod(0o700)


def test_a_project_behind_a_link_is_not_trusted(root: Path, store: JsonlStore) -> None:
    token = begun(store)
    (root / "--v--").symlink_to("--w--")
    assert store.changes(token) is None
    assert store.changes(None) is None


def test_a_file_system_that_others_may_change_is_never_watched(
    root: Path, store: JsonlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    nfs = 0x6969
    monkeypatch.setattr(inotify, "file_system", lambda _path: nfs)
    assert store.changes(None) is None
    monkeypatch.undo()
    assert inotify.file_system("/proc") not in inotify.TRUSTED
    assert open_watcher("/proc") is None
    assert inotify.file_system(str(root / "nowhere")) is None


def test_a_disk_that_has_no_watcher_is_never_asked_for_one(root: Path) -> None:
    class Plain:
        """A disk that does what it must and no more."""

        def __init__(self) -> None:
            self._files = OsFilesAt(LATE)

        def __getattr__(self, name: str) -> object:
            if name in ("watcher", "is_quiet"):
                raise AttributeError(name)
            return getattr(self._files, name)

    store = JsonlStore(root, files=Plain())  # type: ignore[arg-type]
    assert store.changes(None) is None
    assert MemoryStore().changes(None) is None


class FullWatcher(InotifyWatcher):
    """Has room for some watches."""

    def __init__(self, room: int) -> None:
        super().__init__(INotify(nonblocking=True))
        self.room = room

    def add(self, path: str) -> int:
        self.room -= 1
        if self.room < 0:
            raise Untold("no room")
        return super().add(path)


@pytest.mark.parametrize("room", range(4))
def test_where_the_watches_are_exhausted_nothing_is_told_and_nothing_stays_open(
    root: Path, room: int
) -> None:
    class Small(OsFiles):
        def watcher(self, path: str) -> Watcher | None:
            return FullWatcher(room)

    write_session(root, "t", "--v--")
    before = descriptors()
    store = JsonlStore(root, files=Small())
    assert store.changes(None) is None
    assert descriptors() == before
    assert len(store.sweep().snapshots) == 2


def test_the_kernels_own_refusal_to_watch_more_says_that_nothing_is_told(root: Path) -> None:
    class Full(INotify):
        def add_watch(self, path: str, mask: int) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    watcher = InotifyWatcher(Full())
    with pytest.raises(Untold, match="No space left"):
        watcher.add(str(root))
    watcher.close()


@pytest.mark.parametrize("token", ["", "x", "1:2:3", ":", "0:0:", "0:0:-1", "0:0:99999999"])
def test_a_token_that_was_never_given_out_tells_nothing(store: JsonlStore, token: str) -> None:
    begun(store)
    assert store.changes(token) is None
    assert not store.is_unchanged(token)


def test_tokens_of_another_store_or_of_an_earlier_beginning_tell_nothing(
    root: Path, store: JsonlStore
) -> None:
    other = JsonlStore(root)
    token, foreign = begun(store), begun(other)
    assert store.changes(foreign) is None
    store.unwatch()
    assert store.changes(token) is None
    begun(store)
    assert store.changes(token) is None
    other.unwatch()


# -- descriptors ----------------------------------------------------------------------------------


def descriptors() -> list[str]:
    return sorted(entry.name for entry in _scan("/proc/self/fd"))


def _scan(path: str) -> Iterable[os.DirEntry[str]]:
    with os.scandir(path) as found:
        yield from list(found)


def test_no_descriptor_stays_behind(root: Path) -> None:
    store = JsonlStore(root)
    before = descriptors()
    for _ in range(3):
        begun(store)
        assert len(descriptors()) == len(before) + 1
        begun(store)
        assert len(descriptors()) == len(before) + 1
        store.unwatch()
        store.unwatch()
        assert descriptors() == before


# -- interruption ---------------------------------------------------------------------------------


def test_a_sweep_and_a_beginning_that_are_not_wanted_any_more_stop_and_leave_nothing(
    root: Path, store: JsonlStore
) -> None:
    before = descriptors()
    turn = Turn()
    turn.give_up()
    with pytest.raises(GaveUp):
        turn.doing(store.sweep)()
    with pytest.raises(GaveUp):
        turn.doing(store.changes)(None)
    assert descriptors() == before
    assert len(store.sweep().snapshots) == 1
