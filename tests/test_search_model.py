"""The whole service against a brute-force model of search, whatever happens to the corpus.

``SEARCH_EXAMPLES=5000`` looks for longer.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import trio
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from search_world import search_world
from trio.testing import MockClock

from session_query.simulations.faults import small_bounds

Step = tuple[str, int]
"""A kind, and the seed of everything else about it."""

STEPS: Final = (
    "idle",
    *["search", "commit", "outside"] * 3,
    *["create", "resume", "flush", "close", "wait"] * 2,
    *("fork", "fail", "mount", "restart", "die", "cancel", "talk"),
)


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
