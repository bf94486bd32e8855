"""Mutants: bugs that are planted in the product to see whether the simulation finds them.

Each replaces a few words of one function of the product. A mutant whose words are no longer there
fails loudly when it is planted. ``--bug NAME`` plants one; the test of the mutants runs each with
the seed that is known to catch it.
"""

from __future__ import annotations
import __future__

import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from unittest import mock

from attrs import field, frozen

from ..actors import prepared_logs, reconciliation
from ..actors.corpus import Corpus
from ..actors.inventory import Inventory
from ..actors.live_session import LiveSession
from ..actors.mailbox import Mailbox
from ..actors.reader_pool import LogReaderPool
from ..actors.reconciler import IndexReconciler
from ..actors.reconciliation import Reconciliation
from ..actors.registry import Sessions
from ..actors.write_behind import WriteBehind
from ..storage import index
from ..storage.live_arm import LiveArm
from ..storage.log_writer import LogWriter
from ..storage.notices import FollowedRoot, Notices
from ..storage.stored_arm import StoredArm
from ..storage.told import Told
from ..tools.authorization import Authority


@frozen
class Mutant:
    """A planted bug and the run that catches it."""

    name: str
    breaks: str
    """What no longer holds."""
    owner: Any
    """The class or module whose function is changed."""
    function: str
    old: str
    """Words that stand in it exactly once."""
    new: str
    scenario: str
    seed: int
    overrides: Mapping[str, str] = field(factory=dict)
    """Settings of that run."""

    @contextmanager
    def planted(self) -> Iterator[None]:
        """The product with this bug, for the length of the block.

        Raises:
            ValueError: the words are not there, or not once.
        """
        with mock.patch.object(self.owner, self.function, self._changed()):
            yield

    def _changed(self) -> Callable[..., object]:
        found = inspect.getattr_static(self.owner, self.function)
        source = textwrap.dedent(inspect.getsource(found))
        if source.count(self.old) != 1:
            raise ValueError(
                f"mutant {self.name!r} looks for {self.old!r} once in {self.function}, and finds it"
                f" {source.count(self.old)} times"
            )
        module = sys.modules[found.__module__]
        flags = __future__.annotations.compiler_flag
        code = compile(source.replace(self.old, self.new), f"<{self.name}>", "exec", flags)
        names: dict[str, Any] = {}
        exec(code, module.__dict__, names)  # the product's own source, but for a few words
        changed: Callable[..., object] = names[self.function]
        return changed


_BURSTS: Final = {
    "bursts": "14",
    "meddle": "0",
    "outsiders": "0",
    "bounds": "0",
    "read_error": "0",
    "think": "0.1",
    "latency": "0.01",
    "tells": "1",
    "notify": "1",
    "verify": "60",
    "notices": "16384",
    "watches": "100000",
    "refused_watch": "0",
    "lost_notice": "0",
}
"""Settings of runs in which single sessions change fast, and everything is told."""

_BRISK: Final = {
    "meddle": "0",
    "outsiders": "0",
    "bounds": "0",
    "read_error": "0",
    "think": "0.05",
    "latency": "0.02",
    "tells": "1",
    "notify": "1",
    "verify": "60",
    "refused_watch": "0",
    "lost_notice": "0",
}
"""Settings of runs in which agents and searchers meet often and nothing else happens."""

_WATCH: Final = "self._watch_project(key)"
_LIST: Final = "entries = self._catalogue.files.entries(self._path(key))"

