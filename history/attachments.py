"""The images and files that a payload refers to; what they hold is stored elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from ..messages.json import Json, elements, member, text_member


@frozen
class Attachment:
    """One image or file."""

    id: str
    is_image: bool
    media_type: str
    """Empty where it is not told, as of most files."""
    name: str
    """As its owner named it; anything may stand there."""


def attachments_of(data: Json) -> Iterator[Attachment]:
    """Every reference of a payload in order, repeated ones too.

    Looked through are the content of the payload, of its message and of inserted messages, finished
    blocks of a stream, and what is nested in any of them.
    """
    pending = _blocks(data)[::-1]
    while pending:
        block = pending.pop()
        found = _attachment(block)
        if found is not None:
            yield found
        pending.extend(elements(member(block, "content"))[::-1])


def _blocks(data: Json) -> list[Json]:
    chunks = [member(data, "chunk")]
    chunks += [member(record, "chunk") for record in elements(member(data, "stream"))]
    return [
        *elements(member(data, "content")),
        *elements(member(data, "message", "content")),
        *(
            block
            for message in elements(member(data, "inserted"))
            for block in elements(member(message, "content"))
        ),
        *(member(chunk, "block") for chunk in chunks if member(chunk, "type") == "block-end"),
    ]


def _attachment(block: Json) -> Attachment | None:
    kind = member(block, "type")
    identity = text_member(block, "attachment", "attachmentId")
    if kind not in ("image", "file") or not identity:
        return None
    return Attachment(
        identity,
        kind == "image",
        text_member(block, "attachment", "mediaType"),
        text_member(block, "attachment", "name"),
    )
