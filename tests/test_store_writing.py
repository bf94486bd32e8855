"""What stands on the disk when writing succeeds, and when it fails at any step."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Literal, TypeAlias

import pytest
from attrs import evolve
from builders import header
from jsonl_files import BODY, FailingFiles, row, session_line, write_frames, write_log
from store_contract import store_session, turns

from session_query.messages.event import Event
from session_query.messages.json import Json
from session_query.storage import log_writer
from session_query.storage.claims import flush_all
from session_query.storage.contract import (
    AlreadyExists,
    CorruptLog,
    StoreFailed,
    WriteHandle,
)
from session_query.storage.files import OsFiles
from session_query.storage.header_line import render_header
from session_query.storage.jsonl import JsonlStore
from session_query.storage.records import render_event
from session_query.storage.zstandard import compress

LOG = Path("--work--") / "s" / "session.v2.jsonl"
Compression: TypeAlias = Literal["none", "zstd"]
COMPRESSIONS: tuple[Compression, ...] = ("none", "zstd")
MOST_STEPS = 30
"""More changing operations than any one call makes."""


def logs_below(root: Path) -> list[Path]:
    """All files but the lock, which stays beside a log for good."""
    files = sorted(path for path in root.rglob("*") if path.is_file())
    return [path for path in files if path.name != "session.lock"]


def log_below(root: Path, compression: Compression) -> Path:
    return root / (f"{LOG}.zstd" if compression == "zstd" else LOG)


def content_of(*batches: tuple[Event, ...], compression: Compression = "none") -> bytes:
    encode = compress if compression == "zstd" else bytes
    texts = [b"".join(map(render_event, batch)) for batch in batches]
    return b"".join(map(encode, [render_header(header()), *texts]))


# --- a new log


def test_header_and_first_batch_appear_together(tmp_path: Path) -> None:
    with JsonlStore(tmp_path / "root").create(header()) as writer:
        assert not (tmp_path / "root").exists()
        writer.append(turns(2))
    assert logs_below(tmp_path / "root") == [tmp_path / "root" / LOG]
    assert (tmp_path / "root" / LOG).read_bytes() == content_of(turns(2))


def test_a_session_that_was_never_written_leaves_nothing(tmp_path: Path) -> None:
    JsonlStore(tmp_path).create(header()).close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("turn", range(1, MOST_STEPS))
def test_a_log_whose_creation_fails_at_any_step_is_not_there_and_can_be_tried_again(
    tmp_path: Path, turn: int, compression: Compression
) -> None:
    files = FailingFiles(turn)
    root = tmp_path / "root"
    writer = JsonlStore(root, compression=compression, files=files).create(header())
    try:
        writer.append(turns(2))
    except StoreFailed as error:
        assert isinstance(error.__cause__, OSError)
        assert JsonlStore(tmp_path / "root").stat("s") is None
        writer.append(turns(2))
    files.turns = set()
    writer.append(turns(3)[2:])
    content = content_of(turns(2), turns(3)[2:], compression=compression)
    assert log_below(root, compression).read_bytes() == content


def test_creating_a_log_takes_fewer_steps_than_are_made_to_fail(tmp_path: Path) -> None:
    files = FailingFiles()
    with JsonlStore(tmp_path / "a" / "b" / "root", files=files).create(header()) as writer:
        writer.append(turns(2))
    assert files.done < MOST_STEPS


class NoWayBack(OsFiles):
    """The real disk, of which no directory can be changed from a link on until it is well."""

    ill = False
    falls_ill = True

    def link(self, source: str, target: str) -> None:
        super().link(source, target)
        self.ill = self.falls_ill

    def sync_directory(self, path: str) -> None:
        self._fail_if_ill()
        super().sync_directory(path)

    def unlink(self, path: str) -> None:
        self._fail_if_ill()
        super().unlink(path)

    def _fail_if_ill(self) -> None:
        if self.ill:
            raise OSError(errno.EIO, "directories cannot be changed")


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_log_that_can_be_neither_made_durable_nor_removed_reports_both_and_is_written_anew(
    tmp_path: Path, compression: Compression
) -> None:
    files = NoWayBack()
    writer = JsonlStore(tmp_path, compression=compression, files=files).create(header())
    for _ in range(2):
        with pytest.raises(StoreFailed, match="neither made durable nor removed") as caught:
            writer.append(turns(2))
        assert isinstance(caught.value.__cause__, ExceptionGroup)
        assert len(caught.value.__cause__.exceptions) == 2
        with pytest.raises(StoreFailed, match="could not be created"):
            writer.append(turns(2))
        files.ill = False
    files.falls_ill = False
    writer.append(turns(4))
    content = content_of(turns(4), compression=compression)
    assert log_below(tmp_path, compression).read_bytes() == content


def test_a_log_that_could_not_be_removed_and_that_somebody_goes_on_with_is_kept(
    tmp_path: Path,
) -> None:
    files = NoWayBack()
    writer = JsonlStore(tmp_path, files=files).create(header())
    with pytest.raises(StoreFailed):
        writer.append(turns(2))
    files.ill = False
    path = tmp_path / LOG
    path.write_bytes(path.read_bytes() + render_event(turns(3)[2]))
    with pytest.raises(AlreadyExists):
        writer.append(turns(4))
    assert path.read_bytes() == content_of(turns(3))


def test_a_log_that_another_process_created_meanwhile_is_never_overwritten(
    tmp_path: Path,
) -> None:
    writer = JsonlStore(tmp_path).create(header())
    store_session(JsonlStore(tmp_path), turns(1))
    before = (tmp_path / LOG).read_bytes()
    with pytest.raises(AlreadyExists):
        writer.append(turns(2))
    assert (tmp_path / LOG).read_bytes() == before
    assert logs_below(tmp_path) == [tmp_path / LOG]


def test_a_log_that_appeared_meanwhile_in_the_other_encoding_is_not_written_beside(
    tmp_path: Path,
) -> None:
    writer = JsonlStore(tmp_path).create(header())
    store_session(JsonlStore(tmp_path, compression="zstd"), turns(1))
    with pytest.raises(AlreadyExists):
        writer.append(turns(2))
    assert logs_below(tmp_path) == [log_below(tmp_path, "zstd")]


def test_a_left_over_temporary_file_is_in_nobodys_way(tmp_path: Path) -> None:
    stale = (tmp_path / LOG).with_name(f"{LOG.name}.000000000000.tmp")
    stale.parent.mkdir(parents=True)
    stale.write_bytes(b"half")
    store_session(JsonlStore(tmp_path), turns(1))
    assert stale.read_bytes() == b"half"
    assert (tmp_path / LOG).read_bytes() == content_of(turns(1))


def test_a_directory_full_of_left_over_files_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_writer, "_TEMPORARY_NAMES", 2)
    (tmp_path / LOG).parent.mkdir(parents=True)
    for number in range(2):
        (tmp_path / f"{LOG}.00000000000{number}.tmp").touch()
    with pytest.raises(StoreFailed, match=r"--work--/s/.*: 2 temporary files are in the way"):
        JsonlStore(tmp_path).create(header()).append(turns(1))


# --- an append


def test_committed_bytes_are_never_rewritten(tmp_path: Path) -> None:
    content = b"\n".join([b"\xef\xbb\xbf" + session_line(zone=1) + b"\r", *BODY, b""])
    path = write_log(tmp_path, [])
    path.write_bytes(content)
    inode = path.stat().st_ino
    with JsonlStore(tmp_path).open("s", "write") as writer:
        writer.append(turns(5)[3:])
    assert path.read_bytes() == content + b"".join(map(render_event, turns(5)[3:]))
    assert path.stat().st_ino == inode


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("turn", range(1, 4))
def test_a_batch_that_fails_at_any_step_is_cut_back_and_can_be_tried_again(
    tmp_path: Path, turn: int, compression: Compression
) -> None:
    files = FailingFiles()
    writer = _written(tmp_path, files, compression)
    log = log_below(tmp_path, compression)
    files.turns = {files.done + turn}
    with pytest.raises(StoreFailed, match="could not be appended"):
        writer.append(turns(4)[2:])
    assert log.read_bytes() == content_of(turns(2), compression=compression)
    assert writer.read() == turns(2)
    writer.append(turns(4)[2:])
    assert log.read_bytes() == content_of(turns(2), turns(4)[2:], compression=compression)


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("second", [3, 4])
def test_a_batch_that_could_not_be_cut_back_reports_both_and_is_cut_before_the_next(
    tmp_path: Path, second: int, compression: Compression
) -> None:
    files = FailingFiles()
    writer = _written(tmp_path, files, compression)
    # Open, append (fails half done), cut, sync: the cut fails too.
    files.turns = {files.done + 2, files.done + second}
    with pytest.raises(StoreFailed, match="neither appended to nor cut") as caught:
        writer.append(turns(4)[2:])
    assert isinstance(caught.value.__cause__, ExceptionGroup)
    assert len(caught.value.__cause__.exceptions) == 2
    with JsonlStore(tmp_path).open("s", "read") as reader:
        assert reader.read() in (turns(2), turns(3))
    writer.append(turns(4)[2:])
    content = content_of(turns(2), turns(4)[2:], compression=compression)
    assert log_below(tmp_path, compression).read_bytes() == content


def test_a_file_that_somebody_wrote_to_after_a_batch_was_cut_back_is_left_alone(
    tmp_path: Path,
) -> None:
    files = FailingFiles()
    writer = _written(tmp_path, files)
    files.turns = {files.done + 2}
    with pytest.raises(StoreFailed, match="could not be appended"):
        writer.append(turns(4)[2:])
    path = tmp_path / LOG
    path.write_bytes(path.read_bytes() + render_event(turns(3)[2]))
    with pytest.raises(StoreFailed, match="changed by another writer"):
        writer.append(turns(4)[2:])
    assert path.read_bytes() == content_of(turns(3))


def test_a_payload_that_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    writer = _written(tmp_path, FailingFiles())
    good, bad = turns(4)[2], Event("demo/x", 3, 1, b"{nonsense")
    with pytest.raises(ValueError, match=r"event 3 \(demo/x\): data is not JSON"):
        writer.append((good, bad))
    assert (tmp_path / LOG).read_bytes() == content_of(turns(2))


@pytest.mark.parametrize("change", ["append", "replace", "remove"])
def test_a_file_that_somebody_else_changed_is_left_alone(tmp_path: Path, change: str) -> None:
    writer = _written(tmp_path, FailingFiles())
    path = tmp_path / LOG
    match change:
        case "append":
            path.write_bytes(path.read_bytes() + render_event(turns(3)[2]))
        case "replace":
            copy = path.with_name("copy")
            copy.write_bytes(path.read_bytes())
            copy.replace(path)
        case _:
            path.unlink()
    before = path.read_bytes() if path.exists() else None
    with pytest.raises(StoreFailed):
        writer.append(turns(4)[2:])
    assert (path.read_bytes() if path.exists() else None) == before


def test_failures_of_a_flush_are_gathered_and_the_others_still_flushed(tmp_path: Path) -> None:
    files = FailingFiles(1)
    store = JsonlStore(tmp_path, files=files)
    store.create(header("a"))
    store.create(header("b"))
    with pytest.raises(ExceptionGroup) as caught:
        store.flush()
    [failure] = caught.value.exceptions
    assert isinstance(failure, StoreFailed)
    assert [found.header.id for found in store.sweep().snapshots] == ["b"]
    store.flush()
    assert len(store.sweep().snapshots) == 2


def test_all_failures_of_a_flush_are_told_whichever_sessions_they_are_of(tmp_path: Path) -> None:
    class Closed(OsFiles):
        """The real disk, on which two sessions cannot get a directory."""

        def make_directory(self, path: str) -> None:
            if path.endswith(("/a", "/c")):
                raise OSError(errno.EROFS, "Read-only file system")
            super().make_directory(path)

    store = JsonlStore(tmp_path, files=Closed())
    writers = [store.create(header(session_id)) for session_id in "abcd"]
    writers[3].close()
    with pytest.raises(ExceptionGroup, match="2 sessions could not be flushed") as caught:
        store.flush()
    assert [str(error)[:11] for error in caught.value.exceptions] == ["--work--/a/", "--work--/c/"]
    assert [found.header.id for found in store.sweep().snapshots] == ["b"]


def test_a_writer_that_is_closed_while_others_are_flushed_counts_as_flushed(
    tmp_path: Path,
) -> None:
    store = JsonlStore(tmp_path)
    writers = [store.create(header(session_id)) for session_id in "ab"]
    writers[0].close()
    flush_all(writers)
    assert [found.header.id for found in store.sweep().snapshots] == ["b"]


# --- a torn tail


@pytest.mark.parametrize("tail", [b'{"type":"torn', b"{broken\n", b"\x00" * 99, b"\n\n42\nnull\n{"])
def test_a_torn_tail_is_cut_before_the_first_append_and_not_before(
    tmp_path: Path, tail: bytes
) -> None:
    path = write_log(tmp_path, BODY)
    whole = path.read_bytes()
    path.write_bytes(whole + tail)
    store = JsonlStore(tmp_path)
    with store.open("s", "write") as writer:
        assert len(writer.read()) == 3
        before = store.stat("s")
        writer.append(())
        writer.flush()
        assert path.read_bytes() == whole + tail
        revision = writer.append(turns(5)[3:4])
        assert before is not None
        assert revision != before.revision
    assert path.read_bytes() == whole + render_event(turns(5)[3])


@pytest.mark.parametrize("turn", range(1, 6))
def test_a_failing_cut_of_a_torn_tail_can_be_tried_again(tmp_path: Path, turn: int) -> None:
    path = write_log(tmp_path, BODY)
    whole = path.read_bytes()
    path.write_bytes(whole + b"torn")
    files = FailingFiles(1 + turn)
    with JsonlStore(tmp_path, files=files).open("s", "write") as writer:
        assert files.done == 1
        with pytest.raises(StoreFailed):
            writer.append(turns(4)[3:])
        with JsonlStore(tmp_path).open("s", "read") as reader:
            assert len(reader.read()) == 3
        writer.append(turns(4)[3:])
    assert path.read_bytes() == whole + render_event(turns(4)[3])


@pytest.mark.parametrize("seq", [2, 7])
def test_a_writer_that_would_cut_whole_records_refuses(tmp_path: Path, seq: int) -> None:
    write_log(tmp_path, [*BODY, row(seq, "demo/x", {})])
    store = JsonlStore(tmp_path)
    for _ in range(2):
        with pytest.raises(CorruptLog, match="cut whole records"):
            store.open("s", "write")
    with store.open("s", "read") as reader:
        assert len(reader.read()) == 3


RECOVERED = b"".join(line + b"\n" for line in BODY[1:])


def test_what_is_left_of_a_torn_frame_is_stored_again_before_what_comes(tmp_path: Path) -> None:
    path = write_frames(tmp_path, BODY[:1])
    whole = path.read_bytes()
    path.write_bytes(whole + compress(RECOVERED + b"half")[:-2])
    torn = path.read_bytes()
    with JsonlStore(tmp_path).open("s", "write") as writer:
        assert len(writer.read()) == 3
        writer.flush()
        assert path.read_bytes() == torn
        writer.append(turns(5)[3:4])
        writer.append(turns(5)[4:])
    batches = [compress(render_event(event)) for event in turns(5)[3:]]
    assert path.read_bytes() == whole + compress(RECOVERED) + b"".join(batches)
    with JsonlStore(tmp_path).open("s", "read") as reader:
        log = reader.read_log()
    assert (len(log.events), log.left_out) == (5, None)


@pytest.mark.parametrize("turn", range(1, 6))
def test_a_failing_repair_of_a_torn_frame_can_be_tried_again(tmp_path: Path, turn: int) -> None:
    path = write_frames(tmp_path, BODY[:1])
    whole = path.read_bytes()
    path.write_bytes(whole + compress(RECOVERED)[:-2])
    files = FailingFiles(1 + turn)
    with JsonlStore(tmp_path, files=files).open("s", "write") as writer:
        with pytest.raises(StoreFailed):
            writer.append(turns(4)[3:])
        writer.append(turns(4)[3:])
    batch = compress(render_event(turns(4)[3]))
    assert path.read_bytes() == whole + compress(RECOVERED) + batch


# --- formats


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_log_is_continued_in_the_format_and_encoding_it_has(
    tmp_path: Path, version: int, compression: Compression
) -> None:
    seeds: dict[str, Json] = {} if version == 2 else {"isSeeded": None}
    name = "session.jsonl" if version == 0 else f"session.v{version}.jsonl"
    first = session_line(version=version, **seeds) + b"\n"
    encode = compress if compression == "zstd" else bytes
    path = write_log(tmp_path, [], name=f"{name}.zstd" if compression == "zstd" else name)
    before = encode(first) + encode(b"".join(line + b"\n" for line in BODY))
    path.write_bytes(before)
    cited = Event("user/message", 3, 7, b'{"a":1e2}', "append", (0, 1, 2))
    with JsonlStore(tmp_path).open("s", "write") as writer:
        writer.append((cited,))
    assert path.read_bytes() == before + encode(
        b'{"type":"user/message","seq":3,"time":7,"data":{"a":1e2},"surfaceOp":"append",'
        b'"sourceEventSeqs":[[0,2]]}\n'
    )
    assert logs_below(tmp_path) == [path]


def test_a_new_header_is_written_in_the_key_order_of_the_reference(tmp_path: Path) -> None:
    full = evolve(
        header(),
        parent_session="p",
        is_seeded=True,
        origin="subagent",
        delegation_depth=2,
        agent_preset="code",
    )
    with JsonlStore(tmp_path).create(full, 1) as writer:
        writer.flush()
    assert (tmp_path / LOG).read_bytes() == (
        b'{"type":"session","version":2,"id":"s","createdAt":1760000000000,"cwd":"/work",'
        b'"parentSession":"p","isSeeded":true,"origin":"subagent","delegationDepth":2,'
        b'"agentPreset":"code"}\n'
    )


def _written(root: Path, files: FailingFiles, compression: Compression = "none") -> WriteHandle:
    writer = JsonlStore(root, compression=compression, files=files).create(header())
    writer.append(turns(2))
    return writer
