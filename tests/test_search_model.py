"""The whole service against a brute-force model of search, whatever happens to the corpus.

``SEARCH_SEEDS=1000`` adds long random scripts, from seed ``SEARCH_FIRST_SEED`` (0) on.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Final
from unittest import mock

import pytest
import trio
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from search_world import search_world
from trio.testing import MockClock

from session_query.actors import reconciler, reconciliation
from session_query.storage import index, index_scan, index_tables, log_slices, stored_arm

Step = tuple[str, int]

STEPS: Final = (
    *["search", "commit", "outside"] * 3,
    *["create", "resume", "flush", "close", "wait"] * 2,
    *("fork", "fail", "mount", "restart", "die", "cancel"),
)

BOUNDS: Final[tuple[tuple[ModuleType, str, tuple[int, ...]], ...]] = (
    (reconciler, "MOVABLE_EVENTS", (1, 2, 512)),
    (reconciliation, "CHUNK_SESSIONS", (1, 3)),
    (index, "_MERGE_AFTER", (0, 1, 128)),
    (index, "_TIDY_DOCUMENTS", (1, 500)),
    (index, "_INTERRUPT_CHECK", (20, 10_000)),
    (index_scan, "_HEADROOM", (1, 4)),
    (index_scan, "_EXTRA", (0, 1, 20)),
    (index_tables, "_MIN_BLOCK", (1, 2, 64)),
    (log_slices, "BUILD_BYTES", (1, 300, 1 << 20)),
    (log_slices, "TAIL_BYTES", (300, 1 << 20)),
    (stored_arm, "WARM_PROJECTIONS", (0, 1, 64)),
    (stored_arm, "_STATE_LAG", (1, 3, 64)),
)
"""What bounds slices, blocks, caches and scans: small, so that a small corpus crosses each."""


@contextmanager
def small_bounds(seed: int) -> Iterator[None]:
    """Bounds drawn from ``seed``, one of them by two names."""
    rng = Random(f"bounds {seed}")
    with ExitStack() as stack:
        for module, name, values in BOUNDS:
            stack.enter_context(mock.patch.object(module, name, rng.choice(values)))
        events = rng.choice((1, 3, 2_000))
        for module in (index, reconciliation):
            stack.enter_context(mock.patch.object(module, "SLICE_EVENTS", events))
        yield


async def _play(directory: Path, seed: int, script: Sequence[Step]) -> int:
    async with search_world(directory, seed) as world:
        for kind, step_seed in script:
            await world.step(kind, step_seed)
        return world.searches


def play(seed: int, script: Sequence[Step]) -> int:
    """Run a script in a world; how many pages were compared."""
    with tempfile.TemporaryDirectory() as directory, small_bounds(seed):
        clock = MockClock(autojump_threshold=0)
        return trio.run(_play, Path(directory), seed, script, clock=clock)


@given(
    st.integers(0, 9_999),
    st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 9_999)), max_size=30),
)
@settings(
    max_examples=60,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
def test_every_search_finds_what_a_brute_force_search_finds(
    seed: int, script: list[Step]
) -> None:
    play(seed, script)


def random_script(seed: int, length: int) -> list[Step]:
    rng = Random(f"script {seed}")
    return [(rng.choice(STEPS), rng.randrange(10_000)) for _ in range(length)]


def _seeds() -> range:
    first = int(os.environ.get("SEARCH_FIRST_SEED", "0"))
    return range(first, first + int(os.environ.get("SEARCH_SEEDS", "25")))


@pytest.mark.parametrize("seed", _seeds())
def test_a_long_script_keeps_every_search_right(seed: int) -> None:
    assert play(seed, random_script(seed, 40)) > 0
