"""The part of JSON schema that tools use: types, enumerations, items and required members."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ..messages.json import Json, elements

_ACCEPTED: Final[dict[str, tuple[str, Callable[[Any], bool]]]] = {
    "object": ("an object", lambda value: isinstance(value, Mapping)),
    "array": ("a list", lambda value: isinstance(value, list)),
    "string": ("text", lambda value: isinstance(value, str)),
    "boolean": ("true or false", lambda value: isinstance(value, bool)),
    "integer": ("a whole number", lambda value: _is_integer(value)),
    "number": ("a number", lambda value: _is_number(value)),
    "null": ("null", lambda value: value is None),
}


def fault(value: object, schema: Mapping[str, Json], path: str = "arguments") -> str | None:
    """The first way in which a value breaks a schema, in words; ``None`` where it keeps to it.

    Understood are ``type``, ``enum``, ``items``, ``properties`` and ``required``. Objects are open.
    As in JSON, 2.0 is a whole number and ``true`` is none.
    """
    kind = schema.get("type")
    kinds = [str(one) for one in elements(kind)] or [str(kind)] if kind else []
    if kinds and not any(_ACCEPTED[one][1](value) for one in kinds):
        wanted = " or ".join(_ACCEPTED[one][0] for one in kinds)
        return f"{path} must be {wanted}, got {_shown(value)}"
    choices = schema.get("enum")
    if isinstance(choices, list) and value not in choices:
        named = ", ".join(map(str, choices))
        return f"{path} must be one of {named}, got {_shown(value)}"
    if isinstance(value, Mapping):
        return _member_fault(value, schema, path)
    items = schema.get("items")
    if isinstance(value, list) and isinstance(items, dict):
        faults = (fault(item, items, f"{path}[{index}]") for index, item in enumerate(value))
        return next(filter(None, faults), None)
    return None


def _member_fault(value: Mapping[Any, object], schema: Mapping[str, Json], path: str) -> str | None:
    properties = schema.get("properties")
    known = properties if isinstance(properties, dict) else {}
    required = elements(schema.get("required"))
    for name in required:
        if name not in value:
            return f"{name} is missing"
    for name, part in known.items():
        if name in value and isinstance(part, dict):
            where = name if path == "arguments" else f"{path}.{name}"
            if (found := fault(value[name], part, where)) is not None:
                return found
    return None


def _is_integer(value: object) -> bool:
    return _is_number(value) and (isinstance(value, int) or float(value).is_integer())  # type: ignore[arg-type]


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _shown(value: object) -> str:
    """A short name of what was given instead: never its content, which may be long or private."""
    if value is None or isinstance(value, (bool, int, float)):
        return "null" if value is None else str(value).lower()[:40]
    return (
        "text" if isinstance(value, str) else "a list" if isinstance(value, list) else "an object"
    )
