"""News of generations: who waits is told, soon after a commit, and only the newest."""

from __future__ import annotations

import pytest
import trio
from actor_world import message
from inline_runtime import InlineRuntime
from service_world import append, refused, session, sessions_of, store_of
from trio.testing import MockClock, wait_all_tasks_blocked

from session_query import IndexConfig, SessionQuery, open_session_query
from session_query.messages.errors import ErrorCode

STARTUP = IndexConfig(path=":memory:", open_at="startup")


async def test_a_commit_is_news_after_a_quarter_of_a_second(autojump_clock: MockClock) -> None:
    async with (
        open_session_query(index=STARTUP, runtime=InlineRuntime()) as query,
        query.sessions.create(id="s") as live,
        trio.open_nursery() as nursery,
    ):
        news: list[tuple[float, int]] = []

        async def listen() -> None:
            async for generation in query.generations():
                news.append((trio.current_time(), generation))

        nursery.start_soon(listen)
        await trio.sleep(10)
        assert len(news) == 1  # the session itself, which was created before
        start = trio.current_time()
        await live.commit(message("a"))
        await trio.sleep(0.1)
        await live.commit(message("b"))
        await trio.sleep(10)
        assert [when - start for when, _ in news[1:]] == [pytest.approx(0.25)]
        assert news[-1][1] == query.generation
        nursery.cancel_scope.cancel()


async def test_a_commit_behind_the_news_is_news_of_its_own(autojump_clock: MockClock) -> None:
    async with (
        open_session_query(index=STARTUP, runtime=InlineRuntime()) as query,
        query.sessions.create(id="s") as live,
    ):
        await query.refresh()
        seen = query.generation
        for text in "abc":
            await live.commit(message(text))
            start = trio.current_time()
            after = await query.wait_for_generation(seen)
            assert after > seen
            assert trio.current_time() - start == pytest.approx(0.25)
            seen = after


async def test_without_a_listener_a_commit_runs_no_pass(autojump_clock: MockClock) -> None:
    store = store_of()
    async with (
        open_session_query(store=store, index=STARTUP, runtime=InlineRuntime()) as query,
        query.sessions.create(id="s") as live,
    ):
        with trio.move_on_after(1):
            await query.wait_for_generation(1_000)
        store.forget()
        await live.commit(message("a"))
        await trio.sleep(10)
        assert not store.calls
        start = trio.current_time()
        await query.wait_for_generation(query.generation)
        assert trio.current_time() - start <= 0.25
        assert store.calls == {"sweep": 1}


async def test_a_search_covers_a_commit_and_no_pass_follows_for_it(
    autojump_clock: MockClock,
) -> None:
    store = store_of()
    async with (
        open_session_query(store=store, index=STARTUP, runtime=InlineRuntime()) as query,
        query.sessions.create(id="s") as live,
        trio.open_nursery() as nursery,
    ):
        await query.refresh()
        nursery.start_soon(query.wait_for_generation, 1_000)
        await live.commit(message("a"))
        store.forget()
        assert await sessions_of(query, "a") == ["s"]
        await trio.sleep(10)
        assert store.calls == {"sweep": 1}
        nursery.cancel_scope.cancel()


async def test_an_index_that_is_not_open_is_not_opened_for_news(autojump_clock: MockClock) -> None:
    store = store_of()
    async with (
        open_session_query(store=store, runtime=InlineRuntime()) as query,
        query.sessions.create(id="s") as live,
    ):
        await live.commit(message("a"))
        with trio.move_on_after(10) as waited:
            await query.wait_for_generation(0)
        assert waited.cancelled_caught
        assert not store.calls
        await query.refresh()
        assert await query.wait_for_generation(0) == query.generation


async def test_a_slow_subscriber_sees_the_newest_generation_and_delays_nobody(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_session_query(index=STARTUP, runtime=InlineRuntime()) as query,
        query.sessions.create(id="s") as live,
        trio.open_nursery() as nursery,
    ):
        await query.refresh()
        first = query.generation
        seen: list[int] = []

        async def listen() -> None:
            async for generation in query.generations(first - 1):
                seen.append(generation)
                await trio.sleep(60)

        nursery.start_soon(listen)
        await wait_all_tasks_blocked()
        for number in range(20):
            before = trio.current_time()
            await live.commit(message(str(number)))
            assert trio.current_time() == before
            await query.refresh()
        await trio.sleep(100)
        assert seen == [first, query.generation]
        nursery.cancel_scope.cancel()


