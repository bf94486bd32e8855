"""The whole service under a state machine, and whether that machine finds a bug that is planted."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.internal.conjecture import engine
from hypothesis.stateful import run_state_machine_as_test
from service_machine import ServiceMachine

from session_query.history.cursor import decode_cursor
from session_query.history.request import SearchRequest
from session_query.simulations.verdict import Violation
from session_query.storage import index

MOST_RULES = 10
SHRINKING_SECONDS = 10

TestServiceMachine = ServiceMachine.TestCase
TestServiceMachine.settings = settings(
    max_examples=60,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


def script_of(error: BaseException) -> list[str]:
    """The rules that Hypothesis reports, without what begins, ends and checks the script."""
    lines = "\n".join(error.__notes__).splitlines()
    calls = [line for line in lines if line.startswith("state.")]
    frame = ("state.begin(", "state.teardown(", "state.every_answer_can_be_explained(")
    return [call for call in calls if not call.startswith(frame)]


def test_a_cursor_that_outlives_its_generation_is_found_and_shrunk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def offset(request: SearchRequest, instance: str, generation: str) -> int:
        place = decode_cursor(request, instance)
        return 0 if place is None else place[1]

    monkeypatch.setattr(index, "_offset", offset)
    # What is found and made smaller within this time is small enough; left alone, Hypothesis goes
    # on for minutes to make numbers smaller that say nothing.
    monkeypatch.setattr(engine, "MAX_SHRINKING_SECONDS", SHRINKING_SECONDS)
    with pytest.raises(Violation) as caught:
        run_state_machine_as_test(
            ServiceMachine,
            settings=settings(
                max_examples=300,
                stateful_step_count=20,
                deadline=None,
                derandomize=True,
                database=None,
                phases=[Phase.generate, Phase.shrink],
                report_multiple_bugs=False,
                suppress_health_check=[HealthCheck.too_slow],
            ),
        )
    script = script_of(caught.value)
    assert 1 <= len(script) <= MOST_RULES, script
    assert script[-1].startswith("state.page(")
