"""Standard input and output as the wire of MCP: one JSON message a line, and nothing else.

While it is claimed, whatever else the process prints goes to standard error. What comes in may hold
a lone surrogate escape, which is mended; what goes out has no line break but its own, whatever a
client takes for one.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Self

from attrs import define, field

from ..actors.runtime import Runtime

_READ_BYTES: Final = 64 * 1024
_SURROGATE: Final = re.compile(
    r"(\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|\\u[dD][89a-fA-F]..", re.S
)
_BREAKS: Final = {ord(one): f"\\u{ord(one):04x}" for one in "\u0085\u2028\u2029"}


@define(eq=False)
class WireInput:
    """Messages from a client, a line each. Reading never holds up the end of the process."""

    _runtime: Runtime
    _descriptor: int
    _rest: bytearray = field(factory=bytearray, init=False)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        searched = 0
        while (end := self._rest.find(b"\n", searched)) < 0:
            searched = len(self._rest)
            piece = await self._runtime.call_or_abandon(
                os.read, self._descriptor, _READ_BYTES, afterwards=_nothing
            )
            if not piece:
                raise StopAsyncIteration
            self._rest += piece
        line = bytes(self._rest[:end])
        del self._rest[: end + 1]
        return mended(line.decode("utf-8", "replace"))


@define(eq=False)
class WireOutput:
    """Messages to a client."""

    _runtime: Runtime
    _descriptor: int

    async def write(self, text: str) -> None:
        data = text.translate(_BREAKS).encode()
        await self._runtime.call_or_abandon(_write, self._descriptor, data, afterwards=_nothing)

    async def flush(self) -> None:
        """Nothing is held back."""


def mended(line: str) -> str:
    """A line of JSON without lone surrogate escapes, which a strict reader would refuse whole."""
    if "\\ud" not in line and "\\uD" not in line:
        return line
    return _SURROGATE.sub(lambda found: found[1] or "\\ufffd", line)


@contextmanager
def claimed_wire(runtime: Runtime) -> Iterator[tuple[WireInput, WireOutput]]:
    """The wire for the length of the block."""
    sys.stdout.flush()
    sink = os.dup(1)
    os.dup2(2, 1)
    try:
        yield WireInput(runtime, 0), WireOutput(runtime, sink)
    finally:
        sys.stdout.flush()
        os.dup2(sink, 1)


def _write(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _nothing() -> None:
    """An abandoned read or write has nothing to clear away."""
