"""The world: incarnations, crashes of disk and index files, and the phase without faults."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping

import apsw
import pytest
import trio
from attrs import frozen

from session_query.simulations.disk import NO_FAULTS, DiskFaults
from session_query.simulations.latency import CALM
from session_query.simulations.scenario import Outcome, simulate
from session_query.simulations.verdict import Kind, NotLive, Violation
from session_query.simulations.world import World

Play = Callable[[World], Awaitable[None]]


@frozen
class Piece:
    """A scenario that is one function."""

    play: Play
    name: str = "piece"
    marks: frozenset[str] = frozenset()

    def configure(self, stream: random.Random, overrides: Mapping[str, str]) -> str:
        return "none"

    async def run(self, world: World, configuration: str) -> None:
        await self.play(world)


def played(play: Play, *, seed: int = 1, index: str = "memory") -> Outcome:
    return simulate(Piece(play), seed, {"index": index})


def passes(play: Play, *, seed: int = 1, index: str = "memory") -> None:
    outcome = played(play, seed=seed, index=index)
    assert outcome.kind is Kind.PASS, outcome.message


def rows(path: str) -> list[int]:
    connection = apsw.Connection(path)
    try:
        return [number for (number,) in connection.execute("SELECT a FROM t ORDER BY a")]
    finally:
        connection.close()


def test_a_crash_cancels_the_incarnation_and_drops_what_it_raises() -> None:
    async def play(world: World) -> None:
        with world.incarnation() as life:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(fail_at_the_end)
                await trio.sleep(1)
                world.crash()
                await trio.sleep(1)
                raise AssertionError("nothing goes on after a crash")
        assert life.crashed
        assert trio.current_time() == 1

    async def fail_at_the_end() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise LookupError("what a dying process says")

    passes(play)


def test_an_error_without_a_crash_is_not_dropped() -> None:
    async def play(world: World) -> None:
        with world.incarnation():
            raise Violation("wrong")

    assert played(play).kind is Kind.CORRECTNESS


@pytest.mark.parametrize("end", ["crash", "kill"])
def test_the_next_incarnation_finds_what_was_synced(end: str) -> None:
    async def play(world: World) -> None:
        old = world.disk
        with world.incarnation():
            with old.create("/log") as file:
                file.append(b"safe")
                file.sync()
                old.sync_directory("/")
                file.append(b"?")
            old.faults = DiskFaults(slow=0.5)
            getattr(world, end)()
        assert world.disk is not old
        assert world.disk.faults == DiskFaults(slow=0.5)
        found = world.disk.content("/log")
        assert found == b"safe?" if end == "kill" else found.startswith(b"safe")
        with pytest.raises(OSError, match="crashed"):
            old.stat("/log")

    passes(play)


def test_an_incarnation_that_ends_in_order_leaves_everything_as_it_is() -> None:
    async def play(world: World) -> None:
        disk, path = world.disk, world.index_path
        with world.incarnation() as first:
            pass
        with world.incarnation() as second:
            pass
        assert (first.number, second.number) == (1, 2)
        assert (world.disk, world.index_path) == (disk, path)

    passes(play, index="file")


def test_index_files_are_frozen_as_they_are_and_later_writes_reach_no_copy() -> None:
    async def play(world: World) -> None:
        old = world.index_path
        with world.incarnation():
            connection = apsw.Connection(old)
            connection.execute("PRAGMA journal_mode=wal; CREATE TABLE t(a)").fetchall()
            connection.execute("INSERT INTO t VALUES (1)")
            reader = apsw.Connection(old)
            pinned = reader.execute("SELECT a FROM t")
            world.crash()
            connection.execute("INSERT INTO t VALUES (2)")
            pinned.close()
            reader.close()
            connection.close()
        assert world.index_path != old
        assert rows(world.index_path) == [1]
        assert rows(old) == [1, 2]

    passes(play, index="file")


def test_the_power_can_fail_in_the_middle_of_a_transaction() -> None:
    found: set[int] = set()

    def crash_before(operation: int) -> Play:
        async def play(world: World) -> None:
            with world.incarnation():
                connection = apsw.Connection(world.index_path)
                connection.execute("PRAGMA journal_mode=delete").fetchall()
                connection.execute("CREATE TABLE t(a)")
                world.meddle(operation, world.crash)
                connection.execute("INSERT INTO t VALUES (1)")
                connection.close()
                world.crash()
            found.add(len(rows(world.index_path)))

        return play

    for operation in range(1, 30):
        passes(crash_before(operation), index="file")
    assert found == {0, 1}


def test_the_index_is_in_memory_or_in_a_file_for_a_whole_run() -> None:
    async def in_memory(world: World) -> None:
        with world.incarnation():
            world.crash()
        assert world.index_path == ":memory:"

    async def in_a_file(world: World) -> None:
        assert world.index_path.startswith("/")

    passes(in_memory)
    passes(in_a_file, index="file")


def test_calm_ends_all_faults() -> None:
    async def play(world: World) -> None:
        world.disk.faults = DiskFaults(read_error=1.0)
        world.meddle(1, world.crash)
        world.calm()
        assert world.disk.faults == NO_FAULTS
        assert world.latency == CALM
        with world.incarnation() as life:
            world.disk.stat("/")
        assert not life.crashed

    passes(play)


def test_what_does_not_end_in_time_is_not_live() -> None:
    async def play(world: World) -> None:
        with world.within(2, "the answer"):
            await trio.sleep(1)
        with world.within(2, "the answer"):
            await trio.sleep(3)

    outcome = played(play)
    assert outcome.kind is Kind.LIVENESS
    assert outcome.message == "the answer has not come to an end within 2 s of virtual time"


def test_a_wrong_answer_among_other_errors_is_what_counts() -> None:
    async def play(world: World) -> None:
        raise ExceptionGroup("several", [NotLive("late"), LookupError("lost"), Violation("wrong")])

    outcome = played(play)
    assert outcome.kind is Kind.CORRECTNESS
    assert "late" in outcome.message


def test_only_one_incarnation_lives_at_a_time_and_only_that_can_crash() -> None:
    async def play(world: World) -> None:
        with pytest.raises(RuntimeError, match="no incarnation"):
            world.crash()
        with (
            world.incarnation(),
            pytest.raises(RuntimeError, match="still running"),
            world.incarnation(),
        ):
            pass

    passes(play)
