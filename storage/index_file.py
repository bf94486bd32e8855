"""The file of the search index: private, owned by one process, refused when it is not ours.

The index is derived: whatever does not fit this version is emptied and built anew. Nothing is
changed before every check has passed, so that a file of somebody else stays as it is.
"""

from __future__ import annotations

import fcntl
import os
from typing import Final

import apsw
from attrs import define

from ..messages.config import MEMORY, IndexConfig
from ..messages.errors import ErrorCode, SessionQueryError
from .tokens import tokenizer_identity

APPLICATION_ID: Final = 0x53515931
"""Marks our files in SQLite's header ("SQY1")."""

SCHEMA_VERSION: Final = 1

WRITER_CACHE_KIB: Final = 64 * 1024
READER_CACHE_KIB: Final = 8 * 1024
FTS_HASH_BYTES: Final = 8 * 1024 * 1024
"""Memory that FTS5 gathers before it writes a segment."""

_TABLES: Final = frozenset(
    {"meta", "event_type", "session", "continuation", "extent", "doc", "body", "skipped", "dead"}
)
_FTS_TABLES: Final = frozenset({"fts", "fts_data", "fts_idx", "fts_config"})

_SCHEMA: Final = """
CREATE TABLE meta(key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE event_type(code INTEGER PRIMARY KEY, name BLOB NOT NULL UNIQUE);
CREATE TABLE session(
    no INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, created_at INTEGER NOT NULL,
    cwd BLOB, parent BLOB, header BLOB NOT NULL, revision TEXT NOT NULL,
    generation INTEGER NOT NULL, next_seq INTEGER NOT NULL, settled INTEGER NOT NULL, title BLOB
);
CREATE TABLE continuation(
    session INTEGER PRIMARY KEY, mark BLOB, state_seq INTEGER NOT NULL, state BLOB NOT NULL,
    state_mark BLOB
);
CREATE TABLE extent(
    session INTEGER NOT NULL, lo INTEGER NOT NULL, hi INTEGER NOT NULL, PRIMARY KEY(session, lo)
) WITHOUT ROWID;
CREATE TABLE skipped(id BLOB PRIMARY KEY, revision TEXT NOT NULL, skipped BLOB NOT NULL)
    WITHOUT ROWID;
CREATE TABLE dead(session INTEGER PRIMARY KEY);
INSERT INTO meta VALUES ('generation', 0), ('next_id', 1), ('next_no', 1);
"""

_DOCUMENTS: Final = """
CREATE TABLE {schema}.{prefix}doc(
    id INTEGER PRIMARY KEY, session INTEGER NOT NULL, seq INTEGER NOT NULL, time INTEGER NOT NULL,
    len INTEGER NOT NULL, type INTEGER NOT NULL, surface INTEGER NOT NULL, own INTEGER NOT NULL
);
CREATE TABLE {schema}.{prefix}body(id INTEGER PRIMARY KEY, text TEXT NOT NULL);
CREATE VIRTUAL TABLE {schema}.{prefix}fts
    USING fts5(text, content='', columnsize=0, tokenize='unicode61');
INSERT INTO {schema}.{prefix}fts({prefix}fts, rank) VALUES ('automerge', 0);
INSERT INTO {schema}.{prefix}fts({prefix}fts, rank) VALUES ('crisismerge', 1000);
INSERT INTO {schema}.{prefix}fts({prefix}fts, rank) VALUES ('hashsize', {hash_bytes});
"""

# Events of live sessions that are not in the file, beside the file on the same connection.
_RECENT: Final = """
ATTACH ':memory:' AS live;
CREATE TABLE live.recent_session(
    no INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, created_at INTEGER NOT NULL,
    cwd BLOB, parent BLOB, persisted INTEGER NOT NULL
);
"""


def index_failed(message: str) -> SessionQueryError:
    """The error of an index that cannot be opened, read or written."""
    return SessionQueryError(ErrorCode.INDEX_FAILED, message)


