"""The command that writes a session's log, and those of its descendants, into a ZIP file."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import Parameter

from ..actors.runtime import TrioRuntime
from . import pages
from .commands import StoreOption, app, reading
from .export import open_archive
from .new_file import new_file
from .places import output_file
from .sources import sessions_in


@app.command
async def export(
    session: str,
    /,
    *,
    output: Annotated[str, Parameter(name=["--output", "-o"])],
    descendants: Annotated[bool, Parameter(negative=())] = False,
    store: StoreOption = None,
) -> None:
    """Write the log of SESSION, as it is stored, into a ZIP file.

    The file appears when it is whole; one of that name is replaced. Images and other attachments
    are not in the store and so not in the archive.

    Parameters
    ----------
    session
        The id of a session.
    output
        The ZIP file to write.
    descendants
        With the logs of all sessions that came from this one; none may be missing.
    """
    sessions = sessions_in(store)
    path = output_file(output, sessions.roots)
    runtime = TrioRuntime()
    async with (
        reading(sessions.store) as service,
        open_archive(service, session, descendants=descendants, runtime=runtime) as archive,
        new_file(path, runtime) as write,
    ):
        async for piece in archive:
            await write(piece)
    pages.tell_skipped(archive.skipped)
    for note in archive.notes:
        pages.tell(f"left out: {note}")
    pages.show_exported(pages.Screen(sys.stdout), path, len(archive.sessions))
