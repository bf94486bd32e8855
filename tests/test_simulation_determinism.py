"""One seed is one run: the same bytes in every process, and other bytes for another seed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from session_query.simulations.marks import Marks
from session_query.simulations.scenario import simulate
from session_query.simulations.scenarios import SCENARIOS
from session_query.simulations.scenarios.canary import CANARY, PERIOD, WAYS
from session_query.simulations.trace import KEPT_LINES, Trace
from session_query.simulations.verdict import Kind

HASH_SEEDS = ("0", "1", "4242", "random")
SEEDS = (1, 2)


def traces(hash_seed: str) -> bytes:
    """The whole traces of two seeds of every scenario, from a process of its own."""
    # Objects of any number come first, so that addresses differ.
    script = (
        "import os, sys\n"
        "junk = [object() for _ in range(int.from_bytes(os.urandom(2), 'big'))]\n"
        "from session_query.simulations.command_line import main\n"
        "for argument in sys.argv[1:]:\n"
        "    scenario, seed = argument.split(':')\n"
        "    main(['--seed', seed, '--scenario', scenario, '--trace'])\n"
    )
    runs = [f"{name}:{seed}" for name in sorted(SCENARIOS) for seed in SEEDS]
    found = subprocess.run(
        [sys.executable, "-c", script, *runs],
        capture_output=True,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        timeout=300,
    )
    assert found.returncode == 0, found.stderr.decode()
    return found.stdout


def test_a_seed_gives_the_same_bytes_in_every_process() -> None:
    with ThreadPoolExecutor(2) as threads:
        first, *others = threads.map(traces, HASH_SEEDS)
    assert first.count(b"digest ") == len(SCENARIOS) * len(SEEDS)
    for other in others:
        assert other == first


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_every_seed_gives_another_trace(name: str) -> None:
    digests = Counter(simulate(SCENARIOS[name], seed).digest for seed in range(5))
    assert len(digests) == 5


def test_whoever_keeps_the_trace_sees_the_same_run() -> None:
    scenario = next(iter(SCENARIOS.values()))
    short, whole = simulate(scenario, 3), simulate(scenario, 3, keep_trace=True)
    assert short.digest == whole.digest
    assert (short.steps, short.virtual_seconds) == (whole.steps, whole.virtual_seconds)
    assert len(short.trace) <= KEPT_LINES < len(whole.trace)
    assert short.trace[-1] == whole.trace[-1]


def test_the_kit_draws_policy_and_index_for_every_seed_and_an_override_decides() -> None:
    drawn = {simulate(CANARY, seed).configuration.rpartition(" sick")[0] for seed in range(40)}
    assert drawn == {
        f"policy={policy} index={place}"
        for policy in ("fair", "uniform", "pct")
        for place in ("memory", "file")
    }
    set_to = simulate(CANARY, 1, {"policy": "pct", "index": "memory"})
    assert set_to.configuration.startswith("policy=pct index=memory ")
    with pytest.raises(ValueError, match="policy must be one of fair, uniform, pct"):
        simulate(CANARY, 1, {"policy": "fifo"})


def test_the_canary_fails_about_as_often_as_it_should() -> None:
    kinds = Counter(simulate(CANARY, seed).kind for seed in range(3 * PERIOD))
    assert 1 <= sum(kinds.values()) - kinds[Kind.PASS] <= 10


@pytest.mark.parametrize("way", sorted(WAYS))
def test_every_way_to_fail_is_told_from_the_others(way: str) -> None:
    outcome = simulate(CANARY, 1, {"sick": "yes", "way": way})
    assert outcome.kind is WAYS[way]
    assert outcome.message
    assert outcome.marks == {"fell silent": 1}


def test_a_mark_that_nobody_expects_is_an_error() -> None:
    with pytest.raises(ValueError, match="no mark is called 'stale curser'"):
        Marks(frozenset({"stale cursor"})).hit("stale curser")


def test_a_trace_hides_what_differs_from_machine_to_machine() -> None:
    here, there = Trace(), Trace()
    here.hide("/tmp/a1")
    there.hide("/tmp/b2")
    here.note("opened /tmp/a1/index")
    there.note("opened /tmp/b2/index")
    assert here.lines == ("       0.000 opened $private/index",)
    assert here.digest == there.digest
