"""Who may see what: sessions of the caller's workspace, and the caller's own.

What the service answers is checked again before it is shown, since a session may have been replaced
by one of another workspace between two calls. A session of another workspace and one that does not
exist cannot be told apart.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final, TypeVar

from attrs import frozen

from ..actors.recall import Recall
from ..messages.errors import ErrorCode
from ..messages.filters import Cwd, Ids
from ..messages.header import SessionHeader
from ..messages.records import LineageTrace, SessionRecord, Skipped
from .boundary import UNAUTHORIZED, guarded, sanitised
from .definition import Caller, ToolError, ToolErrorCode

R = TypeVar("R")


_OF_A_SESSION: Final[frozenset[str]] = frozenset(
    {
        ErrorCode.CORRUPT_SESSION,
        ErrorCode.EVENT_NOT_FOUND,
        ErrorCode.INVALID_LINEAGE,
        ErrorCode.INVALID_SURFACE,
        ErrorCode.PERSISTENCE_FAILED,
    }
)
"""Codes that may say what one session is like."""


def unauthorized() -> ToolError:
    """The refusal of whatever lies outside the workspace."""
    return ToolError(ToolErrorCode.UNAUTHORIZED, UNAUTHORIZED)


@frozen
class Title:
    """The title of a session as it is shown."""

    text: str | None = None
    """``None`` where there is none, or none can be read."""
    error: str | None = None
    """The code of why it cannot be read."""


@frozen
class VisibleLineage:
    """As much of a lineage as the caller may see."""

    target: SessionRecord
    ancestors: tuple[SessionRecord, ...]
    boundary: bool
    """Whether a parent lies beyond the last ancestor, hidden or missing."""
    descendants: tuple[tuple[int, SessionRecord | None], ...]
    """With their depths, direct children at 1, parents first; ``None`` for a hidden subtree."""

    @property
    def ids(self) -> list[str]:
        """All sessions in it, the target first."""
        below = [record for _depth, record in self.descendants if record is not None]
        return [record.header.id for record in (self.target, *self.ancestors, *below)]


@frozen
class Authority:
    """What one caller may see."""

    recall: Recall
    caller: Caller

    @classmethod
    def of(cls, recall: Recall, caller: Caller | None) -> Authority:
        """The authority of a caller.

        Raises:
            ToolError: ``MISSING_AGENT`` where there is none.
        """
        if caller is None:
            raise ToolError(
                ToolErrorCode.MISSING_AGENT,
                "This tool works only for an agent with a session. It cannot be used here.",
            )
        return cls(recall, caller)

    def is_own(self, session_id: str) -> bool:
        """Whether it is the session of the caller."""
        return session_id == self.caller.session_id

    def allows(self, header: SessionHeader) -> bool:
        """Whether the caller may see this session as it is now."""
        if self.caller.cwd is None and not self.is_own(header.id):
            return False
        return self.recall.in_workspace(self.caller.cwd, header.cwd)

    def check(self, header: SessionHeader, session_id: str) -> None:
        """Refuse an answer that is of another session than asked for, or of one not allowed.

        Raises:
            ToolError: ``UNAUTHORIZED``.
        """
        if header.id != session_id or not self.allows(header):
            raise unauthorized()

    async def target(self, session_id: str | None) -> str:
        """The id of the session that is asked about, the own one where none is named.

        Raises:
            ToolError: ``UNAUTHORIZED``; ``INVALID_ARGS`` where there is no own one.
        """
        target = self.caller.session_id if session_id is None else session_id
        if target is None:
            raise ToolError(
                ToolErrorCode.INVALID_ARGS,
                "session_id is missing: there is no current session here.",
            )
        if self.is_own(target):
            return target
        found = await self._in_workspace("target authorization", (target,))
        if len(found) != 1:
            raise unauthorized()
        return target

    async def told(self, label: str, target: str, call: Callable[[], Awaitable[R]]) -> R:
        """What ``call`` answers about a session that was allowed, guarded.

        What is wrong with a session is told only while it still is allowed: it may have moved.

        Raises:
            ToolError: ``UNAUTHORIZED``; as ``guarded`` otherwise.
        """
        try:
            return await guarded(label, call)
        except ToolError as error:
            failure = error
        if failure.code in _OF_A_SESSION:
            await self.target(target)
        raise failure

    async def visible(self, session_ids: Iterable[str]) -> frozenset[str]:
        """Those of the sessions that the caller may see; one request, or none."""
        wanted = tuple(dict.fromkeys(session_ids))
        own = frozenset(filter(self.is_own, wanted))
        others = tuple(session_id for session_id in wanted if session_id not in own)
        if not others or self.caller.cwd is None:
            return own
        found = await self._in_workspace("session-id authorization", others)
        allowed = {record.header.id for record in found if self.allows(record.header)}
        return own | allowed.intersection(others)

    async def _in_workspace(
        self, label: str, session_ids: tuple[str, ...]
    ) -> tuple[SessionRecord, ...]:
        if self.caller.cwd is None:
            raise unauthorized()
        filters = (Ids(session_ids), Cwd((self.caller.cwd,)))
        listing = await guarded(label, partial(self.recall.filter_sessions, filters))
        return listing.sessions

    async def titles(self, session_ids: Iterable[str]) -> dict[str, Title]:
        """The titles of sessions that were allowed, by one request; a failure is that id's alone.

        Raises:
            ToolError: ``UNAUTHORIZED`` where one of them is allowed no longer.
        """
        wanted = tuple(dict.fromkeys(session_ids))
        results = await guarded("title observation", partial(self.recall.read_titles, wanted))
        titles: dict[str, Title] = {}
        for result in results:
            if result.error is not None:
                told = sanitised("title observation item", result.error)
                if told.code == ToolErrorCode.UNAUTHORIZED:
                    raise told
                titles[result.session_id] = Title(error=told.code)
                continue
            if result.header is None:
                raise unauthorized()
            self.check(result.header, result.session_id)
            titles[result.session_id] = Title(result.title.title if result.title else None)
        missing = Title(error=str(ErrorCode.SESSION_NOT_FOUND))
        return {session_id: titles.get(session_id, missing) for session_id in wanted}

    def lineage(self, trace: LineageTrace) -> VisibleLineage:
        """What the caller may see of a lineage: up to the first hidden ancestor, and of the
        descendants all but hidden ones with everything below them."""
        ancestors: list[SessionRecord] = []
        for ancestor in trace.ancestors:
            if not self.allows(ancestor.header):
                break
            ancestors.append(ancestor)
        boundary = len(ancestors) < len(trace.ancestors) or not trace.complete
        below: list[tuple[int, SessionRecord | None]] = []
        hidden_from: int | None = None
        for depth, record in trace.walk():
            if hidden_from is not None and depth > hidden_from:
                continue
            allowed = self.allows(record.header)
            hidden_from = None if allowed else depth
            below.append((depth, record if allowed else None))
        return VisibleLineage(trace.target, tuple(ancestors), boundary, tuple(below))

    def skipped(self, skipped: Iterable[Skipped]) -> int:
        """How many sessions of the workspace were left out; others are none of the caller's."""
        headers = (item.header for item in skipped)
        return sum(header is not None and self.allows(header) for header in headers)
