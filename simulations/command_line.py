"""The command line of the simulation: which runs to make, and what to say about them."""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from .batch import Run, checked_outcomes, outcomes
from .corpus import CORPUS, parse_settings, read_corpus
from .report import Report
from .scenario import Scenario, simulate
from .scenarios import SCENARIOS
from .scenarios.canary import CANARY, WAYS
from .seeds import fresh_seeds, parse_seed, parse_seeds
from .verdict import Kind

KNOWN: Final[Mapping[str, Scenario[Any]]] = {**SCENARIOS, CANARY.name: CANARY}
"""What ``--scenario`` knows by default."""

PROGRAM: Final = "python -m session_query.simulations"
USAGE_ERROR: Final = 64
"""Exit code for a command that is not understood; 0 to 4 are those of ``Kind``."""

_DESCRIPTION: Final = """\
Runs the whole system in simulated worlds, one per seed. A seed is one run, the same in every
process. Without --seed, --seeds or --corpus, 100 fresh seeds are made of the commit that is checked
out. Exit codes: 0 passed, 1 a wrong answer, 2 something did not end, 3 a crash, 4 one seed ran in
two ways, 64 a command that is not understood.
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        self.exit(USAGE_ERROR, f"{self.prog}: {message}\n")


def main(
    arguments: Sequence[str] | None = None,
    *,
    scenarios: Mapping[str, Scenario[Any]] = KNOWN,
    program: str = PROGRAM,
) -> int:
    """Run the command; the exit code.

    Args:
        arguments: those of the process by default.
        scenarios: what ``--scenario`` knows, by name; give your own to make a command of your own.
        program: how the command is called, for its help and for the commands that replay.
    """
    parser = _parser(program, scenarios)
    options = parser.parse_args(arguments)
    try:
        if options.trace:
            return _trace(options, scenarios)
        return _batch(options, scenarios, program)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    except Exception:
        # Else Python would say 1, which means a wrong answer.
        traceback.print_exc()
        return Kind.INTERNAL.value


def _parser(program: str, scenarios: Mapping[str, Scenario[Any]]) -> argparse.ArgumentParser:
    parser = _Parser(program, description=_DESCRIPTION, allow_abbrev=False)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--seed", metavar="N", help="one seed, an integer or a commit id")
    which.add_argument("--seeds", metavar="A:B", help="the seeds from A up to B, without B")
    which.add_argument(
        "--corpus",
        metavar="FILE",
        nargs="?",
        const=str(CORPUS),
        help="the runs that once failed, of a file or of the library's own",
    )
    parser.add_argument(
        "--scenario",
        action="append",
        choices=sorted(scenarios),
        metavar="NAME",
        help=f"this scenario, may be given again (default: all but the canary): "
        f"{', '.join(sorted(scenarios))}",
    )
    parser.add_argument(
        "--minutes", type=float, metavar="M", help="begin no further run after so many minutes"
    )
    parser.add_argument("--jobs", type=int, default=1, metavar="J", help="processes (default: 1)")
    parser.add_argument("--trace", action="store_true", help="print the whole trace of one run")
    parser.add_argument("--check", action="store_true", help="make each run twice and compare")
    parser.add_argument(
        "--set",
        dest="settings",
        nargs="+",
        default=[],
        action="extend",
        metavar="KEY=VALUE",
        help="change what a seed draws; the report shows what there is to set",
    )
    parser.add_argument("--bug", metavar="NAME", help="plant a mutant in the product")
    parser.add_argument("--json", metavar="FILE", help="write the report as JSON; - is the output")
    parser.add_argument(
        "--all-marks", action="store_true", help="fail if an expected mark was never hit"
    )
    return parser


def _trace(options: argparse.Namespace, scenarios: Mapping[str, Scenario[Any]]) -> int:
    """Print one run as it happens."""
    runs = list(_planned(options, scenarios)[1]) if options.seed is not None else []
    if len(runs) != 1 or options.check or options.minutes:
        raise ValueError("--trace is for one run: give --seed and --scenario")
    outcome = runs[0].make(keep_trace=True, echo=print)
    print(f"digest {outcome.digest}")
    return outcome.kind.value


def _batch(
    options: argparse.Namespace, scenarios: Mapping[str, Scenario[Any]], program: str
) -> int:
    if options.jobs < 1:
        raise ValueError(f"--jobs must be at least 1, got {options.jobs}")
    until = time.monotonic() + options.minutes * 60 if options.minutes is not None else None
    listen_to_canary()
    source, runs = _planned(options, scenarios)
    report = Report(program, source)
    if source:
        print(f"seeds made of {source}", file=sys.stderr)
    make = checked_outcomes if options.check else outcomes
    for run, outcome in make(runs, jobs=options.jobs, until=until):
        report.add(run, outcome)
        if outcome.kind is not Kind.PASS:
            print(
                f"{outcome.kind.title}: {outcome.scenario} seed {run.seed}",
                file=sys.stderr,
                flush=True,
            )
    _publish(report, options.json)
    if report.kind is Kind.PASS and options.all_marks and report.missed:
        print(f"never hit: {', '.join(report.missed)}", file=sys.stderr)
        return Kind.INTERNAL.value
    return report.kind.value


def _publish(report: Report, path: str | None) -> None:
    if path == "-":
        print(json.dumps(report.as_json(), indent=2))
        return
    if path is not None:
        Path(path).write_text(json.dumps(report.as_json(), indent=2) + "\n", "utf-8")
    print(report.as_text())


def _planned(
    options: argparse.Namespace, scenarios: Mapping[str, Scenario[Any]]
) -> tuple[str, Iterable[Run]]:
    """What the seeds were made of, if nobody named them, and the runs."""
    overrides = parse_settings(options.settings)
    if options.corpus is not None:
        return "", list(_corpus_runs(Path(options.corpus), overrides, options, scenarios))
    names = options.scenario or sorted(name for name in scenarios if name != CANARY.name)
    source, seeds = "", _named_seeds(options)
    if seeds is None:
        source, seeds = fresh_seeds(None) if options.minutes is not None else fresh_seeds()
    return source, (
        Run(scenarios[name], seed, overrides, options.bug) for seed in seeds for name in names
    )


def _named_seeds(options: argparse.Namespace) -> Iterable[int] | None:
    if options.seed is not None:
        return [parse_seed(options.seed)]
    return parse_seeds(options.seeds) if options.seeds is not None else None


def _corpus_runs(
    path: Path,
    overrides: Mapping[str, str],
    options: argparse.Namespace,
    scenarios: Mapping[str, Scenario[Any]],
) -> Iterator[Run]:
    for line in read_corpus(path):
        if line.scenario not in scenarios:
            raise ValueError(f"{path.name} names the scenario {line.scenario!r}, which is unknown")
        if not options.scenario or line.scenario in options.scenario:
            settings = {**line.overrides, **overrides}
            yield Run(scenarios[line.scenario], line.seed, settings, options.bug)


def listen_to_canary() -> None:
    """Make sure that each kind of failure is still noticed, before anything else is believed.

    Raises:
        RuntimeError: the canary failed and was taken for well, or for ill in another way.
    """
    for way, kind in {"none": Kind.PASS, **WAYS}.items():
        setting = {"sick": "no"} if way == "none" else {"sick": "yes", "way": way}
        found = simulate(CANARY, 0, setting).kind
        if found is not kind:
            raise RuntimeError(f"the canary shows {kind.title} ({way}), taken for {found.title}")
