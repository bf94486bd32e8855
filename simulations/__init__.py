"""Deterministic simulation: one seed is one run of the whole system, and of yours around it.

The public names, imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .command_line import main as main
    from .disk import NO_FAULTS as NO_FAULTS
    from .disk import DiskFaults as DiskFaults
    from .disk import SimulatedDisk as SimulatedDisk
    from .guest import GuestRun as GuestRun
    from .guest import Job as Job
    from .guest import RunEnded as RunEnded
    from .latency import CALM as CALM
    from .latency import Latency as Latency
    from .marks import Marks as Marks
    from .runtime import SimulatedRuntime as SimulatedRuntime
    from .scenario import Outcome as Outcome
    from .scenario import Scenario as Scenario
    from .scenario import simulate as simulate
    from .schedule import Deadlock as Deadlock
    from .schedule import StepBudgetExceeded as StepBudgetExceeded
    from .traps import Trapped as Trapped
    from .verdict import Kind as Kind
    from .verdict import NotLive as NotLive
    from .verdict import Violation as Violation
    from .world import Life as Life
    from .world import World as World

_PUBLIC: Final = {
    "command_line": "main",
    "disk": "DiskFaults NO_FAULTS SimulatedDisk",
    "guest": "GuestRun Job RunEnded",
    "latency": "CALM Latency",
    "marks": "Marks",
    "runtime": "SimulatedRuntime",
    "scenario": "Outcome Scenario simulate",
    "schedule": "Deadlock StepBudgetExceeded",
    "traps": "Trapped",
    "verdict": "Kind NotLive Violation",
    "world": "Life World",
}
_HOME: Final = {name: module for module, names in _PUBLIC.items() for name in names.split()}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(_HOME)
