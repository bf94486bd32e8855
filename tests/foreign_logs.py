"""Logs of other agents, written by hand record by record, and what is read of them."""

from __future__ import annotations

from pathlib import Path

from session_query.history.documents import search_documents
from session_query.history.titles import fold_title
from session_query.messages.event import Event
from session_query.messages.json import Json, decode, elements, encode, member
from session_query.messages.records import Surface
from session_query.storage.contract import SessionStore, StoredLog

MAIN = "11111111-1111-4111-8111-111111111111"
OTHER = "22222222-2222-4222-8222-222222222222"
THIRD = "33333333-3333-4333-8333-333333333333"

CLAUDE_START = 1_772_445_600_000
"""2026-03-02T10:00:00Z, when every log begins."""


def clock(seconds: int) -> str:
    """A time some seconds after the beginning, as logs spell it."""
    return f"2026-03-02T10:{seconds // 60:02}:{seconds % 60:02}.000Z"


def claude(kind: str, number: int, session: str = MAIN, **more: Json) -> bytes:
    """A row of Claude Code; ``None`` leaves a member out."""
    fields: dict[str, Json] = {
        "parentUuid": f"row-{number - 1}",
        "isSidechain": False,
        "cwd": "/home/mara/shop",
        "sessionId": session,
        "version": "2.1.39",
        "type": kind,
        "uuid": f"row-{number}",
        "timestamp": clock(number),
        **more,
    }
    return encode({key: value for key, value in fields.items() if value is not None})


def prompt(number: int, text: Json, session: str = MAIN, **more: Json) -> bytes:
    """A row of the user's side."""
    return claude("user", number, session, message={"role": "user", "content": text}, **more)


def answer(number: int, *blocks: Json, session: str = MAIN, **more: Json) -> bytes:
    """A row of the model's side, one of an answer that may have several."""
    message: dict[str, Json] = {
        "id": more.pop("answer", f"msg-{number}"),
        "role": "assistant",
        "model": "claude-opus-4-6",
        "content": list(blocks),
    }
    return claude("assistant", number, session, message=message, **more)


def said(text: str) -> Json:
    return {"type": "text", "text": text}


def use(call_id: str, name: str, **arguments: Json) -> Json:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def outcome(call_id: str, content: Json, **more: Json) -> Json:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def rollout(number: int, kind: str, payload: Json, **more: Json) -> bytes:
    """A record of Codex in its envelope."""
    return encode({"timestamp": clock(number), "type": kind, "payload": payload, **more})


def meta(session: str = MAIN, number: int = 0, **more: Json) -> bytes:
    """The description of a session of Codex."""
    fields: dict[str, Json] = {
        "id": session,
        "timestamp": clock(number),
        "cwd": "/home/mara/shop",
        "originator": "codex_cli_rs",
        "cli_version": "0.104.0",
        "source": "cli",
        "model_provider": "openai",
        **more,
    }
    return rollout(number, "session_meta", fields)


def item(number: int, kind: str, **more: Json) -> bytes:
    return rollout(number, "response_item", {"type": kind, **more})


def message(number: int, role: str, text: str) -> bytes:
    """What the user or the model said, as a response item."""
    kind = "output_text" if role == "assistant" else "input_text"
    return item(number, "message", role=role, content=[{"type": kind, "text": text}])


def notice(number: int, kind: str, **more: Json) -> bytes:
    """An event message."""
    return rollout(number, "event_msg", {"type": kind, **more})


def write(path: Path, *rows: bytes, fragment: bytes = b"") -> Path:
    """Write a log, each row with its line end; ``fragment`` stands behind the last."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(row + b"\n" for row in rows) + fragment)
    return path


def add(path: Path, *rows: bytes) -> None:
    """Append rows to a log, as its agent does."""
    with path.open("ab") as file:
        file.write(b"".join(row + b"\n" for row in rows))


def read(store: SessionStore, session_id: str = MAIN) -> StoredLog:
    """A whole log."""
    with store.open(session_id, "read") as reader:
        return reader.read_log()


def texts(store: SessionStore, session_id: str = MAIN) -> list[str]:
    """What can be found in a session, in order."""
    return [found.text for found in search_documents(read(store, session_id).events, 2)]


def surfaces(store: SessionStore, session_id: str = MAIN) -> dict[str, Surface]:
    """What can be found in a session, and whether the model still sees it."""
    found = search_documents(read(store, session_id).events, 2)
    return {document.text: document.surface for document in found}


def title(store: SessionStore, session_id: str = MAIN) -> str | None:
    """The title of a session."""
    found = fold_title(read(store, session_id).events)
    return found.title if found is not None else None


def types(store: SessionStore, session_id: str = MAIN) -> list[str]:
    """The types of the events of a session."""
    return [event.type for event in read(store, session_id).events]


def kept(event: Event) -> bytes:
    """The stored record that an event keeps, byte for byte."""
    raw = event.raw
    at = raw.find(b'"record":')
    if at < 0:
        return raw
    start = at + len(b'"record":')
    for end in range(len(raw), start, -1):
        if raw[end - 1 : end] == b"}":
            try:
                decode(raw[start:end])
            except ValueError:
                continue
            return raw[start:end]
    raise AssertionError(raw)


def is_failed(event: Event) -> bool:
    """Whether a tool result says that its call failed."""
    [block] = elements(member(event.data, "message", "content"))
    return member(block, "isError") is True


def blocks(event: Event) -> list[Json]:
    """The blocks of a message that are not its record."""
    data = event.data
    content = member(data, "content") or member(data, "message", "content")
    if event.type == "tool/result":
        content = member(elements(content)[0], "content")
    return [block for block in elements(content) if member(block, "type") != "record"]
