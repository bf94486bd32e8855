"""One writer a session, in this process and in others; readers are never in the way."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from builders import header
from jsonl_files import BODY, write_log
from store_contract import store_session, turns

from session_query.storage.contract import AlreadyExists, AlreadyOwned, NotFound, StoreFailed
from session_query.storage.files import FileStat, OpenFile, OsFiles
from session_query.storage.jsonl import JsonlStore
from session_query.storage.ownership import take_ownership

LOCK = Path("--work--") / "s" / "session.lock"


@contextmanager
def other_process(root: Path, hold: Callable[[JsonlStore], object]) -> Iterator[int]:
    """Another process that did ``hold`` with the store and lives as long as the block; its id."""
    ready_in, ready_out = os.pipe()
    stop_in, stop_out = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            kept = hold(JsonlStore(root))
            os.write(ready_out, b"1")
            os.close(stop_out)
            os.read(stop_in, 1)
            del kept
        finally:
            os._exit(0)
    os.close(ready_out)
    os.close(stop_in)
    try:
        assert os.read(ready_in, 1) == b"1"
        yield child
    finally:
        os.close(stop_out)
        os.close(ready_in)
        os.waitpid(child, 0)


def test_a_second_writer_in_another_process_is_refused_by_name(tmp_path: Path) -> None:
    store_session(JsonlStore(tmp_path), turns(2))
    with other_process(tmp_path, lambda store: store.open("s", "write")) as child:
        with pytest.raises(AlreadyOwned, match=rf"session\.v2\.jsonl is open .* process {child}$"):
            JsonlStore(tmp_path).open("s", "write")
        with JsonlStore(tmp_path).open("s", "read") as reader:
            assert reader.read() == turns(2)
    with JsonlStore(tmp_path).open("s", "write") as writer:
        writer.append(turns(3)[2:])


def test_a_second_writer_in_this_process_is_refused_through_any_store(tmp_path: Path) -> None:
    store_session(JsonlStore(tmp_path), turns(2))
    owned = pytest.raises(AlreadyOwned, match=f"process {os.getpid()}")
    with JsonlStore(tmp_path).open("s", "write"), owned:
        JsonlStore(tmp_path).open("s", "write")


def test_a_refused_writer_can_try_again(tmp_path: Path) -> None:
    store_session(JsonlStore(tmp_path), turns(2))
    store = JsonlStore(tmp_path)
    with JsonlStore(tmp_path).open("s", "write"), pytest.raises(AlreadyOwned):
        store.open("s", "write")
    store.open("s", "write").close()


def test_of_two_processes_that_create_one_id_the_first_to_write_has_it(tmp_path: Path) -> None:
    mine = JsonlStore(tmp_path).create(header())

    def create(store: JsonlStore) -> object:
        writer = store.create(header())
        writer.append(turns(1))
        return writer

    with other_process(tmp_path, create), pytest.raises(AlreadyOwned, match=r"process [0-9]+"):
        mine.append(turns(2))
    with pytest.raises(AlreadyExists):
        mine.append(turns(2))
    with JsonlStore(tmp_path).open("s", "read") as reader:
        assert reader.read() == turns(1)


def test_a_created_session_is_locked_from_its_first_bytes_to_its_close(tmp_path: Path) -> None:
    writer = JsonlStore(tmp_path).create(header())
    assert not (tmp_path / LOCK).exists()
    writer.append(turns(1))
    with pytest.raises(AlreadyOwned):
        JsonlStore(tmp_path).open("s", "write")
    writer.close()
    assert (tmp_path / LOCK).read_bytes() == b"%d\n" % os.getpid()
    JsonlStore(tmp_path).open("s", "write").close()


def test_the_lock_file_stays_and_is_locked_again(tmp_path: Path) -> None:
    store_session(JsonlStore(tmp_path), turns(1))
    inode = (tmp_path / LOCK).stat().st_ino
    for _ in range(2):
        JsonlStore(tmp_path).open("s", "write").close()
    assert (tmp_path / LOCK).stat().st_ino == inode


def test_reading_makes_no_lock_file(tmp_path: Path) -> None:
    write_log(tmp_path, BODY)
    store = JsonlStore(tmp_path)
    with store.open("s", "read") as reader:
        reader.read_log()
    store.read_tail("s", None)
    assert [path.name for path in (tmp_path / "--w--" / "s").iterdir()] == ["session.v2.jsonl"]


def test_a_writer_whose_log_is_damaged_gives_its_lock_back(tmp_path: Path) -> None:
    path = write_log(tmp_path, [b"{broken", *BODY])
    whole = write_log(tmp_path / "other", BODY).read_bytes()
    store = JsonlStore(tmp_path)
    with pytest.raises(Exception, match="line 2"):
        store.open("s", "write")
    path.write_bytes(whole)
    store.open("s", "write").close()


class _Replacing(OsFiles):
    """A disk on which the lock file is replaced each time after it was locked."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.locked: list[OpenFile] = []

    def lock(self, path: str) -> OpenFile:
        locked = super().lock(path)
        self.locked.append(locked)
        if self.times:
            self.times -= 1
            os.rename(path, f"{path}.old")
            if self.times % 2:
                Path(path).write_bytes(b"")
        return locked


