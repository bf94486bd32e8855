"""Configuration values, validated when they are built."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final, Literal, TypeVar

from attrs import Attribute, field, frozen
from attrs.validators import optional

from .errors import ErrorCode, SessionQueryError
from .json import MAX_SAFE_INTEGER, Json

MAX_LIMIT: Final = MAX_SAFE_INTEGER - 1
"""One less than the largest exact integer: a page asks for one row more than it shows."""

MEMORY: Final = ":memory:"
"""The index path that keeps the index in memory."""


class Tokenizer(StrEnum):
    """How text is cut into the tokens that a query matches."""

    CJK = "cjk"
    """NFC text; every Chinese, Japanese or Korean code point is a token of its own."""
    UNICODE61 = "unicode61"
    """FTS5's own tokenizer; a run of ideographs is one token."""


def _invalid(name: str, value: object, wanted: str) -> SessionQueryError:
    return SessionQueryError(ErrorCode.INVALID_CONFIG, f"{name} must be {wanted}, got {value!r}")


_Validator = Callable[[Any, "Attribute[Any]", Any], None]


def _integer(minimum: int, maximum: int = MAX_SAFE_INTEGER) -> _Validator:
    def validate(_instance: object, attribute: Attribute[Any], value: object) -> None:
        if type(value) is not int or not minimum <= value <= maximum:
            wanted = f"a whole number from {minimum} to {maximum}"
            raise _invalid(attribute.name, value, wanted)

    return validate


