"""What a system prompt says of the tools."""

from __future__ import annotations

from typing import Final

PROMPT_SECTION: Final = "tool:session-query"
"""The name of the section."""

PROMPT_TEXT: Final = (
    "You can look things up in the logs of earlier sessions of this workspace. session_search finds"
    " the sessions where something was said or done. session_event_search finds the events of one"
    " session; without session_id, those of the current session before this step, also where they"
    " were compacted out of your context. Both show a limited number of matches and no further"
    " pages, so narrow the query where there are more. From a promising match go on with"
    " session_event_read for the exact event and its neighbours, session_event_trace for what it"
    " replaced and cites, or session_trace for the sessions it came from and led to."
)

WORKSPACE_PROMPT_TEXT: Final = PROMPT_TEXT.replace(
    "; without session_id, those of the current session before this step, also where they"
    " were compacted out of your context",
    ", compacted ones too",
)
"""The same for callers without a session of their own."""
