"""A file that appears under its name whole, or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import IO

from ..actors.runtime import Runtime


@asynccontextmanager
async def new_file(
    path: str, runtime: Runtime
) -> AsyncIterator[Callable[[bytes], Awaitable[object]]]:
    """Give what writes to the file, which is its owner's alone.

    Once the block ends well and all is on the medium it takes its name, through links and from
    another file if need be; until then it has a hidden name beside it.

    Raises:
        OSError: the folder or the medium refuses.
    """
    file, path = await runtime.call(_hidden, path)
    try:
        yield lambda data: runtime.call(lambda: file.write(data))
        await runtime.call(_publish, file, path)
    except BaseException:
        with suppress(OSError):
            file.close()
        with suppress(FileNotFoundError):
            os.unlink(file.name)
        raise


def _hidden(path: str) -> tuple[IO[bytes], str]:
    """The file, to be closed by whoever publishes it or gives it up, and where it is to stand."""
    path = os.path.realpath(path)
    folder = os.path.dirname(path)
    return tempfile.NamedTemporaryFile(
        prefix=".export-", suffix=".part", dir=folder, delete=False
    ), path


def _publish(file: IO[bytes], path: str) -> None:
    file.flush()
    os.fsync(file.fileno())
    file.close()
    os.replace(file.name, path)
    descriptor = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