def _seconds(_instance: object, attribute: Attribute[Any], value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 2**31:
        raise _invalid(attribute.name, value, "a number of seconds from 0 to 2^31")


def _boolean(_instance: object, attribute: Attribute[Any], value: object) -> None:
    if not isinstance(value, bool):
        raise _invalid(attribute.name, value, "True or False")


def _one_of(*choices: str) -> _Validator:
    def validate(_instance: object, attribute: Attribute[Any], value: object) -> None:
        if value not in choices:
            raise _invalid(attribute.name, value, f"one of {', '.join(choices)}")

    return validate


_T = TypeVar("_T")


def identity(value: _T) -> _T:
    """Return the value as it is: the default of every hook."""
    return value


def no_text(_event_type: str, _data: Json) -> str:
    """Say that an event type has no text: the default of ``QueryConfig.extract``."""
    return ""


@frozen(kw_only=True)
class QueryConfig:
    """How the query service reads.

    Raises:
        SessionQueryError: ``INVALID_CONFIG``, naming the value and the accepted range.
    """

    read_window_max: int = field(default=50, validator=_integer(0))
    """Most events that ``read_event`` shows before, and after, its target."""
    persisted_read_concurrency: int = field(default=4, validator=_integer(1))
    """Stored logs that are read at the same time."""
    prepared_session_cache_size: int = field(default=5, validator=_integer(1))
    """Stored logs that stay in memory for the next read or observation."""
    search_concurrency: int = field(default=4, validator=_integer(1))
    """Searches that run at the same time."""
    on_damaged: Literal["isolate", "fail"] = field(
        default="isolate", validator=_one_of("isolate", "fail")
    )
    """Leave a damaged session out and name it, or fail the whole listing or search."""
    close_timeout: float = field(default=5.0, validator=_seconds)
    """Seconds that a closing live session may spend on storing its last events."""
    redact: Callable[[str], str] = identity
    """Applied to bodies before a snippet is cut, and to titles. Must be pure."""
    canonical_cwd: Callable[[str], str] = identity
    """Working directories count as one workspace where this gives the same text. Must be pure.

    Every comparison of a ``Cwd`` filter goes through it; headers are shown as they are stored.
    """
    extract: Callable[[str, Json], str] = no_text
    """Searchable text of an event type of the host's own, from its type and payload."""
    notify: bool = field(default=True, validator=_boolean)
    """Have the store tell what changes, where it can, instead of looking at all of it each time.

    It is asked to in the background, once it was looked at. Not worth it for a few reads.
    """


def _tokenizer(value: object) -> Tokenizer:
    try:
        return Tokenizer(str(value))
    except ValueError:
        raise _invalid("tokenizer", value, f"one of {', '.join(Tokenizer)}") from None


@frozen(kw_only=True)
class IndexConfig:
    """Where the search index lives and how it answers.

    Raises:
        SessionQueryError: ``INVALID_CONFIG``, naming the value and the accepted range.
    """

    path: str = field()
    """A file of its own, or ``:memory:``."""
    open_at: Literal["startup", "first-search", "never"] = field(
        default="startup", validator=_one_of("startup", "first-search", "never")
    )
    journal_mode: Literal["wal", "delete", "truncate", "persist"] = field(
        default="wal", validator=_one_of("wal", "delete", "truncate", "persist")
    )
    default_limit: int = field(default=20, validator=_integer(1, MAX_LIMIT))
    """Hits on a page where the request names no limit."""
    max_limit: int = field(default=100, validator=_integer(1, MAX_LIMIT))
    snippet_chars: int = field(default=240, validator=_integer(1))
    """Most code points of a snippet."""
    tokenizer: Tokenizer = field(default=Tokenizer.CJK, converter=_tokenizer)
    shared: bool = field(default=False, validator=_boolean)
    """Let other processes use the same file; for services without live sessions of their own."""

    @path.validator
    def _check_path(self, _attribute: object, value: object) -> None:
        if not isinstance(value, str) or not value.strip() or "\0" in value:
            raise _invalid("path", value, "a file path or ':memory:'")

    def __attrs_post_init__(self) -> None:
        if self.shared and (self.path == MEMORY or self.journal_mode != "wal"):
            raise _invalid("shared", self.shared, "False for an index in memory or without WAL")
        if self.default_limit > self.max_limit:
            raise _invalid(
                "default_limit", self.default_limit, f"at most max_limit {self.max_limit}"
            )


def _most_hits(value: int | None) -> int:
    return 100 if value is None else value


def _search_limit(value: int | None) -> int:
    return 30_000 if value is None else value


@frozen(kw_only=True)
class ToolsConfig:
    """How the model tools answer; ``None`` stands for the default.

    Raises:
        SessionQueryError: ``INVALID_CONFIG``, naming the value and the accepted range.
    """

    max_search_results: int = field(default=100, converter=_most_hits, validator=_integer(1))
    """Hits that one search shows; a model is told where there are more."""
    search_timeout_ms: int = field(
        default=30_000,
        converter=_search_limit,
        validator=_integer(1, 2**31 - 1),
    )
    """Deadline that the two searches declare to their host, in ms."""
    exact_reads: Literal["redacted", "verbatim"] = field(
        default="redacted", validator=_one_of("redacted", "verbatim")
    )
    """Whether ``QueryConfig.redact`` is applied to the texts inside an event that is read whole."""


def _names(_instance: object, attribute: Attribute[Any], value: object) -> None:
    if not isinstance(value, tuple) or not all(isinstance(name, str) for name in value):
        raise _invalid(attribute.name, value, "a list of names")


def _folder(_instance: object, attribute: Attribute[Any], value: object) -> None:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise _invalid(attribute.name, value, "the path of a folder")


def _tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


@frozen(kw_only=True)
class SpillConfig:
    """How much of a tool result stays in the conversation, and where the whole of it goes.

    Raises:
        SessionQueryError: ``INVALID_CONFIG``, naming the value and the accepted range.
    """

    max_inline_bytes: int = field(default=50_000, validator=_integer(0))
    """Most UTF-8 bytes of a result that a model is given."""
    root: str | None = field(default=None, validator=optional(_folder))
    """The folder that keeps whole results; by default a temporary one that ends with its host."""
    inline_tools: tuple[str, ...] = field(default=("read",), converter=_tuple, validator=_names)
    """Tools whose results stay whole, such as the one that reads what was kept."""


@frozen(kw_only=True)
class SchedulerConfig:
    """How the calls of one model turn run.

    Raises:
        SessionQueryError: ``INVALID_CONFIG``, naming the value and the accepted range.
    """

    parallel_limit: int = field(default=8, validator=_integer(1))
    """Calls that run side by side."""


@frozen(kw_only=True)
class StoreConfig:
    """Where the stored sessions are.

    Raises:
        SessionQueryError: ``INVALID_CONFIG``, naming the value and what it has to be.
    """

    root: str = field(validator=_folder)
    """The folder of a JSONL store."""
