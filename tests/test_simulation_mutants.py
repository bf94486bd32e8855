"""Bugs that are planted in the product, each caught by the seed that is known to catch it."""

from __future__ import annotations

import pytest
from attrs import evolve

from session_query.simulations.mutants import MUTANTS
from session_query.simulations.scenario import simulate
from session_query.simulations.scenarios import SCENARIOS
from session_query.simulations.verdict import Kind


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_a_planted_bug_is_caught_by_its_seed(name: str) -> None:
    mutant = MUTANTS[name]
    with mutant.planted():
        outcome = simulate(SCENARIOS[mutant.scenario], mutant.seed, mutant.overrides)
    assert outcome.kind is not Kind.PASS


def test_a_bug_is_gone_when_its_block_has_ended() -> None:
    mutant = MUTANTS["pool-of-five"]
    before = mutant.owner.run
    with mutant.planted():
        assert mutant.owner.run is not before
    assert mutant.owner.run is before


def test_a_bug_whose_place_is_gone_says_so() -> None:
    mutant = evolve(MUTANTS["pool-of-five"], old="no such words")
    with pytest.raises(ValueError, match="no such words"), mutant.planted():
        raise AssertionError
