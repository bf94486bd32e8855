"""Answers as texts for a model.

Our own words stand bare; ids and titles are quoted on one line, longer pieces of the logs are
fenced, so that nothing recalled can be taken for a marker of ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from ..messages.event import Event
from ..messages.header import SessionHeader
from ..messages.records import EventRecord, EventSearchHit, SessionRecord, SessionSearchHit
from .answers import Family, FoundEvents, FoundSessions, Neighbour, ReadEvent, Relations
from .authorization import Title
from .instants import show_instant
from .quoting import Fence, quoted, quoted_line, scrubbed, word

OUTSIDE: Final = "outside this workspace"
_NARROW: Final = "There are more matches than these: narrow the query or the filters."
_UNSEARCHABLE: Final = (
    "Nothing in this query can be searched for, since it holds no letter and no digit."
)


def found_sessions(answer: FoundSessions) -> str:
    """One line where nothing was found, else a numbered list of sessions."""
    hits = answer.found.items
    if not hits:
        otherwise = "No other session of this workspace matches."
        return _text([_nothing(answer.found.searchable, otherwise)], False, answer.skipped)
    titles = [answer.titles[hit.header.id] for hit in hits]
    fence = _fence((hit.best_match.snippet for hit in hits), titles, hits)
    lines = [f"{_counted(len(hits), 'session')} of this workspace found. {fence.explained}"]
    for number, (hit, title) in enumerate(zip(hits, titles, strict=True), 1):
        lines += [
            "",
            f"{number}. {_session(hit.header.id, title)}",
            f"created: {show_instant(hit.header.created_at)}",
            f"parent: {_parent(hit.header, answer.visible_parents)}",
            f"availability: {_availability(hit)}",
            f"best match: {_event(hit.best_match)}",
            *fence.lines(hit.best_match.snippet),
        ]
    return _text(lines, answer.found.capped, answer.skipped)


def found_events(answer: FoundEvents) -> str:
    """The session, then one line where nothing was found, else a numbered list of events."""
    hits = answer.found.items
    lines = [_session(answer.session_id, answer.title), ""]
    if answer.searched_to is not None:
        scope = f"Your current session was searched up to event {answer.searched_to}, before the"
        lines += [f"{scope} step in progress." if answer.searched_to >= 0 else _NOTHING_BEFORE]
    if not hits:
        otherwise = "No event of this session matches."
        return "\n".join([*lines, _nothing(answer.found.searchable, otherwise)])
    fence = _fence((hit.snippet for hit in hits), [answer.title], [answer.session_id])
    lines += [f"{_counted(len(hits), 'event')} found. {fence.explained}"]
    for number, hit in enumerate(hits, 1):
        lines += ["", f"{number}. {_event(hit)}", *fence.lines(hit.snippet)]
    return _text(lines, answer.found.capped)


_NOTHING_BEFORE: Final = "Nothing precedes the step in progress in your current session."


def family(answer: Family) -> str:
    """The session, its ancestors and the tree of its descendants."""
    lineage = answer.lineage

    def line(record: SessionRecord) -> str:
        header = record.header
        shown = _session(header.id, answer.titles[header.id])
        return f"{shown} | {show_instant(header.created_at)} | {_availability(record)}"

    lines = [
        _session(lineage.target.header.id, answer.titles[lineage.target.header.id]),
        f"created: {show_instant(lineage.target.header.created_at)}",
        f"availability: {_availability(lineage.target)}",
        "",
        "ancestors, nearest first:",
        *(f"- {line(record)}" for record in lineage.ancestors),
    ]
    if lineage.boundary:
        lines.append(f"- further ancestors lie {OUTSIDE} or are gone")
    elif not lineage.ancestors:
        lines.append("- none: this session has no parent")
    lines += ["", "descendants:" if lineage.descendants else "descendants: none"]
    for depth, record in lineage.descendants:
        shown = f"sessions {OUTSIDE}" if record is None else line(record)
        lines.append(f"{'  ' * (depth - 1)}- {shown}")
    return _text(lines, False, answer.skipped)


def relations(answer: Relations) -> str:
    """The session, the event, and a line for each kind of relation."""
    trace = answer.trace
    replaced_by = "none" if trace.replaced_by is None else str(trace.replaced_by)
    return "\n".join(
        [
            _session(trace.target.session_id, answer.title),
            _event(trace.target),
            f"replaced by: {replaced_by}",
            f"replacement chain: {_seqs(trace.replacement_chain)}",
            f"replaces: {_seqs(trace.replaced_event_seqs)}",
            f"cites: {_seqs(trace.source_event_seqs)}",
            f"cited by: {_seqs(trace.derived_event_seqs)}",
        ]
    )


def read_event(answer: ReadEvent) -> str:
    """The session, the event as exact JSON, and the texts of its neighbours."""
    texts = [neighbour.text for neighbour in (*answer.before, *answer.after)]
    fence = _fence([answer.json, *texts], [answer.title], [answer.session_id])
    lines = [
        _session(answer.session_id, answer.title),
        _event(answer.target),
        fence.explained,
        *fence.lines(answer.json),
        *_neighbours("before", answer.before, fence),
        *_neighbours("after", answer.after, fence),
    ]
    return "\n".join(lines)


def _neighbours(side: str, neighbours: Sequence[Neighbour], fence: Fence) -> Iterator[str]:
    if neighbours:
        yield ""
        yield f"{_counted(len(neighbours), 'event')} {side} it:"
    for neighbour in neighbours:
        text = neighbour.text
        yield _event(neighbour.event)
        if not text:
            yield "  no text"
            continue
        if text != scrubbed(text):
            yield "  (characters that cannot be shown are replaced by U+FFFD)"
        for line in fence.lines(text.replace("\r\n", "\n")):
            yield from (f"  {part}" for part in line.split("\n"))


def _session(session_id: str, title: Title) -> str:
    return f"session {quoted(session_id)}, {_title(title)}"


def _title(title: Title) -> str:
    if title.text is not None:
        return f"title {quoted_line(title.text)}"
    return "untitled" if title.error is None else f"untitled (title unavailable: {title.error})"


def _parent(header: SessionHeader, visible: frozenset[str]) -> str:
    if header.parent_session is None:
        return "none, a root session"
    return quoted(header.parent_session) if header.parent_session in visible else OUTSIDE


def _availability(record: SessionRecord | SessionSearchHit) -> str:
    sources = {"live": record.live, "persisted": record.persisted}
    return ", ".join(name for name, there in sources.items() if there) or "unavailable"


def _event(event: Event | EventRecord | EventSearchHit) -> str:
    place = [event.surface.value] if isinstance(event, EventRecord) else []
    return " | ".join([f"event {event.seq}", word(event.type), *place, show_instant(event.time)])


def _seqs(seqs: Iterable[int]) -> str:
    return ", ".join(map(str, seqs)) or "none"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _fence(
    pieces: Iterable[str], titles: Iterable[Title], names: Iterable[str | SessionSearchHit]
) -> Fence:
    """A fence that occurs neither in the pieces nor in what is quoted outside of them."""
    ids = [name if isinstance(name, str) else name.header.id for name in names]
    return Fence.around([*pieces, *(title.text or "" for title in titles), *ids])


def _nothing(searchable: bool, otherwise: str) -> str:
    return otherwise if searchable else _UNSEARCHABLE


def _text(lines: list[str], capped: bool, skipped: int = 0) -> str:
    notes = [""] if capped or skipped else []
    if capped:
        notes.append(_NARROW)
    if skipped:
        notes.append(
            f"{_counted(skipped, 'session')} of this workspace could not be read and may be"
            " missing here."
        )
    return "\n".join([*lines, *notes])
