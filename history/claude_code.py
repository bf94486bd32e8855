"""The logs of Claude Code: which of its records are speech, and what becomes of the others."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar, Final

from attrs import frozen

from ..messages.event import Event
from ..messages.header import SessionHeader
from ..messages.json import Json, elements, member, text_member
from .foreign import (
    Block,
    Copies,
    Progress,
    Record,
    Translator,
    absolute,
    call_block,
    digest,
    other_block,
    reasoning_block,
    text_block,
    time_ms,
)
from .sidechains import REMEMBERED, are_within, link_of

CHECKED_WITH: Final = (
    "1.0.24 1.0.119 2.0.9 2.1.38 2.1.39 2.1.80 2.1.111 2.1.112 2.1.161 2.1.207 2.1.220"
)
"""The versions whose records the tables below were compared with."""

_SUMMARY, _AI_TITLE, _CUSTOM_TITLE = 1, 2, 3
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)

_COMMAND: Final = re.compile(
    r"\s*(?:Caveat: |\[Request interrupted"
    r"|<(?:(?:local-)?command-[a-z]+|bash-[a-z]+|system-reminder|task-notification|ide_[a-z_]+)>)"
)
"""How texts of the user's side begin that no user typed."""


@frozen
class Place:
    """What the path of a log says of its session."""

    name: str
    """That of the file, which is the id of its session; of an agent's log with its parent's."""
    parent: str | None = None
    """The session whose folder the log of an agent is in."""
    loose: bool = False
    """A log of an agent beside its parent's, which only its records name."""


def read_header(place: Place, records: Iterable[Mapping[str, Json]]) -> SessionHeader | None:
    """The header that the first records give, read until all is known; nothing without a date."""
    created_at: int | None = None
    cwd: str | None = None
    named = ""
    for record in records:
        if created_at is None:
            created_at = time_ms(record.get("timestamp"))
        cwd = cwd or absolute(record.get("cwd"))
        named = named or text_member(dict(record), "sessionId")
        if created_at is not None and cwd and named:
            break
    if created_at is None:
        return None
    created_at = max(created_at, 0)
    if place.parent is None and not place.loose:
        if named and not _UUID.fullmatch(place.name):
            # The product names files by ids alone; somebody has renamed this one.
            return SessionHeader(named, created_at, cwd=cwd)
        copied = named not in ("", place.name)
        parent = named if copied else None
        return SessionHeader(
            place.name, created_at, cwd=cwd, parent_session=parent, is_seeded=copied
        )
    parent = place.parent or named or None
    session_id = f"{parent}/{place.name}" if place.loose and parent else place.name
    return SessionHeader(
        session_id, created_at, cwd=cwd, parent_session=parent, origin="subagent",
        delegation_depth=1,
    )  # fmt: skip


def is_record(data: Mapping[str, Json]) -> bool:
    """Whether an object found inside a damaged line is a row."""
    return isinstance(data.get("type"), str) and not data.keys().isdisjoint(
        ("uuid", "sessionId", "leafUuid")
    )


