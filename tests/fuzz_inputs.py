"""A fuzzer of what callers pass in: queries, filters, cursors, limits, places, configurations.

``python tests/fuzz_inputs.py --inputs 100000 --seed 1`` says how far it came and what it found.
Whatever is passed in, the answer is a result or a declared error with a message. One seed is one
run.
"""

from __future__ import annotations

import argparse
import sys
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import Counter
from collections.abc import Callable
from random import Random
from traceback import format_exception
from typing import Any, Final

import trio
from attrs import define, field
from service_world import session, store_of

from session_query.actors.composition import open_session_query
from session_query.actors.service import SessionQuery
from session_query.harness.configuration import configuration_toml, parse_configuration
from session_query.messages.config import IndexConfig, QueryConfig
from session_query.messages.errors import ErrorCode, SessionError, SessionQueryError
from session_query.messages.filters import event_filter_from_json, session_filter_from_json

HANG_SECONDS: Final = 20

TABLES: Final = "store index query tools spill scheduler x".split()
TOML: Final = ['"wal"', "true", "5", "[]", '"cjk"', "1979-05-27", "{a=1}"]
WORDS: Final = [
    *(
        "word",
        "words words",
        "a",
        "",
        " ",
        "登录",
        "e\u0301",
        "\ud83d",
        "\udc00\ud83d",
        "\0",
        "\ufeff",
    ),
    *(
        "\u2028",
        "😀",
        "\u202e",
        "OR",
        "NEAR(",
        '"',
        "'",
        "*",
        "-",
        "^",
        ":",
        "{}",
        "\\",
        "%",
        "_",
        "\x1b[31m",
    ),
    *("word " * 40, "x" * 2001, "ẞ", "İ", "ﬁ", "\u0345", "\U0010ffff", "\x85", "\u200d"),
]
NUMBERS: Final = [
    *(0, 1, 2, -1, 20, 100, 101, 2**31, 2**53 - 1, 2**53, 2**63, -(2**63), 10**30),
    *(0.5, -0.0, 1e300, 5e-324, float("inf"), float("-inf"), float("nan")),
]
KINDS: Final = [
    "id",
    "cwd",
    "created-at",
    "parent",
    "availability",
    "seq",
    "time",
    "type",
    "surface",
    "text",
]
KEYS: Final = ["kind", "values", "from", "to", "text", "value", "", "\ud800"]
SETTINGS: Final = (
    "read_window_max persisted_read_concurrency prepared_session_cache_size search_concurrency "
    "on_damaged close_timeout notify path open_at journal_mode default_limit max_limit "
    "snippet_chars tokenizer shared root max_inline_bytes redact unknown"
).split()


