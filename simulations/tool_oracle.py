"""The oracle of the model tools: whether an answer shows nothing but what its caller may see.

As in ``oracle.py`` it knows the recorded history alone. A tool asks the service more than once, so
each piece of an answer may be of another instant of the call, but what a search found is of one. A
session may be seen in its states of the caller's workspace and in no other: its id, its texts and
what is wrong with it included. Nobody descends from somebody else in the course of a run, and is
never born at another time; only workspaces change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import product
from typing import Any, Final, TypeAlias

import msgspec
from attrs import define, evolve, field

from ..messages.errors import ErrorCode
from ..messages.event import Event, event_to_json
from ..messages.filters import (
    AvailabilityIn,
    EventFilter,
    Ids,
    Parent,
    SeqRange,
    SessionFilter,
    SurfaceIn,
    TypeIn,
)
from ..messages.header import SessionHeader
from ..messages.json import Json, decode, encode
from ..messages.records import Availability, EventSearchHit, EventTrace, Surface
from ..tools.definition import ToolError, ToolErrorCode, ToolResult
from .history import Call, Log, Option
from .logs import TOLD
from .marks import Marks
from .oracle import CLOSED, Oracle, title_of, trace_event
from .search_model import ModelSession, Rank, accepts_session, best_match, find_events, text_of
from .tool_questions import ToolQuestion
from .verdict import Violation

OWN_TOOLS: Final = (
    *("session_search", "session_event_search"),
    *("session_trace", "session_event_trace", "session_event_read"),
)

Shown: TypeAlias = Mapping[str, Any]
"""A part of a structured answer."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@define(eq=False)
class ToolOracle(Oracle):
    """The checks of one run."""

    _most: int
    """Hits that a search shows."""
    _marks: Marks
    _refusal: str | None = field(default=None, init=False)
    """What is told of a session that may not be seen."""
    _found: dict[object, tuple[Rank, Shown] | None] = field(factory=dict, init=False)
    _states: dict[str, tuple[Option, ...]] = field(factory=dict, init=False)
    """What each session may have been in the course of the call that is checked."""

    def check(self, calls: Iterable[Call]) -> None:
        """Check every call of a tool that was not cancelled.

        Raises:
            Violation: naming the call and what it must not say.
        """
        for call in calls:
            if call.what != "tool" or call.answered is None or call.cancelled:
                continue
            if (call.reply is None) == (call.error is None):
                raise self._violation(call, f"{call.reply} and {call.error}")
            self._states.clear()
            if isinstance(call.error, ToolError):
                self._check_secrets(call, str(call.error), frozenset())
                self._check_error(call, call.error)
            else:
                self._check_result(call)

    # -- what may be seen ---------------------------------------------------------------------

    def states(self, call: Call, session_id: str) -> tuple[Option, ...]:
        """Everything that a session may have been while a call was made.

        Who looks while it moves may see it nowhere, or twice, which is damage; where a directory
        cannot be read, nobody knows what stands in it.
        """
        if session_id not in self._states:
            found: dict[tuple[int, bool, bool], Option] = {}
            for store, at in self._moments(call, session_id):
                for option in self._options(call, session_id, store, at):
                    found[id(option.log), option.live, option.persisted] = option
            options = tuple(found.values()) or (Option(None),)
            if len({each.log.header.cwd for each in options if each.log}) > 1:
                self._marks.hit("a session moves during a call")
                options += (Option(None), *map(_torn_apart, options))
            if call.faulted:
                options += (Option(None),)
            self._states[session_id] = options
        return self._states[session_id]

    def _moments(self, call: Call, session_id: str) -> list[tuple[str | None, int]]:
        asked, answered = call.asked, call.answered
        assert answered is not None
        moments = {asked, answered}
        for moment, changed in self.history.changes:
            if changed in (None, session_id):
                moments |= {at for at in (moment - 1, moment) if asked < at < answered}
        stores = self.history.stores(asked, answered)
        return [(store, at) for store in stores for at in sorted(moments)]

    def visible(self, call: Call, session_id: str) -> tuple[Option, ...]:
        """The states of a session in which the caller may see it."""
        options = self.states(call, session_id)
        return tuple(option for option in options if _allows(question_of(call), option))

    def hidden(self, call: Call, session_id: str) -> tuple[Option, ...]:
        """The other states; that there is no such session is one."""
        question, options = question_of(call), self.states(call, session_id)
        return tuple(option for option in options if not _allows(question, option))

    def _check_result(self, call: Call) -> None:
        result = call.reply
        assert isinstance(result, ToolResult)
        allowed = set()
        for session_id in self.history.ids:
            for option in self.visible(call, session_id):
                assert option.log is not None
                allowed |= {session_id, *_told_by(option.log, live=option.live)}
        question = question_of(call)
        allowed |= {question.own or ""}
        text = f"{result.text}\n{encode(result.structured).decode()}"
        self._check_secrets(call, text, frozenset(allowed))
        _check_whole(call, result)
        target, shown = question.target, result.structured
        if target is None:
            why = self._across_differs(call, shown)
        else:
            checks = {
                "session_event_search": self._within_differs,
                "session_trace": self._family_differs,
                "session_event_trace": self._relations_differ,
                "session_event_read": self._event_differs,
            }
            why = checks[question.tool](call, target, shown)
        if why:
            raise self._violation(call, f"{why}\n  in {shown}")

    def _check_secrets(self, call: Call, text: str, allowed: frozenset[str]) -> None:
        betrayed = sorted(set(TOLD.findall(text)) - allowed)
        if betrayed:
            raise self._violation(call, f"{betrayed} must not be told:\n{text}")

    def _violation(self, call: Call, what: str) -> Violation:
        return Violation(f"{call} [{call.asked}, {call.answered}]: {what}")

    # -- refusals -----------------------------------------------------------------------------

    def _check_error(self, call: Call, error: ToolError) -> None:
        if error.code == ToolErrorCode.UNAUTHORIZED:
            self._refusal = self._refusal or str(error)
            if str(error) != self._refusal:
                raise self._violation(call, f"is refused with {error}, not {self._refusal}")
        if call.closing and error.code in CLOSED:
            return
        if not self._explains(call, error.code):
            raise self._violation(call, f"is refused with {error.code}: {error}")
        if question_of(call).target is not None and not self._may_target(call):
            self._marks.hit("a session of nowhere or elsewhere is refused")

    def _may_target(self, call: Call) -> bool:
        target = question_of(call).target
        return target is not None and bool(self.visible(call, target))

    def _explains(self, call: Call, code: str) -> bool:
        """Whether some state in which the caller may see what it asks about deserves a refusal."""
        question = question_of(call)
        target, ids = question.target, self.history.ids
        if code == ErrorCode.PERSISTENCE_FAILED:
            return call.faulted
        if code == ToolErrorCode.FAILED:
            return any(self._conflicts(call, each) for each in ids)
        if code == ErrorCode.STALE_CURSOR:
            return self.history.changed(target, call.asked, call.answered or 0) or call.faulted
        if code == ToolErrorCode.UNAUTHORIZED:
            return self._explains_unauthorised(call)
        if target is None:
            return False
        if code == ToolErrorCode.NO_CURRENT_STEP:
            return target == question.own and question.step is None
        if code == ErrorCode.INVALID_LINEAGE:
            return self._runs_in_circles(call, target)
        options = self.visible(call, target)
        if code == ErrorCode.SESSION_NOT_FOUND:
            gone = any(each.log is None for each in self.states(call, target))
            return bool(options) and (gone or call.faulted)
        if code == ErrorCode.CORRUPT_SESSION:
            return any(_is_damaged(option) for option in options)
        if code == ErrorCode.EVENT_NOT_FOUND:
            seq = question.arguments["seq"]
            assert isinstance(seq, int)
            return any(trace_event(each, seq) is ErrorCode.EVENT_NOT_FOUND for each in options)
        return False

    def _explains_unauthorised(self, call: Call) -> bool:
        question = question_of(call)
        target = question.target
        if target is not None and self.hidden(call, target):
            return True
        if question.cwd is None and target != question.own:
            return True
        # What was found or is of the family has moved before its title was read.
        several = question.tool in ("session_search", "session_trace")
        return several and any(self._has_moved(call, each) for each in self.history.ids)

    def _has_moved(self, call: Call, session_id: str) -> bool:
        return bool(self.visible(call, session_id)) and any(
            option.log is not None for option in self.hidden(call, session_id)
        )

    def _conflicts(self, call: Call, session_id: str) -> bool:
        """Whether a live session may have been met beside a stored one of another header."""
        live = {each.log.header for each in self.states(call, session_id) if each.live and each.log}
        asked, answered = call.asked, call.answered or 0
        stored = [
            log
            for store in self.history.stores(asked, answered)
            for log in self.history.stored_states(session_id, store, asked, answered)
        ]
        return any(log and log.header.conflicts_with(each) for log in stored for each in live)

    def _runs_in_circles(self, call: Call, target: str) -> bool:
        seen, each = [target], self._parent(target)
        while each is not None and each not in seen:
            if not self.visible(call, each):
                return False
            seen.append(each)
            each = self._parent(each)
        return each is not None

    def _parent(self, session_id: str) -> str | None:
        header = self._header(session_id)
        return None if header is None else header.parent_session

    def _header(self, session_id: str) -> SessionHeader | None:
        """Some header of a session: all have the same parent."""
        for sitting in self.history.sittings.get(session_id, ()):
            return sitting.header
        for (_, each), states in self.history.stored.items():
            if each == session_id:
                return next(log.header for _, log in states if log is not None)
        return None

    # -- titles and the like ------------------------------------------------------------------

    def _title_differs(self, call: Call, session_id: str, shown: Shown) -> str:
        """Why a title cannot be that of a session."""
        expected: list[tuple[str | None, str | None]] = []
        for option in self.states(call, session_id):
            title = title_of(option)
            if isinstance(title, ErrorCode):
                expected.append((None, str(title)))
            elif _allows(question_of(call), option):
                expected.append((None if title is None else _scrubbed(title.title), None))
        if call.faulted:
            expected.append((None, str(ErrorCode.PERSISTENCE_FAILED)))
            expected.append((None, str(ErrorCode.SESSION_NOT_FOUND)))
        found = shown["title"], shown["title_error"]
        return "" if found in expected else f"{session_id} is titled {found}, not {expected}"

    def _record_differs(self, call: Call, shown: Shown) -> str:
        """Why a session of a family cannot be shown as it is."""
        session_id = shown["session_id"]
        expected = [_record(option) for option in self.visible(call, session_id)]
        if {name: shown[name] for name in _RECORD} not in expected:
            return f"{shown} is shown, and not one of {expected}"
        return self._title_differs(call, session_id, shown)

    def _skips_differ(self, call: Call, number: int) -> str:
        """Why so many sessions of the workspace cannot have been left out of a search."""
        sure = possible = 0
        for session_id in self.history.ids:
            options = self.states(call, session_id)
            damaged = [o for o in self.visible(call, session_id) if _is_damaged(o)]
            possible += bool(damaged)
            sure += len(damaged) == len(options)
        if call.faulted:
            sure, possible = 0, len([i for i in self.history.ids if self.visible(call, i)])
        if number:
            self._marks.hit("some of the workspace is told to be left out")
        return "" if sure <= number <= possible else f"{number} are skipped, not {sure}..{possible}"

    # -- searches -----------------------------------------------------------------------------

    def _across_differs(self, call: Call, shown: Shown) -> str:
        reasons: list[str] = []
        for parents in self._wanted_parents(call):
            if parents == ():
                empty: Shown = {"hits": [], "capped": False, "searchable": True, "skipped": 0}
                if shown == empty:
                    return ""
                reasons.append("no parent may be seen, so there is nothing to find")
                continue
            for store, at in self._instants(call):
                why = self._hits_differ(call, shown, store, at, parents)
                why = why or self._details_differ(call, shown)
                if not why:
                    return ""
                reasons.append(f"as of moment {at} of {store}: {why}")
        return "\n ".join(dict.fromkeys(reasons))

    def _wanted_parents(self, call: Call) -> list[tuple[str | None, ...] | None]:
        """Which parents a search may be about; ``None`` where it is about all."""
        arguments = question_of(call).arguments
        roots: tuple[None, ...] = (None,) if arguments.get("include_root_sessions") else ()
        named = arguments.get("parent_session_ids")
        if named is None:
            return [roots or None]
        assert isinstance(named, list)
        ways = [self._ways(call, str(each)) for each in dict.fromkeys(map(str, named))]
        return [(*sum(chosen, ()), *roots) for chosen in product(*ways)]

    def _ways(self, call: Call, session_id: str) -> list[tuple[str, ...]]:
        """The parent that is asked for, or none where it may not be seen."""
        ways: list[tuple[str, ...]] = [(session_id,)] if self._may_name(call, session_id) else []
        if session_id != question_of(call).own and self.hidden(call, session_id):
            ways.append(())
        return ways

    def _may_name(self, call: Call, session_id: str) -> bool:
        return session_id == question_of(call).own or bool(self.visible(call, session_id))

    def _hits_differ(
        self,
        call: Call,
        shown: Shown,
        store: str | None,
        at: int,
        parents: tuple[str | None, ...] | None,
    ) -> str:
        """Why hits cannot be what there was to find at a moment; empty where they can."""
        question, hits = question_of(call), shown["hits"]
        places = {hit["session_id"]: place for place, hit in enumerate(hits)}
        ranks: dict[int, Rank] = {}
        missing: list[tuple[str, list[Rank | None]]] = []
        for session_id in self.history.ids:
            if session_id == question.own:
                continue
            options = self._options(call, session_id, store, at)
            if any(each.log is None or _is_damaged(each) for each in self.states(call, session_id)):
                options += (Option(None),)
            best = [self._best_of(question, option, parents) for option in options]
            if session_id not in places:
                missing.append((session_id, [each and each[0] for each in best]))
                continue
            place = places[session_id]
            found = {name: hits[place][name] for name in (*_RECORD, "best_match")}
            fitting = [each[0] for each in best if each is not None and each[1] == found]
            if not fitting:
                return f"{session_id} cannot be found as\n  {found}\n  but {best}"
            ranks[place] = fitting[0]
        in_order = [ranks[place] for place in sorted(ranks)]
        if len(ranks) != len(hits) or in_order != sorted(in_order):
            return f"the order of hits is {list(places)}"
        behind = [
            rank
            for _, possible in missing
            for rank in possible
            if rank is not None and (not in_order or rank > in_order[-1])
        ]
        if shown["capped"] and (len(hits) != self._most or not behind):
            return "there is nothing behind the last hit"
        for session_id, possible in missing:
            beyond = shown["capped"] and any(rank in behind for rank in possible)
            if None not in possible and not beyond:
                return f"{session_id} is missing"
        return ""

    def _best_of(
        self, question: ToolQuestion, option: Option, parents: tuple[str | None, ...] | None
    ) -> tuple[Rank, Shown] | None:
        if option.log is None or _is_damaged(option) or option.log.header.cwd != question.cwd:
            return None
        key = id(option.log), option.live, option.persisted, str(question), parents
        if key not in self._found:
            session, clauses = _without_echoes(option), _session_filters(question, parents)
            accepted = all(accepts_session(clause, session) for clause in clauses)
            how = self.config.tokenizer, self.config.snippet_chars
            filters, query = _event_filters(question), str(question.arguments["query"])
            best = best_match(session, query, filters, *how) if accepted else None
            self._found[key] = best and (
                best[0],
                {**_record(option), "best_match": _hit(best[1].best_match)},
            )
        return self._found[key]

    def _details_differ(self, call: Call, shown: Shown) -> str:
        """Why what stands beside the hits cannot be."""
        if shown["capped"]:
            self._marks.hit("more is found than is shown")
        for hit in shown["hits"]:
            session_id = hit["session_id"]
            why = self._title_differs(call, session_id, hit) or self._parent_differs(call, hit)
            if why:
                return why
        return self._skips_differ(call, shown["skipped"])

    def _parent_differs(self, call: Call, hit: Shown) -> str:
        parent, shown = self._parent(hit["session_id"]), hit["parent"]
        expected: list[Shown] = []
        if parent is None:
            expected = [{"kind": "root", "session_id": None}]
        else:
            if self._may_name(call, parent):
                expected.append({"kind": "session", "session_id": parent})
            if parent != question_of(call).own and self.hidden(call, parent):
                expected.append({"kind": "outside", "session_id": None})
        return "" if shown in expected else f"the parent of {hit} is {parent}, so {expected}"

    def _within_differs(self, call: Call, target: str, shown: Shown) -> str:
        question = question_of(call)
        bounds, searched_to = _bounds(question), None
        if target == question.own:
            assert question.step is not None
            searched_to = question.step - 1 if bounds[1] is None else bounds[1]
            searched_to = min(searched_to, question.step - 1)
            bounds = bounds[0], searched_to
        if (shown["session_id"], shown["searched_to"]) != (target, searched_to):
            return f"{target} is searched up to {searched_to}"
        empty = bounds[1] is not None and bounds[1] < (bounds[0] or 0)
        reasons: list[object] = [f"{target} may not be seen"]
        for option in self.visible(call, target):
            if _is_damaged(option) and not empty:
                continue
            hits = [] if empty else self._hits_within(question, option, bounds)
            capped = len(hits) > self._most
            if (shown["hits"], shown["capped"]) == (hits[: self._most], capped):
                return self._title_differs(call, target, shown)
            reasons.append(hits)
        return f"one of these was there to find: {reasons}"

    def _hits_within(
        self, question: ToolQuestion, option: Option, bounds: tuple[int | None, int | None]
    ) -> list[Shown]:
        filters = [*_event_filters(question), SeqRange(*bounds)]
        how = self.config.tokenizer, self.config.snippet_chars
        query = str(question.arguments["query"])
        found = find_events(_without_echoes(option), query, filters, *how)
        return [_hit(hit) for hit in found]

    # -- families and events ------------------------------------------------------------------

    def _family_differs(self, call: Call, target: str, shown: Shown) -> str:
        if shown["target"]["session_id"] != target:
            return f"it is not of {target}"
        descendants = [each["session"] for each in shown["descendants"]]
        for each in (shown["target"], *shown["ancestors"], *filter(None, descendants)):
            why = self._record_differs(call, each)
            if why:
                return why
        return (
            self._ancestors_differ(call, target, shown)
            or self._descendants_differ(call, target, shown)
            or self._skips_beside_family_differ(call, shown["skipped"])
        )

    def _ancestors_differ(self, call: Call, target: str, shown: Shown) -> str:
        child = target
        for ancestor in shown["ancestors"]:
            if ancestor["session_id"] != self._parent(child):
                return f"the parent of {child} is {self._parent(child)}"
            child = ancestor["session_id"]
        beyond = self._parent(child)
        if shown["boundary"] != (beyond is not None):
            return f"the parent of {child} is {beyond}"
        if beyond is not None and not self.hidden(call, beyond) and not call.faulted:
            return f"the parent of {child}, {beyond}, is not shown"
        return ""

    def _descendants_differ(self, call: Call, target: str, shown: Shown) -> str:
        """Why the tree below a session cannot be so: each child is there, a mark, or away."""
        children: dict[str, list[str | None]] = {target: []}
        line = [target]
        for each in shown["descendants"]:
            del line[each["depth"] :]
            found = each["session"] and each["session"]["session_id"]
            if len(line) != each["depth"] or (found and self._parent(found) != line[-1]):
                return f"{each} stands below {line}"
            children[line[-1]].append(found)
            if found:
                children[found] = []
            line.append(found or "a mark")
        for parent, below in children.items():
            others = [
                each
                for each in self.history.ids
                if self._parent(each) == parent and each not in (*below, target)
            ]
            marks, unseen = below.count(None), [self.hidden(call, each) for each in others]
            sure = sum(not any(each.log is None for each in options) for options in unseen)
            possible = sum(any(each.log for each in options) for options in unseen)
            if call.faulted:
                sure = 0
            elif not all(unseen):
                return f"a child of {parent} is not shown, one of {others}"
            if not sure <= marks <= possible:
                return f"{marks} are hidden below {parent}, not {sure}..{possible} of {others}"
        return ""

    def _skips_beside_family_differ(self, call: Call, number: int) -> str:
        """Only one that moved, and stood in two places, can be left out of a listing."""
        moved = sum(self._has_moved(call, each) for each in self.history.ids)
        return "" if number <= moved or call.faulted else f"{number} are left out"

    def _relations_differ(self, call: Call, target: str, shown: Shown) -> str:
        seq = question_of(call).arguments["seq"]
        assert isinstance(seq, int)
        expected: list[object] = []
        for option in self.visible(call, target):
            trace = trace_event(option, seq)
            expected.append(_relations(trace) if isinstance(trace, EventTrace) else trace)
            if {name: shown[name] for name in shown if name not in _TITLE} == expected[-1]:
                return self._title_differs(call, target, shown)
        return f"it must be one of {expected}"

    def _event_differs(self, call: Call, target: str, shown: Shown) -> str:
        told = {name: shown[name] for name in shown if name not in (*_TITLE, "event_json")}
        told["event_json"] = decode(shown["event_json"])
        expected: list[object] = []
        for option in self.visible(call, target):
            if option.log is None or _is_damaged(option):
                continue
            events = option.log.shown(live=option.live)
            expected.append(_window(events, question_of(call), target))
            if told == expected[-1]:
                return self._title_differs(call, target, shown)
        return f"it must be one of {expected}"


