"""The agents whose rows old versions of Claude Code wrote into the log of their session.

Such a row says that it is of a side chain, and names the row before it in the same one. Who reads
one chain and who looks for all of them agree on which row belongs where, and both remember little:
of each chain the newest names, and of all chains those that had a row last.
"""

from __future__ import annotations

import re
from collections import OrderedDict, deque
from collections.abc import Mapping
from typing import Final

from attrs import define, field

from ..messages.json import Json
from .foreign import digest, plain

REMEMBERED: Final = 64
"""Names of rows of a chain that a later row may follow."""

_OPEN: Final = 256
"""Chains that a row may still belong to."""

_MARK: Final = "/sidechain-"
_WITHIN: Final = re.compile(r"(?:[01]|2\.0)\.")
"""Versions that may have written an agent's rows into the log of its session; later ones write them
into a file of their own."""


def chain_id(session_id: str, first: str) -> str:
    """The id of the session that an agent's rows make, the first of which has this name."""
    return f"{session_id}{_MARK}{first}"


def first_of(session_id: str) -> str | None:
    """The name of the first row, or nothing where the id is no such one."""
    _, mark, first = session_id.rpartition(_MARK)
    return first if mark else None


def are_within(version: str) -> bool:
    """Whether a log holds rows of agents, by the first version named in it, empty before that."""
    return not version or _WITHIN.match(version) is not None


def link_of(row: Mapping[str, Json]) -> tuple[str, str] | None:
    """The name of a side chain's row, and of the row before it; nothing of any other row."""
    name = row.get("uuid")
    if row.get("isSidechain") is not True or not isinstance(name, str) or plain(name) != name:
        return None
    before = row.get("parentUuid")
    return (name, before if isinstance(before, str) else "") if name else None


@define
class Sidechains:
    """Tells the chains of one log apart, row by row."""

    _names: OrderedDict[str, deque[str]] = field(init=False, factory=OrderedDict)
    """Digests of the newest names, by the first row of their chain."""
    _firsts: dict[str, str] = field(init=False, factory=dict)

    def take(self, name: str, before: str) -> tuple[str, bool]:
        """The first row of the chain that the next row is of, and whether that begins with it."""
        first = self._firsts.get(digest(before), name)
        begins = first not in self._names
        names = self._names.setdefault(first, deque())
        self._names.move_to_end(first)
        names.append(digest(name))
        self._firsts[names[-1]] = first
        if len(names) > REMEMBERED:
            self._firsts.pop(names.popleft(), None)
        if len(self._names) > _OPEN:
            for forgotten in self._names.popitem(last=False)[1]:
                self._firsts.pop(forgotten, None)
        return first, begins
