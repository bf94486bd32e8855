"""Mailboxes: what a caller may count on, whoever is cancelled, closed or crashes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal, assert_never

import pytest
import trio
from attrs import define, field, frozen
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock, assert_checkpoints, wait_all_tasks_blocked

from session_query.actors.mailbox import (
    ActorCrashed,
    Mailbox,
    MailboxClosed,
    RankViolation,
    Request,
    running,
)


class Declared(Exception):
    """A reply that is an error."""


class Undeclared(Exception):
    """A crash."""


@frozen
class Work(Request[int]):
    number: int
    seconds: float = 0
    ending: Literal["reply", "declared", "crash"] = "reply"


@define(eq=False)
class Worker:
    """An actor that takes its time and remembers what it was doing."""

    servers: int = 1
    capacity: int = 4
    mailbox: Mailbox = field(init=False)
    started: list[int] = field(factory=list)
    busy: set[int] = field(factory=set)
    most_busy: int = 0

    def __attrs_post_init__(self) -> None:
        self.mailbox = Mailbox("worker", 5, self.capacity)

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(self.servers):
                nursery.start_soon(self._serve)

    async def _serve(self) -> None:
        await self.mailbox.serve(self._handle, answers=(Declared,))

    async def _handle(self, work: Work) -> int:
        assert work.number not in self.started, "a request is handled once"
        self.started.append(work.number)
        self.busy.add(work.number)
        self.most_busy = max(self.most_busy, len(self.busy))
        try:
            await trio.sleep(work.seconds)
        finally:
            self.busy.remove(work.number)
        match work.ending:
            case "reply":
                return work.number * 10
            case "declared":
                raise Declared(work.number)
            case "crash":
                raise Undeclared(work.number)
        assert_never(work.ending)


async def ask_all(worker: Worker, *works: Work) -> dict[int, int | Exception]:
    """What each of the requests, sent side by side in this order, came to."""
    results: dict[int, int | Exception] = {}

    async def ask(work: Work) -> None:
        try:
            reply = await worker.mailbox.ask(work)
            results[work.number] = reply
        except Exception as error:
            results[work.number] = error

    async with trio.open_nursery() as nursery:
        for work in works:
            nursery.start_soon(ask, work)
            await wait_all_tasks_blocked()
    return results


async def test_a_request_is_answered() -> None:
    async with running(Worker()) as worker:
        with assert_checkpoints():
            assert await worker.mailbox.ask(Work(4)) == 40


async def test_a_declared_error_is_a_reply_and_the_actor_goes_on() -> None:
    async with running(Worker()) as worker:
        with pytest.raises(Declared):
            await worker.mailbox.ask(Work(1, ending="declared"))
        assert await worker.mailbox.ask(Work(2)) == 20


async def test_one_server_takes_requests_in_the_order_of_asking(autojump_clock: MockClock) -> None:
    async with running(Worker(capacity=1)) as worker:
        await ask_all(worker, *(Work(number, 1) for number in range(6)))
    assert worker.started == [0, 1, 2, 3, 4, 5]


async def test_several_servers_share_one_mailbox(autojump_clock: MockClock) -> None:
    async with running(Worker(servers=3)) as worker:
        begin = trio.current_time()
        await ask_all(worker, *(Work(number, 1) for number in range(6)))
        assert trio.current_time() == begin + 2
    assert worker.most_busy == 3


async def test_an_ask_waits_for_room_in_a_full_mailbox(autojump_clock: MockClock) -> None:
    async with running(Worker(capacity=1)) as worker, trio.open_nursery() as nursery:
        for number in range(3):
            nursery.start_soon(worker.mailbox.ask, Work(number, 1))
        await wait_all_tasks_blocked()
        statistics = worker.mailbox.statistics()
        assert (statistics.in_hand, statistics.queued, statistics.waiting_for_room) == (1, 1, 1)


async def test_a_cancelled_request_that_has_not_started_never_starts(
    autojump_clock: MockClock,
) -> None:
    async with running(Worker()) as worker, trio.open_nursery() as nursery:
        nursery.start_soon(worker.mailbox.ask, Work(1, 10))
        await wait_all_tasks_blocked()
        with trio.move_on_after(1):
            await worker.mailbox.ask(Work(2))
        assert trio.current_time() == 1
    assert worker.started == [1]


async def test_a_cancelled_request_that_runs_is_stopped_and_awaited(
    autojump_clock: MockClock,
) -> None:
    async with running(Worker()) as worker:
        with trio.move_on_after(1) as scope:
            await worker.mailbox.ask(Work(1, 10))
        assert scope.cancelled_caught
        assert trio.current_time() == 1
        assert not worker.busy
        assert await worker.mailbox.ask(Work(2)) == 20


class Stubborn(Worker):
    """Its handlers finish, cancelled or not."""

    async def _handle(self, work: Work) -> int:
        with trio.CancelScope(shield=True):
            reply = await super()._handle(work)
        return reply


async def test_a_caller_awaits_a_handler_that_does_not_stop(autojump_clock: MockClock) -> None:
    async with running(Stubborn()) as worker:
        with trio.move_on_after(1):
            await worker.mailbox.ask(Work(1, 10, "declared"))
        assert trio.current_time() == 10
        assert not worker.busy


async def test_a_value_wins_over_a_cancellation_that_came_too_late(
    autojump_clock: MockClock,
) -> None:
    async with running(Stubborn()) as worker:
        with trio.move_on_after(1) as scope:
            assert await worker.mailbox.ask(Work(1, 10)) == 10
        assert not scope.cancelled_caught


async def test_an_error_gives_way_to_the_callers_own_cancellation(
    autojump_clock: MockClock,
) -> None:
    async with running(Stubborn()) as worker:
        with trio.CancelScope() as scope:
            scope.deadline = 1
            with pytest.raises(trio.Cancelled) as caught:
                await worker.mailbox.ask(Work(1, 10, "declared"))
            assert isinstance(caught.value.__context__, Declared)


async def test_closing_drains_what_was_accepted(autojump_clock: MockClock) -> None:
    worker = Worker()
    async with trio.open_nursery() as callers:
        results: list[int] = []

        async def ask(number: int) -> None:
            results.append(await worker.mailbox.ask(Work(number, 1)))

        async with running(worker):
            for number in range(4):
                callers.start_soon(ask, number)
            await wait_all_tasks_blocked()
    assert sorted(results) == [0, 10, 20, 30]


async def test_a_closed_mailbox_refuses() -> None:
    async with running(Worker()) as worker:
        pass
    with pytest.raises(MailboxClosed, match="worker is closed"):
        await worker.mailbox.ask(Work(1))
    assert worker.mailbox.closed


async def test_callers_who_wait_for_room_are_refused_when_the_mailbox_closes(
    autojump_clock: MockClock,
) -> None:
    async with running(Worker(capacity=0)) as worker, trio.open_nursery() as nursery:
        nursery.start_soon(worker.mailbox.ask, Work(1, 5))
        await wait_all_tasks_blocked()

        async def close() -> None:
            await trio.sleep(1)
            worker.mailbox.close()

        nursery.start_soon(close)
        with pytest.raises(MailboxClosed):
            await worker.mailbox.ask(Work(2))
        assert trio.current_time() == 1


async def test_a_crash_is_raised_by_the_block_and_told_to_every_caller(
    autojump_clock: MockClock,
) -> None:
    worker = Worker(servers=2)
    results: dict[int, int | Exception] = {}

    async def ask_everything() -> None:
        works = [Work(1, 1, "crash"), Work(2, 9), Work(3, 9), Work(4, 9)]
        results.update(await ask_all(worker, *works))

    async with trio.open_nursery() as callers:
        with pytest.raises(Undeclared) as crash:
            async with running(worker):
                callers.start_soon(ask_everything)
                await trio.sleep_forever()
    assert trio.current_time() == 1
    assert [type(result) for result in results.values()] == [ActorCrashed] * 4
    for told in results.values():
        assert isinstance(told, ActorCrashed)
        assert told.__cause__ is crash.value
    with pytest.raises(ActorCrashed) as late:
        await worker.mailbox.ask(Work(5))
    assert late.value.__cause__ is crash.value


async def test_a_stop_of_the_channel_kind_inside_a_handler_is_a_crash() -> None:
    class Confused(Worker):
        async def _handle(self, work: Work) -> int:
            raise trio.EndOfChannel

    with pytest.raises(trio.EndOfChannel):
        async with running(Confused()) as worker:
            with pytest.raises(ActorCrashed):
                await worker.mailbox.ask(Work(1))


async def test_what_the_block_raises_leaves_it_bare() -> None:
    with pytest.raises(KeyError):
        async with running(Worker()):
            raise KeyError("mine")


async def test_the_cancellation_of_the_block_leaves_it_bare() -> None:
    with trio.CancelScope() as scope, pytest.raises(trio.Cancelled):
        async with running(Worker()):
            scope.cancel()
            await trio.sleep_forever()


async def test_a_mailbox_closes_with_its_server() -> None:
    worker = Worker()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(worker.run)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert worker.mailbox.closed
    with pytest.raises(MailboxClosed):
        await worker.mailbox.ask(Work(1))


async def test_a_mailbox_that_closes_before_its_servers_begin_is_drained() -> None:
    worker = Worker(servers=4)
    async with running(worker):
        worker.mailbox.close()
    assert worker.mailbox.statistics().servers == 0


@pytest.mark.parametrize("rank", [5, 6])
async def test_an_actor_asks_only_higher_ranks(rank: int) -> None:
    async with running(Worker()) as below:

        async def ask_up(_request: Work) -> int:
            return await below.mailbox.ask(Work(1))

        mailbox = Mailbox("impatient", rank)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve_answering, mailbox, ask_up, RankViolation)
            with pytest.raises(RankViolation, match=f"worker has rank 5 .* from rank {rank}"):
                await mailbox.ask(Work(2))
            mailbox.close()


async def test_an_actor_may_ask_downstream_from_its_handler() -> None:
    async with running(Worker()) as below:

        async def ask_down(request: Work) -> int:
            return await below.mailbox.ask(request) + 1

        mailbox = Mailbox("above", 4)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve_answering, mailbox, ask_down, Declared)
            assert await mailbox.ask(Work(2)) == 21
            mailbox.close()


async def serve_answering(
    mailbox: Mailbox, handle: Callable[[Work], Awaitable[int]], answer: type[Exception]
) -> None:
    await mailbox.serve(handle, answers=(answer,))


async def test_a_task_is_free_to_ask_again_after_it_has_served() -> None:
    mailbox = Mailbox("brief", 9)
    mailbox.close()
    async with running(Worker()) as worker:
        await mailbox.serve(trio.sleep)
        assert await worker.mailbox.ask(Work(1)) == 10


@frozen
class Caller:
    """One caller of a generated run; times are whole and half seconds so that events collide."""

    arrives: float
    seconds: float
    patience: float | None
    """Seconds until it is cancelled; a patient caller has none."""
    ending: Literal["reply", "declared", "crash"]


HALVES = st.integers(0, 6).map(lambda halves: halves / 2)

CALLERS = st.builds(
    Caller,
    arrives=HALVES,
    seconds=HALVES,
    patience=st.none() | HALVES,
    ending=st.sampled_from(["reply", "reply", "reply", "declared", "declared", "crash"]),
)


@given(
    callers=st.lists(CALLERS, min_size=1, max_size=8),
    servers=st.sampled_from([1, 1, 2, 4]),
    capacity=st.integers(0, 3),
    end=st.sampled_from(["done", "close", "cancel"]),
    ends=HALVES,
)
@settings(max_examples=300, deadline=None)
def test_every_request_is_settled_once_whatever_happens(
    callers: list[Caller], servers: int, capacity: int, end: str, ends: float
) -> None:
    worker = Worker(servers, capacity)
    results: dict[int, str] = {}

    async def call(number: int, caller: Caller) -> None:
        await trio.sleep(caller.arrives)
        scope = trio.CancelScope()
        if caller.patience is not None:
            scope.deadline = trio.current_time() + caller.patience
        with scope:
            work = Work(number, caller.seconds, caller.ending)
            settled = await outcome_of(worker, work)
            assert number not in worker.busy, "nothing runs for a caller who has its result"
            assert results.setdefault(number, settled) is settled
        if scope.cancelled_caught:
            results[number] = "cancelled"
            assert number not in worker.busy, "nothing runs for a caller who has left"
            assert trio.current_time() == scope.deadline, "a cancelled caller leaves at once"

    async def host() -> None:
        try:
            async with running(worker):
                if end == "done":
                    await trio.sleep(100)
                await trio.sleep(ends)
                if end == "cancel":
                    raise KeyboardInterrupt
        except (Undeclared, KeyboardInterrupt):
            pass
        except BaseExceptionGroup as group:
            rest = group.split((Undeclared, KeyboardInterrupt))[1]
            assert rest is None, rest

    async def main() -> None:
        with trio.fail_after(1000):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(host)
                for number, caller in enumerate(callers):
                    nursery.start_soon(call, number, caller)

    trio.run(main, clock=MockClock(autojump_threshold=0))
    assert sorted(results) == list(range(len(callers)))
    assert worker.most_busy <= servers
    assert not worker.busy
    answered = {number for number, result in results.items() if result in ("reply", "declared")}
    assert answered <= set(worker.started)
    statistics = worker.mailbox.statistics()
    assert (statistics.queued, statistics.in_hand, statistics.servers) == (0, 0, 0)
    assert statistics.closed


async def outcome_of(worker: Worker, work: Work) -> str:
    try:
        reply = await worker.mailbox.ask(work)
    except Declared as error:
        assert error.args == (work.number,)
        assert work.ending == "declared"
        return "declared"
    except ActorCrashed as refusal:
        assert isinstance(refusal.__cause__, Undeclared)
        return "crashed"
    except MailboxClosed:
        return "closed"
    assert reply == work.number * 10
    assert work.ending == "reply"
    return "reply"
