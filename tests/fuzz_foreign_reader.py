"""A fuzzer of the readers of other agents' logs: small logs, changed in a few places.

``python tests/fuzz_foreign_reader.py --inputs 100000 --seed 1`` says how far it came and what it
found; ``--logs`` adds every log below a folder to those that are changed. Whatever the bytes are, a
file is a session that can be read to its end, or refused with a declared error; what is read is a
valid log, the same in one piece, in small tails, and continued after an append. One seed is one
run.
"""

from __future__ import annotations

import sys
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from traceback import format_exception
from typing import Final

from attrs import define, evolve, field
from foreign_logs import (
    MAIN,
    OTHER,
    answer,
    claude,
    item,
    message,
    meta,
    notice,
    outcome,
    prompt,
    rollout,
    said,
    use,
)
from fuzz_log_reader import ROOT, Input, OneFile, arguments, changed, drive

from session_query.history.projection import SessionProjection
from session_query.history.replay import validate_log
from session_query.messages.event import Event
from session_query.messages.json import encode
from session_query.storage.claude_code import ClaudeCodeStore
from session_query.storage.codex import CodexStore
from session_query.storage.contract import SessionStore, StoredLog, StoreError
from session_query.storage.zstandard import compress

CLAUDE: Final = "claude"
CODEX: Final = "codex"
TAIL: Final = 700

_CLAUDE_ROWS: Final = (
    encode({"type": "summary", "summary": "About it", "leafUuid": "row-1"}),
    prompt(0, "Why does the login time out?"),
    answer(1, {"type": "thinking", "thinking": "hm"}, said("I look."), use("t1", "Bash", c="ls")),
    prompt(2, [outcome("t1", [said("a.txt"), {"type": "image"}], is_error=True)]),
    claude("progress", 3, data={"type": "hook_progress"}),
    claude("system", 4, subtype="compact_boundary"),
    prompt(5, "Summary.", isCompactSummary=True),
    answer(6, said("Go on.")),
    claude("custom-title", 7, customTitle="Mine"),
    prompt(8, "fork", OTHER),
)
_OLD: Final = "1.0.24"


def _of_agent(number: int, after: str | None, text: str, session: str = MAIN) -> bytes:
    """A row of an agent inside the log of its session."""
    return prompt(number, text, session, version=_OLD, isSidechain=True, parentUuid=after)


_OLD_CLAUDE_ROWS: Final = (
    prompt(0, "Why does the login time out?", OTHER, version=_OLD),
    _of_agent(1, None, "Look at the log.", OTHER),
    prompt(2, "And mine?", version=_OLD),
    _of_agent(3, None, "Look at the settings."),
    _of_agent(4, None, "Look at the clock."),
    _of_agent(5, "row-4", "It is late."),
    _of_agent(6, "row-3", "They are old."),
    answer(7, said("Both."), version=_OLD),
)
_CODEX_ROWS: Final = (
    meta(MAIN, forked_from_id=OTHER),
    rollout(0, "turn_context", {"model": "gpt", "turn_id": "019cadd0-0000-7000-8000-000000000001"}),
    notice(1, "task_started"),
    message(2, "user", "Why does the login time out?"),
    notice(2, "user_message", message="Why does the login time out?"),
    item(3, "reasoning", summary=[{"type": "summary_text", "text": "hm"}]),
    item(4, "function_call", name="shell", arguments="{}", call_id="c1"),
    item(5, "function_call_output", call_id="c1", output=[{"type": "input_text", "text": "ok"}]),
    rollout(6, "compacted", {"message": "Summary.", "replacement_history": []}),
    notice(7, "thread_name_updated", thread_name="Mine"),
    encode({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]}),
    notice(8, "turn_aborted"),
)


def originals(logs: Path | None) -> list[Input]:
    """Logs of both agents, whole and as short beginnings, plain and compressed."""
    found: list[Input] = []
    claude, old, codex = (CLAUDE, _CLAUDE_ROWS), (CLAUDE, _OLD_CLAUDE_ROWS), (CODEX, _CODEX_ROWS)
    for agent, rows in (claude, old, codex):
        for count in (3, 6, len(rows)):
            found.append(_input(agent, b"".join(row + b"\n" for row in rows[:count])))
    one = encode({"session": {"id": MAIN, "timestamp": "2026-03-02T10:00:00Z"}, "items": [{}]})
    found.append(Input(f"rollout-{MAIN}.json", one, CODEX, "p"))
    for path in sorted(logs.rglob("*.jsonl")) if logs is not None else ():
        agent = CODEX if CODEX in str(path) else CLAUDE
        found.append(_input(agent, path.read_bytes()[:20_000]))
    return found


