"""The rollouts of Codex below its home, plain and compressed, read only."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import ClassVar, Final

from ..history import codex
from ..history.foreign import Copies, Progress, Translator
from ..messages.header import SessionHeader
from ..messages.json import Json
from .foreign import ForeignStore, Place
from .foreign_lines import Line, record_in
from .foreign_log import HEAD_LINES, Part

_COMPRESSED: Final = ".zst"
_FOLDERS: Final = ("archived_sessions", "sessions")
_HOME: Final = frozenset({*_FOLDERS, "auth.json", "config.toml", "history.jsonl"})
"""Names by which the home of Codex is known, in which there is much else."""

_NO_ROLLOUTS: Final = frozenset({"history.jsonl", "session_index.jsonl"})
_ROLLOUT: Final = re.compile(r"(.+)\.jsonl|(rollout-.+)\.json")
_DEPTH: Final = 5
"""Folders in which rollouts are looked for: one for each of year, month and day, and two more."""


class CodexStore(ForeignStore):
    """Sessions of Codex: ``sessions/YYYY/MM/DD/rollout-….jsonl`` and ``archived_sessions``.

    ``root`` is the home of Codex, or a folder of rollouts. Compressed ones need the extra
    ``zstd``; where a rollout is there both ways, the plain one counts.
    """

    agent: ClassVar[str] = "Codex"
    mapping: ClassVar[int] = 1

    def places(self) -> Iterator[Place]:
        names = {entry.name for entry in self.entries(self.root)}
        if names.isdisjoint(_HOME):
            yield from self._rollouts(self.root, _DEPTH)
            return
        for name in _FOLDERS:
            if name in names:
                yield from self._rollouts(f"{self.root}/{name}", _DEPTH)

    def _rollouts(self, path: str, depth: int) -> Iterator[Place]:
        entries = self.entries(path)
        names = {entry.name for entry in entries if not entry.is_directory}
        for entry in entries:
            if entry.is_directory:
                if depth:
                    yield from self._rollouts(f"{path}/{entry.name}", depth - 1)
                continue
            plain = entry.name.removesuffix(_COMPRESSED)
            found = _ROLLOUT.fullmatch(plain)
            packed = plain != entry.name
            if found is None or plain in _NO_ROLLOUTS or (packed and (plain in names or found[2])):
                continue
            document = found[2] is not None
            yield self.place(f"{path}/{entry.name}", compressed=packed, document=document)

    def header_of(
        self, place: Place, records: Iterator[Mapping[str, Json]]
    ) -> SessionHeader | None:
        stem = place.file.name.rpartition("/")[2].partition(".json")[0]
        return codex.read_header(stem, records)

    def parts_of(
        self, place: Place, header: SessionHeader, lines: Iterator[Line]
    ) -> Iterable[Part]:
        if not header.is_seeded:
            return (Part(header),)
        records = (record_in(line, codex.is_record) or {} for line in islice(lines, HEAD_LINES))
        return (Part(header, codex.sources_of(header, records)),)

    def translator(
        self, header: SessionHeader, copies: Copies, progress: Progress | None
    ) -> Translator:
        return codex.Codex(header, copies=copies, progress=progress)
