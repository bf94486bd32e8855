"""Field reports R19, R21, R29, R31, R33: logs that change, families that loop, secrets."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from field_world import service, user_rows, write_session
from jsonl_files import row, session_line
from service_world import events_of, refused, session, sessions_of

from session_query.messages.config import QueryConfig
from session_query.messages.errors import ErrorCode
from session_query.messages.filters import Cwd, Parent
from session_query.messages.json import Json
from session_query.storage.jsonl import JsonlStore

OLD = ["needle one", "second two", "third three"]


def lines(*texts: str) -> bytes:
    return b"\n".join([session_line(), *user_rows(*texts), b""])


def in_place(path: Path, content: bytes) -> None:
    with path.open("r+b") as file:
        file.truncate(0)
        file.write(content)


def cut_and_grown(path: Path, content: bytes) -> None:
    """Cut to the header, then written larger than ever, by the same descriptor."""
    with path.open("r+b") as file:
        file.truncate(len(session_line()) + 1)
        file.seek(0, os.SEEK_END)
        file.write(content[file.tell() :])


def by_name(path: Path, content: bytes) -> None:
    fresh = path.with_name("fresh")
    fresh.write_bytes(content)
    fresh.replace(path)


def removed_and_made(path: Path, content: bytes) -> None:
    path.unlink()
    path.write_bytes(content)


WAYS: list[Callable[[Path, bytes], None]] = [in_place, cut_and_grown, by_name, removed_and_made]
NEW = {
    "larger": ["fresh one", "second two", "third three", "more four", "more five"],
    "smaller": ["fresh"],
    "as long": ["fresher one", "second two", "third three"],
    "same beginning": ["needle one", "fresh two", "third three", "more"],
    "same end": ["fresh one", "second two", "third three"],
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("texts", NEW.values(), ids=NEW)
async def test_a_log_that_was_rewritten_is_searched_as_it_is_now(
    tmp_path: Path, way: Callable[[Path, bytes], None], texts: list[str]
) -> None:
    """R19: growth is no proof of an append: what is gone is not found, what came is."""
    path = write_session(tmp_path / "store", user_rows(*OLD))
    async with service(tmp_path) as query:
        assert await events_of(query, "s", "needle") == [0]
        way(path, lines(*texts))
        for word in ("needle", "fresh", "fresher", "second", "third", "more"):
            found = await events_of(query, "s", word)
            assert sorted(found) == [at for at, text in enumerate(texts) if word in text.split()]


async def test_a_log_that_was_appended_to_is_found_whole(tmp_path: Path) -> None:
    """R19: and an append is one."""
    path = write_session(tmp_path / "store", user_rows(*OLD))
    async with service(tmp_path) as query:
        assert await events_of(query, "s", "needle") == [0]
        with path.open("ab") as file:
            file.write(user_rows("needle four", first=3)[0] + b"\n")
        assert sorted(await events_of(query, "s", "needle")) == [0, 3]


DELETIONS = ["log", "session", "project", "store"]


@pytest.mark.parametrize("what", DELETIONS)
async def test_a_session_that_was_deleted_is_gone_at_once(tmp_path: Path, what: str) -> None:
    """R21: from searches, titles and reads, whatever level of the store was removed."""
    store = tmp_path / "store"
    path = write_session(store, [*user_rows("unheard-of"), row(1, "session/title", TITLE)])
    async with service(tmp_path) as query:
        assert await sessions_of(query, "unheard-of") == ["s"]
        if what == "log":
            path.unlink()
        else:
            shutil.rmtree({"session": path.parent, "project": path.parent.parent}.get(what, store))
        assert await sessions_of(query, "unheard-of") == []
        with refused(ErrorCode.SESSION_NOT_FOUND):
            await query.search_events("s", "unheard-of")
        with refused(ErrorCode.SESSION_NOT_FOUND):
            await query.read_title("s")
        assert (await query.list_sessions()).sessions == ()
    async with service(tmp_path) as query:
        assert await sessions_of(query, "unheard-of") == []


TITLE: dict[str, Json] = {"title": "Seen", "messageSeqs": [], "source": {"kind": "user"}}


FAMILIES = {
    "its own parent": {"a": "a"},
    "two": {"a": "b", "b": "a"},
    "three": {"a": "b", "b": "c", "c": "a"},
    "a tail into a circle": {"a": "b", "b": "c", "c": "b"},
}


@pytest.mark.parametrize("parents", FAMILIES.values(), ids=FAMILIES)
async def test_a_family_that_runs_in_a_circle_is_named_and_hides_nothing(
    tmp_path: Path, parents: dict[str, str]
) -> None:
    """R29: the trace ends with a clear error; listing, search and filter list each session once."""
    for session_id, parent in parents.items():
        write_session(tmp_path / "store", user_rows("word"), session_id, parentSession=parent)
    async with service(tmp_path) as query:
        with refused(ErrorCode.INVALID_LINEAGE, "met twice"):
            await query.trace_session("a")
        assert sorted(await sessions_of(query, "word")) == sorted(parents)
        listed = (await query.list_sessions()).sessions
        assert sorted(record.header.id for record in listed) == sorted(parents)
        children = await sessions_of(query, "word", session_filters=[Parent(("b",))])
        assert sorted(children) == sorted(a for a, parent in parents.items() if parent == "b")


FOLDERS = ["/work", "/work/", "/Work", "/work/.", "//work", "/work/sub", "C:\\work", "c:\\work"]


async def test_a_workspace_is_its_exact_text(tmp_path: Path) -> None:
    """R31: nothing is guessed: another spelling is another workspace, and fails closed."""
    store = JsonlStore(tmp_path / "store")
    for number, folder in enumerate(FOLDERS):
        head, events = session(f"s{number}", "word", cwd=folder)
        with store.create(head) as handle:
            handle.append(events)
    async with service(tmp_path) as query:
        assert len(await sessions_of(query, "word")) == len(FOLDERS)
        for number, folder in enumerate(FOLDERS):
            found = await sessions_of(query, "word", session_filters=[Cwd((folder,))])
            assert found == [f"s{number}"]
        assert await sessions_of(query, "word", session_filters=[Cwd(("/wor",))]) == []


def without_keys(text: str) -> str:
    return text.replace("sk-secret-0123456789", "[key]")


@pytest.mark.parametrize("before", [0, 50, 90, 100, 110, 118, 119, 120, 200])
async def test_a_secret_is_hidden_before_a_snippet_is_cut(tmp_path: Path, before: int) -> None:
    """R33: wherever the window ends, no part of the secret is left at its edge."""
    text = f"{'x ' * before}sk-secret-0123456789 {'y ' * 4}needle {'z ' * 300}"
    other = f"needle {'z ' * before}sk-secret-0123456789"
    title = {**TITLE, "title": "about sk-secret-0123456789"}
    write_session(tmp_path / "store", [*user_rows(text, other), row(2, "session/title", title)])
    async with service(tmp_path, QueryConfig(redact=without_keys)) as query:
        page = await query.search_events("s", "needle")
        assert len(page.items) == 2
        for hit in page.items:
            assert "secret" not in hit.snippet
            assert "012345" not in hit.snippet
        found = await query.read_title("s")
        assert found is not None
        assert found.title == "about [key]"
        documents = await query.filter_events("s", [])
        assert all("secret" not in document.text for document in documents)


async def test_the_index_is_for_its_owner_alone(tmp_path: Path) -> None:
    """R33: its folder and every file in it."""
    write_session(tmp_path / "store", user_rows("word"))
    async with service(tmp_path) as query:
        assert await sessions_of(query, "word") == ["s"]
        folder = tmp_path / "index"
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}
