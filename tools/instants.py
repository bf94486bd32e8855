"""Points in time as a model writes and reads them: ISO 8601, never without an offset.

Days are counted by the proleptic Gregorian calendar, which holds for every year of four digits and,
when times are shown, for those far beyond.
"""

from __future__ import annotations

import math
import re
from functools import total_ordering
from typing import Final

from attrs import frozen

_DAY_MS: Final = 86_400_000
_CALENDAR_MS: Final = 8_640_000_000_000_000
"""The last ms before and after the epoch that has a date: 100 million days."""

_CYCLE_DAYS: Final = 146_097
"""Days of 400 years, after which the calendar repeats."""

_DAYS_TO_EPOCH: Final = 719_468
"""Days from the first of March of the year 0 to the epoch."""

_FORM: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]+))?)?"
    r"(?:Z|([+-])([0-9]{2}):([0-9]{2}))"
)


@total_ordering
@frozen
class Instant:
    """A point in time, exact to any number of digits."""

    ms: int
    """Whole ms since the epoch."""
    rest: str = ""
    """The decimal digits below one ms, without zeros at the end."""

    def __lt__(self, other: Instant) -> bool:
        return (self.ms, self.rest) < (other.ms, other.rest)

    @property
    def as_lower_bound(self) -> float:
        """The smallest number that is not before this instant, among those next to its ms."""
        return math.nextafter(self.ms, math.inf) if self.rest else self.ms

    @property
    def as_upper_bound(self) -> float:
        """The largest number that is not after it, likewise."""
        return math.nextafter(self.ms + 1, -math.inf) if self.rest else self.ms


def parse_instant(text: str) -> Instant | None:
    """The instant that ``text`` names; ``None`` where it is no date and time with an offset.

    The form is ``YYYY-MM-DDThh:mm[:ss[.f…]](Z|±hh:mm)``, the date must exist, 24:00 and leap
    seconds do not.
    """
    found = _FORM.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute = map(int, found.group(1, 2, 3, 4, 5))
    second, fraction = int(found[6] or 0), found[7] or ""
    offset_hour, offset_minute = int(found[9] or 0), int(found[10] or 0)
    if not (1 <= month <= 12 and 1 <= day <= _days_of(year, month)):
        return None
    if max(hour, offset_hour) > 23 or max(minute, second, offset_minute) > 59:
        return None
    offset = (offset_hour * 60 + offset_minute) * (-1 if found[8] == "-" else 1)
    seconds = ((hour * 60 + minute - offset) * 60) + second
    ms = _days_from_date(year, month, day) * _DAY_MS + seconds * 1000
    return Instant(ms + int(fraction[:3].ljust(3, "0")), fraction[3:].rstrip("0"))


def show_instant(ms: int) -> str:
    """A time in ms since the epoch in UTC, to the ms; its number where no calendar has it."""
    if abs(ms) > _CALENDAR_MS:
        return str(ms)
    days, rest = divmod(ms, _DAY_MS)
    year, month, day = _date_from_days(days)
    seconds, milliseconds = divmod(rest, 1000)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{milliseconds:03}"
    shown = f"{year:04}" if 0 <= year <= 9999 else f"{year:+07}"
    return f"{shown}-{month:02}-{day:02}T{clock}Z"


def _days_of(year: int, month: int) -> int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31


# Years begin in March here, so that the leap day is the last one: the months before it then have
# lengths that one formula gives.


def _days_from_date(year: int, month: int, day: int) -> int:
    shifted = year - (month <= 2)
    months = (month - 3) % 12
    leap_days = shifted // 4 - shifted // 100 + shifted // 400
    return shifted * 365 + leap_days + (153 * months + 2) // 5 + day - 1 - _DAYS_TO_EPOCH


def _date_from_days(days: int) -> tuple[int, int, int]:
    cycle, rest = divmod(days + _DAYS_TO_EPOCH, _CYCLE_DAYS)
    year = (rest - rest // 1460 + rest // 36_524 - rest // 146_096) // 365
    day_of_year = rest - (365 * year + year // 4 - year // 100)
    months = (5 * day_of_year + 2) // 153
    month = months + 3 if months < 10 else months - 9
    return (
        cycle * 400 + year + (month <= 2),
        month,
        day_of_year - (153 * months + 2) // 5 + 1,
    )