# -- as it is shown ---------------------------------------------------------------------------

_TITLE: Final = ("title", "title_error")
_RECORD: Final = ("session_id", "created_at", "availability")


def question_of(call: Call) -> ToolQuestion:
    """What a tool was asked."""
    question = call.arguments[0]
    assert isinstance(question, ToolQuestion)
    return question


def _time(ms: int) -> str:
    at = _EPOCH + timedelta(milliseconds=ms)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _scrubbed(text: str) -> str:
    return "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in text)


def _record(option: Option) -> Shown:
    assert option.log is not None
    header = option.log.header
    sources = (Availability.LIVE, option.live), (Availability.PERSISTED, option.persisted)
    return {
        "session_id": header.id,
        "created_at": _time(header.created_at),
        "availability": [name.value for name, there in sources if there],
    }


def _hit(hit: EventSearchHit) -> Shown:
    return {
        **_event(hit),
        "surface": hit.surface.value,
        "snippet": hit.snippet,
    }


def _event(event: Any) -> dict[str, Json]:
    return {"seq": event.seq, "type": event.type, "time": _time(event.time)}


def _relations(trace: EventTrace) -> Shown:
    return {
        "session_id": trace.target.session_id,
        "event": {**_event(trace.target), "surface": trace.target.surface.value},
        "replaced_by": trace.replaced_by,
        "replacement_chain": list(trace.replacement_chain),
        "replaces": list(trace.replaced_event_seqs),
        "cites": list(trace.source_event_seqs),
        "cited_by": list(trace.derived_event_seqs),
    }


