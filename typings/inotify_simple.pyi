"""What of inotify-simple, which is untyped, is used here."""

from io import FileIO
from typing import NamedTuple

class Event(NamedTuple):
    wd: int
    mask: int
    cookie: int
    name: str

class INotify(FileIO):
    def __init__(self, inheritable: bool = False, nonblocking: bool = False) -> None: ...
    def add_watch(self, path: str, mask: int) -> int: ...
    def rm_watch(self, wd: int) -> None: ...
    def read(  # type: ignore[override]
        self, timeout: int | None = None, read_delay: int | None = None
    ) -> list[Event]: ...
