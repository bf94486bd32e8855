"""The scheduler: who runs beside whom, the order of answers, and what a stopped turn leaves."""

from __future__ import annotations

import pytest
import trio
from harness_world import Workshop, call, code
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from session_query.harness.deadlines import deadline
from session_query.harness.execution import Execution, Place, Proceed
from session_query.harness.outcome import Outcome
from session_query.harness.registry import ToolRegistry
from session_query.harness.scheduler import Scheduler
from session_query.messages.config import SchedulerConfig
from session_query.messages.json import Json
from session_query.tools.definition import Arguments, Caller, Tool, ToolResult


@pytest.fixture
def shop() -> Workshop:
    return Workshop()


@pytest.fixture
def tools(shop: Workshop) -> ToolRegistry:
    """Parallel tools p, q and r, and exclusive tools x and y."""
    registry = ToolRegistry()
    for name in "pqr":
        registry.register(shop.tool(name, parallel=True))
    for name in "xy":
        registry.register(shop.tool(name))
    return registry


def lasting(seconds: float) -> dict[str, Json]:
    return {"seconds": seconds}


async def test_parallel_calls_run_side_by_side(
    autojump_clock: MockClock, tools: ToolRegistry
) -> None:
    await Scheduler(tools).run(
        [call("p", lasting(1)), call("q", lasting(1)), call("r", lasting(1))]
    )
    assert trio.current_time() == 1


async def test_an_exclusive_call_runs_alone(
    autojump_clock: MockClock, tools: ToolRegistry, shop: Workshop
) -> None:
    names = "pqxyr"
    await Scheduler(tools).run([call(name, lasting(1)) for name in names])
    assert trio.current_time() == 4
    assert set(shop.story[:2]) == {"p begins", "q begins"}
    assert shop.story[4:] == [f"{name} {what}" for name in "xyr" for what in ("begins", "ends")]


async def test_answers_stand_in_the_order_of_the_calls(
    autojump_clock: MockClock, tools: ToolRegistry
) -> None:
    outcomes = await Scheduler(tools).run(
        [call("p", lasting(3)), call("q", lasting(1)), call("x"), call("nothing"), call("r")]
    )
    assert [outcome.text.split()[0] for outcome in outcomes] == ["p", "q", "x", "Error:", "r"]


async def test_a_turn_without_calls_has_no_answers(tools: ToolRegistry) -> None:
    assert await Scheduler(tools).run([]) == ()


async def test_no_more_calls_run_side_by_side_than_allowed_and_they_begin_in_order(
    autojump_clock: MockClock, tools: ToolRegistry
) -> None:
    begun: list[str] = []
    running = most = 0

    async def counting(execution: Execution, proceed: Proceed) -> Outcome:
        nonlocal running, most
        begun.append(execution.call.id)
        running += 1
        most = max(most, running)
        outcome = await proceed()
        running -= 1
        return outcome

    tools.wrap(counting)
    ids = [f"{number:02}" for number in range(20)]
    calls = [call("p", lasting(1 + int(id) % 3), id=id) for id in ids]
    await Scheduler(tools, SchedulerConfig(parallel_limit=3)).run(calls)
    assert (begun, most) == (ids, 3)


@pytest.mark.parametrize("answer", [1, None, "yes"])
async def test_only_a_plain_true_makes_a_call_parallel(answer: object) -> None:
    assert not ToolRegistry().execution(call()).parallel
    registry = ToolRegistry()

    async def run(_caller: Caller | None, _arguments: Arguments) -> ToolResult:
        raise NotImplementedError

    def predicate(_arguments: Arguments) -> bool:
        return answer  # type: ignore[return-value]

    registry.register(Tool("work", "", {"type": "object"}, {}, run, parallel=predicate))
    assert not registry.execution(call()).parallel