def _window(events: Sequence[Event], question: ToolQuestion, session_id: str) -> Shown | None:
    seq, before, after = (question.arguments.get(name, 0) for name in ("seq", "before", "after"))
    assert isinstance(seq, int)
    assert isinstance(before, int)
    assert isinstance(after, int)
    if seq >= len(events):
        return None
    return {
        "session_id": session_id,
        "event": _event(events[seq]),
        "event_json": decode(encode(event_to_json(events[seq]))),
        "before": [_neighbour(event) for event in events[max(0, seq - before) : seq]],
        "after": [_neighbour(event) for event in events[seq + 1 : seq + 1 + after]],
    }


def _neighbour(event: Event) -> Shown:
    return {**_event(event), "text": _scrubbed(text_of(event)) or None}


def _check_whole(call: Call, result: ToolResult) -> None:
    """No lone surrogate stands in a text, nor in the data beside it."""
    for text in (result.text, *_texts(result.structured)):
        if text != _scrubbed(text):
            raise Violation(f"{call} holds a lone surrogate: {text!r}")


def _texts(value: object) -> Iterable[str]:
    match value:
        case str():
            yield value
        case list():
            for item in value:
                yield from _texts(item)
        case dict():
            for key, item in value.items():
                yield from (key, *_texts(item))


