"""The benchmarks: their corpus is the same in every run, and what they print is readable."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from corpus import RARE, RARE_DOCUMENTS, Corpus

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


def test_a_quick_run_prints_one_object_a_row() -> None:
    script = ROOT / "benchmarks" / "run.py"
    command = [sys.executable, str(script), "--quick", "--json", "--only", "ask"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    (row,) = map(json.loads, run.stdout.splitlines())
    assert row["name"] == "ask round trip"
    assert row["ratio"] == row["ours"] / row["limit"]
    assert {type(row[name]) for name in ("ours", "limit")} == {float}
    assert isinstance(row["ok"], bool)
    assert row.keys() == {"name", "ours", "limit", "unit", "ratio", "budget", "ok", "note"}
