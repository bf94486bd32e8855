"""What each of the five tools does: check, authorise, ask, check again."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from attrs import frozen

from ..actors.recall import Recall
from ..messages.config import ToolsConfig
from ..messages.event import Event
from ..messages.filters import Cwd, EventFilter, Parent, SessionFilter
from ..messages.records import EventSearchHit, EventSearchPage, SessionSearchHit, SessionSearchPage
from . import arguments as asked
from .answers import Family, FoundEvents, FoundSessions, Neighbour, ReadEvent, Relations
from .authorization import Authority, Title, unauthorized
from .boundary import guarded
from .definition import Arguments, Caller, ToolError, ToolErrorCode
from .exact_json import event_json, redacted_json
from .paging import Collected, collect


@frozen
class Operations:
    """The five tools over one service."""

    recall: Recall
    config: ToolsConfig

    async def search_sessions(self, caller: Caller | None, arguments: Arguments) -> FoundSessions:
        authority = Authority.of(self.recall, caller)
        if authority.caller.cwd is None:
            raise unauthorized()
        words = asked.words(arguments)
        session_filters = asked.session_filters(arguments)
        event_filters = [
            *asked.seq_bounds(arguments, "event_").filters,
            *asked.event_filters(arguments, "event_"),
        ]
        wanted = asked.parents(arguments)
        if wanted is not None:
            ids, roots = wanted
            allowed = await authority.visible(ids)
            parents = [parent for parent in ids if parent in allowed]
            if not parents and not roots:
                return FoundSessions(Collected((), False), frozenset(), {})
            session_filters.append(Parent((*parents, None) if roots else tuple(parents)))
        session_filters.append(Cwd((authority.caller.cwd,)))
        found = await self._all_sessions(authority, words, session_filters, event_filters)
        headers = [hit.header for hit in found.items]
        visible = await authority.visible(
            header.parent_session for header in headers if header.parent_session is not None
        )
        titles = await authority.titles(header.id for header in headers)
        return FoundSessions(found, visible, titles, authority.skipped(found.skipped))

    async def _all_sessions(
        self,
        authority: Authority,
        words: str,
        session_filters: Sequence[SessionFilter],
        event_filters: Sequence[EventFilter],
    ) -> Collected[SessionSearchHit]:
        async def page(cursor: str | None) -> SessionSearchPage:
            search = partial(
                self.recall.search_sessions, words, session_filters, event_filters, cursor
            )
            return await guarded("session search", search)

        def accepts(hit: SessionSearchHit) -> bool:
            return not authority.is_own(hit.header.id) and authority.allows(hit.header)

        return await collect(page, accepts, self.config.max_search_results)

    async def search_events(self, caller: Caller | None, arguments: Arguments) -> FoundEvents:
        authority = Authority.of(self.recall, caller)
        target = await authority.target(arguments.get("session_id"))
        words = asked.words(arguments)
        bounds = asked.seq_bounds(arguments)
        searched_to: int | None = None
        if authority.is_own(target):
            bounds = bounds.before(_current_step(authority.caller))
            searched_to = bounds.end
        title = await _title(authority, target)
        filters = asked.event_filters(arguments)
        if bounds.empty:
            return FoundEvents(target, title, Collected((), False), searched_to)
        found = await self._all_events(authority, target, words, [*bounds.filters, *filters])
        return FoundEvents(target, title, found, searched_to)

    async def _all_events(
        self, authority: Authority, target: str, words: str, filters: Sequence[EventFilter]
    ) -> Collected[EventSearchHit]:
        async def page(cursor: str | None) -> EventSearchPage:
            search = partial(self.recall.search_events, target, words, filters, cursor)
            found = await authority.told("event search", target, search)
            authority.check(found.session, target)
            return found

        return await collect(page, lambda _hit: True, self.config.max_search_results)

    async def trace_session(self, caller: Caller | None, arguments: Arguments) -> Family:
        authority = Authority.of(self.recall, caller)
        target = await authority.target(arguments.get("session_id"))
        trace = await authority.told(
            "session lineage trace",
            target,
            partial(self.recall.trace_session, target, authority.allows),
        )
        authority.check(trace.target.header, target)
        lineage = authority.lineage(trace)
        titles = await authority.titles(lineage.ids)
        return Family(lineage, titles, authority.skipped(trace.skipped))

    async def trace_event(self, caller: Caller | None, arguments: Arguments) -> Relations:
        seq = asked.required_count(arguments, "seq")
        authority = Authority.of(self.recall, caller)
        target = await authority.target(arguments.get("session_id"))
        ask = partial(self.recall.trace_event, target, seq)
        trace = await authority.told("event trace", target, ask)
        authority.check(trace.header, target)
        return Relations(trace, await _title(authority, target))

    async def read_event(self, caller: Caller | None, arguments: Arguments) -> ReadEvent:
        seq = asked.required_count(arguments, "seq")
        before = asked.count(arguments, "before") or 0
        after = asked.count(arguments, "after") or 0
        authority = Authority.of(self.recall, caller)
        target = await authority.target(arguments.get("session_id"))
        ask = partial(self.recall.read_event, target, seq, before, after)
        window = await authority.told("event read", target, ask)
        authority.check(window.header, target)
        title = await _title(authority, target)
        at = window.target.seq - window.start_seq
        return ReadEvent(
            target,
            title,
            window.target,
            self._json(window.target),
            self._neighbours(window.events[:at]),
            self._neighbours(window.events[at + 1 :]),
        )

    def _neighbours(self, events: Sequence[Event]) -> tuple[Neighbour, ...]:
        return tuple(Neighbour(event, self.recall.text_of(event)) for event in events)

    def _json(self, event: Event) -> str:
        text = event_json(event)
        if self.config.exact_reads == "verbatim":
            return text
        return redacted_json(text, self.recall.config.redact)


def _current_step(caller: Caller) -> int:
    seq = caller.step_start()
    if seq is None:
        raise ToolError(
            ToolErrorCode.NO_CURRENT_STEP,
            "The current session has no step yet, so there is nothing before it to search."
            " Name another session with session_id.",
        )
    return seq


async def _title(authority: Authority, session_id: str) -> Title:
    return (await authority.titles([session_id]))[session_id]
