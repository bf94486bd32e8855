"""The world of one run: everything outside the system that a seed decides.

A scenario runs the system in *incarnations*, the lives of one process between crashes::

    with world.incarnation() as life:
        async with open_session_query(
            store=JsonlStore("/store", files=world.disk),
            index=IndexConfig(path=world.index_path),
            runtime=world.runtime,
        ) as query:
            ...
    if life.crashed:
        ...  # disk, runtime and index path of the world are those of the next incarnation
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import trio
from attrs import define, field
from trio.lowlevel import Task
from trio.testing import MockClock

from .clock import WallClock
from .disk import NO_FAULTS, SimulatedDisk
from .index_files import IndexFiles
from .latency import CALM, Latency, Pacing
from .marks import Marks
from .medium import Medium
from .policies import fair
from .runtime import SimulatedRuntime
from .schedule import Schedule
from .streams import Streams, draw_id
from .trace import Trace
from .verdict import NotLive, leaves


@define(eq=False)
class Life:
    """One incarnation: what runs in the block of ``World.incarnation``."""

    number: int
    """Counted from 1."""
    scope: trio.CancelScope = field(factory=trio.CancelScope)
    """Around the block; cancelling it stops the system in order, which is no crash."""
    crashed: bool = False


@define(eq=False)
class World:
    """One seeded run."""

    seed: int
    trace: Trace
    marks: Marks
    schedule: Schedule
    wall: WallClock
    """The time of day, as runtime and disk tell it; ``wall.set_by(ms)`` makes it jump."""
    disk: SimulatedDisk = field(init=False)
    """The disk of the logs, as this process sees it: give it as ``files`` to a ``JsonlStore`` whose
    root is any absolute path, such as ``/store``. ``disk.peer(7)`` is the same disk as process 7
    sees it, without faults. ``disk.faults`` may be set at any time and outlives a crash."""
    runtime: SimulatedRuntime = field(init=False)
    """Give it as ``runtime``. Ids are fresh over all incarnations."""
    _streams: Streams
    _index: IndexFiles
    _pacing: Pacing = field(init=False)
    _life: Life | None = field(default=None, init=False)
    _lives: int = field(default=0, init=False)
    _medium_left: Medium | None = field(default=None, init=False)
    """What the next incarnation will find, once a crash has decided it."""
    _tasks: dict[Task, int] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self._plug_in(Medium())
        self.schedule.observe = self._step

    @property
    def index_path(self) -> str:
        """``":memory:"``, or a file in a private directory of this incarnation on the real disk.

        Which of both is drawn per seed, for all incarnations alike. What is in memory does not
        outlive an incarnation.
        """
        return self._index.path

    @property
    def latency(self) -> Latency:
        """How long blocking calls take; may be set at any time, outlives a crash."""
        return self._pacing.latency

    @latency.setter
    def latency(self, latency: Latency) -> None:
        self._pacing.latency = latency

    def stream(self, name: str) -> random.Random:
        """The random stream of this name, derived from the seed; the same object at every call."""
        return self._streams.stream(name)

    @contextmanager
    def incarnation(self) -> Iterator[Life]:
        """The life of one process. Tasks of the system and of its users are started inside.

        After a crash the block is cancelled, what it raises then is dropped, and when it has ended
        the world is ready for the next incarnation. Without a crash, disk and index stay as they
        are.
        """
        if self._life is not None:
            raise RuntimeError(f"incarnation {self._life.number} is still running")
        self._lives += 1
        life = self._life = Life(self._lives)
        self.trace.note(f"incarnation {life.number} begins")
        try:
            with life.scope:
                try:
                    yield life
                except BaseException as error:
                    if not life.crashed or not _is_ordinary(error):
                        raise
                    self.trace.detail(f"the crashed incarnation left {type(error).__name__}")
        finally:
            self._life = None
            self.trace.note(f"incarnation {life.number} ends")
            if self._medium_left is not None:
                left, self._medium_left = self._medium_left, None
                self._plug_in(left)

    def crash(self) -> None:
        """Cut the power: freeze disk and index files, and cancel the incarnation.

        From this moment every operation of the old disk raises ``OSError``, and nothing that is
        done to the old index file reaches the copy. Data and names that were not synced may be
        lost, torn or reordered. Allowed at any moment of an incarnation, in blocking calls too;
        a second crash of the same one does nothing.
        """
        self._end_life("power lost", lambda old: old.after_power_loss(self.stream("crash")))

    def kill(self) -> None:
        """Kill the process alone: as ``crash``, but all that was written is kept."""
        self._end_life("process killed", Medium.after_kill)

    def meddle(self, operations: int, action: Callable[[], None]) -> None:
        """Do ``action`` in the middle of a blocking call of this incarnation: right before its
        ``operations``-th operation on the disk from now, where 1 is the next one. Whatever changes
        or syncs an index file counts as one too.

        For a crash, or another process that writes, between two operations of one call.
        """
        self.disk.before(operations, action)

    def index_changes(self, path: str) -> None:
        """Take notice that an index file is about to change; the old incarnation's do not count."""
        if self._index.holds(path):
            self.disk.count()

    def calm(self) -> None:
        """Begin the liveness phase: no faults, short latencies, the fair schedule.

        What ``meddle`` has in store is forgotten, and the step budget begins anew.
        """
        self.trace.note("the liveness phase begins")
        self.disk.faults = NO_FAULTS
        self.disk.forget_hooks()
        self.latency = CALM
        self.schedule.begin_phase(fair(self.stream("schedule")))

    @contextmanager
    def within(self, seconds: float, what: str) -> Iterator[None]:
        """Demand that the block ends within so many virtual seconds; it is cancelled if not.

        Raises:
            NotLive: naming ``what``.
        """
        with trio.move_on_after(seconds) as scope:
            yield
        if scope.cancelled_caught:
            raise NotLive(f"{what} has not come to an end within {seconds:g} s of virtual time")

    def _end_life(self, what: str, left_by: Callable[[Medium], Medium]) -> None:
        if self._life is None:
            raise RuntimeError("there is no incarnation to crash")
        if self._life.crashed:
            return
        self.trace.note(what)
        self._life.crashed = True
        self._medium_left = left_by(self.disk.medium)
        self.disk.medium.frozen = True
        self._index.freeze()
        self._pacing.dead = True
        self._life.scope.cancel()

    def _plug_in(self, medium: Medium) -> None:
        """Make disk and runtime of the next incarnation."""
        first = self._lives == 0
        faults, latency = (
            (NO_FAULTS, Latency()) if first else (self.disk.faults, self._pacing.latency)
        )
        disk = SimulatedDisk(
            medium, self.stream("disk"), self.wall.now_ns, self.trace, faults=faults
        )
        self.disk, self._pacing = disk, Pacing(self.stream("latency"), disk.spent, latency)
        ids = self.stream("ids")
        self.runtime = SimulatedRuntime(
            self._pacing.before,
            self._pacing.after,
            self._pacing.lands,
            self.wall.now_ms,
            lambda: draw_id(ids),
            self._call,
        )

    def _call(self, moment: str, fn: Callable[..., object]) -> None:
        self.trace.detail(f"call: {moment} {getattr(fn, '__qualname__', type(fn).__name__)}")

    def _step(self, task: Task) -> None:
        number = self._tasks.setdefault(task, len(self._tasks))
        self.trace.step(number, task.name)


def _is_ordinary(error: BaseException) -> bool:
    """Whether an error, or each one of a group, may come of a crash."""
    return all(isinstance(leaf, Exception | trio.Cancelled) for leaf in leaves(error))


def build_world(
    seed: int,
    clock: MockClock,
    schedule: Schedule,
    *,
    trace: Trace,
    marks: Marks,
    streams: Streams,
    index_directory: str | None,
) -> World:
    """A world at the beginning of time. ``simulate`` builds one per run.

    Args:
        seed: the seed that ``streams`` were made of.
        clock: Trio's clock of the run.
        schedule: the schedule of the run.
        trace: told of everything.
        marks: those that the scenario expects.
        streams: where everything is drawn from.
        index_directory: an empty private directory on the real disk for index files, or ``None``
            for an index in memory.
    """
    return World(
        seed, trace, marks, schedule, WallClock(clock), streams, IndexFiles(index_directory)
    )
