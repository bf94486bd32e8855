"""Random logs over a tiny alphabet, and stores as somebody outside the service changes them."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from random import Random

from attrs import frozen
from builders import (
    assistant_data,
    interrupted_turn_closers,
    result_data,
    text,
    tool_call,
    user_data,
)

from session_query.messages.event import Event, EventDraft, Replace
from session_query.messages.header import SessionHeader
from session_query.messages.json import Json, member
from session_query.simulations.logs import Voice, draw_drafts, event_of
from session_query.simulations.search_model import surface_nodes
from session_query.storage.contract import SessionStore
from session_query.storage.jsonl import JsonlStore
from session_query.storage.memory import MemoryStore

WORDS = ("a", "a", "b", "c", "A", "á", "E", "e\u0301", "ab", "登", "登录", "超时", "🤖")
GAPS = (" ", " ", " ", "  ", "\n", "-", ".", "\0", "\ufdd0", "🎉", "\u00a0", "")
PHRASES = (
    *("a", "b", "c", "á", "E", "ab", "a a", "a b", "a b a", "a a a", "b-c", "登", "登录", "录 超"),
    *("登录 超时", "🤖", "a 登", "*", "\ufdd0", "interrupted", "read", "session_search", "b b"),
)
IDS = ("s0", "s1", "s2", "s3", "s4", "s5", "S6", "é7")
CWDS = ("/w", "/v", None)
TOOLS = ("read", "session_search")
CALLS = ("c1", "c2")


def voice_of(fewest: int, most: int) -> Voice:
    """Texts of so many of these words."""
    return Voice(fewest, most, WORDS, GAPS)


def random_header(rng: Random, session_id: str) -> SessionHeader:
    """Few values for everything, so that sessions tie."""
    return SessionHeader(
        session_id,
        rng.randint(1, 3),
        cwd=rng.choice(CWDS),
        parent_session=rng.choice((None, None, *IDS)),
    )


def random_drafts(rng: Random, voice: Voice, log: Sequence[Event], count: int) -> list[EventDraft]:
    """Drafts that may stand behind ``log``, one after the other."""
    return draw_drafts(rng, voice, log, count, _draft)


def random_events(rng: Random, voice: Voice, log: Sequence[Event], count: int) -> tuple[Event, ...]:
    """Events that may stand behind ``log``."""
    drafts = random_drafts(rng, voice, log, count)
    return tuple(event_of(draft, len(log) + n, rng.randint(1, 3)) for n, draft in enumerate(drafts))


def _draft(rng: Random, voice: Voice, log: Sequence[Event]) -> EventDraft:
    identity, surface = f"m{len(log)}", surface_nodes(log)
    kinds = ["user"] * 6 + ["replace"] * 3 + ["assistant", "call", "result", "rewrite", "mark"] * 2
    match rng.choice(kinds):
        case "assistant":
            asked = [tool_call(rng.choice(CALLS), rng.choice(TOOLS), voice.text(rng))]
            blocks = [*([text(voice.text(rng))] if rng.random() < 0.5 else []), *asked]
            data = assistant_data(*blocks[: rng.randint(1, 2)], identity=identity)
            return EventDraft("assistant/message", {**data, "stream": []}, surface_op="append")
        case "call":
            call: dict[str, Json] = {"turn": 1, "step": 1, "callId": rng.choice(CALLS)}
            named: dict[str, Json] = {"name": rng.choice(TOOLS), "arguments": voice.text(rng)}
            return EventDraft("tool/call", {**call, **named})
        case "result":
            data = result_data(rng.choice(CALLS), voice.text(rng))
            return EventDraft("tool/result", data, surface_op="append")
        case "rewrite" if results := [seq for seq in surface if log[seq].type == "tool/result"]:
            seq = rng.choice(results)
            call_id = str(member(log[seq].data, "message", "source", "callId"))
            if call_id in CALLS and "error" not in str(log[seq].data):
                return EventDraft(
                    "tool/result",
                    result_data(call_id, voice.text(rng)),
                    surface_op=Replace(seq, seq),
                    source_event_seqs=(seq,),
                )
        case "replace" if surface:
            first = rng.randrange(len(surface))
            last = min(first + rng.randrange(4), len(surface) - 1)
            removed = surface[first : last + 1]
            return EventDraft(
                "user/message",
                user_data(voice.text(rng), identity),
                surface_op=Replace(removed[0], removed[-1]),
                source_event_seqs=tuple(removed),
            )
        case "mark":
            kind = rng.choice(("turn/start", "turn/end", "step/start", "step/end"))
            reason: dict[str, Json] = {"reason": {"kind": rng.choice(("completed", "interrupted"))}}
            return EventDraft(kind, {"turn": 1, "step": 1, **reason})
    return EventDraft("user/message", user_data(voice.text(rng), identity), surface_op="append")


@frozen
class StoredSession:
    """What a reader finds of one stored session."""

    header: SessionHeader
    events: tuple[Event, ...]
    """With the in-memory closers."""
    readable: bool


class OutsideHand(ABC):
    """A store, and the ways in which others change it. No session that is live may be touched."""

    store: SessionStore

    def __init__(self) -> None:
        self._damaged: set[str] = set()

    def sessions(self) -> dict[str, StoredSession]:
        """All that is stored."""
        return {
            snapshot.header.id: self._read(snapshot.header)
            for snapshot in self.store.sweep().snapshots
        }

    def _read(self, header: SessionHeader) -> StoredSession:
        if header.id in self._damaged:
            return StoredSession(header, (), False)
        with self.store.open(header.id, "read") as handle:
            events = handle.read()
        return StoredSession(header, events + interrupted_turn_closers(events), True)

    def append(self, session_id: str, rng: Random, voice: Voice, count: int) -> None:
        """Continue a log."""
        with self.store.open(session_id, "write") as handle:
            handle.append(random_events(rng, voice, handle.read(), count))

    def damage(self, session_id: str) -> None:
        """Let a log end with an event that cannot stand there."""
        with self.store.open(session_id, "write") as handle:
            broken = EventDraft(
                "user/message",
                user_data("broken"),
                surface_op=Replace(9000, 9000),
                source_event_seqs=(0,),
            )
            handle.append((event_of(broken, len(handle.read()), 1),))
        self._damaged.add(session_id)

    def write(self, header: SessionHeader, events: tuple[Event, ...]) -> None:
        """Store a new log, in the place of another one if there is one."""
        if self.store.stat(header.id) is not None:
            self.delete(header.id)
        with self.store.create(header) as handle:
            handle.append(events)
            handle.flush()

    def delete(self, session_id: str) -> None:
        """Remove a log."""
        self._damaged.discard(session_id)
        self._remove(session_id)

    @abstractmethod
    def _remove(self, session_id: str) -> None: ...


class MemoryHand(OutsideHand):
    """Changes a ``MemoryStore``."""

    def __init__(self) -> None:
        super().__init__()
        self.store = self._memory = MemoryStore()

    def _remove(self, session_id: str) -> None:
        del self._memory._sessions[session_id]


class JsonlHand(OutsideHand):
    """Changes the files of a ``JsonlStore``."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.store = JsonlStore(root)
        self._root = root

    def _remove(self, session_id: str) -> None:
        for log in sorted(self._root.rglob("*.jsonl")):
            if f'"id":"{session_id}"'.encode() in log.read_bytes().split(b"\n", 1)[0]:
                shutil.rmtree(log.parent)
