"""The watchdog: a run that takes no steps and does not end is broken off in real time.

Everything else that a run must not exceed is counted in steps and virtual seconds. A loop inside
one step is seen by neither.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final, NoReturn

REAL_SECONDS: Final = 120.0
"""Far longer than any run takes, on a busy machine too."""


class Hung(BaseException):
    """A run took too long in real time. The message says which line was being executed."""


@contextmanager
def watched(seconds: float = REAL_SECONDS) -> Iterator[None]:
    """Raise ``Hung`` in the block when it takes too long; only a main thread can be watched."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def bite(_number: int, frame: FrameType | None) -> NoReturn:
        at = f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else "?"
        raise Hung(f"not at an end after {seconds:g} s of real time, at {at}")

    before = signal.signal(signal.SIGALRM, bite)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
