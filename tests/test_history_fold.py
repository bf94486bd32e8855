"""The surface fold (surface-fold.md, reference-tests.md A)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from builders import Log, assistant_data, text, tool_call, user_data
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import json_values, logs

from session_query.history.fold import SurfaceFold, fold_surface
from session_query.messages.errors import SurfaceError
from session_query.messages.event import Event, Replace
from session_query.messages.json import Json, encode
from session_query.messages.records import Surface


def nodes_of(log: Log, version: int = 2) -> list[int]:
    return list(fold_surface(log.events, version).nodes)


def refuse(log: Log, pattern: str, version: int = 2) -> None:
    with pytest.raises(SurfaceError, match=pattern):
        fold_surface(log.events, version)


def test_an_empty_log_has_no_nodes() -> None:
    assert nodes_of(Log()) == []


def test_appended_messages_stand_in_log_order_and_other_events_are_log_only() -> None:
    log = Log()
    log.turn_start()
    log.step_start()
    log.user("A")
    log.assistant(text("B"))
    log.step_end()
    folded = fold_surface(log.events, 2)
    assert folded.nodes == (2, 3)
    assert [folded.surface_of(seq) for seq in range(5)] == [
        Surface.LOG_ONLY,
        Surface.LOG_ONLY,
        Surface.CURRENT,
        Surface.CURRENT,
        Surface.LOG_ONLY,
    ]


def test_a_single_replacement_takes_the_position_of_its_node() -> None:
    log = Log()
    log.user("A")
    log.replace(0, 0, [0])
    log.assistant(text("B"))
    folded = fold_surface(log.events, 2)
    assert folded.nodes == (1, 2)
    assert folded.surface_of(0) is Surface.SHADOWED
    assert [(each.seq, each.start, each.end, each.shadowed) for each in folded.replacements] == [
        (1, 0, 0, (0,))
    ]


def test_a_range_is_positional_and_may_start_at_a_greater_seq() -> None:
    log = Log()
    log.user("one")
    log.assistant(text("two"))
    log.user("three")
    log.replace(0, 1, [0, 1])
    assert nodes_of(log) == [3, 2]
    log.assistant(text("four"))
    assert nodes_of(log) == [3, 2, 4]
    log.replace(3, 2, [3, 2])
    folded = fold_surface(log.events, 2)
    assert folded.nodes == (5, 4)
    assert folded.replacements[1].shadowed == (3, 2)
    shadowed = [seq for seq in range(6) if folded.surface_of(seq) is Surface.SHADOWED]
    assert shadowed == [0, 1, 2, 3]


def test_a_replacement_in_the_middle_keeps_the_order_around_it() -> None:
    log = Log()
    for value in "ABCD":
        log.user(value)
    log.replace(1, 2, [1, 2])
    assert nodes_of(log) == [0, 4, 3]


def test_a_replacement_may_cite_more_than_it_removes() -> None:
    log = Log()
    log.call("c")
    log.user("A", sources=[0])
    log.replace(1, 1, [1, 0])
    log.turn_end()
    log.replace(2, 2, [0, 2])
    folded = fold_surface(log.events, 2)
    assert folded.nodes == (4,)
    assert folded.surface_of(0) is Surface.LOG_ONLY


def test_a_tool_result_can_be_rewritten_in_its_content() -> None:
    log = Log()
    log.assistant(tool_call("c1"))
    log.call("c1")
    log.result("c1", "long")
    log.add("compaction/prune")
    log.rewrite(2, "c1", "short")
    folded = fold_surface(log.events, 2)
    assert folded.nodes == (0, 4)
    assert [seq for seq in range(5) if folded.surface_of(seq) is Surface.LOG_ONLY] == [1, 3]


def test_a_rewritten_tool_result_can_be_rewritten_again() -> None:
    log = Log()
    log.result("c", "long")
    log.rewrite(0, "c", "short")
    log.rewrite(1, "c", "gone")
    assert nodes_of(log) == [2]


@pytest.mark.parametrize(
    "changed",
    [
        {"is_error": True},
        {"meta": [1, 2]},
        {"error": {"name": "E", "code": "C"}},
        {"turn": 2},
        {"step": 2},
    ],
)
def test_a_rewrite_that_changes_more_than_content_is_refused(changed: dict[str, Json]) -> None:
    log = Log()
    log.result("c", "long")
    log.rewrite(0, "c", "short", **changed)
    refuse(log, "changes more than the content")


def test_a_rewrite_with_another_message_or_call_id_is_refused() -> None:
    log = Log()
    log.result("c", "long")
    log.rewrite(0, "d", "short")
    refuse(log, "changes more than the content")


@pytest.mark.parametrize(
    ("before", "after"),
    [([1, {"a": 2, "b": None}], [1.0, {"b": None, "a": 2}]), (10**22, 1e22), ({}, {})],
)
def test_a_rewrite_may_spell_equal_metadata_differently(before: Json, after: Json) -> None:
    log = Log()
    log.result("c", "long", meta=before)
    log.rewrite(0, "c", "short", meta=after)
    assert nodes_of(log) == [1]


@pytest.mark.parametrize(("before", "after"), [(True, 1), (None, False), ([1, 2], [2, 1])])
def test_a_rewrite_with_other_metadata_is_refused(before: Json, after: Json) -> None:
    log = Log()
    log.result("c", "long", meta=before)
    log.rewrite(0, "c", "short", meta=after)
    refuse(log, "changes more than the content")


def test_a_tool_result_cannot_replace_two_nodes() -> None:
    log = Log()
    log.result("c", "one")
    log.result("d", "two")
    log.add("tool/result", log.events[0].data, op=Replace(0, 1), sources=[0, 1])
    refuse(log, "replaces exactly one tool/result")


def test_a_tool_result_cannot_replace_another_type() -> None:
    log = Log()
    log.user("A")
    log.rewrite(0, "c", "short")
    refuse(log, "replaces exactly one tool/result")


def test_a_user_message_may_replace_tool_results() -> None:
    log = Log()
    log.result("c", "one")
    log.result("d", "two")
    log.replace(0, 1, [0, 1])
    assert nodes_of(log) == [2]


def test_a_replacement_without_sources_is_refused() -> None:
    log = Log()
    log.user("A")
    log.user("B", op=Replace(0, 0))
    refuse(log, "replaces 0 without citing")


def test_a_replacement_that_cites_too_little_names_what_is_missing() -> None:
    log = Log()
    for value in "ABC":
        log.user(value)
    log.replace(0, 2, [1])
    refuse(log, "replaces 0, 2 without citing")


@pytest.mark.parametrize(("start", "end"), [(0, 1), (1, 0), (0, 7), (2, 1), (3, 3)])
def test_a_bound_that_is_not_on_the_surface_is_refused(start: int, end: int) -> None:
    log = Log()
    log.user("A")
    log.replace(0, 0, [0])
    log.turn_start()
    log.replace(start, end, [0, 1])
    refuse(log, "is not on the surface")


def test_a_range_that_runs_backwards_is_refused() -> None:
    log = Log()
    log.user("A")
    log.assistant(text("B"))
    log.replace(1, 0, [0, 1])
    refuse(log, "1 stands after 0")


def test_a_log_only_type_with_a_surface_operation_is_refused() -> None:
    log = Log()
    log.add("turn/start", op="append")
    refuse(log, "must not carry surfaceOp")


def test_a_log_only_type_with_sources_is_refused() -> None:
    log = Log()
    log.user("A")
    log.add("tool/call", sources=[0])
    refuse(log, "must not carry sourceEventSeqs")


def test_a_surface_type_without_an_operation_is_refused() -> None:
    log = Log()
    log.add("user/message", user_data("A"))
    refuse(log, "lacks a surfaceOp")


@pytest.mark.parametrize(
    "op",
    ["prepend", ["append"], Replace(-1, 0), Replace(0, True), Replace(0.5, 0)],  # type: ignore[arg-type]
)
def test_a_malformed_operation_is_refused(op: object) -> None:
    event = Event("user/message", 0, 0, encode(user_data("A")), op)  # type: ignore[arg-type]
    with pytest.raises(SurfaceError, match="surfaceOp"):
        fold_surface([event], 2)


@pytest.mark.parametrize(
    ("sources", "pattern"),
    [
        ("0", "must be an array"),
        ((), "must not be empty"),
        ((0, None), "must hold seqs"),
        ((0, True), "must hold seqs"),
        ((0.0,), "must hold seqs"),
        ((-1,), "must hold seqs"),
        ((0, 0), "cites a seq twice"),
        ((1,), "is not an earlier event"),
        ((0, 2), "is not an earlier event"),
    ],
)
def test_malformed_sources_are_refused(sources: object, pattern: str) -> None:
    log = Log()
    log.user("A")
    raw = encode(user_data("B"))
    log.events.append(Event("user/message", 1, 0, raw, "append", sources))  # type: ignore[arg-type]
    refuse(log, pattern)


def test_missing_sources_and_valid_sources_are_accepted() -> None:
    log = Log()
    log.user("A")
    log.turn_start()
    log.user("B", sources=[1, 0])
    assert nodes_of(log) == [0, 2]


@pytest.mark.parametrize("sources", [[], [0]])
def test_only_old_formats_let_an_assistant_message_cite_sources(sources: list[int]) -> None:
    log = Log()
    log.user("A")
    log.add("assistant/message", assistant_data(text("B")), op="append", sources=sources)
    assert nodes_of(log, version=0) == nodes_of(log, version=1) == [0, 1]
    refuse(log, "must not stand on an assistant/message", version=2)


def test_an_assistant_message_cannot_replace_anything_in_format_2() -> None:
    log = Log()
    log.user("A")
    log.add("assistant/message", assistant_data(text("B")), op=Replace(0, 0), sources=[0])
    refuse(log, "must not stand on an assistant/message")


def test_an_old_assistant_message_with_empty_sources_cites_nothing() -> None:
    log = Log()
    log.user("A")
    log.add("assistant/message", assistant_data(text("B")), op=Replace(0, 0), sources=[])
    refuse(log, "without citing", version=0)


@pytest.mark.parametrize("bad", ["gap", "eligibility", "range", "provenance"])
def test_the_first_broken_rule_is_the_one_reported(bad: str) -> None:
    log = Log()
    log.user("A")
    wrong_sources = (5, 5)
    events = {
        "gap": (Event("turn/start", 2, 0, b"{}", "append"), "seq 1 is due"),
        "eligibility": (Event("turn/start", 1, 0, b"{}", "append", (0,)), "surfaceOp"),
        "range": (Event("user/message", 1, 0, b"{}", Replace(9, 9), wrong_sources), "surface"),
        "provenance": (Event("user/message", 1, 0, b"{}", Replace(0, 0), wrong_sources), "twice"),
    }
    event, pattern = events[bad]
    log.events.append(event)
    refuse(log, pattern)


def test_a_system_message_is_on_the_surface_from_format_3_on() -> None:
    log = Log()
    log.add("system/message", op="append")
    log.user("A")
    assert nodes_of(log, version=3) == [0, 1]
    refuse(log, "must not carry surfaceOp", version=2)


@pytest.mark.parametrize(
    ("event_type", "end"), [("user/message", 0), ("user/message", 1), ("system/message", 1)]
)
def test_a_leading_system_message_yields_only_to_a_system_message_alone(
    event_type: str, end: int
) -> None:
    log = Log()
    log.add("system/message", op="append")
    log.user("A")
    log.add(event_type, op=Replace(0, end), sources=[0, 1])
    refuse(log, "leading system message", version=3)
    log.events.pop()
    log.add("system/message", op=Replace(0, 0), sources=[0])
    assert nodes_of(log, version=3) == [2, 1]


def test_an_ignorable_unknown_event_may_carry_surface_fields_in_format_3() -> None:
    log = Log()
    log.add("demo/note", op="append", ignorable=True)
    assert nodes_of(log, version=3) == []
    refuse(log, "must not carry surfaceOp", version=2)


def test_a_refused_event_leaves_the_state_unchanged_and_a_valid_one_still_fits() -> None:
    log = Log()
    log.user("A")
    fold = SurfaceFold(2)
    fold.apply(fold.plan(log.events[0], log.events[0].data))
    before = fold.state()
    log.replace(7, 7, [0])
    with pytest.raises(SurfaceError):
        fold.plan(log.events[1], log.events[1].data)
    assert fold.state() == before
    log.events.pop()
    log.user("B")
    fold.apply(fold.plan(log.events[1], log.events[1].data))
    assert list(fold.nodes()) == [0, 1]


def test_a_window_folds_without_the_events_before_it() -> None:
    log = Log()
    for value in "ABCD":
        log.user(value)
    log.replace(2, 3, [2, 3])
    fold = SurfaceFold(2, base_seq=2)
    for event in log.events[2:]:
        fold.apply(fold.plan(event, event.data))
    assert list(fold.nodes()) == [4]


def test_a_replacement_across_the_head_of_a_window_is_refused() -> None:
    log = Log()
    for value in "ABC":
        log.user(value)
    log.replace(1, 2, [1, 2])
    fold = SurfaceFold(2, base_seq=2)
    fold.apply(fold.plan(log.events[2], log.events[2].data))
    with pytest.raises(SurfaceError, match="1 is not on the surface"):
        fold.plan(log.events[3], log.events[3].data)


def test_a_window_still_validates_rewrites() -> None:
    log = Log()
    log.user("A")
    log.result("c", "long")
    log.rewrite(1, "c", "short", is_error=True)
    fold = SurfaceFold(2, base_seq=1)
    fold.apply(fold.plan(log.events[1], log.events[1].data))
    with pytest.raises(SurfaceError, match="changes more"):
        fold.plan(log.events[2], log.events[2].data)


def test_the_replace_generation_counts_replacements_only() -> None:
    log = Log()
    log.user("A")
    log.replace(0, 0, [0])
    log.turn_start()
    log.replace(1, 1, [1])
    fold = SurfaceFold(2)
    generations = []
    for event in log.events:
        fold.apply(fold.plan(event, event.data))
        generations.append(fold.replace_generation)
    assert generations == [0, 1, 1, 2]


def test_membership_and_length_follow_the_surface() -> None:
    log = Log()
    log.user("A")
    log.replace(0, 0, [0])
    fold = SurfaceFold(2)
    for event in log.events:
        fold.apply(fold.plan(event, event.data))
    assert (len(fold), 0 in fold, 1 in fold, -1 in fold) == (1, False, True, False)


def test_a_plan_for_another_seq_is_neither_applied_nor_undone() -> None:
    log = Log()
    log.user("A")
    fold = SurfaceFold(2)
    plan = fold.plan(log.events[0], log.events[0].data)
    with pytest.raises(ValueError, match="latest plan"):
        fold.undo(plan)
    fold.apply(plan)
    with pytest.raises(ValueError, match="next seq is 1"):
        fold.apply(plan)


def test_undoing_a_replacement_keeps_what_it_knew_about_a_removed_tool_result() -> None:
    log = Log()
    log.result("c", "long")
    log.replace(0, 0, [0])
    fold = SurfaceFold(2)
    fold.apply(fold.plan(log.events[0], log.events[0].data))
    before = fold.state()
    replacing = fold.plan(log.events[1], log.events[1].data)
    fold.apply(replacing)
    fold.undo(replacing)
    assert fold.state() == before
    log.events.pop()
    log.rewrite(0, "c", "short")
    assert fold.plan(log.events[1], log.events[1].data).shadowed == (0,)


def naive_surface(events: tuple[Event, ...]) -> list[int]:
    """The surface by slicing a plain list."""
    surface: list[int] = []
    for event in events:
        if event.surface_op == "append":
            surface.append(event.seq)
        elif event.surface_op is not None:
            start = surface.index(event.surface_op.start)
            end = surface.index(event.surface_op.end)
            surface[start : end + 1] = [event.seq]
    return surface


@given(logs())
@settings(max_examples=60)
def test_the_fold_of_every_prefix_equals_plain_slicing(events: tuple[Event, ...]) -> None:
    fold = SurfaceFold(2)
    for count, event in enumerate(events, 1):
        fold.apply(fold.plan(event, event.data))
        assert list(fold.nodes()) == naive_surface(events[:count])
    assert fold_surface(events, 2).nodes == tuple(fold.nodes())


@given(logs(), st.data())
@settings(max_examples=60)
def test_undoing_plans_restores_every_earlier_state(
    events: tuple[Event, ...], data: st.DataObject
) -> None:
    fold = SurfaceFold(2)
    states, plans = [fold.state()], []
    for event in events:
        plans.append(fold.plan(event, event.data))
        fold.apply(plans[-1])
        states.append(fold.copy().state())
    kept = data.draw(st.integers(0, len(events)))
    for plan in reversed(plans[kept:]):
        fold.undo(plan)
    assert fold.state() == states[kept]
    for event in events[kept:]:
        fold.apply(fold.plan(event, event.data))
    assert fold.state() == states[-1]


@given(logs())
@settings(max_examples=40)
def test_a_copy_and_its_original_go_separate_ways(events: tuple[Event, ...]) -> None:
    fold = SurfaceFold(2)
    for event in events:
        twin = fold.copy()
        before = twin.state()
        fold.apply(fold.plan(event, event.data))
        assert twin.state() == before
        twin.apply(twin.plan(event, event.data))
        assert twin.state() == fold.state()


def reorder(value: Json) -> Json:
    """The same JSON value with every object's keys the other way round."""
    if isinstance(value, dict):
        return {key: reorder(item) for key, item in reversed(value.items())}
    return [reorder(item) for item in value] if isinstance(value, list) else value


@given(json_values, json_values)
@settings(max_examples=80)
def test_a_rewrite_is_accepted_exactly_when_the_metadata_is_equal(one: Json, other: Json) -> None:
    def accepts(before: Json, after: Json) -> bool:
        log = Log()
        log.result("c", "long", meta=before)
        log.rewrite(0, "c", "short", meta=after)
        try:
            fold_surface(log.events, 2)
        except SurfaceError:
            return False
        return True

    assert accepts(one, reorder(one))
    assert accepts(one, other) == (strict(one) == strict(other))


def strict(value: Json) -> object:
    """A value that Python compares as JavaScript does: booleans are no numbers."""
    tag: Callable[[Json], object] = strict
    if isinstance(value, bool) or value is None:
        return ("constant", value)
    if isinstance(value, dict):
        return {key: tag(item) for key, item in value.items()}
    return [tag(item) for item in value] if isinstance(value, list) else value