_ALL: Final = (
    Mutant(
        "uncut-tail",
        "a torn record is cut off before the next one is written",
        LogWriter,
        "append",
        "if found.size > self.end:",
        "if False:",
        "recovery",
        296,
    ),
    Mutant(
        "stale-log",
        "a log in memory is shown again only while the store has the same",
        prepared_logs,
        "_unchanged",
        "if now is None or now.revision != entry.revision:",
        "if now is None:",
        "reads",
        9,
    ),
    Mutant(
        "lost-sync",
        "what a flush acknowledged survives a loss of power",
        LogWriter,
        "_append",
        "file.sync()",
        "pass",
        "recovery",
        13,
    ),
    Mutant(
        "lost-name",
        "a new log keeps its name after a loss of power",
        LogWriter,
        "_publish",
        "self._files.sync_directory(self._session_path)",
        "pass",
        "recovery",
        50,
    ),
    Mutant(
        "dropped-batch",
        "a batch that could not be written is written by the next flush",
        WriteBehind,
        "_append",
        "revision = await",
        "self.stored = Stored(self.stored.revision, start + len(batch)); revision = await",
        "recovery",
        6,
    ),
    Mutant(
        "hasty-flush",
        "a flush returns after its events are stored",
        LiveSession,
        "flush",
        "if self._writer is not None:",
        "if self._writer is not None and not self._writer.armed:",
        "recovery",
        3,
    ),
    Mutant(
        "left-before-drained",
        "a session leaves the registry only after its drain",
        Sessions,
        "_attached",
        "await session.drain()",
        "gone = self._live.pop(session.id); self._present = None; await session.drain();"
        " self._live[session.id] = gone",
        "search",
        2,
    ),
    Mutant(
        "lost-on-the-move",
        "the rows of a live session stay when they are moved to the file",
        LiveArm,
        "move",
        "[range(extent.lo, extent.hi) for extent in moving]",
        "[range(extent.lo, extent.hi) for extent in moving[1:]]",
        "search",
        6,
    ),
    Mutant(
        "dropped-flip",
        "what a compaction replaced is shadowed in the file too",
        LiveArm,
        "move",
        "if cause < upto}",
        "if cause + 1 < upto}",
        "search",
        6,
    ),
    Mutant(
        "foreign-cursor",
        "a cursor is good for the generation that it was made from alone",
        index,
        "_offset",
        "if made_at != generation:",
        "if False:",
        "search",
        8,
    ),
    Mutant(
        "found-unmounted",
        "without a store no stored session is found",
        IndexReconciler,
        "_follow",
        "mounted.epoch, mounted.store is not None",
        "mounted.epoch, True",
        "operators",
        17,
    ),
    Mutant(
        "stale-pass",
        "a search waits for a pass that began after it was asked",
        IndexReconciler,
        "_run_passes",
        "current, self._next = self._next, None",
        "current = self._next",
        "search",
        1,
    ),
    Mutant(
        "pass-goes-on",
        "a pass ends when its last waiter leaves",
        IndexReconciler,
        "_leave",
        "if joined.waiters:",
        "if True:",
        "search",
        16,
    ),
    Mutant(
        "pool-of-five",
        "the pool never runs more than it has workers",
        LogReaderPool,
        "run",
        "range(self.workers)",
        "range(self.workers + 1)",
        "search",
        19,
    ),
    Mutant(
        "early-generation",
        "a generation is announced once it is committed",
        IndexReconciler,
        "_reconcile",
        "with self.news.covering():",
        "self.generations.publish(lane.index.generation + 1)\n        with self.news.covering():",
        "search",
        1,
    ),
    Mutant(
        "kept-closers",
        "a tail takes the in-memory closers of the log before it away",
        StoredArm,
        "drop_closers",
        "self._tables.remove_from_file(no, gone)",
        "return extents",
        "search",
        9,
    ),
    Mutant(
        "served-in-vain",
        "a request that was taken back is not served",
        Mailbox,
        "_serve_next",
        "if envelope.withdrawn:",
        "if False:",
        "search",
        30,
    ),
    Mutant(
        "lost-wake-up",
        "whoever wants a pass wakes who runs it",
        IndexReconciler,
        "_join",
        "self._wanted.set()",
        "self._upkeep.cancel_called or self._wanted.set()",
        "search",
        0,
    ),
    Mutant(
        "unnamed-damage",
        "a session that is left out is named",
        Reconciliation,
        "_left_out",
        "[*damaged, *unreadable]",
        "damaged",
        "search",
        1,
    ),
    Mutant(
        "missed-in-a-listing",
        "a session that ends behind the look at the store is listed",
        Corpus,
        "list_sessions",
        "live = dict(self._sessions.live)",
        "live = self._sessions.live",
        "reads",
        150,
    ),
    Mutant(
        "commits-not-compared",
        "a search for which a commit was made since the last whole pass waits for one",
        IndexReconciler,
        "_agrees",
        "agreed.commits == self._sessions.commits.value",
        "True",
        "search",
        508,
    ),
    Mutant(
        "commits-of-meanwhile-passed-over",
        "a commit that comes while a search follows earlier ones is followed by the next",
        IndexReconciler,
        "_remember",
        "commits=gains.commits",
        "commits=self._sessions.commits.value",
        "search",
        342,
        _BRISK,
    ),
    Mutant(
        "changed-sessions-passed-over",
        "a pass looks at every live session that changed since the last whole one",
        reconciliation,
        "_suspects",
        "union(changed, told)",
        "union(told)",
        "search",
        1,
    ),
    Mutant(
        "lost-notices-ignored",
        "a store that lost notices is swept",
        Notices,
        "changes",
        "return None",
        "return token and Changes(token, frozenset(), frozenset())",
        "search",
        124,
    ),
    Mutant(
        "undoubted-sweep",
        "what only a sweep failed to read is looked at again",
        Inventory,
        "_ask",
        "if not stock.doubted.issubset(news.damaged):",
        "if False:",
        "search",
        141,
    ),
    Mutant(
        "listed-before-watched",
        "a directory is watched before it is looked at, so that nothing falls between the two",
        FollowedRoot,
        "_follow_project",
        f"{_WATCH}\n        {_LIST}",
        f"{_LIST}\n        {_WATCH}",
        "search",
        235,
        _BURSTS,
    ),
    Mutant(
        "looked-at-before-watched",
        "a session directory, too, is watched before it is looked at",
        FollowedRoot,
        "_follow_name",
        "self.tree.watch(key)",
        "self._look(key, told); self.tree.watch(key); return",
        "search",
        251,
        _BURSTS,
    ),
    Mutant(
        "every-workspace",
        "a caller sees sessions of its own workspace alone",
        Authority,
        "allows",
        "return self.recall.in_workspace(self.caller.cwd, header.cwd)",
        "return True",
        "tools",
        1,
    ),
    Mutant(
        "foreign-damage-counted",
        "sessions of other workspaces that could not be read are none of the caller's",
        Authority,
        "skipped",
        "header is not None and self.allows(header)",
        "header is not None",
        "tools",
        9,
    ),
    Mutant(
        "told-of-elsewhere",
        "what is wrong with a session is told only while it is of the workspace",
        Authority,
        "told",
        "if failure.code in _OF_A_SESSION:",
        "if False:",
        "tools",
        256,
    ),
    Mutant(
        "passed-by",
        "a session that a sweep saw and that went before the next news is told to be gone",
        Told,
        "miss",
        "self._journal.note(session_id)",
        "pass",
        "search",
        6,
        _BURSTS,
    ),
    Mutant(
        "looked-at-once",
        "what is answered is checked again, since a session may have moved meanwhile",
        Authority,
        "check",
        "if header.id != session_id or not self.allows(header):",
        "if header.id != session_id:",
        "tools",
        1,
    ),
)

MUTANTS: Final[dict[str, Mutant]] = {mutant.name: mutant for mutant in _ALL}
"""Every mutant by name."""
