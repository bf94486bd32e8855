"""The rollouts of Codex: which of their records are speech, and what becomes of the others.

What the model said and saw are the response items. The same words come once more as event
messages, for screens; those are log-only. A record stands in an envelope with a time, or bare, as
the first versions wrote it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar, Final

from ..messages.header import SessionHeader
from ..messages.json import Json, elements, member, text_member
from .foreign import (
    Block,
    Record,
    Translator,
    absolute,
    call_block,
    count,
    other_block,
    plain,
    reasoning_block,
    text_block,
    time_ms,
)

CHECKED_WITH: Final = "0.50.0 0.104.0-alpha.1 0.146.0 0.200.0"
"""The versions whose records the tables below were compared with."""

_COPY_MS: Final = 1000
"""How long the copies at the beginning of a fork take to be written."""

_FIRST_ITEM, _PROMPT, _NAMED = 0, 1, 3

_INJECTED: Final = re.compile(
    r"\s*(?:<(?:environment_context|user_instructions|turn_aborted|permissions|skill|"
    r"subagent_notification|user_shell_command)\b|# AGENTS\.md instructions)"
)
"""How texts of the user's side begin that no user typed."""

_UUID_7: Final = re.compile(r"([0-9a-f]{8})-([0-9a-f]{4})-7[0-9a-f]{3}(?:-[0-9a-f]+){2}")
_NAMED_FILE: Final = re.compile(r".*?([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")


def read_header(stem: str, records: Iterable[Mapping[str, Json]]) -> SessionHeader | None:
    """The header that the first description of a session gives; nothing without one or a date.

    ``stem`` is the name of the file, which ends in the id of the session; it counts where no
    record says more.
    """
    first: int | None = None
    for record in records:
        meta = _meta(record)
        header = _described(meta, record) if meta is not None else None
        if header is not None:
            return header
        if first is None:
            first = time_ms(record.get("timestamp"))
    named = _NAMED_FILE.fullmatch(stem)
    return SessionHeader(named[1], max(first, 0)) if named and first is not None else None


def sources_of(header: SessionHeader, records: Iterable[Mapping[str, Json]]) -> tuple[str, ...]:
    """Whose records a fork begins with copies of, the nearest first."""
    described = (_meta(record) or {} for record in records)
    named = (_name(meta.get("id")) or _name(meta.get("session_id")) for meta in described)
    found = dict.fromkeys((header.parent_session, *named))
    return tuple(source for source in found if source is not None and source != header.id)


def _described(meta: Mapping[str, Json], record: Mapping[str, Json]) -> SessionHeader | None:
    session_id = meta.get("id") or meta.get("session_id")
    created_at = time_ms(meta.get("timestamp"))
    if created_at is None:
        created_at = time_ms(record.get("timestamp"))
    if not isinstance(session_id, str) or not session_id or created_at is None:
        return None
    spawn = member(meta.get("source"), "subagent")
    forked_from = _name(meta.get("forked_from_id"))
    parent = _name(member(spawn, "thread_spawn", "parent_thread_id"))
    parent = parent or _name(meta.get("parent_thread_id"))
    role = meta.get("agent_role") or member(spawn, "thread_spawn", "agent_role")
    return SessionHeader(
        session_id,
        max(created_at, 0),
        cwd=absolute(meta.get("cwd")),
        parent_session=parent or forked_from,
        is_seeded=forked_from is not None,
        origin="subagent" if spawn else None,
        delegation_depth=_depth(spawn),
        agent_preset=role if isinstance(role, str) else None,
    )


def _meta(record: Mapping[str, Json]) -> Mapping[str, Json] | None:
    """What a record says of its session, if that is what it is for."""
    if record.get("type") == "session_meta":
        payload = record.get("payload")
        return payload if isinstance(payload, dict) else None
    bare = "type" not in record and "record_type" not in record
    return record if bare and "id" in record and "timestamp" in record else None


def _depth(spawn: Json) -> int:
    return max(count(member(spawn, "thread_spawn", "depth")), 1) if spawn else 0


def _name(value: Json) -> str | None:
    return value if isinstance(value, str) and value else None


def is_record(data: Mapping[str, Json]) -> bool:
    """Whether an object found inside a damaged line is a record."""
    return isinstance(data.get("type"), str) and not data.keys().isdisjoint(
        ("payload", "role", "call_id")
    )


