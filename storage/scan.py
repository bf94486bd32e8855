"""The lines of a log in order: which are events, where the log ends, and whether it is damaged.

Lines are taken until the first that is no record or not the next one. What follows is only looked
at: a later ``turn/end`` shows that the bad line lies inside what was once committed, so the log is
corrupt; without one, all from the bad line on is a torn tail and not part of the log
(persistence §4.2). A record too long, too deep or with endless numbers is neither: such a log is
intact, and unsupported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NoReturn

from ..history.legacy import message_id, modernise, needs_modernising
from ..messages.errors import InvalidJson, ReplayError, UnsupportedFormat
from ..messages.event import Event
from ..messages.header import FORMAT_VERSION, SessionHeader
from ..messages.json import Json
from .contract import CorruptLog, UnsupportedLog
from .json_line import RECORD_BYTES, NotARecord, UnsupportedRecord, read_object
from .records import BadRecord, read_events, usual_event

_RECOVERY_TRIES = 64
"""Places in a bad line at which a whole record is looked for."""


class Scan:
    """One walk over the lines of a log, from its beginning or from any line start behind it."""

    def __init__(
        self,
        place: str,
        header: SessionHeader,
        *,
        line: int,
        next_seq: int,
        earlier: Callable[[int], Event | None],
        handed_on: int = 0,
    ) -> None:
        """Begin behind ``line`` lines, where seq ``next_seq`` is due.

        ``place`` names the file in messages. ``earlier`` gives an event from before the beginning.
        Of the first ``handed_on`` bytes of lines the payloads are kept as well.
        """
        self.events: list[Event] = []
        self.payloads: dict[int, Json] = {}
        """Payloads by seq, decoded to see that they are JSON; some may be missing."""
        self.offset = 0
        """Where the accepted lines end, in bytes of text from where the walk began."""
        self.line = line
        """Lines that were looked at."""
        self.next_seq = next_seq
        self.sealed = False
        """Whether the lines to come were stored to their end, so that no bad one can be torn."""
        self.joins = True
        """Whether a whole record may stand behind a torn one on its line."""
        self.drops_records = False
        """Whether the torn tail holds a whole, decodable record."""
        self._place = place
        self._header = header
        self._version = header.version
        self._first_seq = next_seq
        self._earlier = earlier
        self._handed_on = handed_on
        self._issue: str | None = None
        self._issue_line = 0
        self._notes: list[str] = []

    @property
    def torn(self) -> bool:
        """Whether a bad line ended the log."""
        return self._issue is not None

    @property
    def accepted_lines(self) -> int:
        """Lines of the file up to ``offset``."""
        return self.line if self._issue is None else self._issue_line - 1

    def feed(self, lines: Iterable[bytes], stop: int) -> None:
        """Take complete lines, without their line ends, until the log reaches offset ``stop``.

        Raises:
            CorruptLog, UnsupportedLog
        """
        # In older logs a line may stand for several events, and an event may have an older shape.
        usual = self._version >= FORMAT_VERSION
        for line in lines:
            if self._issue is None:
                if self.offset >= stop:
                    return
                found = usual_event(line, self.next_seq) if usual else None
                if found is not None:
                    self.line += 1
                    self.offset += len(line) + 1
                    self.events.append(found[0])
                    if self.offset <= self._handed_on:
                        self.payloads[self.next_seq] = found[1]
                    self.next_seq += 1
                    continue
            self.line += 1
            try:
                self._take(line)
            except UnsupportedRecord as error:
                raise UnsupportedLog(f"{self._place} line {self.line}: {error}") from error

    def end(self, fragment: int, torn: str | None) -> None:
        """Note the bytes behind the last line end, and what else says that the log is torn."""
        if torn is not None:
            self._notes.append(torn)
        if fragment and self._issue is None:
            self._notes.append(f"line {self.line + 1}: {fragment} bytes without a line end")

    def refuse_length(self, length: int) -> NoReturn:
        """Refuse a next line that is too long to be held."""
        raise UnsupportedLog(
            f"{self._place} line {self.line + 1}: {length} bytes is longer than the limit of"
            f" {RECORD_BYTES}"
        )

    def refuse_fragment(self, length: int) -> NoReturn:
        """Refuse a next line that has no end although it was stored to its end."""
        raise self._corrupt(self.line + 1, f"its frame ends after {length} bytes of it")

    @property
    def left_out(self) -> str | None:
        """Which lines are not part of the log and why, or nothing."""
        notes = list(self._notes)
        if self._issue is not None:
            behind = self.line - self._issue_line
            more = f"; {behind} more lines behind it" if behind else ""
            notes.append(f"line {self._issue_line}: {self._issue}{more}")
        return f"{self._place} " + ", ".join(notes) if notes else None

    def _take(self, line: bytes) -> None:
        if self._issue is not None:
            self._look(line)
            return
        try:
            events = read_events(line, self._version, self.next_seq)
        except NotARecord as error:
            if self.sealed:
                raise self._corrupt(self.line, str(error)) from error
            recovered = self._recover(line) if self.joins else None
            if recovered is None:
                self._issue, self._issue_line = str(error), self.line
                self._look(line)
                return
            events = recovered
        except BadRecord as error:
            raise self._corrupt(self.line, str(error)) from error
        if self._version < FORMAT_VERSION:
            events = [self._modern(event) for event in events]
        self.events += events
        self.next_seq += len(events)
        self.offset += len(line) + 1

    def _look(self, line: bytes) -> None:
        try:
            row = read_object(line)
        except NotARecord:
            return
        if row.get("type") == "turn/end":
            assert self._issue is not None
            raise self._corrupt(self._issue_line, self._issue)
        self.drops_records |= _is_record(row)

    def _recover(self, line: bytes) -> list[Event] | None:
        """The whole record behind a torn one on the same line."""
        at = 0
        for _ in range(_RECOVERY_TRIES):
            at = line.find(b'{"type":"', at + 1)
            if at < 0:
                return None
            try:
                events = read_events(line[at:], self._version, self.next_seq)
            except (NotARecord, BadRecord):
                continue
            self._notes.append(f"line {self.line}: {at} bytes before a whole record")
            return events
        return None

    def _modern(self, event: Event) -> Event:
        if not needs_modernising(event.type):
            return event
        try:
            kind, raw = modernise(
                self._header.id,
                event.type,
                event.seq,
                event.raw,
                event.surface_op,
                self._message_id,
            )
        except (ReplayError, InvalidJson) as error:
            raise self._corrupt(self.line, str(error)) from error
        except UnsupportedFormat as error:
            raise UnsupportedLog(f"{self._place} line {self.line}: {error}") from error
        if kind is event.type and raw is event.raw:
            return event
        return Event(
            kind,
            event.seq,
            event.time,
            raw,
            event.surface_op,
            event.source_event_seqs,
            event.ignorable,
        )

    def _message_id(self, seq: int) -> str | None:
        at = seq - self._first_seq
        if at >= len(self.events):
            return None
        event = self.events[at] if at >= 0 else self._earlier(seq)
        return message_id(event) if event is not None else None

    def _corrupt(self, line: int, what: str) -> CorruptLog:
        return CorruptLog(f"{self._place} line {line}: {what}")


def _is_record(row: dict[str, Json]) -> bool:
    return isinstance(row.get("type"), str) and ("seq" in row or "seq0" in row)
