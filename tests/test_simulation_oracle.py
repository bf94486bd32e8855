"""The oracle must not be fooled: wrong answers to small recorded histories are refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from attrs import evolve

from session_query.messages.config import MEMORY, IndexConfig
from session_query.messages.errors import ErrorCode, SessionQueryError
from session_query.messages.event import Event, EventDraft, Replace
from session_query.messages.records import (
    EventSearchPage,
    SessionListing,
    SessionLog,
    SessionRecord,
    SessionSearchHit,
    SessionSearchPage,
    Skipped,
)
from session_query.simulations.history import Call, Commit, History, Log, Sitting
from session_query.simulations.logs import event_of, header_of
from session_query.simulations.oracle import Oracle, check_audit
from session_query.simulations.questions import Question
from session_query.simulations.search_model import best_match, find_events
from session_query.simulations.verdict import Violation

INDEX = IndexConfig(path=MEMORY, snippet_chars=20)
STORE = "/a"


def user(seq: int, text: str, *, replaces: tuple[int, int] | None = None) -> Event:
    data = {"role": "user", "content": [{"type": "text", "text": text}]}
    if replaces is None:
        return event_of(EventDraft("user/message", data, surface_op="append"), seq, seq)
    sources = tuple(range(replaces[0], replaces[1] + 1))
    op = Replace(*replaces)
    return event_of(
        EventDraft("user/message", data, surface_op=op, source_event_seqs=sources), seq, seq
    )


def log_of(session_id: str, *texts: str) -> Log:
    events = tuple(user(seq, text) for seq, text in enumerate(texts))
    return Log(header_of(session_id), events)


def history_of(*logs: Log) -> History:
    """Stored sessions, nothing live."""
    history = History()
    history.bind(STORE)
    for log in logs:
        history.store(STORE, log.header.id, log)
    return history


def live(history: History, session_id: str, *texts: str) -> Sitting:
    """A new session that is live, with one commit for each text."""
    sitting = history.sit(Sitting(header_of(session_id), STORE, history.change(session_id), None))
    sitting.entered = history.change(session_id)
    for seq, text in enumerate(texts):
        commit(history, sitting, user(seq, text))
    return sitting


def commit(history: History, sitting: Sitting, event: Event) -> None:
    asked = history.change(sitting.header.id)
    sitting.add(Commit(asked, history.tick(), (event,)))


def asked(
    history: History,
    what: str,
    *arguments: object,
    reply: object = None,
    error: Exception | None = None,
    meanwhile: Callable[[], object] = lambda: None,
) -> Call:
    """A call that was answered so."""
    call = history.ask("somebody", what, *arguments)
    meanwhile()
    call.reply, call.error = reply, error
    history.answer(call)
    return call


def hit(log: Log, query: str, *, alive: bool = False) -> SessionSearchHit:
    session = log.model(live=alive, persisted=not alive)
    found = best_match(session, query, (), INDEX.tokenizer, INDEX.snippet_chars)
    assert found is not None
    return found[1]


def events_page(log: Log, query: str) -> EventSearchPage:
    session = log.model(live=False, persisted=True)
    hits = find_events(session, query, (), INDEX.tokenizer, INDEX.snippet_chars)
    return EventSearchPage(log.header, tuple(hits))


def check(history: History, *calls: Call) -> None:
    Oracle(history, INDEX).check(calls)


def refuse(history: History, *calls: Call, because: str = "") -> None:
    with pytest.raises(Violation, match=because or None):
        check(history, *calls)


ALL_A = Question(None, "a")
ONE, TWO = log_of("s0", "a b"), log_of("s1", "a a", "c")


def page(*logs: Log, cursor: str | None = None) -> SessionSearchPage:
    return SessionSearchPage(tuple(hit(log, "a") for log in logs), cursor)


# -- searches -------------------------------------------------------------------------------------


def test_the_right_page_is_accepted() -> None:
    history = history_of(ONE, TWO)
    check(history, asked(history, "search", ALL_A, reply=page(TWO, ONE)))


def test_a_missing_session_is_refused() -> None:
    history = history_of(ONE, TWO)
    refuse(history, asked(history, "search", ALL_A, reply=page(TWO)), because="s0 is missing")


def test_hits_in_another_order_are_refused() -> None:
    history = history_of(ONE, TWO)
    refuse(history, asked(history, "search", ALL_A, reply=page(ONE, TWO)), because="order")


def test_more_to_come_where_nothing_is_left_is_refused() -> None:
    history = history_of(ONE, TWO)
    question = evolve(ALL_A, limit=2)
    call = asked(history, "search", question, reply=page(TWO, ONE, cursor="next"))
    refuse(history, call, because="nothing behind")


def test_a_page_that_ends_too_early_is_refused() -> None:
    history = history_of(ONE, TWO)
    call = asked(history, "search", evolve(ALL_A, limit=1), reply=page(TWO))
    refuse(history, call, because="s0 is missing")


def test_a_torn_record_that_is_shown_is_refused() -> None:
    history = history_of(ONE)
    torn = log_of("s0", "a b", "a a a")
    refuse(history, asked(history, "search", ALL_A, reply=page(torn)), because="cannot be found")


def test_a_state_that_was_replaced_before_the_request_is_refused() -> None:
    history = history_of(ONE)
    history.store(STORE, "s0", log_of("s0", "a a a a"))
    refuse(history, asked(history, "search", ALL_A, reply=page(ONE)))


def test_a_state_that_was_replaced_during_the_request_is_accepted() -> None:
    history = history_of(ONE)
    new = log_of("s0", "a a a a")

    def replace() -> None:
        history.store(STORE, "s0", new)

    call = asked(history, "search", ALL_A, reply=page(ONE), meanwhile=replace)
    check(history, call)
    call.reply = page(new)
    check(history, call)


def test_stored_sessions_need_not_share_an_instant() -> None:
    history = history_of(ONE, TWO)
    new_one, new_two = log_of("s0", "c"), log_of("s1", "a")

    def change_both() -> None:
        history.store(STORE, "s0", new_one)
        history.store(STORE, "s1", new_two)

    call = asked(history, "search", ALL_A, reply=page(new_two, ONE), meanwhile=change_both)
    check(history, call)


def test_live_sessions_of_two_instants_are_refused() -> None:
    history = history_of()
    first, second = live(history, "s0", "b"), live(history, "s1", "b")

    def commit_to_both() -> None:
        commit(history, first, user(1, "a b"))
        commit(history, second, user(1, "a a"))

    call = history.ask("somebody", "search", ALL_A)
    commit_to_both()
    history.answer(call)
    only_the_later = hit(second.log(2), "a", alive=True)
    call.reply = SessionSearchPage((only_the_later,))
    refuse(history, call, because="s0 is missing")
    call.reply = SessionSearchPage((hit(first.log(2), "a", alive=True),))
    check(history, call)


def test_an_accepted_event_must_be_found_and_one_to_come_must_not() -> None:
    history = history_of()
    sitting = live(history, "s0", "a")
    early = asked(history, "search", ALL_A, reply=SessionSearchPage(()))
    commit(history, sitting, user(1, "a a"))
    refuse(history, early, because="s0 is missing")
    early.reply = SessionSearchPage((hit(sitting.log(2), "a", alive=True),))
    refuse(history, early, because="cannot be found")
    early.reply = SessionSearchPage((hit(sitting.log(1), "a", alive=True),))
    check(history, early)


def test_a_dropped_flip_is_refused() -> None:
    old, new = user(0, "a b"), user(1, "c", replaces=(0, 0))
    log = Log(header_of("s0"), (old, new))
    history = history_of(log)
    question = Question("s0", "a")
    right = events_page(log, "a")
    check(history, asked(history, "search", question, reply=right))
    wrong = events_page(Log(log.header, (old,)), "a")
    assert wrong != right
    refuse(history, asked(history, "search", question, reply=wrong))


def test_what_is_left_out_must_be_damaged_and_what_is_damaged_must_be_named() -> None:
    damaged = Log(ONE.header, ONE.events, damage=ErrorCode.CORRUPT_SESSION)
    named = (Skipped("x", "s0", ErrorCode.CORRUPT_SESSION, "broken"),)
    history = history_of(damaged)
    call = asked(history, "search", ALL_A, reply=SessionSearchPage((), skipped=named))
    check(history, call)
    call.reply = SessionSearchPage(())
    refuse(history, call, because="s0 is missing")
    history.store(STORE, "s0", ONE)
    refuse(history, asked(history, "search", ALL_A, reply=SessionSearchPage((), skipped=named)))


def test_the_rows_of_a_store_that_was_swapped_are_refused() -> None:
    history = history_of(ONE)
    history.bind("/b")
    refuse(history, asked(history, "search", ALL_A, reply=page(ONE)))
    check(history, asked(history, "search", ALL_A, reply=SessionSearchPage(())))


# -- cursors --------------------------------------------------------------------------------------


def test_pages_of_one_chain_must_be_of_one_state() -> None:
    history = history_of(ONE, TWO)
    question = evolve(ALL_A, limit=1)
    first = asked(history, "search", question, reply=page(TWO, cursor="next"))
    second = asked(history, "search", question, reply=page(ONE))
    second.before = first
    check(history, first, second)
    history.store(STORE, "s1", log_of("s1", "c"))
    third = asked(history, "search", question, reply=page(ONE))
    third.before = first
    refuse(history, third)


def test_a_cursor_may_be_stale_only_where_something_has_changed() -> None:
    stale = SessionQueryError(ErrorCode.STALE_CURSOR, "stale")
    history = history_of(ONE, TWO)
    question = evolve(ALL_A, limit=1)
    first = asked(history, "search", question, reply=page(TWO, cursor="next"))
    second = asked(history, "search", question, error=stale)
    second.before = first
    refuse(history, second, because="nothing has changed")
    history.store(STORE, "s1", TWO)
    third = asked(history, "search", question, error=stale)
    third.before = first
    check(history, third)


# -- reads ----------------------------------------------------------------------------------------


def test_reads_of_a_live_log_have_one_order() -> None:
    history = history_of()
    sitting = live(history, "s0", "a", "b")
    first = history.ask("one", "read_session", "s0")
    asked_commit = history.change("s0")
    second = history.ask("two", "read_session", "s0")
    whole = (user(0, "a"), user(1, "b"), user(2, "c"))
    first.reply = SessionLog(sitting.header, 0, whole)
    history.answer(first)
    third = history.ask("two", "read_session", "s0")
    third.reply = SessionLog(sitting.header, 0, whole[:2])
    history.answer(third)
    second.reply = third.reply
    history.answer(second)
    sitting.add(Commit(asked_commit, history.tick(), whole[2:]))
    check(history, first, second)
    check(history, third)
    refuse(history, first, second, third, because="after")


def test_a_session_that_was_there_all_the_time_must_be_listed() -> None:
    history = history_of(ONE)
    listed = SessionListing((SessionRecord(ONE.header, live=False, persisted=True),))
    check(history, asked(history, "list", reply=listed))
    refuse(history, asked(history, "list", reply=SessionListing(())), because="not listed")


def test_a_session_that_never_was_must_not_be_listed() -> None:
    history = history_of()
    listed = SessionListing((SessionRecord(ONE.header, live=False, persisted=True),))
    refuse(history, asked(history, "list", reply=listed), because="never were")


def test_an_error_without_a_reason_is_refused() -> None:
    failed = SessionQueryError(ErrorCode.PERSISTENCE_FAILED, "I/O")
    history = history_of(ONE)
    call = asked(history, "read_session", "s0", error=failed)
    refuse(history, call)
    call.faults_after += 1
    check(history, call)


def test_a_generation_that_falls_is_refused() -> None:
    history = history_of()
    first, second = asked(history, "refresh", reply=3), asked(history, "refresh", reply=2)
    first.generation, second.generation = 3, 2
    refuse(history, first, second, because="generation 2")


# -- audits ---------------------------------------------------------------------------------------


def test_what_was_acknowledged_must_be_on_the_disk() -> None:
    history = history_of()
    sitting = live(history, "s0", "a", "b", "c")
    sitting.acknowledged.append((history.tick(), 2))
    for kept in (2, 3):
        check_audit(STORE, "s0", sitting, Log(sitting.header, sitting.events[:kept]))
    with pytest.raises(Violation, match="2 were acknowledged"):
        check_audit(STORE, "s0", sitting, Log(sitting.header, sitting.events[:1]))
    with pytest.raises(Violation, match="is gone"):
        check_audit(STORE, "s0", sitting, None)


def test_what_was_never_accepted_must_not_be_on_the_disk() -> None:
    history = history_of()
    sitting = live(history, "s0", "a")
    with pytest.raises(Violation, match="never accepted"):
        check_audit(STORE, "s0", sitting, Log(sitting.header, (user(0, "b"),)))
