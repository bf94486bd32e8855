"""A brute-force model of search: what must be found, computed from whole logs each time.

It knows no index, no increments and none of the product's rules beyond the names of its records:
texts are cut into tokens character by character, occurrences are counted by trying every position,
everything is sorted at once, and snippets walk the whole text (search-index §10 and §11). Its
tokenizer knows a small alphabet only: ASCII, four ideographs, an emoji, and a few accents.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TypeAlias

from attrs import frozen

from ..messages.config import Tokenizer
from ..messages.event import Event, Replace
from ..messages.filters import (
    AvailabilityIn,
    CreatedAt,
    Cwd,
    EventFilter,
    Ids,
    Parent,
    SeqRange,
    SessionFilter,
    SurfaceIn,
    TimeRange,
    TypeIn,
)
from ..messages.header import SessionHeader
from ..messages.json import Json
from ..messages.records import (
    Availability,
    EventRecord,
    EventSearchHit,
    SessionSearchHit,
    Surface,
)

SPACE = "\t\n\v\f\r \u00a0\u3000\ufeff"
IDEOGRAPHS = "登录超时"
_FOLDED = {"á": "a", "Á": "a", "é": "e", "É": "e", "🤖": "🤖"}
_ACCENT = "\u0301"


Rank: TypeAlias = tuple[int, int, int, str, int]
"""Sorts hits of different sessions, strongest first."""


@frozen
class Token:
    """One word of a text, folded, and where it stands."""

    word: str
    start: int
    end: int


@frozen
class ModelSession:
    """One session of the corpus; ``events`` include the in-memory closers of a stored one."""

    header: SessionHeader
    events: tuple[Event, ...]
    live: bool
    persisted: bool


@frozen
class _Match:
    session: ModelSession
    event: Event
    surface: Surface
    text: str
    spans: tuple[tuple[int, int], ...]

    @property
    def strength(self) -> tuple[int, int, int]:
        """Sorts strongest first, ties left."""
        return -len(self.spans), len(self.text), -self.event.time


def find_sessions(
    corpus: Iterable[ModelSession],
    query: str,
    session_filters: Sequence[SessionFilter],
    event_filters: Sequence[EventFilter],
    tokenizer: Tokenizer,
    snippet_chars: int,
) -> list[SessionSearchHit]:
    """Every hit of a search across sessions, in order."""
    best = [
        found
        for session in corpus
        if all(accepts_session(clause, session) for clause in session_filters)
        and (found := best_match(session, query, event_filters, tokenizer, snippet_chars))
    ]
    best.sort(key=lambda each: each[0])
    return [hit for _, hit in best]


def best_match(
    session: ModelSession,
    query: str,
    event_filters: Sequence[EventFilter],
    tokenizer: Tokenizer,
    snippet_chars: int,
) -> tuple[Rank, SessionSearchHit] | None:
    """The strongest event of one session and where it stands among those of other sessions."""
    matches = _matches(session, query, event_filters, tokenizer)
    if not matches:
        return None
    best = min(matches, key=lambda each: (*each.strength, -each.event.seq))
    rank = (*best.strength, session.header.id, -best.event.seq)
    hit = SessionSearchHit(
        session.header, session.live, session.persisted, _hit(best, snippet_chars)
    )
    return rank, hit


def find_events(
    session: ModelSession,
    query: str,
    filters: Sequence[EventFilter],
    tokenizer: Tokenizer,
    snippet_chars: int,
) -> list[EventSearchHit]:
    """Every hit of a search within one session, in order."""
    matches = _matches(session, query, filters, tokenizer)
    matches.sort(key=lambda each: (*each.strength, -each.event.seq))
    return [_hit(match, snippet_chars) for match in matches]


def _matches(
    session: ModelSession, query: str, filters: Sequence[EventFilter], tokenizer: Tokenizer
) -> list[_Match]:
    wanted = [token.word for token in tokens(query, tokenizer)]
    found: list[_Match] = []
    for event, record in zip(session.events, model_records(session), strict=True):
        text = stored_text(text_of(event))
        spans = spans_of(wanted, tokens(text, tokenizer)) if wanted else ()
        match = _Match(session, event, record.surface, text, spans)
        if spans and all(_accepts_event(clause, match) for clause in filters):
            found.append(match)
    return found


def accepts_session(clause: SessionFilter, session: ModelSession) -> bool:
    """Whether a session passes one clause."""
    header = session.header
    match clause:
        case Ids(values):
            return header.id in values
        case Cwd(values):
            return header.cwd in values
        case Parent(values):
            return header.parent_session in values
        case CreatedAt(start, end):
            return _within(header.created_at, start, end)
        case AvailabilityIn(values):
            return (session.live and Availability.LIVE in values) or (
                session.persisted and Availability.PERSISTED in values
            )


def _accepts_event(clause: EventFilter, match: _Match) -> bool:
    match clause:
        case SeqRange(start, end):
            return _within(match.event.seq, start, end)
        case TimeRange(start, end):
            return _within(match.event.time, start, end)
        case TypeIn(values):
            return match.event.type in values
        case SurfaceIn(values):
            return match.surface in values
        case _:
            raise AssertionError(f"not a search filter: {clause}")


def _within(value: int, start: float | None, end: float | None) -> bool:
    return (start is None or value >= start) and (end is None or value <= end)


# -- logs -------------------------------------------------------------------------------------


def surface_nodes(events: Sequence[Event]) -> list[int]:
    """The seqs of the current surface in its order."""
    nodes: list[int] = []
    for event in events:
        if isinstance(event.surface_op, Replace):
            first = nodes.index(event.surface_op.start)
            last = nodes.index(event.surface_op.end)
            nodes[first : last + 1] = [event.seq]
        elif event.surface_op == "append":
            nodes.append(event.seq)
    return nodes


def model_records(session: ModelSession) -> list[EventRecord]:
    """Where each event of a session stands."""
    nodes = set(surface_nodes(session.events))
    records: list[EventRecord] = []
    for event in session.events:
        surface = Surface.CURRENT if event.seq in nodes else Surface.SHADOWED
        surface = Surface.LOG_ONLY if event.surface_op is None else surface
        records.append(EventRecord(session.header.id, event.seq, event.type, event.time, surface))
    return records


@lru_cache(maxsize=4096)
def text_of(event: Event) -> str:
    """The searchable text of an event, for the types that workloads write."""
    data: object = event.data
    match event.type, data:
        case "user/message", {"content": content}:
            return _joined(_texts(content))
        case "assistant/message", {"message": {"content": content}}:
            return _joined(_texts(content))
        case "tool/call", {"name": name, "arguments": arguments}:
            return _joined([name, arguments])
        case "tool/result", {
            "message": {"content": content},
            "error": {"name": name, "code": code},
        }:
            return _joined([*_texts(content), name, code])
        case "tool/result", {"message": {"content": content}}:
            return _joined(_texts(content))
        case "turn/end", {"reason": {"kind": "interrupted"}}:
            return "interrupted"
        case _:
            return ""


def _texts(content: Json) -> list[str]:
    texts: list[str] = []
    for block in content if isinstance(content, list) else []:
        match block:
            case {"type": "text", "text": str(value)}:
                texts.append(value)
            case {"type": "tool-call", "name": str(name), "arguments": str(arguments)}:
                texts += [name, arguments]
            case {"type": "tool-result", "content": inner}:
                texts += _texts(inner)
    return texts


def _joined(parts: Iterable[str]) -> str:
    trimmed = [part.strip(SPACE) for part in parts]
    return "\n".join(part for part in trimmed if part)


def stored_text(text: str) -> str:
    """The text as an index keeps it."""
    return "".join("\ufffd" if _is_unstorable(char) else char for char in text)


def _is_unstorable(char: str) -> bool:
    return char in "\0\ufdd0\ufdd1" or "\ud800" <= char <= "\udfff"


# -- matching ---------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def tokens(text: str, tokenizer: Tokenizer) -> tuple[Token, ...]:
    """The words of a text over the alphabet of this model."""
    found: list[Token] = []
    word, start = "", 0

    def finish(end: int) -> None:
        nonlocal word
        if word:
            found.append(Token(word, start, end))
        word = ""

    for place, char in enumerate(text):
        alone = tokenizer is Tokenizer.CJK and char in IDEOGRAPHS
        if alone:
            finish(place)
            found.append(Token(char, place, place + 1))
        elif (char.isascii() and char.isalnum()) or char in IDEOGRAPHS or char in _FOLDED:
            start = start if word else place
            word += _FOLDED.get(char, char.lower())
        elif char != _ACCENT:
            finish(place)
    finish(len(text))
    return tuple(found)


def spans_of(wanted: Sequence[str], found: Sequence[Token]) -> tuple[tuple[int, int], ...]:
    """Where a phrase stands, occurrences that overlap taken together."""
    width = len(wanted)
    spans: list[tuple[int, int]] = []
    free_from = 0
    for at in range(len(found) - width + 1 if width else 0):
        if [token.word for token in found[at : at + width]] == list(wanted):
            start, end = found[at].start, found[at + width - 1].end
            if at < free_from:
                spans[-1] = (spans[-1][0], end)
            else:
                spans.append((start, end))
            free_from = at + width
    return tuple(spans)


# -- snippets ---------------------------------------------------------------------------------


def _hit(match: _Match, snippet_chars: int) -> EventSearchHit:
    snippet, place = cut_snippet(match.text, match.spans[0], snippet_chars)
    return EventSearchHit(
        session_id=match.session.header.id,
        seq=match.event.seq,
        type=match.event.type,
        time=match.event.time,
        surface=match.surface,
        snippet=snippet,
        match=place,
    )


def cut_snippet(
    text: str, span: tuple[int, int] | None, limit: int
) -> tuple[str, tuple[int, int] | None]:
    """The snippet of a text around its first match, and where that match stands in it.

    Steps and names are those of search-index §11.
    """
    out, opened, closed = _walk(text, span)
    shown_from, shown, prefix = _window(out, opened or 0, limit)
    if opened is None or closed is None:
        return shown, None
    body = len(shown.removeprefix(prefix).removesuffix("…" if shown != out else ""))
    begin, end = max(opened, shown_from), min(closed, shown_from + body)
    if begin >= end or begin != opened:
        return shown, None
    return shown, (begin - shown_from + len(prefix), end - shown_from + len(prefix))


def _walk(text: str, span: tuple[int, int] | None) -> tuple[str, int | None, int | None]:
    """Step 1: white space folded, and where the match begins and ends then."""
    out, opened, closed = "", None, None
    for place, char in enumerate(text):
        if span is not None and place == span[0]:
            opened = len(out)
        if char not in SPACE:
            out += char
        elif out and out[-1] != " ":
            out += " "
        if span is not None and place == span[1] - 1:
            closed = len(out)
    return out.removesuffix(" "), opened, closed


def _window(out: str, position: int, limit: int) -> tuple[int, str, str]:
    """Steps 2 to 6: where the shown part begins, what is shown, and its prefix."""
    length = len(out)
    if length <= limit:
        return 0, out, ""
    if limit == 1:
        return length, "…", "…"
    m = min(position, length - 1)
    start = max(0, m - limit // 3)
    prefix, suffix = ("…" if start > 0 else ""), "…"
    content = limit - len(prefix) - len(suffix)
    if content < 1:
        start, suffix, content = m, "", limit - len(prefix)
    elif m >= start + content:
        start = m - content + 1
    if min(length, start + content) == length:
        suffix, content = "", limit - len(prefix)
        start = max(0, length - content)
    end = min(length, start + content)
    return start, prefix + out[start:end] + suffix, prefix
