"""The benchmarks: their corpus is the same in every run, and what they print is readable."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import run
from corpus import RARE, RARE_DOCUMENTS, Corpus, user_message, write_log
from measure import row
from plain import PlainSearch
from plot import families

from session_query import IndexConfig, open_session_query
from session_query.messages.config import Tokenizer
from session_query.messages.header import SessionHeader
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
