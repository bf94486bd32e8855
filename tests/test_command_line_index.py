"""The commands about the index: status, rebuild and purge."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from builders import Log, header
from command_line_runs import EXAMPLES, CommandLine, contents, write_session
from service_world import store_of

from session_query.actors.composition import open_session_query
from session_query.messages.config import IndexConfig


def test_status_shows_an_index_as_the_last_search_left_it(command_line: CommandLine) -> None:
    before = command_line("index", "status", "--store", EXAMPLES)
    command_line("search", "login", "--store", EXAMPLES)
    run = command_line("index", "status", "--store", EXAMPLES)
    (file,) = command_line.index_files()
    names = [line.split()[0] for line in run.out.splitlines()]
    assert names == [line.split()[0] for line in before.out.splitlines()]
    assert "sessions    0" in before.out
    assert f"file        {file}" in run.out
    assert "sessions    12" in run.out
    assert (run.status, run.err) == (0, "")


def test_status_in_json_is_the_record_of_the_library(command_line: CommandLine) -> None:
    command_line("search", "login", "--store", EXAMPLES)
    (record,) = command_line("index", "status", "--store", EXAMPLES, "--json").records
    (file,) = command_line.index_files()
    assert record["path"] == str(file)
    assert (record["sessions"], record["purged"], record["skipped"]) == (12, 0, [])
    assert record["size_bytes"] >= file.stat().st_size > 0
    assert record["documents"] > 12
    assert record["tokenizer"] == "cjk"


def test_a_purged_session_is_gone_until_a_rebuild(command_line: CommandLine) -> None:
    search = ("search", "login timeout", "--store", EXAMPLES, "--json")
    everything = command_line(*search).records
    run = command_line("index", "purge", "0a41-login-timeout", "--store", EXAMPLES)
    assert (run.status, run.err) == (0, "")
    assert run.out == "purged 0a41-login-timeout; a rebuild lets it in again\n"
    left = [hit["header"]["id"] for hit in command_line(*search).records]
    assert left
    assert "0a41-login-timeout" not in left
    assert "purged      1" in command_line("index", "status", "--store", EXAMPLES).out
    run = command_line("search", "login", "--session", "0a41-login-timeout", "--store", EXAMPLES)
    assert (run.status, run.out) == (1, "")
    assert "purged" in run.err
    run = command_line("index", "rebuild", "--store", EXAMPLES)
    assert (run.status, run.out, run.err) == (0, "", "")
    assert command_line(*search).records == everything


def test_a_purge_leaves_nothing_in_the_cache_and_the_store_as_it_was(
    command_line: CommandLine, tmp_path: Path
) -> None:
    root, log = tmp_path / "store", Log()
    log.user("word jqxw71")
    write_session(root, header("zid-kvzb62"), log.events)
    before = contents(root)
    assert command_line("search", "jqxw71", "--store", root).status == 0
    command_line("index", "purge", "zid-kvzb62", "--store", root)
    kept = b"".join(
        path.read_bytes() for path in sorted(command_line.cache.rglob("*")) if path.is_file()
    )
    assert b"SQLite" in kept
    assert b"jqxw71" not in kept
    assert b"kvzb62" not in kept
    assert contents(root) == before


def test_a_purge_of_a_session_that_nobody_knows_fails(command_line: CommandLine) -> None:
    run = command_line("index", "purge", "0a41-login-timeot", "--store", EXAMPLES)
    assert (run.status, run.out) == (1, "")
    assert "neither the store nor its index has a session '0a41-login-timeot'" in run.err


def test_an_index_inside_the_store_is_refused(command_line: CommandLine, tmp_path: Path) -> None:
    run = command_line("search", "x", "--store", tmp_path, "--index", tmp_path / "a" / "index.db")
    assert (run.status, run.out) == (2, "")
    assert "lies inside the store" in run.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [("status",), ("rebuild",), ("purge", "0f00-scratch")])
def test_each_tokenizer_and_each_file_is_an_index_of_its_own(
    command_line: CommandLine, tmp_path: Path, command: tuple[str, ...]
) -> None:
    named = tmp_path / "named.db"
    place = ("--store", EXAMPLES)
    assert command_line("index", *command, *place, "--index", named).status == 0
    assert named.exists()
    assert command_line.index_files() == []
    assert command_line("index", *command, *place, "--tokenizer", "unicode61").status == 0
    (other,) = command_line.index_files()
    assert "unicode61" in other.name


async def test_an_index_in_use_is_refused_by_the_name_of_its_owner(
    command_line: CommandLine, tmp_path: Path
) -> None:
    path = tmp_path / "index.db"
    async with open_session_query(store=store_of(), index=IndexConfig(path=str(path))):
        run = command_line.process("index", "purge", "s", "--store", EXAMPLES, "--index", path)
    assert (run.status, run.out) == (1, "")
    assert f"in use by process {os.getpid()}" in run.err
    assert run.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("status",), 1),
        (("purge", "--store", str(EXAMPLES)), 2),
        (("purge", "a", "b", "--store", str(EXAMPLES)), 2),
        (("rebuild", "--store", "/no/such/store"), 1),
        (("status", "--store", str(EXAMPLES), "--tokenizer", "none"), 2),
        (("status", "--store", str(EXAMPLES), "--index", " "), 2),
        (("status", "--store", str(EXAMPLES), "--index", "/dev/null/index.db"), 1),
    ],
)
def test_a_wrong_call_is_told_in_one_line(
    command_line: CommandLine, arguments: tuple[str, ...], status: int
) -> None:
    run = command_line("index", *arguments)
    assert (run.status, run.out) == (status, "")
    assert run.err.count("\n") == 1