class ClaudeCode(Translator):
    """One session of Claude Code as events: a log, or the rows of one agent in it."""

    agent: ClassVar[str] = "claude-code"

    def __init__(
        self,
        header: SessionHeader,
        *,
        copies: Copies,
        progress: Progress | None = None,
        first: str | None = None,
    ) -> None:
        """``first`` is the name of the first row, where these are among those of another session.

        The others are as for any translator.
        """
        super().__init__(header, copies=copies, progress=progress)
        self.progress.provider = "anthropic"
        self._first = first

    def take(self, record: Record) -> list[Event]:
        return super().take(record) if self._is_own(record.data) else []

    def unreadable(self, line: bytes, reason: str) -> list[Event]:
        return super().unreadable(line, reason) if self._first is None else []

    def _is_own(self, row: Mapping[str, Json]) -> bool:
        if self._first is None:
            return True
        link = link_of(row)
        return link is not None and (
            link[0] == self._first or digest(link[1]) in self.progress.seen
        )

    def is_record(self, data: Mapping[str, Json]) -> bool:
        return is_record(data)

    def time_of(self, record: Record) -> int | None:
        return time_ms(record.data.get("timestamp"))

    def is_copy(self, record: Record) -> bool:
        # Copied rows keep the session they were written for; rows without one tell nothing.
        named = record.data.get("sessionId")
        return not isinstance(named, str) or named != self.header.id

    def copied_from(self, record: Record) -> str | None:
        return _text(record.data, "sessionId") or None

    def translate(self, record: Record) -> None:
        self.progress.version = self.progress.version or _text(record.data, "version")[:100]
        if self._is_of_agent(record.data):
            self.log_only("sidechain")
            return
        kind = record.data.get("type")
        handler = _RECORDS.get(kind) if isinstance(kind, str) else None
        if handler is None or not handler(self, record.data):
            self.log_only(kind)
        self._remember(record.data)

    def _is_of_agent(self, row: Mapping[str, Json]) -> bool:
        """Whether a row is one of an agent that is a session of its own in the same log."""
        within = self.header.origin is None and are_within(self.progress.version)
        return within and link_of(row) is not None

    def _remember(self, row: Mapping[str, Json]) -> None:
        name = digest(_text(row, "uuid"))
        if not name:
            return
        progress = self.progress
        progress.seen = [*progress.seen[1 - REMEMBERED :], name]
        if name in progress.awaited:
            self._summarise(progress.awaited.pop(name))

    # --- records; a handler says whether it made an event

    def _user_row(self, row: Mapping[str, Json]) -> bool:
        content = member(row.get("message"), "content")
        if isinstance(content, str):
            content = [content]
        if not isinstance(content, list):
            return False
        name = _text(row, "uuid")
        said: list[Block] = []
        results = 0
        for block in content:
            if isinstance(block, dict) and block.get("type") == "tool_result":
                call_id = _text(block, "tool_use_id") or _text(row, "sourceToolUseID")
                blocks = _blocks(block.get("content"))
                self.result(name, call_id, blocks, block.get("is_error"))
                results += 1
            else:
                said.append(_block(block))
        if said or not results:
            self._say(row, name, said)
        return True

    def _say(self, row: Mapping[str, Json], name: str, blocks: list[Block]) -> None:
        if row.get("isCompactSummary") is True:
            self.summary(name, blocks, _injected("compaction"))
        elif row.get("isMeta") is True:
            self.user(name, blocks, _injected("meta"))
        elif _typed(blocks):
            self.begin_turn()
            self.user(name, blocks, {"kind": "user"})
            self.fallback_title(blocks, 0)
        else:
            self.user(name, blocks, _injected("command"))

    def _assistant_row(self, row: Mapping[str, Json]) -> bool:
        message = row.get("message")
        content = member(message, "content")
        if not isinstance(content, str | list):
            return False
        name = _text(row, "uuid")
        answer = text_member(message, "id") or name or self.agent
        self.assistant(name, answer, _blocks(content), text_member(message, "model"))
        return True

    def _custom_title_row(self, row: Mapping[str, Json]) -> bool:
        return self.title(_text(row, "customTitle"), _CUSTOM_TITLE, {"kind": "user"}, [])

    def _ai_title_row(self, row: Mapping[str, Json]) -> bool:
        return self.title(_text(row, "aiTitle"), _AI_TITLE, _BY_MODEL, [])

    def _summary_row(self, row: Mapping[str, Json]) -> bool:
        """A title for the session that the named record belongs to, which may be another one."""
        leaf = digest(_text(row, "leafUuid"))
        if leaf in self.progress.seen:
            return self._summarise(_text(row, "summary"))
        if leaf and self.progress.title_rank <= _SUMMARY:
            awaited = self.progress.awaited
            awaited[leaf] = _text(row, "summary")[:1000]
            if len(awaited) > REMEMBERED:
                del awaited[next(iter(awaited))]
        return False

    def _summarise(self, summary: str) -> bool:
        return self.title(summary, _SUMMARY, _BY_MODEL, [])

    def _system_row(self, row: Mapping[str, Json]) -> bool:
        self.log_only(row.get("subtype") or "system")
        return True


_BY_MODEL: Final[dict[str, Json]] = {"kind": "provider", "provider": "anthropic"}

_RECORDS: Final[dict[str, Callable[[ClaudeCode, Mapping[str, Json]], bool]]] = {
    "user": ClaudeCode._user_row,
    "assistant": ClaudeCode._assistant_row,
    "custom-title": ClaudeCode._custom_title_row,
    "ai-title": ClaudeCode._ai_title_row,
    "summary": ClaudeCode._summary_row,
    "system": ClaudeCode._system_row,
}
"""What is more than log-only; a ``compact_boundary`` is told by the summary that follows it."""


def _thinking(block: dict[str, Json]) -> Block:
    return reasoning_block(text_member(block, "thinking"))


def _tool_use(block: dict[str, Json]) -> Block:
    return call_block(_text(block, "id"), _text(block, "name"), block.get("input"))


_BLOCKS: Final[dict[str, Callable[[dict[str, Json]], Block]]] = {
    "text": lambda block: text_block(text_member(block, "text")),
    "thinking": _thinking,
    "redacted_thinking": _thinking,
    "tool_use": _tool_use,
    "server_tool_use": _tool_use,
    "mcp_tool_use": _tool_use,
}
"""The blocks of a message that are more than a name of their kind."""


def _blocks(content: Json) -> list[Block]:
    if isinstance(content, str):
        return [text_block(content)]
    return [_block(block) for block in elements(content)]


def _block(block: Json) -> Block:
    if isinstance(block, str):
        return text_block(block)
    kind = member(block, "type")
    make = _BLOCKS.get(kind) if isinstance(kind, str) else None
    return make(block) if make is not None and isinstance(block, dict) else other_block(kind)


def _typed(blocks: list[Block]) -> bool:
    """Whether the user wrote this, rather than a command or the harness."""
    return not any(
        block["type"] == "text" and _COMMAND.match(str(block["text"])) for block in blocks
    )


def _injected(form: str) -> dict[str, Json]:
    return {"kind": "plugin", "plugin": "claude-code", "form": form}


def _text(row: Mapping[str, Json], key: str) -> str:
    found = row.get(key)
    return found if isinstance(found, str) else ""
