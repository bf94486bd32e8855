"""The logs of Claude Code below its folder of projects, read only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, Final

from ..history import claude_code
from ..history.foreign import Progress, Translator
from ..messages.header import SessionHeader
from ..messages.json import Json
from .foreign import ForeignStore, Place

_LOG: Final = ".jsonl"
_AGENT: Final = "agent-"
_COMPACTION: Final = "agent-acompact-"
"""Logs in which a summary was made; they repeat what was summarised, and the summary."""

_DEPTH: Final = 4
"""Folders below ``subagents`` in which logs are looked for."""


class ClaudeCodeStore(ForeignStore):
    """Sessions of Claude Code: ``<project>/<session>.jsonl``, and those of their agents.

    ``root`` is the folder of projects, or the folder that holds it as ``projects``.
    """

    agent: ClassVar[str] = "Claude Code"

    def places(self) -> Iterator[Place]:
        top, projects = self.root, self.entries(self.root)
        if any(entry.name == "projects" and entry.is_directory for entry in projects):
            top += "/projects"
            projects = self.entries(top)
        for project in projects:
            if not project.is_directory:
                continue
            path = f"{top}/{project.name}"
            for entry in self.entries(path):
                if entry.is_directory:
                    agents = f"{path}/{entry.name}/subagents"
                    yield from self._agents(agents, entry.name, entry.name, _DEPTH)
                elif _is_log(entry.name):
                    name = entry.name.removesuffix(_LOG)
                    yield self.place(f"{path}/{entry.name}", name)

    def _agents(self, path: str, parent: str, prefix: str, depth: int) -> Iterator[Place]:
        for entry in self.entries(path):
            name = entry.name
            if entry.is_directory and depth:
                yield from self._agents(f"{path}/{name}", parent, f"{prefix}/{name}", depth - 1)
            elif not entry.is_directory and name.startswith(_AGENT) and _is_log(name):
                session_id = f"{prefix}/{name.removesuffix(_LOG)}"
                yield self.place(f"{path}/{name}", session_id, parent)

    def header_of(
        self, place: Place, records: Iterator[Mapping[str, Json]]
    ) -> SessionHeader | None:
        assert place.session_id is not None
        loose = place.parent is None and place.session_id.startswith(_AGENT)
        return claude_code.read_header(
            claude_code.Place(place.session_id, place.parent, loose), records
        )

    def translator(
        self, header: SessionHeader, inherited_text: bool, progress: Progress | None
    ) -> Translator:
        return claude_code.ClaudeCode(header, inherited_text=inherited_text, progress=progress)


def _is_log(name: str) -> bool:
    return name.endswith(_LOG) and name != _LOG and not name.startswith(_COMPACTION)