@define(eq=False)
class IndexFile:
    """An open index file: the writer's connection and what proves ownership."""

    path: str
    connection: apsw.Connection
    _lock: int | None
    """File descriptor of the lock file, held as long as the index is open."""

    @property
    def has_snapshots(self) -> bool:
        """Whether readers on connections of their own see a fixed state beside the writer."""
        return self._journal_mode == "wal"

    @property
    def _journal_mode(self) -> str:
        return str(self.connection.pragma("journal_mode"))

    def open_reader(self) -> apsw.Connection:
        """A further connection that only reads."""
        reader = apsw.Connection(self.path)
        reader.execute(f"PRAGMA query_only=1; PRAGMA cache_size=-{READER_CACHE_KIB}")
        return reader

    def close(self) -> None:
        """Close the connection, then let other processes have the file."""
        self.connection.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def open_index_file(config: IndexConfig) -> IndexFile:
    """Open or create the index file.

    Raises:
        SessionQueryError: ``INDEX_FAILED`` where the file is not ours, is in use by another process
            or cannot be read; it is then unchanged.
    """
    try:
        if config.path == MEMORY:
            return IndexFile(MEMORY, _prepared(apsw.Connection(MEMORY), config), None)
        return _open_on_disk(config)
    except (apsw.Error, OSError) as error:
        raise index_failed(f"index {config.path}: {error}; choose another path") from error


def _open_on_disk(config: IndexConfig) -> IndexFile:
    path = os.path.abspath(config.path)
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    _create_private(path)
    connection = apsw.Connection(path)
    lock: int | None = None
    try:
        # Before the lock, so that nothing of ours is left beside a file that is not ours.
        _refuse_foreign(connection, path)
        lock = _own(path)
        return IndexFile(path, _prepared(connection, config), lock)
    except BaseException:
        connection.close()
        if lock is not None:
            os.close(lock)
        raise


def _create_private(path: str) -> None:
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        if not os.path.isfile(path):
            raise index_failed(f"index {path} is not a file; choose another path") from None


def _own(path: str) -> int:
    """Lock the index for this process; a lock file beside it names the owner."""
    lock = os.open(f"{path}-lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        owner = os.pread(lock, 32, 0).decode(errors="replace").strip() or "unknown"
        os.close(lock)
        raise index_failed(
            f"index {path} is in use by process {owner}; stop it or choose another path"
        ) from error
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock


def _refuse_foreign(connection: apsw.Connection, path: str) -> None:
    application = connection.pragma("application_id")
    tables = {
        str(name)
        for (name,) in connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' "
            "ESCAPE '\\' ORDER BY name"
        )
    }
    if application not in (0, APPLICATION_ID) or (application == 0 and tables):
        raise index_failed(f"{path} is a database of another program; choose another path")
    unknown = tables - _TABLES - _FTS_TABLES
    if unknown:
        names = ", ".join(sorted(unknown))
        raise index_failed(f"{path} holds tables that are not ours ({names}); choose another path")


def _prepared(connection: apsw.Connection, config: IndexConfig) -> apsw.Connection:
    connection.execute(
        f"PRAGMA journal_mode={config.journal_mode}; PRAGMA synchronous=NORMAL; "
        f"PRAGMA cache_size=-{WRITER_CACHE_KIB}; PRAGMA temp_store=MEMORY"
    ).fetchall()
    identity = tokenizer_identity(config.tokenizer)
    if not _fits(connection, identity):
        with connection:
            _create(connection, identity)
    connection.execute(_RECENT)
    connection.execute(
        _DOCUMENTS.format(schema="live", prefix="recent_", hash_bytes=FTS_HASH_BYTES)
    )
    return connection


def _fits(connection: apsw.Connection, identity: str) -> bool:
    if connection.pragma("application_id") != APPLICATION_ID:
        return False
    if connection.pragma("user_version") != SCHEMA_VERSION:
        return False
    built_with: object = connection.execute("SELECT value FROM meta WHERE key = 'tokens'").get
    return built_with == identity


def _create(connection: apsw.Connection, identity: str) -> None:
    for table in ("fts", *sorted(_TABLES)):
        connection.execute(f"DROP TABLE IF EXISTS {table}")
    connection.execute(_SCHEMA)
    connection.execute(_DOCUMENTS.format(schema="main", prefix="", hash_bytes=FTS_HASH_BYTES))
    connection.execute("INSERT INTO meta VALUES ('tokens', ?)", (identity,))
    connection.pragma("application_id", APPLICATION_ID)
    connection.pragma("user_version", SCHEMA_VERSION)
