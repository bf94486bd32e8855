"""Hooks of the host: functions that are not ours, kept from taking more down than themselves."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ..messages.json import Json

_log = logging.getLogger(__name__)


def forgiving(extract: Callable[[str, Json], str]) -> Callable[[str, Json], str]:
    """``extract``, with no text for an event that it fails on; the failure is logged."""

    def extracted(event_type: str, data: Json) -> str:
        try:
            return extract(event_type, data)
        except Exception:
            _log.warning("extract failed on an event of type %r", event_type, exc_info=True)
            return ""

    return extracted
