"""The command line: what people and programs get for a good call."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from builders import START, Log, header
from command_line_runs import EXAMPLES, CommandLine, contents, write_session

EVENT_FIELDS = {"session_id", "seq", "type", "time", "surface"}
HEADER_FIELDS = {
    "id",
    "created_at",
    "version",
    "cwd",
    "parent_session",
    "is_seeded",
    "seed_length",
    "origin",
    "delegation_depth",
    "agent_preset",
}


def test_a_search_shows_title_time_workspace_place_and_match(command_line: CommandLine) -> None:
    run = command_line("search", "customers report a login", "--store", EXAMPLES, "--limit", "1")
    title, place, match = run.out.rstrip().splitlines()
    assert title == "Login timeout in the morning"
    assert place == "2026-03-02T09:14:08Z  /home/mara/shop-api  0a41-login-timeout 2 user/message"
    assert match.startswith("Customers report a login timeout: POST /login hangs")
    assert (run.status, run.err) == (0, "")


def test_a_hit_in_json_is_the_record_of_the_library(command_line: CommandLine) -> None:
    run = command_line("search", "登录超时", "--store", EXAMPLES, "--limit", "1", "--json")
    (hit,) = run.records
    assert set(hit) == {"header", "live", "persisted", "best_match"}
    assert set(hit["header"]) == HEADER_FIELDS
    assert set(hit["best_match"]) == EVENT_FIELDS | {"snippet", "match"}
    assert (hit["live"], hit["persisted"]) == (False, True)
    start, end = hit["best_match"]["match"]
    assert hit["best_match"]["snippet"][start:end] == "登录超时"


def test_a_search_within_a_session_gives_its_events(command_line: CommandLine) -> None:
    session = "0c47-proxy-timeouts"
    run = command_line("search", "nginx", "--session", session, "--store", EXAMPLES, "--json")
    assert {hit["session_id"] for hit in run.records} == {session}
    assert len(run.records) > 1
    assert set(run.records[0]) == EVENT_FIELDS | {"snippet", "match"}


def test_events_of_one_session_stand_under_its_title(command_line: CommandLine) -> None:
    run = command_line("search", "nginx", "--session", "0c47-proxy-timeouts", "--store", EXAMPLES)
    assert run.out.startswith("All timeouts between browser and API\n/home/mara/infra\n\n")


@pytest.mark.parametrize(
    ("options", "sessions"),
    [
        (["--cwd", "/home/mara/shop-web"], {"0b10-login-spinner"}),
        (["--type", "todo/write", "--type", "turn/end"], {"0b10-login-spinner"}),
        (["--since", "2026-03-06T00:00:00Z"], {"0c47-proxy-timeouts"}),
        (["--until", "2026-03-02T17:14:09+08:00"], {"0a41-login-timeout", "0a42-login-retry"}),
        (["--surface", "shadowed"], set()),
    ],
)
def test_options_narrow_a_search(
    options: list[str], sessions: set[str], command_line: CommandLine
) -> None:
    run = command_line("search", "login", "--store", EXAMPLES, "--json", *options)
    assert {hit["header"]["id"] for hit in run.records} >= sessions
    assert run.status == 0
    everything = command_line("search", "login", "--store", EXAMPLES, "--json")
    assert len(run.records) < len(everything.records)


def test_a_bound_in_time_is_inclusive_to_the_millisecond(command_line: CommandLine) -> None:
    words = ("search", "login timeout", "--store", EXAMPLES, "--json", "--session")
    (hit, *_) = command_line(*words, "0a41-login-timeout", "--type", "user/message").records
    assert hit["time"] == 1_772_442_848_739
    exact = ("--since", "2026-03-02T09:14:08.739Z", "--until", "2026-03-02T09:14:08.739Z")
    assert command_line(*words, "0a41-login-timeout", *exact).records == [hit]


def test_a_limit_above_a_page_is_filled_from_several(
    command_line: CommandLine, tmp_path: Path
) -> None:
    for number in range(130):
        log = Log()
        log.user(f"the needle, {number} times")
        write_session(tmp_path / "store", header(f"s{number:03}"), log.events)
    run = command_line(
        "search", "needle", "--store", tmp_path / "store", "--limit", "120", "--json"
    )
    assert len({hit["header"]["id"] for hit in run.records}) == len(run.records) == 120


def test_a_query_without_words_says_so(command_line: CommandLine) -> None:
    run = command_line("search", "?!", "--store", EXAMPLES)
    assert (run.status, run.out, run.err) == (0, "", "nothing searchable in this query\n")


def test_a_query_that_finds_nothing_says_so(command_line: CommandLine) -> None:
    run = command_line("search", "zeppelin", "--store", EXAMPLES, "--json")
    assert (run.status, run.out, run.err) == (
        0,
        "",
        "nothing found; the words are looked for side by side, each as a whole\n",
    )


def test_both_tokenizers_can_be_used_on_one_store(command_line: CommandLine) -> None:
    words = ("search", "超时", "--store", EXAMPLES, "--json", "--tokenizer")
    assert command_line(*words, "cjk").records
    assert not command_line(*words, "unicode61").records
    assert len(command_line.index_files()) == 2


def test_a_store_has_one_private_index_whatever_its_spelling(
    command_line: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(EXAMPLES)
    monkeypatch.chdir(EXAMPLES)
    for spelling in (EXAMPLES, ".", tmp_path / "link", f"{EXAMPLES}/"):
        assert command_line("search", "login", "--store", spelling).status == 0
    (index,) = command_line.index_files()
    assert stat.S_IMODE(index.stat().st_mode) == 0o600
    assert stat.S_IMODE(index.parent.stat().st_mode) == 0o700


def test_an_index_can_be_named(command_line: CommandLine, tmp_path: Path) -> None:
    index = tmp_path / "mine.db"
    assert command_line("search", "login", "--store", EXAMPLES, "--index", index).status == 0
    assert index.exists()
    assert command_line.index_files() == []


def test_the_store_can_come_from_the_environment(
    command_line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SESSION_QUERY_STORE", str(EXAMPLES))
    assert len(command_line("list", "--json").records) == 12


def test_the_list_is_newest_first_and_shows_descent(command_line: CommandLine) -> None:
    lines = command_line("list", "--store", EXAMPLES).out.splitlines()
    assert [line[:20] for line in lines] == sorted((line[:20] for line in lines), reverse=True)
    (fork,) = [line for line in lines if "0a42-login-retry" in line]
    assert fork.endswith("/home/mara/shop-api  fork of 0a41-login-timeout")
    assert "no workspace" in lines[0]


def test_the_list_in_json_holds_session_records(command_line: CommandLine) -> None:
    records = command_line("list", "--store", EXAMPLES, "--json").records
    assert all(set(record) == {"header", "live", "persisted"} for record in records)


def test_events_are_listed_in_order_with_their_place(command_line: CommandLine) -> None:
    words = ("events", "0c33-orders-migration", "--store", EXAMPLES)
    records = command_line(*words, "--json").records
    assert [record["seq"] for record in records] == list(range(len(records)))
    assert {record["surface"] for record in records} == {"current", "shadowed", "log-only"}
    assert set(records[0]) == EVENT_FIELDS
    assert command_line(*words).out.splitlines()[2].split() == [
        "2",
        "2026-03-05T10:00:01Z",
        "shadowed",
        "user/message",
    ]


def test_an_interrupted_turn_is_shown_closed(command_line: CommandLine) -> None:
    run = command_line("events", "0d02-deploy-interrupted", "--store", EXAMPLES, "--json")
    assert run.records[-1]["type"] == "turn/end"


def test_a_window_marks_its_target_and_shows_text(command_line: CommandLine) -> None:
    run = command_line("read", "1a01-denglu-chaoshi", "2", "--before", "1", "--store", EXAMPLES)
    assert run.out.startswith("  1 step/start  2026-03-10T02:11:19Z\n{")
    assert "\n> 2 user/message  2026-03-10T02:11:20Z\n用户反馈登录超时" in run.out


def test_a_window_in_json_is_one_object(command_line: CommandLine) -> None:
    words = ("read", "0a41-login-timeout", "6", "--before", "1", "--after", "1", "--json")
    (window,) = command_line(*words, "--store", EXAMPLES).records
    assert [event["seq"] for event in window["events"]] == [5, 6, 7]
    assert window["target"] == window["events"][1]
    assert (window["start_seq"], window["end_seq"]) == (5, 7)
    assert set(window["header"]) == HEADER_FIELDS
    assert set(window) == {
        "header",
        "inherited_event_count",
        "target",
        "events",
        "start_seq",
        "end_seq",
    }
    assert window["target"]["source_event_seqs"] == [5]
    assert window["target"]["surface_op"] == "append"


def test_a_payload_keeps_its_spelling(command_line: CommandLine, tmp_path: Path) -> None:
    log = Log()
    log.add("todo/write", {"todos": [], "n": 0})
    file = write_session(tmp_path / "store", header(), log.events)
    exact = '{"todos": [],"n":1.0,"m":1e2,"k":123456789012345678901234567890}'
    file.write_text(file.read_text().replace('{"todos":[],"n":0}', exact))
    run = command_line("read", "s", "0", "--store", tmp_path / "store", "--json")
    assert f'"data":{exact}' in run.out


def test_an_id_that_begins_with_a_hyphen_stands_after_two(
    command_line: CommandLine, tmp_path: Path
) -> None:
    log = Log()
    log.user("hello")
    write_session(tmp_path / "store", header("-x"), log.events)
    run = command_line("events", "--json", "--store", tmp_path / "store", "--", "-x")
    assert [record["session_id"] for record in run.records] == ["-x"]


def test_a_time_outside_the_calendar_is_shown_as_its_number(
    command_line: CommandLine, tmp_path: Path
) -> None:
    log = Log()
    log.add("turn/start", {"turn": 1}, time=2**53 - 1)
    log.add("turn/end", {"turn": 1, "reason": {"kind": "completed"}}, time=-1)
    write_session(tmp_path / "store", header(), log.events)
    first, second = command_line("events", "s", "--store", tmp_path / "store").out.splitlines()
    assert str(2**53 - 1) in first
    assert "1969-12-31T23:59:59Z" in second


def test_recalled_text_is_neither_markup_nor_an_escape_sequence(
    command_line: CommandLine, tmp_path: Path
) -> None:
    log = Log()
    log.user("needle [bold]loud[/bold] \x1b[2J\x9b31m \u202egnp.exe :smile:")
    log.title("[red]\x1b]0;owned\x07 title")
    write_session(tmp_path / "store", header(), log.events)
    for words in (("search", "needle"), ("list",), ("read", "s", "0")):
        run = command_line(*words, "--store", tmp_path / "store")
        assert run.status == 0
        assert not set(run.out) & {"\x1b", "\x9b", "\x07", "\u202e"}
    assert "[bold]loud[/bold] ␛[2J" in run.out
    assert ":smile:" in run.out


def test_a_lone_surrogate_is_shown_as_the_replacement_character(
    command_line: CommandLine, tmp_path: Path
) -> None:
    log = Log()
    log.user("needle \ud800 end")
    write_session(tmp_path / "store", header(), log.events)
    store = tmp_path / "store"
    assert "needle \ufffd end" in command_line("search", "needle", "--store", store).out
    assert "needle \ufffd end" in command_line("read", "s", "0", "--store", store).out
    (window,) = command_line("read", "s", "0", "--store", store, "--json").records
    assert window["target"]["data"]["content"][0]["text"] == "needle \ud800 end"


def test_a_damaged_session_is_left_out_and_named(command_line: CommandLine, tmp_path: Path) -> None:
    store = tmp_path / "store"
    for session in ("good", "bad"):
        log = Log()
        log.user("the needle")
        log.turn_start()
        log.turn_end()
        file = write_session(store, header(session), log.events)
    file.write_text(file.read_text().replace('"role":"user"', '"role":"nobody"'))
    run = command_line("search", "needle", "--store", store, "--json")
    assert [hit["header"]["id"] for hit in run.records] == ["good"]
    assert (run.status, run.err.count("\n")) == (0, 1)
    assert run.err.startswith("left out: bad: ")


def test_nothing_is_written_to_the_store(command_line: CommandLine) -> None:
    before = contents(EXAMPLES)
    session = "0d02-deploy-interrupted"
    for words in (("search", "deploy"), ("list",), ("events", session), ("read", session, "3")):
        assert command_line(*words, "--store", EXAMPLES).status == 0
    assert contents(EXAMPLES) == before


def test_an_event_that_was_appended_is_found_by_the_next_search(
    command_line: CommandLine, tmp_path: Path
) -> None:
    log = Log()
    log.user("first")
    file = write_session(tmp_path / "store", header(), log.events)
    words = ("search", "needle", "--store", tmp_path / "store", "--json")
    assert command_line(*words).records == []
    row = file.read_text().splitlines()[1].replace('"seq":0', '"seq":1').replace("first", "needle")
    with file.open("a") as stream:
        stream.write(row + "\n")
    (hit,) = command_line(*words).records
    assert (hit["best_match"]["seq"], hit["best_match"]["time"]) == (1, START)
