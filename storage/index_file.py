"""The file of the search index: private, owned by one process, refused when it is not ours.

The index is derived: whatever does not fit this version is emptied and built anew. Nothing is
changed before every check has passed, so that a file of somebody else stays as it is.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final
from urllib.parse import quote

import apsw
from attrs import define, field

from ..messages.config import MEMORY, IndexConfig
from ..messages.errors import ErrorCode, SessionQueryError
from .full_text import FAN_IN
from .index_values import Garbled
from .tokens import tokenizer_identity
from .write_ahead import WriteAheadLog

APPLICATION_ID: Final = 0x53515931
"""Marks our files in SQLite's header ("SQY1")."""

SCHEMA_VERSION: Final = 3

WRITER_CACHE_KIB: Final = 64 * 1024
READER_CACHE_KIB: Final = 8 * 1024
SHARED_WAIT_MS: Final = 1_000
"""How long a statement waits, on its worker thread, for one of another process."""

FTS_HASH_BYTES: Final = 8 * 1024 * 1024
"""Memory that FTS5 gathers before it writes a segment."""

_HEADER_BYTES: Final = 100
_MAGIC: Final = b"SQLite format 3\0"
_APPLICATION_OFFSET: Final = 68

_TABLES: Final = frozenset(
    {
        "meta",
        "event_type",
        "session",
        "continuation",
        "checkpoint",
        "extent",
        "doc",
        "body",
        "skipped",
        "purged",
        "dead",
    }
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
CREATE TABLE continuation(session INTEGER PRIMARY KEY, mark BLOB);
CREATE TABLE checkpoint(
    session INTEGER PRIMARY KEY, seq INTEGER NOT NULL, state BLOB NOT NULL, mark BLOB
);
CREATE TABLE extent(
    session INTEGER NOT NULL, lo INTEGER NOT NULL, hi INTEGER NOT NULL, PRIMARY KEY(session, lo)
) WITHOUT ROWID;
CREATE TABLE skipped(id BLOB PRIMARY KEY, revision TEXT NOT NULL, skipped BLOB NOT NULL)
    WITHOUT ROWID;
CREATE TABLE purged(digest BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE dead(session INTEGER PRIMARY KEY);
INSERT INTO meta VALUES
    ('generation', 0), ('next_id', 1), ('next_no', 1), ('making', hex(randomblob(8)));
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
INSERT INTO {schema}.{prefix}fts({prefix}fts, rank) VALUES ('usermerge', {fan_in});
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


class IndexDamaged(SessionQueryError):
    """The file is ours and its content is damaged; building it anew mends it."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INDEX_FAILED, message)


def _is_damage(error: Exception) -> bool:
    """Whether an error says that the content of the file is not what was written."""
    match error:
        case apsw.CorruptError() | apsw.NotADBError() | Garbled() | UnicodeDecodeError():
            return True
        case apsw.IOError():
            # The log of changes is shorter than SQLite knows it to be.
            return getattr(error, "extendedresult", None) == apsw.SQLITE_IOERR_SHORT_READ
        case apsw.SQLError():
            # All of our tables are there, unless the schema itself is damaged.
            return str(error).startswith(("no such table", "vtable constructor failed"))
        case _:
            return False


@contextmanager
def index_errors(doing: str) -> Iterator[None]:
    """Turn what SQLite raises in the block into query errors; interruptions pass."""
    try:
        yield
    except apsw.InterruptError:
        raise
    except (apsw.Error, Garbled, UnicodeDecodeError) as error:
        if _is_damage(error):
            raise IndexDamaged(f"{doing}: {error}") from error
        raise index_failed(f"{doing}: {error}") from error


@define(eq=False)
class IndexFile:
    """An open index file: the writer's connection and what proves ownership."""

    path: str
    connection: apsw.Connection
    _config: IndexConfig
    _lock: int | None
    """File descriptor of the lock file, held as long as the index is open."""
    _pass_lock: int | None = None
    """Of the file by which services that share an index take turns at writing."""
    log: WriteAheadLog = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.log = WriteAheadLog(self.connection, partial(_connected, self.path, self._config))

    @property
    def has_snapshots(self) -> bool:
        """Whether readers on connections of their own see a fixed state beside the writer."""
        mode: object = self.connection.pragma("journal_mode")
        return mode == "wal"

    def open_reader(self) -> apsw.Connection:
        """A further connection that only reads."""
        reader = _connected(self.path, self._config)
        reader.execute(f"PRAGMA query_only=1; PRAGMA cache_size=-{READER_CACHE_KIB}")
        return reader

    def prepare(self, damaged: bool) -> None:
        """Make the file ready for this version; one that cannot be read is begun anew."""
        try:
            if not damaged:
                _prepare(self.connection, self._config, 0)
        except apsw.Error as error:
            if not _is_damage(error):
                raise
            damaged = True
        if damaged:
            self.mend()

    def refuse_if_others_need_it(self) -> None:
        """Refuse a file that would have to be begun anew while others share it as it is."""
        assert self._lock is not None
        try:
            if self.connection.pragma("application_id") == 0 or self.fits():
                return
        except apsw.Error as error:
            if _is_damage(error):
                return
            raise
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(self._lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise index_failed(
                f"index {self.path} was made with another tokenizer or version and is in use by "
                f"process {_named_owners(self._lock)}; stop it or choose another path"
            ) from error

    def fits(self) -> bool:
        """Whether the file was made by this version, with this tokenizer."""
        return _fits(self.connection, tokenizer_identity(self._config.tokenizer))

    def mend(self) -> None:
        """Begin a damaged file anew; sessions stay purged as far as their list can be read."""
        if self.connection.in_transaction:
            # It met the damage while it emptied a file of another version, that list included.
            self.connection.execute("ROLLBACK")
        self.recreate(0, self.purged())

    def purged(self) -> list[bytes]:
        """What tells the sessions that were purged, as far as it can be read."""
        return _purged(self.connection)

    def recreate(self, generation: int, purged: Iterable[bytes]) -> None:
        """Empty the file, whatever is in it, and begin anew with this generation at least.

        It is one transaction: whoever opens the file next finds all of the old one, or a new one
        that keeps ``purged`` out.

        Raises:
            apsw.BusyError: another connection reads the file at this moment.
        """
        generation = max(generation, _next_generation(self.connection))
        fresh = apsw.Connection(MEMORY)
        # Whatever is in the file, its pages included, counts as nothing.
        self.connection.config(apsw.SQLITE_DBCONFIG_RESET_DATABASE, 1)
        try:
            fresh.pragma("page_size", self.connection.pragma("page_size"))
            _create(fresh, tokenizer_identity(self._config.tokenizer), generation)
            _keep_out(fresh, purged)
            with self.connection.backup("main", fresh, "main") as copying:
                copying.step()
        finally:
            self.connection.config(apsw.SQLITE_DBCONFIG_RESET_DATABASE, 0)
            fresh.close()
        if "live" in self.connection.db_names():
            self.connection.execute("DETACH live")
        _set_journal(self.connection, self._config)
        _prepare(self.connection, self._config, generation)

    def scrub(self) -> bool:
        """Leave no byte of what was deleted in any file; false while another reader prevents it."""
        if self.path == MEMORY:
            return True
        self.connection.execute("PRAGMA journal_size_limit=0")
        try:
            # Without WAL, this transaction is what truncates a journal that is kept; it has to
            # change something to have one.
            with self.connection:
                self.connection.execute("INSERT INTO dead VALUES (-1)")
                self.connection.execute("DELETE FROM dead WHERE session = -1")
            self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        finally:
            self.connection.execute("PRAGMA journal_size_limit=-1")
        return all(_size(f"{self.path}-{kind}") == 0 for kind in ("wal", "journal"))

    def size(self) -> int:
        """Bytes of the file and of what SQLite keeps beside it; 0 in memory."""
        if self.path == MEMORY:
            return 0
        return sum(_size(f"{self.path}{kind}") for kind in ("", "-wal", "-journal"))

    def try_pass_lock(self) -> bool:
        """Take the turn at writing, if no other process has it."""
        path = f"{self.path}-pass"
        try:
            lock = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise index_failed(f"{path} cannot be opened: {error.strerror}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            if isinstance(error, BlockingIOError):
                return False
            raise index_failed(f"{path} cannot be locked: {error.strerror}") from error
        self._pass_lock = lock
        return True

    def release_pass_lock(self) -> None:
        """Give the turn away; again is harmless."""
        if self._pass_lock is not None:
            os.close(self._pass_lock)
            self._pass_lock = None

    def close(self) -> None:
        """Close the connection, then let other processes have the file."""
        self.release_pass_lock()
        self.connection.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def open_index_file(config: IndexConfig) -> IndexFile:
    """Open or create the index file.

    Raises:
        SessionQueryError: ``INDEX_FAILED`` where the file is not ours, is in use by another process
            or cannot be read; it is then unchanged.
    """
    try:
        if config.path == MEMORY:
            connection = _connected(MEMORY, config)
            _prepare(connection, config, 0)
            return IndexFile(MEMORY, connection, config, None)
        return _open_on_disk(config)
    except (apsw.Error, OSError) as error:
        raise index_failed(f"index {config.path}: {error}; choose another path") from error


def _open_on_disk(config: IndexConfig) -> IndexFile:
    path = os.path.abspath(config.path)
    _make_private(os.path.dirname(path))
    _create_private(path)
    _refuse_foreign_bytes(path)
    connection = _connected(path, config)
    lock: int | None = None
    try:
        # Before the lock, so that nothing of ours is left beside a file that is not ours.
        damaged = _is_damaged(connection, path)
        lock = _own(path, fcntl.LOCK_SH if config.shared else fcntl.LOCK_EX)
        file = IndexFile(path, connection, config, lock)
        if config.shared and not damaged:
            file.refuse_if_others_need_it()
        file.prepare(damaged)
        if config.shared and not file.has_snapshots:
            raise index_failed(
                f"index {path} is kept without WAL and cannot be shared; choose another path"
            )
        return file
    except BaseException:
        connection.close()
        if lock is not None:
            os.close(lock)
        raise


def _connected(path: str, config: IndexConfig) -> apsw.Connection:
    # A file that was deleted meanwhile is not made anew by whoever only joins: it would be public.
    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
    connection.wal_autocheckpoint(0)
    if config.shared:
        connection.set_busy_timeout(SHARED_WAIT_MS)
    return connection


def _is_damaged(connection: apsw.Connection, path: str) -> bool:
    """Whether a file says that it is ours and cannot be read; raises where it is not ours."""
    try:
        _refuse_foreign(connection, path)
    except (apsw.CorruptError, apsw.NotADBError):
        if _application_in_header(path) != APPLICATION_ID:
            raise
        return True
    return False


def _refuse_foreign_bytes(path: str) -> None:
    """Refuse what another program keeps there, without opening it as SQLite does.

    An open that finds a WAL which no process uses merges it: the file would change. Where our lock
    stands beside it, the file was ours, and what a killed rebuild left is for SQLite to undo.
    """
    if os.path.exists(f"{path}-lock"):
        return
    with open(path, "rb") as file:
        header = file.read(_HEADER_BYTES)
    if not header.startswith(_MAGIC) or _application_in_header(path) == APPLICATION_ID:
        return
    beside = any(_size(f"{path}-{kind}") for kind in ("wal", "journal"))
    if _application_in_header(path) != 0 or beside or _has_tables(path):
        raise index_failed(f"{path} is a database of another program; choose another path")


def _has_tables(path: str) -> bool:
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    reader = apsw.Connection(f"file:{quote(path)}?immutable=1", flags=flags)
    try:
        return bool(reader.execute("SELECT count(*) FROM sqlite_schema").get)
    finally:
        reader.close()


def _application_in_header(path: str) -> int:
    """What an SQLite file names as its application, read without SQLite; 0 for a short file."""
    with open(path, "rb") as file:
        header = file.read(_HEADER_BYTES)
    if len(header) < _HEADER_BYTES:
        return 0
    application: int = struct.unpack_from(">I", header, _APPLICATION_OFFSET)[0]
    return application


def _make_private(directory: str) -> None:
    """Create what is missing of a directory, each level of it for its owner alone."""
    try:
        os.mkdir(directory, 0o700)
    except FileNotFoundError:
        _make_private(os.path.dirname(directory))
        os.mkdir(directory, 0o700)
    except FileExistsError:
        pass


def _create_private(path: str) -> None:
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        if not os.path.isfile(path):
            raise index_failed(f"index {path} is not a file; choose another path") from None


def _own(path: str, mode: int) -> int:
    """Lock the index for this process; a lock file beside it names the owners."""
    lock = os.open(f"{path}-lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, mode | fcntl.LOCK_NB)
    except OSError as error:
        named = _named_owners(lock)
        os.close(lock)
        raise index_failed(
            f"index {path} is in use by process {named}; stop it or choose another path"
        ) from error
    owners = [*_owners(lock), os.getpid()] if mode == fcntl.LOCK_SH else [os.getpid()]
    os.ftruncate(lock, 0)
    os.pwrite(lock, "".join(f"{pid}\n" for pid in dict.fromkeys(owners)).encode(), 0)
    return lock


def _named_owners(lock: int) -> str:
    owners = [owner for owner in _owners(lock) if owner != os.getpid()] or [os.getpid()]
    return ", ".join(map(str, owners))


def _owners(lock: int) -> list[int]:
    """The living processes among those that a lock file names; for people, nothing rests on it."""
    names = os.pread(lock, 4096, 0).split()
    return [int(name) for name in names if name.isdigit() and _is_alive(int(name))]


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


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


def _prepare(connection: apsw.Connection, config: IndexConfig, generation: int) -> None:
    """Make an index of an empty or outdated file, with at least this generation."""
    identity = tokenizer_identity(config.tokenizer)
    fits = _fits(connection, identity)
    if not connection.pragma("page_count"):
        # Ahead of the WAL, so that the file itself says from its first byte on whose it is.
        connection.pragma("application_id", APPLICATION_ID)
    if not (config.shared and fits):
        # Whoever shares a file that is in use leaves its journal as it is.
        _set_journal(connection, config)
    connection.execute(
        "PRAGMA synchronous=NORMAL; PRAGMA secure_delete=ON; PRAGMA temp_store=MEMORY; "
        f"PRAGMA cache_size=-{WRITER_CACHE_KIB}"
    ).fetchall()
    if not fits:
        connection.execute("BEGIN IMMEDIATE")
        if not _fits(connection, identity):
            _create(connection, identity, max(generation, _next_generation(connection)))
        connection.execute("COMMIT")
    connection.execute(_RECENT)
    connection.execute(_documents("live", "recent_"))


def _set_journal(connection: apsw.Connection, config: IndexConfig) -> None:
    connection.execute(f"PRAGMA journal_mode={config.journal_mode}").fetchall()


def _fits(connection: apsw.Connection, identity: str) -> bool:
    if connection.pragma("application_id") != APPLICATION_ID:
        return False
    if connection.pragma("user_version") != SCHEMA_VERSION:
        return False
    built_with: object = connection.execute("SELECT value FROM meta WHERE key = 'tokens'").get
    return built_with == identity


def _next_generation(connection: apsw.Connection) -> int:
    """The generation after the one that a file has come to; 0 where that cannot be read."""
    try:
        found: object = connection.execute("SELECT value FROM meta WHERE key = 'generation'").get
    except (apsw.Error, UnicodeDecodeError):
        return 0
    return found + 1 if isinstance(found, int) else 0


def _purged(connection: apsw.Connection) -> list[bytes]:
    """What tells the sessions that were purged, as far as it can be read."""
    found: list[bytes] = []
    with suppress(apsw.Error, UnicodeDecodeError):
        for (digest,) in connection.execute("SELECT digest FROM purged"):
            if isinstance(digest, bytes):
                found.append(digest)
    return found


def _keep_out(connection: apsw.Connection, purged: Iterable[bytes]) -> None:
    connection.executemany(
        "INSERT OR IGNORE INTO purged VALUES (?)", [(digest,) for digest in purged]
    )


def _create(connection: apsw.Connection, identity: str, generation: int) -> None:
    purged = _purged(connection)
    for table in ("fts", *sorted(_TABLES)):
        connection.execute(f"DROP TABLE IF EXISTS {table}")
    connection.execute(_SCHEMA)
    connection.execute(_documents("main", ""))
    connection.execute("INSERT INTO meta VALUES ('tokens', ?)", (identity,))
    connection.execute("UPDATE meta SET value = ? WHERE key = 'generation'", (generation,))
    _keep_out(connection, purged)
    connection.pragma("application_id", APPLICATION_ID)
    connection.pragma("user_version", SCHEMA_VERSION)


def _documents(schema: str, prefix: str) -> str:
    return _DOCUMENTS.format(schema=schema, prefix=prefix, hash_bytes=FTS_HASH_BYTES, fan_in=FAN_IN)
