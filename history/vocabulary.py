"""The event types that each log format knows."""

from __future__ import annotations

from typing import Final

_NAMES: Final = """
    agent-preset/selected agent/inbox/spliced approval/asked approval/decided approval/policy
    assistant/message command/done command/run compaction/end compaction/prune compaction/start
    compaction/summary feedback/record goal/change hook/invoked hook/result llm/retry
    llm/retry-started permission/preset plan/mode request/context request/header sandbox/mode
    schedule/change session/end-seed session/title session/title-llm-request step/end step/start
    subagent/descriptor team/member team/message/delivered team/message/queued team/task
    todo/write tool-workflow/agent-end tool-workflow/agent-start tool-workflow/run-end
    tool-workflow/run-start tool/call tool/code-dispatch tool/code-dispatch-start tool/result
    turn/end turn/start user/message web/deepseek-search-llm-request
"""

_COMMON: Final = frozenset(_NAMES.split())
_OLD: Final = _COMMON | {"assistant/chunk"}
_NEW: Final = _COMMON | {
    "assistant/attempt",
    "model/selection",
    "session-log-deepseek/delivery-accepted",
    "subagent/model-selection-policy",
}
_NEWEST: Final = _NEW | {"system/message", "tool/ptc-dispatch", "tool/ptc-dispatch-start"}

ALL_KNOWN_TYPES: Final = _OLD | _NEWEST
"""What some format knows; a type outside it is a host's own."""


def known_types(version: int) -> frozenset[str]:
    """The types that every reader of a log of this format has to understand."""
    if version < 2:
        return _OLD
    return _NEW if version == 2 else _NEWEST
