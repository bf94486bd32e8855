"""Recorded model streams (current-version.md §2)."""

from __future__ import annotations

import pytest
from builders import assistant_data, header, text, tool_call

from session_query.history.replay import validate_log
from session_query.history.stream import Assembly, expand, rebuild
from session_query.messages.errors import ReplayError
from session_query.messages.event import Event
from session_query.messages.json import Json, encode


def chunk(kind: str, **fields: Json) -> dict[str, Json]:
    return {"type": "chunk", "time": 5, "chunk": {"type": kind, **fields}}


def run(kind: str, *texts: str, index: int = 0, **fields: Json) -> dict[str, Json]:
    gaps: list[Json] = [1] * (len(texts) - 1)
    record: dict[str, Json] = {"type": kind, "time0": 10, "index": index, "dt": gaps, **fields}
    members: list[Json] = [*texts]
    record["args" if kind == "tool-call-chunks" else "texts"] = members
    return record


def built(*records: Json) -> Assembly:
    return rebuild(expand(list(records)))


def test_a_run_expands_to_one_timed_chunk_a_member() -> None:
    record: Json = {**run("text-chunks", "a", "b", "c"), "dt": [5, -2]}
    assert [(each.time, each.chunk) for each in expand([record])] == [
        (10, {"type": "text-delta", "index": 0, "text": "a"}),
        (15, {"type": "text-delta", "index": 0, "text": "b"}),
        (13, {"type": "text-delta", "index": 0, "text": "c"}),
    ]


def test_a_nameless_tool_call_run_stays_nameless() -> None:
    named, nameless = expand(
        [
            run("tool-call-chunks", "{}", id="c", name="ls"),
            run("tool-call-chunks", "{}", id="c"),
        ]
    )
    assert named.chunk["name"] == "ls"
    assert "name" not in nameless.chunk


@pytest.mark.parametrize(
    "record",
    [
        None,
        "text-chunks",
        {"type": "picture-chunks"},
        {"type": "chunk", "time": 1},
        {"type": "chunk", "time": "1", "chunk": {"type": "usage"}},
        {"type": "chunk", "time": 1, "chunk": {}},
        run("text-chunks"),
        {**run("text-chunks", "a"), "dt": [1]},
        {**run("text-chunks", "a", "b"), "dt": [0.5]},
        {**run("text-chunks", "a", "b"), "dt": "1"},
        {**run("text-chunks", "a"), "texts": [1]},
        {**run("text-chunks", "a"), "time0": 1.5},
        {**run("text-chunks", "a"), "index": -1},
        run("tool-call-chunks", "{}"),
        run("tool-call-chunks", "{}", id="c", name=None),
    ],
)
def test_a_malformed_record_is_named_by_its_position(record: Json) -> None:
    with pytest.raises(ReplayError, match="record 1 of the stream"):
        expand([run("text-chunks", "a"), record])


def test_a_stream_that_is_no_list_does_not_expand() -> None:
    with pytest.raises(ReplayError, match="not a list"):
        expand({})


def test_blocks_come_in_first_seen_order_and_join_their_deltas() -> None:
    assembly = built(
        run("reasoning-chunks", "hm", "m", index=4),
        run("text-chunks", "a", index=1),
        run("tool-call-chunks", '{"x', '":1}', index=2, id="c", name="ls"),
        run("text-chunks", "b", index=1),
    )
    assert assembly.content == [
        {"type": "reasoning", "text": "hmm"},
        text("ab"),
        tool_call("c", "ls", '{"x":1}'),
    ]


def test_a_block_start_opens_an_empty_block() -> None:
    assert built(chunk("block-start", index=0, blockType="text")).content == [text("")]


def test_the_first_block_end_settles_its_block() -> None:
    assembly = built(
        run("text-chunks", "draft"),
        chunk("block-end", index=0, block=text("final")),
        run("text-chunks", "late"),
        chunk("block-end", index=0, block=text("later")),
    )
    assert assembly.content == [text("final")]


