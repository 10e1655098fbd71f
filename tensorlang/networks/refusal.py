"""What of a model is not taken, and why."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError
from tensorlang.limits import memory
from tensorlang.te.operation import Tensor


class Unsupported(DefinitionError):
    """A node that no rule can make a program of; the message says why."""


class NotAhead(Unsupported):
    """What a node has to know ahead is computed by the network; `tensor` is what computes it."""

    def __init__(self, what: str, op: str, tensor: Tensor) -> None:
        self.tensor = tensor
        super().__init__(f"{what} of {op} is computed by the network; only what is known ahead is taken")


@dataclass(frozen=True, slots=True)
class Refusal:
    """A node that is not taken, and why; it would be, if the values of these small `inputs` were known ahead."""

    node: str
    op: str
    why: str
    inputs: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.node} ({self.op}): {self.why}"


class UnsupportedModel(DefinitionError):
    """A model with nodes that are not taken: `refusals` are all of them that could be looked at.

    `advice`: what can be done about it.
    """

    def __init__(self, name: str, refusals: Sequence[Refusal], advice: str = "") -> None:
        self.refusals = tuple(refusals)
        lines = "".join(f"\n  {refusal}" for refusal in refusals) + (advice and f"\n{advice}")
        super().__init__(f"the model {name} has {len(refusals)} nodes that are not taken:{lines}")


def refuse_large(what: str, extents: Sequence[int], size: int) -> None:
    """DefinitionError for an array of more bytes than the machine has memory; `size` are those of an element."""
    taken, most = prod(extents) * size, memory()
    if taken > most:
        raise DefinitionError(f"{what} has the shape {tuple(extents)}, {taken:,} bytes; this machine has {most:,.0f}")
