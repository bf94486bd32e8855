"""Drafts become events: what a caller handed over is checked and copied."""

from __future__ import annotations

from typing import Final

from ..messages.errors import ReplayError
from ..messages.event import Event, EventDraft, Replace
from ..messages.json import encode_lossless

END_SEED: Final = "session/end-seed"
"""The event that marks the end of events given at creation."""


def event_of(draft: EventDraft, seq: int, time: int, version: int) -> Event:
    """The event that ``draft`` becomes in a log of format ``version``.

    Whether it may stand there is for the fold to say; this refuses what only a writer must not do.

    Raises:
        ReplayError: a field is not of its declared type, marks inherited events, or belongs to a
            later format.
        InvalidJson: the payload is not lossless JSON.
    """
    _check_types(draft)
    raw = encode_lossless(draft.data)
    _check_writable(draft, version)
    sources = draft.source_event_seqs
    return Event(
        draft.type,
        seq,
        time,
        raw,
        draft.surface_op,
        None if sources is None else tuple(sources),
        draft.ignorable,
    )


def _check_writable(draft: EventDraft, version: int) -> None:
    members = draft.data if isinstance(draft.data, dict) else {}
    if draft.type == END_SEED and "inherited" in members:
        raise ReplayError(f"{END_SEED}: only a fork may mark where inherited events end")
    if draft.type == "assistant/message" and "stream" in members and version < 2:
        raise ReplayError(f"{draft.type}: a log of format {version} holds no stream")


def _check_types(draft: object) -> None:
    if not isinstance(draft, EventDraft):
        raise ReplayError(f"a draft must be an EventDraft, got {type(draft).__name__}")
    if not isinstance(draft.type, str):
        raise ReplayError(f"type must be text, got {draft.type!r}")
    if draft.surface_op not in (None, "append") and not isinstance(draft.surface_op, Replace):
        raise ReplayError(
            f"{draft.type}: surface_op must be 'append' or a Replace, got {draft.surface_op!r}"
        )
    if not isinstance(draft.ignorable, bool):
        raise ReplayError(f"{draft.type}: ignorable must be a bool, got {draft.ignorable!r}")
    sources = draft.source_event_seqs
    if sources is not None and not (
        isinstance(sources, (tuple, list)) and all(type(seq) is int for seq in sources)
    ):
        raise ReplayError(f"{draft.type}: source_event_seqs must be whole numbers, got {sources!r}")
