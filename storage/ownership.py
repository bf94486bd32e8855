"""One writer a session, in whatever process: a lock on a file in the session's directory.

The lock belongs to an open file and ends with its process, so nothing is left to clean up. The file
stays for good: who removed it would let two writers lock two files of one name. Readers ignore it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from .contract import AlreadyOwned
from .files import Files, OpenFile

_ATTEMPTS: Final = 3
_PROCESS_ID_BYTES: Final = 20


def take_ownership(files: Files, path: str, place: str) -> OpenFile:
    """Lock the file at ``path``, made where it is missing; closing it gives ownership up.

    ``place`` names the log in messages.

    Raises:
        AlreadyOwned: naming the other process, where it said which it is.
        OSError
    """
    for _ in range(_ATTEMPTS):
        try:
            lock = files.lock(path)
        except BlockingIOError as error:
            raise AlreadyOwned(f"{place} is open for writing in {_owner(files, path)}") from error
        try:
            if is_owned(files, path, lock):
                _sign(files, lock)
                return lock
        except BaseException:
            lock.close()
            raise
        lock.close()
    raise AlreadyOwned(f"{place}: its lock file was replaced {_ATTEMPTS} times while it was locked")


def is_owned(files: Files, path: str, lock: OpenFile) -> bool:
    """Whether a locked file is still the one that everybody else would lock. Raises ``OSError``."""
    try:
        return files.stat(path).is_same_file(lock.stat())
    except FileNotFoundError:
        return False


def _sign(files: Files, lock: OpenFile) -> None:
    # Only for the message of a second writer: on a full disk there is none, and nothing else lost.
    with suppress(OSError):
        lock.truncate(0)
        lock.append(b"%d\n" % files.process_id())


def _owner(files: Files, path: str) -> str:
    with suppress(OSError), files.open_reading(path) as file:
        number = file.read(0, _PROCESS_ID_BYTES).strip()
        if number.isdigit():
            return f"process {int(number)}"
    return "another process"
