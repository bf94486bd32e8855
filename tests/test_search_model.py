"""The whole service against a brute-force model of search, whatever happens to the corpus.

``SEARCH_EXAMPLES=5000`` looks for longer.
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

import trio
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from search_world import search_world
from trio.testing import MockClock

from session_query.actors import reconciler, reconciliation
from session_query.storage import index, index_scan, index_tables, log_slices, stored_arm

Step = tuple[str, int]
"""A kind, and the seed of everything else about it."""

STEPS: Final = (
    "idle",
    *["search", "commit", "outside"] * 3,
    *["create", "resume", "flush", "close", "wait"] * 2,
    *("fork", "fail", "mount", "restart", "die", "cancel", "talk"),
)

BOUNDS: Final[tuple[tuple[ModuleType, str, tuple[int, ...]], ...]] = (
    (reconciler, "MOVABLE_EVENTS", (1, 2, 512)),
    (reconciliation, "CHUNK_SESSIONS", (1, 3)),
    (index, "_MERGE_AFTER", (0, 1, 128)),
    (index, "_TIDY_DOCUMENTS", (1, 500)),
    (index, "_INTERRUPT_CHECK", (1, 20, 10_000)),
    (index_scan, "_HEADROOM", (1, 4)),
    (index_scan, "_EXTRA", (0, 1, 20)),
    (index_tables, "_MIN_BLOCK", (1, 2, 64)),
    (log_slices, "BUILD_BYTES", (1, 300, 1 << 20)),
    (log_slices, "APPEND_BYTES", (300, 1 << 20)),
    (stored_arm, "WARM_PROJECTIONS", (0, 1, 64)),
    (stored_arm, "_STATE_LAG", (1, 3, 64)),
)
"""What bounds slices, blocks, caches and scans: small, so that a small corpus crosses each."""


@contextmanager
def small_bounds(seed: int) -> Iterator[None]:
    """Bounds drawn from ``seed``, one of them by two names."""
    rng = Random(f"bounds {seed}")
    tight = rng.choice((0.0, 0.9))
    with ExitStack() as stack:
        for module, name, values in BOUNDS:
            bound = values[0] if rng.random() < tight else rng.choice(values)
            stack.enter_context(mock.patch.object(module, name, bound))
        events = rng.choice((1, 3, 2_000))
        for module in (index, reconciliation):
            stack.enter_context(mock.patch.object(module, "SLICE_EVENTS", events))
        yield


@given(
    st.integers(0, 9_999),
    st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 9_999)), min_size=25, max_size=40),
)
@settings(
    max_examples=int(os.environ.get("SEARCH_EXAMPLES", "40")),
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow],
)
def test_every_search_finds_what_a_brute_force_search_finds(seed: int, script: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as directory, small_bounds(seed):
        clock = MockClock(autojump_threshold=0)
        trio.run(_play, Path(directory), seed, script, clock=clock)


async def _play(directory: Path, seed: int, script: Sequence[Step]) -> None:
    async with search_world(directory, seed) as world:
        for kind, step_seed in script:
            await world.step(kind, step_seed)
