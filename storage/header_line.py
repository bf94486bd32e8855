"""The first line of a log: the header of its session, read and written."""

from __future__ import annotations

from typing import Final

from ..history.replay import SUPPORTED_VERSIONS, check_header
from ..messages.errors import ReplayError
from ..messages.header import FORMAT_VERSION, SessionHeader, header_to_json
from ..messages.json import Json, encode, is_safe_integer
from .json_line import NotARecord, UnsupportedRecord, read_object, whole_number

_RETIRED_KEYS: Final = ("sandboxMode", "approvalPolicy")


class NotAHeader(Exception):
    """A first line that is no session header at all."""


class BadHeader(Exception):
    """A session header with a field of the wrong shape."""


class UnsupportedHeader(Exception):
    """A session header that is intact and not readable by this version."""


class ForeignHeader(UnsupportedHeader):
    """A session header of a format that this version does not read."""

    def __init__(self, message: str, header: SessionHeader | None) -> None:
        super().__init__(message)
        self.header = header
        """What it says if its fields mean what they mean today."""


def read_header(line: bytes, file_version: int) -> SessionHeader:
    """The header in the first line of a log; ``file_version`` is the format its name tells.

    The format is looked at before any other field. Unknown keys are ignored.

    Raises:
        NotAHeader, BadHeader, UnsupportedHeader
    """
    fields = _header_fields(line)
    version = whole_number(fields.get("version"), signed=True)
    if version is None:
        raise NotAHeader("the session header has no format version")
    if version not in SUPPORTED_VERSIONS or file_version not in SUPPORTED_VERSIONS:
        raise _foreign(fields, version, file_version)
    header = _header(fields, version)
    for key in _RETIRED_KEYS:
        if key in fields:
            raise UnsupportedHeader(f"the header holds {key}, which was retired")
    if version != file_version:
        raise BadHeader(f"the header says format {version}, the file name format {file_version}")
    return header


def _foreign(fields: dict[str, Json], version: int, file_version: int) -> ForeignHeader:
    number = file_version if version in SUPPORTED_VERSIONS else version
    try:
        header = _header(fields, version)
    except (NotAHeader, BadHeader):
        header = None
    return ForeignHeader(f"format {number} is not one of 0 to 3, which can be read", header)


def _header(fields: dict[str, Json], version: int) -> SessionHeader:
    created_at, depth = (
        whole_number(fields.get("createdAt")),
        whole_number(fields.get("delegationDepth")),
    )
    session_id = fields.get("id")
    if not isinstance(session_id, str) or created_at is None or depth is None:
        raise NotAHeader("a session header needs id, createdAt and delegationDepth")
    if version >= FORMAT_VERSION and not isinstance(fields.get("isSeeded"), bool):
        raise NotAHeader(f"a session header of format {version} needs isSeeded")
    origin, preset = fields.get("origin"), fields.get("agentPreset")
    if not isinstance(fields.get("origin", "subagent"), str) or origin not in (None, "subagent"):
        raise NotAHeader(f"origin {origin!r:.80} is of no known kind")
    if not isinstance(fields.get("agentPreset", ""), str):
        raise NotAHeader(f"agentPreset {preset!r:.80} is not text")
    return SessionHeader(
        id=session_id,
        created_at=created_at,
        version=version,
        cwd=_optional_text(fields, "cwd"),
        parent_session=_optional_text(fields, "parentSession"),
        is_seeded="seedLength" in fields
        if version < FORMAT_VERSION
        else fields["isSeeded"] is True,
        seed_length=_seed_length(fields, version),
        origin="subagent" if origin == "subagent" else None,
        delegation_depth=depth,
        agent_preset=preset if isinstance(preset, str) else None,
    )


def _header_fields(line: bytes) -> dict[str, Json]:
    try:
        fields = read_object(line.removeprefix(b"\xef\xbb\xbf"))
    except UnsupportedRecord as error:
        raise UnsupportedHeader(str(error)) from error
    except NotARecord as error:
        raise NotAHeader(f"the first line is {error}") from error
    if fields.get("type") != "session":
        raise NotAHeader(
            f"the first line is no session header, its type is {fields.get('type')!r:.80}"
        )
    return fields


def _optional_text(fields: dict[str, Json], key: str) -> str | None:
    value = fields.get(key)
    if key in fields and not isinstance(value, str):
        raise BadHeader(f"{key} {value!r:.80} in the header is not text")
    return value if isinstance(value, str) else None


def _seed_length(fields: dict[str, Json], version: int) -> int | None:
    if "seedLength" not in fields:
        return None
    length = whole_number(fields["seedLength"])
    if version >= FORMAT_VERSION or "isSeeded" in fields:
        raise BadHeader("a header holds either seedLength or isSeeded")
    if length is None:
        raise BadHeader(f"seedLength {fields['seedLength']!r:.80} is not a whole number")
    return length


def render_header(header: SessionHeader) -> bytes:
    """The first line of a log, with its line end."""
    return encode({"type": "session", **header_to_json(header)}) + b"\n"


def check_new(header: SessionHeader, inherited_event_count: int) -> None:
    """Refuse a header that no new log can begin with.

    Raises:
        ValueError: naming the field at fault.
    """
    if header.version != FORMAT_VERSION:
        raise ValueError(f"new logs have format {FORMAT_VERSION}, not {header.version!r}")
    try:
        check_header(header)
    except ReplayError as error:
        raise ValueError(str(error)) from error
    count = inherited_event_count
    if not is_safe_integer(count) or (count and not header.is_seeded):
        raise ValueError(
            f"inherited_event_count {count!r} does not fit is_seeded {header.is_seeded}"
        )
