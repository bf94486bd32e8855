"""Filters: frozen clauses, one class a kind, validated when they are built.

Clauses are ANDed, the values of one clause are ORed, an empty value list matches nothing, ranges
include both ends (query-service §4).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, TypeAlias, TypeVar

from attrs import field, frozen

from .errors import ErrorCode, SessionQueryError
from .json import Json
from .records import Availability, Surface


def invalid_filter(message: str) -> SessionQueryError:
    """The error of a clause that cannot be used."""
    return SessionQueryError(ErrorCode.INVALID_FILTER, message)


def _sequence(values: object, kind: str) -> Sequence[object]:
    if isinstance(values, (str, bytes)) or not isinstance(values, (list, tuple)):
        raise invalid_filter(f"filter {kind!r}: values must be a list, got {type(values).__name__}")
    return values


def _texts(kind: str, *, nullable: bool = False) -> Callable[[object], tuple[str | None, ...]]:
    def convert(values: object) -> tuple[str | None, ...]:
        accepted: list[str | None] = []
        for value in _sequence(values, kind):
            if value is None and nullable:
                accepted.append(None)
            elif isinstance(value, str):
                accepted.append(value)
            else:
                wanted = "text or null" if nullable else "text"
                raise invalid_filter(f"filter {kind!r}: {value!r} is not {wanted}")
        return tuple(accepted)

    return convert


_Choice = TypeVar("_Choice", Surface, Availability)


def _choices(kind: str, enum: type[_Choice]) -> Callable[[object], tuple[_Choice, ...]]:
    def convert(values: object) -> tuple[_Choice, ...]:
        accepted: list[_Choice] = []
        for value in _sequence(values, kind):
            try:
                accepted.append(enum(value))
            except ValueError:
                known = ", ".join(enum)
                raise invalid_filter(f"filter {kind!r}: {value!r} is not one of {known}") from None
        return tuple(accepted)

    return convert


def _bound(kind: str) -> Callable[[object], float | None]:
    def convert(value: object) -> float | None:
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise invalid_filter(f"filter {kind!r}: bound {value!r} is not a number")
        try:
            finite = math.isfinite(value)
        except OverflowError:
            finite = False
        if not finite:
            raise invalid_filter(f"filter {kind!r}: bound {value!r} is not a finite number")
        return value

    return convert


def _check_order(clause: CreatedAt | SeqRange | TimeRange) -> None:
    if clause.start is not None and clause.end is not None and clause.start > clause.end:
        raise invalid_filter(
            f"filter {clause.kind!r}: from {clause.start} is after to {clause.end}"
        )


@frozen
class Ids:
    """Sessions with one of these ids."""

    kind: ClassVar[str] = "id"
    values: tuple[str, ...] = field(converter=_texts("id"))


@frozen
class Cwd:
    """Sessions of one of these working directories, compared as text; ``None`` means without one."""

    kind: ClassVar[str] = "cwd"
    values: tuple[str | None, ...] = field(converter=_texts("cwd", nullable=True))


@frozen
class CreatedAt:
    """Sessions created within a range of ms since the epoch."""

    kind: ClassVar[str] = "created-at"
    start: float | None = field(default=None, converter=_bound("created-at"))
    end: float | None = field(default=None, converter=_bound("created-at"))

    def __attrs_post_init__(self) -> None:
        _check_order(self)


@frozen
class Parent:
    """Direct children of one of these sessions; ``None`` means without a parent."""

    kind: ClassVar[str] = "parent"
    values: tuple[str | None, ...] = field(converter=_texts("parent", nullable=True))


@frozen
class AvailabilityIn:
    """Sessions that are available in one of these ways."""

    kind: ClassVar[str] = "availability"
    values: tuple[Availability, ...] = field(converter=_choices("availability", Availability))


@frozen
class SeqRange:
    """Events whose seq lies within a range."""

    kind: ClassVar[str] = "seq"
    start: float | None = field(default=None, converter=_bound("seq"))
    end: float | None = field(default=None, converter=_bound("seq"))

    def __attrs_post_init__(self) -> None:
        _check_order(self)


@frozen
class TimeRange:
    """Events whose time lies within a range of ms since the epoch."""

    kind: ClassVar[str] = "time"
    start: float | None = field(default=None, converter=_bound("time"))
    end: float | None = field(default=None, converter=_bound("time"))

    def __attrs_post_init__(self) -> None:
        _check_order(self)


@frozen
class TypeIn:
    """Events of one of these types; types are an open set."""

    kind: ClassVar[str] = "type"
    values: tuple[str, ...] = field(converter=_texts("type"))


@frozen
class SurfaceIn:
    """Events that stand in one of these places."""

    kind: ClassVar[str] = "surface"
    values: tuple[Surface, ...] = field(converter=_choices("surface", Surface))


@frozen
class Text:
    """Events whose extracted text holds this text literally; not accepted by the searches."""

    kind: ClassVar[str] = "text"
    text: str = field()

    @text.validator
    def _check_text(self, _attribute: object, value: object) -> None:
        if not isinstance(value, str):
            raise invalid_filter(f"filter 'text': {value!r} is not text")


SessionFilter: TypeAlias = Ids | Cwd | CreatedAt | Parent | AvailabilityIn
EventFilter: TypeAlias = SeqRange | TimeRange | TypeIn | SurfaceIn | Text

_Clause = TypeVar("_Clause")
_VALUES = {clause.kind: clause for clause in (Ids, Cwd, Parent, AvailabilityIn, TypeIn, SurfaceIn)}
_RANGES = {clause.kind: clause for clause in (CreatedAt, SeqRange, TimeRange)}
_SESSION_KINDS = frozenset({"id", "cwd", "created-at", "parent", "availability"})
_EVENT_KINDS = frozenset({"seq", "time", "type", "surface", "text"})


def session_filter_from_json(value: Json) -> SessionFilter:
    """Build a session clause from its JSON form, ``{"kind": …}`` as in the recorded vectors.

    Raises:
        SessionQueryError: ``INVALID_FILTER`` for an unknown kind or a wrong value.
    """
    clause = _from_json(value, _SESSION_KINDS)
    assert isinstance(clause, (Ids, Cwd, CreatedAt, Parent, AvailabilityIn))
    return clause


def event_filter_from_json(value: Json) -> EventFilter:
    """Build an event clause from its JSON form; errors as in ``session_filter_from_json``."""
    clause = _from_json(value, _EVENT_KINDS)
    assert isinstance(clause, (SeqRange, TimeRange, TypeIn, SurfaceIn, Text))
    return clause


def _from_json(value: Json, kinds: frozenset[str]) -> SessionFilter | EventFilter:
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(kind, str) or kind not in kinds:
        known = ", ".join(sorted(kinds))
        raise invalid_filter(f"filter {value!r}: kind must be one of {known}")
    if kind == "text":
        return Text(value.get("text"))  # type: ignore[arg-type]  # validated by the class
    if kind in _RANGES:
        return _RANGES[kind](value.get("from"), value.get("to"))
    return _VALUES[kind](value.get("values"))


def checked(
    clauses: Iterable[object], accepted: tuple[type[_Clause], ...], what: str
) -> tuple[_Clause, ...]:
    """The clauses as a tuple, each of an accepted class.

    Raises:
        SessionQueryError: ``INVALID_FILTER`` where one is of another class.
    """
    if isinstance(clauses, (str, bytes, dict)) or not isinstance(clauses, Iterable):
        raise invalid_filter(f"{what} must be a list of filters, got {type(clauses).__name__}")
    result: list[_Clause] = []
    for clause in clauses:
        if not isinstance(clause, accepted):
            names = ", ".join(kind.__name__ for kind in accepted)
            raise invalid_filter(f"{what}: {clause!r} is not one of {names}")
        result.append(clause)
    return tuple(result)
