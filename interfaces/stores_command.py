"""The command that shows whose sessions are found where nothing is named."""

from __future__ import annotations

import sys

from . import json_lines, pages
from .commands import JsonOption, app, reading
from .sources import AgentLogs, places


@app.command
async def stores(*, json: JsonOption = False) -> None:
    """Show which agents of this user have logs, where, how many sessions, and how fresh."""
    found: list[AgentLogs] = []
    for place in places():
        async with reading(place.agent.store(place.root)) as service:
            listing = await service.list_sessions()
        newest = max((record.header.created_at for record in listing.sessions), default=None)
        skipped, count = len(listing.skipped), len(listing.sessions)
        agent = place.agent
        found.append(AgentLogs(agent.name, agent.title, place.root, count, newest, skipped))
    if json:
        json_lines.write_records(found)
    else:
        pages.show_agent_logs(pages.Screen(sys.stdout), found)
