"""The surface fold: which events the model sees, and in which order.

The surface is an ordered list of seqs. An appended node goes to its end; a replacement takes the
position of an inclusive, positional range of nodes. ``SurfaceFold`` is the state, built one event
at a time: ``plan`` decides and changes nothing, ``apply`` carries a plan out, ``undo`` takes the
latest one back. The nodes form a linked list, so that a replacement costs what it removes, whatever
the length of the surface; it is kept in arrays, in which a node takes 32 bytes.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import cached_property
from hashlib import blake2b
from itertools import pairwise
from struct import iter_unpack
from typing import Final, Self

import msgspec
from attrs import frozen

from ..messages.errors import SurfaceError
from ..messages.event import Event, Replace
from ..messages.json import MAX_SAFE_INTEGER, Json, is_safe_integer
from ..messages.records import Surface
from .canonical import canonical
from .payload import payload

_ENDS: Final = -1
"""The node before the first and after the last; no event has this seq."""

_SYSTEM: Final = b""
"""The mark of a system message; a tool result is marked with its digest."""

_HEAD: Final = 0
"""The place that stands for both ends of the list."""

_REMOVED: Final = -1
"""What follows a node that is not on the surface any more."""

_MARK_BYTES: Final = 16
_NO_MARK: Final = bytes(_MARK_BYTES)
_SYSTEM_MARK: Final = b"\xff" * _MARK_BYTES

_surface_types: Final = frozenset({"user/message", "assistant/message", "tool/result"})
_surface_types_3: Final = _surface_types | {"system/message"}


class Plan(msgspec.Struct, frozen=True, gc=False):
    """What one event does to the surface. (A Struct because there is one for every event.)"""

    seq: int
    placed: bool = False
    """Whether the event becomes a node."""
    before: int = _ENDS
    """The node that will precede it."""
    shadowed: tuple[int, ...] = ()
    """The nodes it removes, in surface order."""
    mark: bytes | None = None


class SurfaceState(msgspec.Struct, frozen=True, array_like=True):
    """Everything a ``SurfaceFold`` remembers, in a form that can be stored."""

    next_seq: int
    replace_generation: int
    nodes: list[int]
    marks: dict[int, bytes]


class SurfaceFold:
    """The surface of a log that grows.

    ``version`` is the log's format: 0 and 1 let an ``assistant/message`` cite sources, an empty
    list included; 3 knows ``system/message``. ``base_seq`` is the seq of the first event; nodes
    before it are unknown, so a replacement that reaches across it is an error.
    """

    __slots__ = (
        "_length",
        "_marks",
        "_next",
        "_previous",
        "_seqs",
        "_types",
        "next_seq",
        "replace_generation",
        "version",
    )

    def __init__(self, version: int, base_seq: int = 0) -> None:
        self.version = version
        self.next_seq = base_seq
        self.replace_generation = 0
        """How many replacements were applied."""
        self._types = _surface_types_3 if version >= 3 else _surface_types
        self._length = 0
        # By place; what was ever a node has one, in the order of seqs.
        self._seqs = array("q", [_ENDS])
        self._next = array("i", [_HEAD])
        self._previous = array("i", [_HEAD])
        self._marks = bytearray(_NO_MARK)

    def __contains__(self, seq: object) -> bool:
        return type(seq) is int and seq != _ENDS and self._place(seq) is not None

    def __len__(self) -> int:
        return self._length

    def nodes(self) -> Iterator[int]:
        """The seqs of the surface in its order."""
        seqs, following = self._seqs, self._next
        place = following[_HEAD]
        while place != _HEAD:
            yield seqs[place]
            place = following[place]

    def _place(self, seq: int) -> int | None:
        """Where a node stands in the arrays, or ``None`` for what is none now."""
        last = self._previous[_HEAD]
        if self._seqs[last] == seq:
            return last
        place = bisect_left(self._seqs, seq)
        if place == len(self._seqs) or self._seqs[place] != seq or self._next[place] == _REMOVED:
            return None
        return place

    def _mark_at(self, place: int) -> bytes | None:
        found = bytes(self._marks[place * _MARK_BYTES : (place + 1) * _MARK_BYTES])
        if found == _NO_MARK:
            return None
        return _SYSTEM if found == _SYSTEM_MARK else found

    def _link(self, left: int, right: int) -> None:
        self._next[left], self._previous[right] = right, left

    def plan(self, event: Event, data: Json) -> Plan:
        """Decide what ``event`` does; ``data`` is its decoded payload. Nothing changes.

        Raises:
            SurfaceError: the event breaks a rule.
        """
        if event.seq != self.next_seq:
            raise SurfaceError(f"event {event.seq} stands where seq {self.next_seq} is due")
        if event.type not in self._types:
            if event.surface_op is not None or event.source_event_seqs is not None:
                self._check_log_only(event)
            return Plan(event.seq)
        op = event.surface_op
        if op == "append":
            if event.source_event_seqs is not None:
                self._check_sources(event)
            last = self._seqs[self._previous[_HEAD]]
            return Plan(event.seq, True, last, (), self._mark(event, data))
        places = self._range(event, op)
        shadowed = tuple([self._seqs[place] for place in places])
        sources = self._check_sources(event)
        missing = [str(seq) for seq in shadowed if seq not in sources]
        if missing:
            raise SurfaceError(
                f"event {event.seq} replaces {', '.join(missing)} without citing them as sources"
            )
        mark = self._mark(event, data)
        self._check_rewrite(event, places, shadowed, mark)
        before = self._seqs[self._previous[places[0]]]
        return Plan(event.seq, True, before, shadowed, mark)

    def apply(self, plan: Plan) -> None:
        """Carry out a plan made from the present state."""
        seq = plan.seq
        if seq != self.next_seq:
            raise ValueError(f"the plan is for seq {seq}, the next seq is {self.next_seq}")
        self.next_seq = seq + 1
        if not plan.placed:
            return
        seqs, following, previous = self._seqs, self._next, self._previous
        before = previous[_HEAD]
        if seqs[before] != plan.before:
            before = self._node(plan.before)
        after = following[before]
        if plan.shadowed:
            self.replace_generation += 1
            for node in plan.shadowed:
                removed = self._node(node)
                # Its place stays, so that it can be put back.
                after, following[removed] = following[removed], _REMOVED
        place = len(seqs)
        seqs.append(seq)
        following.append(after)
        previous.append(before)
        self._marks += _NO_MARK if plan.mark is None else plan.mark or _SYSTEM_MARK
        following[before] = previous[after] = place
        self._length += 1 - len(plan.shadowed)

    def undo(self, plan: Plan) -> None:
        """Take back the latest applied plan exactly; repeatable down to the first."""
        if plan.seq != self.next_seq - 1:
            raise ValueError(f"the latest plan is for seq {self.next_seq - 1}, not {plan.seq}")
        self.next_seq = plan.seq
        if not plan.placed:
            return
        before, after = self._previous[-1], self._next[-1]
        del self._seqs[-1], self._next[-1], self._previous[-1], self._marks[-_MARK_BYTES:]
        places = [bisect_left(self._seqs, node) for node in plan.shadowed]
        for left, right in pairwise((before, *places, after)):
            self._link(left, right)
        self._length -= 1 - len(plan.shadowed)
        if plan.shadowed:
            self.replace_generation -= 1

    def copy(self) -> Self:
        """An independent state that continues from here."""
        twin = type(self)(self.version, self.next_seq)
        twin.replace_generation = self.replace_generation
        twin._length = self._length
        twin._seqs, twin._marks = self._seqs[:], self._marks[:]
        twin._next, twin._previous = self._next[:], self._previous[:]
        return twin

    def state(self) -> SurfaceState:
        """The state as a value, the same for the same events; ``from_state`` is the way back."""
        marks = {
            seq: _SYSTEM if mark == _SYSTEM_MARK else mark
            for seq, following, (mark,) in zip(
                self._seqs, self._next, iter_unpack(f"{_MARK_BYTES}s", self._marks), strict=True
            )
            if mark != _NO_MARK and following != _REMOVED
        }
        return SurfaceState(self.next_seq, self.replace_generation, [*self.nodes()], marks)

    @classmethod
    def from_state(cls, version: int, state: SurfaceState) -> Self:
        """The fold that continues where ``state`` was taken.

        Raises:
            ValueError: no fold has such a state.
        """
        if not all(0 <= seq < state.next_seq <= MAX_SAFE_INTEGER for seq in state.nodes) or not all(
            mark == _SYSTEM or len(mark) == _MARK_BYTES for mark in state.marks.values()
        ):
            raise ValueError("a surface state with impossible nodes or marks")
        fold = cls(version, state.next_seq)
        fold.replace_generation = state.replace_generation
        fold._length = length = len(state.nodes)
        rising = sorted(state.nodes)
        place_of = dict(zip(rising, range(1, length + 1), strict=True))
        if len(place_of) != length:
            raise ValueError("a surface state that holds a node twice")
        chain = array("i", [_HEAD, *map(place_of.__getitem__, state.nodes)])
        fold._seqs.extend(rising)
        fold._next = array("i", [_HEAD]) * (length + 1)
        fold._previous = array("i", [_HEAD]) * (length + 1)
        for left, right in zip(chain, [*chain[1:], _HEAD], strict=True):
            fold._link(left, right)
        marks = (state.marks.get(seq, _NO_MARK) or _SYSTEM_MARK for seq in fold._seqs)
        fold._marks = bytearray().join(marks)
        return fold

    def _node(self, seq: int) -> int:
        """The place of a node that a plan names."""
        place = self._place(seq)
        if place is None:
            raise ValueError(f"the plan names node {seq}, which is not on the surface")
        return place

    def _check_log_only(self, event: Event) -> None:
        if self.version >= 3 and event.ignorable:
            return
        name = "surfaceOp" if event.surface_op is not None else "sourceEventSeqs"
        raise SurfaceError(f"event {event.seq} of type {event.type!r} must not carry {name}")

    def _range(self, event: Event, op: object) -> tuple[int, ...]:
        """The places of the nodes that a replacement removes, in surface order."""
        if op is None:
            raise SurfaceError(f"event {event.seq} of type {event.type!r} lacks a surfaceOp")
        if not (isinstance(op, Replace) and is_safe_integer(op.start) and is_safe_integer(op.end)):
            raise SurfaceError(
                f"event {event.seq}: surfaceOp {op!r} is neither 'append' nor a replacement"
                " of the nodes from one seq to another"
            )
        for bound in (op.start, op.end):
            if bound not in self:
                raise SurfaceError(
                    f"event {event.seq} replaces {op.start} to {op.end},"
                    f" but {bound} is not on the surface"
                )
        removed = [self._node(op.start)]
        end = self._node(op.end)
        while removed[-1] != end:
            place = self._next[removed[-1]]
            if place == _HEAD:
                raise SurfaceError(
                    f"event {event.seq} replaces {op.start} to {op.end},"
                    f" but {op.start} stands after {op.end} on the surface"
                )
            removed.append(place)
        return tuple(removed)

    def _check_sources(self, event: Event) -> frozenset[int]:
        """The cited sources, checked; none where the field is absent."""
        sources: object = event.source_event_seqs
        if sources is None:
            return frozenset()
        place = f"event {event.seq}: sourceEventSeqs"
        citing_assistant = event.type == "assistant/message"
        if citing_assistant and self.version >= 2:
            raise SurfaceError(f"{place} must not stand on an assistant/message")
        if not isinstance(sources, (tuple, list)):
            raise SurfaceError(f"{place} must be an array, got {sources!r:.200}")
        if not sources:
            if citing_assistant:
                return frozenset()
            raise SurfaceError(f"{place} must not be empty")
        if {*map(type, sources)} != {int} or min(sources) < 0:
            raise SurfaceError(f"{place} must hold seqs, got {sources!r:.200}")
        cited = frozenset(sources)
        if len(cited) != len(sources):
            raise SurfaceError(f"{place} cites a seq twice: {sources!r:.200}")
        if max(sources) >= event.seq:
            raise SurfaceError(f"{place} cites {max(sources)}, which is not an earlier event")
        return cited

    def _mark(self, event: Event, data: Json) -> bytes | None:
        if event.type == "tool/result":
            return blake2b(canonical(_without_content(data)), digest_size=_MARK_BYTES).digest()
        return _SYSTEM if event.type == "system/message" else None

    def _check_rewrite(
        self,
        event: Event,
        places: tuple[int, ...],
        shadowed: tuple[int, ...],
        mark: bytes | None,
    ) -> None:
        """Check what may stand in the place of a tool result, and of the leading system message."""
        if event.type == "tool/result":
            original = self._mark_at(places[0])
            if len(shadowed) != 1 or not original:
                raise SurfaceError(
                    f"event {event.seq}: a tool/result replaces exactly one tool/result, not"
                    f" the nodes {', '.join(map(str, shadowed))}"
                )
            if mark != original:
                raise SurfaceError(
                    f"event {event.seq} rewrites the tool/result {shadowed[0]} and changes more"
                    " than the content of its block"
                )
        head = self._next[_HEAD]
        if (
            places[0] == head
            and self._mark_at(head) == _SYSTEM
            and (mark != _SYSTEM or len(shadowed) != 1)
        ):
            raise SurfaceError(
                f"event {event.seq}: the leading system message {shadowed[0]} can only be replaced"
                " alone, by a system/message"
            )


@frozen
class Replacement:
    """One replacement of a log."""

    seq: int
    start: int
    end: int
    shadowed: tuple[int, ...]
    """The removed nodes in surface order."""


@frozen
class FoldedSurface:
    """The surface of a whole log."""

    nodes: tuple[int, ...]
    """The current nodes in surface order."""
    replacements: tuple[Replacement, ...]
    """In event order."""

    @cached_property
    def _current(self) -> frozenset[int]:
        return frozenset(self.nodes)

    @cached_property
    def _shadowed(self) -> frozenset[int]:
        return frozenset(seq for each in self.replacements for seq in each.shadowed)

    def surface_of(self, seq: int) -> Surface:
        """Where the event at ``seq`` stands."""
        if seq in self._current:
            return Surface.CURRENT
        return Surface.SHADOWED if seq in self._shadowed else Surface.LOG_ONLY


def fold_surface(events: Iterable[Event], version: int) -> FoldedSurface:
    """Fold a whole log of format ``version``.

    Raises:
        SurfaceError: at the first event that breaks a rule.
        InvalidJson, UnsupportedFormat: the payload of a tool result cannot be decoded.
    """
    fold = SurfaceFold(version)
    replacements: list[Replacement] = []
    for event in events:
        plan = fold.plan(event, payload(event, 0) if event.type == "tool/result" else None)
        fold.apply(plan)
        if plan.shadowed:
            assert isinstance(event.surface_op, Replace)
            op = event.surface_op
            replacements.append(Replacement(event.seq, op.start, op.end, plan.shadowed))
    return FoldedSurface(tuple(fold.nodes()), tuple(replacements))


def _without_content(data: Json) -> Json:
    """A tool result's payload without the content of its blocks."""
    if not isinstance(data, dict):
        return data
    message = data.get("message")
    if not isinstance(message, dict):
        return data
    content = message.get("content")
    if not isinstance(content, list):
        return data
    blocks: list[Json] = [
        {**block, "content": None} if isinstance(block, dict) else block for block in content
    ]
    return {**data, "message": {**message, "content": blocks}}
