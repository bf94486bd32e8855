"""The command of the simulation: runs, exit codes, reports and commands that replay."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from session_query.simulations import seeds
from session_query.simulations.command_line import KNOWN, PROGRAM, USAGE_ERROR, main
from session_query.simulations.corpus import CorpusLine, read_corpus
from session_query.simulations.scenarios.canary import CANARY, WAYS
from session_query.simulations.seeds import fresh_seeds, parse_seed, parse_seeds
from session_query.simulations.verdict import Kind, worst

CANARY_RUN = ["--scenario", "canary"]
WELL = [*CANARY_RUN, "--set", "sick=no"]


@pytest.mark.parametrize("way", sorted(WAYS))
def test_the_exit_code_tells_the_kind(way: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*CANARY_RUN, "--seed", "1", "--set", "sick=yes", f"way={way}"]) == WAYS[way].value
    assert f"FAIL canary seed=1 {WAYS[way].title}" in capsys.readouterr().out


def test_a_batch_that_passes_exits_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WELL, "--seeds", "0:5"]) == 0
    out = capsys.readouterr().out
    assert "5 runs, 0 failed, 5 distinct traces" in out
    assert "5  sang" in out
    assert "0  fell silent   <- NEVER" in out


def test_the_report_ends_with_the_command_that_replays(capsys: pytest.CaptureFixture[str]) -> None:
    main([*CANARY_RUN, "--seeds", "1:9", "--set", "sick=yes", "way=violation", "policy=pct"])
    last = capsys.readouterr().out.splitlines()[-1]
    label, _, command = last.partition(": ")
    assert (label, command.startswith(PROGRAM)) == ("replay", True)
    assert main(shlex.split(command.removeprefix(PROGRAM))) == Kind.CORRECTNESS.value
    replayed = capsys.readouterr().out
    assert "canary policy=pct" in replayed
    assert "correctness the canary says something wrong, on purpose" in replayed


def test_a_trace_is_printed_step_by_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WELL, "--seed", "7", "--trace"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("step: " in line for line in lines)
    assert lines[-2].split() == [lines[-2].split()[0], "pass"]
    assert lines[-1].startswith("digest ")


def test_a_json_report_says_what_failed_and_how_to_see_it_again(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    main([*CANARY_RUN, "--seeds", "1:4", "--set", "sick=yes", "way=crash", "--json", str(path)])
    report = json.loads(path.read_text())
    assert (report["kind"], report["runs"], report["distinct_traces"]) == ("internal", 3, 3)
    assert [failure["seed"] for failure in report["failures"]] == [1, 2, 3]
    assert "--seed=1 --scenario=canary --set sick=yes way=crash" in report["failures"][0]["command"]
    assert report["scenarios"]["canary"]["marks"] == {"fell silent": 3, "sang": 0}


def test_several_processes_report_as_one_does(tmp_path: Path) -> None:
    reports = []
    for jobs in ("1", "2"):
        path = tmp_path / jobs
        main([*CANARY_RUN, "--seeds", "20:60", "--jobs", jobs, "--json", str(path)])
        report = json.loads(path.read_text())
        del report["scenarios"]["canary"]["milliseconds"]
        reports.append(report)
    assert reports[0] == reports[1]
    assert reports[0]["failures"]


def test_each_run_is_checked_against_a_second_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WELL, "--seeds", "0:4", "--check"]) == 0
    assert "4 runs, 0 failed" in capsys.readouterr().out


def test_no_run_begins_when_the_time_is_over(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WELL, "--minutes", "0"]) == 0
    assert "0 runs, 0 failed" in capsys.readouterr().out


def test_a_mark_that_is_never_hit_fails_where_all_are_demanded() -> None:
    assert main([*WELL, "--seeds", "0:3", "--all-marks"]) == Kind.INTERNAL.value


def test_a_corpus_is_replayed_line_by_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text(
        "# seeds\n\n3 canary sick=yes way=violation # said nonsense\n4 canary sick=no\n"
    )
    assert read_corpus(corpus) == [
        CorpusLine(3, "canary", {"sick": "yes", "way": "violation"}, "said nonsense"),
        CorpusLine(4, "canary", {"sick": "no"}),
    ]
    assert main(["--corpus", str(corpus)]) == Kind.CORRECTNESS.value
    assert "2 runs, 1 failed" in capsys.readouterr().out


def test_the_librarys_own_corpus_names_scenarios_that_exist() -> None:
    assert {line.scenario for line in read_corpus()} <= set(KNOWN)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seed", "x"], "a seed is an integer or a commit id, got 'x'"),
        (["--seeds", "5"], "seeds are FIRST:LAST, got '5'"),
        (["--seeds", "5:5"], "no seed lies in '5:5'"),
        (["--scenario", "nothing"], "invalid choice: 'nothing'"),
        (["--trace"], "--trace is for one run"),
        (["--jobs", "0"], "--jobs must be at least 1, got 0"),
        ([*CANARY_RUN, "--seed", "1", "--set", "sick"], "a setting is name=value, got 'sick'"),
        ([*CANARY_RUN, "--seed", "1", "--set", "mood=bad"], "the canary knows"),
        ([*CANARY_RUN, "--seed", "1", "--bug", "nothing"], "no bug is called 'nothing'"),
        (["--corpus", "/nowhere/corpus.txt"], "No such file"),
        (["--seed", "1", "--seeds", "1:2"], "not allowed with"),
    ],
)
def test_a_command_that_is_not_understood_says_why(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == USAGE_ERROR
    assert message in capsys.readouterr().err


def test_a_corpus_line_that_is_not_understood_is_named(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("1 canary\nseven canary\n")
    with pytest.raises(ValueError, match=r"line 2: .*'seven canary'"):
        read_corpus(corpus)


def test_a_commit_gives_seeds_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(seeds.COMMIT_VARIABLE, "a" * 40)
    source, first = fresh_seeds(3)
    assert (source, list(first)) == (f"commit {'a' * 40}", list(fresh_seeds(3)[1]))
    monkeypatch.setenv(seeds.COMMIT_VARIABLE, "b" * 40)
    assert list(fresh_seeds(3)[1]) != list(first)


def test_seeds_come_from_the_checkout_we_run_in_or_from_the_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(seeds.COMMIT_VARIABLE, raising=False)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.chdir(tmp_path)
    assert fresh_seeds(1)[0].startswith("version ")
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@b.example")
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "Begin"], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    assert fresh_seeds(1)[0] == f"commit {head.stdout.strip()}"


def test_a_seed_may_be_a_commit() -> None:
    assert parse_seed("-3") == -3
    assert parse_seed("0" * 38 + "ff") == 255
    assert parse_seeds("3:6") == range(3, 6)


def test_a_wrong_answer_weighs_more_than_a_crash_and_that_more_than_a_delay() -> None:
    kinds = [Kind.PASS, Kind.NONDETERMINISTIC, Kind.LIVENESS, Kind.INTERNAL, Kind.CORRECTNESS]
    assert [worst(kinds[:size]) for size in range(1, 6)] == kinds
    assert worst([]) is Kind.PASS


def test_a_command_of_ones_own_knows_ones_own_scenarios(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--seed", "1", "--set", "sick=yes"]
    main([*arguments, "--scenario", "bird"], scenarios={"bird": CANARY}, program="sing")
    assert capsys.readouterr().out.splitlines()[-1].startswith("replay: sing --seed=1")