def test_an_open_tool_call_falls_back_to_its_index_and_no_name() -> None:
    record = chunk("tool-call-delta", index=3, id="", argumentsDelta="{")
    assert built(record).content == [tool_call("call-3", "", "{")]


def test_the_last_usage_and_the_replay_state_are_kept() -> None:
    assembly = built(
        chunk("usage", usage={"inputTokens": 1}),
        chunk("usage", usage={"inputTokens": 2}),
        chunk("finish", reason={"kind": "stop"}, replayState={"k": 1}),
    )
    assert (assembly.usage, assembly.replay_state) == ({"inputTokens": 2}, {"k": 1})


@pytest.mark.parametrize("reason", ["max-tokens", {"kind": "max-tokens"}])
def test_running_out_of_tokens_drops_all_tool_calls(reason: Json) -> None:
    assembly = built(
        run("text-chunks", "a"),
        chunk("block-end", index=1, block=tool_call("c")),
        run("tool-call-chunks", "{", index=2, id="d", name="ls"),
        chunk("finish", reason=reason),
    )
    assert assembly.content == [text("a")]


def test_an_interrupted_message_keeps_visible_text_and_reasoning_only() -> None:
    chunks = expand(
        [
            run("reasoning-chunks", "why"),
            run("text-chunks", " \ufeff\n", index=1),
            run("tool-call-chunks", "{", index=2, id="d", name="ls"),
            run("text-chunks", "par", "t", index=3),
        ]
    )
    assert rebuild(chunks, "interrupted").content == [
        {"type": "reasoning", "text": "why"},
        text("part"),
    ]


def message(stream: Json, *blocks: Json, **fields: Json) -> list[Event]:
    data: Json = {**assistant_data(*blocks), "stream": stream, **fields}
    return [Event("assistant/message", 0, 0, encode(data), "append")]


def test_a_message_that_its_stream_rebuilds_is_valid() -> None:
    stream: Json = [
        run("text-chunks", "a", "b"),
        chunk("usage", usage={"inputTokens": 1.0, "outputTokens": 2}),
        chunk("finish", reason={"kind": "stop"}),
    ]
    usage: Json = {"outputTokens": 2, "inputTokens": 1}
    assert validate_log(header(), message(stream, text("ab"), usage=usage)) == 0


@pytest.mark.parametrize(
    ("stream", "part"),
    [
        ([run("text-chunks", "b")], "content"),
        ([run("text-chunks", "a"), chunk("usage", usage={"inputTokens": 1})], "usage"),
        ([run("text-chunks", "a"), chunk("finish", reason="stop", replayState=1)], "replayState"),
    ],
)
def test_a_message_that_differs_from_its_stream_is_damage(stream: Json, part: str) -> None:
    with pytest.raises(ReplayError, match=f"does not rebuild its {part}"):
        validate_log(header(), message(stream, text("a")))


def test_an_interrupted_message_is_compared_with_the_interrupted_assembly() -> None:
    stream: Json = [
        run("text-chunks", "a"),
        run("tool-call-chunks", "{", index=1, id="c", name="ls"),
    ]
    assert validate_log(header(), message(stream, text("a"), interrupted=True)) == 0
    with pytest.raises(ReplayError, match="content"):
        validate_log(header(), message(stream, text("a")))


def test_an_empty_stream_proves_nothing() -> None:
    assert validate_log(header(), message([], text("a"))) == 0


def test_a_missing_stream_counts_as_empty() -> None:
    data = assistant_data(text("a"))
    event = Event("assistant/message", 0, 0, encode(data), "append")
    assert validate_log(header(), [event]) == 0


def test_an_attempt_only_has_to_expand() -> None:
    def attempt(stream: Json) -> list[Event]:
        return [Event("assistant/attempt", 0, 0, encode({"stream": stream}))]

    assert validate_log(header(), attempt([run("text-chunks", "half an ans")])) == 0
    with pytest.raises(ReplayError, match="event 0: record 0"):
        validate_log(header(), attempt([run("text-chunks")]))


def test_formats_without_streams_do_not_check_one() -> None:
    assert validate_log(header(version=1), message("no stream", text("a"))) == 0
