"""Names of projects, session directories and log files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from session_query.storage.layout import (
    LogName,
    decode_segment,
    encode_segment,
    is_flat_log,
    log_name,
    parse_log_name,
    project_name,
)

any_text = st.text(st.characters(codec=None), max_size=12)
"""Lone surrogates included."""


@pytest.mark.parametrize(
    ("session_id", "segment"),
    [
        ("demo-1", "demo-1"),
        ("child/1", "child~002F1"),
        (".", "~002E"),
        ("..", "~002E~002E"),
        ("...", "..."),
        (".hidden", ".hidden"),
        ("~", "~007E"),
        ("a b", "a~0020b"),
        ("\0", "~0000"),
        ("é", "~00E9"),
        ("💡", "~D83D~DCA1"),
        ("\ud83d", "~D83D"),
    ],
)
def test_an_id_is_escaped_by_utf_16_unit(session_id: str, segment: str) -> None:
    assert encode_segment(session_id) == segment
    assert decode_segment(segment) == session_id


def test_an_empty_id_has_no_name() -> None:
    with pytest.raises(ValueError, match="empty"):
        encode_segment("")


@given(any_text.filter(bool))
def test_a_segment_is_safe_and_leads_back_to_its_id(session_id: str) -> None:
    segment = encode_segment(session_id)
    assert segment not in (".", "..")
    assert set(segment) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-~")
    # A pair of surrogates and the character they spell are one id to every UTF-16 reader.
    joined = session_id.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    assert decode_segment(segment) == joined


@given(any_text, any_text)
def test_different_ids_have_different_segments(first: str, second: str) -> None:
    units = [value.encode("utf-16-le", "surrogatepass") for value in (first, second)]
    if first and second:
        assert (encode_segment(first) == encode_segment(second)) == (units[0] == units[1])


@pytest.mark.parametrize("name", ["", ".", "~", "~002e", "~0041", "a b", "é", "~D83D~"])
def test_a_name_that_no_id_has_stands_for_none(name: str) -> None:
    assert decode_segment(name) is None


@pytest.mark.parametrize(
    ("cwd", "project"),
    [
        (None, "_no-cwd"),
        ("/work/my app", "--work-my~0020app--"),
        ("/", "--root--"),
        ("", "--root--"),
        ("C:\\x\\y", "--C-x-y--"),
        ("/a//b/", "--a-b---"),
        ("/-a", "--a--"),
        ("/é", "--~00E9--"),
        ("/" + "x" * 400, "--" + "x" * 251 + "--"),
    ],
)
def test_a_working_directory_becomes_a_slug(cwd: str | None, project: str) -> None:
    assert project_name(cwd) == project


@pytest.mark.parametrize("version", [0, 1, 2, 3, 12])
def test_a_log_name_tells_its_format(version: int) -> None:
    assert parse_log_name(log_name(version)) == LogName(version, False)
    assert parse_log_name(log_name(version) + ".zstd") == LogName(version, True)


@pytest.mark.parametrize(
    "name",
    [
        "session.v0.jsonl",
        "session.v01.jsonl",
        "Session.jsonl",
        "session.jsonl.tmp",
        "session.V2.jsonl",
        "session.v2.jsonl\n",
        "session.jsonl.000000000000.tmp",
        "session.lock",
        "xsession.jsonl",
    ],
)
def test_other_names_are_no_logs(name: str) -> None:
    assert parse_log_name(name) is None


def test_a_log_right_in_a_project_is_the_retired_layout() -> None:
    assert is_flat_log("demo.jsonl")
    assert is_flat_log("demo.jsonl.zstd")
    assert not is_flat_log("notes.txt")
    assert not is_flat_log(".jsonl")
