"""What torch.compile made networks of, and what it left to PyTorch, in this process."""

from __future__ import annotations

import sys

from tensorlang import config
from tensorlang.dataclass import dataclass
from tensorlang.networks.refusal import Refusal


@dataclass(frozen=True, slots=True)
class Compiled:
    """A graph ("inference", "forward" or "backward"): calls in networks, the kernels of each, what was left, and why.

    Views are not told: PyTorch makes them at no cost.
    """

    graph: str
    taken: int
    kernels: tuple[int, ...]
    left: tuple[Refusal, ...]

    def __str__(self) -> str:
        lines = "".join(f"\n  {refusal}" for refusal in self.left)
        return (
            f"{self.graph}: {self.taken} calls in {len(self.kernels)} networks of {sum(self.kernels)} kernels, "
            f"{len(self.left)} left to PyTorch{':' if self.left else ''}{lines}"
        )


_made: list[Compiled] = []


def report() -> tuple[Compiled, ...]:
    """All graphs that `torch.compile(backend="tensorlang")` compiled in this process, in order."""
    return tuple(_made)


def forget() -> None:
    """Begin the report anew."""
    _made.clear()


def tell(compiled: Compiled) -> None:
    """Add a graph to the report, and print it where TENSORLANG_LOG has `networks`."""
    _made.append(compiled)
    if "networks" in config.get("log"):
        print(f"networks: {compiled}", file=sys.stderr)