class Codex(Translator):
    """One rollout as events."""

    agent: ClassVar[str] = "codex"

    def is_record(self, data: Mapping[str, Json]) -> bool:
        return is_record(data)

    def time_of(self, record: Record) -> int | None:
        time = time_ms(record.data.get("timestamp"))
        if time is not None and self.progress.copied_until == 0:
            self.progress.copied_until = time + _COPY_MS
        return time

    def is_copy(self, record: Record) -> bool:
        """Whether it was written when the fork was made, not since.

        Copies bear the time of the fork. Where turns have names that tell when they began, the
        first that began after the session did is its own.
        """
        began = _began(text_member(record.data.get("payload"), "turn_id"))
        if began is not None:
            self.progress.turns_named, self.progress.turn_began = True, began
            mine = _began(self.header.id)
            return began < (self.header.created_at if mine is None else mine)
        return self.progress.turns_named or self.progress.time <= self.progress.copied_until

    def copied_from(self, record: Record) -> str | None:
        # A turn is of the youngest session that was there when it began.
        began = self.progress.turn_began
        sources = self._copies.sources if self.progress.turns_named else ()
        return next((source for source in sources if (_began(source) or 0) <= began), None)

    def translate(self, record: Record) -> None:
        row = record.data
        kind, item = row.get("type"), row.get("payload")
        if kind not in _ENVELOPES or not isinstance(item, dict):
            # The first versions wrote response items without an envelope.
            item = dict(row)
            table = _RESPONSE_ITEMS
        else:
            table = _ENVELOPES[str(kind)]
            kind = item.get("type") if table is not _OTHERS else kind
        handler = table.get(kind) if isinstance(kind, str) else None
        if handler is None or not handler(self, item):
            self.log_only(kind if kind is not None else row.get("record_type"))

    # --- records; a handler says whether it made an event

    def _session_meta(self, meta: dict[str, Json]) -> bool:
        self.progress.provider = plain(meta.get("model_provider")) or "openai"
        return False

    def _turn_context(self, context: dict[str, Json]) -> bool:
        self.progress.model = plain(context.get("model")) or self.progress.model
        return False

    def _compacted(self, item: dict[str, Json]) -> bool:
        message = text_member(item, "message")
        blocks = [text_block(message)] if message else []
        self.summary("", blocks, _injected("compaction"))
        return True

    def _message(self, item: dict[str, Json]) -> bool:
        role, blocks = item.get("role"), _contents(item.get("content"))
        name = text_member(item, "id")
        if role == "assistant":
            self._say(item, blocks)
        elif role == "user" and _typed(blocks):
            self.user(name, blocks, {"kind": "user"})
            self.fallback_title(blocks, _FIRST_ITEM)
        elif role == "user":
            self.user(name, blocks, _injected("context"))
        return role in ("assistant", "user")

    def _agent_message(self, item: dict[str, Json]) -> bool:
        author = plain(item.get("author"))
        source: dict[str, Json] = {"kind": "agent", "author": author}
        self.user(text_member(item, "id"), _contents(item.get("content")), source)
        return True

    def _reasoning(self, item: dict[str, Json]) -> bool:
        parts = [*elements(item.get("summary")), *elements(item.get("content"))]
        self._say(item, [reasoning_block(text_member(part, "text")) for part in parts])
        return True

    def _function_call(self, item: dict[str, Json]) -> bool:
        return self._call(item, text_member(item, "name"), item.get("arguments"))

    def _custom_tool_call(self, item: dict[str, Json]) -> bool:
        return self._call(item, text_member(item, "name"), item.get("input"))

    def _local_shell_call(self, item: dict[str, Json]) -> bool:
        return self._call(item, "local_shell", item.get("action"))

    def _web_search_call(self, item: dict[str, Json]) -> bool:
        return self._call(item, "web_search", item.get("action"))

    def _tool_search_call(self, item: dict[str, Json]) -> bool:
        return self._call(item, "tool_search", item.get("arguments"))

    def _image_generation_call(self, item: dict[str, Json]) -> bool:
        return self._call(item, "image_generation", item.get("revised_prompt"))

    def _call(self, item: dict[str, Json], name: str, arguments: Json) -> bool:
        call_id = text_member(item, "call_id") or text_member(item, "id")
        self._say(item, [call_block(call_id, name, "" if arguments is None else arguments)])
        return True

    def _say(self, item: dict[str, Json], blocks: list[Block]) -> None:
        # What stands between two results of tools is one answer of the model.
        self.assistant(text_member(item, "id"), "answer", blocks, self.progress.model)

    def _output(self, item: dict[str, Json]) -> bool:
        output = item.get("output")
        failed = member(output, "success") is False
        content = member(output, "content") if member(output, "content") is not None else output
        name = text_member(item, "id")
        self.result(name, text_member(item, "call_id"), _contents(content), failed)
        self.progress.answer = ""
        return True

    def _tool_search_output(self, item: dict[str, Json]) -> bool:
        names = [text_member(tool, "name") for tool in elements(item.get("tools"))]
        blocks = [text_block("\n".join(names))]
        self.result(text_member(item, "id"), text_member(item, "call_id"), blocks, False)
        self.progress.answer = ""
        return True

    def _task_started(self, _item: dict[str, Json]) -> bool:
        self.begin_turn()
        self.note("turn/start", {"turn": self.progress.turn})
        return True

    def _task_complete(self, item: dict[str, Json]) -> bool:
        message = text_member(item, "error", "message")
        failed: Json = {"kind": "error", "error": {"message": message, "code": "UNKNOWN"}}
        return self._end_turn(failed if message else {"kind": "completed"})

    def _turn_aborted(self, _item: dict[str, Json]) -> bool:
        return self._end_turn({"kind": "aborted", "reason": {"kind": "user"}})

    def _end_turn(self, reason: Json) -> bool:
        self.note("turn/end", {"turn": max(self.progress.turn, 1), "reason": reason})
        return True

    def _user_message(self, item: dict[str, Json]) -> bool:
        """What the user typed, without what was put beside it: the best title so far."""
        message = text_member(item, "message")
        if _INJECTED.match(message) or self.progress.title_rank >= _PROMPT:
            return False
        return self.title(message, _PROMPT, {"kind": "fallback"}, [])

    def _thread_name(self, item: dict[str, Json]) -> bool:
        return self.title(text_member(item, "thread_name"), _NAMED, {"kind": "user"}, [])


