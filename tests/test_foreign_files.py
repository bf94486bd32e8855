"""What every store of another agent's logs makes of files: damage, appends, and no writes."""

from __future__ import annotations

import os
import stat
import tracemalloc
from pathlib import Path

import pytest
from foreign_logs import (
    CLAUDE_START,
    MAIN,
    OTHER,
    THIRD,
    add,
    claude,
    kept,
    prompt,
    read,
    texts,
    types,
    write,
)
from jsonl_files import OsFilesAt, age

from session_query.messages.errors import ErrorCode
from session_query.messages.json import Json, member
from session_query.storage.claude_code import ClaudeCodeStore
from session_query.storage.contract import CorruptLog, NotFound, StoreFailed, UnsupportedLog
from session_query.storage.files import Entry, FileStat, OpenFile, OsFile, OsFiles


@pytest.fixture
def store(tmp_path: Path) -> ClaudeCodeStore:
    return ClaudeCodeStore(tmp_path)


def log(tmp_path: Path, *rows: bytes, fragment: bytes = b"", session: str = MAIN) -> Path:
    return write(tmp_path / "-w" / f"{session}.jsonl", *rows, fragment=fragment)


def test_a_torn_last_line_is_left_out_and_named(tmp_path: Path, store: ClaudeCodeStore) -> None:
    log(tmp_path, prompt(0, "one"), fragment=prompt(1, "two")[:-9])
    found = read(store)
    assert texts(store) == ["one"]
    assert (
        found.left_out
        == f"-w/{MAIN}.jsonl line 2: {len(prompt(1, 'two')) - 9} bytes without a line end"
    )


def test_a_torn_line_that_is_finished_later_is_read(tmp_path: Path, store: ClaudeCodeStore) -> None:
    path = log(tmp_path, prompt(0, "one"), fragment=prompt(1, "two")[:40])
    mark = store.read_tail(MAIN, None).mark
    with path.open("ab") as file:
        file.write(prompt(1, "two")[40:] + b"\n")
    tail = store.read_tail(MAIN, mark)
    assert (tail.appended, [kept(event) for event in tail.events]) == (True, [prompt(1, "two")])


def test_a_whole_last_record_without_a_line_end_counts(
    tmp_path: Path, store: ClaudeCodeStore
) -> None:
    path = log(tmp_path, prompt(0, "one"), fragment=prompt(1, "two"))
    assert texts(store) == ["one", "two"]
    assert read(store).left_out is None
    mark = store.read_tail(MAIN, None).mark
    with path.open("ab") as file:
        file.write(b"\n" + prompt(2, "three") + b"\n")
    tail = store.read_tail(MAIN, mark)
    assert (tail.appended, [kept(event) for event in tail.events]) == (True, [prompt(2, "three")])


@pytest.mark.parametrize("line", [b"nonsense", b'"text"', b"[1]", b"null", b"{", b'{"a":NaN}'])
def test_a_line_that_is_no_record_is_kept_as_such(
    tmp_path: Path, store: ClaudeCodeStore, line: bytes
) -> None:
    log(tmp_path, prompt(0, "one"), line, prompt(2, "three"))
    assert texts(store) == ["one", "three"]
    broken = read(store).events[2]
    assert (broken.type, broken.ignorable) == ("claude-code/unreadable", True)
    assert member(broken.data, "text") == line.decode()
    assert member(broken.data, "bytes") == len(line)


def test_a_record_behind_a_torn_one_on_its_line_is_recovered(
    tmp_path: Path, store: ClaudeCodeStore
) -> None:
    torn = prompt(1, "lost")[:50]
    log(tmp_path, prompt(0, "one"), torn + prompt(2, "saved"), prompt(3, "next"))
    assert texts(store) == ["one", "saved", "next"]
    broken = read(store).events[2]
    assert member(broken.data, "bytes") == len(torn)


def test_an_object_inside_a_torn_record_is_no_record(
    tmp_path: Path, store: ClaudeCodeStore
) -> None:
    log(tmp_path, prompt(0, "one"), b'{"type":"user","message":{"role":"user","content":"inner"}')
    assert texts(store) == ["one"]


