"""The report of a batch: what failed and how to see it again, what was reached, what it cost."""

from __future__ import annotations

import platform
import shlex
from collections import Counter
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from statistics import median
from typing import Any, Final

from attrs import define, field

from .batch import Run
from .scenario import Outcome
from .verdict import Kind, worst

_SHOWN_FAILURES: Final = 10
_PACKAGES: Final = ("session-query", "trio", "apsw")


@define(eq=False)
class Report:
    """What the runs of a batch have shown so far, in a form that grows little with their number."""

    program: str
    """How the command was called, for the commands that replay."""
    source: str = ""
    """What the seeds were made of, if nobody named them."""
    runs: int = field(default=0, init=False)
    failures: list[tuple[Run, Outcome]] = field(factory=list, init=False)
    steps: int = field(default=0, init=False)
    virtual_seconds: float = field(default=0.0, init=False)
    _expected: dict[str, frozenset[str]] = field(factory=dict, init=False)
    _marked: dict[str, Counter[str]] = field(factory=dict, init=False)
    _milliseconds: dict[str, list[float]] = field(factory=dict, init=False)
    _seeds: dict[str, tuple[int, int]] = field(factory=dict, init=False)
    """The least and the greatest seed of each scenario."""
    _digests: set[str] = field(factory=set, init=False)
    _digest: blake2b = field(factory=lambda: blake2b(digest_size=16), init=False)

    def add(self, run: Run, outcome: Outcome) -> None:
        """Count a run that has ended."""
        name = outcome.scenario
        self.runs += 1
        self.steps += outcome.steps
        self.virtual_seconds += outcome.virtual_seconds
        self._expected[name] = run.scenario.marks
        self._marked.setdefault(name, Counter()).update(set(outcome.marks))
        self._milliseconds.setdefault(name, []).append(outcome.real_seconds * 1000)
        least, greatest = self._seeds.get(name, (run.seed, run.seed))
        self._seeds[name] = (min(least, run.seed), max(greatest, run.seed))
        self._digests.add(outcome.digest)
        self._digest.update(outcome.digest.encode())
        if outcome.kind is not Kind.PASS:
            self.failures.append((run, outcome))

    @property
    def kind(self) -> Kind:
        """The worst that was seen."""
        return worst(outcome.kind for _, outcome in self.failures)

    @property
    def missed(self) -> list[str]:
        """Expected marks that no run has hit, ``"<scenario>: <mark>"``."""
        return [
            f"{name}: {mark}"
            for name, counts in self._counts().items()
            for mark, seeds in counts.items()
            if not seeds
        ]

    def as_json(self) -> dict[str, Any]:
        """The report for programs; times of this machine are the only part that varies."""
        return {
            "versions": _versions(),
            "seeds_from": self.source,
            "kind": self.kind.title,
            "runs": self.runs,
            "distinct_traces": len(self._digests),
            "steps": self.steps,
            "virtual_seconds": round(self.virtual_seconds, 3),
            "digest": self._digest.hexdigest(),
            "failures": [self._failure(run, outcome) for run, outcome in self.failures],
            "scenarios": {name: self._scenario(name) for name in sorted(self._seeds)},
        }

    def as_text(self) -> str:
        """The report for people. After a failure it ends with the command that replays it."""
        lines = [line for run, outcome in self._shown() for line in self._told(run, outcome)]
        hidden = len(self.failures) - _SHOWN_FAILURES
        if hidden > 0:
            lines.append(f"and {hidden} more failures")
        for name, counts in self._counts().items():
            costs = self._milliseconds[name]
            lines.append(f"{name}: {len(costs)} runs, {median(costs):.1f} ms in the median")
            for mark, seeds in counts.items():
                never = "" if seeds else "   <- NEVER"
                lines.append(f"  {seeds:>7}  {mark}{never}")
        lines.append(
            f"{self.runs} runs, {len(self.failures)} failed, {len(self._digests)} distinct traces, "
            f"{self.steps} steps, {self.virtual_seconds:.0f} virtual seconds"
        )
        if self.failures:
            lines.append(f"replay: {self._command(self.failures[0][0])} --trace")
        return "\n".join(lines)

    def _shown(self) -> list[tuple[Run, Outcome]]:
        return self.failures[:_SHOWN_FAILURES]

    def _told(self, run: Run, outcome: Outcome) -> list[str]:
        return [
            f"FAIL {outcome.scenario} seed={run.seed} {outcome.kind.title}: {outcome.message}",
            f"  {outcome.configuration}",
            f"  {self._command(run)} --trace",
        ]

    def _failure(self, run: Run, outcome: Outcome) -> dict[str, Any]:
        return {
            "scenario": outcome.scenario,
            "seed": run.seed,
            "kind": outcome.kind.title,
            "message": outcome.message,
            "configuration": outcome.configuration,
            "digest": outcome.digest,
            "steps": outcome.steps,
            "virtual_seconds": round(outcome.virtual_seconds, 3),
            "command": f"{self._command(run)} --trace",
            "last_lines": list(outcome.trace[-20:]),
        }

    def _scenario(self, name: str) -> dict[str, Any]:
        least, greatest = self._seeds[name]
        costs = self._milliseconds[name]
        return {
            "runs": len(costs),
            "least_seed": least,
            "greatest_seed": greatest,
            "milliseconds": {
                "median": round(median(costs), 1),
                "greatest": round(max(costs), 1),
            },
            "marks": self._counts()[name],
        }

    def _counts(self) -> dict[str, dict[str, int]]:
        """How many runs hit each mark, by scenario."""
        return {
            name: {mark: counts[mark] for mark in sorted({*counts, *self._expected[name]})}
            for name, counts in sorted(self._marked.items())
        }

    def _command(self, run: Run) -> str:
        words = [f"--seed={run.seed}", f"--scenario={run.scenario.name}"]
        if run.bug is not None:
            words.append(f"--bug={run.bug}")
        if run.overrides:
            words += ["--set", *(f"{name}={value}" for name, value in run.overrides.items())]
        return f"{self.program} {shlex.join(words)}"


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed as a package"
    return found
