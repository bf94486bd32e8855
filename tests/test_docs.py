"""The reference: its examples run and print what it says, and it names all there is."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

import session_query
from session_query.actors.service import SessionQuery
from session_query.messages.config import IndexConfig, QueryConfig
from session_query.messages.errors import ErrorCode

ROOT = Path(__file__).parent.parent
REFERENCE = (ROOT / "docs" / "reference.md").read_text("utf-8")
CONCEPTS = (ROOT / "docs" / "concepts.md").read_text("utf-8")

FRAME, *EXAMPLES = re.findall(
    r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", REFERENCE, re.DOTALL | re.MULTILINE
)


@pytest.mark.parametrize(("example", "printed"), EXAMPLES)
def test_an_example_prints_what_the_reference_shows(
    example: str, printed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    program = FRAME[0].replace("        ...\n", textwrap.indent(example, " " * 8))
    exec(compile(program, "example", "exec"), {})
    assert capsys.readouterr().out == printed


def test_every_example_shows_what_it_prints() -> None:
    assert len(EXAMPLES) > 8
    assert all(printed for _example, printed in EXAMPLES)


@pytest.mark.parametrize("name", dir(session_query))
def test_every_public_name_is_in_the_reference(name: str) -> None:
    assert re.search(rf"`[^`]*\b{name}\b[^`]*`", REFERENCE)


@pytest.mark.parametrize("owner", [SessionQuery, IndexConfig, QueryConfig])
def test_every_method_and_setting_is_in_the_reference(owner: Any) -> None:
    names = {name for name in vars(owner) if not name.startswith("_")} - {"close"}
    assert {name for name in names if not re.search(rf"`[^`]*\b{name}\b", REFERENCE)} == set()


@pytest.mark.parametrize("code", ErrorCode)
def test_every_error_is_explained(code: ErrorCode) -> None:
    assert f"`{code.name}`" in REFERENCE


@pytest.mark.parametrize("word", ["surface", "generation", "cursor", "view", "observation"])
def test_the_concepts_explain_each_word_of_the_reference(word: str) -> None:
    assert f"**{word}**" in CONCEPTS
