"""What the tests of field reports share: a store on disk, its index, a service over them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from builders import user_data
from jsonl_files import row, session_line, write_log
from service_world import settle

from session_query.actors.composition import open_session_query
from session_query.actors.service import SessionQuery
from session_query.messages.config import IndexConfig, QueryConfig
from session_query.messages.json import Json
from session_query.storage.jsonl import JsonlStore


def user_rows(*texts: str, first: int = 0) -> list[bytes]:
    """User messages as stored lines, with the seqs from ``first`` on."""
    return [
        row(seq, "user/message", user_data(text, f"m{seq}"), surfaceOp="append")
        for seq, text in enumerate(texts, first)
    ]


def write_session(root: Path, rows: Sequence[bytes], session_id: str = "s", **header: Json) -> Path:
    """Write the log of a session in ``/w`` that looks old, so that its revision is final."""
    line = session_line(id=session_id, **header)
    path = write_log(root, rows, segment=session_id, header=line)
    settle(root)
    return path


@asynccontextmanager
async def service(folder: Path, config: QueryConfig | None = None) -> AsyncIterator[SessionQuery]:
    """A service over the store ``folder / "store"`` with its index beside it."""
    index = IndexConfig(path=str(folder / "index" / "search.db"))
    store = JsonlStore(folder / "store")
    async with open_session_query(
        store=store, index=index, config=config or QueryConfig()
    ) as query:
        yield query
