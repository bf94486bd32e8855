"""What people see: titles, times in UTC, workspaces and highlighted matches, never markup."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO

from rich.console import Console
from rich.text import Text

from ..history.extraction import extract_text
from ..history.payload import payload
from ..messages.event import Event
from ..messages.header import SessionHeader
from ..messages.records import (
    EventRecord,
    EventSearchHit,
    EventSearchPage,
    EventTrace,
    EventWindow,
    IndexStatus,
    LineageTrace,
    SearchDocument,
    SessionRecord,
    SessionSearchHit,
    SessionSearchPage,
    SessionTitle,
    Skipped,
    Surface,
)
from .instants import show_instant
from .sources import AgentLogs
from .visible import block, one_line
from .watching import Change

_MATCH = "bold reverse"

_INDENTED = 32
"""Levels of a lineage that move to the right; deeper ones stay there."""


class Screen(Console):
    """A console that prints text as it is, never as markup, and does not end the process."""

    def __init__(self, file: IO[str]) -> None:
        super().__init__(file=file, markup=False, highlight=False, emoji=False, soft_wrap=True)

    def on_broken_pipe(self) -> None:
        """Let the caller decide how a program ends whose reader is gone."""
        raise

    def show(self, lines: Iterable[Text]) -> None:
        """Print the lines in one write."""
        if text := list(lines):
            self.print(Text("\n").join(text))


def show_sessions(
    screen: Screen, records: Iterable[SessionRecord], titles: Mapping[str, SessionTitle]
) -> None:
    """One line a session: when it was created, its id, title, workspace and descent."""
    headers = [record.header for record in records]
    width = max((len(header.id) for header in headers), default=0)
    screen.show(_session_line(header, titles, width) for header in headers)


def show_session_hits(
    screen: Screen,
    hits: Iterable[SessionSearchHit],
    titles: Mapping[str, SessionTitle],
    agent_of: Callable[[str], str | None],
) -> None:
    """Three lines a session: its title, where its strongest match stands, and the match."""
    for hit in hits:
        match, agent = hit.best_match, agent_of(hit.header.id)
        place = Text(f"{show_instant(match.time)}  {_workspace(hit.header)}  ", style="dim")
        if agent is not None:
            place.append(f"{agent}  ")
        place.append(one_line(match.session_id), style="not dim cyan").append(f" {_event(match)}")
        screen.show([_title(hit.header, titles), place, _snippet(match), Text()])


def show_event_hits(
    screen: Screen,
    header: SessionHeader,
    hits: Iterable[EventSearchHit],
    titles: Mapping[str, SessionTitle],
) -> None:
    """The session once, then two lines an event."""
    screen.show([_title(header, titles), Text(_workspace(header), style="dim"), Text()])
    for hit in hits:
        place = Text(f"{show_instant(hit.time)}  {_event(hit)}", style="dim")
        screen.show([place, _snippet(hit), Text()])


def show_events(screen: Screen, records: Iterable[EventRecord]) -> None:
    """One line an event: seq, time, where it stands, type."""
    screen.show(
        Text(f"{record.seq:>6}  {show_instant(record.time)}  {record.surface:<8}  ").append(
            one_line(record.type), style="cyan" if record.surface is Surface.CURRENT else "dim"
        )
        for record in records
    )


def show_window(screen: Screen, window: EventWindow) -> None:
    """Each event under a heading, the target's marked; the payload where an event has no text."""
    for event in window.events:
        mark, style = (">", "bold cyan") if event.seq == window.target.seq else (" ", "cyan")
        heading = f"{mark} {event.seq} {one_line(event.type)}  {show_instant(event.time)}"
        screen.show([Text(heading, style=style), Text(_body(event)), Text()])


def show_documents(screen: Screen, documents: Iterable[SearchDocument]) -> None:
    """Each event under a heading, with its text."""
    for document in documents:
        heading = f"{show_instant(document.time)}  {_event(document)}"
        screen.show([Text(heading, style="cyan"), Text(block(document.text)), Text()])


def lineage_lines(trace: LineageTrace) -> Iterator[tuple[int, SessionRecord]]:
    """The sessions of a lineage from its first ancestor down, each with its depth."""
    line = [*reversed(trace.ancestors), trace.target]
    yield from enumerate(line)
    for depth, record in trace.walk():
        yield len(line) - 1 + depth, record


def show_lineage(
    screen: Screen,
    trace: LineageTrace,
    lines: Iterable[tuple[int, SessionRecord]],
    titles: Mapping[str, SessionTitle],
) -> None:
    """One line a session, children below and to the right of their parent, the target marked."""
    shown: list[Text] = []
    for depth, record in lines:
        if depth == 0 and trace.unresolved_parent_id is not None:
            parent = one_line(trace.unresolved_parent_id)
            shown.append(Text(f"  {parent}  is not in the store", style="dim"))
        mark = "> " if record.header.id == trace.target.header.id else "  "
        line = Text(mark + "  " * min(depth, _INDENTED))
        line.append(one_line(record.header.id), style="cyan").append("  ")
        line.append(_title(record.header, titles))
        shown.append(line.append(f"  {show_instant(record.header.created_at)}", style="dim"))
    screen.show(shown)


