"""What makes a log damaged, and what makes it unreadable for this version.

Headers, the types of events and the shapes of messages are checked here, and ``validate_log``
restores a whole log with every check there is (session-model §7). Not checked: balance of turns
and steps, pairing of calls and results, the order of times, payloads of all other types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import PureWindowsPath
from typing import Final

from ..messages.errors import ReplayError, UnsupportedFormat
from ..messages.event import Event
from ..messages.header import SessionHeader
from ..messages.json import MAX_SAFE_INTEGER, Json, child, is_safe_integer, member
from .fold import SurfaceFold
from .legacy import RETIRED_TYPES
from .payload import payload
from .seed import check_seed_marked, inherited_count, is_seed_marker
from .stream import check_stream
from .vocabulary import known_types

SUPPORTED_VERSIONS: Final = range(4)
"""The log formats that can be read."""

_HEADER_REASONS: Final = frozenset({"initial", "resume", "change", "series"})


def validate_log(header: SessionHeader, events: Iterable[Event]) -> int:
    """Restore a whole log with every check and return how many events it inherited.

    Raises:
        ReplayError: the log is damaged.
        SurfaceError: an event breaks a rule of the surface fold.
        UnsupportedFormat: the log is intact but cannot be read by this version.
        InvalidJson: a payload is not JSON.
    """
    check_header(header)
    fold = SurfaceFold(header.version)
    marker: int | None = None
    for event in events:
        if event.seq != fold.next_seq:
            raise ReplayError(f"event {event.seq} stands where seq {fold.next_seq} is due")
        data = payload(event, 0)
        check_restored(event, data, header.version)
        if is_seed_marker(header, event, data):
            marker = event.seq
        fold.apply(fold.plan(event, data))
    check_seed_marked(header, marker)
    return inherited_count(header, marker, fold.next_seq)


def check_header(header: SessionHeader) -> None:
    """Check the values of a header.

    Raises:
        UnsupportedFormat: its format is not one that can be read.
        ReplayError: a value is out of its domain.
    """
    version: object = header.version
    if type(version) is not int or version not in SUPPORTED_VERSIONS:
        raise UnsupportedFormat(
            f"log format {version!r} is not supported, only"
            f" {SUPPORTED_VERSIONS[0]} to {SUPPORTED_VERSIONS[-1]}"
        )
    _require(_is_text(header.id), "id", header.id, "a non-empty text")
    _require(is_safe_integer(header.created_at), "createdAt", header.created_at, "ms from 0 on")
    cwd: object = header.cwd
    _require(cwd is None or _is_absolute(cwd), "cwd", cwd, "an absolute path")
    for name, value in (
        ("parentSession", header.parent_session),
        ("agentPreset", header.agent_preset),
    ):
        _require(value is None or isinstance(value, str), name, value, "a text")
    _require(header.origin in (None, "subagent"), "origin", header.origin, "'subagent'")
    depth = header.delegation_depth
    _require(is_safe_integer(depth), "delegationDepth", depth, "a whole number from 0 on")
    _check_seed_fields(header)


def _check_seed_fields(header: SessionHeader) -> None:
    length = header.seed_length
    _require(isinstance(header.is_seeded, bool), "isSeeded", header.is_seeded, "true or false")
    if header.version >= 2:
        _require(length is None, "seedLength", length, "absent from format 2 on")
        return
    _require(
        length is None or is_safe_integer(length), "seedLength", length, "a whole number from 0 on"
    )
    if header.is_seeded != (length is not None):
        raise ReplayError(
            f"header: a log of format {header.version} is seeded exactly when it has a seedLength"
        )


def _require(holds: object, name: str, value: object, wanted: str) -> None:
    if not holds:
        raise ReplayError(f"header: {name} must be {wanted}, got {value!r:.200}")


def _is_absolute(path: object) -> bool:
    return isinstance(path, str) and (path[:1] == "/" or PureWindowsPath(path).is_absolute())


def check_restored(event: Event, data: Json, version: int) -> None:
    """``check_event`` and the stream check together: what a restored or new event has to pass."""
    check_event(event, data, version)
    check_stream(event, data, version)


def check_event(event: Event, data: Json, version: int) -> None:
    """Check one event of a log of format ``version``; ``data`` is its decoded payload.

    Raises:
        ReplayError: the event is damaged.
        UnsupportedFormat: its type, or the reason of a ``request/header``, is retired or unknown.
    """
    if type(event.time) is not int or abs(event.time) > MAX_SAFE_INTEGER:
        raise ReplayError(f"event {event.seq}: time {event.time!r} is not a whole number of ms")
    if event.type in known_types(version):
        check = _CHECKS.get(event.type)
        if check is not None:
            check(event, data, version)
    elif event.type in RETIRED_TYPES:
        raise UnsupportedFormat(f"event {event.seq}: type {event.type!r} is retired")
    elif not event.ignorable:
        raise UnsupportedFormat(
            f"event {event.seq}: type {event.type!r} is unknown and not marked as ignorable"
        )


def _damaged(event: Event, wanted: str) -> ReplayError:
    return ReplayError(f"event {event.seq} of type {event.type!r}: {wanted}")


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _checked_message(event: Event, message: Json, role: str) -> dict[str, Json]:
    """The source of a message whose common fields are right."""
    if not isinstance(message, dict):
        raise _damaged(event, "it must hold a message")
    identity = message.get("id")
    if not (isinstance(identity, str) and identity):
        raise _damaged(event, "the id of its message must be a non-empty text")
    if message.get("role") != role:
        raise _damaged(event, f"the role of its message must be {role!r}")
    if not isinstance(message.get("content"), list):
        raise _damaged(event, "the content of its message must be a list of blocks")
    source = message.get("source")
    if isinstance(source, dict):
        kind = source.get("kind")
        if isinstance(kind, str) and kind:
            return source
    raise _damaged(event, "the source of its message must have a kind")


def _user_message(event: Event, data: Json, _version: int) -> None:
    _checked_message(event, data, "user")


def _system_message(event: Event, data: Json, _version: int) -> None:
    message = child(data, "message")
    if child(message, "role") != "system" or not isinstance(child(message, "content"), list):
        raise _damaged(event, "it must hold a message of role 'system' with a list of blocks")


def _assistant_message(event: Event, data: Json, _version: int) -> None:
    source = _checked_message(event, child(data, "message"), "assistant")
    if source["kind"] != "model" or not (
        _is_text(source.get("provider")) and _is_text(source.get("model"))
    ):
        raise _damaged(event, "its source must be a model with provider and model named")


def _tool_result(event: Event, data: Json, _version: int) -> None:
    message = child(data, "message")
    source = _checked_message(event, message, "user")
    call_id = source.get("callId")
    if source["kind"] != "tool" or not _is_text(call_id):
        raise _damaged(event, "its source must be a tool with a callId")
    content = child(message, "content")
    block = content[0] if isinstance(content, list) and len(content) == 1 else None
    if (
        not isinstance(block, dict)
        or block.get("type") != "tool-result"
        or block.get("toolCallId") != call_id
        or not isinstance(block.get("content"), list)
    ):
        raise _damaged(event, f"it must hold exactly one tool-result block of call {call_id!r}")


def _request_header(event: Event, data: Json, version: int) -> None:
    reason = child(data, "reason")
    if reason == "fallback":
        raise UnsupportedFormat(f"event {event.seq}: the request/header reason is retired")
    config = member(data, "header", "config")
    if not (_is_text(child(config, "provider")) and _is_text(child(config, "model"))):
        raise _damaged(event, "its config must name provider and model")
    assert isinstance(config, dict)
    if "reasoningEffort" in config and not _is_text(config["reasoningEffort"]):
        raise _damaged(event, "the reasoningEffort of its config must be a non-empty text")
    header = child(data, "header")
    if isinstance(header, dict) and "adapterDefaults" in header:
        _check_adapter_defaults(event, header["adapterDefaults"], config)
    if version >= 2:
        if not isinstance(reason, str) or reason not in _HEADER_REASONS:
            raise _damaged(event, f"its reason must be one of {', '.join(sorted(_HEADER_REASONS))}")
        if isinstance(data, dict) and data.get("startsSeries", True) is not True:
            raise _damaged(event, "startsSeries can only be true")


def _check_adapter_defaults(event: Event, defaults: Json, config: dict[str, Json]) -> None:
    if not isinstance(defaults, dict) or not all(
        key in ("reasoningEffort", "maxTokens") and key in config and value is True
        for key, value in defaults.items()
    ):
        raise _damaged(
            event, "adapterDefaults may only mark reasoningEffort and maxTokens of its config"
        )


_CHECKS: Final[dict[str, Callable[[Event, Json, int], None]]] = {
    "user/message": _user_message,
    "assistant/message": _assistant_message,
    "tool/result": _tool_result,
    "system/message": _system_message,
    "request/header": _request_header,
}
