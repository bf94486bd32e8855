"""All checks of the project, in order, up to the first that fails.

``python scripts/check.py`` runs every one, ``python scripts/check.py types tests`` only these.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
TOOLS: Final = Path(sys.executable).parent
"""The environment that is checked; not resolved, so that a virtual one stays one."""

CHECKS: Final = {
    "lint": [
        ["-m", "ruff", "check", "."],
        ["-m", "ruff", "format", "--check", "."],
    ],
    "types": [
        ["-m", "mypy", "-p", "session_query"],
        ["-m", "mypy", "tests", "scripts", "benchmarks", "examples"],
        ["-m", "pyright"],
    ],
    "layers": [[str(TOOLS / "lint-imports"), "--no-logo"]],
    "tests": [["-m", "pytest"]],
    "simulations": [
        ["-m", "session_query.simulations", "--corpus"],
        ["-m", "session_query.simulations", "--seeds=0:60", "--jobs=2"],
        ["-m", "session_query.simulations", "--minutes=1", "--jobs=2"],
    ],
}


def run(arguments: list[str]) -> int:
    """Say what is run, run it with this Python in the project's root; its exit status."""
    print(f"\n$ python {' '.join(arguments)}", flush=True)
    path = os.pathsep.join([str(TOOLS), os.environ.get("PATH", os.defpath)])
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, "PATH": path}).returncode


def main(names: list[str]) -> int:
    """Run the named checks, or all; the exit status of the first that fails, or 0."""
    unknown = [name for name in names if name not in CHECKS]
    if unknown:
        print(f"no check is called {unknown[0]!r}; there are {', '.join(CHECKS)}", file=sys.stderr)
        return 2
    for name in names or CHECKS:
        for arguments in CHECKS[name]:
            if status := run(arguments):
                print(f"{name} failed", file=sys.stderr)
                return status
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
