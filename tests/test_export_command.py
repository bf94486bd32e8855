"""The command ``export``: the file that it writes, and that it leaves nothing half written."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from zipfile import ZipFile

import pytest
from builders import header
from command_line_runs import EXAMPLES, PROCESS, CommandLine, contents, write_session
from jsonl_files import BODY, row, session_line, write_log
from service_world import messages

from session_query.actors.runtime import TrioRuntime
from session_query.interfaces.new_file import new_file


def test_a_session_is_written_with_its_descendants(
    command_line: CommandLine, tmp_path: Path
) -> None:
    path = tmp_path / "out.zip"
    before = contents(EXAMPLES)
    run = command_line(
        "export", "0a41-login-timeout", "--descendants", "-o", path, "--store", EXAMPLES
    )
    assert (run.status, run.out, run.err) == (0, f"wrote 3 logs to {path}\n", "")
    with ZipFile(path) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == [
            "session.v2.jsonl",
            "subagents/0e11-find-callers/session.v2.jsonl",
            "subagents/0a42-login-retry/session.v2.jsonl",
        ]
    assert path.stat().st_mode & 0o777 == 0o600
    assert contents(EXAMPLES) == before


def test_only_the_session_is_written_by_default(command_line: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "out.zip"
    run = command_line("export", "0a41-login-timeout", "--output", path, "--store", EXAMPLES)
    assert (run.status, run.out) == (0, f"wrote 1 log to {path}\n")
    with ZipFile(path) as archive:
        assert archive.namelist() == ["session.v2.jsonl"]


def test_a_file_of_that_name_is_replaced(command_line: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "out.zip"
    path.write_text("old")
    assert command_line("export", "0f00-scratch", "-o", path, "--store", EXAMPLES).status == 0
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.zip"]
    with ZipFile(path) as archive:
        assert archive.testzip() is None


def test_a_link_is_written_through(command_line: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link, target = tmp_path / "link.zip", tmp_path / "there" / "target.zip"
    link.symlink_to(target)
    assert command_line("export", "0f00-scratch", "-o", link, "--store", EXAMPLES).status == 0
    assert link.is_symlink() and target.is_file()


def test_no_index_is_made(command_line: CommandLine, tmp_path: Path) -> None:
    command_line("export", "0f00-scratch", "-o", tmp_path / "out.zip", "--store", EXAMPLES)
    assert command_line.index_files() == []


def test_damage_that_may_be_a_descendant_is_named(
    command_line: CommandLine, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    write_session(store, header("s"), messages("x"))
    write_log(store, [], segment="broken", header=b"not json")
    path = tmp_path / "out.zip"
    run = command_line("export", "s", "--descendants", "-o", path, "--store", store)
    assert run.status == 0
    assert run.err.startswith("left out: broken: ")


def test_lines_that_no_reader_can_read_are_named(command_line: CommandLine, tmp_path: Path) -> None:
    store, path = tmp_path / "store", tmp_path / "out.zip"
    write_log(store, [BODY[0], b"{}", BODY[1], b""])
    run = command_line("export", "s", "-o", path, "--store", store)
    assert run.status == 0
    assert run.err.startswith("left out: ") and "line 3" in run.err
    with ZipFile(path) as archive:
        assert archive.read("session.v2.jsonl").count(b"\n") == 2


@pytest.mark.parametrize("old", [None, b"what was there"])
def test_a_failed_export_leaves_what_was_there(
    command_line: CommandLine, tmp_path: Path, old: bytes | None
) -> None:
    store, folder = tmp_path / "store", tmp_path / "out"
    folder.mkdir()
    if old is not None:
        (folder / "out.zip").write_bytes(old)
    rows = [row(at, "demo/x", {"text": "x" * 1_000_000}, ignorable=True) for at in range(5)]
    write_log(store, [*rows, b"{}", BODY[2], b""])
    before = contents(folder)
    run = command_line("export", "s", "-o", folder / "out.zip", "--store", store)
    assert (run.status, run.out) == (1, "")
    assert "line 7" in run.err
    after = contents(folder)
    assert {name: data[0] for name, data in after.items()} == {
        name: data[0] for name, data in before.items()
    }


def test_an_unknown_session_is_said_in_one_line(command_line: CommandLine, tmp_path: Path) -> None:
    run = command_line("export", "nowhere", "-o", tmp_path / "out.zip", "--store", EXAMPLES)
    assert (run.status, run.err.count("\n")) == (1, 1)
    assert "'nowhere' is neither live nor stored" in run.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("output", ["", " ", "out/", "a\0b"])
def test_an_output_that_names_no_file_is_wrong_use(command_line: CommandLine, output: str) -> None:
    run = command_line("export", "0f00-scratch", "-o", output, "--store", EXAMPLES)
    assert (run.status, run.err.count("\n")) == (2, 1)
    assert "names no file" in run.err


def test_an_output_inside_the_store_is_wrong_use(command_line: CommandLine) -> None:
    before = contents(EXAMPLES)
    run = command_line("export", "0f00-scratch", "-o", EXAMPLES / "out.zip", "--store", EXAMPLES)
    assert run.status == 2
    assert "never written to" in run.err
    assert contents(EXAMPLES) == before


def test_an_output_is_required(command_line: CommandLine) -> None:
    run = command_line("export", "0f00-scratch", "--store", EXAMPLES)
    assert run.status == 2
    assert "--output" in run.err


def test_an_output_that_is_no_file_or_in_no_folder_cannot_be_used(
    command_line: CommandLine, tmp_path: Path
) -> None:
    refused = ((tmp_path, "is no file"), ("/dev/null", "is no file"), ("no/x.zip", "no folder"))
    for output, said in refused:
        run = command_line("export", "0f00-scratch", "-o", output, "--store", EXAMPLES)
        assert run.status == 1
        assert said in run.err


async def test_a_medium_that_refuses_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="full"):
        async with new_file(str(tmp_path / "x"), TrioRuntime()) as write:
            await write(b"half")
            raise OSError("full")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_process_that_is_told_to_end_leaves_nothing(
    tmp_path: Path, number: signal.Signals
) -> None:
    store, folder = tmp_path / "store", tmp_path / "out"
    folder.mkdir()
    rows = [row(at, "demo/x", {"text": "x" * 500_000}, ignorable=True) for at in range(400)]
    write_log(store, [*rows, b""], header=session_line())
    arguments = ["export", "s", "-o", str(folder / "out.zip"), "--store", str(store)]
    with subprocess.Popen([*PROCESS, *arguments], stderr=subprocess.PIPE) as process:
        while not list(folder.iterdir()):
            assert process.poll() is None
        process.send_signal(number)
        assert process.wait(30) == 130
    assert list(folder.iterdir()) == []
