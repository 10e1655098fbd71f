"""The roles in sums over windows that slide, read off accesses: convolutions, pooling, filters of images."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tensorlang.dataclass import dataclass
from tensorlang.errors import InternalError
from tensorlang.ir.affine import affine
from tensorlang.ir.expr import Binary, Const, Load, Select, Var, to_text, variables, walk
from tensorlang.schedules.accesses import bytes_apart
from tensorlang.schedules.cpu.shares import computed_bits
from tensorlang.te.operation import ComputeOp


@dataclass(frozen=True, slots=True)
class WindowSum:
    """`out[batch, outputs, y, x] = sum over inputs, down, right of data * factor`: names of axes, "" for none.

    `axes`: of the output, in order. `extents`: of all axes that are numbers. `outputs`: the channels of the output,
    two axes where they are in blocks. `inputs`: axes of the sum that do not slide. `features`: output channels that
    read the same data. `cut`: those of `y` and `x` along which padding cuts off parts of the window. `chooses`: terms
    have a choice in them. `bits`: the width of sums while they are made.
    """

    axes: tuple[str, ...]
    extents: dict[str, int]
    outputs: tuple[str, ...]
    y: str
    x: str
    inputs: tuple[str, ...]
    down: str
    right: str
    features: int | None
    data: Load
    factor: Load | None
    cut: frozenset[str]
    chooses: bool
    bits: int

    @property
    def batch(self) -> tuple[str, ...]:
        """The axes of the output that are neither pixels nor channels."""
        return tuple(axis for axis in self.axes if axis not in (*self.outputs, self.y, self.x))

    @property
    def weight(self) -> Load:
        """The weights of a convolution."""
        if self.factor is None:
            raise InternalError(f"windows over {self.data.buffer.name} have no weights")
        return self.factor

    @property
    def by_channels(self) -> bool:
        """Whether windows slide over each channel by itself, and channels lie side by side, in data and output."""
        last = self.axes[-1]
        single = self.extent(*self.inputs) == 1
        return single and last in self.outputs and last in variables(self.data.index[-1])

    @property
    def is_convolution(self) -> bool:
        """Whether windows of several inputs in both directions are multiplied with weights of each output."""
        return self.factor is not None and bool(self.y and self.outputs and self.inputs)

    @property
    def is_depthwise(self) -> bool:
        """Whether windows in both directions of one channel each are multiplied with weights of that."""
        own = len(self.outputs) == 1 and self.outputs[0] in _moved([self.data])
        return self.factor is not None and bool(self.y) and own and not self.inputs

    @property
    def stored_block(self) -> int | None:
        """Neighbouring output channels that the weights hold side by side, 0 for all; None: they hold none."""
        match self.weight.index[-1]:
            case Var(name=name) if name == self.outputs[-1]:
                return self.extents[name] if len(self.outputs) > 1 else 0
            case Binary(op="floormod", a=Var(name=name), b=Const(value=size)) if name == self.outputs[-1]:
                return int(size)
        return None

    @property
    def apart(self) -> int:
        """The bytes between what two neighbours along `x` read; 0 where that is not known."""
        return bytes_apart(self.data, self.x)

    def extent(self, *axes: str) -> int:
        """The product of extents; 1 of an axis that is not there."""
        total = 1
        for axis in axes:
            total *= self.extents.get(axis, 1)
        return total


def convolution(op: ComputeOp) -> WindowSum:
    """The windows of a stage that has some."""
    found = window_sum(op)
    if found is None:
        raise InternalError(f"{op.name} is no sum over windows")
    return found


def window_sum(op: ComputeOp) -> WindowSum | None:
    """Read the roles off a stage whose sum slides over one read, and has at most one other; None for any other."""
    reduction = op.reduction
    if reduction is None or len(op.body) > 1 or op.where or not op.axes:
        return None
    spatial, summed = [a.name for a in op.axes], [a.name for a in op.reduce_axes]
    loads = (node for source in reduction.sources for node in walk(source) if isinstance(node, Load))
    reads = {(load.buffer.name, *map(to_text, load.index)): load for load in loads}
    others = {key: _moved([load for k, load in reads.items() if k != key]) for key in reads}
    slides = {key: _slides(read, spatial, summed, others[key]) for key, read in reads.items()}
    sliding = [key for key, pairs in slides.items() if pairs]
    if len(reads) > 2 or len(sliding) != 1:
        return None
    extents = {a.name: int(a.extent.value) for a in (*op.axes, *op.reduce_axes) if isinstance(a.extent, Const)}
    data, pairs = reads.pop(sliding[0]), slides[sliding[0]]
    factor = next(iter(reads.values()), None)
    (y, down), (x, right) = ([("", ""), *pairs] if len(pairs) == 1 else pairs)[-2:]
    outputs = _outputs(data, factor, [axis for axis in spatial if axis not in (y, x)], x == spatial[-1])
    if len(outputs) > 2 or any(window and window not in extents for window in (down, right)):
        return None
    inputs = tuple(axis for axis in summed if axis not in (down, right))
    cut = frozenset(variables(reduction.where) if reduction.where is not None else ()) & {y, x}
    chooses = any(isinstance(node, Select) for source in reduction.sources for node in walk(source))
    features = _features(data, outputs, extents)
    bits = computed_bits(op.dtype)
    return WindowSum(
        tuple(spatial), extents, outputs, y, x, inputs, down, right, features, data, factor, cut, chooses, bits
    )


def _slides(
    read: Load, spatial: Collection[str], summed: Collection[str], others: Collection[str]
) -> list[tuple[str, str]]:
    """The axes of a read that are places, each with that of its window: they share an index, and are in no other."""
    found = []
    for place, index in enumerate(read.index):
        names = {name for name in affine(index) or {} if name}
        over, along = names & {*spatial}, names & {*summed}
        elsewhere = {name for n, other in enumerate(read.index) if n != place for name in variables(other)}
        if len(over) == len(along) == 1 and len(names) == 2 and not over & {*others} and not names & elsewhere:
            found.append((over.pop(), along.pop()))
    return found


def _moved(reads: Sequence[Load]) -> set[str]:
    return {name for read in reads for index in read.index for name in variables(index)}


def _outputs(data: Load, factor: Load | None, rest: Sequence[str], by_rows: bool) -> tuple[str, ...]:
    """The axes of channels: those that move the weights alone, else those that move both; without weights the last."""
    if factor is None:
        return () if by_rows else tuple(rest[-1:])
    both = [axis for axis in rest if axis in _moved([factor])]
    return tuple(axis for axis in both if axis not in _moved([data])) or tuple(both)


def _features(data: Load, outputs: Sequence[str], extents: dict[str, int]) -> int | None:
    """How many neighbouring channels of the output read the same data; None where that is not known."""
    total = 1
    for axis in reversed(outputs):
        nodes = [node for index in data.index for node in walk(index)]
        parts = [n.b for n in nodes if isinstance(n, Binary) and n.op == "floordiv" and axis in variables(n.a)]
        if parts:
            return int(parts[0].value) * total if isinstance(parts[0], Const) else None
        if axis in _moved([data]):
            return total
        if axis not in extents:
            return None
        total *= extents[axis]
    return total
