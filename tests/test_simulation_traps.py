"""Traps: what a simulated run must not ask, and who may."""

from __future__ import annotations

import os
import random
import secrets
import threading
import time
import uuid
from collections.abc import Callable

import pytest
import trio

from session_query.actors.runtime import TrioRuntime
from session_query.simulations.traps import Trapped, armed


@pytest.mark.parametrize(
    ("ask", "instead"),
    [
        (lambda: time.time(), "now_ms"),
        (lambda: time.monotonic(), "now_ms"),
        (lambda: time.perf_counter(), "now_ms"),
        (lambda: time.sleep(0), "now_ms"),
        (lambda: random.random(), "stream"),
        (lambda: random.shuffle([]), "stream"),
        (lambda: secrets.token_hex(), "stream"),
        (lambda: os.urandom(1), "stream"),
        (lambda: uuid.uuid4(), "new_id"),
        (lambda: threading.Thread(target=print).start(), "call"),
    ],
)
def test_the_real_world_is_refused_with_what_to_ask_instead(
    ask: Callable[[], object], instead: str
) -> None:
    with armed(), pytest.raises(Trapped, match=instead):
        ask()
    if instead != "call":
        ask()


def test_a_thread_that_trio_keeps_is_refused_too() -> None:
    async def main() -> None:
        await trio.to_thread.run_sync(int)
        with armed():
            await TrioRuntime().call(int)

    with pytest.raises(Trapped, match=r"call\(\)"):
        trio.run(main)


def test_other_threads_are_not_trapped() -> None:
    with armed():
        pass
    times: list[float] = []
    begin = threading.Event()

    def look() -> None:
        begin.wait(30)
        times.append(time.time())

    thread = threading.Thread(target=look)
    thread.start()
    with armed():
        begin.set()
        thread.join(30)
    assert times


def test_a_stream_of_ones_own_is_allowed() -> None:
    with armed():
        assert 0 <= random.Random(1).random() < 1
