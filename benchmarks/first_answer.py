"""The first answer of a process: open an index that is up to date, search once, and end.

``python benchmarks/first_answer.py library|limit|plain STORE INDEX WORD``
"""

from __future__ import annotations

import sys
from pathlib import Path


def library(root: str, index: str, word: str) -> None:
    """Through the library."""
    import trio

    from session_query import IndexConfig, JsonlStore, QueryConfig, open_session_query

    async def search() -> None:
        async with open_session_query(
            store=JsonlStore(root),
            index=IndexConfig(path=index),
            config=QueryConfig(notify=False),
        ) as query:
            assert (await query.search_sessions(word)).items

    trio.run(search)


def limit(root: str, index: str, word: str) -> None:
    """One statement, and the store looked at bare."""
    import apsw
    from limits import bare_sweep, count_matches

    bare_sweep(Path(root))
    assert count_matches(apsw.Connection(index), word)


def plain(root: str, index: str, word: str) -> None:
    """The plain way."""
    from plain import PlainSearch

    assert PlainSearch(Path(root), index).search_sessions(word)


if __name__ == "__main__":
    {"library": library, "limit": limit, "plain": plain}[sys.argv[1]](*sys.argv[2:])
