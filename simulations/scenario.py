"""Scenarios, and ``simulate``: one seeded run of one scenario, start to verdict."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Final, Protocol, TypeVar

import trio
from attrs import frozen
from trio.testing import MockClock

from .clock import virtual_clock
from .index_files import private_directory
from .index_vfs import watched_index
from .marks import Marks
from .policies import POLICIES
from .schedule import Schedule, installed, unheard
from .streams import Streams
from .trace import Trace
from .traps import armed
from .verdict import Kind, explained, kind_of, root_error
from .watchdog import watched
from .world import World, build_world

C = TypeVar("C")

INDEX_PLACES: Final = ("memory", "file")


class Scenario(Protocol[C]):
    """What is simulated. ``C`` is its configuration: a frozen value whose text is one line."""

    @property
    def name(self) -> str:
        """What ``--scenario`` calls it."""

    @property
    def marks(self) -> frozenset[str]:
        """What must happen sometimes; a long batch reports those that never did."""

    def configure(self, stream: random.Random, overrides: Mapping[str, str]) -> C:
        """Draw a configuration; ``overrides`` are the ``--set`` options, by field name.

        Draw every field whether it is overridden or not, so that an override changes nothing else.

        Raises:
            ValueError: an override that names no field, or whose value does not fit.
        """

    async def run(self, world: World, configuration: C) -> None:
        """Run in virtual time; return where all went well.

        Raises:
            Violation: something was wrong.
            NotLive: something did not happen in time.
        """


@frozen
class Outcome:
    """How one run ended."""

    scenario: str
    seed: int
    kind: Kind
    message: str
    """Empty where the run passed, else what was wrong, in one or more lines."""
    configuration: str
    digest: str
    """Of the whole trace, 32 hexadecimal digits; equal for equal runs."""
    steps: int
    """How many steps tasks took."""
    virtual_seconds: float
    real_seconds: float
    marks: Mapping[str, int]
    """How often each mark was hit."""
    trace: tuple[str, ...]
    """The last lines of the trace, or all with ``keep_trace``."""


def simulate(
    scenario: Scenario[C],
    seed: int,
    overrides: Mapping[str, str] | None = None,
    *,
    keep_trace: bool = False,
    echo: Callable[[str], object] | None = None,
) -> Outcome:
    """Run one seed: schedule installed, traps armed, a virtual clock, a fresh world.

    Args:
        scenario: what to run.
        seed: any integer; equal seeds run alike in every process.
        overrides: the ``--set`` options. ``policy`` (``fair``, ``uniform`` or ``pct``) and
            ``index`` (``memory`` or ``file``) are the world's, all others go to the scenario.
        keep_trace: keep every line of the trace.
        echo: told of each kept line of the trace at once.

    Raises:
        ValueError: an override is not known, or its value does not fit.
    """
    rest = dict(overrides or {})
    streams = Streams(seed)
    kit = streams.stream("kit")
    policy = _drawn(kit, rest.pop("policy", None), "policy", tuple(POLICIES))
    place = _drawn(kit, rest.pop("index", None), "index", INDEX_PLACES)
    configuration = scenario.configure(streams.stream("configuration"), rest)
    clock = virtual_clock()
    trace = Trace(clock.current_time, keeps_all=keep_trace, echo=echo)
    trace.note(f"{scenario.name} policy={policy} index={place} {configuration}")
    schedule = Schedule(POLICIES[policy](streams.stream("schedule")))
    marks = Marks(scenario.marks)
    _freeze_once()
    began = time.perf_counter()
    with ExitStack() as stack:
        directory = stack.enter_context(private_directory()) if place == "file" else None
        if directory is not None:
            trace.hide(directory)
        world = build_world(
            seed,
            clock,
            schedule,
            trace=trace,
            marks=marks,
            streams=streams,
            index_directory=directory,
        )
        if directory is not None:
            stack.enter_context(watched_index(world.index_changes))
        kind, message = _run(scenario, world, configuration, clock)
    trace.note(f"{kind.title} {message}".rstrip())
    return Outcome(
        scenario.name,
        seed,
        kind,
        message,
        f"policy={policy} index={place} {configuration}",
        trace.digest,
        schedule.steps,
        clock.current_time(),
        time.perf_counter() - began,
        marks.hits(),
        trace.lines,
    )


def _run(
    scenario: Scenario[C], world: World, configuration: C, clock: MockClock
) -> tuple[Kind, str]:
    """Run in virtual time, and let go of what that leaves."""
    schedule = world.schedule

    async def main() -> None:
        with trio.CancelScope() as scope:
            schedule.stop = scope.cancel
            await scenario.run(world, configuration)

    escaped: BaseException | None = None
    try:
        with watched(), installed(schedule), armed():
            trio.run(main, clock=clock)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        escaped = error
    with unheard():
        reason = schedule.failure or (escaped and root_error(escaped))
        kind, message = _judged(reason)
        escaped = reason = schedule.stop = None
    return kind, message


def _judged(error: BaseException | None) -> tuple[Kind, str]:
    return (Kind.PASS, "") if error is None else (kind_of(error), explained(error))


def _drawn(stream: random.Random, override: str | None, name: str, choices: tuple[str, ...]) -> str:
    drawn = stream.choice(choices)
    if override is not None and override not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {override!r}")
    return drawn if override is None else override


_frozen = False


def _freeze_once() -> None:
    """Keep the collector from walking all imported modules before every run."""
    global _frozen
    if not _frozen:
        gc.collect()
        gc.freeze()
        _frozen = True
