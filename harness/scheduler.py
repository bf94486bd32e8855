"""The scheduler: the calls of one model turn, exclusive ones alone, parallel ones side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import trio
from attrs import define, field
from trio.lowlevel import checkpoint

from ..actors.nursery import PlainNursery
from ..messages.config import SchedulerConfig
from .execution import Execution, ToolCall
from .outcome import NEVER_DISPATCHED, Outcome
from .registry import ToolRegistry


@define(eq=False)
class _Slot:
    """The place of one call in the answer."""

    call: ToolCall
    execution: Execution | None = None
    outcome: Outcome | None = None

    async def run(self) -> None:
        assert self.execution is not None
        self.outcome = await self.execution.run()

    @property
    def answer(self) -> Outcome:
        if self.outcome is not None:
            return self.outcome
        return NEVER_DISPATCHED if self.execution is None else self.execution.if_cancelled


@define(eq=False)
class Scheduler:
    """Runs batches of calls; each batch is by itself."""

    _registry: ToolRegistry
    _config: SchedulerConfig = field(factory=SchedulerConfig)

    async def run(
        self, calls: Iterable[ToolCall], scope: trio.CancelScope | None = None
    ) -> tuple[Outcome, ...]:
        """Carry out the calls and return an outcome for each, in their order.

        A call begins after the ones before it have begun, and an exclusive one after they have
        ended. Parallel calls that follow each other run side by side, ``parallel_limit`` at most.

        Args:
            scope: not entered yet; cancelling it stops the batch. What runs is cancelled and
                awaited, and every call still has its outcome: what was answered by then,
                ``ABORTED`` or ``TOOL_TIMEOUT``, or ``ABORTED_BEFORE_DISPATCH``. Any other
                cancellation of the caller leaves bare.
        """
        slots = [_Slot(call) for call in calls]
        with scope or trio.CancelScope():
            await checkpoint()
            await self._in_order(slots)
        return tuple(slot.answer for slot in slots)

    async def _in_order(self, slots: list[_Slot]) -> None:
        parallel: list[_Slot] = []
        for slot in slots:
            slot.execution = self._registry.execution(slot.call)
            if slot.execution.parallel:
                parallel.append(slot)
                continue
            await self._side_by_side(parallel)
            parallel = []
            await self._side_by_side([slot])
        await self._side_by_side(parallel)

    async def _side_by_side(self, slots: list[_Slot]) -> None:
        queue = iter(slots)
        async with PlainNursery() as nursery:
            for _worker in slots[: self._config.parallel_limit]:
                nursery.start_soon(_work, queue)


async def _work(queue: Iterator[_Slot]) -> None:
    """Take one call after the other; several share the queue, so that calls begin in order."""
    for slot in queue:
        await slot.run()