async def test_a_pass_that_fails_for_the_news_is_tried_again_after_the_next_commit(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    store = store_of(session("s", "word", cwd="/elsewhere"))
    async with (
        open_session_query(store=store, index=STARTUP, runtime=InlineRuntime()) as query,
        trio.open_nursery() as nursery,
    ):
        await query.refresh()
        nursery.start_soon(query.wait_for_generation, 1_000)
        async with query.sessions.create(id="s", cwd="/work", durable=False):
            await trio.sleep(10)
            assert ["another header" in record.message for record in caplog.records] == [True]
        store.forget()
        await trio.sleep(10)
        assert store.calls["sweep"] == 1
        assert len(caplog.records) == 1
        nursery.cancel_scope.cancel()


async def test_the_sessions_that_changed_are_named() -> None:
    store = store_of(session("a", "word"), session("b", "word"), session("c", "word"))
    async with open_session_query(store=store, index=STARTUP) as query:
        await query.refresh()
        seen = query.generation
        assert await query.changed_sessions(0) == ("a", "b", "c")
        assert await query.changed_sessions(seen) == ()
        append(store.inner, "b", "more")
        async with query.sessions.create(id="live") as live:
            await live.commit(message("word"))
            assert await query.changed_sessions(seen) == ()
            await query.refresh()
            assert await query.changed_sessions(seen) == ("b", "live")
            assert await query.changed_sessions(query.generation) == ()


# -- sessions -------------------------------------------------------------------------------------


async def test_a_session_is_waited_for_until_it_goes_beyond_a_seq() -> None:
    async with (
        open_session_query() as query,
        query.sessions.create(id="s") as live,
        trio.open_nursery() as nursery,
    ):
        reached: list[int] = []

        async def wait(after: int) -> None:
            reached.append(await query.wait_for_session("s", after))

        nursery.start_soon(wait, 1)
        await live.commit(message("a"), message("b"))
        await wait_all_tasks_blocked()
        assert reached == []
        await live.commit(message("c"), message("d"))
        await wait_all_tasks_blocked()
        assert reached == [3]
        assert await query.wait_for_session("s") == 3
        assert await query.wait_for_session("s", 2) == 3


async def test_whoever_waits_for_a_session_is_told_of_its_end() -> None:
    async with open_session_query(store=store_of()) as query, trio.open_nursery() as nursery:

        async def wait() -> None:
            with refused(ErrorCode.SESSION_NOT_FOUND, "not live"):
                await query.wait_for_session("s")

        async with query.sessions.create(id="s"):
            nursery.start_soon(wait)
            await wait_all_tasks_blocked()
        await wait()


# -- refusals -------------------------------------------------------------------------------------


async def test_whoever_waits_is_told_that_the_service_closes() -> None:
    told: list[str] = []

    async def wait_for_generation(query: SessionQuery) -> None:
        with refused(ErrorCode.INDEX_FAILED, "closed"):
            await query.wait_for_generation(10)
        told.append("generation")

    async def iterate(query: SessionQuery) -> None:
        with refused(ErrorCode.INDEX_FAILED, "closed"):
            async for generation in query.generations(10):
                raise AssertionError(f"nothing reached {generation}")
        told.append("generations")

    async def wait_for_session(query: SessionQuery) -> None:
        with refused(ErrorCode.ABORTED, "closed"):
            await query.wait_for_session("s")
        told.append("session")

    async with (
        trio.open_nursery() as nursery,
        open_session_query() as query,
        query.sessions.create(id="s"),
    ):
        for wait in (wait_for_generation, iterate, wait_for_session):
            nursery.start_soon(wait, query)
        await wait_all_tasks_blocked()
        query.close()
    assert sorted(told) == ["generation", "generations", "session"]
    await wait_for_generation(query)
    await wait_for_session(query)


async def test_without_an_index_there_are_no_generations() -> None:
    index = IndexConfig(path=":memory:", open_at="never")
    async with open_session_query(index=index) as query:
        with refused(ErrorCode.SEARCH_DISABLED):
            await query.wait_for_generation("x")  # type: ignore[arg-type]
        with refused(ErrorCode.SEARCH_DISABLED):
            query.generations()
        with refused(ErrorCode.SEARCH_DISABLED):
            await query.changed_sessions(0)
        with refused(ErrorCode.SEARCH_DISABLED):
            assert query.generation


@pytest.mark.parametrize("after", [None, "1", 0.5, True])
async def test_what_is_waited_for_is_a_whole_number(after: object) -> None:
    async with open_session_query() as query:
        with refused(ErrorCode.INVALID_WINDOW, "after must be a whole number"):
            await query.wait_for_generation(after)  # type: ignore[arg-type]
        with refused(ErrorCode.INVALID_WINDOW, "after must be a whole number"):
            await query.changed_sessions(after)  # type: ignore[arg-type]
        with refused(ErrorCode.INVALID_WINDOW, "after_seq must be a whole number"):
            await query.wait_for_session("s", after)  # type: ignore[arg-type]