# -- what a caller may see --------------------------------------------------------------------


def _allows(question: ToolQuestion, option: Option) -> bool:
    if option.log is None:
        return False
    is_own = option.log.header.id == question.own
    return option.log.header.cwd == question.cwd and (question.cwd is not None or is_own)


def _is_damaged(option: Option) -> bool:
    return option.log is not None and option.log.damage is not None and not option.live


def _torn_apart(option: Option) -> Option:
    """A session as one sees it who looks while it moves."""
    if option.log is None or option.live:
        return option
    log = Log(option.log.header, option.log.events, damage=ErrorCode.CORRUPT_SESSION)
    return evolve(option, log=log)


@lru_cache(maxsize=1024)
def _told_in(raw: bytes) -> frozenset[str]:
    return frozenset(TOLD.findall(raw.decode()))


def _told_by(log: Log, *, live: bool) -> Iterable[str]:
    """What the texts of a log tell: of itself, and of what its callers were told."""
    for event in log.shown(live=live):
        yield from _told_in(event.raw)


# -- filters ----------------------------------------------------------------------------------


def _without_echoes(option: Option) -> ModelSession:
    """A session in which calls of the tools and their answers have no text."""
    assert option.log is not None
    session = option.log.model(live=option.live, persisted=option.persisted)
    own: set[object] = set()
    events: list[Event] = []
    for event in session.events:
        data: Any = event.data
        echoes = False
        if event.type == "tool/call":
            echoes = data["name"] in OWN_TOOLS
            (own.add if echoes else own.discard)(data["callId"])
        elif event.type == "tool/result":
            echoes = data["message"]["source"]["callId"] in own
        events.append(msgspec.structs.replace(event, raw=b"{}") if echoes else event)
    return evolve(session, events=tuple(events))


