"""What stands for many elements, where an operator of expressions meets it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensorlang.ir.expr import Expr


class Whole:
    """Base of tensors: operators combine them element by element."""

    __slots__ = ()

    def combined(self, op: str, *operands: Any) -> Expr | None:
        """What an operator makes of operands of which this is one; None where all stand for one element."""
        raise NotImplementedError
