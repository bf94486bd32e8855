"""The corpus: seeds that once failed, replayed before anything new is tried.

One run a line: ``<seed> <scenario> [<name>=<value> ...] # <reason>``. A seed is worth a line only
as long as its scenario draws what it drew then; the direct test beside the product stays for good.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from attrs import field, frozen

CORPUS: Final = Path(__file__).with_name("corpus.txt")


@frozen
class CorpusLine:
    """A run that once failed."""

    seed: int
    scenario: str
    overrides: dict[str, str] = field(factory=dict)
    reason: str = ""


def read_corpus(path: Path = CORPUS) -> list[CorpusLine]:
    """The runs of a corpus file, in its order.

    Raises:
        ValueError: naming the line that is not understood.
        OSError: the file cannot be read.
    """
    return list(_lines(path))


def _lines(path: Path) -> Iterator[CorpusLine]:
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        run, _, reason = line.partition("#")
        words = run.split()
        if not words:
            continue
        try:
            seed, scenario, *settings = words
            yield CorpusLine(int(seed), scenario, parse_settings(settings), reason.strip())
        except ValueError as error:
            raise ValueError(
                f"{path.name} line {number}: a run is '<seed> <scenario> [name=value ...] # reason'"
                f", got {line!r}"
            ) from error


def parse_settings(settings: list[str]) -> dict[str, str]:
    """The ``name=value`` words of a command line or corpus line.

    Raises:
        ValueError: a word without ``=`` or without a name.
    """
    parsed: dict[str, str] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not name or not equals:
            raise ValueError(f"a setting is name=value, got {setting!r}")
        parsed[name] = value
    return parsed
