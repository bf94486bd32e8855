"""The command line as a process: closed pipes, full devices, narrow encodings, terminals."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from pathlib import Path

import pytest
from command_line_runs import EXAMPLES, PROCESS, CommandLine

STORE = ("--store", str(EXAMPLES))


def test_a_reader_that_goes_away_ends_it_without_a_word(command_line: CommandLine) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    run = subprocess.run(
        [*PROCESS, "list", *STORE],
        stdin=subprocess.DEVNULL,
        stdout=writing,
        stderr=subprocess.PIPE,
    )
    os.close(writing)
    assert (run.returncode, run.stderr) == (0, b"")


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_full_device_is_one_line(options: list[str], command_line: CommandLine) -> None:
    with Path("/dev/full").open("wb") as full:
        run = subprocess.run(
            [*PROCESS, "list", *STORE, *options], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert run.returncode == 1
    (line,) = run.stderr.splitlines()
    assert line.startswith("session-query: the output cannot be written: ")


def test_an_ascii_terminal_gets_escapes(command_line: CommandLine) -> None:
    run = command_line.process("list", *STORE, PYTHONIOENCODING="ascii")
    assert (run.status, run.err) == (0, "")
    assert "\\u8d26\\u5355" in run.out


def test_json_is_utf_8_in_every_locale(command_line: CommandLine) -> None:
    run = command_line.process("list", *STORE, "--json", PYTHONIOENCODING="ascii")
    assert json.loads(run.out.splitlines()[1])["header"]["cwd"] == "/home/lin/账单服务"


def test_a_closed_standard_error_does_not_reach_standard_output(command_line: CommandLine) -> None:
    run = subprocess.run(
        ["sh", "-c", '"$@" 2>&-', "sh", *PROCESS, "search", "zeppelin", *STORE, "--json"],
        stdout=subprocess.PIPE,
    )
    assert (run.returncode, run.stdout) == (0, b"")


def on_a_terminal(*words: str) -> tuple[bytes, bytes]:
    """Standard output through a pipe, and what a terminal on standard error saw."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*PROCESS, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(theirs)
    out, _ = process.communicate()
    seen = b""
    while True:
        try:
            chunk = os.read(ours, 65536)
        except OSError:  # the other side is closed and everything was read
            break
        seen += chunk
    os.close(ours)
    return out, seen


def test_a_bar_is_shown_on_a_terminal_while_the_first_index_is_built(
    command_line: CommandLine,
) -> None:
    words = ("search", "login timeout", *STORE, "--json")
    out, seen = on_a_terminal(*words)
    assert b"indexing" in seen
    assert all(json.loads(line) for line in out.splitlines())
    assert on_a_terminal(*words) == (out, b"")


def test_a_match_is_highlighted_on_a_terminal(command_line: CommandLine) -> None:
    words = ("search", "login timeout", *STORE)
    run = command_line.process(*words, FORCE_COLOR="1", TERM="xterm")
    assert "\x1b[1;7mlogin timeout\x1b[0m" in run.out
