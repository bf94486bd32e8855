"""Exact reads, relationship traces and full-text search over agent sessions, for Trio.

The public names, imported when they are first used: who only folds logs does not pay for Trio.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .actors.composition import open_session_query as open_session_query
    from .actors.live_session import LiveSession as LiveSession
    from .actors.observations import Observation as Observation
    from .actors.service import SessionQuery as SessionQuery
    from .harness.checkpoints import Checkpoints as Checkpoints
    from .harness.composition import Harness as Harness
    from .harness.composition import mount_policies as mount_policies
    from .harness.composition import mount_session_tools as mount_session_tools
    from .harness.composition import open_harness as open_harness
    from .harness.composition import open_spill as open_spill
    from .harness.configuration import Configuration as Configuration
    from .harness.configuration import configuration_toml as configuration_toml
    from .harness.configuration import parse_configuration as parse_configuration
    from .harness.configuration import read_configuration as read_configuration
    from .harness.execution import Execution as Execution
    from .harness.execution import Place as Place
    from .harness.execution import Proceed as Proceed
    from .harness.execution import ToolCall as ToolCall
    from .harness.outcome import Fault as Fault
    from .harness.outcome import HarnessErrorCode as HarnessErrorCode
    from .harness.outcome import Outcome as Outcome
    from .harness.outcome import Verdict as Verdict
    from .harness.prompt import PromptSections as PromptSections
    from .harness.registration import Registration as Registration
    from .harness.registry import ToolRegistry as ToolRegistry
    from .harness.scheduler import Scheduler as Scheduler
    from .harness.spill import Spill as Spill
    from .harness.spill import SpillStore as SpillStore
    from .history.attachments import Attachment as Attachment
    from .interfaces.export import Archive as Archive
    from .interfaces.export import open_archive as open_archive
    from .messages.config import IndexConfig as IndexConfig
    from .messages.config import QueryConfig as QueryConfig
    from .messages.config import SchedulerConfig as SchedulerConfig
    from .messages.config import SpillConfig as SpillConfig
    from .messages.config import StoreConfig as StoreConfig
    from .messages.config import Tokenizer as Tokenizer
    from .messages.config import ToolsConfig as ToolsConfig
    from .messages.errors import ErrorCode as ErrorCode
    from .messages.errors import LiveErrorCode as LiveErrorCode
    from .messages.errors import LiveSessionError as LiveSessionError
    from .messages.errors import SessionError as SessionError
    from .messages.errors import SessionQueryError as SessionQueryError
    from .messages.event import Event as Event
    from .messages.event import EventDraft as EventDraft
    from .messages.event import Replace as Replace
    from .messages.filters import AvailabilityIn as AvailabilityIn
    from .messages.filters import CreatedAt as CreatedAt
    from .messages.filters import Cwd as Cwd
    from .messages.filters import EventFilter as EventFilter
    from .messages.filters import Ids as Ids
    from .messages.filters import Parent as Parent
    from .messages.filters import SeqRange as SeqRange
    from .messages.filters import SessionFilter as SessionFilter
    from .messages.filters import SurfaceIn as SurfaceIn
    from .messages.filters import Text as Text
    from .messages.filters import TimeRange as TimeRange
    from .messages.filters import TypeIn as TypeIn
    from .messages.filters import event_filter_from_json as event_filter_from_json
    from .messages.filters import session_filter_from_json as session_filter_from_json
    from .messages.header import SessionHeader as SessionHeader
    from .messages.records import Availability as Availability
    from .messages.records import EventRecord as EventRecord
    from .messages.records import EventSearchHit as EventSearchHit
    from .messages.records import EventSearchPage as EventSearchPage
    from .messages.records import EventTrace as EventTrace
    from .messages.records import EventWindow as EventWindow
    from .messages.records import IndexStatus as IndexStatus
    from .messages.records import LineageNode as LineageNode
    from .messages.records import LineageTrace as LineageTrace
    from .messages.records import Progress as Progress
    from .messages.records import Projected as Projected
    from .messages.records import SearchDocument as SearchDocument
    from .messages.records import SessionListing as SessionListing
    from .messages.records import SessionLog as SessionLog
    from .messages.records import SessionRecord as SessionRecord
    from .messages.records import SessionSearchHit as SessionSearchHit
    from .messages.records import SessionSearchPage as SessionSearchPage
    from .messages.records import SessionSurface as SessionSurface
    from .messages.records import SessionTitle as SessionTitle
    from .messages.records import Skipped as Skipped
    from .messages.records import Surface as Surface
    from .messages.records import TitleResult as TitleResult
    from .storage.claude_code import ClaudeCodeStore as ClaudeCodeStore
    from .storage.codex import CodexStore as CodexStore
    from .storage.contract import SessionStore as SessionStore
    from .storage.jsonl import JsonlStore as JsonlStore
    from .storage.memory import MemoryStore as MemoryStore
    from .storage.several import SeveralStores as SeveralStores
    from .storage.spill_files import Spilled as Spilled
    from .storage.spill_files import SpillFiles as SpillFiles
    from .tools.definition import Caller as Caller
    from .tools.definition import Tool as Tool
    from .tools.definition import ToolError as ToolError
    from .tools.definition import ToolErrorCode as ToolErrorCode
    from .tools.definition import ToolResult as ToolResult
    from .tools.session_tools import session_tools as session_tools
    from .tools.session_tools import workspace_tools as workspace_tools

_PUBLIC: Final = {
    "actors.composition": "open_session_query",
    "actors.live_session": "LiveSession",
    "actors.observations": "Observation",
    "actors.service": "SessionQuery",
    "harness.checkpoints": "Checkpoints",
    "harness.composition": "Harness mount_policies mount_session_tools open_harness open_spill",
    "harness.configuration": "Configuration configuration_toml"
    " parse_configuration read_configuration",
    "harness.execution": "Execution Place Proceed ToolCall",
    "harness.outcome": "Fault HarnessErrorCode Outcome Verdict",
    "harness.prompt": "PromptSections",
    "harness.registration": "Registration",
    "harness.registry": "ToolRegistry",
    "harness.scheduler": "Scheduler",
    "harness.spill": "Spill SpillStore",
    "history.attachments": "Attachment",
    "interfaces.export": "Archive open_archive",
    "messages.config": "IndexConfig QueryConfig SchedulerConfig SpillConfig StoreConfig"
    " Tokenizer ToolsConfig",
    "messages.errors": "ErrorCode LiveErrorCode LiveSessionError SessionError SessionQueryError",
    "messages.event": "Event EventDraft Replace",
    "messages.filters": "AvailabilityIn CreatedAt Cwd EventFilter Ids Parent SeqRange SessionFilter"
    " SurfaceIn Text TimeRange TypeIn event_filter_from_json session_filter_from_json",
    "messages.header": "SessionHeader",
    "messages.records": "Availability EventRecord EventSearchHit EventSearchPage EventTrace"
    " EventWindow IndexStatus LineageNode LineageTrace Progress Projected SearchDocument"
    " SessionListing SessionLog SessionRecord SessionSearchHit SessionSearchPage SessionSurface"
    " SessionTitle Skipped Surface TitleResult",
    "storage.claude_code": "ClaudeCodeStore",
    "storage.codex": "CodexStore",
    "storage.contract": "SessionStore",
    "storage.jsonl": "JsonlStore",
    "storage.memory": "MemoryStore",
    "storage.spill_files": "SpillFiles Spilled",
    "tools.definition": "Caller Tool ToolError ToolErrorCode ToolResult",
    "tools.session_tools": "session_tools workspace_tools",
    "storage.several": "SeveralStores",
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
