"""The plain way: a direct rendering of the contract, with nothing kept and nothing clever.

Each search lists the store twice, hashes every live session, rewrites each session that changed
whole, and ranks by counting the highlighted spans of every matching row; each page ranks anew. The
answers are right. Deleting what a new session does not have yet is left out, without which a first
build would be quadratic.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, TypeVar

import apsw
from attrs import frozen
from measure import MS, peak_mb, timed

from session_query.history.documents import Document, search_documents
from session_query.messages.event import Event
from session_query.messages.header import SessionHeader
from session_query.storage.header_line import read_header, render_header
from session_query.storage.records import read_events, render_event

T = TypeVar("T")

_VERSION: Final = 2
_ATTEMPTS: Final = 2
_MARK: Final = "\ufdd0"
_END: Final = "\ufdd1"
_MARKS: Final = 6
"""Bytes that the two marks of one span take."""

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS stored_session(
    id TEXT PRIMARY KEY, created_at INTEGER, cwd TEXT, revision TEXT
);
CREATE VIRTUAL TABLE IF NOT EXISTS stored_doc USING fts5(
    text, session_id UNINDEXED, seq UNINDEXED, type UNINDEXED, time UNINDEXED,
    surface UNINDEXED, length UNINDEXED
);
CREATE TEMP TABLE live_session(id TEXT PRIMARY KEY, created_at INTEGER, cwd TEXT, revision TEXT);
CREATE VIRTUAL TABLE temp.live_doc USING fts5(
    text, session_id UNINDEXED, seq UNINDEXED, type UNINDEXED, time UNINDEXED,
    surface UNINDEXED, length UNINDEXED
);
"""

_MATCHES: Final = """
    SELECT d.session_id, d.seq, d.time, d.length, d.rowid AS row,
        (octet_length(highlight({0}_doc, 0, :mark, :end)) - octet_length(d.text)) / :marks AS spans
    FROM {0}_doc AS d JOIN {0}_session AS s ON s.id = d.session_id
    WHERE {0}_doc MATCH :phrase AND {1}
"""

_BEST: Final = "spans DESC, length, time DESC, seq DESC"

_SESSIONS: Final = f"""
WITH found AS MATERIALIZED ({{0}} UNION ALL {{1}}), ranked AS (
    SELECT *, row_number() OVER (PARTITION BY session_id ORDER BY {_BEST}) AS place FROM found
)
SELECT session_id, seq, spans FROM ranked WHERE place = 1
ORDER BY spans DESC, length, time DESC, session_id, seq DESC LIMIT :limit OFFSET :offset
"""

_EVENTS: Final = f"""
WITH found AS MATERIALIZED ({{0}} UNION ALL {{1}})
SELECT session_id, seq, spans FROM found ORDER BY {_BEST} LIMIT :limit OFFSET :offset
"""

Hit = tuple[str, int, int]
"""Session, seq and number of spans."""


@frozen
class Listed:
    """A stored session as a listing has it."""

    header: SessionHeader
    revision: str
    path: Path


_Change = tuple[Listed, tuple[Document, ...]]


