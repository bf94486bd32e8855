"""A seeded corpus: sessions of a plausible coding agent, written as a real store in format 2.

Word frequencies follow Zipf's law over words, identifiers, paths and numbers; text lengths are
log-normal (median about 215 code points, at most 22 500); one document in twenty is Chinese. The
same seed and size give the same bytes. Every session draws from a generator of its own, so its log
does not depend on which others were made before it. Texts are cut from one long run of words, which
takes a tenth of the time of drawing each word.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from itertools import accumulate, count
from pathlib import Path
from typing import Final

from attrs import define, field

from session_query.history.documents import Document, search_documents
from session_query.messages.event import Event, SurfaceOp
from session_query.messages.header import SessionHeader
from session_query.messages.json import Json, encode
from session_query.storage.header_line import render_header
from session_query.storage.layout import encode_segment, log_name, project_name
from session_query.storage.records import render_event

RARE: Final = "quenchwhistle"
"""A word that stands in ``RARE_DOCUMENTS`` documents of a corpus, and never in generated words."""

RARE_DOCUMENTS: Final = 20
COMMON_SHARE: Final = 0.3
DOCUMENTS_OF_A_TURN: Final = 10

_START: Final = 1_760_000_000_000
_WORDS: Final = 50_000
_RUN: Final = 400_000
"""Words of the run that texts are cut from."""
_PLAIN_WORDS: Final = 2_000
_LONG_WORDS: Final = 100
"""The commonest words have eight letters each, so that a benchmark can spell them in many ways."""
_MEDIAN_CHARS: Final = 215
_SIGMA: Final = 1.18
_MAX_CHARS: Final = 22_500
_CHARS_A_WORD: Final = 8
_WORKSPACES: Final = 7
_SYLLABLES: Final = [
    consonant + vowel for consonant in "bcdfghjklmnprstvz" for vowel in ("a", "e", "i", "o", "u")
]
_CHINESE: Final = [
    "用户登录超时，请稍后重试。",
    "请检查配置文件是否正确。",
    "测试已经全部通过。",
    "数据库连接失败。",
    "我来修复这个错误。",
    "接口返回了空的结果。",
    "日志里没有更多信息。",
    "缓存已经清理完毕。",
]


@define
class Corpus:
    """``sessions`` sessions of ``documents`` documents each."""

    sessions: int
    documents: int = 60
    seed: int = 1

    @cached_property
    def vocabulary(self) -> list[str]:
        """By falling frequency."""
        rng = random.Random(f"{self.seed}/vocabulary")
        return list(dict.fromkeys(_word(rng, rank) for rank in range(_WORDS)))

    @cached_property
    def _run(self) -> list[str]:
        weights = list(accumulate(1 / rank for rank in range(1, len(self.vocabulary) + 1)))
        rng = random.Random(f"{self.seed}/run")
        return rng.choices(self.vocabulary, cum_weights=weights, k=_RUN)

    @property
    def total(self) -> int:
        """Documents of all sessions."""
        return self.sessions * self.documents

    def header(self, number: int) -> SessionHeader:
        """The header of one session."""
        workspace = f"/work/project-{number % _WORKSPACES}"
        return SessionHeader(f"session-{number:05}", _START + number * 60_000, cwd=workspace)

    def events(self, number: int) -> tuple[Event, ...]:
        """The log of one session."""
        rng = random.Random(f"{self.seed}/{number}")
        log = _Log(_START + number * 60_000)
        log.add("session/title", {"title": self._text(rng, 40), "messageSeqs": [], "source": USER})
        first = number * self.documents
        step = max(self.total // RARE_DOCUMENTS, 1)
        texts = (
            self.document_text(rng) + (f" {RARE}" if (first + place) % step == 0 else "")
            for place in count()
        )
        for turn in range(1, self.documents // DOCUMENTS_OF_A_TURN + 1):
            log.add_turn(turn, texts)
        return tuple(log.events)

    def documents_of(self, number: int) -> tuple[Document, ...]:
        """The search documents of one session."""
        return search_documents(self.events(number), self.header(number).version)

    def common_word(self) -> str:
        """The word whose share of all documents comes nearest to ``COMMON_SHARE``."""
        sample = [
            set(document.text.lower().split())
            for number in range(min(self.sessions, 40))
            for document in self.documents_of(number)
        ]
        seen = Counter(word for words in sample for word in words)
        return min(
            self.vocabulary[:_LONG_WORDS],
            key=lambda word: abs(seen[word] / len(sample) - COMMON_SHARE),
        )

    def short_events(self, number: int) -> tuple[Event, ...]:
        """A log of two documents, for stores whose number of sessions is what matters."""
        rng = random.Random(f"{self.seed}/short/{number}")
        log = _Log(_START + number * 60_000)
        log.add("session/title", {"title": self._text(rng, 40), "messageSeqs": [], "source": USER})
        for marker in (f" {RARE}" if number < RARE_DOCUMENTS else "", ""):
            log.add_message(self.document_text(rng) + marker)
        return tuple(log.events)

    def write(self, root: Path) -> int:
        """Write every session below ``root``; how many events they have."""
        events = 0
        for number in range(self.sessions):
            log = self.events(number)
            write_log(root, self.header(number), log)
            events += len(log)
        return events

    def write_short(self, root: Path) -> None:
        """Write every session below ``root``, with two documents each."""
        for number in range(self.sessions):
            write_log(root, self.header(number), self.short_events(number))

    def document_text(self, rng: random.Random) -> str:
        """The text of one document."""
        return self._text(rng, rng.lognormvariate(math.log(_MEDIAN_CHARS), _SIGMA))

    def _text(self, rng: random.Random, chars: float) -> str:
        wanted = min(max(int(chars), 1), _MAX_CHARS)
        if rng.random() < 0.05:
            return "".join(rng.choices(_CHINESE, k=wanted // 12 + 1))[:wanted]
        words = wanted // _CHARS_A_WORD + 1
        start = rng.randrange(_RUN - words)
        return " ".join(self._run[start : start + words])


def long_log(corpus: Corpus, events: int) -> tuple[Event, ...]:
    """A log of about ``events`` events, of which a bit more than half have text."""
    rng = random.Random(f"{corpus.seed}/long/{events}")
    log = _Log(_START)
    texts = (corpus.document_text(rng) for _ in count())
    turn = 0
    while len(log.events) < events:
        turn += 1
        log.add_turn(turn, texts)
    return tuple(log.events[:events])


def write_log(root: Path, header: SessionHeader, events: tuple[Event, ...]) -> Path:
    """Write a log where a JSONL store at ``root`` keeps it, and return its path."""
    folder = root / project_name(header.cwd) / encode_segment(header.id)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / log_name(header.version)
    path.write_bytes(render_header(header) + b"".join(map(render_event, events)))
    return path


def user_message(seq: int, text: str) -> Event:
    """A message of the user, as one more event of a log."""
    data: Json = {"id": f"m{seq}", "role": "user", "content": [_block(text)], "source": USER}
    return Event("user/message", seq, _START + seq, encode(data), "append")


USER: Final[dict[str, Json]] = {"kind": "user"}
_MODEL: Final[Json] = {"kind": "model", "provider": "p", "model": "m"}


def _block(text: str) -> Json:
    return {"type": "text", "text": text}


@define
class _Log:
    """A log under construction."""

    _time: int
    events: list[Event] = field(factory=list)

    def add(self, kind: str, data: Json, *, on_surface: bool = False) -> None:
        seq = len(self.events)
        op: SurfaceOp | None = "append" if on_surface else None
        self.events.append(Event(kind, seq, self._time + seq, encode(data), op))

    def add_message(self, text: str) -> None:
        seq = len(self.events)
        message = user_message(seq, text)
        self.events.append(Event(message.type, seq, self._time + seq, message.raw, "append"))

    def add_turn(self, turn: int, texts: Iterator[str]) -> None:
        """A turn of three steps, ten of its eighteen events with text."""
        self.add("turn/start", {"turn": turn})
        self.add_message(next(texts))
        for step in (1, 2, 3):
            self._add_step(turn, step, texts)
        self.add("turn/end", {"turn": turn, "reason": {"kind": "completed"}})

    def _add_step(self, turn: int, step: int, texts: Iterator[str]) -> None:
        at: dict[str, Json] = {"turn": turn, "step": step}
        call = f"call-{turn}-{step}"
        self.add("step/start", at)
        message: Json = {
            "id": f"a-{turn}-{step}",
            "role": "assistant",
            "content": [_block(next(texts))],
            "source": _MODEL,
        }
        self.add("assistant/message", {**at, "message": message, "stream": []}, on_surface=True)
        self.add("tool/call", {**at, "callId": call, "name": "shell", "arguments": next(texts)})
        block: Json = {"type": "tool-result", "toolCallId": call, "content": [_block(next(texts))]}
        result: Json = {
            "id": f"r-{turn}-{step}",
            "role": "user",
            "content": [block],
            "source": {"kind": "tool", "callId": call},
        }
        self.add("tool/result", {**at, "message": result}, on_surface=True)
        self.add("step/end", at)


def _word(rng: random.Random, rank: int) -> str:
    plain = "".join(rng.choices(_SYLLABLES, k=4 if rank < _LONG_WORDS else rng.randint(2, 4)))
    kind = rng.random() if rank >= _PLAIN_WORDS else 1.0
    if kind < 0.2:
        return plain + "".join(rng.choices(_SYLLABLES, k=2)).title()
    if kind < 0.4:
        return f"{plain}_{''.join(rng.choices(_SYLLABLES, k=2))}"
    if kind < 0.5:
        return f"src/{plain}/{rng.choice(_SYLLABLES)}.py"
    if kind < 0.55:
        return str(rng.randint(0, 999_999))
    return plain
