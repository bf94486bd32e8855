"""The commands trace, filter and watch: what they show, and what programs get."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest
import trio
from attrs import evolve
from builders import START, Log, header
from command_line_runs import EXAMPLES, PROCESS, CommandLine, contents, write_session
from inline_runtime import InlineRuntime
from service_world import append, session, settle, store_of
from trio.testing import MockClock

from session_query import IndexConfig, JsonlStore, open_session_query
from session_query.interfaces.watching import Change, changes

COMPACTED = "0c33-orders-migration"


def family(root: Path, *, missing: bool = False) -> Path:
    """A chain of three with two children at its end."""
    for number, (name, parent) in enumerate(
        [("b", "a"), ("c", "b"), ("d1", "c"), ("d2", "c"), *([] if missing else [("a", None)])]
    ):
        log = Log()
        log.title(f"Title of {name}")
        made = evolve(header(name), parent_session=parent, created_at=START + number * 1000)
        write_session(root, made, log.events)
    return root


# -- lineages -------------------------------------------------------------------------------------


def test_a_lineage_is_a_tree_in_which_the_target_is_marked(
    command_line: CommandLine, tmp_path: Path
) -> None:
    run = command_line("trace", "c", "--store", family(tmp_path / "store"))
    assert [line.partition("  2025")[0] for line in run.out.splitlines()] == [
        "  a  Title of a",
        "    b  Title of b",
        ">     c  Title of c",
        "        d1  Title of d1",
        "        d2  Title of d2",
    ]
    assert (run.status, run.err) == (0, "")


def test_a_lineage_without_its_root_says_whom_it_lacks(
    command_line: CommandLine, tmp_path: Path
) -> None:
    run = command_line("trace", "b", "--store", family(tmp_path / "store", missing=True))
    assert run.out.splitlines()[0] == "  a  is not in the store"
    assert run.out.splitlines()[1].startswith("> b  Title of b")


def test_a_lineage_in_json_is_one_object_with_a_flat_list_of_descendants(
    command_line: CommandLine, tmp_path: Path
) -> None:
    store = family(tmp_path / "store")
    (found,) = command_line("trace", "b", "--store", store, "--json").records
    assert found["target"]["header"]["id"] == "b"
    assert [record["header"]["id"] for record in found["ancestors"]] == ["a"]
    assert [(each["depth"], each["header"]["id"]) for each in found["descendants"]] == [
        (1, "c"),
        (2, "d1"),
        (2, "d2"),
    ]
    assert found["root"] == found["ancestors"][-1]
    assert found["unresolved_parent_id"] is None


def test_deep_levels_move_to_the_right_up_to_a_bound(
    command_line: CommandLine, tmp_path: Path
) -> None:
    for number in range(50):
        parent = f"s{number - 1:02}" if number else None
        write_session(tmp_path, *session(f"s{number:02}", "a", parent_session=parent))
    run = command_line("trace", "s49", "--store", tmp_path)
    indents = [len(line) - len(line.lstrip(" >")) for line in run.out.splitlines()]
    assert indents == [2 + 2 * min(depth, 32) for depth in range(50)]


def test_titles_and_ids_of_a_lineage_stay_on_their_lines(
    command_line: CommandLine, tmp_path: Path
) -> None:
    log = Log()
    log.title("two\nlines \x1b[31mred")
    write_session(tmp_path, header("s"), log.events)
    run = command_line("trace", "s", "--store", tmp_path)
    assert run.out.startswith("> s  two lines ␛[31mred  ")
    assert run.out.count("\n") == 1


# -- events ---------------------------------------------------------------------------------------


def test_a_trace_shows_the_relations_that_an_event_has(
    command_line: CommandLine, tmp_path: Path
) -> None:
    log = Log()
    for text in "ab":
        log.user(text)
    log.replace(0, 1, [0, 1])
    log.replace(2, 2, [2, 0])
    write_session(tmp_path, header("s"), log.events)
    assert command_line("trace", "s", "0", "--store", tmp_path).out == (
        "0 user/message (shadowed)  2025-10-09T08:53:20Z\nreplaced by 2, 3\ncited by    2, 3\n"
    )
    assert command_line("trace", "s", "3", "--store", tmp_path).out == (
        "3 user/message  2025-10-09T08:53:20Z\nreplaces    2\ncites       2, 0\n"
    )


def test_a_trace_in_json_is_the_record_of_the_library(command_line: CommandLine) -> None:
    run = command_line("trace", COMPACTED, "4", "--store", EXAMPLES, "--json")
    (found,) = run.records
    assert set(found) == {
        "header",
        "target",
        "replaced_by",
        "replacement_chain",
        "replaced_event_seqs",
        "source_event_seqs",
        "derived_event_seqs",
    }
    assert (found["replaced_by"], found["replacement_chain"]) == (32, [32])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["trace", "nowhere"], "'nowhere' is neither live nor stored"),
        (["trace", "nowhere", "1"], "'nowhere' is neither live nor stored"),
        (["trace", COMPACTED, "1000"], "has no event 1000"),
        (["filter", "nowhere"], "'nowhere' is neither live nor stored"),
    ],
)
def test_what_is_not_there_ends_with_1(
    arguments: list[str], words: str, command_line: CommandLine
) -> None:
    run = command_line(*arguments, "--store", EXAMPLES)
    assert (run.status, run.out) == (1, "")
    assert words in run.err


# -- filter ---------------------------------------------------------------------------------------


def test_filtered_events_are_shown_with_their_texts(command_line: CommandLine) -> None:
    run = command_line(
        *("filter", COMPACTED, "--text", "ORDERS.address", "--type", "user/message"),
        *("--store", EXAMPLES),
    )
    assert run.out.startswith(
        "2026-03-05T10:00:01Z  2 user/message (shadowed)\nSplit the column orders.address into"
    )
    assert (run.status, run.err) == (0, "")


@pytest.mark.parametrize(
    ("options", "seqs"),
    [
        (["--text", "orders.address"], [2, 4, 5, 32]),
        (["--text", "orders.address", "--text", "STREET"], [2, 32]),
        (["--text", "orders.address", "--surface", "current"], [32]),
        (["--text", "orders.address", "--from-seq", "4", "--to-seq", "5"], [4, 5]),
        (["--text", "orders.address", "--until", "2026-03-05T10:00:02Z"], [2]),
        (["--type", "todo/write"], []),
    ],
)
def test_conditions_narrow_a_filter(
    options: list[str], seqs: list[int], command_line: CommandLine
) -> None:
    run = command_line("filter", COMPACTED, "--store", EXAMPLES, "--json", *options)
    assert run.status == 0
    found = [record["seq"] for record in run.records]
    assert set(found) >= set(seqs) and bool(found) == bool(seqs)
    assert all(set(record) >= {"session_id", "surface", "text"} for record in run.records)


def test_a_filter_that_nothing_passes_says_so(command_line: CommandLine) -> None:
    run = command_line("filter", COMPACTED, "--text", "zzz", "--store", EXAMPLES)
    assert (run.status, run.out, run.err) == (
        0,
        "",
        "nothing found\n",
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--text", " "], "blank"),
        (["--from-seq", "2", "--to-seq", "1"], "--from-seq 2 is after --to-seq 1"),
        (["--surface", "gone"], "gone"),
        (["--since", "2026-03-05"], "--since"),
    ],
)
def test_a_condition_that_cannot_be_meant_ends_with_2(
    options: list[str], words: str, command_line: CommandLine
) -> None:
    run = command_line("filter", COMPACTED, "--store", EXAMPLES, *options)
    assert (run.status, run.out) == (2, "")
    assert words in run.err


def test_none_of_these_commands_writes_into_the_store(
    command_line: CommandLine, tmp_path: Path
) -> None:
    store = family(tmp_path / "store")
    before = contents(store)
    command_line("trace", "c", "--store", store)
    command_line("trace", "c", "0", "--store", store)
    command_line("filter", "c", "--store", store)
    assert contents(store) == before
    assert command_line.index_files() == []


# -- watch ----------------------------------------------------------------------------------------


async def test_a_watch_tells_the_present_generation_and_then_what_changes(
    autojump_clock: MockClock,
) -> None:
    store = store_of(session("a", "word"), session("b", "word"))
    index = IndexConfig(path=":memory:", open_at="first-search")
    async with open_session_query(store=store, index=index, runtime=InlineRuntime()) as query:
        seen: list[tuple[float, Change]] = []

        async def watch() -> None:
            async for change in changes(query, 2, lambda: None):
                seen.append((trio.current_time(), change))

        async with trio.open_nursery() as nursery:
            start = trio.current_time()
            nursery.start_soon(watch)
            await trio.sleep(9)
            append(store.inner, "b", "more")
            await trio.sleep(9)
            nursery.cancel_scope.cancel()
    assert [when - start for when, _ in seen] == [0, 10]
    assert [change.sessions for _, change in seen] == [(), ("b",)]
    assert seen[0][1].generation < seen[1][1].generation


def test_a_watch_prints_line_by_line_until_it_is_interrupted(tmp_path: Path) -> None:
    store = tmp_path / "store"
    write_session(store, header("s"), session("s", "word")[1])
    settle(store)
    arguments = ("watch", "--every", "0.05", "--json", "--store", store)
    with subprocess.Popen(
        [*PROCESS, *map(str, arguments), "--index", str(tmp_path / "index.db")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        first = json.loads(process.stdout.readline())
        append(JsonlStore(str(store)), "s", "more")
        second = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
        assert process.stderr.read() == ""
    assert (first["sessions"], second["sessions"]) == ([], ["s"])
    assert first["generation"] < second["generation"]


@pytest.mark.parametrize("every", ["0", "-1", "nan"])
def test_a_watch_looks_at_the_store_in_positive_intervals(
    every: str, command_line: CommandLine
) -> None:
    run = command_line("watch", "--store", EXAMPLES, "--every", every)
    assert (run.status, run.out) == (2, "")
    assert "--every" in run.err