class PlainSearch:
    """The plain index of the store at ``root``, kept at ``path``."""

    def __init__(self, root: Path, path: Path | str = ":memory:") -> None:
        self._root = root
        self._db = apsw.Connection(str(path))
        self._db.execute("PRAGMA journal_mode = wal")
        self._db.execute(_SCHEMA)
        self.live: dict[str, tuple[SessionHeader, list[Event]]] = {}
        """The live sessions."""

    def close(self) -> None:
        """Close the index file."""
        self._db.close()

    def listing(self) -> dict[str, Listed]:
        """Every stored session: one look at its file and at the first line."""
        found: dict[str, Listed] = {}
        for path in self._root.glob("*/*/*.jsonl"):
            with path.open("rb") as log:
                header = read_header(log.readline(), _VERSION)
            now = path.stat()
            revision = f"{now.st_ino}:{now.st_size}:{now.st_mtime_ns}:{now.st_ctime_ns}"
            found[header.id] = Listed(header, revision, path)
        return found

    def log(self, session_id: str) -> list[Event]:
        """The whole log of one session, found by a listing."""
        return _log(self.listing()[session_id].path)

    def titles(self, session_ids: Iterable[str]) -> list[bytes | None]:
        """The payloads of the newest titles: one listing, and every log read."""
        listed = self.listing()
        logs = (_log(listed[session_id].path) for session_id in session_ids)
        return [
            next((event.raw for event in reversed(log) if event.type == "session/title"), None)
            for log in logs
        ]

    def bring_up_to_date(self) -> None:
        """List, read what changed, list again until nothing did, and write all of it."""
        known, stored, changed = self._stable_changes()
        with self._db:
            for session_id in known.keys() - stored.keys():
                self._delete("stored", session_id)
            for one, documents in changed:
                if one.header.id in known:
                    self._delete("stored", one.header.id)
                self._insert("stored", one.header, one.revision, documents)
            known = self._revisions("live")
            for session_id, (header, events) in self.live.items():
                digest = _fingerprint(header, events)
                if known.get(session_id) != digest:
                    if session_id in known:
                        self._delete("live", session_id)
                    self._insert("live", header, digest, search_documents(events, _VERSION))

    def _stable_changes(self) -> tuple[dict[str, str], dict[str, Listed], list[_Change]]:
        """The revisions in the index, the listing, and what of it is not in the index."""
        known = self._revisions("stored")
        for _ in range(_ATTEMPTS):
            before = self.listing()
            changed = [
                (one, search_documents(_log(one.path), _VERSION))
                for session_id, one in before.items()
                if known.get(session_id) != one.revision
            ]
            if self.listing() == before:
                return known, before, changed
        raise RuntimeError("the store did not keep still")

    def _revisions(self, source: str) -> dict[str, str]:
        found = self._db.execute(f"SELECT id, revision FROM {source}_session")
        return {str(session_id): str(revision) for session_id, revision in found}

    def _delete(self, source: str, session_id: str) -> None:
        self._db.execute(f"DELETE FROM {source}_doc WHERE session_id = ?", (session_id,))
        self._db.execute(f"DELETE FROM {source}_session WHERE id = ?", (session_id,))

    def _insert(
        self, source: str, header: SessionHeader, revision: str, documents: Sequence[Document]
    ) -> None:
        db, session_id = self._db, header.id
        db.execute(
            f"INSERT INTO {source}_session VALUES (?,?,?,?)",
            (session_id, header.created_at, header.cwd, revision),
        )
        db.executemany(
            f"INSERT INTO {source}_doc VALUES (?,?,?,?,?,?,?)",
            (
                (
                    one.text,
                    session_id,
                    one.seq,
                    one.type,
                    one.time,
                    str(one.surface),
                    len(one.text),
                )
                for one in documents
            ),
        )

    def search_sessions(
        self, query: str, limit: int = 20, offset: int = 0, where: str = "1"
    ) -> list[Hit]:
        """The sessions of one page, after bringing the index up to date."""
        return self._search(_SESSIONS, query, limit, offset, where)

    def search_events(self, session_id: str, query: str, limit: int = 20) -> list[Hit]:
        """The events of the first page within one session, likewise."""
        return self._search(_EVENTS, query, limit, 0, f"d.session_id = '{session_id}'")

    def _search(self, sql: str, query: str, limit: int, offset: int, where: str) -> list[Hit]:
        self.bring_up_to_date()
        stored = _MATCHES.format("stored", where) + " AND s.id NOT IN (SELECT id FROM live_session)"
        found = self._db.execute(
            sql.format(stored, _MATCHES.format("live", where)),
            {
                "phrase": '"{}"'.format(query.replace('"', '""')),
                "mark": _MARK,
                "end": _END,
                "marks": _MARKS,
                "limit": limit,
                "offset": offset,
            },
        )
        return [(str(session), int(str(seq)), int(str(spans))) for session, seq, spans in found]


def build(root: Path, path: Path) -> tuple[float, float, int]:
    """Seconds of a first build, peak memory in MB, bytes of the file."""
    plain = PlainSearch(root, path)
    spent = timed(plain.bring_up_to_date) / MS
    plain.close()
    return spent, peak_mb(), path.stat().st_size


def with_plain(root: Path, path: Path, use: Callable[[PlainSearch], T]) -> T:
    """Something of a plain index that is up to date."""
    plain = PlainSearch(root, path)
    try:
        plain.bring_up_to_date()
        return use(plain)
    finally:
        plain.close()


def _log(path: Path) -> list[Event]:
    events: list[Event] = []
    with path.open("rb") as log:
        log.readline()
        for line in log:
            events += read_events(line, _VERSION, len(events))
    return events


def _fingerprint(header: SessionHeader, events: Iterable[Event]) -> str:
    digest = hashlib.sha256(render_header(header))
    for event in events:
        digest.update(render_event(event))
    return digest.hexdigest()
