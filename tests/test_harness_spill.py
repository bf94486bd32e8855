"""Spilling: which results are bounded, what stays of them, and what happens where that fails."""

from __future__ import annotations

import logging

import pytest
from attrs import define, evolve, field
from harness_world import CALLER, Workshop, call
from hypothesis import given, settings
from hypothesis import strategies as st
from inline_runtime import InlineRuntime

from session_query.harness.execution import Execution, Place, Proceed
from session_query.harness.outcome import Outcome, Verdict
from session_query.harness.preview import shortened
from session_query.harness.registry import ToolRegistry
from session_query.harness.spill import Spill
from session_query.messages.config import SpillConfig
from session_query.storage.spill_files import Spilled
from session_query.tools.definition import Caller, ToolError

LIMIT = 200
KEPT = Spilled("/kept/here", "read it")


@define(eq=False)
class Shelf:
    """A spill store that shows what it was given."""

    failure: Exception | None = None
    kept: list[tuple[str, str, str, bytes]] = field(factory=list, init=False)

    def save(self, owner: str, name: str, unique: str, content: bytes) -> Spilled:
        if self.failure is not None:
            raise self.failure
        self.kept.append((owner, name, unique, content))
        return KEPT


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


def spill(shelf: Shelf, limit: int = LIMIT) -> Spill:
    return Spill(SpillConfig(max_inline_bytes=limit), shelf, InlineRuntime())


def saying(text: str, name: str = "work") -> ToolRegistry:
    async def answer() -> str:
        return text

    tools = ToolRegistry()
    tools.register(Workshop().tool(name, answer=answer))
    return tools


def size(outcome: Outcome) -> int:
    return len(outcome.text.encode())


async def test_without_the_policy_every_result_stays_whole() -> None:
    assert size(await saying("x" * 10**6).call(call())) == 10**6


async def test_a_long_result_is_kept_whole_and_replaced_within_the_limit(shelf: Shelf) -> None:
    whole = "".join(f"line {number}\n" for number in range(300))
    tools = saying(whole)
    tools.wrap(spill(shelf).policy, Place.SPILL)
    outcome = await tools.call(call())
    assert shelf.kept == [("s", "work.txt", "session-1", whole.encode())]
    assert size(outcome) == LIMIT
    assert outcome.spilled == KEPT
    assert outcome.structured == {"name": "work"}
    preview, notice = outcome.text.rsplit("\n\n", 1)
    head, tail = preview.split("\n[...]\n")
    assert whole.startswith(head) and whole.endswith(tail)
    left_out = len(whole) - len(head) - len(tail)
    assert notice == f"({left_out} bytes left out; the whole result: /kept/here; read it)"


