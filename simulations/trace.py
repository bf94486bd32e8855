"""The trace of one run: one line per state change, everything with ``--trace``.

Lines hold names and numbers, never an address or a real time, so that a seed's trace is the same
text in every process. The digest covers every line of both levels, kept or not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from hashlib import blake2b
from typing import Final

from attrs import define, field

KEPT_LINES: Final = 400
"""How many of its last lines a run keeps for its report, unless it keeps all."""


@define(eq=False)
class Trace:
    """What happened, in order."""

    _now: Callable[[], float] = field(default=lambda: 0.0)
    """Virtual seconds."""
    keeps_all: bool = False
    """Whether details are kept too, and nothing is forgotten."""
    echo: Callable[[str], object] | None = None
    """Told of each kept line at once; for a run that does not end."""
    _hidden: str = ""
    """Text of this machine, replaced in every line: the private directory."""
    _lines: deque[str] = field(init=False)
    _digest: blake2b = field(factory=lambda: blake2b(digest_size=16), init=False)

    def __attrs_post_init__(self) -> None:
        self._lines = deque(maxlen=None if self.keeps_all else KEPT_LINES)

    def note(self, text: str) -> None:
        """Record a state change."""
        self._keep(self._hash(text))

    def detail(self, text: str) -> None:
        """Record what is of interest only where one run is looked at closely."""
        line = self._hash(text)
        if self.keeps_all:
            self._keep(line)

    def step(self, number: int, name: str) -> None:
        """Record that a task takes a step; by its number, the order in which tasks first ran."""
        self._digest.update(b"%d." % number)
        if self.keeps_all:
            self._keep(self._line(f"step: {name} #{number}"))

    def hide(self, text: str) -> None:
        """From now on write ``$private`` for ``text``, which differs from run to run."""
        self._hidden = text

    @property
    def lines(self) -> tuple[str, ...]:
        """The kept lines: ``"<virtual ms> <text>"``."""
        return tuple(self._lines)

    @property
    def digest(self) -> str:
        """Of all lines so far, 32 hexadecimal digits."""
        return self._digest.hexdigest()

    def _line(self, text: str) -> str:
        if self._hidden:
            text = text.replace(self._hidden, "$private")
        return f"{self._now() * 1000:12.3f} {text}"

    def _hash(self, text: str) -> str:
        line = self._line(text)
        self._digest.update(line.encode("utf-8", "backslashreplace"))
        self._digest.update(b"\n")
        return line

    def _keep(self, line: str) -> None:
        self._lines.append(line)
        if self.echo is not None:
            self.echo(line)
