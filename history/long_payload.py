"""A long payload, of which only the parts that a fold looks at are decoded.

What a value takes in memory may be thirty times its text. Here a decoder that builds nothing walks
over whatever no rule reads, such as the stream of an attempt; texts are decoded as far as they are
wanted; and the rest is decoded only where it is known to stay small.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Final, TypeAlias

import msgspec
from attrs import define, field, frozen

from ..messages.errors import InvalidJson, UnsupportedFormat
from ..messages.json import Json, decode
from .vocabulary import ALL_KNOWN_TYPES
from .whitespace import JS_WHITESPACE

LONG_BYTES: Final = 4 * 1024 * 1024
"""A longer payload, or line of a log, is long."""

MAX_INDEXED_CHARS: Final = 1_000_000
"""Code points of one document that are searchable; the rest of a longer text is not."""

MAX_VALUES: Final = 250_000
"""Strings, containers and commas of a text that is decoded whole: each may take 100 bytes."""

DECODED_BYTES: Final = 48 * 1024 * 1024
"""What strings that are decoded whole may take of one payload."""

_PIECE_BYTES: Final = 1024 * 1024

_VALUE: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[{,]', re.DOTALL)
_WIDE: Final = re.compile(rb"[\x80-\xff]|\\u")
_SPACE: Final = re.compile(rb"[ \t\r\n]*+")
_WHOLE_CHARACTERS: Final = re.compile(
    rb"(?:[^\"\\\x80-\xff]++|[\xc2-\xdf].|[\xe0-\xef]..|[\xf0-\xf4]..."
    rb"|\\u[dD][89abAB]..\\u....|\\u(?![dD][89abAB])....|\\[^u])*+",
    re.DOTALL,
)
_SURROGATE: Final = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)

Part: TypeAlias = bytes | bytearray | msgspec.Raw
"""The text of a value."""


class TooLarge(Exception):
    """A part that has to be decoded and would take too much memory."""


def paired_surrogates(text: bytes) -> bytearray:
    """A JSON text of the same length, each surrogate escape that stands alone one of U+FFFD."""
    paired = bytearray(text)
    for escape in _SURROGATE.finditer(text):
        if escape[1] is not None:
            paired[slice(*escape.span(1))] = b"ufffd"
    return paired


def affordable(part: Part) -> bool:
    """Whether a text can be decoded whole."""
    return _string_bytes(part) <= DECODED_BYTES and has_few_values(part)


def needed(event_type: str, raw: bytes, text_chars: int | None) -> Json:
    """A long payload without what no rule of a fold reads, as if it had been stored so.

    Texts are cut behind ``text_chars`` code points, all together; with ``None`` they are whole.
    Lone surrogates read as U+FFFD. A payload of a host's own type is whole, or empty where it
    would take too much memory.

    Raises:
        InvalidJson
        UnsupportedFormat: it is nested too deeply, or too large in what has to be read.
    """
    if event_type not in ALL_KNOWN_TYPES:
        return decode(raw) if affordable(raw) else {}
    part = _NEEDS.get(event_type, _NOTHING)
    try:
        try:
            return _Selection(text_chars).take(raw, part)
        except (msgspec.MsgspecError, UnicodeError):
            return _Selection(text_chars).take(paired_surrogates(raw), part)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise InvalidJson(f"not JSON: {error}") from error
    except RecursionError as error:
        raise UnsupportedFormat("nested too deeply") from error
    except TooLarge as error:
        raise UnsupportedFormat(f"too large: {error}") from error


def has_few_values(part: Part) -> bool:
    """Whether a text holds no more values than may be decoded, whatever its strings take."""
    found = islice(_VALUE.finditer(memoryview(part)), MAX_VALUES + 1)
    return sum(1 for _ in found) <= MAX_VALUES


def _string_bytes(part: Part) -> int:
    view = memoryview(part)
    return len(view) * (4 if _WIDE.search(view) else 1)


# -- what is read of a payload -------------------------------------------------------------------


@frozen
class _Value:
    """Whatever it is, whole."""


@frozen
class _Text:
    """A string, cut where no more is wanted."""


@frozen
class _Shape:
    """An empty one of the same kind."""


@define
class _Object:
    """An object with some of its members."""

    members: dict[str, Need]
    decoder: msgspec.json.Decoder[msgspec.Struct] = field(init=False)

    def __attrs_post_init__(self) -> None:
        absent = msgspec.field(default=msgspec.UNSET)
        kinds = [(name, msgspec.Raw | msgspec.UnsetType, absent) for name in self.members]
        self.decoder = msgspec.json.Decoder(msgspec.defstruct("Members", kinds, gc=False))


@frozen
class _Complete:
    """An object with all of its members, some of them less than whole."""

    members: dict[str, Need]


@frozen
class _Variant:
    """An object whose ``type`` tells which of its members are read."""

    all: _Object
    members: dict[Json, frozenset[str]]


@frozen
class _List:
    """A list of alike items; ``other`` is what is read of anything else."""

    item: Need
    other: _Value | _Shape


Need: TypeAlias = _Value | _Text | _Shape | _Object | _Complete | _Variant | _List

_WHOLE: Final = _Value()
_TEXT: Final = _Text()
_NOTHING: Final = _Shape()

_BLOCK: Final[dict[str, Need]] = {
    "type": _WHOLE,
    "text": _TEXT,
    "id": _WHOLE,
    "name": _WHOLE,
    "arguments": _TEXT,
    "content": _NOTHING,
}
_BLOCKS: Final = _List(
    _Variant(
        _Object(_BLOCK),
        {
            "text": frozenset({"text"}),
            "tool-call": frozenset({"id", "name", "arguments"}),
            "tool-result": frozenset({"content"}),
        },
    ),
    _NOTHING,
)
_BLOCK["content"] = _BLOCKS

_PLACE: Final[dict[str, Need]] = {"turn": _WHOLE, "step": _WHOLE}
_MESSAGE: Final[dict[str, Need]] = {"id": _WHOLE, "role": _WHOLE, "content": _BLOCKS}
_MODEL: Final = _Object(dict.fromkeys(("kind", "provider", "model"), _WHOLE))
_CONFIG: Final = _Object(
    dict.fromkeys(("provider", "model", "reasoningEffort", "maxTokens"), _WHOLE)
)

_NEEDS: Final[dict[str, Need]] = {
    "user/message": _Object({**_MESSAGE, "source": _Object({"kind": _WHOLE})}),
    "assistant/message": _Object({**_PLACE, "message": _Object({**_MESSAGE, "source": _MODEL})}),
    "system/message": _Object({"message": _Object({"role": _WHOLE, "content": _NOTHING})}),
    "tool/call": _Object({**_PLACE, "callId": _WHOLE, "name": _WHOLE, "arguments": _TEXT}),
    # All but its content counts where another one replaces it.
    "tool/result": _Complete(
        {"message": _Complete({"content": _List(_Complete({"content": _BLOCKS}), _WHOLE)})}
    ),
    "todo/write": _Object({"todos": _List(_Object({"status": _TEXT, "content": _TEXT}), _NOTHING)}),
    "turn/start": _Object(_PLACE),
    "turn/end": _Object(
        {"reason": _Object({"kind": _WHOLE, "error": _Object({"message": _TEXT})})}
    ),
    "step/start": _Object(_PLACE),
    "step/end": _Object(_PLACE),
    "session/title": _Object(dict.fromkeys(("title", "messageSeqs", "source"), _WHOLE)),
    "session/end-seed": _Object({"inherited": _WHOLE}),
    "request/header": _Object(
        {
            "reason": _WHOLE,
            "startsSeries": _WHOLE,
            "header": _Object({"config": _CONFIG, "adapterDefaults": _WHOLE}),
        }
    ),
}


# -- reading it ----------------------------------------------------------------------------------

_decode_items: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_text: Final = msgspec.json.Decoder(str).decode


@define
class _Selection:
    """The decoding of one payload, and what it may still take."""

    _chars: int | None
    _bytes: int = field(init=False, factory=lambda: DECODED_BYTES)

    def take(self, part: Part, need: Need) -> Json:
        match need, _kind(part):
            case _Value(), _:
                return self._whole(part)
            case _Object(), b"{":
                return {
                    name: self.take(raw, need.members[name]) for name, raw in _named(part, need)
                }
            case _Complete(), b"{":
                members = _decode_members(_few(part))
                return {
                    name: self.take(raw, need.members.get(name, _WHOLE))
                    for name, raw in members.items()
                }
            case _Variant(), b"{":
                return self._variant(part, need)
            case _List(), b"[":
                return [self.take(item, need.item) for item in _decode_items(_few(part))]
            case _Text(), b'"':
                return self._text(part)
            case _Complete(), _:
                return self._whole(part)
            case _List(other=other), _:
                return self.take(part, other)
            case _, b"{":
                return {}
            case _, b"[":
                return []
            case _:
                return None

    def _variant(self, part: Part, need: _Variant) -> Json:
        found = dict(_named(part, need.all))
        kind = self.take(found["type"], _WHOLE) if "type" in found else None
        wanted = need.members.get(kind, frozenset()) if isinstance(kind, str) else frozenset()
        taken = {
            name: self.take(raw, need.all.members[name])
            for name, raw in found.items()
            if name in wanted
        }
        return {"type": kind, **taken}

    def _whole(self, part: Part) -> Json:
        self._bytes -= _string_bytes(part)
        if self._bytes < 0:
            raise TooLarge(f"its strings would take more than {DECODED_BYTES} bytes")
        return decode(bytes(_few(part)))

    def _text(self, part: Part) -> str:
        if self._chars is None:
            return _decode_text(part)
        text = ""
        for piece in _pieces(part):
            # White space in front is no text, however long it is.
            text = (text + piece).lstrip(JS_WHITESPACE)[: self._chars]
            if len(text) == self._chars:
                break
        self._chars -= len(text)
        return text


def _kind(part: Part) -> bytes:
    """The first byte of a value."""
    view = memoryview(part)
    space = _SPACE.match(view)
    start = space.end() if space else 0
    return bytes(view[start : start + 1])


def _few(part: Part) -> Part:
    if not has_few_values(part):
        raise TooLarge(f"it holds more than {MAX_VALUES} values")
    return part


def _named(part: Part, need: _Object) -> Iterator[tuple[str, msgspec.Raw]]:
    """The members of an object that are read, with their texts."""
    found = need.decoder.decode(part)
    for name in need.members:
        raw = getattr(found, name)
        if isinstance(raw, msgspec.Raw):
            yield name, raw


def _pieces(part: Part) -> Iterator[str]:
    """The text of a string, piece by piece."""
    view = memoryview(part)
    at = 1
    while whole := _WHOLE_CHARACTERS.match(view, at, at + _PIECE_BYTES):
        if whole.end() == at:
            return
        yield _decode_text(b'"%s"' % view[at : whole.end()])
        at = whole.end()
