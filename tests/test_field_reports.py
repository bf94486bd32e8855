"""The table of field reports names tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent
TABLE = (TESTS.parent / "docs" / "field-reports.md").read_text("utf-8")


def test_every_report_is_answered_by_tests_that_exist() -> None:
    rows = re.findall(r"^\| R(\d+) \|(.*)$", TABLE, re.MULTILINE)
    assert [int(number) for number, _row in rows] == [*range(1, 40, 2)]
    for _number, row in rows:
        shown = re.findall(r"`(test_\w+\.py)::(test_\w+)`", row)
        assert shown, row
        for file, name in shown:
            assert f"def {name}(" in (TESTS / file).read_text("utf-8"), (file, name)
