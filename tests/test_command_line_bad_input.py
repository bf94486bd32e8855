"""Bad input at the command line: one line that helps, the right status, nothing half done."""

from __future__ import annotations

import os
import pwd
import sqlite3
from pathlib import Path

import pytest
from builders import Log, header
from command_line_runs import EXAMPLES, CommandLine, Run, contents, write_session

from session_query.messages.config import IndexConfig
from session_query.storage.index_file import open_index_file

STORE = ("--store", str(EXAMPLES))


def check(run: Run, status: int, *fragments: str) -> None:
    assert (run.status, run.out) == (status, "")
    (line,) = run.err.splitlines()
    assert line.startswith("session-query: ")
    for fragment in fragments:
        assert fragment in line


@pytest.mark.parametrize(
    ("words", "fragment"),
    [
        (["search", "", *STORE], "the query is blank"),
        (["search", " \t", *STORE], "the query is blank"),
        (["list", "--store", ""], "the store '' names no folder"),
        (["search", "x", *STORE, "--index", " "], "--index ' '"),
        (["search", "x", *STORE, "--since", "2026-03-02"], "2026-03-02T09:14:00Z"),
        (["search", "x", *STORE, "--until", "2026-03-02T09:14:00"], "--until"),
        (["search", "x", *STORE, "--since", "yesterday"], "'yesterday'"),
        (
            ["search", "x", *STORE, "--since", "2026-03-02T10Z", "--until", "2026-03-02T09Z"],
            "--since '2026-03-02T10Z' is after --until",
        ),
        (["search", "x", *STORE, "--limit", "0"], "--limit"),
        (["search", "x", *STORE, "--limit", "many"], "many"),
        (["search", "x", *STORE, "--surface", "deep"], "deep"),
        (["search", "x", *STORE, "--tokenizer", "porter"], "porter"),
        (["search", "x", *STORE, "--session", "s", "--cwd", "/"], "--cwd"),
        (["search", *STORE], "QUERY"),
        (["search", "two", "words", *STORE], "words"),
        (["read", "0f00-scratch", "first", *STORE], "first"),
        (["read", "0f00-scratch", "0", "--before", "51", *STORE], "51"),
        (["read", "0f00-scratch", "0", "--after", "-1", *STORE], "-1"),
        (["find", "x"], "find"),
        (["list", "--colour"], "--colour"),
    ],
)
def test_wrong_use_is_refused_with_status_2(
    words: list[str], fragment: str, command_line: CommandLine
) -> None:
    check(command_line(*words), 2, fragment)
    assert command_line.index_files() == []


@pytest.mark.parametrize("words", [["search", "x"], ["list"], ["events", "s"], ["read", "s", "0"]])
def test_a_place_that_is_no_store_is_refused(
    words: list[str], command_line: CommandLine, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    for name, reason in {
        "absent": "no store",
        "file": "is a file",
        "loop": "cannot be read",
    }.items():
        check(command_line(*words, "--store", tmp_path / name), 1, name, reason)
    assert not (tmp_path / "absent").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_without_permission_is_refused(command_line: CommandLine, tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir(mode=0o000)
    check(command_line("list", "--store", store), 1, "cannot be read", str(store))


@pytest.mark.parametrize(
    "words",
    [["events", "nobody"], ["read", "nobody", "0"], ["search", "x", "--session", "nobody"]],
)
def test_an_unknown_session_is_named(words: list[str], command_line: CommandLine) -> None:
    check(command_line(*words, *STORE), 1, "nobody")


def test_an_unknown_event_is_named(command_line: CommandLine) -> None:
    check(command_line("read", "0f00-scratch", "99", *STORE), 1, "99")


@pytest.mark.parametrize("words", [["events", "s"], ["read", "s", "0"]])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"type":"turn/start"', '"type" "turn/start"'),
        ('"type":"turn/start"', '"type":"turn/unheard-of"'),
        ('"version":2', '"version":9'),
    ],
)
def test_a_session_that_cannot_be_read_fails_alone(
    words: list[str], old: str, new: str, command_line: CommandLine, tmp_path: Path
) -> None:
    log = Log()
    log.user("needle")
    log.turn_start()
    log.turn_end()
    file = write_session(tmp_path / "store", header(), log.events)
    file.write_text(file.read_text().replace(old, new))
    before = contents(tmp_path / "store")
    check(command_line(*words, "--store", tmp_path / "store"), 1, "s")
    assert contents(tmp_path / "store") == before


def test_a_text_file_is_not_taken_for_an_index(command_line: CommandLine, tmp_path: Path) -> None:
    index = tmp_path / "notes.txt"
    index.write_text("my notes\n" * 1000)
    check(command_line("search", "x", *STORE, "--index", index), 1, str(index))
    assert index.read_text() == "my notes\n" * 1000


def test_a_foreign_database_is_not_taken_for_an_index(
    command_line: CommandLine, tmp_path: Path
) -> None:
    index = tmp_path / "theirs.db"
    connection = sqlite3.connect(index)
    connection.execute("CREATE TABLE theirs(x)")
    connection.close()
    before = index.read_bytes()
    check(command_line("search", "x", *STORE, "--index", index), 1, str(index))
    assert index.read_bytes() == before


def test_an_index_in_use_is_refused(command_line: CommandLine, tmp_path: Path) -> None:
    index = str(tmp_path / "index.db")
    held = open_index_file(IndexConfig(path=index))
    try:
        check(command_line("search", "x", *STORE, "--index", index), 1, index, "in use")
    finally:
        held.close()


def test_an_index_that_is_a_folder_is_refused(command_line: CommandLine, tmp_path: Path) -> None:
    check(command_line("search", "x", *STORE, "--index", tmp_path), 1, str(tmp_path))


def test_a_cache_folder_that_cannot_be_made_is_named(
    command_line: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    check(command_line("search", "x", *STORE), 1, str(tmp_path / "file"), "another path")


def test_without_a_home_directory_an_index_must_be_named(
    command_line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_such_user(_uid: int) -> None:
        raise KeyError

    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", no_such_user)
    check(command_line("search", "x", *STORE), 1, "--index FILE")
