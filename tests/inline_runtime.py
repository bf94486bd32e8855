"""The simulated runtime as tests use it: prompt and even, without threads, in virtual time."""

from __future__ import annotations

from session_query.simulations.runtime import SimulatedRuntime as InlineRuntime
from session_query.simulations.runtime import Wait, lasting

__all__ = ["InlineRuntime", "Wait", "lasting"]
