"""Deadlines: what a tool's time limit changes, and what it leaves alone."""

from __future__ import annotations

import pytest
import trio
from harness_world import Workshop, call, code
from trio.testing import MockClock

from session_query.harness.deadlines import deadline
from session_query.harness.execution import Execution, Place, Proceed
from session_query.harness.outcome import Fault, Outcome
from session_query.harness.registry import ToolRegistry
from session_query.tools.definition import ToolError


@pytest.fixture
def shop() -> Workshop:
    return Workshop()


@pytest.fixture
def tools() -> ToolRegistry:
    registry = ToolRegistry()
    registry.wrap(deadline, Place.DEADLINE)
    return registry


async def test_a_tool_without_a_limit_may_take_as_long_as_it_likes(
    autojump_clock: MockClock, tools: ToolRegistry, shop: Workshop
) -> None:
    tools.register(shop.tool())
    outcome = await tools.call(call(arguments={"seconds": 10**6}))
    assert (outcome.fault, trio.current_time()) == (None, 10**6)


async def test_a_call_within_its_limit_keeps_its_result_and_costs_no_further_time(
    autojump_clock: MockClock, tools: ToolRegistry, shop: Workshop
) -> None:
    tools.register(shop.tool(timeout_ms=2000))
    outcome = await tools.call(call(arguments={"seconds": 1}))
    assert (outcome.text, trio.current_time()) == ("work answers", 1)


async def test_a_call_beyond_its_limit_is_cancelled_awaited_and_told_the_limit(
    autojump_clock: MockClock, tools: ToolRegistry, shop: Workshop
) -> None:
    tools.register(shop.tool(timeout_ms=1500, cleanup=3))
    outcome = await tools.call(call(arguments={"seconds": 9}))
    assert outcome.fault == Fault("ToolTimeoutError", "TOOL_TIMEOUT")
    assert "1500 ms" in outcome.text
    assert trio.current_time() == 4.5
    assert shop.story == ["work begins", "work is cancelled"]


async def test_a_deadline_replaces_whatever_the_tool_answers_after_it(
    autojump_clock: MockClock, tools: ToolRegistry, shop: Workshop
) -> None:
    async def late() -> str:
        with trio.CancelScope(shield=True):
            await trio.sleep(2)
        return "late"

    tools.register(shop.tool(timeout_ms=1000, answer=late))
    assert code(await tools.call(call())) == "TOOL_TIMEOUT"


async def test_a_deadline_replaces_an_error_too(
    autojump_clock: MockClock, tools: ToolRegistry, shop: Workshop
) -> None:
    async def late() -> str:
        with trio.CancelScope(shield=True):
            await trio.sleep(2)
        raise ToolError("LATE", "too late")

    tools.register(shop.tool(timeout_ms=1000, answer=late))
    assert code(await tools.call(call())) == "TOOL_TIMEOUT"


async def test_an_error_within_the_limit_is_the_tools_own(
    autojump_clock: MockClock, tools: ToolRegistry, shop: Workshop
) -> None:
    async def soon() -> str:
        raise ToolError("SOON", "no")

    tools.register(shop.tool(timeout_ms=1000, answer=soon))
    assert code(await tools.call(call())) == "SOON"


async def test_the_limit_measures_the_tool_alone(
    autojump_clock: MockClock, tools: ToolRegistry, shop: Workshop
) -> None:
    limits: list[float] = []

    async def slow(_execution: Execution, proceed: Proceed) -> Outcome:
        await trio.sleep(5)
        outcome = await proceed()
        limits.append(trio.current_effective_deadline())
        await trio.sleep(5)
        return outcome

    tools.register(shop.tool(timeout_ms=1000))
    tools.wrap(slow)
    assert (await tools.call(call())).fault is None
    assert (trio.current_time(), limits) == (10, [trio.current_effective_deadline()])


async def test_a_caller_who_is_cancelled_first_leaves_bare(
    autojump_clock: MockClock, tools: ToolRegistry, shop: Workshop
) -> None:
    tools.register(shop.tool(timeout_ms=3000, cleanup=5))
    execution = tools.execution(call(arguments={"seconds": 9}))
    with trio.move_on_after(1) as scope:
        await execution.run()
    assert scope.cancelled_caught
    assert code(execution.if_cancelled) == "ABORTED"
