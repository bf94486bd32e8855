"""The searchable text of an event (query-service §6).

Parts are trimmed, empty ones dropped, the rest joined by line feeds. Reasoning, images, files,
unknown blocks, ids and metadata are never text. Malformed members count as absent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ..messages.config import no_text
from ..messages.json import Json, child, elements, member, text_member, text_or_empty
from .vocabulary import ALL_KNOWN_TYPES
from .whitespace import trim


def extract_text(event_type: str, data: Json, extract: Callable[[str, Json], str] = no_text) -> str:
    """The text of an event, or the empty string.

    ``extract`` is asked for types that no log format knows.
    """
    extractor = _EXTRACTORS.get(event_type)
    if extractor is not None:
        return extractor(data)
    return "" if event_type in SILENT_TYPES else trim(extract(event_type, data))


def _join(parts: Sequence[str]) -> str:
    if len(parts) == 1:
        return trim(parts[0])
    return "\n".join(filter(None, map(trim, parts)))


def block_texts(content: Json) -> list[str]:
    """The texts of content blocks in order, nested tool results included."""
    texts: list[str] = []
    for block in content if isinstance(content, list) else ():
        if not isinstance(block, dict):
            continue
        kind = block.get("type")
        if kind == "text":
            text = block.get("text")
            if isinstance(text, str):
                texts.append(text)
        elif kind == "tool-call":
            texts += _call_texts(block)
        elif kind == "tool-result":
            texts += block_texts(block.get("content"))
    return texts


def _call_texts(call: dict[str, Json]) -> tuple[str, str]:
    return text_or_empty(call.get("name")), text_or_empty(call.get("arguments"))


def _user_message(data: Json) -> str:
    return _join(block_texts(child(data, "content")))


def _assistant_message(data: Json) -> str:
    return _join(block_texts(child(child(data, "message"), "content")))


def _tool_call(data: Json) -> str:
    return _join(_call_texts(data)) if isinstance(data, dict) else ""


def _tool_result(data: Json) -> str:
    texts = block_texts(child(child(data, "message"), "content"))
    error = child(data, "error")
    if error is not None:
        texts += (text_member(error, "name"), text_member(error, "code"))
    return _join(texts)


def _todo_write(data: Json) -> str:
    todos = elements(member(data, "todos"))
    return _join([text_member(todo, key) for todo in todos for key in ("status", "content")])


def _turn_end(data: Json) -> str:
    kind = text_member(data, "reason", "kind")
    if kind == "error":
        return _join((kind, text_member(data, "reason", "error", "message")))
    return kind if kind in ("aborted", "max-tokens", "interrupted") else ""


_EXTRACTORS: Final[dict[str, Callable[[Json], str]]] = {
    "user/message": _user_message,
    "assistant/message": _assistant_message,
    "tool/call": _tool_call,
    "tool/result": _tool_result,
    "todo/write": _todo_write,
    "turn/end": _turn_end,
}

SILENT_TYPES: Final = ALL_KNOWN_TYPES - _EXTRACTORS.keys()
"""The types of which no event has text."""
