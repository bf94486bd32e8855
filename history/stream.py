"""The recorded model stream of an assistant message: expanded, rebuilt and compared.

A stream is a list of records, each a packed run of deltas or one raw chunk. Rebuilding the
message from its chunks must give the blocks, the usage and the replay state that the message
holds; an empty stream proves nothing (current-version §2).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from typing import Final, Literal, NamedTuple

from attrs import Factory, define, frozen

from ..messages.errors import ReplayError
from ..messages.event import Event
from ..messages.json import Json, elements, is_safe_integer, member, text_member
from .canonical import same
from .whitespace import trim

_DELTAS: Final = {"text-chunks": "text-delta", "reasoning-chunks": "reasoning-delta"}

_BLOCK_OF_DELTA: Final = {
    "text-delta": "text",
    "reasoning-delta": "reasoning",
    "tool-call-delta": "tool-call",
}


class TimedChunk(NamedTuple):
    """One chunk of a stream and its time in ms since the epoch."""

    time: int
    chunk: dict[str, Json]


@frozen
class Assembly:
    """What a stream amounts to; ``None`` where it said nothing of the kind."""

    content: list[Json]
    usage: Json
    replay_state: Json


def check_stream(event: Event, data: Json, version: int) -> None:
    """Check the stream of an ``assistant/message`` or ``assistant/attempt``; others pass.

    Formats 0 and 1 have no streams, and a missing one counts as empty.

    Raises:
        ReplayError: the stream does not expand, or does not rebuild the message.
    """
    if version < 2 or event.type not in ("assistant/message", "assistant/attempt"):
        return
    stream = member(data, "stream")
    if stream is None:
        return
    try:
        chunks = expand(stream)
    except ReplayError as error:
        raise ReplayError(f"event {event.seq}: {error}") from error
    if not chunks or event.type == "assistant/attempt":
        return
    rebuilt = rebuild(chunks, "interrupted" if member(data, "interrupted") is True else "settled")
    for name, recorded, expected in (
        ("content", member(data, "message", "content"), rebuilt.content),
        ("usage", member(data, "usage"), rebuilt.usage),
        ("replayState", member(data, "message", "source", "replayState"), rebuilt.replay_state),
    ):
        if not same(recorded, expected):
            raise ReplayError(f"event {event.seq}: its stream does not rebuild its {name}")


def expand(stream: Json) -> tuple[TimedChunk, ...]:
    """The chunks of a stream, one for every member of a packed run.

    Raises:
        ReplayError: a record is malformed, named by its position.
    """
    if not isinstance(stream, list):
        raise ReplayError("stream is not a list")
    chunks: list[TimedChunk] = []
    for position, record in enumerate(stream):
        members = _members(record) if isinstance(record, dict) else None
        if members is None:
            raise ReplayError(f"record {position} of the stream is malformed: {record!r:.200}")
        chunks += members
    return tuple(chunks)


def _members(record: dict[str, Json]) -> list[TimedChunk] | None:
    kind = record.get("type")
    if kind == "chunk":
        time, chunk = record.get("time"), record.get("chunk")
        if type(time) is int and isinstance(chunk, dict) and isinstance(chunk.get("type"), str):
            return [TimedChunk(time, chunk)]
        return None
    if kind in ("text-chunks", "reasoning-chunks"):
        delta: dict[str, Json] = {"type": _DELTAS[str(kind)], "index": record.get("index")}
        return _run(record, delta, record.get("texts"), "text")
    if kind == "tool-call-chunks" and isinstance(record.get("id"), str):
        delta = {"type": "tool-call-delta", "index": record.get("index"), "id": record["id"]}
        if "name" in record:
            if not isinstance(record["name"], str):
                return None
            delta["name"] = record["name"]
        return _run(record, delta, record.get("args"), "argumentsDelta")
    return None


def _run(
    record: dict[str, Json], delta: dict[str, Json], members: Json, key: str
) -> list[TimedChunk] | None:
    gaps = [gap for gap in elements(record.get("dt")) if type(gap) is int]
    texts = elements(members)
    start = record.get("time0")
    if (
        type(start) is not int
        or not is_safe_integer(delta["index"])
        or not texts
        or len(gaps) != len(texts) - 1
        or len(gaps) != len(elements(record.get("dt")))
        or not all(isinstance(text, str) for text in texts)
    ):
        return None
    times = accumulate(gaps, initial=start)
    return [TimedChunk(time, {**delta, key: text}) for time, text in zip(times, texts, strict=True)]


@define
class _Block:
    """A content block while its chunks arrive."""

    index: int
    kind: str
    parts: list[str] = Factory(list)
    call_id: str = ""
    name: str = ""
    settled: Json = None
    """What the first ``block-end`` said; later deltas do not count."""

    def finished(self) -> Json:
        if self.settled is not None:
            return self.settled
        text = "".join(self.parts)
        if self.kind != "tool-call":
            return {"type": self.kind, "text": text}
        call_id = self.call_id or f"call-{self.index}"
        return {"type": "tool-call", "id": call_id, "name": self.name, "arguments": text}


def rebuild(
    chunks: Iterable[TimedChunk], ending: Literal["settled", "interrupted"] = "settled"
) -> Assembly:
    """Assemble chunks into what the message holds.

    ``ending`` is ``"settled"`` or ``"interrupted"``: an interrupted message keeps only text and
    reasoning that is not blank.
    """
    blocks: dict[int, _Block] = {}
    usage = finish = replay_state = None
    for _time, chunk in chunks:
        kind = text_member(chunk, "type")
        if kind == "usage":
            usage = chunk.get("usage")
        elif kind == "finish":
            finish = member(chunk, "reason", "kind") or chunk.get("reason")
            replay_state = chunk.get("replayState")
        elif type(index := chunk.get("index")) is int:
            _take(blocks, index, kind, chunk)
    content = [block.finished() for block in blocks.values()]
    if finish == "max-tokens":
        content = [block for block in content if member(block, "type") != "tool-call"]
    if ending == "interrupted":
        content = [block for block in content if _is_visible_text(block)]
    return Assembly(content, usage, replay_state)


def _take(blocks: dict[int, _Block], index: int, kind: str, chunk: dict[str, Json]) -> None:
    opened = text_member(chunk, "blockType") or _BLOCK_OF_DELTA.get(kind, "")
    block = blocks.setdefault(index, _Block(index, opened))
    if block.settled is not None:
        return
    if kind == "block-end":
        block.settled = chunk.get("block")
    elif kind == "tool-call-delta":
        block.call_id = text_member(chunk, "id") or block.call_id
        block.name = text_member(chunk, "name") or block.name
        block.parts.append(text_member(chunk, "argumentsDelta"))
    elif kind in _BLOCK_OF_DELTA:
        block.parts.append(text_member(chunk, "text"))


def _is_visible_text(block: Json) -> bool:
    return member(block, "type") in ("text", "reasoning") and bool(trim(text_member(block, "text")))
