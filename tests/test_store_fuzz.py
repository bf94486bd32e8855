"""A fixed share of the fuzzer of the log reader, and the inputs that once found something."""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path

import pytest
from fuzz_log_reader import DATA, Input, Run, check

from session_query.messages.json import Json, decode, text_member

FOUND: Path = DATA / "fuzz" / "found.jsonl"
KEPT = [decode(line) for line in FOUND.read_bytes().splitlines()]


@pytest.mark.parametrize("seed", [1, 2])
def test_changed_logs_are_read_or_refused(seed: int) -> None:
    run = Run()
    run.feed(seed, 700)
    assert run.failures == []
    # Every way out is taken, so that the inputs are worth their time.
    assert {"whole", "torn", "CorruptLog", "damaged header"} <= run.outcomes.keys()


@pytest.mark.parametrize("kept", KEPT, ids=[text_member(kept, "found") for kept in KEPT])
def test_an_input_that_found_something_is_read_or_refused(kept: Json) -> None:
    content = b64decode(text_member(kept, "content"))
    found = Input(text_member(kept, "name"), content, "--srv-demo--", text_member(kept, "segment"))
    assert check(found) == text_member(kept, "outcome")
