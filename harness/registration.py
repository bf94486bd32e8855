"""A registration: something that was added, and that can be taken away again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType

from attrs import define


@define(eq=False)
class Registration(AbstractContextManager["Registration"]):
    """Lasts until it is disposed of, or until its block is left."""

    _undo: Callable[[], None] | None

    @classmethod
    def of(cls, stack: ExitStack) -> Registration:
        """All of a stack as one: disposed of in the reverse order."""
        return cls(stack.pop_all().close)

    def dispose(self) -> None:
        """Take away what was added; again is harmless."""
        undo, self._undo = self._undo, None
        if undo is not None:
            undo()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.dispose()
