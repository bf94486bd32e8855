"""Which sessions a command is about: those of a store that is named, or of this user's agents."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Final

from attrs import field, frozen

from ..messages.header import SessionHeader
from ..storage.claude_code import ClaudeCodeStore
from ..storage.codex import CodexStore
from ..storage.contract import SessionStore
from ..storage.jsonl import JsonlStore
from ..storage.several import SeveralStores
from .errors import Unusable, WrongUse
from .places import STORE_VARIABLE, checked_store


@frozen
class Agent:
    """An agent whose logs can be read, and where it keeps them."""

    name: str
    """As ``--agent`` takes it."""
    title: str
    variable: str
    """The environment variable that names its folder."""
    folder: str
    """Its folder in the home directory, where the variable is not set."""
    logs: str
    """The part of the folder that holds logs, for people."""
    store: Callable[[str], SessionStore]
    resume: tuple[str, ...]
    """The words before the id in the command that goes on with a session."""


AGENTS: Final = (
    Agent(
        "claude",
        "Claude Code",
        "CLAUDE_CONFIG_DIR",
        ".claude",
        "projects",
        ClaudeCodeStore,
        ("claude", "--resume"),
    ),
    Agent("codex", "Codex", "CODEX_HOME", ".codex", "sessions", CodexStore, ("codex", "resume")),
)
_BY_NAME: Final = {agent.name: agent for agent in AGENTS}


@frozen
class Place:
    """A folder in which an agent may have logs."""

    agent: Agent
    root: str

    @property
    def exists(self) -> bool:
        """Whether there is such a folder."""
        return os.path.isdir(self.root)


@frozen
class AgentLogs:
    """What an agent has in its folder."""

    agent: str
    title: str
    root: str
    sessions: int
    newest: int | None
    """When the youngest session was created, in ms since the epoch."""
    skipped: int
    """Logs that cannot be read."""


@frozen
class Sessions:
    """The sessions that a command is about."""

    store: SessionStore
    roots: tuple[str, ...]
    """The folders they are kept in; never written to. They name the index."""
    check: Callable[[], object]
    """Raises ``Unusable`` where the sessions are there no longer."""
    _agents: SeveralStores | None = None
    _wanted: frozenset[str] = field(default=frozenset(_BY_NAME))

    def agent_of(self, session_id: str) -> Agent | None:
        """The agent that keeps a session which was listed, searched or read before."""
        source = self._agents.source_of(session_id) if self._agents is not None else None
        return None if source is None else _BY_NAME[source[0]]

    def title_of(self, session_id: str) -> str | None:
        """What the agent of a session is called, where it has one."""
        agent = self.agent_of(session_id)
        return None if agent is None else agent.title

    def is_wanted(self, session_id: str) -> bool:
        """Whether the session is of an agent that ``--agent`` names."""
        agent = self.agent_of(session_id)
        return agent is None or agent.name in self._wanted

    def resume_command(self, header: SessionHeader) -> str | None:
        """The shell command that goes on with a session in its own agent, where there is one."""
        source = self._agents.source_of(header.id) if self._agents is not None else None
        if source is None or header.origin == "subagent":
            return None
        name, session_id = source
        command = shlex.join([*_BY_NAME[name].resume, session_id])
        return command if header.cwd is None else f"cd {shlex.quote(header.cwd)} && {command}"


def places() -> list[Place]:
    """Where each agent may have logs; of two names of one folder the first counts."""
    found: list[Place] = []
    seen: set[str] = set()
    for agent in AGENTS:
        root = _folder(agent)
        if root is not None and (real := os.path.realpath(root)) not in seen:
            seen.add(real)
            found.append(Place(agent, root))
    return found


def sessions_in(store: str | None, agents: Collection[str] | None = None) -> Sessions:
    """The sessions of ``store``; without one, those of the named agents, or of all.

    Raises:
        WrongUse: an agent is unknown, or named beside a store.
        Unusable: there are no such sessions, or they cannot be looked at.
    """
    if store is not None:
        if agents:
            raise WrongUse("--agent chooses among the agents of this user; leave it out here")
        root = checked_store(store)
        return Sessions(JsonlStore(root), (root,), partial(checked_store, root))
    for name in agents or ():
        if name not in _BY_NAME:
            raise WrongUse(f"--agent must be one of {', '.join(_BY_NAME)}, got {name!r}")
    candidates = places()
    there = [place for place in candidates if place.exists]
    wanted = frozenset(agents or _BY_NAME)
    if not any(place.agent.name in wanted for place in there):
        raise Unusable(_nothing_found(place for place in candidates if place.agent.name in wanted))
    several = SeveralStores({place.agent.name: place.agent.store(place.root) for place in there})
    roots = tuple(place.root for place in candidates)
    return Sessions(several, roots, lambda: None, several, wanted)


def _folder(agent: Agent) -> str | None:
    named = os.environ.get(agent.variable, "")
    if named.strip():
        return os.path.abspath(os.path.expanduser(named))
    home = os.path.expanduser("~")
    return os.path.join(home, agent.folder) if os.path.isabs(home) else None


def _nothing_found(looked: Iterable[Place]) -> str:
    looked_in = " or ".join(place.root for place in looked) or "no home directory"
    return (
        f"no sessions were found: nothing is in {looked_in};"
        f" name a store with --store DIR or {STORE_VARIABLE}"
    )
