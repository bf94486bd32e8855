"""Configurations: what one run does and what goes wrong in it, drawn anew for every seed.

Swarm testing: each seed turns whole features off and draws wild weights for the rest, because a
feature that is always there hides what happens without it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any, Final, Literal
from unittest import mock

import attrs
from attrs import frozen

from ..actors import inventory, reconciler, reconciliation
from ..actors.inventory import RENEW_SECONDS, VERIFY_SECONDS
from ..storage import index, index_scan, index_tables, log_slices, stored_arm, write_ahead
from .disk import DiskFaults
from .latency import Latency

JournalMode = Literal["wal", "delete", "truncate", "persist"]


@frozen(kw_only=True)
class Configuration:
    """What a run is like; counts are of tasks unless they say otherwise."""

    sessions: int = 3
    """Stored at the beginning."""
    steps: int = 6
    """What each task does before it ends."""
    writers: int = 1
    """Commit to a live session, which they create, resume or fork."""
    searchers: int = 1
    """Page slowly."""
    readers: int = 1
    callers: int = 0
    """Sessions whose steps call the model tools."""
    shown: int = 100
    """Hits that a tool shows at most."""
    page: int = 100
    """Hits of the largest page."""
    moves: float = 0.0
    """The chance that an outsider rewrites a header, so that a session changes its workspace."""
    families: int = 0
    """Draws parents and workspaces; 0 for those that ids alone decide."""
    outsiders: int = 1
    """Change logs behind the back of the service: append, replace, cut, delete."""
    observers: int = 0
    """Hold leases."""
    watchers: int = 0
    """Wait for generations."""
    mounts: int = 0
    """How often another store is mounted, or none."""
    cancels: int = 0
    """How often some request is cancelled."""
    deadlines: float = 0.0
    """The chance that a request has a deadline; the others are patient."""
    crashes: int = 0
    """How often the power fails or the process is killed."""
    restarts: int = 0
    """How often the service is closed and opened again."""
    lose_index: float = 0.0
    """The chance that an index file is gone or damaged when a service opens it."""
    meddle: int = 0
    """How often others write in the middle of a blocking call."""
    bursts: int = 0
    """How often somebody changes one session several times in a row in the middle of calls."""
    read_error: float = 0.0
    write_error: float = 0.0
    sync_error: float = 0.0
    slow: float = 0.0
    hang: float = 0.0
    capacity: int = 0
    """Bytes that the disk holds; 0 for enough."""
    latency: float = 0.01
    """Seconds that half a blocking call takes at most."""
    think: float = 0.05
    """Seconds that a task waits at most between two steps."""
    search_concurrency: int = 2
    readers_at_once: int = 2
    """Stored logs that are read at the same time."""
    kept_logs: int = 2
    journal: JournalMode = "wal"
    snippet: int = 20
    """Code points of a snippet."""
    words: int = 4
    """Of the longest text."""
    bounds: int = 0
    """Draws the bounds of slices, blocks and caches; 0 for those of the product."""
    tells: int = 0
    """Whether disks tell of changes, 1 or 0."""
    notify: int = 1
    """Whether the service asks them to, 1 or 0."""
    notices: int = 16_384
    """How many a watcher queues."""
    watches: int = 100_000
    """Directories that may be watched at once."""
    refused_watch: float = 0.0
    lost_notice: float = 0.0
    verify: float = VERIFY_SECONDS
    """Seconds between two sweeps that find what was not told."""
    renew: float = RENEW_SECONDS
    """Seconds from the end of what is told to the next attempt."""

    @property
    def faults(self) -> DiskFaults:
        """What goes wrong on the disk."""
        return DiskFaults(
            read_error=self.read_error,
            write_error=self.write_error,
            sync_error=self.sync_error,
            slow=self.slow,
            capacity=self.capacity or None,
            watches=self.watches,
            refused_watch=self.refused_watch,
            notices=self.notices,
            lost_notice=self.lost_notice,
        )

    @property
    def pace(self) -> Latency:
        """How long calls take."""
        return Latency(longest=self.latency, hang=self.hang)


_OFF: Final = ("observers", "watchers", "mounts", "cancels", "meddle", "outsiders")
"""What half of the seeds do without."""

_CHANCES: Final = ("deadlines", "read_error", "write_error", "sync_error", "slow", "hang")

_SMALL: Final = {
    "sessions": (0, 5),
    "steps": (3, 8),
    "writers": (1, 3),
    "searchers": (1, 3),
    "readers": (0, 2),
    "outsiders": (1, 2),
    "observers": (1, 2),
    "watchers": (1, 2),
    "mounts": (1, 3),
    "cancels": (2, 10),
    "meddle": (1, 3),
    "search_concurrency": (1, 3),
    "readers_at_once": (1, 4),
    "kept_logs": (1, 3),
    "words": (1, 7),
}


def draw(stream: random.Random, **wanted: object) -> Configuration:
    """A configuration; ``wanted`` names what is not left to chance."""
    drawn: dict[str, Any] = {
        name: stream.randint(fewest, most) for name, (fewest, most) in _SMALL.items()
    }
    for name in _OFF:
        drawn[name] *= stream.random() < 0.5
    for name in _CHANCES:
        chance = round(stream.choice((0.002, 0.01, 0.05)), 3)
        drawn[name] = chance * (stream.random() < 0.25)
    drawn["deadlines"] = stream.choice((0.0, 0.0, 0.1, 0.5))
    drawn["capacity"] = stream.choice((0, 0, 0, 0, 1_500, 4_000))
    drawn["latency"] = stream.choice((0.0, 0.001, 0.01, 0.1, 0.5))
    drawn["think"] = stream.choice((0.0, 0.01, 0.1, 0.6))
    drawn["journal"] = stream.choice(("wal", "wal", "wal", "delete", "truncate", "persist"))
    drawn["snippet"] = stream.choice((1, 5, 12, 240))
    drawn["bounds"] = stream.choice((0, stream.randint(1, 999), stream.randint(1, 999)))
    drawn.update(_draw_telling(stream))
    return Configuration(**{**drawn, **wanted})


def _draw_telling(stream: random.Random) -> dict[str, Any]:
    """How disks tell of changes: in half of the runs not at all, else mostly well."""
    if stream.random() < 0.5:
        return {}
    return {
        "tells": 1,
        "notify": stream.choice((1, 1, 1, 1, 1, 0)),
        "notices": stream.choice((16_384, 16_384, 20, 4)),
        "watches": stream.choice((100_000, 100_000, 100_000, 4)),
        "refused_watch": stream.choice((0.0, 0.0, 0.0, 0.01, 0.1)),
        "lost_notice": stream.choice((0.0, 0.0, 0.01, 0.1)),
        "verify": stream.choice((VERIFY_SECONDS, VERIFY_SECONDS, 0.3)),
        "renew": stream.choice((RENEW_SECONDS, 0.1, 0.01)),
    }


_NUMBERS: Final[dict[object, Callable[[str], object]]] = {int: int, float: float}


def override(configuration: Configuration, overrides: Mapping[str, str]) -> Configuration:
    """The configuration with some fields set, as ``--set`` gives them.

    Raises:
        ValueError: a name that is no field, or a text that its type does not take.
    """
    fields = {field.name: field.type for field in attrs.fields(attrs.resolve_types(Configuration))}
    changes: dict[str, Any] = {}
    for name, text in overrides.items():
        if name not in fields:
            raise ValueError(f"no setting is called {name!r}; there are {', '.join(fields)}")
        try:
            changes[name] = _NUMBERS.get(fields[name], str)(text)
        except ValueError as error:
            raise ValueError(f"{name} takes a number, got {text!r}") from error
    return attrs.evolve(configuration, **changes)


_BOUNDS: Final[tuple[tuple[ModuleType, str, tuple[int, ...]], ...]] = (
    (reconciler, "MOVABLE_EVENTS", (1, 2, 512)),
    (reconciliation, "CHUNK_SESSIONS", (1, 3)),
    (index, "_MERGE_AFTER", (0, 1, 128)),
    (index, "_TIDY_DOCUMENTS", (1, 500)),
    (index, "_INTERRUPT_CHECK", (1, 20, 10_000)),
    (index_scan, "_HEADROOM", (1, 4)),
    (index_scan, "_EXTRA", (0, 1, 20)),
    (index_tables, "_MIN_BLOCK", (1, 2, 64)),
    (log_slices, "BUILD_BYTES", (1, 300, 1 << 20)),
    (log_slices, "APPEND_BYTES", (300, 1 << 20)),
    (stored_arm, "WARM_PROJECTIONS", (0, 1, 64)),
    (stored_arm, "_STATE_LAG", (1, 3, 64)),
)
"""What bounds slices, blocks, caches and scans: small, so that a small corpus crosses each."""

_LATER_BOUNDS: Final[tuple[tuple[ModuleType, str, tuple[int, ...]], ...]] = (
    (write_ahead, "LOG_PAGES", (1, 20, 1_000)),
    (write_ahead, "MOST_PAGES", (1, 30, 4_000)),
    (write_ahead, "HELD_PAGES", (1, 60, 16_000)),
    (reconciliation, "GAINED_EVENTS", (0, 4, 256)),
    (reconciliation, "GAINING_SESSIONS", (1, 16)),
    (reconciler, "UNKEPT_EVENTS", (1, 16)),
    (index, "_MERGE_RECENT_AFTER", (0, 3, 16)),
)
"""Drawn behind all others, so that those of a seed stay."""


@contextmanager
def small_bounds(seed: int) -> Iterator[None]:
    """Bounds of the product drawn from ``seed`` for the length of the block."""
    rng = random.Random(f"bounds {seed}")
    tight = rng.choice((0.0, 0.9))
    with ExitStack() as stack:
        for module, name, values in _BOUNDS:
            bound = values[0] if rng.random() < tight else rng.choice(values)
            stack.enter_context(mock.patch.object(module, name, bound))
        events = rng.choice((1, 3, 4_000))
        for module in (index, reconciliation):  # one bound by two names
            stack.enter_context(mock.patch.object(module, "SLICE_EVENTS", events))
        for module, name, values in _LATER_BOUNDS:
            stack.enter_context(mock.patch.object(module, name, rng.choice(values)))
        yield


@contextmanager
def hasty_inventory(configuration: Configuration) -> Iterator[None]:
    """The waits of the inventory as they are configured, for the length of the block."""
    with (
        mock.patch.object(inventory, "VERIFY_SECONDS", configuration.verify),
        mock.patch.object(inventory, "RENEW_SECONDS", configuration.renew),
    ):
        yield
