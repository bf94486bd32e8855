"""What the readers of other agents' logs have in common: records go in, events come out.

Events are of format 2, and a record becomes one of them wherever it can. What is speech becomes a
message, and keeps the stored record word for word as the last block of its content, a block of
type ``record``, which has no text; everything else becomes a log-only event whose payload is the
record itself. Between two records a reader remembers only a ``Progress``, which can be stored.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cached_property
from hashlib import blake2b
from itertools import compress
from pathlib import PureWindowsPath
from typing import ClassVar, Final, TypeAlias

import msgspec
from attrs import frozen

from ..messages.event import Event, Replace, SurfaceOp
from ..messages.header import SessionHeader
from ..messages.json import MAX_SAFE_INTEGER, Json, decode, encode
from .long_payload import LONG_BYTES
from .whitespace import collapse

DEEPEST: Final = 250
"""Levels of nesting a record may have, so that an event that keeps it is no deeper than allowed."""

TITLE_CHARS: Final = 120
"""The longest title, in code points."""

UNREADABLE_CHARS: Final = 64 * 1024
"""How much of a line that is no record is kept, in code points."""

_NAME_CHARS: Final = 200
_KIND: Final = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_CONTROLS: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_INVISIBLE: Final = re.compile("[\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]+")
_SURROGATES: Final = re.compile("[\ud800-\udfff]")
_BITS: Final = bytes.maketrans(b"01", b"\0\1")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Block: TypeAlias = dict[str, Json]


@frozen
class Record:
    """One stored record."""

    data: Mapping[str, Json]
    """Its members; what takes too much memory is ``None``."""
    raw: bytes
    """Its JSON text, at most ``DEEPEST`` levels deep."""


@frozen
class Copies:
    """Whose records a fork begins with copies of, and who else is here to be found with them."""

    sources: tuple[str, ...] = ()
    """The parent, its own parent, and so on, as far as the log tells."""
    stored: frozenset[str] = frozenset()
    """Those of them that are in the store."""

    @cached_property
    def nearest(self) -> int | None:
        """Which of the sources is the first that is stored: it has what those behind it had."""
        return next((n for n, source in enumerate(self.sources) if source in self.stored), None)

    @cached_property
    def _found_there(self) -> frozenset[str]:
        """The sources whose records the nearest has, itself one of them."""
        return frozenset(self.sources[self.nearest :]) if self.nearest is not None else frozenset()

    def are_elsewhere(self, source: str | None) -> bool:
        """Whether copies of the records of a source, by default the parent, are found elsewhere."""
        # Where the parent is here, it has all of them.
        return self.nearest == 0 or source in self._found_there


class Progress(msgspec.Struct):
    """What the records before the next one leave behind; a few hundred bytes, and the surface."""

    next_seq: int = 0
    time: int = 0
    """Of the newest event, ms since the epoch."""
    turn: int = 0
    step: int = 0
    answer: str = ""
    """Which answer of the model the newest message belongs to; empty where the model has to."""
    nodes: list[int] = []
    """The surface, as far as it can still be replaced."""
    inheriting: bool = False
    """Whether the next record may still be a copy of the parent's."""
    title_rank: int = -1
    """How good the newest title is; a lesser one does not replace it."""
    model: str = ""
    provider: str = ""
    seen: list[str] = []
    """Digests of the names of the newest records, oldest first."""
    awaited: dict[str, str] = {}
    """Titles of records that may come, by digests of their names, oldest first."""
    copied_until: int = 0
    """Records up to this time are copies, where nothing better tells."""
    turns_named: bool = False
    """Whether turns have names that tell when they began."""
    turn_began: int = 0
    """When the present turn did, by its name, ms since the epoch."""
    version: str = ""
    """The first version of the agent that a record named."""


def encode_progress(progress: Progress) -> bytes:
    """A progress as JSON; of the surface only a bit for each event since its first node."""
    return encode({**msgspec.to_builtins(progress), "nodes": _packed(progress.nodes)})


def decode_progress(raw: bytes) -> Progress:
    """The progress that was encoded.

    Raises:
        ValueError: it is none.
    """
    stored = decode(raw)
    if not isinstance(stored, dict):
        raise ValueError(f"a progress is an object, got {stored!r:.80}")
    return msgspec.convert({**stored, "nodes": _unpacked(stored.get("nodes"))}, Progress)


def _packed(nodes: list[int]) -> list[Json]:
    if not nodes:
        return []
    first = nodes[0]
    bits = bytearray(b"0" * (nodes[-1] - first + 1))
    for node in nodes:
        bits[node - first] = ord("1")
    return [first, f"{int(bits, 2):x}"]


def _unpacked(packed: Json) -> list[int]:
    match packed:
        case []:
            return []
        case [int(first), str(digits)]:
            bits = f"{int(digits, 16):b}".encode()
            return list(compress(range(first, first + len(bits)), bits.translate(_BITS)))
    raise ValueError(f"no nodes: {packed!r:.80}")


