"""A home directory full of logs of Claude Code and Codex, made from sample logs.

``python benchmarks/mixed_home.py SAMPLES HOME MEGABYTES`` writes ``HOME/.claude`` and
``HOME/.codex``. Each round writes every sample once more under ids of its own, with numbered words
among the others, so that the vocabulary grows as that of real text does. One set of samples gives
one home, byte for byte.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Final
from uuid import UUID

_ID: Final = re.compile(rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_WORD: Final = re.compile(rb"(?<= )[a-z]{6,9}(?= )")
_NUMBERED: Final = 0.02
"""The share of the longer words that get a number."""

_NUMBERS: Final = 3000
_PROJECTS: Final = 40


def main(samples: str, home: str, megabytes: str) -> None:
    """Write rounds until there is as much."""
    written = number = 0
    while written < float(megabytes) * 1_000_000:
        for path, data in _round(Path(samples), number):
            target = Path(home) / path
            target.parent.mkdir(parents=True, exist_ok=True)
            written += target.write_bytes(data)
        number += 1
    print(f"{number} rounds, {written} bytes")


def _round(samples: Path, number: int) -> Iterator[tuple[str, bytes]]:
    """Every sample in one of its variants, and where it lies in the home."""
    random = Random(number)
    project = f".claude/projects/-home-p{number % _PROJECTS}"
    day = f".codex/sessions/2026/{1 + number % 12:02}/{1 + number % 28:02}"
    for path in sorted((samples / "claude_code").glob("*/*.jsonl")):
        agents = sorted((path.with_suffix("") / "subagents").glob("*.jsonl"))
        session = _new_id(random)
        ids = _renaming(path, rb'"sessionId":\s*"([^"]+)"', session)
        for log in (path, *agents):
            name = f"{session}/subagents/{log.stem}" if log in agents else session
            yield f"{project}/{name}.jsonl", _varied(log.read_bytes(), random, ids)
    for path in sorted((samples / "codex").rglob("*.jsonl")):
        session = _new_id(random)
        ids = _renaming(path, rb'"id":\s*"([^"]+)"', session)
        name = f"rollout-2026-01-01T10-00-00-{session}"
        yield f"{day}/{name}.jsonl", _varied(path.read_bytes(), random, ids)


def _varied(data: bytes, random: Random, ids: dict[bytes, bytes]) -> bytes:
    """A log under other ids and in other words."""

    def renamed(found: re.Match[bytes]) -> bytes:
        return ids.setdefault(found[0], _new_id(random).encode())

    def numbered(found: re.Match[bytes]) -> bytes:
        if random.random() >= _NUMBERED:
            return found[0]
        return b"%s%d" % (found[0], random.randrange(_NUMBERS))

    for old, new in list(ids.items()):
        data = data.replace(b'"%s"' % old, b'"%s"' % new)
        ids[new] = new
    return _WORD.sub(numbered, _ID.sub(renamed, data))


def _renaming(path: Path, pattern: bytes, session: str) -> dict[bytes, bytes]:
    """The session that a sample names first, under another id; nothing where it names none."""
    found = re.search(pattern, path.read_bytes())
    return {found[1]: session.encode()} if found is not None else {}


def _new_id(random: Random) -> str:
    return str(UUID(int=random.getrandbits(128), version=4))


if __name__ == "__main__":
    main(*sys.argv[1:])
