"""What a pass over very many sessions holds for each of them, and at most at one time."""

from __future__ import annotations

import gc
import os
import tracemalloc
from pathlib import Path

import trio
from corpus import Corpus

from session_query import IndexConfig, JsonlStore, QueryConfig, open_session_query
from session_query.storage.header_line import render_header
from session_query.storage.layout import encode_segment, log_name, project_name
from session_query.storage.records import render_event

FEW, MANY = 300, 1_300

HELD_BYTES = 1_450
"""For each session between two passes: one look at it, its header, and where the index has it."""

PASSING_BYTES = 500
"""For each session on top of that, while a pass compares and reads; garbage included."""


def test_a_pass_holds_a_bounded_number_of_bytes_for_each_session(tmp_path: Path) -> None:
    few, many = (trio.run(_measured, str(tmp_path / str(count)), count) for count in (FEW, MANY))
    held, peak = ((more - less) / (MANY - FEW) for less, more in zip(few, many, strict=True))
    assert held < HELD_BYTES, f"{held:.0f} bytes a session"
    assert peak < HELD_BYTES + PASSING_BYTES, f"{peak:.0f} bytes a session at most"


async def _measured(folder: str, sessions: int) -> tuple[int, int]:
    """Bytes that a first pass leaves allocated, and the most that it had at one time."""
    root = f"{folder}/store"
    _write(root, sessions)
    index = IndexConfig(path=f"{folder}/index.db")
    store, config = JsonlStore(root), QueryConfig(notify=False)
    async with open_session_query(store=store, index=index, config=config) as query:
        gc.collect()
        tracemalloc.start()
        try:
            await query.refresh()
            gc.collect()
            return tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()


def _write(root: str, sessions: int) -> None:
    """Logs of two messages. (Without ``Path``, which interns names, whose table would count.)"""
    corpus = Corpus(sessions)
    for number in range(sessions):
        header = corpus.header(number)
        folder = f"{root}/{project_name(header.cwd)}/{encode_segment(header.id)}"
        os.makedirs(folder)
        with open(f"{folder}/{log_name(header.version)}", "wb") as log:
            log.write(render_header(header))
            log.writelines(map(render_event, corpus.short_events(number)))
