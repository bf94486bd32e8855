"""Spill files: names, privacy, and what a disk that fails leaves behind."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from session_query.storage import files
from session_query.storage.spill_files import (
    SpillFiles,
    make_temporary_root,
    remove_temporary_root,
)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_result_is_kept_whole_under_a_path_that_a_model_can_repeat(tmp_path: Path) -> None:
    kept = SpillFiles(str(tmp_path)).save("s", "grep.txt", "1", "größer".encode())
    path = Path(kept.locator)
    assert path.read_text("utf-8") == "größer"
    assert path.name.endswith("-grep.txt")
    assert path.parent.parent == tmp_path
    assert "read" in kept.hint


def test_folders_and_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    root = tmp_path / "a" / "b"
    path = Path(SpillFiles(str(root)).save("s", "x.txt", "1", b"x").locator)
    assert mode(path) == 0o600
    assert [mode(folder) for folder in (path.parent, root, root.parent)] == [0o700] * 3


def test_a_folder_that_exists_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    SpillFiles(str(tmp_path)).save("s", "x.txt", "1", b"x")
    assert mode(tmp_path) == 0o750


def test_the_folder_of_a_session_is_a_stable_hash_of_its_id(tmp_path: Path) -> None:
    paths = [
        Path(SpillFiles(str(tmp_path)).save(owner, "x.txt", unique, b"x").locator)
        for owner, unique in [("s", "1"), ("s", "2"), ("../t", "3")]
    ]
    assert paths[0].parent == paths[1].parent != paths[2].parent
    # The first twelve digits of the SHA-256 of "s".
    assert paths[0].parent.name == "session-043a718774c5"
    assert len({path.name for path in paths}) == 3


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("", "-~"),
        ("..", "-~002E~002E"),
        ("a/b", "-a~002Fb"),
        ("登录.txt", "-~767B~5F55.txt"),
        ("\ud83d", "-~D83D"),
    ],
)
def test_the_name_of_a_file_is_encoded_as_session_ids_are(
    tmp_path: Path, name: str, end: str
) -> None:
    locator = SpillFiles(str(tmp_path)).save("s", name, "1", b"x").locator
    assert os.path.basename(locator)[12:] == end


@given(name=st.text(max_size=400), owner=st.text(min_size=1))
def test_no_name_leads_out_of_the_folder(
    tmp_path_factory: pytest.TempPathFactory, name: str, owner: str
) -> None:
    root = tmp_path_factory.mktemp("spill")
    kept = SpillFiles(str(root)).save(owner, name, "1", b"x")
    assert Path(kept.locator).parent.parent == root
    assert Path(kept.locator).read_bytes() == b"x"


def test_a_file_is_never_written_twice(tmp_path: Path) -> None:
    store = SpillFiles(str(tmp_path))
    kept = store.save("s", "x.txt", "1", b"first")
    with pytest.raises(FileExistsError):
        store.save("s", "x.txt", "1", b"second")
    assert Path(kept.locator).read_bytes() == b"first"


def test_a_root_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        SpillFiles(str(tmp_path / "file")).save("s", "x.txt", "1", b"x")


def test_a_folder_whose_path_is_no_text_is_refused_before_anything_is_written(
    tmp_path: Path,
) -> None:
    root = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    with pytest.raises(UnicodeEncodeError):
        SpillFiles(root).save("s", "x.txt", "1", b"x")
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fails_part_of_the_way_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_self: files.OsFile, _data: bytes) -> None:
        raise OSError(errno.ENOSPC, "disk full")

    monkeypatch.setattr(files.OsFile, "append", full)
    with pytest.raises(OSError, match="disk full"):
        SpillFiles(str(tmp_path)).save("s", "x.txt", "1", b"x")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_temporary_root_is_private_and_goes_with_all_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    root = make_temporary_root("1")
    SpillFiles(root).save("s", "x.txt", "1", b"x")
    assert mode(Path(root)) == 0o700
    remove_temporary_root(root)
    assert list(tmp_path.iterdir()) == []
