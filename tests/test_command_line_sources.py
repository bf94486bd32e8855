"""Without a store: the logs of this user's agents, found, searched together, and narrowed."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from command_line_runs import EXAMPLES, PROCESS, CommandLine
from foreign_logs import MAIN, OTHER, THIRD, answer, message, meta, prompt, said, write

CLAUDE = f"projects/-home-mara-shop/{MAIN}.jsonl"
AGENT = f"projects/-home-mara-shop/{MAIN}/subagents/agent-7.jsonl"
CODEX = f"sessions/2026/03/02/rollout-2026-03-02T10-00-00-{OTHER}.jsonl"


@pytest.fixture
def home(command_line: CommandLine) -> Path:
    """A home directory in which two agents have logs."""
    home = Path(os.environ["HOME"])
    claude = [prompt(0, "Why does the login time out?"), answer(1, said("The proxy waits."))]
    write(home / ".claude" / CLAUDE, *claude)
    write(home / ".claude" / AGENT, prompt(2, "find the login timeout", isSidechain=True))
    write(
        home / ".codex" / CODEX,
        meta(OTHER, cwd="/home/mara/it's here"),
        message(1, "user", "The login is slow"),
    )
    return home


def ids(out: str) -> list[str]:
    """The ids of the sessions that are shown, one a line."""
    return [word for word in out.split() if word[:8] in (MAIN[:8], OTHER[:8], THIRD[:8])]


def test_one_search_finds_what_any_agent_did(command_line: CommandLine, home: Path) -> None:
    run = command_line("search", "login")
    assert run.status == 0
    assert sorted(ids(run.out)) == [MAIN, f"{MAIN}/agent-7", OTHER]
    assert "Claude Code" in run.out
    assert "Codex" in run.out
    assert command_line("search", "the proxy waits", "--json").records[0]["header"]["id"] == MAIN


def test_the_second_search_uses_the_index_of_the_first(
    command_line: CommandLine, home: Path
) -> None:
    command_line("search", "login")
    [index] = command_line.index_files()
    before = index.stat().st_ino
    assert len(ids(command_line("search", "login").out)) == 3
    assert [file.stat().st_ino for file in command_line.index_files()] == [before]
    assert "sessions    3" in command_line("index", "status").out


def test_an_agent_that_comes_later_joins_the_same_index(
    command_line: CommandLine, home: Path
) -> None:
    rollout = home / ".codex" / CODEX
    content = rollout.read_bytes()
    rollout.unlink()
    for folder in [*rollout.parents][:5]:
        folder.rmdir()
    assert len(ids(command_line("search", "login").out)) == 2
    rollout.parent.mkdir(parents=True)
    rollout.write_bytes(content)
    assert len(ids(command_line("search", "login").out)) == 3
    assert len(command_line.index_files()) == 1


@pytest.mark.parametrize("command", [("search", "login"), ("list",)])
def test_agents_narrow_what_is_shown(
    command_line: CommandLine, home: Path, command: tuple[str, ...]
) -> None:
    assert ids(command_line(*command, "--agent", "codex").out) == [OTHER]
    assert sorted(ids(command_line(*command, "--agent", "claude").out))[:1] == [MAIN]
    both = command_line(*command, "--agent", "claude", "--agent", "codex")
    assert set(ids(both.out)) == {MAIN, f"{MAIN}/agent-7", OTHER}


def test_a_narrow_search_finds_its_hits_behind_those_of_others(
    command_line: CommandLine, home: Path
) -> None:
    project = home / ".claude" / "projects" / "-home-mara-shop"
    for number in range(5):
        name = f"{number}" * 8 + MAIN[8:]
        write(project / f"{name}.jsonl", prompt(0, "login login login", session=name))
    run = command_line("search", "login", "--agent", "codex", "--limit", "1")
    assert ids(run.out) == [OTHER]


@pytest.mark.parametrize("command", [("search", "login"), ("list",)])
def test_here_narrows_to_the_current_folder(
    command_line: CommandLine,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    link = tmp_path / "link"
    link.symlink_to(here)
    for name, folder in ((THIRD, here), ("4" * 8 + MAIN[8:], link)):
        log = home / ".claude" / "projects" / "x" / f"{name}.jsonl"
        write(log, prompt(0, "login", session=name, cwd=str(folder)))
    monkeypatch.chdir(here)
    monkeypatch.setenv("PWD", str(here))
    assert ids(command_line(*command, "--here").out) == [THIRD]
    monkeypatch.setenv("PWD", str(link))
    assert "44444444" in command_line(*command, "--here").out


def test_the_command_that_goes_on_with_a_session_is_shown(
    command_line: CommandLine, home: Path
) -> None:
    run = command_line("read", MAIN, "0")
    assert f"cd /home/mara/shop && claude --resume {MAIN}" in run.out
    run = command_line("trace", OTHER)
    assert f"""cd '/home/mara/it'"'"'s here' && codex resume {OTHER}""" in run.out
    assert "go on" not in command_line("trace", f"{MAIN}/agent-7").out
    assert "go on" not in command_line("read", MAIN, "0", "--json").out
    assert "go on" not in command_line("trace", "0a41-login-timeout", "--store", EXAMPLES).out


def test_what_the_agents_have_is_shown(command_line: CommandLine, home: Path) -> None:
    (home / ".claude" / "projects" / "x").mkdir()
    (home / ".claude" / "projects" / "x" / f"{THIRD}.jsonl").mkdir()
    run = command_line("stores")
    claude, codex = run.out.splitlines()
    assert claude.split()[:3] == ["claude", "2", "sessions"]
    assert str(home / ".claude") in claude
    assert codex.split()[:5] == ["codex", "1", "sessions", "newest", "2026-03-02T10:00:00Z"]
    found = {record["agent"]: record for record in command_line("stores", "--json").records}
    assert found["codex"]["sessions"] == 1
    assert found["codex"]["root"] == str(home / ".codex")


def test_variables_say_where_agents_keep_their_logs(
    command_line: CommandLine, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / ".codex").rename(tmp_path / "elsewhere")
    assert command_line("search", "slow").out == ""
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "elsewhere"))
    assert ids(command_line("search", "slow").out) == [OTHER]


def test_one_folder_under_two_names_is_one_source(
    command_line: CommandLine, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODEX_HOME", str(home / ".claude"))
    assert len(command_line("stores").out.splitlines()) == 1


def test_without_any_logs_it_is_said_where_they_were_looked_for(
    command_line: CommandLine,
) -> None:
    run = command_line("search", "login")
    assert (run.status, run.out) == (1, "")
    for words in ("/.claude", "/.codex", "--store DIR", "SESSION_QUERY_STORE"):
        assert words in run.err


def test_nothing_is_written_into_a_home(command_line: CommandLine, home: Path) -> None:
    before = sorted(home.rglob("*"))
    for words in (["search", "login"], ["list"], ["stores"], ["trace", MAIN]):
        assert command_line(*words).status == 0
    assert sorted(home.rglob("*")) == before


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (["--agent", "gemini"], 2, "--agent must be one of claude, codex, got 'gemini'"),
        (["--agent", "codex", "--store", str(EXAMPLES)], 2, "leave it out here"),
        (["--here", "--cwd", "/x"], 2, "give one of them"),
        (["--agent", "codex", "--session", MAIN], 2, "not beside --session"),
        (["--index", "{home}/.claude/index.db"], 2, "lies inside the store"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    command_line: CommandLine, home: Path, words: list[str], status: int, told: str
) -> None:
    run = command_line("search", "login", *(word.format(home=home) for word in words))
    assert (run.status, run.out) == (status, "")
    assert told in run.err


def test_an_agent_without_logs_is_named(command_line: CommandLine, home: Path) -> None:
    (home / ".codex").rename(home / "gone")
    run = command_line("search", "login", "--agent", "codex")
    assert run.status == 1
    assert "/.codex" in run.err
    assert "/.claude" not in run.err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_learns_to_complete(command_line: CommandLine, shell: str) -> None:
    run = command_line("completion", shell)
    assert run.status == 0
    assert "--agent" in run.out or "agent" in run.out
    if shell == "bash":
        # What one shell takes stands for what all are given.
        checked = subprocess.run(["bash", "-n"], input=run.out, text=True, capture_output=True)
        assert (checked.returncode, checked.stderr) == (0, "")


def test_a_first_index_that_is_broken_off_goes_on_at_the_next_search(
    command_line: CommandLine, home: Path
) -> None:
    project = home / ".claude" / "projects" / "x"
    for number in range(400):
        name = f"{number:08}" + MAIN[8:]
        rows = [prompt(n, f"login {number} " + "word " * 300, session=name) for n in range(20)]
        write(project / f"{name}.jsonl", *rows)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*PROCESS, "search", "login"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(theirs)
    seen = b""
    while b"indexing" not in seen:
        seen += os.read(ours, 65536)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate()
    with suppress(OSError):  # the other side is closed and everything was read
        while True:
            seen += os.read(ours, 65536)
    os.close(ours)
    assert (process.returncode, out) == (130, b"")
    assert b"the next search goes on" in seen
    run = command_line("search", "login", "--limit", "1000")
    assert len(ids(run.out)) == 403 - 400
    assert run.out.count(" user/message") == 403
