"""The export of sessions as a ZIP archive: what is in it, and what happens while it is made."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
import trio
import trio.testing
from attrs import define, evolve
from builders import Log, header, user_data
from faulty_store import FaultyStore
from jsonl_files import BODY, frame, row, session_line, write_frames, write_log
from service_world import CountingStore, messages, refused, session, settle, store_of

from session_query import (
    Archive,
    Attachment,
    ErrorCode,
    EventDraft,
    IndexConfig,
    JsonlStore,
    SessionQuery,
    SessionStore,
    open_archive,
    open_session_query,
)
from session_query.messages.event import Event
from session_query.messages.header import SessionHeader
from session_query.messages.json import Json
from session_query.storage.contract import StoreFailed
from session_query.storage.log_copy import COPY_BYTES
from session_query.storage.memory import MemoryStore

READING = IndexConfig(path=":memory:", open_at="never")


async def bytes_of(query: SessionQuery, session_id: str, **options: Any) -> bytes:
    async with open_archive(query, session_id, **options) as archive:
        return b"".join([piece async for piece in archive])


async def archive_of(query: SessionQuery, session_id: str, **options: Any) -> ZipFile:
    return ZipFile(io.BytesIO(await bytes_of(query, session_id, **options)))


async def exported(store: SessionStore, session_id: str = "s", **options: Any) -> ZipFile:
    async with open_session_query(store=store, index=READING) as query:
        return await archive_of(query, session_id, **options)


@asynccontextmanager
async def archiving(store: SessionStore, session_id: str, **options: Any) -> AsyncIterator[Archive]:
    async with (
        open_session_query(store=store, index=READING) as query,
        open_archive(query, session_id, **options) as archive,
    ):
        yield archive


def family() -> CountingStore:
    """A root, two children, and a grandchild of the first child."""
    return store_of(
        session("root", "one"),
        session("child", "two", parent_session="root", created_at=2),
        session("other", "three", parent_session="root", created_at=3),
        session("grandchild", "four", parent_session="child", created_at=4),
    )


# -- what is in it ----------------------------------------------------------------------------


async def test_the_log_stands_under_the_name_that_its_format_has() -> None:
    store = store_of(session("s", "hello"), session("old", "hello", version=0))
    assert (await exported(store)).namelist() == ["session.v2.jsonl"]
    assert (await exported(store, "old")).namelist() == ["session.jsonl"]


async def test_descendants_follow_each_before_its_own_children() -> None:
    assert (await exported(family(), "root", descendants=True)).namelist() == [
        "session.v2.jsonl",
        "subagents/child/session.v2.jsonl",
        "subagents/grandchild/session.v2.jsonl",
        "subagents/other/session.v2.jsonl",
    ]


async def test_without_descendants_only_the_session_itself_is_read() -> None:
    store = family()
    assert (await exported(store, "root")).namelist() == ["session.v2.jsonl"]
    assert store.calls["sweep"] == 0


async def test_a_log_of_two_is_its_stored_header_and_records_with_plain_sources(
    tmp_path: Path,
) -> None:
    head = session_line(somebodys="key")
    cites: dict[str, Json] = {"surfaceOp": {"op": "replace", "start": 3, "end": 3}}
    rows = [
        *BODY,
        row(3, "user/message", user_data("one"), surfaceOp="append"),
        row(4, "user/message", user_data("two"), **cites, sourceEventSeqs=[[0, 3]]),
    ]
    write_log(tmp_path, rows, b'{"type":"turn/sta', header=head)
    text = (await exported(JsonlStore(tmp_path))).read("session.v2.jsonl")
    plain = row(4, "user/message", user_data("two"), **cites, sourceEventSeqs=[0, 1, 2, 3])
    assert text.split(b"\n") == [head, *rows[:-1], plain, b""]


async def test_payloads_keep_their_exact_bytes(tmp_path: Path) -> None:
    odd = rb'{"type":"demo/x","seq":0,"time":5,"data":{"n":1.0,"s":"\ud83d \u0000","big":%s}' % (
        b"9" * 30
    )
    write_log(tmp_path, [odd + b',"ignorable":true}'], b"")
    text = (await exported(JsonlStore(tmp_path))).read("session.v2.jsonl")
    assert text.split(b"\n")[1] == odd + b',"ignorable":true}'


@pytest.mark.parametrize("version", [0, 1])
async def test_an_older_log_is_copied_as_it_is_stored(tmp_path: Path, version: int) -> None:
    name = "session.jsonl" if version == 0 else "session.v1.jsonl"
    head = session_line(version=version, isSeeded=None)
    packed = b'{"type":"text-chunks","seq0":1, "anything": "goes"}'
    path = write_log(tmp_path, [BODY[0], packed], b'{"torn', name=name, header=head)
    assert (await exported(JsonlStore(tmp_path))).read(name) == path.read_bytes()


async def test_a_compressed_older_log_is_copied_uncompressed(tmp_path: Path) -> None:
    head = session_line(version=0, isSeeded=None)
    path = write_log(tmp_path, [], name="session.jsonl.zstd")
    batches = [[head], BODY[:1], BODY[1:]]
    path.write_bytes(b"".join(frame(*(line + b"\n" for line in lines)) for lines in batches))
    text = (await exported(JsonlStore(tmp_path))).read("session.jsonl")
    assert text == b"\n".join([head, *BODY, b""])


async def test_a_compressed_log_of_two_is_exported_as_text(tmp_path: Path) -> None:
    write_frames(tmp_path, BODY[:2], BODY[2:])
    text = (await exported(JsonlStore(tmp_path))).read("session.v2.jsonl")
    assert text == b"\n".join([session_line(), *BODY, b""])


async def test_a_session_without_events_is_its_header_alone() -> None:
    text = (await exported(store_of((header("s"), ())))).read("session.v2.jsonl")
    assert text.count(b"\n") == 1
    assert json.loads(text)["id"] == "s"


async def test_an_open_turn_is_not_closed(tmp_path: Path) -> None:
    write_log(tmp_path, [BODY[0], b""])
    text = (await exported(JsonlStore(tmp_path))).read("session.v2.jsonl")
    assert text == b"\n".join([session_line(), BODY[0], b""])


async def test_an_archive_of_many_pieces_is_the_whole_log(tmp_path: Path) -> None:
    log = Log()
    for number in range(40):
        log.user(f"{number} " + "\N{GRINNING FACE}é" * 40_000)
    whole = store_of((header("s"), log.events))
    text = (await exported(whole)).read("session.v2.jsonl")
    assert len(text) > 3 * COPY_BYTES
    lines = text.splitlines()[1:]
    assert [json.loads(line)["data"] for line in lines] == [event.data for event in log.events]


async def test_what_was_exported_can_be_read_as_a_store(tmp_path: Path) -> None:
    log = Log()
    log.user("one")
    log.user("two")
    log.replace(0, 1, [0, 1])
    archive = await exported(store_of((evolve(header("s"), cwd="/w"), log.events)))
    path = write_log(tmp_path, [])
    path.write_bytes(archive.read("session.v2.jsonl"))
    with JsonlStore(tmp_path).open("s", "read") as handle:
        assert handle.read() == tuple(log.events)


async def test_ids_become_names_that_are_safe_to_unpack() -> None:
    hostile = ["../../etc", "a.b", "a_b", "A_B", "\ud800", "会话", "x" * 300]
    store = store_of(
        session("r/\x00t", "root"),
        *(
            session(one, "x", parent_session="r/\x00t", created_at=at)
            for at, one in enumerate(hostile)
        ),
    )
    async with archiving(store, "r/\x00t", descendants=True) as archive:
        assert archive.name == "session-r__t.zip"
        assert archive.sessions == ("r/\x00t", *hostile)
        data = b"".join([piece async for piece in archive])
    folders = [name.split("/")[1] for name in ZipFile(io.BytesIO(data)).namelist()[1:]]
    assert folders == ["______etc", "a_b", "a_b-2", "A_B-3", "_", "__", "x" * 200]


async def test_the_same_archive_is_the_same_bytes() -> None:
    store = family()
    async with open_session_query(store=store, index=READING) as query:
        one, two = [await bytes_of(query, "root", descendants=True) for _ in range(2)]
    assert one == two


@pytest.mark.parametrize("level", [0, 9])
async def test_the_level_says_how_hard_to_compress(level: int) -> None:
    store = store_of(session("s", "again and " * 1000))
    (entry,) = (await exported(store, level=level)).infolist()
    assert entry.compress_type == ZIP_DEFLATED
    assert (entry.compress_size > entry.file_size) is (level == 0)


@pytest.mark.parametrize("level", [-1, 10, 1.0, True, "6"])
async def test_a_level_out_of_range_is_refused(level: object) -> None:
    with refused(ErrorCode.INVALID_CONFIG, "0 to 9"):
        await exported(MemoryStore(), level=level)


# -- live sessions ----------------------------------------------------------------------------


def said() -> EventDraft:
    return EventDraft("user/message", user_data("said"), surface_op="append")


async def test_a_live_session_is_flushed_right_before_it_is_read(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    async with (
        open_session_query(store=store, index=READING) as query,
        query.sessions.create(id="live", cwd="/w") as live,
    ):
        await live.commit(said())
        assert live.statistics().pending == 1
        text = (await archive_of(query, "live")).read("session.v2.jsonl")
        assert live.statistics().pending == 0
    assert text.count(b"\n") == 2 and b"said" in text


async def test_a_descendant_is_flushed_when_its_turn_has_come(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    with store.create(header("root")) as writer:
        writer.append(messages("x"))
    async with (
        open_session_query(store=store, index=READING) as query,
        query.sessions.create(id="child", parent="root") as live,
        open_archive(query, "root", descendants=True) as archive,
    ):
        first = await anext(archive)
        await live.commit(said())
        data = first + b"".join([piece async for piece in archive])
    text = ZipFile(io.BytesIO(data)).read("subagents/child/session.v2.jsonl")
    assert b"said" in text


async def test_a_session_that_is_never_stored_is_exported_from_memory() -> None:
    async with (
        open_session_query(index=READING) as query,
        query.sessions.create(id="live", durable=False) as live,
    ):
        await live.commit(said())
        text = (await archive_of(query, "live")).read("session.v2.jsonl")
    assert [json.loads(line)["type"] for line in text.splitlines()] == ["session", "user/message"]


async def test_a_live_session_is_read_from_the_store_that_it_writes_to(tmp_path: Path) -> None:
    async with (
        open_session_query(store=JsonlStore(tmp_path), index=READING) as query,
        query.sessions.create(id="live") as live,
    ):
        await live.commit(said())
        query.mount(MemoryStore())
        assert b"said" in (await archive_of(query, "live")).read("session.v2.jsonl")


async def test_a_session_that_is_closing_is_exported_once_it_is_stored(tmp_path: Path) -> None:
    archives: list[ZipFile] = []

    async def export(query: SessionQuery) -> None:
        archives.append(await archive_of(query, "live"))

    async with (
        open_session_query(store=JsonlStore(tmp_path), index=READING) as query,
        trio.open_nursery() as nursery,
        query.sessions.create(id="live") as live,
    ):
        await live.commit(said())
        live.mailbox.close()
        nursery.start_soon(export, query)
        await trio.testing.wait_all_tasks_blocked()
    assert b"said" in archives[0].read("session.v2.jsonl")


# -- what fails -------------------------------------------------------------------------------


async def test_an_absent_session_is_not_found_before_anything_is_made() -> None:
    async with open_session_query(store=family(), index=READING) as query:
        for descendants in (False, True):
            with refused(ErrorCode.SESSION_NOT_FOUND, "'nowhere'"):
                async with open_archive(query, "nowhere", descendants=descendants):
                    pytest.fail("the archive began")


async def test_a_service_without_a_store_has_nothing_to_export() -> None:
    async with open_session_query(index=READING) as query:
        with refused(ErrorCode.SESSION_NOT_FOUND):
            await archive_of(query, "s")


async def test_a_descendant_that_vanished_fails_the_archive(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    for one, parent in (("root", None), ("child", "root")):
        with store.create(evolve(header(one), parent_session=parent)) as writer:
            writer.append(messages("x"))
    async with archiving(store, "root", descendants=True) as archive:
        (log,) = tmp_path.glob("*/child/*.jsonl")
        log.unlink()
        with refused(ErrorCode.SESSION_NOT_FOUND, "'child'"):
            async for _piece in archive:
                pass


async def test_a_descendant_that_cannot_be_read_fails_the_archive(tmp_path: Path) -> None:
    write_log(tmp_path, BODY)
    head = session_line(id="child", version=9, parentSession="s")
    write_log(tmp_path, BODY, segment="child", name="session.v9.jsonl", header=head)
    with refused(ErrorCode.PERSISTENCE_FAILED, "descendant 'child'"):
        await exported(JsonlStore(tmp_path), descendants=True)


async def test_damage_that_hides_whose_it_is_is_named(tmp_path: Path) -> None:
    write_log(tmp_path, BODY)
    write_log(tmp_path, [], segment="broken", header=b"not json")
    async with archiving(JsonlStore(tmp_path), "s", descendants=True) as archive:
        assert [skipped.session_id for skipped in archive.skipped] == ["broken"]
        assert b"".join([piece async for piece in archive])


async def test_damage_in_a_log_of_two_fails_the_archive(tmp_path: Path) -> None:
    write_log(tmp_path, [BODY[0], b"{}", BODY[2], b""])
    with refused(ErrorCode.CORRUPT_SESSION, "line 3"):
        await exported(JsonlStore(tmp_path))


async def test_a_failing_store_fails_the_archive() -> None:
    store = FaultyStore(MemoryStore([session("s", "x")]), read_failures=[StoreFailed("no disk")])
    with refused(ErrorCode.PERSISTENCE_FAILED, "no disk"):
        await exported(store)


async def test_a_log_that_is_rewritten_meanwhile_fails_the_archive(tmp_path: Path) -> None:
    rows = [row(at, "demo/x", {"text": "x" * 1_000_000}, ignorable=True) for at in range(12)]
    path = write_log(tmp_path, rows, b"")
    settle(tmp_path)
    async with archiving(JsonlStore(tmp_path), "s", level=0) as archive:
        await anext(archive)
        path.write_bytes(path.read_bytes().replace(b"xx", b"yy"))
        with refused(ErrorCode.PERSISTENCE_FAILED, "rewritten"):
            async for _piece in archive:
                pass


async def test_an_older_log_that_becomes_shorter_fails_the_archive(tmp_path: Path) -> None:
    head = session_line(version=0, isSeeded=None)
    path = write_log(tmp_path, [b"x" * 3 * COPY_BYTES], name="session.jsonl", header=head)
    async with archiving(JsonlStore(tmp_path), "s", level=0) as archive:
        await anext(archive)
        with path.open("r+b") as file:
            file.truncate(100)
        with refused(ErrorCode.PERSISTENCE_FAILED, "became shorter"):
            async for _piece in archive:
                pass


async def test_an_archive_that_was_closed_does_not_pretend_to_be_whole() -> None:
    async with open_session_query(store=family(), index=READING) as query:
        async with open_archive(query, "root") as archive:
            pass
        with refused(ErrorCode.ABORTED):
            await anext(archive)


async def test_a_service_that_closes_ends_the_archive() -> None:
    async with open_session_query(store=family(), index=READING) as query:
        opened = open_archive(query, "root", descendants=True)
        archive = await opened.__aenter__()
    with refused(ErrorCode.ABORTED):
        async for _piece in archive:
            pass
    await opened.__aexit__(None, None, None)


# -- streaming --------------------------------------------------------------------------------


def long_log() -> CountingStore:
    log = Log()
    for _ in range(32):
        log.user("x" * 500_000)
    return store_of((header("s"), log.events))


async def test_nothing_is_read_ahead_of_the_reader() -> None:
    store = long_log()
    async with archiving(store, "s", level=0) as archive:
        await trio.testing.wait_all_tasks_blocked()
        before = store.calls["read_tail"]
        await anext(archive)
        assert store.calls["read_tail"] <= before + 1
    assert store.calls["read_tail"] < 8


async def test_a_piece_is_no_longer_than_a_few_mebibytes() -> None:
    async with archiving(long_log(), "s", level=0) as archive:
        sizes = [len(piece) async for piece in archive]
    assert sum(sizes) > 16_000_000
    assert max(sizes) < 2 * COPY_BYTES
    assert min(sizes) > 0


async def test_a_cancelled_export_leaves_bare_and_stops_reading() -> None:
    store = long_log()
    with trio.CancelScope() as scope:
        async with archiving(store, "s", level=0) as archive:
            async for _piece in archive:
                scope.cancel()
    assert scope.cancelled_caught
    assert store.calls["read_tail"] < 8


async def test_leaving_early_closes_the_log(tmp_path: Path) -> None:
    head = session_line(version=0, isSeeded=None)
    write_log(tmp_path, [b"x" * 3 * COPY_BYTES], name="session.jsonl", header=head)

    def still_open() -> int:
        links = (path.resolve() for path in Path("/proc/self/fd").iterdir())
        return sum(tmp_path in path.parents for path in links)

    async with open_session_query(store=JsonlStore(tmp_path), index=READING) as query:
        async with open_archive(query, "s", level=0) as archive:
            await anext(archive)
            assert still_open() == 1
        assert still_open() == 0


# -- attachments ------------------------------------------------------------------------------


def image(identity: str, media_type: str = "image/png") -> Json:
    return {"type": "image", "attachment": {"attachmentId": identity, "mediaType": media_type}}


def file(identity: str, name: str) -> Json:
    return {"type": "file", "attachment": {"attachmentId": identity, "name": name}}


@define
class Shelf:
    """An attachment store that says which attachment it was asked for."""

    asked: list[Attachment]
    missing: str = ""
    closed: int = 0

    @asynccontextmanager
    async def __call__(self, attachment: Attachment) -> AsyncIterator[AsyncIterator[bytes]]:
        if attachment.id == self.missing:
            raise LookupError(attachment.id)
        self.asked.append(attachment)

        async def pieces() -> AsyncGenerator[bytes, None]:
            yield b"bytes of "
            yield attachment.id.encode()

        content = pieces()
        try:
            yield content
        finally:
            self.closed += 1
            await content.aclose()


def with_payloads(
    session_id: str, *payloads: Json, **changes: Any
) -> tuple[SessionHeader, list[Event]]:
    log = Log()
    for payload in payloads:
        log.add("demo/x", payload, ignorable=True)
    return evolve(header(session_id), **changes), log.events


async def test_images_and_files_of_every_carrier_are_exported_once_in_order() -> None:
    nested: Json = {"type": "tool-result", "content": [image("nested", "image/gif")]}
    ended: Json = {"type": "block-end", "block": image("chunk", "image/webp")}
    digest = "sha256:" + "ab" * 32
    store = store_of(
        with_payloads(
            "s",
            {"content": [image("direct"), nested, image("direct")]},
            {"message": {"content": [image("wrapped", "image/jpeg")]}},
            {
                "inserted": [
                    {"content": [image("inserted")]},
                    {"content": [file(digest, "a/b.txt")]},
                ]
            },
            {"chunk": ended},
            {
                "stream": [
                    {"type": "chunk", "chunk": {"type": "block-end", "block": image("streamed")}}
                ]
            },
            {"chunk": {"type": "block-start", "block": image("unfinished")}},
        )
    )
    shelf = Shelf([])
    archive = await exported(store, attachments=shelf)
    assert archive.namelist()[1:] == [
        "media/direct.png",
        "media/nested.gif",
        "media/wrapped.jpg",
        "media/inserted.png",
        f"files/ab/{'ab' * 32}/a_b.txt",
        "media/chunk.webp",
        "media/streamed.png",
    ]
    assert archive.read("media/nested.gif") == b"bytes of nested"
    assert shelf.closed == len(shelf.asked) == 7


async def test_attachments_of_descendants_come_with_descendants_alone() -> None:
    store = store_of(
        session("root", "x"),
        with_payloads("child", {"content": [image("picture")]}, parent_session="root"),
    )
    assert len((await exported(store, "root", attachments=Shelf([]))).namelist()) == 1
    both = await exported(store, "root", attachments=Shelf([]), descendants=True)
    assert both.namelist()[2:] == ["media/picture.png"]


async def test_without_an_attachment_store_only_logs_are_exported() -> None:
    store = store_of(with_payloads("s", {"content": [image("picture")]}))
    assert (await exported(store)).namelist() == ["session.v2.jsonl"]


async def test_an_unreadable_attachment_fails_the_archive() -> None:
    payload: Json = {"content": [image("good"), image("gone")]}
    store = store_of(with_payloads("s", payload))
    with pytest.raises(LookupError, match="gone"):
        await exported(store, attachments=Shelf([], missing="gone"))


async def test_hostile_attachments_get_names_that_are_safe_to_unpack() -> None:
    files = [file("../x", ".."), file("../x/", "a\x00\\b"), file("sha256:zz", ""), image("/a", "?")]
    store = store_of(with_payloads("s", {"content": files}))
    assert (await exported(store, attachments=Shelf([]))).namelist()[1:] == [
        "files/__/___x/file",
        "files/__/___x_/a__b",
        "files/sh/sha256_zz/file",
        "media/_a.bin",
    ]


async def test_lines_that_are_no_json_refer_to_nothing(tmp_path: Path) -> None:
    head = session_line(version=0, isSeeded=None)
    lines = [b'{"attachmentId": torn', row(0, "x", {"content": [image("good")]}), b""]
    write_log(tmp_path, lines, name="session.jsonl", header=head)
    archive = await exported(JsonlStore(tmp_path), attachments=Shelf([]))
    assert archive.namelist()[1:] == ["media/good.png"]
