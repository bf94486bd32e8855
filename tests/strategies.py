"""Hypothesis strategies that several tests share."""

from __future__ import annotations

from builders import Log, text, tool_call
from hypothesis import strategies as st

from session_query.messages.event import Event
from session_query.messages.json import MAX_SAFE_INTEGER, Json

words = st.text('aB1. \n\t"\\\x00\xa0\ufeffé登録💡', max_size=8)
"""Short texts of several scripts with white space and characters that JSON escapes."""

scalars: st.SearchStrategy[Json] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-MAX_SAFE_INTEGER, MAX_SAFE_INTEGER),
    st.floats(allow_nan=False, allow_infinity=False).filter(lambda value: str(value) != "-0.0"),
    words,
)

json_values: st.SearchStrategy[Json] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)
"""Lossless JSON."""

_tools = st.sampled_from(["read", "session_search"])
_call_ids = st.sampled_from(["c1", "c2", "c3"])
_turns = ["turn/start", "turn/end", "step/start", "step/end"]
_steps = st.sampled_from(
    [*_turns, "user", "assistant", "call", "result", "replace", "rewrite", "title", "note"]
)


@st.composite
def logs(draw: st.DrawFn, max_size: int = 30) -> tuple[Event, ...]:
    """Valid logs of format 2: turns in any order, calls, results, replacements, titles."""
    log = Log()
    surface: list[int] = []
    for step in draw(st.lists(_steps, max_size=max_size)):
        _extend(draw, log, surface, step)
    return tuple(log.events)


def _extend(draw: st.DrawFn, log: Log, surface: list[int], step: str) -> None:
    match step:
        case "user":
            surface.append(log.user(draw(words)))
        case "assistant":
            asked = draw(st.lists(st.tuples(_call_ids, _tools), max_size=2))
            blocks = [text(draw(words)), *(tool_call(*call) for call in asked)]
            surface.append(log.assistant(*blocks))
        case "call":
            log.call(draw(_call_ids), draw(_tools))
        case "result":
            surface.append(log.result(draw(_call_ids), draw(words)))
        case "replace" if surface:
            first = draw(st.integers(0, len(surface) - 1))
            last = draw(st.integers(first, len(surface) - 1))
            removed = surface[first : last + 1]
            extra = draw(st.sets(st.integers(0, len(log.events) - 1), max_size=2))
            sources = [*removed, *sorted(extra - set(removed))]
            surface[first : last + 1] = [log.replace(removed[0], removed[-1], sources)]
        case "rewrite":
            results = [seq for seq in surface if log.events[seq].type == "tool/result"]
            if results:
                seq = draw(st.sampled_from(results))
                call_id = log.events[seq].data["message"]["source"]["callId"]  # type: ignore[index,call-overload]
                surface[surface.index(seq)] = log.rewrite(seq, str(call_id), draw(words))
        case "title":
            log.title(draw(words))
        case "turn/start" | "turn/end" | "step/start" | "step/end":
            number = draw(st.integers(1, 3))
            log.add(step, {"turn": number, "step": number, "reason": {"kind": "completed"}})
        case "note":
            log.add("demo/note", draw(scalars), ignorable=True)
