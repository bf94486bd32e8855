"""Who calls over MCP: it is fixed when a server starts, and nothing in a call can change it."""

from __future__ import annotations

from pathlib import PurePosixPath, PureWindowsPath

from attrs import define, field

from ..actors.runtime import Runtime
from ..storage.contract import SessionStore, StoreError
from ..tools.definition import Caller
from .errors import Unusable, WrongUse


@define(eq=False)
class McpCaller:
    """The workspace of a server, and the session that it belongs to if it has one."""

    _store: SessionStore
    _runtime: Runtime
    cwd: str | None
    session_id: str | None = None
    _step: int | None = field(default=None, init=False)
    _mark: bytes | None = field(default=None, init=False)

    async def now(self) -> Caller:
        """The caller of a call that begins now: its step is as far as its log is stored."""
        if self.session_id is None:
            return Caller(None, self.cwd)
        step = await self._runtime.call(self._look, self.session_id)
        return Caller(self.session_id, self.cwd, step_start=lambda: step)

    def _look(self, session_id: str) -> int | None:
        """The last step of the stored log; only what was appended since the last look is read."""
        mark, step = self._mark, self._step
        complete = False
        while not complete:
            try:
                tail = self._store.read_tail(session_id, mark)
            except StoreError:
                return None  # without a log there is no step, and nothing before one to search
            if not tail.appended:
                step = None
            starts = (event.seq for event in reversed(tail.events) if event.type == "step/start")
            step = next(starts, step)
            mark, complete = tail.mark, tail.complete
        self._mark, self._step = mark, step
        return step


def caller_of(
    store: SessionStore, runtime: Runtime, workspace: str, cwd: str | None, session_id: str | None
) -> McpCaller:
    """The caller that a command line names. Blocks.

    Args:
        workspace: the working directory of the server, which counts where nothing is named.
        cwd: the workspace that was named.
        session_id: the session that was named; its header says the workspace.

    Raises:
        WrongUse: ``cwd`` is no absolute path, or not that of the session.
        Unusable: there is no such session, or it cannot be read.
    """
    if cwd is not None and not _is_absolute(cwd):
        raise WrongUse(f"--cwd must be an absolute path, as sessions name it; got {cwd!r}")
    if session_id is None:
        return McpCaller(store, runtime, workspace if cwd is None else cwd)
    try:
        snapshot = store.stat(session_id)
    except StoreError as error:
        raise Unusable(f"--caller {session_id!r} cannot be read: {error}") from error
    if snapshot is None and cwd is None:
        raise Unusable(
            f"--caller {session_id!r} is not stored yet; say its working directory with --cwd"
        )
    named = cwd if snapshot is None else snapshot.header.cwd
    if cwd is not None and cwd != named:
        raise WrongUse(f"--cwd {cwd!r} is not that of --caller {session_id!r}, {named!r}")
    return McpCaller(store, runtime, named, session_id)


def _is_absolute(path: str) -> bool:
    if "\0" in path:
        return False
    return PurePosixPath(path).is_absolute() or PureWindowsPath(path).is_absolute()
