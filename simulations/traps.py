"""Traps: in a simulated run, the real clock, real randomness and real threads raise.

Only the thread of the run is trapped: whatever else goes on in the process goes on. What cannot be
replaced, such as ``datetime.now``, is what the linter keeps out of the code instead.
"""

from __future__ import annotations

import logging
import os
import random
import secrets
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final, NoReturn

import trio

_CLOCK: Final = "ask the runtime: now_ms(), or trio.current_time()"
_RANDOM: Final = "draw from world.stream(name)"
_ID: Final = "ask the runtime: new_id()"
_THREAD: Final = "hand the work to the runtime: call()"

_TRAPPED: Final[tuple[tuple[Any, tuple[str, ...], str], ...]] = (
    (
        time,
        (
            "time",
            "time_ns",
            "monotonic",
            "monotonic_ns",
            "perf_counter",
            "perf_counter_ns",
            "sleep",
        ),
        _CLOCK,
    ),
    (
        random,
        (
            "betavariate",
            "choice",
            "choices",
            "expovariate",
            "gauss",
            "getrandbits",
            "normalvariate",
            "randbytes",
            "randint",
            "random",
            "randrange",
            "sample",
            "seed",
            "shuffle",
            "uniform",
        ),
        _RANDOM,
    ),
    (secrets, ("choice", "randbelow", "randbits", "token_bytes", "token_hex"), _RANDOM),
    (os, ("urandom", "getrandom"), _RANDOM),
    (uuid, ("uuid1", "uuid4"), _ID),
    (threading.Thread, ("start",), _THREAD),
    (threading, ("_start_new_thread",), _THREAD),
)


class Trapped(AssertionError):
    """Code under simulation asked the real world. The message says what to ask instead."""


@contextmanager
def armed() -> Iterator[None]:
    """Trap the thread that enters, for the block."""
    owner = threading.get_ident()
    with ExitStack() as stack:
        for place, names, instead in _TRAPPED:
            for name in names:
                if hasattr(place, name):
                    stack.enter_context(_trap(place, name, instead, owner))
        # Trio keeps idle threads, for which none has to be started.
        cache = trio.lowlevel.start_thread_soon.__globals__["THREAD_CACHE"]
        stack.enter_context(_trap(type(cache), "start_thread_soon", _THREAD, owner))
        # A log record is stamped with the time of day.
        stack.callback(logging.disable, logging.root.manager.disable)
        logging.disable()
        yield


@contextmanager
def _trap(place: Any, name: str, instead: str, owner: int) -> Iterator[None]:
    real: Callable[..., Any] = getattr(place, name)
    whose = getattr(place, "__name__", "trio")

    def trapped(*args: Any, **options: Any) -> Any:
        if threading.get_ident() == owner:
            _refuse(f"{whose}.{name}", instead)
        return real(*args, **options)

    setattr(place, name, trapped)
    try:
        yield
    finally:
        setattr(place, name, real)


def _refuse(what: str, instead: str) -> NoReturn:
    raise Trapped(f"{what} was called in a simulated run; {instead}")
