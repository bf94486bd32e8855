"""The listing of the stored sessions, kept in order while sessions come and go."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Mapping

from sortedcontainers import SortedKeyList

from ..messages.header import SessionHeader
from ..messages.records import SessionRecord
from ..storage.contract import Snapshot
from .damage import source_conflict
from .live_session import LiveSession


class StoredListing:
    """Records of stored sessions, newest first, those of one time by id."""

    def __init__(self, headers: Iterable[SessionHeader]) -> None:
        self._records = SortedKeyList(map(_stored, headers), key=_place)
        self._listed: tuple[SessionRecord, ...] | None = None

    def put(self, header: SessionHeader) -> None:
        """Add a session that is not listed."""
        self._records.add(_stored(header))
        self._listed = None

    def drop(self, header: SessionHeader) -> None:
        """Remove a session that is listed with this very header."""
        self._records.remove(_stored(header))
        self._listed = None

    def merged(
        self,
        stored: Mapping[str, Snapshot],
        live: Mapping[str, LiveSession],
        ended: Collection[str],
    ) -> tuple[SessionRecord, ...]:
        """All sessions in order; ``stored`` are those that are listed here, by id.

        Args:
            ended: which of ``live`` were stored then, whether or not they are now.

        Raises:
            SessionQueryError: ``SOURCE_CONFLICT``.
        """
        if self._listed is None:
            self._listed = tuple(self._records)
        if not live:
            return self._listed
        merged = list(self._listed)
        for session_id, session in live.items():
            snapshot = stored.get(session_id)
            if snapshot is not None:
                if snapshot.header.conflicts_with(session.header):
                    raise source_conflict(session_id)
                del merged[bisect_left(merged, _place_of(snapshot.header), key=_place)]
            persisted = snapshot is not None or session_id in ended
            record = SessionRecord(session.header, live=True, persisted=persisted)
            insort(merged, record, key=_place)
        return tuple(merged)


def _stored(header: SessionHeader) -> SessionRecord:
    return SessionRecord(header, live=False, persisted=True)


def _place(record: SessionRecord) -> tuple[int, str]:
    return _place_of(record.header)


def _place_of(header: SessionHeader) -> tuple[int, str]:
    return -header.created_at, header.id