def test_a_tool_that_fails_to_say_whether_it_is_parallel_is_exclusive(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run(_caller: Caller | None, _arguments: Arguments) -> ToolResult:
        raise NotImplementedError

    def predicate(_arguments: Arguments) -> bool:
        raise KeyError("path")

    registry = ToolRegistry()
    registry.register(Tool("work", "", {"type": "object"}, {}, run, parallel=predicate))
    assert not registry.execution(call()).parallel
    assert "work cannot say" in caplog.text


def test_arguments_that_break_the_schema_make_a_parallel_call_exclusive(
    tools: ToolRegistry,
) -> None:
    assert tools.execution(call("p", lasting(-1))).parallel
    assert not tools.execution(call("p", {"seconds": "soon"})).parallel


async def test_a_stopped_turn_answers_every_call(
    autojump_clock: MockClock, tools: ToolRegistry, shop: Workshop
) -> None:
    scope = trio.CancelScope(deadline=trio.current_time() + 2)
    outcomes = await Scheduler(tools).run(
        [call("p", lasting(1)), call("q", lasting(3)), call("x"), call("r")], scope
    )
    assert [code(outcome) for outcome in outcomes] == [
        None,
        "ABORTED",
        "ABORTED_BEFORE_DISPATCH",
        "ABORTED_BEFORE_DISPATCH",
    ]
    assert shop.story[-1] == "q is cancelled"


async def test_a_turn_that_is_stopped_beforehand_begins_nothing_and_looks_at_no_argument(
    tools: ToolRegistry, shop: Workshop
) -> None:
    scope = trio.CancelScope()
    scope.cancel()
    outcomes = await Scheduler(tools).run([call("x", []), call("nothing"), call("p")], scope)
    assert {code(outcome) for outcome in outcomes} == {"ABORTED_BEFORE_DISPATCH"}
    assert shop.story == []


async def test_a_stopped_turn_waits_for_what_runs(
    autojump_clock: MockClock, tools: ToolRegistry, shop: Workshop
) -> None:
    tools.register(shop.tool("slow", cleanup=5))
    await Scheduler(tools).run(
        [call("slow", lasting(9))], trio.CancelScope(deadline=trio.current_time() + 1)
    )
    assert trio.current_time() == 6
    assert shop.story == ["slow begins", "slow is cancelled"]


async def test_an_answer_that_was_given_before_the_stop_stands(
    autojump_clock: MockClock, tools: ToolRegistry, shop: Workshop
) -> None:
    scope = trio.CancelScope()

    async def stop() -> str:
        scope.cancel()
        return "done all the same"

    tools.register(shop.tool("last", answer=stop))
    outcomes = await Scheduler(tools).run([call("last"), call("x")], scope)
    assert [outcome.text[:17] for outcome in outcomes] == ["done all the same", "Error: the turn w"]


async def test_the_callers_own_cancellation_leaves_bare(
    autojump_clock: MockClock, tools: ToolRegistry, shop: Workshop
) -> None:
    with trio.move_on_after(1) as outside, pytest.RaisesExc(trio.Cancelled):
        await Scheduler(tools).run([call("p", lasting(5)), call("q", lasting(5))])
    assert outside.cancel_called
    assert sorted(shop.story[2:]) == ["p is cancelled", "q is cancelled"]


async def test_a_policy_that_breaks_ends_the_turn_with_its_own_error(
    autojump_clock: MockClock, tools: ToolRegistry, shop: Workshop
) -> None:
    async def broken(execution: Execution, proceed: Proceed) -> Outcome:
        if execution.call.name == "q":
            raise ZeroDivisionError
        return await proceed()

    tools.wrap(broken)
    with pytest.raises(ZeroDivisionError):
        await Scheduler(tools).run([call("p", lasting(5)), call("q")])
    assert trio.current_time() == 0


async def test_a_timeout_stays_one_when_the_turn_is_stopped_while_the_tool_cleans_up(
    autojump_clock: MockClock, shop: Workshop
) -> None:
    tools = ToolRegistry()
    tools.wrap(deadline, Place.DEADLINE)
    tools.register(shop.tool(timeout_ms=1000, cleanup=4))
    scope = trio.CancelScope(deadline=trio.current_time() + 3)
    (outcome,) = await Scheduler(tools).run([call(arguments=lasting(9))], scope)
    assert scope.cancelled_caught
    assert code(outcome) == "TOOL_TIMEOUT"


async def test_a_stop_stays_one_when_the_deadline_passes_while_the_tool_cleans_up(
    autojump_clock: MockClock, shop: Workshop
) -> None:
    tools = ToolRegistry()
    tools.wrap(deadline, Place.DEADLINE)
    tools.register(shop.tool(timeout_ms=3000, cleanup=4))
    scope = trio.CancelScope(deadline=trio.current_time() + 1)
    (outcome,) = await Scheduler(tools).run([call(arguments=lasting(9))], scope)
    assert trio.current_time() == 5
    assert code(outcome) == "ABORTED"


@settings(max_examples=60)
@given(
    calls=st.lists(st.tuples(st.sampled_from("pqrxy"), st.integers(0, 3)), max_size=12),
    limit=st.integers(1, 4),
)
def test_whatever_the_turn_no_exclusive_call_meets_another(
    calls: list[tuple[str, int]], limit: int
) -> None:
    shop, tools = Workshop(), ToolRegistry()
    for name in "pqrxy":
        tools.register(shop.tool(name, parallel=name in "pqr"))
    turn = [call(name, lasting(seconds)) for name, seconds in calls]
    scheduler = Scheduler(tools, SchedulerConfig(parallel_limit=limit))
    outcomes = trio.run(scheduler.run, turn, clock=MockClock(autojump_threshold=0))
    assert [outcome.text[0] for outcome in outcomes] == [name for name, _seconds in calls]
    running: list[str] = []
    for name, what in (line.split() for line in shop.story):
        if what == "begins":
            assert not (running and ({name, *running} & {"x", "y"}))
            running.append(name)
        else:
            running.remove(name)
        assert len(running) <= limit
