"""Taking notice of what becomes of other agents' logs, and of several stores, on a real disk."""

from __future__ import annotations

import errno
import gc
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from builders import header
from foreign_logs import MAIN, OTHER, THIRD, add, message, meta, prompt, texts, write
from jsonl_files import BODY, OsFilesAt, row, write_log
from other_process import Other
from store_contract import store_session, turns
from told_changes import begun, told

from session_query import IndexConfig, JsonlStore, MemoryStore, SessionQuery, open_session_query
from session_query.storage.claude_code import ClaudeCodeStore
from session_query.storage.codex import CodexStore
from session_query.storage.contract import Changes, SessionStore, StoreFailed, Sweep
from session_query.storage.files import FileStat, OpenFile
from session_query.storage.several import SeveralStores
from session_query.storage.zstandard import compress

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")

LATE = 1 << 62
"""A time at which no file is young."""

PROJECT = "-home-mara-shop"
DAY = "sessions/2026/03/02"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The logs of two sessions, and of an agent of the first."""
    claude = tmp_path / "claude" / "projects"
    write(claude / PROJECT / f"{MAIN}.jsonl", prompt(0, "one"))
    write(claude / PROJECT / f"{OTHER}.jsonl", prompt(0, "two", OTHER))
    write(claude / PROJECT / MAIN / "subagents" / "agent-a.jsonl", prompt(1, "three"))
    return tmp_path / "claude"


@pytest.fixture
def store(root: Path) -> Iterator[ClaudeCodeStore]:
    store = ClaudeCodeStore(root, files=OsFilesAt(LATE))
    yield store
    store.unwatch()


@pytest.fixture
def other() -> Iterator[Other]:
    other = Other()
    yield other
    other.end()


def calls(store: ClaudeCodeStore) -> int:
    """How often the disk was asked for anything."""
    files = store._files
    assert isinstance(files, OsFilesAt)
    return sum(files.calls.values())


# -- logs of another agent ------------------------------------------------------------------------


def test_an_unchanged_store_costs_one_look_at_its_root_however_large_it_is(
    root: Path, store: ClaudeCodeStore
) -> None:
    for number in range(50):
        session = f"{number:08}-1111-4111-8111-111111111111"
        write(root / "projects" / f"-p{number}" / f"{session}.jsonl", prompt(0, "hi", session))
    token = begun(store)
    before = calls(store)
    assert store.is_unchanged(token)
    assert calls(store) - before == 1
    assert told(store, token) == (set(), set(), token)
    assert calls(store) - before == 2


def test_a_log_that_grows_is_looked_at_alone(root: Path, store: ClaudeCodeStore) -> None:
    for number in range(50):
        session = f"{number:08}-1111-4111-8111-111111111111"
        write(root / "projects" / f"-p{number}" / f"{session}.jsonl", prompt(0, "hi", session))
    token = begun(store)
    before = calls(store)
    add(root / "projects" / PROJECT / f"{MAIN}.jsonl", prompt(2, "more"))
    assert not store.is_unchanged(token)
    changed, gone, token = told(store, token)
    assert (changed, gone) == ({MAIN}, set())
    assert calls(store) - before < 12
    assert store.is_unchanged(token)


def test_what_another_process_does_to_logs_is_told_at_once(
    root: Path, store: ClaudeCodeStore, other: Other
) -> None:
    token = begun(store)
    log = root / "projects" / PROJECT / f"{MAIN}.jsonl"
    for number in range(20):
        more = prompt(number + 2, "more") + b"\n"
        other.do(f"open({str(log)!r}, 'ab').write({more!r})")
        changed, gone, token = told(store, token)
        assert (changed, gone) == ({MAIN}, set())
    agents = log.with_suffix("") / "subagents"
    other.do(f"os.rename({str(agents)!r}, {str(root / 'aside')!r})")
    changed, gone, token = told(store, token)
    assert (changed, gone) == (set(), {f"{MAIN}/agent-a"})
    other.do(f"os.rename({str(root / 'aside')!r}, {str(agents)!r})")
    changed, gone, token = told(store, token)
    assert (changed, gone) == ({f"{MAIN}/agent-a"}, set())
    other.do(f"os.rename({str(log.parent)!r}, {str(log.parent.with_name('-else'))!r})")
    changed, gone, token = told(store, token)
    assert (changed, gone) == ({MAIN, OTHER, f"{MAIN}/agent-a"}, set())
    moved = log.parent.with_name("-else")
    other.do(f"os.unlink({str(moved / log.name)!r})")
    assert told(store, token)[1] == {MAIN}
    other.do(f"os.truncate({str(moved / f'{OTHER}.jsonl')!r}, 0)")
    changed, gone, token = told(store, token)
    assert OTHER in gone
    other.do(f"shutil.rmtree({str(moved)!r})")
    assert told(store, token)[1] == {f"{MAIN}/agent-a"}


def test_folders_that_appear_level_by_level_are_followed(
    root: Path, store: ClaudeCodeStore
) -> None:
    token = begun(store)
    folder = root / "projects" / PROJECT / OTHER
    folder.mkdir()
    token = told(store, token)[2]
    for name in ("subagents", "subagents/workflows", "subagents/workflows/wf_1"):
        (folder / name).mkdir()
        token = told(store, token)[2]
    write(folder / "subagents/workflows/wf_1/agent-b.jsonl", prompt(1, "new", OTHER))
    changed, _, token = told(store, token)
    assert changed == {f"{OTHER}/workflows/wf_1/agent-b"}
    add(folder / "subagents/workflows/wf_1/agent-b.jsonl", prompt(2, "more", OTHER))
    assert told(store, token)[0] == {f"{OTHER}/workflows/wf_1/agent-b"}


def test_files_that_are_no_logs_change_nothing(root: Path, store: ClaudeCodeStore) -> None:
    (root / "history.jsonl").write_text("{}\n")
    token = begun(store)
    before = calls(store)
    with (root / "history.jsonl").open("a") as history:
        history.write("{}\n")
    assert told(store, token) == (set(), set(), token)
    assert calls(store) - before < 5


def test_a_fork_is_told_when_its_original_goes_and_comes(
    root: Path, store: ClaudeCodeStore
) -> None:
    project = root / "projects" / PROJECT
    write(project / f"{THIRD}.jsonl", prompt(0, "one"), prompt(5, "own", THIRD))
    token = begun(store)
    assert texts(store, THIRD) == ["own"]
    (project / f"{MAIN}.jsonl").rename(root / "aside")
    changed, gone, token = told(store, token)
    assert (changed, gone) == ({THIRD}, {MAIN})
    assert texts(store, THIRD) == ["one", "own"]
    (root / "aside").rename(project / f"{MAIN}.jsonl")
    changed, gone, token = told(store, token)
    assert (changed, gone) == ({MAIN, THIRD}, set())
    assert texts(store, THIRD) == ["own"]


def test_damage_comes_and_goes_with_its_log(root: Path, store: ClaudeCodeStore) -> None:
    token = begun(store)
    log = root / "projects" / PROJECT / f"{OTHER}.jsonl"
    log.write_bytes(b"nonsense\n")
    changes = store.changes(token)
    assert changes is not None
    assert changes.gone == {OTHER}
    assert [damaged.path for damaged in changes.damaged] == [f"projects/{PROJECT}/{OTHER}.jsonl"]
    write(log, prompt(0, "two", OTHER))
    changes = store.changes(changes.token)
    assert changes is not None
    assert (set(changes.changed), changes.damaged) == ({OTHER}, ())


class Closed(OsFilesAt):
    """A disk on which logs may not be read for a while."""

    closed = False

    def open_reading(self, path: str) -> OpenFile:
        if self.closed:
            raise PermissionError(errno.EACCES, "not for you", path)
        return super().open_reading(path)


def test_a_log_that_may_not_be_read_any_more_is_named_and_found_again(root: Path) -> None:
    files = Closed(LATE)
    store = ClaudeCodeStore(root, files=files)
    token = begun(store)
    log = root / "projects" / PROJECT / f"{MAIN}.jsonl"
    for closed in (True, False):
        files.closed = closed
        log.chmod(0o600 if closed else 0o644)
        changes = store.changes(token)
        assert changes is not None
        assert (changes.gone, changes.changed) == (
            frozenset({MAIN} if closed else ()),
            frozenset(() if closed else {MAIN}),
        )
        assert len(changes.damaged) == closed
        token = changes.token
    store.unwatch()


def test_of_two_logs_of_one_session_the_longer_counts_as_they_grow(
    root: Path, store: ClaudeCodeStore
) -> None:
    second = write(root / "projects" / "-b" / f"{OTHER}.jsonl", prompt(0, "2", OTHER))
    token = begun(store)
    add(second, prompt(1, "much more", OTHER))
    assert told(store, token)[0] == {OTHER}
    found = store.stat(OTHER)
    assert found is not None
    assert found.location == f"projects/-b/{OTHER}.jsonl"


def test_a_log_with_a_second_name_or_behind_a_link_is_looked_at_each_time(
    root: Path, store: ClaudeCodeStore
) -> None:
    project = root / "projects" / PROJECT
    write(root.parent / "far", prompt(0, "far", THIRD))
    (project / f"{THIRD}.jsonl").symlink_to(root.parent / "far")
    (root.parent / "twin").hardlink_to(project / f"{OTHER}.jsonl")
    token = begun(store)
    assert not store.is_unchanged(token)
    add(root.parent / "far", prompt(1, "more", THIRD))
    changed, _, token = told(store, token)
    assert changed == {THIRD}
    add(root.parent / "twin", prompt(1, "more", OTHER))
    assert told(store, token)[0] == {OTHER}


def test_a_log_that_may_still_change_unseen_is_told_until_it_is_settled(root: Path) -> None:
    newest = max(path.stat().st_ctime_ns for path in root.rglob("*"))
    files = OsFilesAt(newest)
    store = ClaudeCodeStore(root, files=files)
    everything = {MAIN, OTHER, f"{MAIN}/agent-a"}
    token = begun(store)
    for _ in range(2):
        changed, _, token = told(store, token)
        assert changed == everything
    files.now = LATE
    changed, _, token = told(store, token)
    assert changed == everything
    assert told(store, token)[0] == set()
    assert store.is_unchanged(token)
    store.unwatch()


def test_a_queue_that_overflowed_begins_anew(root: Path, store: ClaudeCodeStore) -> None:
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if limit > 200_000:
        pytest.skip("the queue is too long to overflow it")
    one, two = (root / "projects" / PROJECT / f"{name}.jsonl" for name in (MAIN, OTHER))
    token = begun(store)
    for number in range(limit // 2 + 1):
        os.utime(one, ns=(number, number))
        os.utime(two, ns=(number, number))
    assert store.changes(token) is None
    token = begun(store)
    add(one, prompt(2, "more"))
    assert told(store, token)[0] == {MAIN}


@pytest.mark.parametrize("change", ["link", "gone", "moved"])
def test_where_nothing_can_be_told_a_sweep_has_to(
    root: Path, store: ClaudeCodeStore, change: str
) -> None:
    token = begun(store)
    if change == "link":
        (root / "projects" / "-b").symlink_to(PROJECT)
    elif change == "gone":
        shutil.rmtree(root)
    else:
        root.rename(root.with_name("away"))
    assert not store.is_unchanged(token)
    assert store.changes(token) is None
    assert not store.is_unchanged(token)


def test_a_link_that_comes_to_lead_to_a_folder_is_not_missed(
    root: Path, store: ClaudeCodeStore
) -> None:
    far = root.parent / "far"
    (root / "projects" / "-b").symlink_to(far)
    token = begun(store)
    assert not store.is_unchanged(token)
    assert told(store, token) == (set(), set(), token)
    write(far / f"{THIRD}.jsonl", prompt(0, "hi", THIRD))
    assert store.changes(token) is None
    assert THIRD in {found.header.id for found in store.sweep().snapshots}


def test_a_home_behind_a_link_is_followed_and_missed_when_it_leads_elsewhere(root: Path) -> None:
    link = root.with_name("link")
    link.symlink_to(root)
    store = ClaudeCodeStore(link, files=OsFilesAt(LATE))
    token = begun(store)
    add(root / "projects" / PROJECT / f"{MAIN}.jsonl", prompt(2, "more"))
    changed, _, token = told(store, token)
    assert changed == {MAIN}
    link.unlink()
    shutil.copytree(root, root.with_name("copy"))
    link.symlink_to(root.with_name("copy"))
    assert not store.is_unchanged(token)
    assert store.changes(token) is None
    store.unwatch()


def test_no_descriptor_stays_behind(root: Path) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    store = ClaudeCodeStore(root, files=OsFilesAt(LATE))
    before = descriptors()
    begun(store)
    assert descriptors() > before
    store.unwatch()
    assert descriptors() == before
    (root / "projects" / "-b").symlink_to(PROJECT)
    assert store.changes(None) is None
    assert descriptors() == before


def test_beginning_anew_keeps_nothing_of_earlier_beginnings(
    root: Path, store: ClaudeCodeStore
) -> None:
    def stores() -> int:
        gc.collect()
        return sum(
            isinstance(found, ClaudeCodeStore) and found.root == store.root
            for found in gc.get_objects()
        )

    link = root / "projects" / "-b"
    for _ in range(3):
        begun(store)
        assert stores() == 2
        link.symlink_to(PROJECT)
        assert store.changes(None) is None
        assert store.changes(None) is None
        assert stores() == 1
        link.unlink()
    begun(store)
    store.unwatch()
    assert stores() == 1


def test_a_session_that_only_a_sweep_saw_is_told_to_be_gone(
    root: Path, store: ClaudeCodeStore
) -> None:
    token = told(store, begun(store))[2]
    log = write(root / "projects" / PROJECT / f"{THIRD}.jsonl", prompt(0, "hi", THIRD))
    assert THIRD in {found.header.id for found in store.sweep().snapshots}
    log.unlink()
    assert not store.is_unchanged(token)
    changed, gone, token = told(store, token)
    assert (changed, gone) == (set(), {THIRD})
    store.sweep()
    assert store.is_unchanged(token)


class Interrupted(OsFilesAt):
    """The real disk, on which something happens once while a log is looked at."""

    log: Path | None = None

    def stat(self, path: str) -> FileStat:
        if self.log is not None and path == str(self.log):
            self.log = None
            self.happen()
        return super().stat(path)

    def happen(self) -> None:
        raise NotImplementedError


def test_a_look_that_ends_late_brings_back_no_session(root: Path) -> None:
    project = root / "projects" / PROJECT
    write(project / f"{THIRD}.jsonl", prompt(0, "one"), prompt(5, "own", THIRD))

    class Removing(Interrupted):
        def happen(self) -> None:
            (project / f"{MAIN}.jsonl").unlink()
            assert told(store, token)[:2] == ({THIRD}, {MAIN})

    files = Removing(LATE)
    store = ClaudeCodeStore(root, files=files)
    token = begun(store)
    files.log = project / f"{OTHER}.jsonl"
    # Looked at in the order of their names: the first is still there when the second is reached.
    assert store.stat("nobody") is None
    assert files.log is None
    assert texts(store, THIRD) == ["one", "own"]
    store.unwatch()


def test_a_rollout_that_is_compressed_is_told(tmp_path: Path) -> None:
    plain = write(tmp_path / DAY / f"rollout-{MAIN}.jsonl", meta(), message(1, "user", "hi"))
    store = CodexStore(tmp_path, files=OsFilesAt(LATE))
    token = begun(store)
    plain.with_suffix(".jsonl.zst").write_bytes(compress(plain.read_bytes()))
    plain.unlink()
    changed, gone, token = told(store, token)
    assert (changed, gone) == ({MAIN}, set())
    write(tmp_path / "sessions/2026/04/01" / f"rollout-{OTHER}.jsonl", meta(OTHER))
    assert told(store, token)[0] == {OTHER}
    store.unwatch()


# -- several stores -------------------------------------------------------------------------------


class Failing(MemoryStore):
    """A store that can be made to fail."""

    fails = False

    def sweep(self) -> Sweep:
        if self.fails:
            raise StoreFailed("out of order")
        return super().sweep()


@pytest.fixture
def codex(tmp_path: Path) -> Path:
    write(tmp_path / "codex" / DAY / f"rollout-{THIRD}.jsonl", meta(THIRD))
    return tmp_path / "codex"


@pytest.fixture
def several(root: Path, codex: Path) -> Iterator[SeveralStores]:
    several = SeveralStores(
        {
            "claude": ClaudeCodeStore(root, files=OsFilesAt(LATE)),
            "codex": CodexStore(codex, files=OsFilesAt(LATE)),
        }
    )
    yield several
    several.unwatch()


def test_each_source_tells_what_changed_in_it(
    root: Path, codex: Path, several: SeveralStores
) -> None:
    token = begun(several)
    assert several.is_unchanged(token)
    add(root / "projects" / PROJECT / f"{MAIN}.jsonl", prompt(2, "more"))
    assert not several.is_unchanged(token)
    changed, gone, token = told(several, token)
    assert (changed, gone) == ({MAIN}, set())
    add(codex / DAY / f"rollout-{THIRD}.jsonl", message(1, "user", "hi"))
    (root / "projects" / PROJECT / f"{OTHER}.jsonl").unlink()
    changed, gone, token = told(several, token)
    assert (changed, gone) == ({THIRD}, {OTHER})
    assert several.is_unchanged(token)


def test_what_is_told_is_what_a_sweep_finds(
    root: Path, codex: Path, several: SeveralStores
) -> None:
    token = begun(several)
    before = {found.header.id: found for found in several.sweep().snapshots}
    add(root / "projects" / PROJECT / f"{MAIN}.jsonl", prompt(2, "more"))
    write(codex / DAY / f"rollout-{OTHER}.jsonl", meta(OTHER, forked_from_id=MAIN))
    changed, gone, _ = told(several, token)
    stats = {session_id: several.stat(session_id) for session_id in changed}
    after = {found.header.id: found for found in several.sweep().snapshots}
    assert changed == {one for one, found in after.items() if found != before.get(one)}
    assert (changed, gone) == ({MAIN, f"codex:{OTHER}"}, set())
    assert stats == {one: after[one] for one in changed}


def test_an_id_that_becomes_free_or_taken_is_told(
    root: Path, codex: Path, several: SeveralStores
) -> None:
    write(codex / DAY / f"rollout-{MAIN}.jsonl", meta(MAIN))
    token = begun(several)
    log = root / "projects" / PROJECT / f"{MAIN}.jsonl"
    log.rename(root / "aside")
    changed, gone, token = told(several, token)
    assert (changed, gone) == ({MAIN}, {f"codex:{MAIN}"})
    assert several.source_of(MAIN) == ("codex", MAIN)
    (root / "aside").rename(log)
    changed, gone, token = told(several, token)
    assert (changed, gone) == ({MAIN, f"codex:{MAIN}"}, set())
    assert several.source_of(MAIN) == ("claude", MAIN)


def test_a_source_that_tells_nothing_is_swept_each_time(root: Path) -> None:
    silent = MemoryStore()
    several = SeveralStores(
        {"claude": ClaudeCodeStore(root, files=OsFilesAt(LATE)), "memory": silent},
        created_in="memory",
    )
    token = begun(several)
    assert not several.is_unchanged(token)
    assert told(several, token)[:2] == (set(), set())
    store_session(silent, turns(1), header("new"))
    changed, gone, token = told(several, token)
    assert (changed, gone) == ({"new"}, set())
    assert told(several, token)[:2] == (set(), set())
    several.unwatch()
    assert SeveralStores({"memory": silent}).changes(None) is None


def test_a_source_that_fails_is_named_and_hides_no_other(root: Path) -> None:
    failing = Failing()
    store_session(failing, turns(1), header("new"))
    claude = ClaudeCodeStore(root, files=OsFilesAt(LATE))
    several = SeveralStores({"claude": claude, "memory": failing})
    token = begun(several)
    failing.fails = True
    add(root / "projects" / PROJECT / f"{MAIN}.jsonl", prompt(2, "more"))
    changes = several.changes(token)
    assert changes is not None
    assert (set(changes.changed), set(changes.gone)) == ({MAIN}, {"new"})
    assert [damaged.message for damaged in changes.damaged] == ["memory: out of order"]
    failing.fails = False
    changes = several.changes(changes.token)
    assert changes is not None
    assert (set(changes.changed), set(changes.gone), changes.damaged) == ({"new"}, set[str](), ())
    several.unwatch()


class Unswept(ClaudeCodeStore):
    """A store that tells of changes and cannot be swept afterwards."""

    fails = False

    def changes(self, token: str | None) -> Changes | None:
        changes, self.fails = super().changes(token), True
        return changes

    def sweep(self) -> Sweep:
        if self.fails:
            raise StoreFailed("out of order")
        return super().sweep()


def test_sources_that_do_not_come_to_be_followed_leave_no_descriptor_behind(root: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    unswept: SessionStore = Unswept(root, files=OsFilesAt(LATE))
    assert SeveralStores({"claude": unswept}).changes(None) is None
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_session_that_only_a_sweep_of_all_saw_is_told_to_be_gone(
    root: Path, several: SeveralStores
) -> None:
    token = told(several, begun(several))[2]
    log = write(root / "projects" / "-b" / "passing.jsonl", prompt(0, "hi", "passing"))
    assert "passing" in {found.header.id for found in several.sweep().snapshots}
    log.unlink()
    changed, gone, _ = told(several, token)
    assert (changed, gone) == (set(), {"passing"})


def test_a_source_that_cannot_tell_any_more_begins_anew_and_loses_nothing(
    root: Path, codex: Path, several: SeveralStores
) -> None:
    token = begun(several)
    codex.rename(codex.with_name("old"))
    write(codex / DAY / f"rollout-{OTHER}.jsonl", meta(OTHER))
    add(root / "projects" / PROJECT / f"{MAIN}.jsonl", prompt(2, "more"))
    changed, gone, token = told(several, token)
    assert (changed, gone) == ({MAIN, f"codex:{OTHER}"}, {THIRD})
    assert several.is_unchanged(token)
    add(codex / DAY / f"rollout-{OTHER}.jsonl", message(1, "user", "hi"))
    assert told(several, token)[0] == {f"codex:{OTHER}"}


def test_stores_of_our_own_tell_beside_others(tmp_path: Path, root: Path) -> None:
    log = write_log(tmp_path / "ours", BODY, b"")
    ours = JsonlStore(tmp_path / "ours", files=OsFilesAt(LATE))
    several = SeveralStores({"ours": ours, "claude": ClaudeCodeStore(root, files=OsFilesAt(LATE))})
    token = begun(several)
    log.write_bytes(log.read_bytes() + row(3, "demo/note", {}, ignorable=True) + b"\n")
    assert told(several, token)[0] == {"s"}
    several.unwatch()


async def test_an_unchanged_search_over_several_stores_looks_at_their_roots_alone(
    root: Path, codex: Path, other: Other
) -> None:
    files = OsFilesAt(LATE)
    claude = ClaudeCodeStore(root, files=files)
    store = SeveralStores({"claude": claude, "codex": CodexStore(codex, files=files)})
    index = IndexConfig(path=":memory:", open_at="startup")
    async with open_session_query(store=store, index=index) as query:
        await query.refresh()
        with trio.fail_after(10):
            while not query.statistics().notified:  # noqa: ASYNC110 - nobody tells
                await trio.sleep(0.001)
        assert await found(query, "two") == [OTHER]
        files.calls.clear()
        for _ in range(5):
            assert await found(query, "two") == [OTHER]
        assert files.calls.total() <= 5 * 2 * 2
        log, more = root / "projects" / PROJECT / f"{MAIN}.jsonl", prompt(2, "a novel word") + b"\n"
        other.do(f"open({str(log)!r}, 'ab').write({more!r})")
        assert await found(query, "novel") == [MAIN]
        other.do(f"os.unlink({str(log)!r})")
        assert await found(query, "novel") == []


async def found(query: SessionQuery, words: str) -> list[str]:
    return [hit.header.id for hit in (await query.search_sessions(words)).items]
