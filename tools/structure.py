"""Answers as data for programs: what the texts say, under fixed names, and the schemas of it.

Times are ISO 8601 in UTC. What may be absent is ``null``, never left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ..messages.event import Event
from ..messages.header import SessionHeader
from ..messages.json import Json
from ..messages.records import EventRecord, EventSearchHit, SessionRecord, SessionSearchHit
from .answers import Family, FoundEvents, FoundSessions, Neighbour, ReadEvent, Relations
from .authorization import Title
from .instants import show_instant

Schema = dict[str, Json]


def found_sessions(answer: FoundSessions) -> dict[str, Json]:
    return {
        "hits": [
            {
                **_session(hit, answer.titles[hit.header.id]),
                "parent": _parent(hit.header, answer.visible_parents),
                "best_match": _hit(hit.best_match),
            }
            for hit in answer.found.items
        ],
        "capped": answer.found.capped,
        "searchable": answer.found.searchable,
        "skipped": answer.skipped,
    }


def found_events(answer: FoundEvents) -> dict[str, Json]:
    return {
        "session_id": answer.session_id,
        **_title(answer.title),
        "hits": [_hit(hit) for hit in answer.found.items],
        "capped": answer.found.capped,
        "searchable": answer.found.searchable,
        "searched_to": answer.searched_to,
    }


def family(answer: Family) -> dict[str, Json]:
    lineage = answer.lineage

    def session(record: SessionRecord) -> dict[str, Json]:
        return _session(record, answer.titles[record.header.id])

    return {
        "target": session(lineage.target),
        "ancestors": [session(record) for record in lineage.ancestors],
        "boundary": lineage.boundary,
        "descendants": [
            {"depth": depth, "session": None if record is None else session(record)}
            for depth, record in lineage.descendants
        ],
        "skipped": answer.skipped,
    }


def relations(answer: Relations) -> dict[str, Json]:
    trace = answer.trace
    return {
        "session_id": trace.target.session_id,
        **_title(answer.title),
        "event": {**_event(trace.target), "surface": trace.target.surface.value},
        "replaced_by": trace.replaced_by,
        "replacement_chain": list(trace.replacement_chain),
        "replaces": list(trace.replaced_event_seqs),
        "cites": list(trace.source_event_seqs),
        "cited_by": list(trace.derived_event_seqs),
    }


def read_event(answer: ReadEvent) -> dict[str, Json]:
    return {
        "session_id": answer.session_id,
        **_title(answer.title),
        "event": _event(answer.target),
        "event_json": answer.json,
        "before": _neighbours(answer.before),
        "after": _neighbours(answer.after),
    }


def _title(title: Title) -> dict[str, Json]:
    return {"title": title.text, "title_error": title.error}


def _session(record: SessionRecord | SessionSearchHit, title: Title) -> dict[str, Json]:
    sources = {"live": record.live, "persisted": record.persisted}
    return {
        "session_id": record.header.id,
        **_title(title),
        "created_at": show_instant(record.header.created_at),
        "availability": [name for name, there in sources.items() if there],
    }


def _parent(header: SessionHeader, visible: frozenset[str]) -> dict[str, Json]:
    parent = header.parent_session
    if parent is None:
        return {"kind": "root", "session_id": None}
    if parent in visible:
        return {"kind": "session", "session_id": parent}
    return {"kind": "outside", "session_id": None}


def _event(event: Event | EventRecord) -> dict[str, Json]:
    return {"seq": event.seq, "type": event.type, "time": show_instant(event.time)}


def _hit(hit: EventSearchHit) -> dict[str, Json]:
    return {**_event(hit), "surface": hit.surface.value, "snippet": hit.snippet}


def _neighbours(neighbours: Iterable[Neighbour]) -> list[Json]:
    return [{**_event(one.event), "text": one.text or None} for one in neighbours]


# -- schemas ----------------------------------------------------------------------------------


def _object(**properties: Json) -> Schema:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _or_null(kind: str) -> Schema:
    return {"type": [kind, "null"]}


_TEXT: Final[Schema] = {"type": "string"}
_NUMBER: Final[Schema] = {"type": "integer"}
_FLAG: Final[Schema] = {"type": "boolean"}
_TITLE: Final[dict[str, Json]] = {"title": _or_null("string"), "title_error": _or_null("string")}
_EVENT: Final[dict[str, Json]] = {"seq": _NUMBER, "type": _TEXT, "time": _TEXT}
_PLACED: Final[dict[str, Json]] = {**_EVENT, "surface": _TEXT}
_HIT: Final = _object(**_PLACED, snippet=_TEXT)
_SESSION: Final[dict[str, Json]] = {
    "session_id": _TEXT,
    **_TITLE,
    "created_at": _TEXT,
    "availability": _list(_TEXT),
}
_PARENT: Final = _object(kind=_TEXT, session_id=_or_null("string"))
_NEIGHBOURS: Final = _list(_object(**_EVENT, text=_or_null("string")))

FOUND_SESSIONS: Final = _object(
    hits=_list(_object(**_SESSION, parent=_PARENT, best_match=_HIT)),
    capped=_FLAG,
    searchable=_FLAG,
    skipped=_NUMBER,
)
FOUND_EVENTS: Final = _object(
    session_id=_TEXT,
    **_TITLE,
    hits=_list(_HIT),
    capped=_FLAG,
    searchable=_FLAG,
    searched_to=_or_null("integer"),
)
FAMILY: Final = _object(
    target=_object(**_SESSION),
    ancestors=_list(_object(**_SESSION)),
    boundary=_FLAG,
    descendants=_list(
        _object(depth=_NUMBER, session={**_object(**_SESSION), **_or_null("object")})
    ),
    skipped=_NUMBER,
)
RELATIONS: Final = _object(
    session_id=_TEXT,
    **_TITLE,
    event=_object(**_PLACED),
    replaced_by=_or_null("integer"),
    replacement_chain=_list(_NUMBER),
    replaces=_list(_NUMBER),
    cites=_list(_NUMBER),
    cited_by=_list(_NUMBER),
)
READ_EVENT: Final = _object(
    session_id=_TEXT,
    **_TITLE,
    event=_object(**_EVENT),
    event_json=_TEXT,
    before=_NEIGHBOURS,
    after=_NEIGHBOURS,
)
