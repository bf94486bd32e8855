"""The configuration of a host's kit: values, and the small file that they may come from.

A file is TOML with a table for each part; a part without a table is absent, or has its defaults.
Functions (``redact``, ``canonical_cwd``, ``extract``) are given in Python: ``attrs.evolve``.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final, NoReturn, TypeVar

import attrs
from attrs import frozen

from ..messages.config import (
    MEMORY,
    IndexConfig,
    QueryConfig,
    SchedulerConfig,
    SpillConfig,
    StoreConfig,
    ToolsConfig,
)
from ..messages.errors import ErrorCode, SessionQueryError
from ..messages.json import Json, encode

T = TypeVar("T")


@frozen(kw_only=True)
class Configuration:
    """What ``open_harness`` puts together."""

    store: StoreConfig | None = None
    """The stored sessions; without, there are live ones alone."""
    index: IndexConfig | None = None
    """Where the search index lives; without, in memory, built by the first search."""
    query: QueryConfig = attrs.field(factory=QueryConfig)
    tools: ToolsConfig | None = None
    """The five model tools; without, none is offered."""
    scheduler: SchedulerConfig = attrs.field(factory=SchedulerConfig)
    spill: SpillConfig | None = None
    """How long results are bounded; without, every result stays whole."""


_PARTS: Final[dict[str, type[Any]]] = {
    "store": StoreConfig,
    "index": IndexConfig,
    "query": QueryConfig,
    "tools": ToolsConfig,
    "scheduler": SchedulerConfig,
    "spill": SpillConfig,
}
_WITHOUT: Final = {
    "store": "there are live sessions alone",
    "index": "it is kept in memory and built by the first search",
    "tools": "the model tools are not offered",
    "spill": "every result stays whole",
}
_ALIASES: Final = {("query", "persisted_inspect_concurrency"): "persisted_read_concurrency"}
_IN_PYTHON: Final = frozenset({"redact", "canonical_cwd", "extract"})
"""Settings that are functions."""
_PATHS: Final = frozenset({("store", "root"), ("index", "path"), ("spill", "root")})


def read_configuration(path: str | os.PathLike[str]) -> Configuration:
    """The configuration in a TOML file; relative paths in it start from its folder. Blocks.

    Raises:
        SessionQueryError: ``INVALID_CONFIG``, naming the file, the setting and what it has to be.
        OSError: the file cannot be read.
    """
    with open(path, "rb") as file:
        content = file.read()
    try:
        return parse_configuration(content.decode(), os.path.dirname(os.path.abspath(path)))
    except (UnicodeDecodeError, SessionQueryError) as error:
        raise _invalid(f"{os.fspath(path)!r}: {error}") from error


def parse_configuration(text: str, folder: str) -> Configuration:
    """The configuration in a TOML text; relative paths in it start from ``folder``.

    Raises:
        SessionQueryError: ``INVALID_CONFIG``, naming the setting and what it has to be.
    """
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _invalid(f"not TOML: {error}") from error
    for name in tables:
        if name not in _PARTS:
            _unknown("table", name, list(_PARTS))
    parts: dict[str, Any] = {name: _part(name, table, folder) for name, table in tables.items()}
    return Configuration(**parts)


def configuration_toml(configuration: Configuration) -> str:
    """The configuration as the text of a file that has every setting but functions in it."""
    return "\n".join(_table(name, getattr(configuration, name)) for name in _PARTS)


def _part(name: str, table: object, folder: str) -> object:
    if not isinstance(table, Mapping):
        raise _invalid(f"{name} must be a table, written [{name}], got {table!r}")
    known = _names(_PARTS[name])
    values: dict[str, object] = {}
    for key, value in table.items():
        setting = _ALIASES.get((name, key), key)
        if setting not in known:
            _unknown_setting(name, key, known)
        if setting in values:
            raise _invalid(f"[{name}] {key} and {setting} are one setting; give it once")
        values[setting] = _resolved(name, setting, value, folder)
    try:
        return _PARTS[name](**values)
    except SessionQueryError as error:
        raise _invalid(f"[{name}] {error}") from error
    except TypeError as error:  # what a class requires has no default to fall back on
        required = [field.name for field in attrs.fields(_PARTS[name]) if _is_required(field)]
        raise _invalid(f"[{name}] needs {', '.join(required)}") from error


def _names(part: type[Any]) -> list[str]:
    return [field.name for field in attrs.fields(part) if field.name not in _IN_PYTHON]


def _is_required(field: attrs.Attribute[Any]) -> bool:
    return field.default is attrs.NOTHING


def _resolved(name: str, setting: str, value: object, folder: str) -> object:
    if (name, setting) in _PATHS and isinstance(value, str) and value.strip() and value != MEMORY:
        return os.path.join(folder, os.path.expanduser(value))
    return value


def _table(name: str, part: object) -> str:
    if part is None:
        return f"# no [{name}]: {_WITHOUT[name]}\n"
    values = ((setting, getattr(part, setting)) for setting in _names(type(part)))
    lines = (f"{setting} = {_toml(value)}\n" for setting, value in values if value is not None)
    return f"[{name}]\n{''.join(lines)}"


def _toml(value: Json | tuple[str, ...]) -> str:
    """A value in TOML, which writes texts, numbers and lists as JSON does, on one visible line."""
    written = encode(list(value) if isinstance(value, tuple) else value).decode()
    return "".join(
        character if character.isprintable() else f"\\U{ord(character):08X}"
        for character in written
    )


def _unknown_setting(name: str, key: str, known: list[str]) -> NoReturn:
    if name == "query" and key in _IN_PYTHON:
        raise _invalid(f"[query] {key} is a function: give it in Python, not in a file")
    _unknown(f"setting of [{name}]", key, known)


def _unknown(what: str, key: str, known: list[str]) -> NoReturn:
    meant = get_close_matches(key, known, n=1)
    guess = f"; did you mean {meant[0]}?" if meant else "."
    raise _invalid(f"{key!r} is no {what}{guess} Known are {', '.join(known)}")


def _invalid(message: str) -> SessionQueryError:
    return SessionQueryError(ErrorCode.INVALID_CONFIG, message)