class Translator(ABC):
    """Turns the records of one session into events, in order."""

    agent: ClassVar[str]
    """What its log-only types begin with."""

    def __init__(
        self, header: SessionHeader, *, copies: Copies, progress: Progress | None = None
    ) -> None:
        """Copies of records that are found elsewhere have no text of their own.

        ``progress`` is that of another translator of the same session, which this one continues.
        """
        self.progress = progress or Progress(time=header.created_at, inheriting=header.is_seeded)
        self.header = header
        self._copies = copies
        self._events: list[Event] = []
        self._record: Record | None = None
        self._record_seq: int | None = None

    def take(self, record: Record) -> list[Event]:
        """The events of the next record; none of one that belongs to another session."""
        self._begin(record, self.time_of(record))
        if self.progress.inheriting and not self.is_copy(record):
            self.progress.inheriting = False
            self._mark_seed()
        self.translate(record)
        return self._events

    def unreadable(self, line: bytes, reason: str) -> list[Event]:
        """The event of a line that is no record."""
        self._begin(None, self.progress.time)
        text = line[: 4 * UNREADABLE_CHARS].decode("utf-8", "replace")[:UNREADABLE_CHARS]
        data: Json = {"reason": reason, "bytes": len(line), "text": text}
        self._emit(f"{self.agent}/unreadable", encode(data), ignorable=True)
        return self._events

    @abstractmethod
    def is_record(self, data: Mapping[str, Json]) -> bool:
        """Whether an object found inside a damaged line is a record of this agent."""

    @abstractmethod
    def time_of(self, record: Record) -> int | None:
        """When a record was written, ms since the epoch, if it says so."""

    def is_copy(self, record: Record) -> bool:
        """Whether a record behind copies alone is one as well; asked in seeded sessions."""
        return False

    def copied_from(self, record: Record) -> str | None:
        """Whose record a copy is of; nothing where it does not tell, which means the parent's."""
        return None

    @abstractmethod
    def translate(self, record: Record) -> None:
        """Make the events of a record by the methods below; at least one."""

    def _begin(self, record: Record | None, time: int | None) -> None:
        self._events = []
        self._record, self._record_seq = record, None
        if time is not None:
            self.progress.time = time
        if self.progress.next_seq == 0 and self.progress.inheriting:
            # A seeded log without a marker would be damaged, and the cut may never come.
            self._mark_seed()

    # --- events

    def _emit(
        self,
        event_type: str,
        raw: bytes,
        op: SurfaceOp | None = None,
        sources: tuple[int, ...] | None = None,
        *,
        ignorable: bool = False,
    ) -> None:
        progress = self.progress
        event = Event(event_type, progress.next_seq, progress.time, raw, op, sources, ignorable)
        self._events.append(event)
        progress.next_seq += 1

    def _mark_seed(self) -> None:
        self._emit("session/end-seed", b'{"inherited":true}')

    def log_only(self, kind: Json) -> None:
        """The record as it is, under its kind: no speech."""
        assert self._record is not None
        name = kind if isinstance(kind, str) and _KIND.fullmatch(kind) else "record"
        self._emit(f"{self.agent}/{name}", self._record.raw, ignorable=True)

    def note(self, event_type: str, members: dict[str, Json]) -> None:
        """A log-only event of our own that keeps the record beside its members."""
        self._emit(event_type, b"%s,%s}" % (encode(members)[:-1], self._kept()))

    def user(self, name: str, blocks: list[Block], source: dict[str, Json]) -> None:
        """A message from the user's side; ``source`` has a ``kind`` and no lone surrogates."""
        self._place("user/message", self._user_payload(name, blocks, source))

    def summary(self, name: str, blocks: list[Block], source: dict[str, Json]) -> None:
        """A user message in the place of all that the model saw before it."""
        raw = self._user_payload(name, blocks, source)
        nodes = self.progress.nodes
        if not nodes:
            self._place("user/message", raw)
            return
        op, sources = Replace(nodes[0], nodes[-1]), tuple(nodes)
        self.progress.nodes = [self.progress.next_seq]
        self._emit("user/message", raw, op, sources)

    def _user_payload(self, name: str, blocks: list[Block], source: dict[str, Json]) -> bytes:
        self.progress.answer = ""
        return msgspec.json.encode(
            {
                "id": self._name(name),
                "role": "user",
                "content": self._content(blocks),
                "source": source,
            }
        )

    def assistant(self, name: str, answer: str, blocks: list[Block], model: str) -> None:
        """A message of the model; messages of one ``answer`` are one step."""
        progress = self.progress
        answer = digest(answer)
        if answer != progress.answer:
            progress.step += 1
            progress.answer = answer
        source = {
            "kind": "model",
            "provider": progress.provider or self.agent,
            "model": plain(model) or "unknown",
        }
        message = {
            "id": self._name(name),
            "role": "assistant",
            "content": self._content(blocks),
            "source": source,
        }
        raw = msgspec.json.encode({**self._at(), "message": message, "stream": []})
        self._place("assistant/message", raw)

    def result(self, name: str, call_id: str, blocks: list[Block], failed: Json) -> None:
        """What a tool gave back; without a ``call_id`` it has one made up."""
        call_id = plain(call_id) or f"unknown-{self.progress.next_seq}"
        block: dict[str, object] = {
            "type": "tool-result",
            "toolCallId": call_id,
            "content": self._content(blocks),
        }
        if failed is True:
            block["isError"] = True
        message = {
            "id": self._name(name),
            "role": "user",
            "content": [block],
            "source": {"kind": "tool", "callId": call_id},
        }
        self._place("tool/result", msgspec.json.encode({**self._at(), "message": message}))

    def title(self, title: str, rank: int, source: dict[str, Json], seqs: list[Json]) -> bool:
        """Give the session a title unless it has a better one; whether it did."""
        line = one_line(title)
        if not line or rank < self.progress.title_rank:
            return False
        self.progress.title_rank = rank
        self.note("session/title", {"title": line, "messageSeqs": seqs, "source": source})
        return True

    def fallback_title(self, blocks: list[Block], rank: int) -> None:
        """Let a title from what the user said stand until a better one comes."""
        if rank > self.progress.title_rank:
            text = " ".join(str(block["text"]) for block in blocks if block["type"] == "text")
            self.title(text, rank, {"kind": "fallback"}, [self.progress.next_seq - 1])

    def begin_turn(self) -> None:
        """Count the steps to come in a new turn."""
        self.progress.turn += 1
        self.progress.step = 0
        self.progress.answer = ""

    def _at(self) -> dict[str, object]:
        return {"turn": max(self.progress.turn, 1), "step": max(self.progress.step, 1)}

    def _place(self, event_type: str, raw: bytes) -> None:
        """Append a message to the surface."""
        self.progress.nodes.append(self.progress.next_seq)
        self._emit(event_type, raw, "append")

    def _name(self, name: str) -> str:
        """A name for a message, one of ours where the record has none."""
        return plain(name) or f"{self.agent}-{self.progress.next_seq}"

    def _content(self, blocks: list[Block]) -> msgspec.Raw:
        """The blocks of a message and the record that they are from."""
        if self.progress.inheriting and self._is_elsewhere():
            blocks = []
        shown = encode(blocks)[1:-1]
        kept = b'{"type":"record",%s}' % self._kept()
        return msgspec.Raw(b"[%s]" % (b"%s,%s" % (shown, kept) if shown else kept))

    def _is_elsewhere(self) -> bool:
        assert self._record is not None
        return self._copies.are_elsewhere(self.copied_from(self._record))

    def _kept(self) -> bytes:
        """The record as a member of an object, or where it is kept already."""
        assert self._record is not None
        if self._record_seq is None:
            self._record_seq = self.progress.next_seq
            if len(self._record.raw) <= LONG_BYTES:
                return b'"record":' + self._record.raw
            # A long payload is read in part, and only one that is no message in any part.
            self._emit(f"{self.agent}/record", self._record.raw, ignorable=True)
        return b'"recordSeq":%d' % self._record_seq