def show_trace(screen: Screen, trace: EventTrace) -> None:
    """The event, then one line for each kind of relation that it has."""
    heading = f"{_event(trace.target)}  {show_instant(trace.target.time)}"
    relations = {
        "replaced by": trace.replacement_chain,
        "replaces": trace.replaced_event_seqs,
        "cites": trace.source_event_seqs,
        "cited by": trace.derived_event_seqs,
    }
    screen.show(
        [
            Text(heading, style="cyan"),
            *(
                Text(f"{name:<12}{', '.join(map(str, seqs))}")
                for name, seqs in relations.items()
                if seqs
            ),
        ]
    )


def show_resuming(screen: Screen, command: str | None) -> None:
    """The shell command that goes on with a session in its own agent, if there is one."""
    if command is not None:
        screen.show([Text("to go on with it:", style="dim").append(f" {one_line(command)}")])


def show_change(screen: Screen, change: Change) -> None:
    """One line: the generation, and the sessions that changed."""
    names = "".join(f"  {one_line(session_id)}" for session_id in change.sessions)
    screen.show([Text(f"generation {change.generation}").append(names, style="cyan")])


def show_index(screen: Screen, status: IndexStatus) -> None:
    """What an index holds, a line each."""
    lines = (
        f"file        {one_line(status.path)}",
        f"size        {status.size_bytes:,} bytes",
        f"tokenizer   {status.tokenizer}",
        f"generation  {status.generation}",
        f"sessions    {status.sessions:,}",
        f"documents   {status.documents:,}",
        f"left out    {len(status.skipped):,}",
        f"purged      {status.purged:,}",
    )
    screen.show(Text(line) for line in lines)


def show_agent_logs(screen: Screen, found: Sequence[AgentLogs]) -> None:
    """One line an agent: its name, how many sessions, how fresh, and where."""
    width = max((len(logs.agent) for logs in found), default=0)
    for logs in found:
        line = Text(logs.agent.ljust(width), style="cyan")
        line.append(f"  {logs.sessions:>7,} sessions", style="not cyan")
        newest = "" if logs.newest is None else f"newest {show_instant(logs.newest)}"
        line.append(f"  {newest:<27}  {one_line(logs.root)}", style="not cyan")
        if logs.skipped:
            line.append(f"  {logs.skipped:,} cannot be read", style="not cyan")
        screen.show([line])


def show_purged(screen: Screen, session_id: str) -> None:
    """That a session was removed from the index."""
    screen.show([Text(f"purged {one_line(session_id)}; a rebuild lets it in again")])


def show_exported(screen: Screen, path: str, sessions: int) -> None:
    """That an archive was written."""
    logs = "1 log" if sessions == 1 else f"{sessions} logs"
    screen.show([Text(f"wrote {logs} to {one_line(path)}")])


def tell(message: str) -> None:
    """Say one line on standard error."""
    print(one_line(message), file=sys.stderr)


def tell_skipped(skipped: Iterable[Skipped]) -> None:
    """Say what an answer left out, and why."""
    for item in skipped:
        tell(f"left out: {item.session_id or item.path}: {item.message}")


def tell_outcome(found: Sequence[SessionSearchPage] | Sequence[EventSearchPage]) -> None:
    """Say what a search left out, and that it found nothing, from its pages."""
    tell_skipped(found[-1].skipped)
    if not found[-1].searchable:
        tell("nothing searchable in this query")
    elif not any(page.items for page in found):
        tell("nothing found; the words are looked for side by side, each as a whole")


def _session_line(header: SessionHeader, titles: Mapping[str, SessionTitle], id_width: int) -> Text:
    line = Text(f"{show_instant(header.created_at)}  ")
    line.append(one_line(header.id).ljust(id_width), style="cyan").append("  ")
    line.append(_title(header, titles)).append(f"  {_workspace(header)}", style="dim")
    if header.parent_session is not None:
        descent = "subagent" if header.origin == "subagent" else "fork"
        line.append(f"  {descent} of {one_line(header.parent_session)}", style="dim")
    return line


def _title(header: SessionHeader, titles: Mapping[str, SessionTitle]) -> Text:
    found = titles.get(header.id)
    return Text(one_line(found.title), style="bold") if found else Text("untitled", style="italic")


def _workspace(header: SessionHeader) -> str:
    return "no workspace" if header.cwd is None else one_line(header.cwd)


def _event(record: EventRecord) -> str:
    place = "" if record.surface is Surface.CURRENT else f" ({record.surface})"
    return f"{record.seq} {one_line(record.type)}{place}"


def _snippet(hit: EventSearchHit) -> Text:
    snippet = Text(one_line(hit.snippet))
    if hit.match is not None:
        snippet.stylize(_MATCH, *hit.match)
    return snippet


def _body(event: Event) -> str:
    text = extract_text(event.type, payload(event))
    return block(text or event.raw.decode(errors="replace"))
