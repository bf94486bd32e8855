"""The immutable metadata of a session, which stands outside its event log."""

from __future__ import annotations

from typing import Final, Literal

from attrs import frozen

from .json import Json

FORMAT_VERSION: Final = 2
"""The log format of every newly created session."""


@frozen
class SessionHeader:
    """What a session is, fixed when it was created (session-model §1)."""

    id: str
    created_at: int
    """ms since the epoch."""
    version: int = FORMAT_VERSION
    """The format number stored in the log."""
    cwd: str | None = None
    """The absolute working directory, compared as text."""
    parent_session: str | None = None
    is_seeded: bool = False
    """Whether the log begins with events inherited from the parent."""
    seed_length: int | None = None
    """Formats 0 and 1 only: how many leading events were inherited."""
    origin: Literal["subagent"] | None = None
    delegation_depth: int = 0
    agent_preset: str | None = None

    def conflicts_with(self, other: SessionHeader) -> bool:
        """Whether two headers of one id cannot describe the same session (query-service §7).

        ``version`` is left out: a log may be converted while it is live under another number.
        """
        return (
            self.id != other.id
            or self.created_at != other.created_at
            or self.cwd != other.cwd
            or self.parent_session != other.parent_session
            or self.is_seeded != other.is_seeded
            or self.seed_length != other.seed_length
            or self.delegation_depth != other.delegation_depth
        )


def header_to_json(header: SessionHeader) -> dict[str, Json]:
    """The header under the key names and in the key order of the log (``type`` left out)."""
    seed: dict[str, Json] = (
        {"isSeeded": header.is_seeded}
        if header.version >= 2
        else {"seedLength": header.seed_length}
    )
    fields: dict[str, Json] = {
        "version": header.version,
        "id": header.id,
        "createdAt": header.created_at,
        "cwd": header.cwd,
        "parentSession": header.parent_session,
        **seed,
        "origin": header.origin,
        "delegationDepth": header.delegation_depth,
        "agentPreset": header.agent_preset,
    }
    return {key: value for key, value in fields.items() if value is not None}