_Handlers = dict[str, Callable[[Codex, dict[str, Json]], bool]]

_RESPONSE_ITEMS: Final[_Handlers] = {
    "message": Codex._message,
    "agent_message": Codex._agent_message,
    "reasoning": Codex._reasoning,
    "function_call": Codex._function_call,
    "function_call_output": Codex._output,
    "custom_tool_call": Codex._custom_tool_call,
    "custom_tool_call_output": Codex._output,
    "local_shell_call": Codex._local_shell_call,
    "local_shell_call_output": Codex._output,
    "web_search_call": Codex._web_search_call,
    "tool_search_call": Codex._tool_search_call,
    "tool_search_output": Codex._tool_search_output,
    "image_generation_call": Codex._image_generation_call,
}
_EVENT_MESSAGES: Final[_Handlers] = {
    "task_started": Codex._task_started,
    "turn_started": Codex._task_started,
    "task_complete": Codex._task_complete,
    "turn_complete": Codex._task_complete,
    "turn_aborted": Codex._turn_aborted,
    "user_message": Codex._user_message,
    "thread_name_updated": Codex._thread_name,
}
_OTHERS: Final[_Handlers] = {
    "session_meta": Codex._session_meta,
    "turn_context": Codex._turn_context,
    "compacted": Codex._compacted,
}
_ENVELOPES: Final[dict[Json, _Handlers]] = {
    "response_item": _RESPONSE_ITEMS,
    "event_msg": _EVENT_MESSAGES,
    **dict.fromkeys(_OTHERS, _OTHERS),
}
"""What is more than log-only, by the envelope and by what is in it."""

_TEXTS: Final = frozenset({"input_text", "output_text", "text", "summary_text"})


def _contents(content: Json) -> list[Block]:
    """What a message or an output holds: a text, one item, or a list of them."""
    if isinstance(content, str):
        return [text_block(content)]
    if isinstance(content, dict):
        content = [content]
    return [_content(item) for item in elements(content)]


def _content(item: Json) -> Block:
    if isinstance(item, str):
        return text_block(item)
    kind = member(item, "type")
    return text_block(text_member(item, "text")) if kind in _TEXTS else other_block(kind)


def _typed(blocks: list[Block]) -> bool:
    """Whether the user wrote this, rather than the harness."""
    return not any(
        block["type"] == "text" and _INJECTED.match(str(block["text"])) for block in blocks
    )


def _injected(form: str) -> dict[str, Json]:
    return {"kind": "plugin", "plugin": "codex", "form": form}


def _began(name: str) -> int | None:
    """When a UUID of version 7 was made, in ms since the epoch; nothing for other names."""
    found = _UUID_7.fullmatch(name)
    return int(found[1] + found[2], 16) if found else None
