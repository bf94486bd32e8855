"""Filters: frozen clauses, one class a kind, validated when they are built.

Clauses are ANDed, the values of one clause are ORed, an empty value list matches nothing, ranges
include both ends (query-service §4).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from enum import StrEnum
from types import NoneType
from typing import Any, ClassVar, TypeAlias, TypeVar

from attrs import Attribute, field, frozen

from .errors import ErrorCode, SessionQueryError
from .json import Json
from .records import Availability, Surface


def invalid_filter(message: str) -> SessionQueryError:
    """The error of a clause that cannot be used."""
    return SessionQueryError(ErrorCode.INVALID_FILTER, message)


def _listed(values: object) -> Any:
    return tuple(values) if isinstance(values, list) else values


def _members(enum: type[StrEnum], values: object) -> Any:
    if not isinstance(values, (list, tuple)):
        return values
    return tuple(enum(value) if value in tuple(enum) else value for value in values)


def _surfaces(values: object) -> Any:
    return _members(Surface, values)


def _availabilities(values: object) -> Any:
    return _members(Availability, values)


def _each(
    accepted: type | tuple[type, ...], wanted: str
) -> Callable[[Any, Attribute[Any], Any], None]:
    def validate(clause: SessionFilter | EventFilter, _attribute: object, values: object) -> None:
        if not isinstance(values, tuple):
            got = type(values).__name__
            raise invalid_filter(f"filter {clause.kind!r}: values must be a list, got {got}")
        for value in values:
            if not isinstance(value, accepted):
                raise invalid_filter(f"filter {clause.kind!r}: {value!r} is not {wanted}")

    return validate


_texts = _each(str, "text")
_texts_or_null = _each((str, NoneType), "text or null")


def _bound(clause: SessionFilter | EventFilter, _attribute: object, value: Any) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise invalid_filter(f"filter {clause.kind!r}: bound {value!r} is not a number")
    try:
        finite = math.isfinite(value)
    except OverflowError:
        finite = False
    if not finite:
        raise invalid_filter(f"filter {clause.kind!r}: bound {value!r} is not a finite number")


def _check_order(clause: CreatedAt | SeqRange | TimeRange) -> None:
    if clause.start is not None and clause.end is not None and clause.start > clause.end:
        raise invalid_filter(
            f"filter {clause.kind!r}: from {clause.start} is after to {clause.end}"
        )


@frozen
class Ids:
    """Sessions with one of these ids."""

    kind: ClassVar[str] = "id"
    values: tuple[str, ...] = field(converter=_listed, validator=_texts)


@frozen
class Cwd:
    """Sessions of one of these working directories, compared as text; ``None``: without one."""

    kind: ClassVar[str] = "cwd"
    values: tuple[str | None, ...] = field(converter=_listed, validator=_texts_or_null)


@frozen
class CreatedAt:
    """Sessions created within a range of ms since the epoch."""

    kind: ClassVar[str] = "created-at"
    start: float | None = field(default=None, validator=_bound)
    end: float | None = field(default=None, validator=_bound)

    def __attrs_post_init__(self) -> None:
        _check_order(self)


@frozen
class Parent:
    """Direct children of one of these sessions; ``None`` means without a parent."""

    kind: ClassVar[str] = "parent"
    values: tuple[str | None, ...] = field(converter=_listed, validator=_texts_or_null)


@frozen
class AvailabilityIn:
    """Sessions that are available in one of these ways."""

    kind: ClassVar[str] = "availability"
    values: tuple[Availability, ...] = field(
        converter=_availabilities,
        validator=_each(Availability, f"one of {', '.join(Availability)}"),
    )


@frozen
class SeqRange:
    """Events whose seq lies within a range."""

    kind: ClassVar[str] = "seq"
    start: float | None = field(default=None, validator=_bound)
    end: float | None = field(default=None, validator=_bound)

    def __attrs_post_init__(self) -> None:
        _check_order(self)


@frozen
class TimeRange:
    """Events whose time lies within a range of ms since the epoch."""

    kind: ClassVar[str] = "time"
    start: float | None = field(default=None, validator=_bound)
    end: float | None = field(default=None, validator=_bound)

    def __attrs_post_init__(self) -> None:
        _check_order(self)


@frozen
class TypeIn:
    """Events of one of these types; types are an open set."""

    kind: ClassVar[str] = "type"
    values: tuple[str, ...] = field(converter=_listed, validator=_texts)


@frozen
class SurfaceIn:
    """Events that stand in one of these places."""

    kind: ClassVar[str] = "surface"
    values: tuple[Surface, ...] = field(
        converter=_surfaces, validator=_each(Surface, f"one of {', '.join(Surface)}")
    )


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
_VALUES: dict[str, Callable[[Any], SessionFilter | EventFilter]] = {
    clause.kind: clause for clause in (Ids, Cwd, Parent, AvailabilityIn, TypeIn, SurfaceIn)
}
_RANGES: dict[str, Callable[[Any, Any], SessionFilter | EventFilter]] = {
    clause.kind: clause for clause in (CreatedAt, SeqRange, TimeRange)
}
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
        for bound in ("from", "to"):
            if bound in value and value[bound] is None:
                raise invalid_filter(f"filter {kind!r}: leave {bound} out where there is no bound")
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
