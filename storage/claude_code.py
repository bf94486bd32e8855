"""The logs of Claude Code below its folder of projects, read only."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar, Final

from attrs import define, evolve, field

from ..history import claude_code
from ..history.foreign import Copies, Progress, Translator, absolute, time_ms
from ..history.sidechains import Sidechains, are_within, chain_id, first_of, link_of
from ..messages.header import SessionHeader
from ..messages.json import Json
from .foreign import ForeignStore, Place
from .foreign_lines import Line, record_in
from .foreign_log import Part

_LOG: Final = ".jsonl"
_AGENT: Final = "agent-"
_COMPACTION: Final = "agent-acompact-"
"""Logs in which a summary was made; they repeat what was summarised, and the summary."""

_OF_AGENT: Final = re.compile(rb'"isSidechain"\s*:\s*true')

_AGENTS: Final = 1000
"""Agents in one log that are sessions; rows of others are with those of its own session alone."""

_SOURCES: Final = 64
"""Of the sessions whose rows a log begins with copies of, how many are told apart."""

_DEPTH: Final = 4
"""Folders below ``subagents`` in which logs are looked for."""


class ClaudeCodeStore(ForeignStore):
    """Sessions of Claude Code: ``<project>/<session>.jsonl``, and those of their agents.

    ``root`` is the folder of projects, or the folder that holds it as ``projects``.
    """

    agent: ClassVar[str] = "Claude Code"
    mapping: ClassVar[int] = 2

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

    def parts_of(
        self, place: Place, header: SessionHeader, lines: Iterator[Line]
    ) -> Iterable[Part]:
        rows = Rows(header)
        return rows.parts(lines) if rows.may_hold_others else (Part(header),)

    def translator(
        self, header: SessionHeader, copies: Copies, progress: Progress | None
    ) -> Translator:
        return claude_code.ClaudeCode(header, copies=copies, progress=progress)

    def translator_within(
        self, header: SessionHeader, copies: Copies, progress: Progress | None
    ) -> Translator:
        first = first_of(header.id)
        return claude_code.ClaudeCode(header, copies=copies, progress=progress, first=first)


@define
class Rows:
    """The rows of one log: whose they are, besides those of its own session."""

    _header: SessionHeader
    _version: str = field(init=False, default="")
    """The first that a row names, empty before one does."""
    _copying: bool = field(init=False)
    """Whether there was no row of its own yet."""
    _sources: dict[str, None] = field(init=False, factory=dict)
    _session: str = field(init=False, default="")
    """Whose agents the chains are; those of another session have other ids."""
    _chains: Sidechains = field(init=False, factory=Sidechains)
    _agents: dict[str, Part] = field(init=False, factory=dict)
    _ended: set[str] = field(init=False, factory=set)
    """Those whose chain was forgotten before its first row came again, which is not followed."""

    def __attrs_post_init__(self) -> None:
        self._copying = self._header.is_seeded

    @property
    def may_hold_others(self) -> bool:
        """Whether rows still to come may be another session's."""
        return self._copying or (self._header.origin is None and are_within(self._version))

    def parts(self, lines: Iterable[Line]) -> tuple[Part, ...]:
        """The session of the log, then those of agents, read as far as there may be others."""
        begin = 0
        for number, line in enumerate(lines):
            # Where the version is known, nothing but an agent's row can matter.
            if self._copying or not self._version or _OF_AGENT.search(line.text):
                row = record_in(line, claude_code.is_record)
                self._take(row or {}, Part(self._header, (), begin, number, line.end))
            if not self.may_hold_others:
                break
            begin = line.end
        sources = tuple(reversed(self._sources))
        parent = sources[0] if sources else self._header.parent_session
        header = evolve(self._header, parent_session=parent) if sources else self._header
        return (Part(header, sources), *self._agents.values())

    def _take(self, row: Mapping[str, Json], at: Part) -> None:
        self._version = self._version or _text(row, "version")
        named, link = _text(row, "sessionId"), link_of(row)
        if named == self._header.id:
            self._copying = False
        elif self._copying and named and "uuid" in row:
            self._sources[named] = None
            if len(self._sources) > _SOURCES:
                del self._sources[next(iter(self._sources))]
        if link is None or self._header.origin is not None or not are_within(self._version):
            return
        # A copied row is of the agent that the copied session has; that is one session with this.
        session = named if self._copying and named else self._header.id
        if session != self._session:
            self._session, self._chains = session, Sidechains()
        first, begins = self._chains.take(*link)
        agent = chain_id(session, first)
        known = self._agents.get(agent)
        if known is not None:
            if begins:
                self._ended.add(agent)
            if agent not in self._ended:
                self._agents[agent] = evolve(known, end=at.end)
            return
        # Of a chain that was not taken up at its first row, none is.
        if not begins or len(self._agents) == _AGENTS:
            return
        time = time_ms(row.get("timestamp"))
        header = SessionHeader(
            agent,
            self._header.created_at if time is None else max(time, 0),
            cwd=absolute(row.get("cwd")),
            parent_session=session,
            origin="subagent",
            delegation_depth=1,
        )
        sources = () if session == self._header.id else (session,)
        self._agents[agent] = evolve(at, header=header, sources=sources)


def _text(row: Mapping[str, Json], key: str) -> str:
    found = row.get(key)
    return found if isinstance(found, str) else ""


def _is_log(name: str) -> bool:
    return name.endswith(_LOG) and name != _LOG and not name.startswith(_COMPACTION)
