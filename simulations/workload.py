"""The workload: one small role a function, each a task that does a few steps and ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from random import Random
from typing import Final

import trio

from ..actors.live_session import LiveSession
from ..messages.errors import SessionQueryError
from ..messages.header import FORMAT_VERSION, SessionHeader
from .history import Call, Log, Sitting
from .logs import draw_drafts, draw_events, inherited, is_between_turns, resumed
from .oracle import question_of
from .questions import Question, draw_question
from .stage import IDS, STORES, Stage
from .verdict import Violation

Role = Callable[[Stage, str], Awaitable[None]]
Opening = tuple[Sitting, AbstractAsyncContextManager[LiveSession]]
"""A session that is about to be live, and how it becomes so."""

_MOST_PAGES: Final = 6


def populate(stage: Stage) -> None:
    """Store some sessions in each of the stores before anything begins."""
    rng = stage.world.stream("population")
    for store in STORES:
        for session_id in rng.sample(IDS, min(len(IDS), stage.configuration.sessions)):
            events = draw_events(rng, stage.voice, (), rng.randint(1, 6))
            stage.hand.write(store, stage.hand.header_of(session_id), events)


# -- sessions ---------------------------------------------------------------------------------


async def write(stage: Stage, who: str) -> None:
    """Hold sessions live, one after the other, and commit to them."""
    rng = stage.world.stream(who)
    for _ in range(1 + stage.configuration.steps // 4):
        await stage.think(rng)
        if stage.closing:
            return
        opening = draw_opening(stage, rng)
        if opening is not None:
            sitting, manager = opening
            with stage.asking(who, "sit", (sitting.header.id, sitting.store or "nowhere")):
                body = partial(_talk, stage, who, rng)
                await stage.sit(who, sitting, manager, body)


def draw_opening(stage: Stage, rng: Random) -> Opening | None:
    """A session to be opened now, and how; nothing where that makes no sense."""
    history, store = stage.history, stage.history.bound
    session_id = rng.choice(IDS)
    torn = (store, session_id) in stage.hand.torn
    if history.sitting(session_id) is not None or torn:
        return None
    base = history.current(store, session_id) if store is not None else None
    header = base.header if base is not None else stage.hand.header_of(session_id)
    if base is not None and base.damage is None and rng.random() < 0.8:
        return resuming(stage, base)
    durable = base is None and store is not None and rng.random() < 0.9
    elsewhere = any((root, session_id) in stage.hand.torn for root in STORES)
    if elsewhere or (not durable and rng.random() < 0.5):
        return None
    return creating(stage, header, durable=durable)


def resuming(stage: Stage, base: Log) -> Opening:
    """Go on with what the bound store holds of a session."""
    asked, now = stage.history.change(base.header.id), stage.probe.now_ms()
    opening = resumed(base.events, now)
    sitting = Sitting(base.header, stage.history.bound, asked, base, opening, base.inherited)
    return sitting, stage.query.sessions.resume(base.header.id)


def creating(stage: Stage, header: SessionHeader, *, durable: bool) -> Opening:
    """Begin a session, in the bound store if ``durable``."""
    asked, store = stage.history.change(header.id), stage.history.bound
    sitting = Sitting(header, store if durable else None, asked, None, durable=durable)
    manager = stage.query.sessions.create(
        id=header.id,
        created_at=header.created_at,
        cwd=header.cwd,
        parent=header.parent_session,
        durable=durable,
    )
    return sitting, manager


async def _talk(stage: Stage, who: str, rng: Random, live: LiveSession, sitting: Sitting) -> None:
    """Commit and flush, sometimes two at once, and fork."""
    if rng.random() < 0.3:
        async with trio.open_nursery() as nursery:
            for number in range(2):
                nursery.start_soon(_commit_some, stage, f"{who}.{number}", live, sitting)
    else:
        await _commit_some(stage, who, live, sitting)
    if rng.random() < 0.3 and not stage.closing:
        await _fork(stage, who, rng, live, sitting)
    if rng.random() < 0.5:
        await stage.flush(who, live, sitting)


async def _commit_some(stage: Stage, who: str, live: LiveSession, sitting: Sitting) -> None:
    rng = stage.world.stream(f"talk {who}")
    for _ in range(rng.randint(1, 3)):
        drafts = draw_drafts(rng, stage.voice, sitting.known, rng.randint(0, 3))
        await stage.commit(who, live, sitting, drafts)
        if rng.random() < 0.3:
            await stage.flush(who, live, sitting)
        await stage.think(rng)


async def _fork(stage: Stage, who: str, rng: Random, live: LiveSession, parent: Sitting) -> None:
    """Begin a session with what this one has, commit to it, and end it."""
    lengths = forkable(parent)
    if not lengths:
        return
    kept = rng.choice(lengths)
    sitting, manager = forking(stage, live, parent, kept)
    with stage.asking(who, "fork", (parent.header.id, kept, sitting.header.id)):
        await stage.sit(who, sitting, manager, partial(_commit_to_fork, stage, who))


def forkable(parent: Sitting) -> list[int]:
    """How many events of a live session a fork may keep."""
    known = parent.known
    return [length for length in range(1, len(known) + 1) if is_between_turns(known[:length])]


def forking(stage: Stage, live: LiveSession, parent: Sitting, kept: int) -> Opening:
    """Begin a session with the first events of a live one."""
    stage.forks += 1
    now = stage.probe.now_ms()
    header = SessionHeader(
        f"f{stage.forks}",
        now,
        FORMAT_VERSION,
        cwd=parent.header.cwd,
        parent_session=parent.header.id,
        is_seeded=True,
    )
    sitting = Sitting(
        header,
        stage.history.bound,
        stage.history.change(header.id),
        None,
        inherited(parent.known[:kept], now),
        kept,
    )
    return sitting, stage.query.sessions.fork(live, kept - 1, new_id=header.id)


async def _commit_to_fork(stage: Stage, who: str, live: LiveSession, sitting: Sitting) -> None:
    await _commit_some(stage, f"{who}.fork", live, sitting)


# -- callers ----------------------------------------------------------------------------------


async def search(stage: Stage, who: str) -> None:
    """Ask questions and page through the answers, slowly; sometimes take up an old cursor."""
    rng = stage.world.stream(who)
    pages: list[Call] = []
    for _ in range(stage.configuration.steps):
        await stage.think(rng)
        if stage.closing:
            return
        before = None
        if pages and rng.random() < 0.7:
            before = rng.choice((pages[-1], pages[-1], rng.choice(pages)))
        call = await ask_question(stage, who, rng, before)
        if cursor_of(call) is not None:
            pages.append(call)


async def ask_question(stage: Stage, who: str, rng: Random, before: Call | None) -> Call:
    """A new question, or the next page of an old one."""
    question = draw_question(rng, stage.history.ids) if before is None else question_of(before)
    return await ask_page(stage, who, question, before)


async def ask_page(stage: Stage, who: str, question: Question, before: Call | None = None) -> Call:
    """The first page of a question, or the one behind ``before``."""
    cursor = cursor_of(before) if before is not None else None
    query = stage.query

    async def ask() -> object:
        if question.session_id is None:
            return await query.search_sessions(
                question.query,
                session_filters=question.session_filters,
                event_filters=question.event_filters,
                limit=question.limit,
                cursor=cursor,
            )
        return await query.search_events(
            question.session_id,
            question.query,
            filters=question.event_filters,
            limit=question.limit,
            cursor=cursor,
        )

    call = await stage.request(who, "search", (question,), ask, before=before)
    if before is not None and call.error is not None:
        stage.world.marks.hit("a stale cursor")
    if before is not None and call.reply is not None:
        stage.world.marks.hit("a further page")
    return call


def cursor_of(call: Call) -> str | None:
    """Where the next page begins, if this was a search that has one."""
    return getattr(call.reply, "next_cursor", None)


async def read(stage: Stage, who: str) -> None:
    """Read sessions in every way there is."""
    rng = stage.world.stream(who)
    for _ in range(stage.configuration.steps):
        await stage.think(rng)
        if stage.closing:
            return
        await read_something(stage, who, rng)


async def read_something(stage: Stage, who: str, rng: Random) -> None:
    """One read, or a listing, or a refresh."""
    session_id = rng.choice((*IDS, *stage.history.ids))
    seq, before, after = rng.randint(-1, 6), rng.randint(0, 3), rng.randint(0, 3)
    what = rng.choice((*sorted(READS), *["read_session", "list_events", "list"] * 2))
    await ask_read(stage, who, what, session_id, seq, before, after)


READS: Final = (
    *("lineage", "list", "list_events", "read_event", "read_session", "read_surface"),
    *("read_title", "refresh", "trace_event"),
)
"""What ``ask_read`` knows."""


async def ask_read(
    stage: Stage, who: str, what: str, session_id: str, seq: int, before: int = 0, after: int = 0
) -> Call:
    """One of ``READS``; most look at one session alone."""
    query = stage.query
    reads: dict[str, tuple[tuple[object, ...], Callable[[], Awaitable[object]]]] = {
        "read_session": ((session_id,), partial(query.read_session, session_id)),
        "list_events": ((session_id,), partial(query.list_events, session_id)),
        "read_surface": ((session_id,), partial(query.read_surface, session_id)),
        "read_event": (
            (session_id, seq, before, after),
            partial(query.read_event, session_id, seq, before, after),
        ),
        "trace_event": ((session_id, seq), partial(query.trace_event, session_id, seq)),
        "read_title": ((session_id,), partial(query.read_title, session_id)),
        "list": ((), query.list_sessions),
        "lineage": ((session_id,), partial(query.trace_session, session_id)),
        "refresh": ((), query.refresh),
    }
    arguments, ask = reads[what]
    return await stage.request(who, what, arguments, ask)


async def observe(stage: Stage, who: str) -> None:
    """Hold leases on sessions, which show the same as long as they are held."""
    rng = stage.world.stream(who)
    for _ in range(1 + stage.configuration.steps // 2):
        await stage.think(rng)
        if stage.closing:
            return
        session_id = rng.choice((*IDS, *stage.history.ids))
        manager = stage.query.observe_session(session_id)
        with stage.asking(who, "observe", (session_id,)) as call:
            try:
                lease = await manager.__aenter__()
            except SessionQueryError as error:
                call.error = error
                continue
            call.reply = lease.header, tuple(lease.events)
        if call.reply is None:
            continue
        try:
            await stage.think(rng)
            if (lease.header, tuple(lease.events)) != call.reply:
                raise Violation(f"{call} shows something else than it did")
        finally:
            await manager.__aexit__(None, None, None)


async def watch(stage: Stage, who: str) -> None:
    """Wait for generations, one after the other, until the service closes."""
    rng, seen = stage.world.stream(who), stage.query.generation
    stage.watchers += 1
    try:
        while not stage.closing:
            call = stage.history.ask(who, "news", seen)
            try:
                call.reply = seen = await stage.query.wait_for_generation(seen)
            except SessionQueryError:
                if not stage.closing:
                    raise
                return
            stage.history.answer(call)
            stage.world.marks.hit("news of a generation")
            await stage.think(rng)
    finally:
        stage.watchers -= 1


# -- others -----------------------------------------------------------------------------------


async def meddle(stage: Stage, who: str) -> None:
    """Change logs behind the back of the service."""
    rng = stage.world.stream(who)
    for _ in range(stage.configuration.steps):
        await stage.think(rng)
        _change_something(stage, rng)


def _change_something(stage: Stage, rng: Random) -> None:
    if stage.life.crashed:
        return
    store, moves = rng.choice((STORES[0], *STORES)), stage.configuration.moves
    if moves and rng.random() < moves:
        move_session(stage, rng, store, rng.choice(stage.history.ids or IDS))
        return
    done = stage.hand.meddle(rng, store, rng.choice(IDS))
    if done:
        stage.world.trace.note(f"somebody {done}")


def move_session(stage: Stage, rng: Random, store: str, session_id: str) -> None:
    """Put a session in another workspace, if it is free."""
    done = "" if stage.life.crashed else stage.hand.move(rng, store, session_id)
    if done:
        stage.world.trace.note(f"somebody {done}")


async def meddle_inside(stage: Stage, who: str) -> None:
    """Change logs in the middle of what the service does with the disk."""
    rng = stage.world.stream(who)
    for _ in range(stage.configuration.meddle):
        await stage.think(rng)
        change = partial(_change_something, stage, rng)
        stage.world.meddle(rng.randint(1, 20), change)
        stage.world.marks.hit("a write in the middle of a call")


async def change_in_bursts(stage: Stage, who: str) -> None:
    """Change one session again and again in the middle of what the service does with the disk."""
    rng = stage.world.stream(who)
    for _ in range(stage.configuration.bursts):
        await stage.think(rng)
        store, session_id, at = stage.history.bound or STORES[0], rng.choice(IDS), 0
        for _ in range(rng.randint(2, 4)):
            at += rng.randint(1, 12)
            stage.world.meddle(at, partial(_change_session, stage, rng, store, session_id))
        stage.world.marks.hit("a write in the middle of a call")


def _change_session(stage: Stage, rng: Random, store: str, session_id: str) -> None:
    done = "" if stage.life.crashed else stage.hand.meddle(rng, store, session_id)
    if done:
        stage.world.trace.note(f"somebody {done}")


async def remount(stage: Stage, who: str) -> None:
    """Take the store away, or put the other one in its place."""
    rng = stage.world.stream(who)
    for _ in range(stage.configuration.mounts):
        await stage.think(rng)
        if stage.closing:
            return
        bind(stage, who, rng.choice((*STORES, *STORES, None)))


def bind(stage: Stage, who: str, store: str | None) -> None:
    """Mount a store, or take away the one that is there."""
    if store is None:
        stage.query.unmount()
    else:
        stage.query.mount(stage.store(store))
    if store is not None or stage.history.bound is not None:
        stage.history.bind(store)
        stage.world.trace.note(f"{who} binds {store}")
    stage.world.marks.hit("another store")


async def cancel(stage: Stage, who: str) -> None:
    """Cancel requests that are under way, at any step."""
    rng = stage.world.stream(who)
    for _ in range(stage.configuration.cancels):
        await trio.sleep(round(rng.random() ** 2 * stage.configuration.think, 4))
        if stage.open:
            number = rng.choice(sorted(stage.open))
            stage.world.trace.note(f"{who} cancels #{number}")
            stage.open[number].cancel()
            stage.world.marks.hit("a request is cancelled")


async def crash(stage: Stage, who: str) -> None:
    """Cut the power or kill the process, at any step or in the middle of a call."""
    rng = stage.world.stream(who)
    await trio.sleep(round(rng.random() ** 2 * 3 * stage.configuration.think, 4))
    end = rng.choice((stage.world.crash, stage.world.crash, stage.world.kill))

    def die() -> None:
        if not stage.life.crashed:
            stage.world.marks.hit("a crash with requests under way" if stage.open else "a crash")
            end()

    if rng.random() < 0.5:
        die()
    else:
        stage.world.meddle(rng.randint(1, 12), die)


ROLES: Final[dict[str, tuple[Role, Callable[[Stage], int]]]] = {
    "writer": (write, lambda stage: stage.configuration.writers),
    "searcher": (search, lambda stage: stage.configuration.searchers),
    "reader": (read, lambda stage: stage.configuration.readers),
    "observer": (observe, lambda stage: stage.configuration.observers),
    "outsider": (meddle, lambda stage: stage.configuration.outsiders),
    "inside": (meddle_inside, lambda stage: min(1, stage.configuration.meddle)),
    "binder": (remount, lambda stage: min(1, stage.configuration.mounts)),
    "canceller": (cancel, lambda stage: min(1, stage.configuration.cancels)),
    "burster": (change_in_bursts, lambda stage: min(1, stage.configuration.bursts)),
}
"""Every role that comes to an end by itself, and how many tasks play it."""
