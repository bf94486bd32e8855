"""The oracle: whether what callers were told can be explained by the recorded history.

It looks at calls and their replies alone. For a reply there must be one instant between request and
answer, and states that the sessions can have had then, from which a search by brute force finds the
same. Live sessions are all as of one instant; a stored one is as it was at some moment behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from attrs import define, evolve, frozen

from ..messages.config import IndexConfig
from ..messages.errors import ErrorCode, SessionQueryError
from ..messages.event import Event, Replace
from ..messages.header import SessionHeader
from ..messages.json import Json
from ..messages.records import (
    EventSearchHit,
    EventSearchPage,
    EventTrace,
    EventWindow,
    LineageTrace,
    SessionListing,
    SessionLog,
    SessionRecord,
    SessionSearchHit,
    SessionSearchPage,
    SessionSurface,
    SessionTitle,
    Skipped,
)
from .history import Call, History, Log, Option, Sitting
from .questions import Question
from .search_model import (
    Rank,
    accepts_session,
    best_match,
    find_events,
    model_records,
    surface_nodes,
)
from .verdict import Violation

Answer = object
"""What a read says of one session, in a form that can be compared."""

CLOSED: Final = (ErrorCode.ABORTED, ErrorCode.INDEX_FAILED)


@define(eq=False)
class Oracle:
    """The checks of one run."""

    history: History
    config: IndexConfig

    def check(self, calls: Iterable[Call]) -> None:
        """Check every call of one incarnation that was answered while it lived.

        Raises:
            Violation: naming the call and what cannot be explained.
        """
        answered = [call for call in calls if call.answered is not None and not call.cancelled]
        seen: list[Seen] = []
        for call in answered:
            seen += self.check_call(call)
        check_order(seen)
        check_generations(answered)

    def check_call(self, call: Call) -> list[Seen]:
        """Check one reply; how long it saw live logs to be."""
        match call.what:
            case "search":
                self._check_search(call)
            case "list" | "lineage":
                self._check_listing(call)
            case _ if call.what in _READS:
                return self._check_read(call)
        return []

    # -- searches -----------------------------------------------------------------------------

    def _check_search(self, call: Call) -> None:
        if isinstance(call.error, SessionQueryError):
            self._check_refusal(call, call.error.code)
            return
        question, page = question_of(call), call.reply
        assert isinstance(page, SessionSearchPage | EventSearchPage)
        pages = [each.reply for each in chain(call)]
        items = [hit for each in pages for hit in each.items]  # type: ignore[attr-defined]
        more = page.next_cursor is not None
        if len(items) > question.limit * len(pages) or (more and len(page.items) < question.limit):
            raise _violation(call, f"a page of {len(page.items)} hits, and more to come: {more}")
        reasons: list[str] = []
        for store, at in self._instants(call):
            if question.session_id is None:
                why = self._sessions_differ(call, store, at, items, more, page.skipped)
            else:
                why = self._events_differ(call, store, at, page, items, more)
            if not why:
                return
            reasons.append(f"as of moment {at} of {store}: {why}")
        raise _violation(call, "\n ".join(dict.fromkeys(reasons)))

    def _check_refusal(self, call: Call, code: ErrorCode) -> None:
        """Whether a search may have been refused."""
        question, first = question_of(call), chain(call)[0]
        if code is ErrorCode.STALE_CURSOR and call.before is not None:
            # A fault between two pages may have been met by a pass that somebody else waited for.
            faulted = call.faults_after > first.faults
            since, until = first.asked, _answered(call)
            if faulted or self.history.changed(question.session_id, since, until):
                return
            raise _violation(call, "the cursor is stale, and nothing has changed since it was made")
        if self._excused(call, code):
            return
        if question.session_id is None:
            raise _violation(call, f"refused with {code}")
        for store, at in self._instants(call):
            options = self._options(call, question.session_id, store, at)
            if code in map(_refusal, options):
                return
        raise _violation(call, f"refused with {code}, which the session never deserved")

    def _sessions_differ(
        self,
        call: Call,
        store: str | None,
        at: int,
        items: Sequence[SessionSearchHit],
        more: bool,
        skipped: Sequence[Skipped],
    ) -> str:
        """Why hits cannot be what there was to find at a moment; empty where they can."""
        question = question_of(call)
        shown = {hit.header.id: hit for hit in items}
        left_out = {each.session_id: each.code for each in skipped}
        options = {
            session_id: self._options(call, session_id, store, at)
            for session_id in self.history.ids
        }
        ranks: list[Rank] = []
        for session_id, hit in shown.items():
            found = [self._best(question, option) for option in options.get(session_id, ())]
            fitting = [best[0] for best in found if best is not None and best[1] == hit]
            if not fitting:
                return f"{session_id} cannot be found as\n  {hit}\n  but {found}"
            ranks.append(fitting[0])
        if ranks != sorted(ranks) or len(shown) != len(items):
            return f"the order of hits is {[hit.header.id for hit in items]}"
        beyond = False
        for session_id, possible in options.items():
            if session_id in shown:
                continue
            code = left_out.get(session_id)
            # A directory that cannot be read hides the ids in it.
            unread = session_id if session_id in left_out else None
            fits = left_out.get(unread) is ErrorCode.PERSISTENCE_FAILED and call.faulted
            for option in possible:
                if _damage(option) is not code:
                    continue
                best = self._best(question, option)
                behind = more and best is not None and (not ranks or best[0] > ranks[-1])
                fits = fits or best is None or behind
                beyond = beyond or behind
            if not fits:
                return f"{session_id} is missing, skipped: {code}"
        if more and not beyond:
            return "there is nothing behind the last hit"
        return ""

    def _best(self, question: Question, option: Option) -> tuple[Rank, SessionSearchHit] | None:
        log = option.log
        if log is None or _damage(option):
            return None
        key = question, option.live, option.persisted
        if key not in log.best:
            session = log.model(live=option.live, persisted=option.persisted)
            accepted = all(accepts_session(each, session) for each in question.session_filters)
            how = self.config.tokenizer, self.config.snippet_chars
            log.best[key] = (
                best_match(session, question.query, question.event_filters, *how)
                if accepted
                else None
            )
        return log.best[key]

    def _events_differ(
        self,
        call: Call,
        store: str | None,
        at: int,
        page: SessionSearchPage | EventSearchPage,
        items: Sequence[EventSearchHit],
        more: bool,
    ) -> str:
        question = question_of(call)
        assert question.session_id is not None
        assert isinstance(page, EventSearchPage)
        why = f"{question.session_id} was not there"
        for option in self._options(call, question.session_id, store, at):
            if option.log is None or _damage(option):
                continue
            session = option.log.model(live=option.live, persisted=option.persisted)
            how = self.config.tokenizer, self.config.snippet_chars
            hits = find_events(session, question.query, question.event_filters, *how)
            count = len(items)
            if (
                page.session == session.header
                and list(items) == hits[:count]
                and more == (len(hits) > count)
            ):
                return ""
            why = f"found:\n  {list(items)}\n  but there were\n  {hits}"
        return why

    # -- reads --------------------------------------------------------------------------------

    def _check_read(self, call: Call) -> list[Seen]:
        session_id = str(call.arguments[0])
        answer: Answer = call.reply
        if isinstance(answer, SessionLog):
            answer = evolve(answer, left_out=None)  # a torn record, which is told in other words
        if isinstance(call.error, SessionQueryError):
            if self._excused(call, call.error.code):
                return []
            answer = call.error.code
        expected: list[Answer] = []
        for store, at in self._instants(call):
            for option in self._options(call, session_id, store, at):
                expected.append(_READS[call.what](call, option))
                if expected[-1] == answer:
                    return self._seen(call, session_id, answer)
        choices = "\n  ".join(dict.fromkeys(map(str, expected)))
        raise _violation(call, f"answered\n  {answer}\n  and not one of\n  {choices}")

    def _seen(self, call: Call, session_id: str, answer: Answer) -> list[Seen]:
        """How long a live log was, where the answer leaves no doubt."""
        if call.what not in ("read_session", "list_events"):
            return []
        fitting = {
            (option.sitting, option.length)
            for store, at in self._instants(call)
            for option in self._options(call, session_id, store, at)
            if _READS[call.what](call, option) == answer
        }
        if len(fitting) != 1:
            return []
        ((sitting, length),) = fitting
        return [] if sitting is None else [Seen(call, sitting, length)]

    def _check_listing(self, call: Call) -> None:
        if isinstance(call.error, SessionQueryError):
            codes = [ErrorCode.SESSION_NOT_FOUND] if call.what == "lineage" else []
            if call.error.code in codes or self._excused(call, call.error.code):
                return
            raise _violation(call, f"refused with {call.error.code}")
        listed = _listed(call)
        if listed != sorted(listed, key=_by_age) and call.what == "list":
            raise _violation(call, f"the order is {[record.header.id for record in listed]}")
        found = {record.header.id: record for record in listed}
        for session_id in self.history.ids:
            possible = [
                option
                for store, at in self._instants(call)
                for option in self._options(call, session_id, store, at)
            ]
            record = found.pop(session_id, None)
            if record is None:
                relevant = call.what == "list" or self._is_kin(call, session_id)
                if relevant and not call.faulted and all(option.log for option in possible):
                    raise _violation(call, f"{session_id} is not listed")
            elif record not in map(_record, possible):
                raise _violation(call, f"{record} is listed, which was never so")
        if found:
            raise _violation(call, f"{sorted(found)} are listed, which never were")

    def _is_kin(self, call: Call, session_id: str) -> bool:
        """Whether a session is the one whose lineage was asked for."""
        return session_id == call.arguments[0]

    # -- all ----------------------------------------------------------------------------------

    def _instants(self, call: Call) -> Iterator[tuple[str | None, int]]:
        """Stores that were bound meanwhile, and moments, likely ones first."""
        asked, answered = call.asked, _answered(call)
        for store in self.history.stores(asked, answered):
            yield store, asked
            yield store, answered
        for store in self.history.stores(asked, answered):
            for moment, _ in self.history.changes:
                for at in (moment, moment - 1):
                    if asked < at < answered:
                        yield store, at

    def _options(
        self, call: Call, session_id: str, store: str | None, at: int
    ) -> tuple[Option, ...]:
        """How a session may have been found; what a disk does not list is taken for not stored."""
        options = self.history.options(session_id, store, at, _answered(call))
        if call.faulted:
            options += tuple(evolve(each, persisted=False) for each in options if each.live)
        return options

    def _excused(self, call: Call, code: ErrorCode) -> bool:
        """Whether something outside the system explains an error.

        Where a directory cannot be read, a search does not know what stands in it.
        """
        if code is ErrorCode.PERSISTENCE_FAILED or (
            code is ErrorCode.SESSION_NOT_FOUND and call.what == "search"
        ):
            return call.faulted
        return code in CLOSED and call.closing


# -- order ------------------------------------------------------------------------------------


@frozen(eq=False)
class Seen:
    """That a call saw a live log of one length."""

    call: Call
    sitting: Sitting
    length: int


def check_order(seen: Iterable[Seen]) -> None:
    """Whether reads of live logs can be put in one order with the commits.

    A log only grows and its commits have one order, so it is enough that no read saw less than one
    that had ended before it began.
    """
    by_sitting: dict[int, list[Seen]] = {}
    for each in seen:
        by_sitting.setdefault(id(each.sitting), []).append(each)
    for group in by_sitting.values():
        for earlier in group:
            for later in group:
                if _answered(earlier.call) < later.call.asked and earlier.length > later.length:
                    raise _violation(
                        later.call,
                        f"saw {later.length} events after {earlier.call} had seen {earlier.length}",
                    )


def check_generations(calls: Iterable[Call]) -> None:
    """Whether the generation only grew, and each refresh reached what was announced before it."""
    newest, newest_call = 0, None
    for call in sorted(calls, key=_answered):
        if call.generation is not None:
            if call.generation < newest:
                raise _violation(call, f"generation {call.generation}, behind {newest_call}")
            newest, newest_call = call.generation, call
        if call.what in ("refresh", "news") and isinstance(call.reply, int):
            after = call.arguments[0] if call.what == "news" else None
            if isinstance(after, int) and call.reply <= after:
                raise _violation(call, f"waited beyond {after} and was told of {call.reply}")
            if call.generation is not None and call.reply > call.generation:
                raise _violation(call, f"was told of {call.reply}, announced: {call.generation}")


def check_audit(store: str, session_id: str, sitting: Sitting, found: Log | None) -> None:
    """Whether a log on the disk is what its last sitting may have left there.

    Raises:
        Violation: something acknowledged is lost, or something was never accepted.
    """
    lengths = [length for _, length in sitting.acknowledged]
    base = sitting.base.events if sitting.base is not None else ()
    fewest = max([len(base), *lengths])
    place = f"{session_id} in {store}"
    if found is None:
        if lengths or sitting.base is not None:
            raise Violation(f"{place} is gone, of which {fewest} events were acknowledged")
        return
    if len(found.events) < fewest:
        raise Violation(
            f"{place} has {len(found.events)} events, of which {fewest} were acknowledged"
        )
    accepted = sitting.events
    if found.events != accepted[: len(found.events)] or len(found.events) > len(accepted):
        raise Violation(
            f"{place} holds what was never accepted:\n  {found.events}\n  not\n  {accepted}"
        )
    if found.header != sitting.header:
        raise Violation(f"{place} has the header {found.header}, not {sitting.header}")


# -- what reads say ---------------------------------------------------------------------------


def _log_of(option: Option) -> Log | ErrorCode:
    return _refusal(option) or option.log or ErrorCode.SESSION_NOT_FOUND


def _refusal(option: Option) -> ErrorCode | None:
    """With what a read or a search of this session is refused."""
    return ErrorCode.SESSION_NOT_FOUND if option.log is None else _damage(option)


def _damage(option: Option) -> ErrorCode | None:
    return option.log.damage if option.log is not None and not option.live else None


def _whole(_call: Call, option: Option) -> Answer:
    log = _log_of(option)
    if isinstance(log, ErrorCode):
        return log
    return SessionLog(log.header, log.inherited, log.shown(live=option.live))


def _records(_call: Call, option: Option) -> Answer:
    log = _log_of(option)
    if isinstance(log, ErrorCode):
        return log
    return tuple(model_records(log.model(live=option.live, persisted=True)))


def _surface(_call: Call, option: Option) -> Answer:
    log = _log_of(option)
    if isinstance(log, ErrorCode):
        return log
    events = log.shown(live=option.live)
    nodes = tuple(events[seq] for seq in surface_nodes(events))
    last = len(events) - 1 if events else None
    return SessionSurface(log.header, log.inherited, last, nodes)


def _window(call: Call, option: Option) -> Answer:
    log = _log_of(option)
    if isinstance(log, ErrorCode):
        return log
    events = log.shown(live=option.live)
    _, seq, before, after = call.arguments
    assert isinstance(seq, int)
    assert isinstance(before, int)
    assert isinstance(after, int)
    if not 0 <= seq < len(events):
        return ErrorCode.EVENT_NOT_FOUND
    start, end = max(0, seq - before), min(len(events) - 1, seq + after)
    shown = events[start : end + 1]
    return EventWindow(log.header, log.inherited, events[seq], shown, start, end)


def _trace(call: Call, option: Option) -> Answer:
    seq = call.arguments[1]
    assert isinstance(seq, int)
    return trace_event(option, seq)


def trace_event(option: Option, seq: int) -> EventTrace | ErrorCode:
    """How an event of a session relates to others, or with what code that is refused."""
    log = _log_of(option)
    if isinstance(log, ErrorCode):
        return log
    session = log.model(live=option.live, persisted=True)
    if not 0 <= seq < len(session.events):
        return ErrorCode.EVENT_NOT_FOUND
    replaced = replaced_by(session.events)
    chain_of = _follow(replaced, seq)
    return EventTrace(
        header=log.header,
        target=model_records(session)[seq],
        replaced_by=chain_of[0] if chain_of else None,
        replacement_chain=chain_of,
        replaced_event_seqs=_removed_by(session.events, seq),
        source_event_seqs=session.events[seq].source_event_seqs or (),
        derived_event_seqs=tuple(
            event.seq for event in session.events if seq in (event.source_event_seqs or ())
        ),
    )


def _removed_by(events: Sequence[Event], seq: int) -> tuple[int, ...]:
    """What an event took off the surface, in the order of the surface."""
    op = events[seq].surface_op
    if not isinstance(op, Replace):
        return ()
    nodes = surface_nodes(events[:seq])
    return tuple(nodes[nodes.index(op.start) : nodes.index(op.end) + 1])


def replaced_by(events: Sequence[Event]) -> dict[int, int]:
    """By which event each one was taken off the surface."""
    return {gone: event.seq for event in events for gone in _removed_by(events, event.seq)}


def _follow(replaced: dict[int, int], seq: int) -> tuple[int, ...]:
    steps: list[int] = []
    while seq in replaced:
        seq = replaced[seq]
        steps.append(seq)
    return tuple(steps)


def _title(_call: Call, option: Option) -> Answer:
    return title_of(option)


def title_of(option: Option) -> SessionTitle | ErrorCode | None:
    """The newest title of a session, or with what code that is refused."""
    log = _log_of(option)
    if isinstance(log, ErrorCode):
        return log
    titles = [event for event in log.events if event.type == "session/title"]
    if not titles:
        return None
    newest = titles[-1]
    data: Json = newest.data
    assert isinstance(data, dict)
    return SessionTitle(str(data["title"]), (), data["source"], newest.seq, newest.time)


def _observed(_call: Call, option: Option) -> Answer:
    log = _log_of(option)
    if isinstance(log, ErrorCode):
        return log
    return log.header, log.shown(live=option.live)


_READS: Final = {
    "read_session": _whole,
    "list_events": _records,
    "read_surface": _surface,
    "read_event": _window,
    "trace_event": _trace,
    "read_title": _title,
    "observe": _observed,
}


# -- small things -----------------------------------------------------------------------------


def chain(call: Call) -> list[Call]:
    """The calls that led to this page, and itself."""
    pages = [call]
    while pages[0].before is not None:
        pages.insert(0, pages[0].before)
    return pages


def question_of(call: Call) -> Question:
    """What a search asked."""
    question = call.arguments[0]
    assert isinstance(question, Question)
    return question


def _answered(call: Call) -> int:
    assert call.answered is not None
    return call.answered


def _listed(call: Call) -> list[SessionRecord]:
    reply = call.reply
    if isinstance(reply, LineageTrace):
        return [reply.target, *reply.ancestors, *(record for _, record in reply.walk())]
    assert isinstance(reply, SessionListing)
    return list(reply.sessions)


def _by_age(record: SessionRecord) -> tuple[int, str]:
    return -record.header.created_at, record.header.id


def _record(option: Option) -> SessionRecord | None:
    header: SessionHeader | None = option.log.header if option.log is not None else None
    return SessionRecord(header, option.live, option.persisted) if header is not None else None


def _violation(call: Call, what: str) -> Violation:
    return Violation(f"{call} [{call.asked}, {call.answered}]: {what}")
