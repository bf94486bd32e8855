"""Event traces: what replaced an event, what it replaced, what it cites and what cites it."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from actor_world import message, replacement
from builders import Log, header
from faulty_store import FaultyStore
from hypothesis import given
from service_world import CountingStore, refused, session, store_of
from strategies import logs

from session_query import MemoryStore, open_session_query
from session_query.history.event_trace import trace_event
from session_query.history.fold import fold_surface
from session_query.messages.errors import ErrorCode
from session_query.messages.event import Event
from session_query.messages.records import EventTrace, Surface
from session_query.storage.contract import CorruptLog, StoreFailed


def trace(log: Log, seq: int) -> EventTrace:
    return trace_event(header("s"), log.events, seq)


def relations(found: EventTrace) -> tuple[object, ...]:
    """Surface, replaced by, chain, replaced, sources, derived."""
    return (
        found.target.surface.value,
        found.replaced_by,
        [*found.replacement_chain],
        [*found.replaced_event_seqs],
        [*found.source_event_seqs],
        [*found.derived_event_seqs],
    )


def two_summaries() -> Log:
    """Three messages, the first two and then all of them summed up."""
    log = Log()
    for text in "abc":
        log.user(text)
    log.replace(0, 1, [0, 1])
    log.user("d")
    log.replace(3, 2, [3, 2])
    return log


@pytest.mark.parametrize(
    ("seq", "wanted"),
    [
        (0, ("shadowed", 3, [3, 5], [], [], [3])),
        (2, ("shadowed", 5, [5], [], [], [5])),
        (3, ("shadowed", 5, [5], [0, 1], [0, 1], [5])),
        (4, ("current", None, [], [], [], [])),
        (5, ("current", None, [], [3, 2], [3, 2], [])),
    ],
)
def test_a_chain_goes_over_both_replacements(seq: int, wanted: tuple[object, ...]) -> None:
    assert relations(trace(two_summaries(), seq)) == wanted


def test_citations_are_in_recorded_order_and_whatever_cites_a_log_only_event_derives_from_it() -> (
    None
):
    log = Log()
    log.call("c")
    log.user("a", sources=[0])
    log.replace(1, 1, [1, 0])
    log.turn_end()
    log.replace(2, 2, [0, 2])
    assert relations(trace(log, 0)) == ("log-only", None, [], [], [], [1, 2, 4])
    assert relations(trace(log, 1)) == ("shadowed", 2, [2, 4], [], [0], [2])
    assert relations(trace(log, 4)) == ("current", None, [], [2], [0, 2], [])


def test_a_target_that_is_missing_is_told_before_a_surface_that_is_wrong() -> None:
    log = Log()
    log.user("a")
    log.replace(5, 5, [0])
    with refused(ErrorCode.EVENT_NOT_FOUND, "seqs 0 to 1"):
        trace(log, 2)
    with refused(ErrorCode.EVENT_NOT_FOUND, "no events"):
        trace(Log(), 0)


@given(logs())
def test_the_relations_of_all_events_fit_together(events: tuple[Event, ...]) -> None:
    traces = [trace_event(header("s"), events, seq) for seq in range(len(events))]
    current = set(fold_surface(events, 2).nodes)
    for seq, found in enumerate(traces):
        assert (found.target.surface is Surface.CURRENT) == (seq in current)
        assert (found.target.surface is Surface.SHADOWED) == (found.replaced_by is not None)
        for removed in found.replaced_event_seqs:
            assert traces[removed].replaced_by == seq
        for source in found.source_event_seqs:
            assert seq in traces[source].derived_event_seqs
        chain = [seq, *found.replacement_chain]
        assert [traces[link].replaced_by for link in chain] == [*chain[1:], None]
        assert sum(seq in each.replaced_event_seqs for each in traces) == (
            found.replaced_by is not None
        )


# -- through the service --------------------------------------------------------------------------


def stored(*logs_: tuple[str, Iterable[Event]]) -> CountingStore:
    return CountingStore(MemoryStore((header(name), events) for name, events in logs_))


async def test_a_trace_reads_the_log_of_its_session_once_and_lists_nothing() -> None:
    store = stored(("s", two_summaries().events), ("t", []))
    async with open_session_query(store=store) as query:
        found = await query.trace_event("s", 3)
        assert (found.header.id, found.replaced_by) == ("s", 5)
        assert store.calls == {"open": 1}


async def test_a_live_session_is_traced_without_its_store() -> None:
    store = store_of()
    async with (
        open_session_query(store=store) as query,
        query.sessions.create(id="s", durable=False) as live,
    ):
        await live.commit(message("a"), message("b"), replacement(0, 1, 0, 1))
        assert relations(await query.trace_event("s", 2)) == (
            *("current", None, [], [0, 1], [0, 1], []),
        )
        assert not store.calls


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (StoreFailed("the disk is gone"), ErrorCode.PERSISTENCE_FAILED),
        (CorruptLog("line 3 is damaged"), ErrorCode.CORRUPT_SESSION),
    ],
)
async def test_a_store_that_fails_is_told_with_its_cause(
    failure: Exception, code: ErrorCode
) -> None:
    store = FaultyStore(MemoryStore([session("s", "a")]), read_failures=[failure])
    async with open_session_query(store=store) as query:
        with pytest.raises(Exception, match=str(failure)) as raised:
            await query.trace_event("s", 0)
        assert getattr(raised.value, "code", None) is code
        assert raised.value.__cause__ is failure
        assert (await query.trace_event("s", 0)).target.seq == 0


INVALID = {
    "a log-only event with a surface operation": lambda log: log.add("turn/start", op="append"),
    "a message without one": lambda log: log.user("x", op=None),
    "a replacement of nothing that is there": lambda log: log.replace(7, 7, [0]),
    "a replacement that cites nothing": lambda log: log.user("x", op=("replace", 0, 0)),
    "a source that is not earlier": lambda log: log.user("x", sources=[9]),
    "a source twice": lambda log: log.user("x", sources=[0, 0]),
    "no sources at all": lambda log: log.user("x", sources=[]),
    "a replacement that leaves a node uncited": lambda log: log.replace(0, 1, [0]),
    "a message in the place of a result alone": lambda log: log.rewrite(0, "c", "x"),
}


@pytest.mark.parametrize("fault", INVALID)
async def test_an_invalid_surface_fails_every_read_that_folds_it(fault: str) -> None:
    log = Log()
    log.user("a")
    log.user("b")
    INVALID[fault](log)
    async with open_session_query(store=stored(("s", log.events))) as query:
        for read in (
            query.trace_event("s", 0),
            query.list_events("s"),
            query.read_surface("s"),
            query.filter_events("s", []),
        ):
            with refused(ErrorCode.INVALID_SURFACE):
                await read
        assert (await query.read_event("s", 2)).target.seq == 2
