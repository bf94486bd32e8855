"""A few seeds of every scenario, and those that once failed."""

from __future__ import annotations

import random

import pytest

from session_query.simulations.corpus import CorpusLine, read_corpus
from session_query.simulations.faults import Configuration, draw, override
from session_query.simulations.scenario import simulate
from session_query.simulations.scenarios import SCENARIOS


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_a_seed_of_a_scenario_passes(name: str, seed: int) -> None:
    outcome = simulate(SCENARIOS[name], seed)
    assert outcome.message == ""


@pytest.mark.parametrize("line", read_corpus(), ids=lambda line: f"{line.scenario}-{line.seed}")
def test_a_seed_that_once_failed_passes(line: CorpusLine) -> None:
    outcome = simulate(SCENARIOS[line.scenario], line.seed, line.overrides)
    assert outcome.message == ""


def test_every_mark_of_a_scenario_is_hit_by_some_seed() -> None:
    hit = {mark for seed in range(20) for mark in simulate(SCENARIOS["search"], seed).marks}
    assert hit == SCENARIOS["search"].marks


def test_a_setting_changes_its_field_alone() -> None:
    drawn = draw(random.Random(7))
    assert override(drawn, {"crashes": "3", "latency": "0.25", "journal": "delete"}) == (
        Configuration(
            **{
                name: getattr(drawn, name)
                for name in Configuration.__annotations__
                if name not in ("crashes", "latency", "journal")
            },
            crashes=3,
            latency=0.25,
            journal="delete",
        )
    )


@pytest.mark.parametrize("setting", [{"no_such": "1"}, {"crashes": "many"}])
def test_a_setting_that_is_not_understood_is_refused(setting: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"no_such|crashes"):
        override(Configuration(), setting)