def text_block(text: str) -> Block:
    """What was said."""
    return {"type": "text", "text": text}


def reasoning_block(text: str) -> Block:
    """What was thought; it is kept and never searched."""
    return {"type": "reasoning", "text": text}


def call_block(call_id: str, name: str, arguments: Json) -> Block:
    """A call of a tool; arguments that are no text already are written as JSON."""
    written = arguments if isinstance(arguments, str) else encode(arguments).decode()
    return {"type": "tool-call", "id": plain(call_id), "name": name, "arguments": written}


def other_block(kind: Json) -> Block:
    """A block that has nothing to search, such as an image; the record tells what it is."""
    return {"type": kind if isinstance(kind, str) and _KIND.fullmatch(kind) else "unknown"}


def plain(text: Json) -> str:
    """A short name without lone surrogates, or nothing where there is none."""
    return _SURROGATES.sub("\ufffd", text[:_NAME_CHARS]) if isinstance(text, str) else ""


def digest(name: str) -> str:
    """Sixteen digits that stand for a name of any length; nothing for an empty one."""
    return blake2b(encode(name), digest_size=8).hexdigest() if name else ""


def one_line(text: str) -> str:
    """A text as a title: one line without invisible controls, cut where it is too long."""
    line = collapse(_INVISIBLE.sub("", _CONTROLS.sub(" ", text[: 40 * TITLE_CHARS])))
    line = _SURROGATES.sub("\ufffd", line)
    return line if len(line) <= TITLE_CHARS else line[: TITLE_CHARS - 1].rstrip() + "…"


def time_ms(value: Json) -> int | None:
    """A time in ISO 8601 as ms since the epoch; one without an offset is taken for UTC."""
    if not isinstance(value, str) or len(value) > 64:
        return None
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        return None
    aware = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    gone = aware - _EPOCH
    return (gone.days * 86_400 + gone.seconds) * 1000 + gone.microseconds // 1000


def absolute(path: Json) -> str | None:
    """A working directory as it is stored, or nothing where it is no absolute path."""
    if not isinstance(path, str) or not path:
        return None
    known = path.startswith("/") or PureWindowsPath(path).is_absolute()
    return path if known else None


def count(value: Json) -> int:
    """A whole number from 0 on, 0 where it is none."""
    return value if type(value) is int and 0 <= value <= MAX_SAFE_INTEGER else 0
