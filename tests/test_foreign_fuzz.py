"""A fixed share of the fuzzer of other agents' logs, and the inputs that once found something."""

from __future__ import annotations

from base64 import b64decode

import pytest
from fuzz_foreign_reader import Run, check
from fuzz_log_reader import DATA, Input

from session_query.messages.json import Json, decode, text_member

KEPT = [decode(line) for line in (DATA / "fuzz" / "found_foreign.jsonl").read_bytes().splitlines()]


@pytest.mark.parametrize("seed", [1, 2])
def test_changed_logs_are_read_or_refused(seed: int) -> None:
    run = Run()
    run.feed(seed, 1500)
    assert run.failures == []
    # Every way out is taken, so that the inputs are worth their time.
    assert {"whole", "torn", "damaged", "nothing", "CorruptLog"} <= run.outcomes.keys()


@pytest.mark.parametrize("kept", KEPT, ids=[text_member(kept, "found") for kept in KEPT])
def test_an_input_that_found_something_is_read_or_refused(kept: Json) -> None:
    content = b64decode(text_member(kept, "content"))
    found = Input(text_member(kept, "name"), content, text_member(kept, "agent"), "p")
    assert check(found, range(len(content))) == text_member(kept, "outcome")
