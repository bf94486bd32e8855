"""Another process that changes files when it is told to."""

from __future__ import annotations

import subprocess
import sys
from typing import IO

CHILD = """
import os, shutil, sys
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
"""


class Other:
    """Another process that does what it is told and says when it has."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def do(self, statement: str) -> None:
        stdin, stdout = self._streams()
        stdin.write(statement + "\n")
        stdin.flush()
        assert stdout.readline() == "done\n"

    def end(self) -> None:
        for stream in self._streams():
            stream.close()
        assert self._process.wait(10) == 0

    def _streams(self) -> tuple[IO[str], IO[str]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdin, self._process.stdout
