"""The scenarios, by name."""

from __future__ import annotations

from typing import Final

from .mixture import Mixture
from .operators import OPERATORS
from .reads import READS
from .recovery import RECOVERY
from .search import SEARCH
from .tools import TOOLS

SCENARIOS: Final[dict[str, Mixture]] = {
    scenario.name: scenario for scenario in (SEARCH, READS, RECOVERY, OPERATORS, TOOLS)
}
"""Every scenario that the command line runs by default."""
