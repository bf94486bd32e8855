"""How the entries of an archive are called: names that are safe to unpack anywhere."""

from __future__ import annotations

import re
from typing import Final

from ..history.attachments import Attachment

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]")
_UNSAFE_IN_NAME: Final = re.compile(r"[/\\:\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_DIGEST: Final = re.compile(r"[A-Za-z0-9]+:([0-9a-f]{8,128})")
_LENGTH: Final = 200
"""Characters of one part of a name; file systems take 255 bytes."""

_EXTENSIONS: Final = {
    "image/png": "png",
    "image/jpeg": "jpg",
    "image/webp": "webp",
    "image/gif": "gif",
}


def safe(identity: str) -> str:
    """An id as part of a file name; different ids may become the same."""
    return _UNSAFE.sub("_", identity)[:_LENGTH] or "_"


def archive_name(session_id: str) -> str:
    """What the archive of a session is called where nobody chose a name."""
    return f"session-{safe(session_id)}.zip"


class EntryNames:
    """The names of one archive: none is given twice, whatever the case."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def descendant(self, session_id: str) -> str:
        """The folder of a session below the root of the archive, with its slash."""
        return self._free(f"subagents/{safe(session_id)}", "") + "/"

    def attachment(self, attachment: Attachment) -> str:
        """The entry of an image or a file."""
        if attachment.is_image:
            extension = _EXTENSIONS.get(attachment.media_type, "bin")
            return self._free(f"media/{safe(attachment.id)}", f".{extension}")
        found = _DIGEST.fullmatch(attachment.id)
        digest = found[1] if found else safe(attachment.id)
        folder = self._free(f"files/{digest[:2]}/{digest}", "")
        return f"{folder}/{_file_name(attachment.name)}"

    def _free(self, name: str, ending: str) -> str:
        free, number = name + ending, 1
        while free.casefold() in self._taken:
            number += 1
            free = f"{name}-{number}{ending}"
        self._taken.add(free.casefold())
        return free


def _file_name(given: str) -> str:
    name = _UNSAFE_IN_NAME.sub("_", given)[-_LENGTH // 4 :]
    return "file" if name in ("", ".", "..") else name
