"""The benchmarks: their corpus is the same in every run, and what they print is readable."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import mixed_home
import mixed_search
import pytest
import run
from corpus import RARE, RARE_DOCUMENTS, Corpus, user_message, write_log
from foreign_logs import OTHER, message, meta, prompt, write
from measure import row
from plain import PlainSearch
from plot import families

from session_query import IndexConfig, open_session_query
from session_query.messages.config import Tokenizer
from session_query.messages.header import SessionHeader
from session_query.storage.claude_code import ClaudeCodeStore
from session_query.storage.codex import CodexStore
from session_query.storage.jsonl import JsonlStore

ROOT = Path(__file__).parent.parent


def files_of(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*.jsonl")}


def test_the_same_seed_writes_the_same_store(tmp_path: Path) -> None:
    for name, seed in (("one", 7), ("same", 7), ("other", 8)):
        Corpus(3, seed=seed).write(tmp_path / name)
    assert files_of(tmp_path / "one") == files_of(tmp_path / "same")
    assert files_of(tmp_path / "one") != files_of(tmp_path / "other")


def test_a_session_does_not_depend_on_the_sessions_made_before_it() -> None:
    corpus, other = Corpus(4), Corpus(4)
    corpus.events(0)
    assert corpus.events(3) == other.events(3)


def test_every_session_is_whole_and_has_its_number_of_documents(tmp_path: Path) -> None:
    corpus = Corpus(4, documents=20)
    corpus.write(tmp_path)
    sweep = JsonlStore(tmp_path).sweep()
    assert (len(sweep.snapshots), sweep.damaged) == (4, ())
    assert [len(corpus.documents_of(number)) for number in range(4)] == [20] * 4


def test_the_rare_word_stands_in_a_known_number_of_documents() -> None:
    corpus = Corpus(10)
    texts = [one.text for number in range(10) for one in corpus.documents_of(number)]
    assert sum(RARE in text for text in texts) == RARE_DOCUMENTS


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[PlainSearch]:
    corpus = Corpus(6, documents=20)
    corpus.write(tmp_path / "store")
    found = PlainSearch(tmp_path / "store")
    yield found
    found.close()


async def test_the_plain_way_gives_the_answers_of_the_library(
    tmp_path: Path, plain: PlainSearch
) -> None:
    index = IndexConfig(path=":memory:", tokenizer=Tokenizer.UNICODE61, max_limit=1_000)
    words = [RARE, *Corpus(6, documents=20).vocabulary[:4]]
    async with open_session_query(store=JsonlStore(tmp_path / "store"), index=index) as query:
        for word in words:
            page = await query.search_sessions(word, limit=1_000)
            ours = [(hit.header.id, hit.best_match.seq) for hit in page.items]
            assert [(one, seq) for one, seq, _ in plain.search_sessions(word, 1_000)] == ours != []
            for session_id, _ in ours:
                found = await query.search_events(session_id, word, limit=1_000)
                hits = plain.search_events(session_id, word, 1_000)
                assert [seq for _, seq, _ in hits] == [hit.seq for hit in found.items]


def test_the_plain_way_follows_stored_and_live_sessions(tmp_path: Path, plain: PlainSearch) -> None:
    corpus = Corpus(6, documents=20)
    plain.bring_up_to_date()
    log = [user_message(0, "kingfisher")]
    plain.live["live"] = (SessionHeader("live", 0), log)
    write_log(tmp_path / "store", corpus.header(1), (user_message(0, "kingfisher kingfisher"),))
    assert plain.search_sessions("kingfisher") == [("session-00001", 0, 2), ("live", 0, 1)]
    log.append(user_message(1, "kingfisher"))
    shutil.rmtree(tmp_path / "store")
    assert plain.search_sessions("kingfisher") == [("live", 1, 1)]


def test_rows_of_one_family_are_a_curve_by_size() -> None:
    rows = [
        row("b", "ms", 2.0, family="search", size=10),
        row("a", "ms", 1.0, family="search", size=2),
        row("c", "ms", 3.0, family="list", size=1),
        row("d", "ms", 4.0),
    ]
    curves = {name: [one.name for one in found] for name, found in families(rows).items()}
    assert curves == {"search": ["a", "b"], "list": ["c"]}


def test_a_plot_without_matplotlib_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SystemExit, match=r"session-query\[bench\]"):
        run.main(["--plot", "never-written.png"])


def rows_of(*options: str) -> list[dict[str, object]]:
    command = [sys.executable, str(ROOT / "benchmarks" / "run.py"), "--json", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_quick_run_prints_one_object_a_row() -> None:
    (line,) = rows_of("--quick", "--only", "ask")
    assert line["name"] == "ask round trip"
    ours, limit = line["ours"], line["limit"]
    assert isinstance(ours, float) and isinstance(limit, float)
    assert line["ratio"] == ours / limit
    assert isinstance(line["ok"], bool)
    assert line.keys() == {
        "name",
        "ours",
        "limit",
        "plain",
        "unit",
        "ratio",
        "budget",
        "ok",
        "note",
        "family",
        "size",
    }


def test_a_run_over_a_corpus_of_another_size_is_set_beside_the_plain_way() -> None:
    lines = rows_of("--sessions", "20", "--documents", "10", "--only", "build")
    first = lines[0]
    assert first["name"] == "cold build, docs"
    assert str(first["note"]).startswith("20 sessions, 200 documents")
    assert all(isinstance(line["plain"], float) for line in lines)


def test_a_mixed_home_is_the_same_each_time_and_is_read_whole(tmp_path: Path) -> None:
    samples = tmp_path / "samples"
    session = "0a1b2c3d-4e5f-4061-8071-2a3b4c5d6e7f"
    log = samples / "claude_code" / "one" / f"{session}.jsonl"
    write(log, prompt(0, "why is the proxy slow today", session))
    write(log.with_suffix("") / "subagents" / "agent-a.jsonl", prompt(1, "look at it", session))
    write(samples / "codex" / "two" / "r.jsonl", meta(OTHER), message(1, "user", "the proxy"))
    for name in ("one", "same"):
        mixed_home.main(str(samples), str(tmp_path / name), "0.002")
    assert files_of(tmp_path / "one") == files_of(tmp_path / "same")
    claude = ClaudeCodeStore(tmp_path / "one" / ".claude").sweep()
    codex = CodexStore(tmp_path / "one" / ".codex").sweep()
    assert (claude.damaged, codex.damaged) == ((), ())
    assert not any(found.header.is_seeded for found in (*claude.snapshots, *codex.snapshots))
    assert len(claude.snapshots) == 2 * len(codex.snapshots) > 2
    agents = [found.header for found in claude.snapshots if found.header.origin == "subagent"]
    assert {agent.parent_session for agent in agents} == {
        found.header.id for found in claude.snapshots if found.header.origin is None
    }


def test_a_command_is_measured_and_its_failure_is_told(tmp_path: Path) -> None:
    words = [sys.executable, "-c", "print('one'); print('two')"]
    seconds, cpu, peak, answer = mixed_search.run(words, tmp_path, {}, tmp_path / "out")
    assert (seconds > 0, cpu > 0, peak > 1_000_000, answer) == (True, True, True, "2 lines")
    words = [sys.executable, "-c", "raise ValueError('no')"]
    assert mixed_search.run(words, tmp_path, {}, tmp_path / "out")[3] == "failed: ValueError: no"