def test_padding_around_records_hides_nothing(tmp_path: Path, store: ClaudeCodeStore) -> None:
    log(
        tmp_path,
        b"\xef\xbb\xbf" + prompt(0, "one"),
        b"",
        b"\0" * 900 + prompt(1, "two"),
        b"\0" * 900,
        prompt(2, "three") + b"\r",
        b"  " + prompt(3, "four") + b"  ",
        fragment=b"\0" * 4096,
    )
    assert texts(store) == ["one", "two", "three", "four"]
    assert kept(read(store).events[0]) == prompt(0, "one")


def test_separators_of_unicode_end_no_line(tmp_path: Path, store: ClaudeCodeStore) -> None:
    row = prompt(0, "a\u2028b\u2029c\x85d\ve\ff")
    log(tmp_path, row.replace(b"\\u2028", "\u2028".encode()))
    assert texts(store) == ["a\u2028b\u2029c\x85d\ve\ff"]


def test_lone_surrogates_are_kept_as_they_are_written(
    tmp_path: Path, store: ClaudeCodeStore
) -> None:
    row = prompt(0, "half QQ end").replace(b"QQ", b"\\ud83d")
    log(tmp_path, row, claude("user", 1).replace(b"row-1", b"\\ud83d"))
    assert kept(read(store).events[0]) == row
    assert texts(store) == ["half \ud83d end"]
    # What goes on behind it continues from a mark that holds it.
    tail = store.read_tail(MAIN, store.read_tail(MAIN, None, 1).mark)
    assert tail.appended


def test_invalid_utf8_is_replaced(tmp_path: Path, store: ClaudeCodeStore) -> None:
    log(tmp_path, prompt(0, "caf#").replace(b"#", b"\xe9"), prompt(1, "next"))
    assert texts(store) == ["caf\ufffd", "next"]
    assert "\ufffd".encode() in read(store).events[0].raw


def test_a_record_that_is_too_deep_makes_its_session_unsupported(
    tmp_path: Path, store: ClaudeCodeStore
) -> None:
    deep = claude("progress", 1, data="#").replace(b'"#"', b"[" * 260 + b"]" * 260)
    log(tmp_path, prompt(0, "one"), deep)
    log(tmp_path, prompt(0, "two", OTHER), session=OTHER)
    with pytest.raises(UnsupportedLog, match=r"line 2: \d+ bytes, nested more than 250"):
        read(store)
    assert texts(store, OTHER) == ["two"]


def test_a_record_of_the_greatest_depth_can_be_folded(
    tmp_path: Path, store: ClaudeCodeStore
) -> None:
    deep = prompt(0, [{"type": "tool_result", "content": "ok", "x": "#"}])
    log(tmp_path, deep.replace(b'"#"', b"[" * 246 + b"]" * 246))
    assert texts(store) == ["ok"]


def test_a_number_without_end_makes_its_session_unsupported(
    tmp_path: Path, store: ClaudeCodeStore
) -> None:
    log(tmp_path, prompt(0, "one"), claude("progress", 1, data="#").replace(b'"#"', b"1e999"))
    with pytest.raises(UnsupportedLog, match=r"line 2: .* out of range"):
        read(store)


