"""The logs that workloads write: a small vocabulary, its closers, and how it stands in a file.

Everything here is written a second time on purpose, from the description of the format and not with
the product's own code, so that both have to agree.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import count
from random import Random
from typing import Final

from attrs import field, frozen

from ..messages.event import Event, EventDraft, Replace, event_to_json
from ..messages.header import SessionHeader, header_to_json
from ..messages.json import Json, encode
from .search_model import surface_nodes

WORDS: Final = ("a", "a", "b", "c", "ab", "é", "登录")
GAPS: Final = (" ", " ", "-", "\n", "  ")
PHRASES: Final = ("a", "a", "b", "c", "ab", "e", "a b", "a a", "b-c", "登", "interrupted", "read")
WORKSPACES: Final = ("/w", "/v", None)
BIRTH: Final = 1_000
"""When every session was created, ms since the epoch, give or take two: sessions tie."""


def header_of(session_id: str, families: int = 0) -> SessionHeader:
    """The header that a session of this id has wherever it is stored; others by ``families``."""
    rng = Random(f"header {families} {session_id}" if families else f"header {session_id}")
    parent = rng.choice((None, "s0", "s1", "nowhere"))
    return SessionHeader(
        session_id,
        BIRTH + rng.randint(0, 2),
        cwd=rng.choice(WORKSPACES),
        parent_session=parent if parent != session_id else None,
    )


# -- what is written --------------------------------------------------------------------------


@frozen
class Voice:
    """How long texts are, in words."""

    fewest: int
    most: int
    words: tuple[str, ...] = WORDS
    gaps: tuple[str, ...] = GAPS

    def text(self, rng: Random) -> str:
        """Words with gaps behind them."""
        words = [rng.choice(self.words) for _ in range(rng.randint(self.fewest, self.most))]
        return "".join(word + rng.choice(self.gaps) for word in words)


@frozen
class TellingVoice(Voice):
    """A voice that says one word in each text that stands in no other, and some odd ones."""

    words: tuple[str, ...] = (*WORDS, "\ud800")
    _said: Iterator[int] = field(factory=count, eq=False)

    def text(self, rng: Random) -> str:
        """Words, and behind them one that is found by ``TOLD``."""
        return f"{super().text(rng)} q{next(self._said)}q"


TOLD: Final = re.compile(r"\bq[0-9]+q\b|\b[sf][0-9]+\b")
"""What betrays a session in a text: its id, or a word that only its texts have."""


def draw_drafts(
    rng: Random,
    voice: Voice,
    log: Sequence[Event],
    count: int,
    draw: Callable[[Random, Voice, Sequence[Event]], EventDraft] | None = None,
) -> list[EventDraft]:
    """Drafts that may stand behind ``log``, one after the other, each as ``draw`` makes it."""
    events, drafts = list(log), []
    for _ in range(count):
        draft = (draw or _draw_draft)(rng, voice, events)
        drafts.append(draft)
        events.append(event_of(draft, len(events), 0))
    return drafts


def draw_events(rng: Random, voice: Voice, log: Sequence[Event], count: int) -> tuple[Event, ...]:
    """Events that may stand behind ``log``."""
    drafts = draw_drafts(rng, voice, log, count)
    times = [BIRTH + rng.randint(0, 4) for _ in drafts]
    return tuple(
        event_of(draft, len(log) + at, time)
        for at, (draft, time) in enumerate(zip(drafts, times, strict=True))
    )


def event_of(draft: EventDraft, seq: int, time: int) -> Event:
    """The event that a draft becomes; time in ms since the epoch."""
    return Event(
        draft.type,
        seq,
        time,
        encode(draft.data),
        draft.surface_op,
        draft.source_event_seqs,
        draft.ignorable,
    )


_KINDS: Final = (
    *["user"] * 6,
    *["replace"] * 3,
    *["assistant", "turn"] * 2,
    *("call", "title"),
)


def _draw_draft(rng: Random, voice: Voice, log: Sequence[Event]) -> EventDraft:
    seq, nodes = len(log), surface_nodes(log)
    match rng.choice(_KINDS):
        case "assistant":
            message: Json = {
                "id": f"a{seq}",
                "role": "assistant",
                "content": _blocks(voice.text(rng)),
                "source": {"kind": "model", "provider": "p", "model": "m"},
            }
            data: Json = {"turn": 1, "step": 1, "message": message, "stream": []}
            return EventDraft("assistant/message", data, surface_op="append")
        case "replace" if nodes:
            first = rng.randrange(len(nodes))
            removed = nodes[first : first + rng.randint(1, 4)]
            return EventDraft(
                "user/message",
                _user(seq, voice.text(rng)),
                surface_op=Replace(removed[0], removed[-1]),
                source_event_seqs=tuple(removed),
            )
        case "turn":
            return _draw_mark(rng, *_open(log))
        case "call":
            called: Json = {
                "turn": 1,
                "step": 1,
                "callId": f"c{seq}",
                "name": "read",
                "arguments": voice.text(rng),
            }
            return EventDraft("tool/call", called)
        case "title":
            named: Json = {
                "title": voice.text(rng).strip() or "t",
                "messageSeqs": [],
                "source": {"kind": "user"},
            }
            return EventDraft("session/title", named)
    return EventDraft("user/message", _user(seq, voice.text(rng)), surface_op="append")


def _user(seq: int, text: str) -> Json:
    return {"id": f"m{seq}", "role": "user", "content": _blocks(text), "source": {"kind": "user"}}


def _blocks(text: str) -> Json:
    return [{"type": "text", "text": text}]


def _draw_mark(rng: Random, turn: bool, step: bool) -> EventDraft:
    """The next beginning or end of a turn or a step."""
    if step and rng.random() < 0.5:
        return EventDraft("step/end", {"turn": 1, "step": 1})
    if turn and not step and rng.random() < 0.5:
        return EventDraft("step/start", {"turn": 1, "step": 1})
    if turn:
        return EventDraft("turn/end", {"turn": 1, "reason": {"kind": "completed"}})
    return EventDraft("turn/start", {"turn": 1})


# -- what readers add -------------------------------------------------------------------------


def _open(log: Sequence[Event]) -> tuple[bool, bool]:
    """Whether a log ends inside a turn, and inside a step of it."""
    turn = step = False
    for event in log:
        if event.type == "turn/start":
            turn, step = True, False
        elif event.type == "turn/end":
            turn = step = False
        elif event.type in ("step/start", "step/end"):
            step = event.type == "step/start"
    return turn, turn and step


def next_mark(log: Sequence[Event]) -> EventDraft | None:
    """What has to come next so that a step begins; ``None`` within one."""
    turn, step = _open(log)
    if not turn:
        return EventDraft("turn/start", {"turn": 1})
    return None if step else EventDraft("step/start", {"turn": 1, "step": 1})


def is_between_turns(log: Sequence[Event]) -> bool:
    """Whether a log may be forked at its end."""
    return not _open(log)[0]


def closers_of(log: Sequence[Event]) -> tuple[Event, ...]:
    """What a reader puts behind a log that ends inside a turn."""
    turn, step = _open(log)
    drafts: list[EventDraft] = []
    if step:
        drafts.append(EventDraft("step/end", {"turn": 1, "step": 1}))
    if turn:
        ended: Json = {"turn": 1, "reason": {"kind": "interrupted"}}
        drafts.append(EventDraft("turn/end", ended))
    return tuple(event_of(draft, len(log) + at, log[-1].time) for at, draft in enumerate(drafts))


def resumed(log: Sequence[Event], time: int) -> tuple[Event, ...]:
    """What a resume at ``time`` puts behind a stored log."""
    closing = closers_of(log)
    marker = EventDraft("session/end-seed", {})
    behind = [*log, *closing]
    if behind and behind[-1].type != marker.type:
        return (*closing, event_of(marker, len(behind), time))
    return closing


def inherited(log: Sequence[Event], time: int) -> tuple[Event, ...]:
    """What a fork at ``time`` with the events of ``log`` begins with."""
    marker = EventDraft("session/end-seed", {"inherited": True})
    return (*log, event_of(marker, len(log), time)) if log else ()


# -- files ------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def event_line(event: Event) -> bytes:
    """An event as it stands in a log of format 2."""
    return encode(event_to_json(event)) + b"\n"


def header_line(header: SessionHeader) -> bytes:
    """The first line of a log."""
    return encode({"type": "session", **header_to_json(header)}) + b"\n"


def directory_of(root: str, header: SessionHeader) -> str:
    """Where a session of a plain id and working directory is stored."""
    project = "_no-cwd" if header.cwd is None else f"--{header.cwd.strip('/')}--"
    return f"{root}/{project}/{header.id}"


def path_of(root: str, header: SessionHeader) -> str:
    """The log file of such a session."""
    return f"{directory_of(root, header)}/session.v2.jsonl"