def _input(agent: str, content: bytes) -> Input:
    return Input(f"{MAIN}.jsonl", content, agent, "p")


def inputs(seed: int, logs: Path | None = None) -> Iterator[Input]:
    """Inputs without end; some of Codex are compressed, and some of those changed once more."""
    random = Random(seed)
    pool = originals(logs)
    while True:
        original = random.choice(pool)
        content = changed(original.content, random)
        name = original.name
        if original.project == CODEX and name.endswith("l") and random.random() < 0.3:
            cut = random.randrange(len(content) + 1)
            content = compress(content[:cut]) + compress(content[cut:])
            name += ".zst"
            if random.random() < 0.5:
                content = changed(content, random)
        yield evolve(original, name=name, content=content)


def store_of(found: Input) -> SessionStore:
    """A store that holds nothing but one log."""
    disk = OneFile(found)
    if found.project == CLAUDE:
        return ClaudeCodeStore(f"{ROOT}/{CLAUDE}", files=disk)
    return CodexStore(ROOT, files=disk)


def check(found: Input, cuts: Sequence[int] = ()) -> str:
    """Read an input in every way and say what became of it. Raises ``AssertionError`` and worse."""
    store = store_of(found)
    swept = store.sweep()
    assert not (swept.snapshots and swept.damaged)
    if swept.damaged:
        [damage] = swept.damaged
        assert found.name in damage.message
        return "damaged"
    sessions = [snapshot.header.id for snapshot in swept.snapshots]
    outcomes = [_check_session(store, session_id, found, cuts) for session_id in sessions]
    return outcomes[0] if outcomes else "nothing"


def _check_session(store: SessionStore, session_id: str, found: Input, cuts: Sequence[int]) -> str:
    log = _whole(store, session_id)
    tails = _in_tails(store, session_id, None)
    if isinstance(log, StoreError):
        assert found.name in str(log)
        assert type(tails) is type(log), (log, tails)
        return type(log).__name__
    assert tails == log.events, "tails give other events"
    assert validate_log(log.snapshot.header, log.events) == log.inherited_event_count
    projection = SessionProjection(log.snapshot.header)
    for event in log.events:
        projection.advance(event)
    for cut in cuts:
        _check_append(found, cut, log)
    return "torn" if log.left_out else "whole"


def _whole(store: SessionStore, session_id: str) -> StoredLog | StoreError:
    try:
        with store.open(session_id, "read") as reader:
            return reader.read_log()
    except StoreError as error:
        return error


def _in_tails(
    store: SessionStore, session_id: str, mark: bytes | None
) -> tuple[Event, ...] | StoreError:
    events: list[Event] = []
    complete = False
    try:
        while not complete:
            tail = store.read_tail(session_id, mark, TAIL)
            assert tail.appended == (mark is not None)
            events += tail.events
            mark, complete = tail.mark, tail.complete
    except StoreError as error:
        return error
    return tuple(events)


def _check_append(found: Input, cut: int, whole: StoredLog) -> None:
    """A log read while only its first lines were there is continued to the same events."""
    cut = found.content.rfind(b"\n", 0, cut) + 1
    header = whole.snapshot.header
    before = store_of(evolve(found, content=found.content[:cut]))
    if not cut or header not in [seen.header for seen in before.sweep().snapshots]:
        return
    beginning = before.read_tail(header.id, None)
    rest = _in_tails(store_of(found), header.id, beginning.mark)
    assert (*beginning.events, *rest) == whole.events  # type: ignore[misc]


@define
class Run:
    """The outcomes of many inputs, and the inputs that broke a promise."""

    logs: Path | None = None
    outcomes: Counter[str] = field(factory=Counter)
    failures: list[tuple[Input, Exception]] = field(factory=list)

    def feed(self, seed: int, count: int) -> None:
        """Check ``count`` inputs; what breaks a promise is printed and kept."""
        random = Random(seed)
        for _, found in zip(range(count), inputs(seed, self.logs), strict=False):
            plain = found.name.endswith(".jsonl")
            cuts = [random.randrange(len(found.content) + 1)] if plain else []
            try:
                self.outcomes[check(found, cuts)] += 1
            except Exception as error:
                self.failures.append((found, error))
                print(
                    f"{found.name} {found.project} {cuts}", *format_exception(error)[-2:], sep="\n"
                )
                print(b64encode(found.content).decode(), flush=True)


if __name__ == "__main__":
    parser = arguments()
    parser.add_argument("--logs", type=Path)
    asked = parser.parse_args()
    sys.exit(drive(Run(asked.logs), asked.seed, asked.inputs))
