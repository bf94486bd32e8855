"""The registry: names, arguments, errors and the order in which policies stand around a tool."""

from __future__ import annotations

import logging

import pytest
import trio
from harness_world import Workshop, call, code

from session_query.harness.execution import Execution, Place, Proceed
from session_query.harness.outcome import Fault, Outcome
from session_query.harness.prompt import PromptSections
from session_query.harness.registration import Registration
from session_query.harness.registry import ToolRegistry
from session_query.messages.errors import ErrorCode, SessionQueryError
from session_query.tools.definition import Arguments, Caller, Tool, ToolError, ToolResult


@pytest.fixture
def shop() -> Workshop:
    return Workshop()


@pytest.fixture
def tools() -> ToolRegistry:
    return ToolRegistry()


def failing(error: Exception) -> Tool:
    async def run(_caller: Caller | None, _arguments: Arguments) -> ToolResult:
        raise error

    return Tool("work", "", {"type": "object"}, {}, run)


async def test_a_call_gives_what_the_tool_answers(tools: ToolRegistry, shop: Workshop) -> None:
    tools.register(shop.tool())
    assert await tools.call(call()) == Outcome("work answers", {"name": "work"})


def test_tools_are_listed_in_the_order_of_registration(tools: ToolRegistry, shop: Workshop) -> None:
    for name in "bca":
        tools.register(shop.tool(name))
    assert [tool.name for tool in tools.tools] == ["b", "c", "a"]


def test_a_name_is_registered_once(tools: ToolRegistry, shop: Workshop) -> None:
    tools.register(shop.tool())
    with pytest.raises(SessionQueryError, match="'work' is registered already") as refusal:
        tools.register(shop.tool())
    assert refusal.value.code is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("limit", [1, 2**31 - 1, None])
def test_the_full_range_of_deadlines_is_accepted(
    tools: ToolRegistry, shop: Workshop, limit: int | None
) -> None:
    tools.register(shop.tool(timeout_ms=limit))
    assert [tool.timeout_ms for tool in tools.tools] == [limit]


@pytest.mark.parametrize("limit", [0, -1, 2**31, True])
def test_a_deadline_outside_the_range_registers_nothing(
    tools: ToolRegistry, shop: Workshop, limit: int
) -> None:
    with pytest.raises(SessionQueryError, match="timeout_ms of 'work' must be a whole number"):
        tools.register(shop.tool(timeout_ms=limit))
    assert tools.tools == ()


async def test_a_tool_is_gone_once_its_registration_is_disposed_of(
    tools: ToolRegistry, shop: Workshop
) -> None:
    with tools.register(shop.tool()) as registration:
        pass
    registration.dispose()
    assert code(await tools.call(call())) == "UNKNOWN_TOOL"
    tools.register(shop.tool())
    registration.dispose()  # long spent: what came after it stays
    assert len(tools.tools) == 1


async def test_a_call_on_its_way_outlives_the_registration(
    tools: ToolRegistry, shop: Workshop
) -> None:
    registration = tools.register(shop.tool())
    execution = tools.execution(call())
    registration.dispose()
    assert (await execution.run()).text == "work answers"


async def test_an_unknown_tool_is_told_by_its_quoted_name(tools: ToolRegistry) -> None:
    outcome = await tools.call(call("no\nsuch " + "x" * 500))
    assert outcome.text.startswith('Error: there is no tool "no\\nsuch xxx')
    assert len(outcome.text) < 200
    assert code(outcome) == "UNKNOWN_TOOL"


@pytest.mark.parametrize("arguments", [{"seconds": "soon"}, [], "{}", 3])
async def test_arguments_that_break_the_schema_never_reach_the_tool(
    tools: ToolRegistry, shop: Workshop, arguments: object
) -> None:
    tools.register(shop.tool())
    outcome = await tools.call(call(arguments=arguments))
    assert outcome.fault == Fault("ToolError", "INVALID_ARGS")
    assert outcome.text.startswith("Error: work: ")
    assert shop.story == []


async def test_a_cancelled_caller_is_told_so_ahead_of_a_fault_of_the_arguments(
    tools: ToolRegistry, shop: Workshop
) -> None:
    tools.register(shop.tool())
    execution = tools.execution(call(arguments=[]))
    with trio.CancelScope() as scope:
        scope.cancel()
        await execution.run()
    assert scope.cancelled_caught
    assert code(execution.if_cancelled) == "ABORTED_BEFORE_DISPATCH"


