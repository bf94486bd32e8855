"""Marks: things that must happen sometimes, or the simulation does not reach what it is for.

A scenario calls ``world.marks.hit("stale cursor")`` where such a thing happens, and names every
mark that a long enough batch has to hit. A report counts how many runs hit each, and points at
those that none did.
"""

from __future__ import annotations

from collections import Counter

from attrs import define, field


@define(eq=False)
class Marks:
    """What one run has hit."""

    expected: frozenset[str] = frozenset()
    """The marks that there are; hitting another one is an error, so that none is misspelt."""
    _hits: Counter[str] = field(factory=Counter, init=False)

    def hit(self, mark: str) -> None:
        """Count that this happened.

        Raises:
            ValueError: for a mark that is not expected, unless none is.
        """
        if self.expected and mark not in self.expected:
            known = ", ".join(sorted(self.expected))
            raise ValueError(f"no mark is called {mark!r}; the scenario expects {known}")
        self._hits[mark] += 1

    def hits(self) -> dict[str, int]:
        """How often each mark was hit, by name."""
        return dict(sorted(self._hits.items()))
