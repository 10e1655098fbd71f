"""The time that kernels of a network take at least: by arithmetic, and by the arrays that they read and write.

Rates are those that this machine was measured to have (`tensorlang.target.measure_rates`). Source of the model:
Williams, Waterman and Patterson, Roofline, CACM 2009, with a roof for each cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.networks.signature import LIBRARY
from tensorlang.profiling.machine import Limit, Machine
from tensorlang.target.rates import MEMORY

if TYPE_CHECKING:
    from tensorlang.networks.model import Model, Step


def limits_of(model: Model) -> list[Limit | None]:
    """The limit of each kernel of a model; None for those that no CPU runs, and for calls of another runtime.

    Weights are read from the level that all weights of the network fit in, other arrays from that of the kernel's own:
    caches are as large as those of all threads together. An array counts with as many elements as there are operations
    at most, since a kernel may read a part of it. Operations are those that the node says: a kernel of Winograd's
    algorithm does fewer, and may take less than its limit.
    """
    targets = dict.fromkeys(step.run.target for step in model.steps)
    machines = {t: Machine.of(t) if t.can.native else None for t in targets}
    weights = sum(array.nbytes for array in model.weights.values())
    return [
        None if machine is None or step.run.kernel.callbacks else _limit(machine, step, model, weights)
        for step in model.steps
        for machine in [machines[step.run.target]]
    ]


def moved_bytes(step: Step, model: Model) -> tuple[float, float]:
    """The bytes of weights, and those of other arrays, that a step reads or writes.

    Of an array so many elements count as there are operations, where these are counted.
    """
    found = [0.0, 0.0]
    for name in step.arrays:
        shape, dtype = model.shapes[name]
        count = min(float(prod(shape)), step.operations or float("inf"))
        found[name not in model.weights] += count * dtypes.info(dtype).bytes
    return found[0], found[1]


def _limit(machine: Machine, step: Step, model: Model, weights: float) -> Limit:
    """The limit of a step, of a network with so many bytes of weights."""
    own, others = moved_bytes(step, model)
    reads = Reads(machine.rates.values, machine.caches)
    moved = [(reads.seconds(own, weights), reads.level(weights)), (reads.seconds(others, others), reads.level(others))]
    seconds = sum(time for time, _ in moved)
    opaque = model.weights.keys() if step.origin.op == LIBRARY else ()  # bytes, whatever they hold
    kinds = (str(model.shapes[name][1]) for name in step.arrays if name not in opaque)
    compute = step.operations / machine.operations(kinds)
    return Limit(compute, "compute") if compute >= seconds else Limit(seconds, max(moved)[1])


@dataclass(frozen=True, slots=True)
class Reads:
    """Rates of reading, by level, and the caches."""

    rates: Mapping[str, float]
    caches: Sequence[tuple[str, float]]

    def level(self, size: float) -> str:
        """The nearest level that so many bytes fit in; the second at least, since a kernel is called once in a run."""
        return next((name for name, room in self.caches[1:] if size <= room), MEMORY)

    def seconds(self, amount: float, size: float) -> float:
        """Seconds for an amount of bytes, of arrays of a size."""
        return amount / (1e9 * self.rates[self.level(size)])