async def test_an_error_of_a_tool_is_a_text_with_a_name_and_a_code(tools: ToolRegistry) -> None:
    class TooColdError(ToolError):
        pass

    tools.register(failing(TooColdError("TOO_COLD", "warm it up first")))
    outcome = await tools.call(call())
    assert outcome.text == "Error: warm it up first"
    assert outcome.fault == Fault("TooColdError", "TOO_COLD")


async def test_an_error_that_nobody_foresaw_is_told_to_the_log_alone(
    tools: ToolRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    tools.register(failing(ValueError("the password is 1234")))
    outcome = await tools.call(call())
    assert code(outcome) == "TOOL_FAILED"
    assert "1234" not in outcome.text
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.exc_info is not None and "1234" in str(record.exc_info[1])


async def test_no_outcome_holds_a_lone_surrogate(tools: ToolRegistry) -> None:
    tools.register(failing(ToolError("X", "half \ud83d")))
    assert (await tools.call(call())).text == "Error: half \N{REPLACEMENT CHARACTER}"
    assert Outcome("\udc00").text == "\N{REPLACEMENT CHARACTER}"


async def test_policies_stand_in_their_places_whatever_the_order_of_registration(
    tools: ToolRegistry, shop: Workshop
) -> None:
    tools.register(shop.tool())
    tools.wrap(shop.policy("deadline"), Place.DEADLINE)
    tools.wrap(shop.policy("host 1"))
    tools.wrap(shop.policy("spill"), Place.SPILL)
    tools.wrap(shop.policy("host 2"))
    tools.wrap(shop.policy("checkpoint"), Place.CHECKPOINT)
    await tools.call(call())
    order = ["spill", "host 1", "host 2", "checkpoint", "deadline"]
    assert shop.story == [
        *(f"into {name}" for name in order),
        "work begins",
        "work ends",
        *(f"out of {name}" for name in reversed(order)),
    ]


async def test_a_policy_is_gone_once_its_registration_is_disposed_of(
    tools: ToolRegistry, shop: Workshop
) -> None:
    tools.register(shop.tool())
    first, again = (tools.wrap(policy) for policy in [shop.policy("a")] * 2)
    again.dispose()
    first.dispose()
    await tools.call(call())
    assert shop.story == ["work begins", "work ends"]


async def test_what_a_policy_raises_leaves_the_call(tools: ToolRegistry, shop: Workshop) -> None:
    async def broken(_execution: Execution, _proceed: Proceed) -> Outcome:
        raise ZeroDivisionError

    tools.register(shop.tool())
    tools.wrap(broken)
    with pytest.raises(ZeroDivisionError):
        await tools.call(call())


async def test_an_answer_that_a_policy_was_still_looking_at_is_kept_on_cancellation(
    tools: ToolRegistry, shop: Workshop
) -> None:
    async def forever(_execution: Execution, proceed: Proceed) -> Outcome:
        await proceed()
        scope.cancel()
        return await trio.sleep_forever()

    tools.register(shop.tool())
    tools.wrap(forever)
    execution = tools.execution(call())
    with trio.CancelScope() as scope:
        await execution.run()
    assert execution.if_cancelled.text == "work answers"


def test_sections_of_the_prompt_stand_in_their_order_and_leave_when_they_are_disposed_of() -> None:
    prompt = PromptSections()
    assert prompt.text == ""
    prompt.add("b", "second")
    last = prompt.add("c", "last", order=113)
    prompt.add("a", "first")
    assert prompt.text == "first\n\nsecond\n\nlast"
    last.dispose()
    assert prompt.text == "first\n\nsecond"


def test_a_section_of_the_prompt_has_a_name_of_its_own() -> None:
    prompt = PromptSections()
    prompt.add("a", "first")
    with pytest.raises(SessionQueryError, match="has a section 'a' already"):
        prompt.add("a", "other", order=5)


def test_a_registration_undoes_once() -> None:
    undone: list[int] = []
    with Registration(lambda: undone.append(1)) as registration:
        registration.dispose()
    assert undone == [1]
