"""The configuration file: what it may say, what it is told to change, and how it is shown."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import attrs
import pytest
from command_line_runs import CommandLine
from hypothesis import given, settings
from hypothesis import strategies as st

from session_query.harness.configuration import (
    Configuration,
    configuration_toml,
    parse_configuration,
    read_configuration,
)
from session_query.messages.config import (
    IndexConfig,
    QueryConfig,
    SchedulerConfig,
    SpillConfig,
    StoreConfig,
    Tokenizer,
    ToolsConfig,
)
from session_query.messages.errors import ErrorCode, SessionQueryError

FULL = """
[store]
root = "logs"

[index]
path = "/var/cache/index.db"
open_at = "first-search"
tokenizer = "unicode61"
max_limit = 50

[query]
persisted_inspect_concurrency = 2
close_timeout = 1

[tools]
max_search_results = 7
search_timeout_ms = 100

[scheduler]
parallel_limit = 3

[spill]
max_inline_bytes = 1000
root = "spill"
inline_tools = ["read", "view"]
"""


def test_a_file_sets_what_it_names_and_leaves_the_rest() -> None:
    assert parse_configuration(FULL, "/etc/agent") == Configuration(
        store=StoreConfig(root="/etc/agent/logs"),
        index=IndexConfig(
            path="/var/cache/index.db",
            open_at="first-search",
            tokenizer=Tokenizer.UNICODE61,
            max_limit=50,
        ),
        query=QueryConfig(persisted_read_concurrency=2, close_timeout=1),
        tools=ToolsConfig(max_search_results=7, search_timeout_ms=100),
        scheduler=SchedulerConfig(parallel_limit=3),
        spill=SpillConfig(
            max_inline_bytes=1000, root="/etc/agent/spill", inline_tools=("read", "view")
        ),
    )


def test_an_empty_file_mounts_nothing() -> None:
    assert parse_configuration("", "/") == Configuration()
    assert Configuration().tools is None
    assert Configuration().spill is None


def test_a_table_without_settings_stands_for_the_defaults() -> None:
    configuration = parse_configuration("[tools]\n[spill]", "/")
    assert configuration.tools == ToolsConfig()
    assert configuration.spill == SpillConfig(max_inline_bytes=50_000)


def test_an_index_in_memory_is_no_path() -> None:
    configuration = parse_configuration('[index]\npath = ":memory:"', "/etc")
    assert configuration.index == IndexConfig(path=":memory:")


def test_paths_may_begin_at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/mara")
    configuration = parse_configuration('[store]\nroot = "~/logs"', "/etc")
    assert configuration.store == StoreConfig(root="/home/mara/logs")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[spil]", "'spil' is no table; did you mean spill? Known are store, index, query, tools"),
        ("[zzz]", "'zzz' is no table. Known are store"),
        ("[index]\npaht = 'x'", "'paht' is no setting of [index]; did you mean path?"),
        ("[tools]\nlimit = 3", "Known are max_search_results, search_timeout_ms"),
        ("[query]\nredact = 'x'", "[query] redact is a function: give it in Python"),
        ("tools = 3", "tools must be a table, written [tools], got 3"),
        ("[[tools]]", "tools must be a table"),
        ("[store]", "[store] needs root"),
        ("[index]\nopen_at = 'never'", "[index] needs path"),
        ("[store]\nroot = ' '", "[store] root must be the path of a folder, got ' '"),
        ("[tools]\nmax_search_results = 0", "[tools] max_search_results must be a whole number"),
        ("[tools]\nmax_search_results = '7'", "must be a whole number from 1"),
        ("[tools]\nsearch_timeout_ms = 2147483648", "from 1 to 2147483647, got 2147483648"),
        ("[spill]\nmax_inline_bytes = -1", "max_inline_bytes must be a whole number from 0"),
        ("[spill]\nroot = 3", "root must be the path of a folder, got 3"),
        ("[spill]\ninline_tools = 'read'", "inline_tools must be a list of names, got 'read'"),
        ("[spill]\ninline_tools = [1]", "inline_tools must be a list of names"),
        ("[scheduler]\nparallel_limit = true", "parallel_limit must be a whole number from 1"),
        ("[index]\npath = 'x'\nshared = 1", "shared must be True or False, got 1"),
        ("[index]\npath = 'x'\nopen_at = ['never']", "open_at must be one of"),
        ("[index]\npath = 3", "path must be a file path"),
        (
            "[query]\npersisted_read_concurrency = 1\npersisted_inspect_concurrency = 2",
            "are one setting; give it once",
        ),
        ("[tools", "not TOML: "),
    ],
)
def test_what_is_wrong_is_named_with_what_would_be_right(text: str, told: str) -> None:
    with pytest.raises(SessionQueryError) as refusal:
        parse_configuration(text, "/")
    assert refusal.value.code is ErrorCode.INVALID_CONFIG
    assert told in str(refusal.value)


def test_a_file_is_named_in_its_errors_and_its_paths_begin_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text("[store]\nroot = 'logs'")
    assert read_configuration(file).store == StoreConfig(root=str(tmp_path / "logs"))
    file.write_text("[tools]\nx = 1")
    with pytest.raises(SessionQueryError, match=r"agent\.toml': 'x' is no setting"):
        read_configuration(file)
    file.write_bytes(b"\xff")
    with pytest.raises(SessionQueryError, match=r"agent\.toml.*utf-8"):
        read_configuration(file)


paths = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
folders = paths.map(lambda path: "/" + path)


@settings(max_examples=80)
@given(
    configuration=st.builds(
        Configuration,
        store=st.none() | st.builds(StoreConfig, root=folders),
        index=st.none()
        | st.builds(
            IndexConfig,
            path=folders,
            open_at=st.sampled_from(["startup", "first-search", "never"]),
            tokenizer=st.sampled_from(Tokenizer),
            shared=st.booleans(),
        ),
        query=st.builds(QueryConfig, close_timeout=st.floats(0, 1000)),
        tools=st.none() | st.builds(ToolsConfig, search_timeout_ms=st.integers(1, 2**31 - 1)),
        scheduler=st.builds(SchedulerConfig, parallel_limit=st.integers(1, 2**53 - 1)),
        spill=st.none()
        | st.builds(
            SpillConfig,
            root=st.none() | folders,
            inline_tools=st.lists(st.text(st.characters(exclude_categories=["Cs"]))).map(tuple),
        ),
    )
)
def test_what_is_shown_reads_as_what_it_shows(configuration: Configuration) -> None:
    shown = configuration_toml(configuration)
    assert parse_configuration(shown, "/elsewhere") == configuration
    assert all(line.isprintable() for line in shown.split("\n"))


def test_every_setting_is_shown_but_functions_and_absent_ones() -> None:
    shown = tomllib.loads(configuration_toml(parse_configuration(FULL, "/")))
    for name, table in shown.items():
        part = getattr(parse_configuration(FULL, "/"), name)
        settable = {field.name for field in attrs.fields(type(part))}
        assert set(table) == settable - {"redact", "canonical_cwd", "extract"}


def test_an_absent_part_is_shown_with_what_that_means() -> None:
    shown = configuration_toml(Configuration())
    assert "# no [tools]: the model tools are not offered" in shown
    assert "# no [spill]: every result stays whole" in shown


def test_the_file_in_the_documentation_has_every_part_and_the_defaults() -> None:
    page = (Path(__file__).parent.parent / "docs" / "harness.md").read_text("utf-8")
    (text,) = re.findall(r"^```toml\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    shown = parse_configuration(text, "/")
    assert shown.spill == SpillConfig(root="/results")
    assert (shown.query, shown.tools) == (QueryConfig(), ToolsConfig())
    assert (shown.scheduler, shown.store) == (SchedulerConfig(), StoreConfig(root="/sessions"))
    assert shown.index is not None


def test_the_command_shows_the_effective_configuration(
    command_line: CommandLine, tmp_path: Path
) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(FULL)
    run = command_line("config", file)
    assert (run.status, run.err) == (0, "")
    assert parse_configuration(run.out, "/") == read_configuration(file)


def test_the_command_shows_the_defaults_without_a_file(command_line: CommandLine) -> None:
    run = command_line("config")
    assert (run.status, run.out) == (0, configuration_toml(Configuration()))


def test_the_command_refuses_a_wrong_file_in_one_line(
    command_line: CommandLine, tmp_path: Path
) -> None:
    file = tmp_path / "agent.toml"
    file.write_text("[tools]\nlimit = 3")
    run = command_line("config", file)
    assert (run.status, run.out, run.err.count("\n")) == (2, "", 1)
    assert "'limit' is no setting of [tools]" in run.err


def test_the_command_says_which_file_it_cannot_read(
    command_line: CommandLine, tmp_path: Path
) -> None:
    run = command_line("config", tmp_path / "absent.toml")
    assert (run.status, run.out) == (1, "")
    assert "absent.toml" in run.err