def test_a_line_over_the_limit_makes_its_session_unsupported(
    tmp_path: Path, store: ClaudeCodeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("session_query.storage.foreign_lines.RECORD_BYTES", 2000)
    log(tmp_path, prompt(0, "one"), prompt(1, "x" * 2000))
    with pytest.raises(UnsupportedLog, match="line 2: longer than the limit of 2000 bytes"):
        read(store)


def test_a_long_record_stands_alone_and_its_text_is_found(
    tmp_path: Path, store: ClaudeCodeStore
) -> None:
    image: Json = {"type": "image", "source": {"type": "base64", "data": "QUJD" * 1_500_000}}
    many: Json = [[index] for index in range(130_000)]
    row = prompt(0, [{"type": "text", "text": "See"}, image], toolUseResult=many)
    log(tmp_path, row)
    assert texts(store) == ["See"]
    stored, message = read(store).events[:2]
    assert (stored.type, stored.raw) == ("claude-code/record", row)
    assert b'{"type":"record","recordSeq":0}' in message.raw


def test_words_beside_large_images_are_found(tmp_path: Path, store: ClaudeCodeStore) -> None:
    image: Json = {"type": "image", "source": {"type": "base64", "data": "QUJD" * 3_500_000}}
    log(tmp_path, prompt(0, [{"type": "text", "text": "看这张图"}, image]))
    assert texts(store) == ["看这张图"]


def test_a_text_that_takes_too_much_is_kept_and_hides_nothing(
    tmp_path: Path, store: ClaudeCodeStore
) -> None:
    row = prompt(0, "é" * 7_000_000)
    log(tmp_path, row, prompt(1, "next"))
    assert texts(store) == ["next"]
    assert read(store).events[0].raw == row


def test_a_file_of_nonsense_is_named_and_hides_nothing(
    tmp_path: Path, store: ClaudeCodeStore
) -> None:
    log(tmp_path, b"nonsense", b"more of it")
    log(tmp_path, prompt(0, "two", OTHER), session=OTHER)
    swept = store.sweep()
    [damaged] = swept.damaged
    assert (damaged.path, damaged.session_id) == (f"-w/{MAIN}.jsonl", MAIN)
    assert (damaged.code, damaged.conflict) == (ErrorCode.CORRUPT_SESSION, False)
    assert "line 1: not JSON" in damaged.message
    assert [found.header.id for found in swept.snapshots] == [OTHER]
    with pytest.raises(CorruptLog, match="line 1: not JSON"):
        store.stat(MAIN)


class ForbiddenFiles(OsFiles):
    """The real disk, on which some names are forbidden."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def entries(self, path: str) -> list[Entry]:
        self._check(path)
        return super().entries(path)

    def open_reading(self, path: str) -> OpenFile:
        self._check(path)
        return super().open_reading(path)

    def _check(self, path: str) -> None:
        if path.rpartition("/")[2] in self.names:
            raise PermissionError(13, "forbidden")


def test_what_may_not_be_read_is_named_and_hides_nothing(tmp_path: Path) -> None:
    write(tmp_path / "-a" / f"{MAIN}.jsonl", prompt(0, "one"))
    log(tmp_path, prompt(0, "two", OTHER), session=OTHER)
    log(tmp_path, prompt(0, "three", THIRD), session=THIRD)
    files = ForbiddenFiles("-a", f"{OTHER}.jsonl")
    store = ClaudeCodeStore(tmp_path, files=files)
    swept = store.sweep()
    assert [found.header.id for found in swept.snapshots] == [THIRD]
    assert [(found.path, found.code) for found in swept.damaged] == [
        ("-a", ErrorCode.PERSISTENCE_FAILED),
        (f"-w/{OTHER}.jsonl", ErrorCode.PERSISTENCE_FAILED),
    ]
    with pytest.raises(StoreFailed, match="forbidden"):
        store.stat(OTHER)
    files.names = ()
    again = store.sweep()
    assert (len(again.snapshots), again.damaged) == (3, ())


# --- appends and other changes


def test_a_link_that_leads_nowhere_hides_nothing(tmp_path: Path, store: ClaudeCodeStore) -> None:
    path = log(tmp_path, prompt(0, "one"))
    path.with_name(f"{OTHER}.jsonl").symlink_to(tmp_path / "nowhere")
    swept = store.sweep()
    assert ([found.header.id for found in swept.snapshots], swept.damaged) == ([MAIN], ())


def test_a_link_that_led_nowhere_is_seen_once_it_leads_to_a_folder(tmp_path: Path) -> None:
    log(tmp_path / "store", prompt(0, "one"))
    far = tmp_path / "far"
    (tmp_path / "store" / "-x").symlink_to(far)
    store = ClaudeCodeStore(tmp_path / "store", files=OsFilesAt(age(tmp_path / "store" / "-w")))
    assert [found.header.id for found in store.sweep().snapshots] == [MAIN]
    write(far / f"{OTHER}.jsonl", prompt(0, "two", OTHER))
    assert [found.header.id for found in store.sweep().snapshots] == [MAIN, OTHER]


class SweptTwice(ForbiddenFiles):
    """The same, where everything is allowed and swept while a log is looked at."""

    store: ClaudeCodeStore

    def stat(self, path: str) -> FileStat:
        if self.names and path.endswith(f"{MAIN}.jsonl"):
            self.names = ()
            assert self.store.sweep().damaged == ()
        return super().stat(path)


def test_a_sweep_names_what_it_could_not_list_whatever_another_one_could(tmp_path: Path) -> None:
    write(tmp_path / "-a" / f"{OTHER}.jsonl", prompt(0, "one", OTHER))
    log(tmp_path, prompt(0, "two"))
    files = SweptTwice("-a")
    files.store = ClaudeCodeStore(tmp_path, files=files)
    swept = files.store.sweep()
    assert [found.header.id for found in swept.snapshots] == [MAIN]
    assert [found.path for found in swept.damaged] == ["-a"]


def test_records_in_which_a_header_is_looked_for_are_not_held(
    tmp_path: Path, store: ClaudeCodeStore
) -> None:
    many = b'{"a":[' + b"{}," * 3000 + b"{}]}"
    log(tmp_path, *[many] * 100, prompt(0, "one"))
    tracemalloc.start()
    try:
        assert len(store.sweep().snapshots) == 1
        # All of them at once would take twenty times as much.
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()


class MovingFiles(OsFiles):
    """The real disk, on which a log is moved between two looks."""

    def __init__(self, source: Path, target: Path) -> None:
        self._paths = source, target

    def stat(self, path: str) -> FileStat:
        source, target = self._paths
        if path == str(source) and source.exists():
            target.parent.mkdir()
            source.rename(target)
        return super().stat(path)


def test_a_log_that_moves_while_a_store_is_swept_is_not_missed(tmp_path: Path) -> None:
    path = log(tmp_path, prompt(0, "one"))
    store = ClaudeCodeStore(tmp_path, files=MovingFiles(path, tmp_path / "-x" / path.name))
    assert [found.location for found in store.sweep().snapshots] == [f"-x/{MAIN}.jsonl"]


class CountedFiles(OsFiles):
    """The real disk, on which what is read is counted and nothing can be written."""

    def __init__(self) -> None:
        self.read = 0

    def open_reading(self, path: str) -> OpenFile:
        return _CountedFile(os.open(path, os.O_RDONLY), self)


class _CountedFile(OsFile):
    def __init__(self, descriptor: int, files: CountedFiles) -> None:
        super().__init__(descriptor)
        self._files = files

    def read(self, offset: int, size: int) -> bytes:
        data = super().read(offset, size)
        self._files.read += len(data)
        return data


def test_an_append_costs_its_tail(tmp_path: Path) -> None:
    files = CountedFiles()
    store = ClaudeCodeStore(tmp_path, files=files)
    path = log(tmp_path, *(prompt(number % 3000, "x" * 900) for number in range(4000)))
    mark = store.read_tail(MAIN, None, 100_000_000).mark
    assert files.read > 4_000_000
    add(path, prompt(1, "new"))
    files.read = 0
    tail = store.read_tail(MAIN, mark)
    assert (tail.appended, [kept(event) for event in tail.events]) == (True, [prompt(1, "new")])
    # The guard of the prefix reads 64 KiB at either end, before and behind; the head is a piece.
    assert files.read < 1_700_000


def test_growth_is_no_proof_of_an_append(tmp_path: Path, store: ClaudeCodeStore) -> None:
    path = log(tmp_path, prompt(0, "old words"))
    mark = store.read_tail(MAIN, None).mark
    inode = path.stat().st_ino
    with path.open("r+b") as file:
        file.truncate()
        file.write(prompt(0, "new words") + b"\n" + prompt(1, "and more") + b"\n")
    assert path.stat().st_ino == inode
    tail = store.read_tail(MAIN, mark)
    assert not tail.appended
    assert texts(store) == ["new words", "and more"]


def test_a_log_that_became_shorter_is_not_read_on(tmp_path: Path, store: ClaudeCodeStore) -> None:
    path = log(tmp_path, prompt(0, "one"), prompt(1, "two"))
    with store.open(MAIN, "read") as reader:
        assert len(reader.read()) == 3
        log(tmp_path, prompt(0, "one"))
        with pytest.raises(StoreFailed, match="became shorter"):
            reader.read()
        path.unlink()
        with pytest.raises(NotFound):
            reader.read()


def test_an_unchanged_store_is_swept_without_opening_a_log(tmp_path: Path) -> None:
    for number in range(5):
        log(tmp_path, prompt(0, "hi", f"s{number}"), session=f"s{number}")
    files = OsFilesAt(age(tmp_path))
    store = ClaudeCodeStore(tmp_path, files=files)
    first = store.sweep()
    files.calls.clear()
    again = store.sweep()
    assert again == first
    # The root, the project and five logs, and nothing is listed or opened.
    assert files.calls["stat"] == 7
    assert files.calls["entries"] == files.calls["open_reading"] == 0


def test_a_new_session_in_a_known_folder_is_seen(tmp_path: Path, store: ClaudeCodeStore) -> None:
    log(tmp_path, prompt(0, "hi"))
    store.sweep()
    log(tmp_path, prompt(0, "hi", OTHER), session=OTHER)
    assert store.stat(OTHER) is not None
    assert len(store.sweep().snapshots) == 2


def test_a_young_log_is_provisional(tmp_path: Path) -> None:
    path = log(tmp_path, prompt(0, "hi"))
    now = path.stat().st_ctime_ns + 1000
    [young] = ClaudeCodeStore(tmp_path, files=OsFilesAt(now)).sweep().snapshots
    [settled] = ClaudeCodeStore(tmp_path, files=OsFilesAt(age(tmp_path))).sweep().snapshots
    assert (young.provisional, settled.provisional) == (True, False)


def test_an_absent_root_is_empty_and_a_file_is_none(tmp_path: Path) -> None:
    assert ClaudeCodeStore(tmp_path / "nowhere").sweep().snapshots == ()
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreFailed, match="no directory"):
        ClaudeCodeStore(tmp_path / "file").sweep()


def test_nothing_below_the_root_is_changed(tmp_path: Path) -> None:
    log(tmp_path, prompt(0, "one"), fragment=b'{"torn')
    log(tmp_path, b"nonsense", session=OTHER)
    paths = sorted(tmp_path.rglob("*"))
    before = [(path, path.stat().st_mtime_ns, path.stat().st_ctime_ns) for path in paths]
    contents = [path.read_bytes() for path in paths if path.is_file()]
    store = ClaudeCodeStore(tmp_path)
    store.sweep()
    read(store)
    store.read_tail(MAIN, None)
    after = sorted(tmp_path.rglob("*"))
    assert [(path, path.stat().st_mtime_ns, path.stat().st_ctime_ns) for path in after] == before
    assert [path.read_bytes() for path in after if path.is_file()] == contents


def test_a_root_that_cannot_be_written_to_is_read(tmp_path: Path, store: ClaudeCodeStore) -> None:
    path = log(tmp_path, prompt(0, "one"))
    path.chmod(stat.S_IRUSR)
    path.parent.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        assert texts(store) == ["one"]
        assert types(store) == ["user/message", "session/title"]
    finally:
        path.parent.chmod(stat.S_IRWXU)


def test_times_may_have_offsets_or_none(tmp_path: Path, store: ClaudeCodeStore) -> None:
    log(
        tmp_path,
        claude("mode", 0, timestamp="2026-03-02T12:00:00.5+02:00"),
        claude("mode", 1, timestamp="2026-03-02T10:00:00"),
        claude("mode", 2, timestamp="yesterday"),
        claude("mode", 3, timestamp=5),
        claude("mode", 4, timestamp="0001-01-01T00:00:00+23:59"),
    )
    times = [event.time for event in read(store).events]
    assert times[:4] == [CLAUDE_START + 500, CLAUDE_START, CLAUDE_START, CLAUDE_START]
    assert times[4] == -62_135_683_140_000


def test_a_log_is_read_anew_once_its_records_make_other_events(
    tmp_path: Path, store: ClaudeCodeStore
) -> None:
    class Later(ClaudeCodeStore):
        mapping = ClaudeCodeStore.mapping + 1

    write(tmp_path / "p" / f"{MAIN}.jsonl", prompt(0, "hi"))
    before, later = store.read_tail(MAIN, None), Later(tmp_path)
    after = later.read_tail(MAIN, before.mark)
    assert after.snapshot.revision != before.snapshot.revision
    assert (after.appended, after.events) == (False, before.events)
    assert later.read_tail(MAIN, after.mark).appended
