"""The JSONL store: the contract, and what a sweep makes of a directory tree."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from attrs import evolve
from builders import header
from jsonl_files import BODY, MeddlingFiles, OsFilesAt, age, row, session_line, write_log
from store_contract import StoreContract, store_session, turns

from session_query.messages.errors import ErrorCode
from session_query.messages.header import SessionHeader
from session_query.messages.json import Json
from session_query.storage import log_file
from session_query.storage.contract import (
    AlreadyExists,
    CorruptLog,
    Damaged,
    NotFound,
    SessionStore,
    StoreFailed,
    UnsupportedLog,
)
from session_query.storage.files import Entry, FileStat, OpenFile, OsFiles
from session_query.storage.jsonl import JsonlStore
from session_query.storage.large_records import GaveUp, Turn


class TestJsonlStore(StoreContract):
    @pytest.fixture
    def make(self, tmp_path: Path) -> Callable[[], SessionStore]:
        numbers = count()
        return lambda: JsonlStore(tmp_path / str(next(numbers)) / "sessions")


class TestCompressedJsonlStore(StoreContract):
    @pytest.fixture
    def make(self, tmp_path: Path) -> Callable[[], SessionStore]:
        numbers = count()
        return lambda: JsonlStore(tmp_path / str(next(numbers)), compression="zstd")


def only_damage(store: SessionStore) -> Damaged:
    swept = store.sweep()
    assert swept.snapshots == ()
    [damaged] = swept.damaged
    return damaged


# --- the root


def test_an_absent_root_is_an_empty_store_and_is_not_made(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path / "absent")
    assert store.sweep().snapshots == ()
    assert store.stat("s") is None
    assert list(tmp_path.iterdir()) == []


def test_a_root_without_sessions_is_an_empty_store(tmp_path: Path) -> None:
    swept = JsonlStore(tmp_path).sweep()
    assert (swept.snapshots, swept.damaged) == ((), ())
    assert list(tmp_path.iterdir()) == []


def test_a_root_that_is_a_file_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = JsonlStore(tmp_path / "file")
    with pytest.raises(StoreFailed, match="cannot be read"):
        store.sweep()
    with pytest.raises(StoreFailed, match="cannot be read"):
        store.stat("s")


def test_a_relative_root_is_resolved_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_log(tmp_path / "store", BODY)
    monkeypatch.chdir(tmp_path)
    store = JsonlStore("store")
    monkeypatch.chdir("/")
    assert store.stat("s") is not None


def test_reading_leaves_a_store_as_it_was(tmp_path: Path) -> None:
    path = write_log(tmp_path, BODY, b'{"type":"torn')
    before = {found: found.stat() for found in [tmp_path, *tmp_path.rglob("*")]}
    store = JsonlStore(tmp_path)
    store.sweep()
    store.read_tail("s", None)
    with store.open("s", "read") as reader:
        reader.read_log()
    after = {found: found.stat() for found in [tmp_path, *tmp_path.rglob("*")]}
    assert {key: (seen.st_mtime_ns, seen.st_size) for key, seen in before.items()} == {
        key: (seen.st_mtime_ns, seen.st_size) for key, seen in after.items()
    }
    assert path.read_bytes().endswith(b"torn")


# --- headers


def test_unknown_header_keys_are_ignored(tmp_path: Path) -> None:
    write_log(tmp_path, BODY, header=session_line(zone="x", extra={"deep": [1]}))
    seen = JsonlStore(tmp_path).stat("s")
    assert seen is not None
    assert seen.header == evolve(header(), created_at=1, cwd="/w")


def test_whole_numbers_count_however_they_are_spelled(tmp_path: Path) -> None:
    line = session_line().replace(b'"createdAt":1', b'"createdAt":1.0e3')
    write_log(tmp_path, BODY, header=line)
    seen = JsonlStore(tmp_path).stat("s")
    assert seen is not None
    assert seen.header.created_at == 1000


def test_a_byte_order_mark_and_a_carriage_return_do_not_hide_a_header(tmp_path: Path) -> None:
    write_log(tmp_path, BODY, header=b"\xef\xbb\xbf" + session_line() + b"\r")
    with JsonlStore(tmp_path).open("s", "read") as reader:
        assert len(reader.read()) == len(BODY)


@pytest.mark.parametrize("length", [4096, 8192, 219_000, 3_000_000])
def test_a_header_of_any_length_is_found(tmp_path: Path, length: int) -> None:
    write_log(tmp_path, BODY, header=session_line(note="x" * length))
    assert len(JsonlStore(tmp_path).sweep().snapshots) == 1


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b"null",
        b"not json",
        b'{"type":"turn/start","seq":0,"time":1,"data":{}}',
        b"[" + session_line() + b"]",
        session_line(type="sessions"),
        session_line(delegationDepth=None),
        session_line(createdAt=None),
        session_line(version=None),
        session_line(id=None),
        session_line(isSeeded=None),
        session_line(createdAt=1.5),
        session_line(createdAt=-1),
        session_line(createdAt="1"),
        session_line(createdAt=2**53),
        session_line(delegationDepth=-1),
        session_line(origin="other"),
        session_line(agentPreset=5),
        session_line().replace(b'"createdAt":1', b'"createdAt":-0'),
        session_line().replace(b'"delegationDepth":0', b'"delegationDepth":-0.0'),
    ],
)
def test_a_first_line_that_is_no_session_header_is_left_out_of_a_sweep(
    tmp_path: Path, line: bytes
) -> None:
    write_log(tmp_path, BODY, header=line)
    store = JsonlStore(tmp_path)
    damaged = only_damage(store)
    assert (damaged.code, damaged.conflict) == (ErrorCode.CORRUPT_SESSION, False)
    assert (damaged.session_id, damaged.header) == ("s", None)
    with pytest.raises(CorruptLog, match=r"session\.v2\.jsonl"):
        store.open("s", "read")


@pytest.mark.parametrize("content", [b"", b"{", session_line()])
def test_a_file_without_a_whole_first_line_is_no_session(tmp_path: Path, content: bytes) -> None:
    write_log(tmp_path, []).write_bytes(content)
    assert not only_damage(JsonlStore(tmp_path)).conflict


@pytest.mark.parametrize(
    "line",
    [
        session_line(parentSession=5),
        session_line(parentSession=False),
        session_line(seedLength=0),
        session_line(id=""),
    ],
)
def test_a_session_header_with_a_wrong_field_is_corrupt(tmp_path: Path, line: bytes) -> None:
    write_log(tmp_path, BODY, header=line)
    damaged = only_damage(JsonlStore(tmp_path))
    assert (damaged.code, damaged.conflict) == (ErrorCode.CORRUPT_SESSION, True)


@pytest.mark.parametrize("value", [b"[" * 300 + b"]" * 300, b"1e400"], ids=["deep", "endless"])
def test_a_header_beyond_what_a_record_may_be_is_unsupported_and_hides_nothing(
    tmp_path: Path, value: bytes
) -> None:
    write_log(tmp_path, BODY, header=session_line(zone=7).replace(b"7", value))
    write_log(tmp_path, BODY, segment="t", header=session_line(id="t"))
    store = JsonlStore(tmp_path)
    swept = store.sweep()
    assert [found.header.id for found in swept.snapshots] == ["t"]
    [damaged] = swept.damaged
    assert damaged.code is ErrorCode.PERSISTENCE_FAILED
    assert damaged.message.startswith("--w--/s/session.v2.jsonl line 1: ")
    with pytest.raises(UnsupportedLog, match="line 1"):
        store.open("s", "read")


def test_all_fields_of_a_header_are_read(tmp_path: Path) -> None:
    more: dict[str, Json] = {"parentSession": "p", "origin": "subagent", "agentPreset": "a"}
    line = session_line(isSeeded=True, delegationDepth=3, **more)
    write_log(tmp_path, BODY, header=line)
    seen = JsonlStore(tmp_path).stat("s")
    assert seen is not None
    assert seen.header == SessionHeader(
        "s",
        1,
        cwd="/w",
        parent_session="p",
        is_seeded=True,
        origin="subagent",
        delegation_depth=3,
        agent_preset="a",
    )


def test_an_old_header_that_is_seeded_in_two_ways_is_corrupt(tmp_path: Path) -> None:
    line = session_line(version=0, isSeeded=True, seedLength=1)
    write_log(tmp_path, BODY, name="session.jsonl", header=line)
    with pytest.raises(CorruptLog, match="either seedLength or isSeeded"):
        JsonlStore(tmp_path).stat("s")


@pytest.mark.parametrize("key", ["sandboxMode", "approvalPolicy"])
def test_a_retired_header_field_is_unsupported(tmp_path: Path, key: str) -> None:
    write_log(tmp_path, BODY, header=session_line(**{key: "x"}))
    damaged = only_damage(JsonlStore(tmp_path))
    assert (damaged.code, damaged.conflict) == (ErrorCode.PERSISTENCE_FAILED, True)


@pytest.mark.parametrize(
    ("line", "readable"),
    [
        (session_line(version=4), True),
        (session_line(version=99, id=5, createdAt="then"), False),
        (session_line(version=-1), True),
        (b'{"type":"session","version":7}', False),
    ],
)
def test_a_newer_format_is_unsupported_and_never_corrupt(
    tmp_path: Path, line: bytes, readable: bool
) -> None:
    write_log(tmp_path, BODY, name="session.v4.jsonl", header=line)
    store = JsonlStore(tmp_path)
    damaged = only_damage(store)
    assert (damaged.code, damaged.conflict) == (ErrorCode.PERSISTENCE_FAILED, False)
    assert (damaged.header is not None) == readable
    with pytest.raises(UnsupportedLog, match=r"session\.v4\.jsonl"):
        store.open("s", "read")


def test_a_newer_file_name_is_unsupported_whatever_its_header_says(tmp_path: Path) -> None:
    write_log(tmp_path, BODY, name="session.v9.jsonl")
    with pytest.raises(UnsupportedLog, match="format 9"):
        JsonlStore(tmp_path).stat("s")


def test_a_format_that_disagrees_with_the_file_name_is_corrupt(tmp_path: Path) -> None:
    write_log(tmp_path, BODY, name="session.v1.jsonl")
    with pytest.raises(CorruptLog, match="format 2, the file name format 1"):
        JsonlStore(tmp_path).stat("s")


# --- the tree


def test_the_numerically_highest_format_of_a_directory_counts(tmp_path: Path) -> None:
    write_log(tmp_path, BODY[:1], header=session_line(version=0), name="session.jsonl")
    write_log(tmp_path, BODY)
    store = JsonlStore(tmp_path)
    with store.open("s", "read") as reader:
        assert (reader.header.version, len(reader.read())) == (2, len(BODY))
    write_log(tmp_path, BODY, header=session_line(version=10), name="session.v10.jsonl")
    with pytest.raises(UnsupportedLog):
        store.open("s", "read")


def test_names_that_are_no_log_are_ignored(tmp_path: Path) -> None:
    path = write_log(tmp_path, BODY)
    for name in ("notes.txt", "session.v0.jsonl", "session.v02.jsonl", "Session.v9.jsonl"):
        (path.parent / name).write_text("{}\n")
    (path.parent / "session.v9.jsonl.000000000000.tmp").write_text("{}\n")
    (path.parent / "session.lock").write_text("")
    (path.parent / "inner").mkdir()
    (path.parent.parent / "empty").mkdir()
    (path.parent.parent / "notes").write_text("x")
    (tmp_path / "stray.jsonl").write_text("{}\n")
    swept = JsonlStore(tmp_path).sweep()
    assert ([found.header.id for found in swept.snapshots], swept.damaged) == (["s"], ())


def test_sessions_of_several_projects_and_formats_stand_in_one_root(tmp_path: Path) -> None:
    write_log(tmp_path, BODY)
    write_log(tmp_path, BODY, project="_no-cwd", segment="t", header=session_line(id="t", cwd=None))
    write_log(
        tmp_path,
        BODY,
        project="--v--",
        segment="u~002F1",
        name="session.jsonl",
        header=session_line(id="u/1", cwd="/v", version=0, isSeeded=None, seedLength=1),
    )
    found = {seen.header.id: seen.header for seen in JsonlStore(tmp_path).sweep().snapshots}
    assert found.keys() == {"s", "t", "u/1"}
    assert (found["u/1"].is_seeded, found["u/1"].seed_length, found["u/1"].version) == (True, 1, 0)


def test_one_bad_session_never_hides_another(tmp_path: Path) -> None:
    write_log(tmp_path, BODY)
    write_log(tmp_path, [], segment="bad").write_bytes(b"\x00" * 5000)
    (tmp_path / "--w--" / "folder" / "session.v2.jsonl").mkdir(parents=True)
    (tmp_path / "--w--" / "flat.jsonl").write_bytes(session_line() + b"\n")
    (tmp_path / "--w--" / "loop").symlink_to("loop")
    swept = JsonlStore(tmp_path).sweep()
    assert [found.header.id for found in swept.snapshots] == ["s"]
    assert {(found.path, found.code.name, found.conflict) for found in swept.damaged} == {
        ("--w--/bad/session.v2.jsonl", "CORRUPT_SESSION", False),
        ("--w--/flat.jsonl", "PERSISTENCE_FAILED", True),
        ("--w--/folder", "PERSISTENCE_FAILED", True),
    }
    with pytest.raises(StoreFailed, match="--w--/folder cannot be read"):
        JsonlStore(tmp_path).stat("folder")


def test_logs_of_the_retired_layout_are_named_and_open_nothing(tmp_path: Path) -> None:
    write_log(tmp_path, BODY)
    for name in ("old.jsonl", "older.jsonl.zstd"):
        (tmp_path / "--w--" / name).write_bytes(session_line(id="old") + b"\n")
    store = JsonlStore(tmp_path)
    swept = store.sweep()
    assert [found.header.id for found in swept.snapshots] == ["s"]
    assert [(found.path, found.code, found.conflict) for found in swept.damaged] == [
        ("--w--/old.jsonl", ErrorCode.PERSISTENCE_FAILED, True),
        ("--w--/older.jsonl.zstd", ErrorCode.PERSISTENCE_FAILED, True),
    ]
    assert store.stat("old") is None


class SickAt(OsFiles):
    """The real disk, on which one kind of look at one path fails until it is well again."""

    def __init__(self, look: str, path: Path) -> None:
        self.sick: tuple[str, str] | None = (look, str(path))

    def stat(self, path: str) -> FileStat:
        self._look("stat", path)
        return super().stat(path)

    def entries(self, path: str) -> list[Entry]:
        self._look("entries", path)
        return super().entries(path)

    def open_reading(self, path: str) -> OpenFile:
        self._look("open_reading", path)
        return super().open_reading(path)

    def _look(self, look: str, path: str) -> None:
        if self.sick == (look, path):
            raise OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize(
    ("look", "where", "named"),
    [
        ("stat", "--w--", "--w--"),
        ("entries", "--w--", "--w--"),
        ("stat", "--w--/s", "--w--/s"),
        ("entries", "--w--/s", "--w--/s"),
        ("stat", "--w--/s/session.v2.jsonl", "--w--/s"),
        ("open_reading", "--w--/s/session.v2.jsonl", "--w--/s"),
    ],
)
def test_what_cannot_be_looked_at_is_named_hides_nothing_else_and_is_looked_at_again(
    tmp_path: Path, look: str, where: str, named: str
) -> None:
    write_log(tmp_path, BODY)
    write_log(tmp_path, BODY, project="--v--", segment="t", header=session_line(id="t", cwd="/v"))
    files = SickAt(look, tmp_path / where)
    store = JsonlStore(tmp_path, files=files)
    for _ in range(2):
        swept = store.sweep()
        assert [found.header.id for found in swept.snapshots] == ["t"]
        [damaged] = swept.damaged
        assert (damaged.path, damaged.code) == (named, ErrorCode.PERSISTENCE_FAILED)
        assert damaged.message.startswith(f"{named} cannot be read: [Errno {errno.EIO}]")
        if where != "--w--":
            with pytest.raises(StoreFailed, match="cannot be read"):
                store.stat("s")
    files.sick = None
    assert len(store.sweep().snapshots) == 2
    assert store.stat("s") is not None


def test_a_root_that_cannot_be_looked_at_fails_a_sweep(tmp_path: Path) -> None:
    write_log(tmp_path, BODY)
    store = JsonlStore(tmp_path, files=SickAt("entries", tmp_path))
    with pytest.raises(StoreFailed, match=f"{tmp_path} cannot be read"):
        store.sweep()
    with pytest.raises(StoreFailed, match=f"{tmp_path} cannot be read"):
        store.open("s", "read")


@pytest.mark.parametrize(
    "line", [session_line(id="other"), session_line(cwd="/other"), session_line(cwd=None)]
)
def test_a_header_that_does_not_lead_back_to_its_file_is_a_conflict(
    tmp_path: Path, line: bytes
) -> None:
    write_log(tmp_path, BODY, header=line)
    damaged = only_damage(JsonlStore(tmp_path))
    assert (damaged.code, damaged.conflict) == (ErrorCode.CORRUPT_SESSION, True)
    assert "belong to" in damaged.message


def test_another_path_to_the_same_physical_file_is_no_conflict(tmp_path: Path) -> None:
    write_log(tmp_path, BODY)
    (tmp_path / "--alias--").symlink_to("--w--")
    store = JsonlStore(tmp_path)
    swept = store.sweep()
    assert ([found.header.id for found in swept.snapshots], swept.damaged) == (["s"], ())
    assert JsonlStore(tmp_path).stat("s") is not None


def test_an_id_stored_in_two_projects_belongs_to_neither(tmp_path: Path) -> None:
    write_log(tmp_path, BODY)
    write_log(tmp_path, BODY, project="--v--", header=session_line(cwd="/v"))
    write_log(tmp_path, BODY, segment="t", header=session_line(id="t"))
    store = JsonlStore(tmp_path)
    swept = store.sweep()
    assert [found.header.id for found in swept.snapshots] == ["t"]
    [damaged] = swept.damaged
    assert (damaged.session_id, damaged.conflict) == ("s", True)
    for again in (store, JsonlStore(tmp_path)):
        with pytest.raises(CorruptLog, match="stored twice"):
            again.stat("s")


def test_working_directories_that_share_a_slug_share_a_project(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    store_session(store, turns(1), evolve(header("a"), cwd="/work/x"))
    store_session(store, turns(1), evolve(header("b"), cwd="/work:x"))
    assert [found.name for found in tmp_path.iterdir()] == ["--work-x--"]
    assert len(store.sweep().snapshots) == 2


def test_a_log_both_plain_and_compressed_is_corrupt(tmp_path: Path) -> None:
    path = write_log(tmp_path, BODY)
    path.with_name("session.v2.jsonl.zstd").write_bytes(b"")
    assert only_damage(JsonlStore(tmp_path)).code is ErrorCode.CORRUPT_SESSION


def test_an_id_too_long_for_a_directory_name_is_absent_and_cannot_be_created(
    tmp_path: Path,
) -> None:
    store = JsonlStore(tmp_path)
    store_session(store, turns(1))
    assert store.stat("x" * 300) is None
    for length in (256, 300):
        with pytest.raises(ValueError, match="too long"):
            store.create(header("x" * length))
    store_session(store, turns(1), header("x" * 255))
    assert store.stat("x" * 255) is not None


def test_an_id_whose_creation_was_refused_can_be_created_when_it_is_free(tmp_path: Path) -> None:
    path = write_log(tmp_path, BODY)
    store = JsonlStore(tmp_path)
    with pytest.raises(AlreadyExists, match="stored already"):
        store.create(header())
    path.unlink()
    store_session(store, turns(1))
    assert store.stat("s") is not None


def test_a_damaged_session_keeps_its_id(tmp_path: Path) -> None:
    write_log(tmp_path, BODY, header=b"{}")
    with pytest.raises(AlreadyExists, match="unreadable"):
        JsonlStore(tmp_path).create(evolve(header(), cwd="/w"))


# --- what a sweep remembers


def test_an_unchanged_store_is_not_opened_again(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        write_log(tmp_path, BODY, segment=name, header=session_line(id=name))
    write_log(tmp_path, BODY, segment="bad", header=b"{}")
    files = OsFilesAt(age(tmp_path))
    store = JsonlStore(tmp_path, files=files)
    first = store.sweep()
    files.calls.clear()
    second = store.sweep()
    assert (second.snapshots, second.damaged) == (first.snapshots, first.damaged)
    assert files.calls["open_reading"] == 0
    assert files.calls["entries"] == 1
    assert files.calls["stat"] == 1 + 2 * 4


def test_a_known_session_is_found_without_a_search(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_log(tmp_path, BODY, segment=name, header=session_line(id=name))
    files = OsFilesAt(age(tmp_path))
    store = JsonlStore(tmp_path, files=files)
    store.sweep()
    files.calls.clear()
    assert store.stat("b") is not None
    assert dict(files.calls) == {"now_ns": 1, "stat": 2}


def test_a_sweep_sees_what_came_and_went(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    write_log(tmp_path, BODY)
    assert len(store.sweep().snapshots) == 1
    moved = write_log(tmp_path, BODY, segment="t", header=session_line(id="t"))
    assert len(store.sweep().snapshots) == 2
    newer = write_log(
        tmp_path, BODY, segment="t", header=session_line(id="t", version=3), name="session.v3.jsonl"
    )
    assert {found.header.version for found in store.sweep().snapshots} == {2, 3}
    newer.unlink()
    assert {found.header.version for found in store.sweep().snapshots} == {2}
    moved.unlink()
    moved.parent.rmdir()
    assert [found.header.id for found in store.sweep().snapshots] == ["s"]
    assert store.stat("t") is None


def test_a_log_that_is_removed_during_a_sweep_is_left_out(tmp_path: Path) -> None:
    for session_id in ("s", "t", "u"):
        write_log(tmp_path, BODY, segment=session_id, header=session_line(id=session_id))

    class Vanishing(OsFilesAt):
        def open_reading(self, path: str) -> OpenFile:
            if "/t/" in path:
                os.unlink(path)
            return super().open_reading(path)

    swept = JsonlStore(tmp_path, files=Vanishing(age(tmp_path))).sweep()
    assert [found.header.id for found in swept.snapshots] == ["s", "u"]
    assert swept.damaged == ()


def test_a_sweep_that_nobody_wants_any_more_ends_after_a_few_sessions(tmp_path: Path) -> None:
    for number in range(150):
        write_log(tmp_path, [], segment=f"s{number}", header=session_line(id=f"s{number}"))
    turn = Turn()

    class Leaving(OsFilesAt):
        def open_reading(self, path: str) -> OpenFile:
            turn.give_up()
            return super().open_reading(path)

    files = Leaving(age(tmp_path))
    with pytest.raises(GaveUp):
        turn.doing(JsonlStore(tmp_path, files=files).sweep)()
    assert 0 < files.calls["open_reading"] < 100


def test_a_young_file_is_provisional_and_looked_at_again(tmp_path: Path) -> None:
    path = write_log(tmp_path, BODY)
    files = OsFilesAt(path.stat().st_ctime_ns + 19_999_999)
    store = JsonlStore(tmp_path, files=files)
    [young] = store.sweep().snapshots
    assert young.provisional
    files.calls.clear()
    store.sweep()
    assert files.calls["open_reading"] == 1
    files.now += 1
    [old] = store.sweep().snapshots
    assert (old.provisional, old.revision) == (False, young.revision)


def test_a_damaged_header_is_looked_at_again_when_its_file_changes(tmp_path: Path) -> None:
    path = write_log(tmp_path, BODY, header=b"{}")
    store = JsonlStore(tmp_path)
    assert store.sweep().snapshots == ()
    path.write_bytes(session_line() + b"\n")
    assert len(store.sweep().snapshots) == 1


def test_a_session_moved_between_projects_is_followed(tmp_path: Path) -> None:
    path = write_log(tmp_path, BODY)
    store = JsonlStore(tmp_path)
    store.sweep()
    path.unlink()
    write_log(tmp_path, BODY, project="--v--", header=session_line(cwd="/v"))
    seen = store.stat("s")
    assert seen is not None
    assert seen.header.cwd == "/v"


def test_a_revision_names_the_physical_state_of_the_file(tmp_path: Path) -> None:
    path = write_log(tmp_path, BODY)
    seen = JsonlStore(tmp_path).stat("s")
    now = path.stat()
    assert seen is not None
    assert seen.size_bytes == now.st_size
    assert seen.revision == (
        f"{now.st_dev}:{now.st_ino}:{now.st_size}:{now.st_mtime_ns}:{now.st_ctime_ns}"
    )


def test_equal_logs_in_two_roots_have_different_revisions(tmp_path: Path) -> None:
    revisions: set[str] = set()
    for name in ("a", "b"):
        write_log(tmp_path / name, BODY)
        seen = JsonlStore(tmp_path / name).stat("s")
        assert seen is not None
        revisions.add(seen.revision)
    assert len(revisions) == 2


# --- tails


def test_a_log_rewritten_in_place_is_read_from_the_beginning(tmp_path: Path) -> None:
    path = write_log(tmp_path, BODY)
    store = JsonlStore(tmp_path)
    mark = store.read_tail("s", None).mark
    inode = path.stat().st_ino
    other = [row(seq, "demo/other", {"text": "x" * 300}) for seq in range(9)]
    path.write_bytes(b"\n".join([session_line(), *other, b""]))
    assert path.stat().st_ino == inode
    tail = store.read_tail("s", mark)
    assert (tail.appended, len(tail.events), tail.events[0].type) == (False, 9, "demo/other")


def test_a_log_cut_short_is_read_from_the_beginning(tmp_path: Path) -> None:
    path = write_log(tmp_path, BODY)
    store = JsonlStore(tmp_path)
    mark = store.read_tail("s", None).mark
    os.truncate(path, len(session_line()) + 1 + len(BODY[0]) + 1)
    tail = store.read_tail("s", mark)
    assert (tail.appended, len(tail.events)) == (False, 1)


def test_a_log_replaced_by_another_file_is_read_from_the_beginning(tmp_path: Path) -> None:
    path = write_log(tmp_path, BODY)
    store = JsonlStore(tmp_path)
    mark = store.read_tail("s", None).mark
    copy = path.with_name("copy")
    copy.write_bytes(path.read_bytes())
    copy.replace(path)
    assert not store.read_tail("s", mark).appended


@pytest.mark.parametrize("place", ["beginning", "ending"])
def test_a_change_far_before_the_mark_is_noticed(tmp_path: Path, place: str) -> None:
    rows = [row(seq, "demo/big", {"text": "x" * 20_000}) for seq in range(60)]
    path = write_log(tmp_path, rows)
    store = JsonlStore(tmp_path)
    mark = store.read_tail("s", None).mark
    at = 30_000 if place == "beginning" else path.stat().st_size - 50_000
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"y")
    assert not store.read_tail("s", mark).appended


def test_a_mark_is_good_in_another_store_of_the_same_root(tmp_path: Path) -> None:
    path = write_log(tmp_path, BODY)
    mark = JsonlStore(tmp_path).read_tail("s", None).mark
    with path.open("ab") as file:
        file.write(row(len(BODY), "demo/x", {}) + b"\n")
    tail = JsonlStore(tmp_path).read_tail("s", mark)
    assert (tail.appended, [event.seq for event in tail.events]) == (True, [len(BODY)])


def test_a_packed_row_is_never_split_between_tails(tmp_path: Path) -> None:
    data = {"turn": 1, "step": 1, "index": 0, "dt": [1, 1], "texts": ["a", "b", "c"]}
    packed = json.dumps({"type": "text-chunks", "seq0": 0, "time0": 5, "data": data}).encode()
    write_log(
        tmp_path,
        [packed, row(3, "demo/x", {})],
        name="session.jsonl",
        header=session_line(version=0, isSeeded=None),
    )
    tail = JsonlStore(tmp_path).read_tail("s", None, 1)
    assert ([event.seq for event in tail.events], tail.complete) == ([0, 1, 2], False)


# --- a log that changes while it is read


def test_a_log_that_grows_while_it_is_read_is_read_as_it_was(tmp_path: Path) -> None:
    path = write_log(tmp_path, BODY)

    def grow() -> None:
        with path.open("ab") as file:
            file.write(row(len(BODY), "demo/x", {}) + b"\n")

    size = path.stat().st_size
    store = JsonlStore(tmp_path, files=MeddlingFiles(grow, times=9))
    tail = store.read_tail("s", None)
    assert len(tail.events) == len(BODY)
    assert tail.snapshot.size_bytes == size
    assert tail.snapshot.revision.split(":")[2] == str(size)


def test_a_log_that_is_replaced_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    path = write_log(tmp_path, BODY)

    def replace() -> None:
        write_log(tmp_path, BODY[:1], segment="other").replace(path)

    tail = JsonlStore(tmp_path, files=MeddlingFiles(replace, times=1)).read_tail("s", None)
    assert len(tail.events) == 1


def test_a_log_that_is_cut_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    path = write_log(tmp_path, BODY, b"torn")
    whole = path.stat().st_size - 4
    files = MeddlingFiles(lambda: os.truncate(path, whole), times=1)
    assert JsonlStore(tmp_path, files=files).read_tail("s", None).left_out is None


def test_damage_that_is_seen_while_a_log_changes_is_not_believed(tmp_path: Path) -> None:
    path = write_log(tmp_path, [*BODY[:1], b"damage", row(9, "turn/end", {})])
    good = b"\n".join([session_line(), *BODY, b""])

    def heal() -> None:
        path.write_bytes(good)

    files = MeddlingFiles(heal, times=1, moment="close")
    assert len(JsonlStore(tmp_path, files=files).read_tail("s", None).events) == len(BODY)


def test_a_log_that_never_comes_to_rest_fails(tmp_path: Path) -> None:
    path = write_log(tmp_path, BODY)
    content = path.read_bytes()

    def rewrite() -> None:
        path.unlink()
        path.write_bytes(content)

    store = JsonlStore(tmp_path, files=MeddlingFiles(rewrite, times=99))
    with pytest.raises(StoreFailed, match="kept changing"):
        store.read_tail("s", None)


def test_a_reader_never_goes_back(tmp_path: Path) -> None:
    path = write_log(tmp_path, BODY)
    with JsonlStore(tmp_path).open("s", "read") as reader:
        assert len(reader.read()) == len(BODY)
        write_log(tmp_path, BODY[:1], segment="other").replace(path)
        with pytest.raises(StoreFailed, match="became shorter"):
            reader.read()


def test_a_session_removed_under_a_reader_is_not_found(tmp_path: Path) -> None:
    path = write_log(tmp_path, BODY)
    with JsonlStore(tmp_path).open("s", "read") as reader:
        path.unlink()
        with pytest.raises(NotFound):
            reader.read()


# --- permissions


def test_what_a_store_makes_is_for_its_owner_alone(tmp_path: Path) -> None:
    root = tmp_path / "deep" / "root"
    store_session(JsonlStore(root), turns(1))
    made = [tmp_path / "deep", *(tmp_path / "deep").rglob("*")]
    assert {stat.S_IMODE(path.stat().st_mode) for path in made if path.is_dir()} == {0o700}
    assert {stat.S_IMODE(path.stat().st_mode) for path in made if path.is_file()} == {0o600}
    names = sorted(path.name for path in made if path.is_file())
    assert names == ["session.lock", "session.v2.jsonl"]


# --- payloads that are handed on


def test_a_tail_brings_the_payloads_that_were_decoded_to_read_it(tmp_path: Path) -> None:
    rows = [
        row(0, "demo/x", {"a": [1, 2.5, "é"]}),
        row(1, "demo/x", None),
        row(2, "demo/x", "\ud800"),
    ]
    write_log(tmp_path, rows)
    tail = JsonlStore(tmp_path).read_tail("s", None)
    assert [event.seq for event in tail.events] == [0, 1, 2]
    # The last has to be read with care.
    assert tail.payloads == {0: {"a": [1, 2.5, "é"]}, 1: None}


def test_payloads_are_brought_of_so_much_text_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [row(seq, "demo/x", {"a": seq}) for seq in range(3)]
    write_log(tmp_path, rows)
    monkeypatch.setattr(log_file, "HANDED_ON_BYTES", len(rows[0]) + len(rows[1]) + 2)
    tail = JsonlStore(tmp_path).read_tail("s", None)
    assert len(tail.events) == 3
    assert tail.payloads == {0: {"a": 0}, 1: {"a": 1}}
