"""The clocks of a run: Trio's, which jumps to the next deadline, and the wall clock beside it."""

from __future__ import annotations

from typing import Final

from attrs import define, field
from trio.testing import MockClock

EPOCH_NS: Final = 1_700_000_000_000_000_000
"""The wall clock at the beginning of a run, ns since the epoch: a day in November 2023."""


def virtual_clock() -> MockClock:
    """Trio's clock of a run: begins at 0, stands still while anything can run, then jumps."""
    return MockClock(autojump_threshold=0)


@define(eq=False)
class WallClock:
    """What the system takes for the time of day. It goes with virtual time, and may be set."""

    _virtual: MockClock
    _offset_ns: int = field(default=EPOCH_NS, init=False)

    def now_ns(self) -> int:
        """Ns since the epoch."""
        return self._offset_ns + round(self._virtual.current_time() * 1_000_000_000)

    def now_ms(self) -> int:
        """Ms since the epoch."""
        return self.now_ns() // 1_000_000

    def set_by(self, milliseconds: int) -> None:
        """Set the clock forward, or back where negative, as an operator or a time server does."""
        self._offset_ns += milliseconds * 1_000_000
