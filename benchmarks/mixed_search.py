"""One home full of other agents' logs, indexed and searched by this library and by other tools.

``python benchmarks/mixed_search.py HOME STATE [--tools FOLDER] [--word WORD]`` runs each tool in a
home of its own below ``STATE``, which must not exist: with no index (cold), and twice more with
nothing changed. ``HOME`` is made by ``mixed_home.py``; ``FOLDER`` holds the commands ``agentsview``
and ``cc-search`` of the packages ``agentsview`` and ``claude-session-search``, and what is not
there is left out. Every command is a process of its own; time and processor time are its own, in
seconds, memory is its peak, in MB.

``cc-search`` reads Claude Code alone, cuts results of tools at 4 KB, and indexes without searching.
``agentsview`` searches through a server: its rows ``sync`` only index, its row ``search`` starts
the server and asks it.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from attrs import frozen

_PROGRAM: Final = (
    "import sys; from session_query.interfaces.command_line import main; sys.exit(main())"
)
_MB: Final = 1_000_000


@frozen
class Command:
    """One thing that is run and measured."""

    name: str
    words: tuple[str, ...]
    then: tuple[str, ...] = ()
    """What puts an end to what it leaves running; not measured."""


@frozen
class Tool:
    """A tool, and what it is asked to do in order."""

    name: str
    commands: tuple[Command, ...]
    variables: Mapping[str, str] = {}


def tools(folder: Path | None, word: str, state: Path) -> Iterator[Tool]:
    """This library, and the others that are in ``folder``."""
    ours = (sys.executable, "-c", _PROGRAM, "search", word)
    yield Tool("session-query", tuple(Command(f"search, {n}", ours) for n in ("cold", "2", "3")))
    viewer = folder / "agentsview" if folder is not None else Path()
    if viewer.is_file():
        sync = (str(viewer), "sync")
        yield Tool(
            "agentsview",
            tuple(Command(f"sync, {n}", sync) for n in ("cold", "2", "3")),
            {"AGENTSVIEW_NO_DAEMON": "1", "AGENTSVIEW_DATA_DIR": str(state / "agentsview/data")},
        )
        search = (str(viewer), "session", "search", word)
        yield Tool(
            "agentsview",
            (
                Command("server and search", search),
                Command("search, served", search, (str(viewer), "daemon", "stop")),
            ),
            {"AGENTSVIEW_DATA_DIR": str(state / "agentsview/data")},
        )
    other = folder / "cc-search" if folder is not None else Path()
    if other.is_file():
        index = (str(other), "--reindex")
        yield Tool("cc-search", tuple(Command(f"reindex, {n}", index) for n in ("cold", "2", "3")))


def main() -> None:
    """Print a line for each command."""
    parser = argparse.ArgumentParser(description="Compare searches of other agents' logs.")
    parser.add_argument("home", type=Path)
    parser.add_argument("state", type=Path)
    parser.add_argument("--tools", type=Path)
    parser.add_argument("--word", default="phoenix")
    options = parser.parse_args()
    options.state.mkdir(parents=True)
    _read_once(options.home)
    print(f"{'tool':14}{'command':20}{'s':>8}{'cpu s':>8}{'peak MB':>9}{'index MB':>10}  answer")
    for tool in tools(options.tools, options.word, options.state.absolute()):
        state = options.state / tool.name
        home = _home(state, options.home)
        for command in tool.commands:
            seconds, cpu, peak, answer = run(command.words, home, tool.variables, state / "out")
            size = _size(state) / _MB
            print(
                f"{tool.name:14}{command.name:20}{seconds:8.2f}{cpu:8.2f}{peak / _MB:9.0f}"
                f"{size:10.1f}  {answer}",
                flush=True,
            )
            if command.then:
                run(command.then, home, tool.variables, state / "out")


def run(
    words: Sequence[str], home: Path, variables: Mapping[str, str], out: Path
) -> tuple[float, float, int, str]:
    """Run a command in a home; its seconds, its processor seconds, peak bytes, and how it ended."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("XDG_")}
    began = time.perf_counter()
    with out.open("wb") as file:
        process = os.posix_spawn(
            words[0],
            list(words),
            {**inherited, "HOME": str(home.absolute()), **variables},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, file.fileno(), 1),
                (os.POSIX_SPAWN_DUP2, file.fileno(), 2),
            ],
        )
        _, status, used = os.wait4(process, 0)
    seconds = time.perf_counter() - began
    text = out.read_text(errors="replace")
    answer = f"{text.count(chr(10))} lines"
    if status != 0:
        answer = f"failed: {text.splitlines()[-1] if text else status}"
    return seconds, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, answer


def _home(state: Path, source: Path) -> Path:
    """A home in which a tool finds the logs, and may keep what it likes."""
    home = state / "home"
    home.mkdir(parents=True, exist_ok=True)
    for name in (".claude", ".codex"):
        if not (home / name).is_symlink():
            (home / name).symlink_to((source / name).absolute())
    return home


def _size(state: Path) -> int:
    return sum(
        path.stat().st_size
        for path in state.rglob("*")
        if path.is_file() and not path.is_symlink() and path.name != "out"
    )


def _read_once(home: Path) -> None:
    """Bring every log into the page cache, so that no tool pays for the disk."""
    for path in sorted(home.rglob("*")):
        if path.is_file():
            path.read_bytes()


if __name__ == "__main__":
    main()