def assert_closed(*files: OpenFile) -> None:
    for file in files:
        with pytest.raises(OSError, match="Bad file descriptor"):
            file.stat()


@pytest.mark.parametrize("times", [1, 2])
def test_a_lock_on_a_file_that_lost_its_name_is_taken_again(tmp_path: Path, times: int) -> None:
    path, files = tmp_path / "session.lock", _Replacing(times)
    lock = take_ownership(files, str(path), "here")
    assert path.stat().st_ino == lock.stat().inode
    lock.close()
    assert len(files.locked) == times + 1
    assert_closed(*files.locked)


def test_a_lock_file_that_is_replaced_again_and_again_is_given_up(tmp_path: Path) -> None:
    with pytest.raises(AlreadyOwned, match="here: its lock file was replaced 3 times"):
        take_ownership(_Replacing(3), str(tmp_path / "session.lock"), "here")


class _Blind(OsFiles):
    """A disk on which the lock file cannot be looked at once."""

    blind = True

    def stat(self, path: str) -> FileStat:
        if self.blind and path.endswith("session.lock"):
            self.blind = False
            raise OSError(errno.EIO, "Input/output error")
        return super().stat(path)


def test_a_lock_that_could_not_be_checked_is_given_back(tmp_path: Path) -> None:
    store_session(JsonlStore(tmp_path), turns(1))
    store = JsonlStore(tmp_path, files=_Blind())
    with pytest.raises(StoreFailed, match=r"session\.v2\.jsonl cannot be locked: .*Input/output"):
        store.open("s", "write")
    store.open("s", "write").close()


def test_a_directory_that_came_back_without_its_lock_file_is_locked_again(tmp_path: Path) -> None:
    files = _Replacing(0)
    writer = JsonlStore(tmp_path, files=files).create(header())
    blocked = tmp_path / "--work--" / "s" / "session.v2.jsonl"
    blocked.parent.mkdir(parents=True)
    blocked.write_bytes(b"")
    with pytest.raises(AlreadyExists):
        writer.append(turns(1))
    shutil.rmtree(blocked.parent)
    writer.append(turns(1))
    _, second = files.locked
    assert (tmp_path / LOCK).stat().st_ino == second.stat().inode
    with pytest.raises(AlreadyOwned):
        JsonlStore(tmp_path).open("s", "write")
    writer.close()
    assert_closed(*files.locked)


def test_an_owner_that_did_not_sign_is_another_process(tmp_path: Path) -> None:
    path = tmp_path / "session.lock"
    owned = pytest.raises(AlreadyOwned, match="here is open for writing in another process")
    with OsFiles().lock(str(path)), owned:
        take_ownership(OsFiles(), str(path), "here")


class _Unsigned(OsFiles):
    def process_id(self) -> int:
        raise OSError("no space left")


def test_ownership_does_not_depend_on_the_signature(tmp_path: Path) -> None:
    store_session(JsonlStore(tmp_path, files=_Unsigned()), turns(1))
    assert JsonlStore(tmp_path).stat("s") is not None


def test_a_session_that_is_removed_before_it_is_locked_is_not_found(tmp_path: Path) -> None:
    path = write_log(tmp_path, BODY)

    class Removing(OsFiles):
        def lock(self, lock_path: str) -> OpenFile:
            path.unlink()
            path.parent.rmdir()
            return super().lock(lock_path)

    with pytest.raises(NotFound, match="was removed"):
        JsonlStore(tmp_path, files=Removing()).open("s", "write")


def test_a_newer_generation_that_appears_before_the_lock_is_not_written_beside(
    tmp_path: Path,
) -> None:
    write_log(tmp_path, BODY)

    class Converting(OsFiles):
        def lock(self, lock_path: str) -> OpenFile:
            locked = super().lock(lock_path)
            newer = write_log(tmp_path, BODY, name="session.v3.jsonl").read_bytes()
            (tmp_path / "--w--" / "s" / "session.v3.jsonl").write_bytes(
                newer.replace(b'"version":2', b'"version":3')
            )
            return locked

    with pytest.raises(StoreFailed, match=r"made room for --w--/s/session\.v3\.jsonl"):
        JsonlStore(tmp_path, files=Converting()).open("s", "write")