class Values:
    """Values of every kind, drawn from one seed."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def text(self) -> str:
        pieces = self.random.choices(WORDS, k=self.random.choice((1, 1, 1, 2, 3, 8)))
        if self.random.random() < 0.1:
            pieces.append(chr(self.random.randrange(0x110000)))
        return "".join(pieces)

    def number(self) -> Any:
        return self.random.choice(NUMBERS)

    def anything(self, depth: int = 0) -> Any:
        match self.random.randrange(9 if depth < 3 else 6):
            case 0 | 1:
                return self.text()
            case 2 | 3:
                return self.number()
            case 4:
                return self.random.choice((None, True, False))
            case 5:
                return self.random.choice((b"bytes", object(), {1}, 1j, Ellipsis))
            case 6 | 7:
                return [self.anything(depth + 1) for _ in range(self.random.randrange(4))]
            case _:
                count = self.random.randrange(4)
                return {self.random.choice(KEYS): self.anything(depth + 1) for _ in range(count)}

    def clause(self) -> Any:
        """The JSON form of a filter, nearly right."""
        clause: dict[str, Any] = {"kind": self.random.choice(KINDS)}
        for key in self.random.sample(KEYS[1:5], self.random.randrange(3)):
            clause[key] = self.random.choice((self.text, self.number, self.anything))()
        return clause if self.random.random() < 0.9 else self.anything()

    def cursor(self, given: str | None) -> Any:
        """A cursor that was given out, changed, or none at all."""
        if given is None or self.random.random() < 0.2:
            return self.random.choice((self.text, self.anything))()
        raw = bytearray(urlsafe_b64decode(given + "=" * (-len(given) % 4)))
        for _ in range(self.random.randrange(3)):
            at = self.random.randrange(len(raw))
            match self.random.randrange(4):
                case 0:
                    raw[at] = self.random.randrange(256)
                case 1:
                    del raw[at : at + self.random.randrange(1, 9)]
                case 2:
                    raw[at:at] = str(self.number()).encode()
                case _:
                    raw[at:at] = raw[: self.random.randrange(40)]
            raw = raw or bytearray(b"{")
        return urlsafe_b64encode(raw).decode()

    def toml(self) -> str:
        """A configuration file, nearly right."""
        lines = []
        for _ in range(self.random.randrange(1, 6)):
            table = self.random.choice(
                ("store", "index", "query", "tools", "spill", "scheduler", "x")
            )
            lines.append(f"[{table}]" if self.random.random() < 0.95 else f"[[{table}]]")
            for name in self.random.sample(SETTINGS, self.random.randrange(3)):
                value = self.random.choice((self.text, self.number))()
                known = self.random.choice(
                    ('"wal"', "true", "5", "[]", '"cjk"', "1979-05-27", "{a=1}")
                )
                lines.append(f"{name} = {repr(value) if self.random.random() < 0.3 else known}")
        text = "\n".join(lines)
        return text if self.random.random() < 0.9 else text[: self.random.randrange(len(text))]


async def _searched(query: SessionQuery, values: Values, given: dict[str, str]) -> str:
    random = values.random
    words = values.text() if random.random() < 0.7 else values.anything()
    clauses = [values.clause() for _ in range(random.choice((0, 0, 1, 2, 9)))]
    limit = random.choice((None, 1, values.number(), values.anything()))
    session_filters = [session_filter_from_json(one) for one in clauses if random.random() < 0.5]
    event_filters = [event_filter_from_json(one) for one in clauses if random.random() < 0.5]
    cursor = None
    if random.random() < 0.3:
        words, limit, session_filters, event_filters = "word", 1, [], []
        cursor = values.cursor(given.get("sessions"))
    page = await query.search_sessions(
        words,
        session_filters=session_filters,
        event_filters=event_filters,
        limit=limit,
        cursor=cursor,
    )
    if (words, limit) == ("word", 1) and page.next_cursor:
        given["sessions"] = page.next_cursor
    return "sessions found" if page.items else "no session found"


async def _searched_within(query: SessionQuery, values: Values, given: dict[str, str]) -> str:
    random = values.random
    session_id = random.choice(("s0", "s1", values.text(), values.anything()))
    cursor = None
    words: Any = random.choice(("word", values.text(), values.anything()))
    if random.random() < 0.3:
        session_id, words, cursor = "s0", "word", values.cursor(given.get("events"))
    page = await query.search_events(session_id, words, limit=1, cursor=cursor)
    if (session_id, words) == ("s0", "word") and page.next_cursor:
        given["events"] = page.next_cursor
    return "events found" if page.items else "no event found"


async def _filtered(query: SessionQuery, values: Values, _given: dict[str, str]) -> str:
    session_filters = [session_filter_from_json(values.clause()) for _ in range(2)]
    await query.filter_sessions(session_filters)
    return "sessions filtered"


async def _filtered_within(query: SessionQuery, values: Values, _given: dict[str, str]) -> str:
    event_filters = [event_filter_from_json(values.clause())]
    await query.filter_events("s0", event_filters)
    return "events filtered"


async def _read(query: SessionQuery, values: Values, _given: dict[str, str]) -> str:
    def number() -> Any:
        return values.random.choice((0, 1, values.number(), values.anything()))

    await query.read_event(
        values.random.choice(("s0", values.text())), number(), number(), number()
    )
    return "event read"


async def _traced(query: SessionQuery, values: Values, _given: dict[str, str]) -> str:
    await query.trace_event("s0", values.random.choice((0, values.number(), values.anything())))
    await query.trace_session(values.random.choice(("s1", values.text(), values.anything())))
    return "traced"


async def _configured(_query: SessionQuery, values: Values, _given: dict[str, str]) -> str:
    configuration = parse_configuration(values.toml(), "/folder")
    assert parse_configuration(configuration_toml(configuration), "/") == configuration
    return "configured"


async def _built(_query: SessionQuery, values: Values, _given: dict[str, str]) -> str:
    random = values.random
    cls: Callable[..., object] = random.choice((QueryConfig, IndexConfig))
    path = {"path": ":memory:"} if cls is IndexConfig else {}
    names = [name for name in cls.__annotations__ if not name.startswith("_")]
    chosen = random.sample(sorted(names), random.randrange(1, 3))
    cls(**{**path, **{name: values.anything() for name in chosen}})
    return "built"


OPERATIONS: Final = [
    *(_searched, _searched, _searched_within, _filtered, _filtered_within),
    *(_read, _traced, _configured, _built),
]


@define
class Run:
    """The outcomes of many inputs, and those that broke a promise."""

    outcomes: Counter[str] = field(factory=Counter)
    failures: list[str] = field(factory=list)

    async def feed(self, first: int, count: int) -> None:
        """Check the inputs of ``count`` seeds from ``first`` on, on one service."""
        family = [
            session(f"s{n}", "word word", "other word", parent_session="s0") for n in range(3)
        ]
        async with open_session_query(store=store_of(*family)) as query:
            given: dict[str, str] = {}
            for seed in range(first, first + count):
                await self._check(query, seed, given)
            hits = (await query.search_sessions("word")).items
            assert len(hits) == len(family), "the service no longer answers as it did"

    async def _check(self, query: SessionQuery, seed: int, given: dict[str, str]) -> None:
        values = Values(Random(seed))
        operation = values.random.choice(OPERATIONS)
        try:
            with trio.fail_after(HANG_SECONDS):
                self.outcomes[await operation(query, values, given)] += 1
        except SessionQueryError as error:
            assert error.code in ErrorCode and str(error).strip()
            self.outcomes[error.code] += 1
        except (Exception, SessionError) as error:
            self.failures.append(f"seed {seed}: {operation.__name__}: {error!r}")
            print(self.failures[-1], *format_exception(error)[-3:], sep="\n", flush=True)


def main() -> int:
    """Fuzz as the arguments say; the exit status is 1 where something was found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    run = Run()
    first = arguments.seed * 1_000_000_007
    for part in range(first, first + arguments.inputs, 10_000):
        trio.run(run.feed, part, min(10_000, first + arguments.inputs - part))
        print(f"{part - first} inputs, {len(run.failures)} failures", flush=True)
    for outcome, count in run.outcomes.most_common():
        print(f"{count:9} {outcome}")
    return 1 if run.failures else 0


if __name__ == "__main__":
    sys.exit(main())