def _session_filters(
    question: ToolQuestion, parents: tuple[str | None, ...] | None
) -> list[SessionFilter]:
    arguments: Mapping[str, Any] = question.arguments
    clauses: list[SessionFilter] = []
    if "session_ids" in arguments:
        clauses.append(Ids(arguments["session_ids"]))
    if "availability" in arguments:
        clauses.append(AvailabilityIn(tuple(map(Availability, arguments["availability"]))))
    if parents is not None:
        clauses.append(Parent(parents))
    return clauses


def _bounds(question: ToolQuestion) -> tuple[int | None, int | None]:
    prefix = "event_" if question.target is None else ""
    arguments: Mapping[str, Any] = question.arguments
    return arguments.get(f"{prefix}seq_from"), arguments.get(f"{prefix}seq_to")


def _event_filters(question: ToolQuestion) -> list[EventFilter]:
    arguments: Mapping[str, Any] = question.arguments
    surfaces = arguments.get("surfaces", arguments.get("event_surfaces"))
    clauses: list[EventFilter] = [SeqRange(*_bounds(question))]
    if "event_types" in arguments:
        clauses.append(TypeIn(tuple(arguments["event_types"])))
    if surfaces is not None:
        clauses.append(SurfaceIn(tuple(map(Surface, surfaces))))
    return clauses