async def test_a_result_of_just_the_limit_stays_as_it_is(shelf: Shelf) -> None:
    tools = saying("é" * (LIMIT // 2))
    tools.wrap(spill(shelf).policy, Place.SPILL)
    assert (await tools.call(call())).text == "é" * (LIMIT // 2)
    assert shelf.kept == []


async def test_the_limit_counts_bytes_and_not_characters(shelf: Shelf) -> None:
    tools = saying("é" * (LIMIT // 2) + "x")
    tools.wrap(spill(shelf).policy, Place.SPILL)
    outcome = await tools.call(call())
    assert outcome.spilled == KEPT
    assert size(outcome) <= LIMIT


@pytest.mark.parametrize("limit", [0, 30])
async def test_a_result_stays_whole_where_not_even_the_notice_fits(
    shelf: Shelf, limit: int
) -> None:
    tools = saying("x" * 1000)
    tools.wrap(spill(shelf, limit).policy, Place.SPILL)
    outcome = await tools.call(call())
    assert (outcome.text, outcome.spilled) == ("x" * 1000, None)


async def test_the_tool_that_reads_what_was_kept_is_never_shortened(shelf: Shelf) -> None:
    tools = saying("x" * 1000, name="read")
    tools.wrap(spill(shelf).policy, Place.SPILL)
    assert size(await tools.call(call("read"))) == 1000
    assert shelf.kept == []


async def test_the_result_of_a_nested_call_stays_whole(shelf: Shelf) -> None:
    tools = saying("x" * 1000)
    tools.wrap(spill(shelf).policy, Place.SPILL)
    assert size(await tools.call(call(parent="outer"))) == 1000
    assert shelf.kept == []


@pytest.mark.parametrize("name", ["work", "read"])
async def test_the_logged_copy_of_a_nested_result_is_bounded_for_every_tool(
    shelf: Shelf, name: str
) -> None:
    copy = await spill(shelf).for_log(call(name, parent="outer"), Outcome("x" * 1000))
    assert LIMIT - 1 <= size(copy) <= LIMIT
    assert shelf.kept == [("s", f"{name}.txt", "session-1", b"x" * 1000)]


async def test_a_store_that_fails_leaves_the_result_whole_and_says_so_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tools = saying("x" * 1000)
    tools.wrap(spill(Shelf(OSError("disk full"))).policy, Place.SPILL)
    assert await tools.call(call()) == Outcome("x" * 1000, {"name": "work"})
    assert "disk full" in caplog.text
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


@pytest.mark.parametrize("caller", [None, Caller.of_workspace("/work")])
async def test_a_result_that_belongs_to_nobody_stays_whole(
    shelf: Shelf, caller: Caller | None, caplog: pytest.LogCaptureFixture
) -> None:
    tools = saying("x" * 1000)
    tools.wrap(spill(shelf).policy, Place.SPILL)
    assert size(await tools.call(call(caller=caller))) == 1000
    assert "belongs to nobody" in caplog.text


async def test_a_host_may_name_another_owner(shelf: Shelf) -> None:
    tools = saying("x" * 1000)
    bounded = Spill(
        SpillConfig(max_inline_bytes=LIMIT), shelf, InlineRuntime(), lambda _call: "server"
    )
    tools.wrap(bounded.policy, Place.SPILL)
    await tools.call(call(caller=None))
    assert [owner for owner, _name, _unique, _content in shelf.kept] == ["server"]


async def test_spilling_sees_what_all_other_policies_have_left_and_keeps_their_contexts(
    shelf: Shelf,
) -> None:
    async def annotate(_execution: Execution, proceed: Proceed) -> Outcome:
        outcome = await proceed()
        return evolve(outcome, text=outcome.text + "!" * 1000, contexts=("mind this",))

    tools = saying("short")
    tools.wrap(spill(shelf).policy, Place.SPILL)
    tools.wrap(annotate)
    outcome = await tools.call(call())
    assert outcome.contexts == ("mind this",)
    assert outcome.text.startswith("short!")
    assert shelf.kept[0][3] == b"short" + b"!" * 1000


@pytest.mark.parametrize("verdict", [Verdict.REPLACED, Verdict.REFUSED])
async def test_what_a_policy_put_in_place_of_a_result_passes_through(
    shelf: Shelf, verdict: Verdict
) -> None:
    replacement = Outcome("y" * 1000, verdict=verdict)

    async def replace(_execution: Execution, _proceed: Proceed) -> Outcome:
        return replacement

    tools = saying("short")
    tools.wrap(spill(shelf).policy, Place.SPILL)
    tools.wrap(replace)
    assert await tools.call(call()) == replacement
    assert shelf.kept == []


async def test_a_long_error_is_bounded_and_stays_an_error(shelf: Shelf) -> None:
    async def fail() -> str:
        raise ToolError("LONG", "x" * 1000)

    tools = ToolRegistry()
    tools.register(Workshop().tool(answer=fail))
    tools.wrap(spill(shelf).policy, Place.SPILL)
    outcome = await tools.call(call())
    assert size(outcome) <= LIMIT
    assert outcome.fault is not None and outcome.spilled is not None


async def test_nothing_is_bounded_once_the_policy_is_disposed_of(shelf: Shelf) -> None:
    tools = saying("x" * 1000)
    tools.wrap(spill(shelf).policy, Place.SPILL).dispose()
    assert size(await tools.call(call(caller=CALLER))) == 1000


@settings(max_examples=150)
@given(
    text=st.text(st.sampled_from("aé登🦉\n"), min_size=20, max_size=300),
    limit=st.integers(0, 200),
    locator=st.text(st.sampled_from("/aé"), max_size=20),
)
def test_a_preview_is_both_ends_of_the_text_and_never_above_the_limit(
    text: str, limit: int, locator: str
) -> None:
    content = text.encode()
    limit = min(limit, len(content) - 1)
    spilled = Spilled(locator, "read it")
    shown = shortened(content, limit, spilled)
    least = f"({len(content)} bytes left out; the whole result: {locator}; read it)"
    if shown is None:
        assert len(least.encode()) > limit
        return
    assert len(shown.encode()) <= limit
    if "\n[...]\n" in shown:
        preview, notice = shown.rsplit("\n\n(", 1)
        head, tail = preview.split("\n[...]\n")
        left_out = len(content) - len((head + tail).encode())
        assert notice.startswith(f"{left_out} bytes")
        assert text.startswith(head) and text.endswith(tail)
        assert len(head.encode()) + 8 >= len(tail.encode())
    else:
        assert shown == least
