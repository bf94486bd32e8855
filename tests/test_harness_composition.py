"""The kit as a whole: what a configuration mounts, and that all of it goes again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from actor_world import cancelled_everywhere, message
from attrs import evolve
from harness_world import Workshop, call, code
from inline_runtime import InlineRuntime, lasting
from service_world import session, store_of
from trio.testing import MockClock

from session_query.actors.composition import open_session_query
from session_query.harness.composition import mount_session_tools, open_harness
from session_query.harness.configuration import Configuration
from session_query.harness.prompt import PromptSections
from session_query.harness.registry import ToolRegistry
from session_query.messages.config import QueryConfig, SpillConfig, StoreConfig, ToolsConfig
from session_query.messages.errors import SessionQueryError
from session_query.storage.contract import SessionStore
from session_query.storage.memory import MemoryStore
from session_query.tools.definition import Caller

FIVE = [
    "session_search",
    "session_event_search",
    "session_trace",
    "session_event_trace",
    "session_event_read",
]
EVERYTHING = Configuration(tools=ToolsConfig(), spill=SpillConfig(max_inline_bytes=1000))
CALLER = Caller("s", "/work")


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files, the test's alone."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def long_session() -> SessionStore:
    return store_of(session("old", "a needle in " + "hay " * 2000))


async def test_nothing_is_offered_that_is_not_asked_for(temporary: Path) -> None:
    async with open_harness(Configuration()) as kit:
        assert (kit.tools.tools, kit.prompt.text, kit.spill) == ((), "", None)
        assert list(temporary.iterdir()) == []


async def test_the_five_tools_come_in_their_order_with_their_prompt_section() -> None:
    async with open_harness(EVERYTHING) as kit:
        assert [tool.name for tool in kit.tools.tools] == FIVE
        assert all(name in kit.prompt.text for name in FIVE)


async def test_only_the_searches_have_a_deadline_and_the_configured_one() -> None:
    configuration = Configuration(tools=ToolsConfig(search_timeout_ms=2**31 - 1))
    async with open_harness(configuration) as kit:
        limits = [tool.timeout_ms for tool in kit.tools.tools]
    assert limits == [2**31 - 1, 2**31 - 1, None, None, None]


async def test_searches_are_exclusive_and_exact_reads_parallel() -> None:
    arguments = {"query": "x", "seq": -1}
    async with open_harness(EVERYTHING) as kit:
        parallel = [kit.tools.execution(call(name, arguments)).parallel for name in FIVE]
    assert parallel == [False, False, True, True, True]


async def test_all_that_was_mounted_is_gone_afterwards(temporary: Path) -> None:
    async with open_harness(EVERYTHING) as kit:
        assert len(list(temporary.iterdir())) == 1
    assert (kit.tools.tools, kit.prompt.text) == ((), "")
    assert kit.query.statistics().closed
    assert list(temporary.iterdir()) == []


async def test_a_hosts_own_tools_and_policies_stay_its_own(temporary: Path) -> None:
    shop = Workshop()
    async with open_harness(EVERYTHING) as kit:
        kit.tools.register(shop.tool())
        kit.tools.wrap(shop.policy("host"))
    await kit.tools.call(call())
    assert shop.story == ["into host", "work begins", "work ends", "out of host"]


async def test_disposing_of_the_session_tools_removes_them_and_their_section() -> None:
    async with open_session_query() as query:
        tools, prompt = ToolRegistry(), PromptSections()
        tools.register(Workshop().tool())
        mounted = mount_session_tools(tools, prompt, query)
        assert len(tools.tools) == 6
        mounted.dispose()
        assert ([tool.name for tool in tools.tools], prompt.text) == (["work"], "")


@pytest.mark.parametrize("taken", ["session_event_read", "tool:session-query"])
async def test_a_name_that_is_taken_leaves_nothing_registered(taken: str) -> None:
    async with open_session_query() as query:
        tools, prompt = ToolRegistry(), PromptSections()
        if taken.startswith("tool:"):
            prompt.add(taken, "mine")
        else:
            tools.register(Workshop().tool(taken))
        before = (tools.tools, prompt.text)
        with pytest.raises(SessionQueryError, match=taken):
            mount_session_tools(tools, prompt, query)
        assert (tools.tools, prompt.text) == before


async def test_a_long_read_becomes_a_preview_and_a_private_file(temporary: Path) -> None:
    async with open_harness(EVERYTHING, store=long_session()) as kit:
        read = call("session_event_read", {"session_id": "old", "seq": 0}, caller=CALLER)
        outcome = await kit.tools.call(read)
        assert outcome.fault is None and outcome.spilled is not None
        assert len(outcome.text.encode()) <= 1000
        kept = Path(outcome.spilled.locator)
        assert kept.is_relative_to(temporary)
        assert kept.stat().st_mode & 0o777 == 0o600
        assert kept.read_text("utf-8").count("hay ") >= 2000
        assert outcome.text.endswith(f"{kept}; {outcome.spilled.hint})")


async def test_a_named_folder_keeps_whole_results_beyond_the_host(tmp_path: Path) -> None:
    spill = SpillConfig(max_inline_bytes=1000, root=str(tmp_path / "kept"))
    configuration = evolve(EVERYTHING, spill=spill)
    async with open_harness(configuration, store=long_session()) as kit:
        read = call("session_event_read", {"session_id": "old", "seq": 0}, caller=CALLER)
        outcome = await kit.tools.call(read)
    assert outcome.spilled is not None
    assert os.path.exists(outcome.spilled.locator)


async def test_a_search_whose_index_takes_too_long_is_told_its_limit_after_it_settled(
    autojump_clock: MockClock, temporary: Path
) -> None:
    runtime = InlineRuntime(lasting(3))
    configuration = evolve(EVERYTHING, tools=ToolsConfig(search_timeout_ms=1000))
    async with open_harness(configuration, store=long_session(), runtime=runtime) as kit:
        outcome = await kit.tools.call(call("session_search", {"query": "x"}, caller=CALLER))
        assert code(outcome) == "TOOL_TIMEOUT"
        assert runtime.calls == 0


async def test_the_store_of_the_configuration_is_searched_together_with_live_sessions(
    tmp_path: Path,
) -> None:
    configuration = Configuration(store=StoreConfig(root=str(tmp_path)), tools=ToolsConfig())
    async with open_harness(configuration) as kit:
        async with kit.query.sessions.create(id="old", cwd="/work") as live:
            await live.commit(message("a needle"))
        async with kit.query.sessions.create(id="s", cwd="/work") as live:
            await live.commit(message("another needle"))
            found = await kit.tools.call(
                call("session_search", {"query": "needle"}, caller=Caller.of(live))
            )
    assert "old" in found.text
    assert found.structured is not None


async def test_functions_are_given_in_python(tmp_path: Path) -> None:
    query = QueryConfig(redact=lambda text: text.replace("needle", "***"))
    configuration = evolve(EVERYTHING, query=query)
    async with open_harness(configuration, store=long_session()) as kit:
        found = await kit.tools.call(call("session_search", {"query": "needle"}, caller=CALLER))
    assert "***" in found.text and "needle" not in found.text.replace('"needle"', "")


async def test_a_checkpoint_stands_before_every_tool_of_the_kit(tmp_path: Path) -> None:
    store = MemoryStore()
    async with (
        open_harness(EVERYTHING, store=store) as kit,
        kit.query.sessions.create(id="s", cwd="/work") as live,
    ):
        await live.commit(message("a"))
        await kit.tools.call(call("session_trace", {}, caller=Caller.of(live)))
        assert live.statistics().pending == 0
        assert live.stored.length == 1


def test_a_host_that_is_cancelled_anywhere_leaves_nothing_behind(temporary: Path) -> None:
    store = long_session()

    async def scenario() -> None:
        runtime = InlineRuntime()
        try:
            async with open_harness(EVERYTHING, store=store, runtime=runtime) as kit:
                read = call("session_event_read", {"session_id": "old", "seq": 0}, caller=CALLER)
                search = call("session_search", {"query": "needle"}, caller=CALLER)
                outcomes = await kit.scheduler.run([read, read, search])
                assert [code(outcome) for outcome in outcomes] == [None, None, None]
        finally:
            assert runtime.calls == 0
            assert list(temporary.iterdir()) == []

    assert cancelled_everywhere(scenario) > 8
