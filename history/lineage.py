"""The lineage of a session: its ancestors and descendants among the sessions of one listing.

Nothing recurses, so that a chain of any length can be traced.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from ..messages.errors import ErrorCode, SessionQueryError
from ..messages.header import SessionHeader
from ..messages.records import LineageNode, LineageTrace, SessionRecord, Skipped


def _everything(_header: SessionHeader) -> bool:
    return True


def trace_lineage(
    sessions: Iterable[SessionRecord],
    session_id: object,
    skipped: tuple[Skipped, ...] = (),
    visible: Callable[[SessionHeader], bool] = _everything,
) -> LineageTrace:
    """Trace one of ``sessions``.

    Only a cycle that the target's own ancestors run into is found; others lead nowhere from here.
    An ancestor that is not ``visible`` ends them as one that is not there does, so that nothing
    which lies behind it shows.

    Raises:
        SessionQueryError: ``SESSION_NOT_FOUND``, ``INVALID_LINEAGE``, or the code under which the
            target is among ``skipped``.
    """
    by_id = {record.header.id: record for record in sessions}
    target = by_id.get(session_id) if isinstance(session_id, str) else None
    if target is None:
        for left_out in skipped:
            if left_out.session_id == session_id:
                raise SessionQueryError(left_out.code, left_out.message)
        raise SessionQueryError(
            ErrorCode.SESSION_NOT_FOUND, f"session {session_id!r} is neither live nor stored"
        )
    ancestors, unresolved = _ancestors(by_id, target, visible)
    root = [target, *ancestors][-1] if unresolved is None else None
    descendants = _descendants(by_id.values(), target)
    return LineageTrace(target, tuple(ancestors), descendants, root, unresolved, skipped)


def _ancestors(
    by_id: dict[str, SessionRecord],
    target: SessionRecord,
    visible: Callable[[SessionHeader], bool],
) -> tuple[list[SessionRecord], str | None]:
    """The ancestors, nearest first, and the parent that is not there, if one is not."""
    ancestors: list[SessionRecord] = []
    seen = {target.header.id}
    parent = target.header.parent_session
    while parent is not None:
        if parent in seen:
            raise SessionQueryError(
                ErrorCode.INVALID_LINEAGE,
                f"session {target.header.id!r}: its ancestors repeat; {parent!r} is met twice",
            )
        if parent not in by_id or not visible(by_id[parent].header):
            return ancestors, parent
        seen.add(parent)
        ancestors.append(by_id[parent])
        parent = by_id[parent].header.parent_session
    return ancestors, None


def _descendants(
    sessions: Iterable[SessionRecord], target: SessionRecord
) -> tuple[LineageNode, ...]:
    children: defaultdict[str | None, list[SessionRecord]] = defaultdict(list)
    for record in sorted(sessions, key=lambda each: (each.header.created_at, each.header.id)):
        if record is not target:  # it may descend from itself, through ancestors not visible
            children[record.header.parent_session].append(record)
    reached = [target]
    for record in reached:
        reached += children.get(record.header.id, ())
    # Whoever comes later is nearer to the leaves, so that its own children are nodes already.
    nodes: dict[str, LineageNode] = {}
    for record in reversed(reached):
        below = tuple(nodes[child.header.id] for child in children.get(record.header.id, ()))
        nodes[record.header.id] = LineageNode(record, below)
    return nodes[target.header.id].descendants
