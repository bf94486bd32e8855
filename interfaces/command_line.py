"""The command ``session-query``: its streams, its exit status and its one line for each failure.

Exit status 0: answered (also where the reader closed the pipe); 1: the world is not as the call
expects; 2: the call is wrong whatever is stored; 130: interrupted.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Sequence
from typing import Final

from ..messages.errors import ErrorCode, SessionError, SessionQueryError
from .errors import WrongUse
from .visible import one_line

FAILED: Final = 1
WRONG_USE: Final = 2
INTERRUPTED: Final = 130

_WRONG_USE_CODES: Final = frozenset(
    {
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_FILTER,
        ErrorCode.INVALID_LIMIT,
        ErrorCode.INVALID_QUERY,
        ErrorCode.INVALID_WINDOW,
    }
)


_HINT: Final = (
    "(words that belong together stand in quotes; an argument that begins with a hyphen after --)"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line on ``arguments``, by default those of the process; its exit status."""
    _prepare_streams()
    try:
        try:
            _run(arguments)
        finally:
            sys.stdout.flush()
    except BaseException as error:
        status = _status(_innermost(error))
        if status is None:
            raise
        return status
    return 0


def _prepare_streams() -> None:
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the caller
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - until the process ends
        elif isinstance(stream, io.TextIOWrapper):
            # A terminal of another encoding shows escapes where it cannot show the character.
            stream.reconfigure(errors="backslashreplace")


def _run(arguments: Sequence[str] | None) -> None:
    try:
        from cyclopts import CycloptsError

        from . import (  # noqa: F401
            completion_command,
            config_command,
            export_command,
            index_commands,
            mcp_command,
            stores_command,
        )
        from .commands import app
    except ModuleNotFoundError as error:
        if error.name not in ("cyclopts", "rich"):
            raise
        raise SessionError(
            "install the command line first: pip install 'session-query[cli]'"
        ) from error
    try:
        app(arguments, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        raise WrongUse(f"{error} {_HINT}") from error


def _innermost(error: BaseException) -> BaseException:
    if isinstance(error, BaseExceptionGroup):
        leaves = [_innermost(part) for part in error.exceptions]
        interrupts = (leaf for leaf in leaves if isinstance(leaf, KeyboardInterrupt))
        return next(interrupts, leaves[0])
    return error


def _status(error: BaseException) -> int | None:
    """Say what went wrong; the exit status, or nothing for an error that nobody foresaw."""
    match error:
        case BrokenPipeError():
            _discard_output()
            return 0
        case KeyboardInterrupt():
            return INTERRUPTED
        case WrongUse():
            return _fail(str(error), WRONG_USE)
        case SessionQueryError(code=code) if code in _WRONG_USE_CODES:
            return _fail(str(error), WRONG_USE)
        case SessionError():
            return _fail(str(error), FAILED)
        case OSError(filename=None):
            _discard_output()
            return _fail(f"the output cannot be written: {error.strerror or error}", FAILED)
        case OSError(filename=name):
            return _fail(f"{name!r} cannot be used: {error.strerror or error}", FAILED)
    return None


def _fail(message: str, status: int) -> int:
    line = one_line(" ".join(message.split()))
    with contextlib.suppress(OSError):
        print(f"session-query: {line}", file=sys.stderr)
    return status


def _discard_output() -> None:
    """Let the interpreter, which flushes once more at its end, write to nowhere."""
    with contextlib.suppress(OSError):
        descriptor = sys.stdout.fileno()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, descriptor)
        os.close(nowhere)


if __name__ == "__main__":
    sys.exit(main())
