"""Checkpoints: what is stored before a step, a request and a tool, and what a failure stops."""

from __future__ import annotations

import pytest
import trio
from actor_world import World, message
from harness_world import Workshop, call, code
from inline_runtime import lasting
from trio.testing import MockClock

from session_query.harness.checkpoints import Checkpoints
from session_query.harness.execution import Place
from session_query.harness.registry import ToolRegistry
from session_query.messages.errors import LiveErrorCode, LiveSessionError
from session_query.storage.contract import StoreFailed


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def shop() -> Workshop:
    return Workshop()


def registry(world: World, shop: Workshop) -> ToolRegistry:
    tools = ToolRegistry()
    tools.register(shop.tool())
    tools.wrap(Checkpoints(world.sessions).policy, Place.CHECKPOINT)
    return tools


async def test_all_events_are_stored_when_a_step_or_a_model_request_may_begin(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.sessions.create(id="s") as live:
        await live.commit(message("a"), message("b"))
        await Checkpoints(world.sessions).store("s")
        assert len(world.store.stored("s")) == 2


async def test_a_failed_store_stops_the_step_or_the_model_request(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.sessions.create(id="s") as live:
        await live.commit(message("a"))
        world.store.append_failures.append(StoreFailed("disk full"))
        with pytest.raises(LiveSessionError) as refusal:
            await Checkpoints(world.sessions).store("s")
        assert refusal.value.code is LiveErrorCode.NOT_STORED


async def test_all_events_are_stored_before_the_body_of_a_top_level_tool(
    autojump_clock: MockClock, world: World
) -> None:
    stored: list[int] = []

    async def look() -> str:
        stored.append(len(world.store.stored("s")))
        return "seen"

    tools = ToolRegistry()
    tools.register(Workshop().tool(answer=look))
    tools.wrap(Checkpoints(world.sessions).policy, Place.CHECKPOINT)
    async with world.sessions.create(id="s") as live:
        await live.commit(message("a"), message("b"))
        assert (await tools.call(call())).text == "seen"
    assert stored == [2]


async def test_a_failed_store_stops_the_tool_and_tells_the_model_without_details(
    autojump_clock: MockClock, world: World, shop: Workshop, caplog: pytest.LogCaptureFixture
) -> None:
    async with world.sessions.create(id="s") as live:
        await live.commit(message("a"))
        world.store.append_failures.append(StoreFailed("disk full at /secret"))
        outcome = await registry(world, shop).call(call())
    assert code(outcome) == "HISTORY_NOT_STORED"
    assert "/secret" not in outcome.text and "/secret" in caplog.text
    assert shop.story == []


async def test_a_cancellation_while_history_is_stored_stops_the_tool(
    autojump_clock: MockClock, world: World, shop: Workshop
) -> None:
    world.runtime.pace = lasting(3)
    async with world.sessions.create(id="s") as live:
        await live.commit(message("a"))
        execution = registry(world, shop).execution(call())
        with trio.move_on_after(1) as scope:
            await execution.run()
        assert scope.cancelled_caught
        assert code(execution.if_cancelled) == "ABORTED_BEFORE_DISPATCH"
        assert shop.story == []


async def test_a_nested_call_is_covered_by_the_checkpoint_of_the_call_around_it(
    autojump_clock: MockClock, world: World, shop: Workshop
) -> None:
    async with world.sessions.create(id="s") as live:
        await live.commit(message("a"))
        await registry(world, shop).call(call(parent="outer"))
        assert world.store.stored("s") == ()


@pytest.mark.parametrize("session_id", ["elsewhere", ""])
async def test_a_session_that_is_not_live_has_nothing_to_store(
    world: World, session_id: str
) -> None:
    await Checkpoints(world.sessions).store(session_id)


async def test_a_call_without_a_caller_has_nothing_to_store(world: World, shop: Workshop) -> None:
    assert (await registry(world, shop).call(call(caller=None))).text == "work answers"
