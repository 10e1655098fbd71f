"""Convolutions of a network by Winograd's algorithm where that is estimated to be faster, their weights made ahead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from tensorlang import te
from tensorlang.dataclass import dataclass
from tensorlang.ir.affine import affine
from tensorlang.ir.expr import Const, Load, Var
from tensorlang.networks.network import Array
from tensorlang.networks.pending import Pending
from tensorlang.schedules.windows import WindowSum, window_sum
from tensorlang.target.detect import multiply_adds
from tensorlang.target.spec import Target
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import ComputeOp, Operation, PlaceholderOp
from tensorlang.te.program import Program, canonical
from tensorlang.te.tags import CONV2D
from tensorlang.topi.layouts import layout
from tensorlang.topi.toom_cook import WINDOW, transformed_weights
from tensorlang.topi.winograd import by_tiles

_TILES = (4, 2)
WEIGHTS = "float32"
_TO_POINTS, _FROM_POINTS = 10.0, 5.0
"""Cycles in which a vector of a point is made of data, and results of it; measured on Zen 4 and Golden Cove."""
_BYTES = 5.0
"""Bytes of weights that come by in a cycle from beyond the second cache, as those of networks mostly do."""
_STREAMS = 2
"""Cores that a stream of weights serves at its full pace."""
_WORTH = 0.85
"""The share of the direct time from which on tiles are taken, and of the time of small tiles for large ones."""
_LEAST = 16
"""Channels of data and of the output."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A convolution of windows of 3 * 3 by steps of 1: `images` of `rows` times `columns` results."""

    images: int
    rows: int
    columns: int
    inputs: int
    outputs: int

    def direct(self, target: Target) -> float:
        """Cycles of the sums over windows, estimated."""
        pixels, window = self.images * self.rows * self.columns, WINDOW * WINDOW
        return self._products(pixels * window, window, target)

    def by_tiles(self, tile: int, target: Target) -> float:
        """Cycles by tiles of so many results a side, estimated: of products and of both transforms.

        Images are made one after the other, and each takes all weights anew.
        """
        points = (tile + WINDOW - 1) ** 2
        tiles = self.images * -(-self.rows // tile) * -(-self.columns // tile)
        vectors = points * tiles / target.lanes(32)
        turned = vectors * (_TO_POINTS * self.inputs + _FROM_POINTS * self.outputs) / target.cores
        return self._products(tiles * points, points * self.images, target) + turned

    def _products(self, uses: int, weights: int, target: Target) -> float:
        """Of `uses` multiply-adds for each pair of channels, with so many weights, which may take longer to come."""
        pairs = self.inputs * self.outputs
        computed = uses * pairs / (multiply_adds(target) * target.lanes(32) * target.cores)
        return max(computed, 4 * weights * pairs / (_BYTES * min(target.cores, _STREAMS)))


def best_tile(layer: Layer, target: Target) -> int:
    """The side of the tiles that are estimated to be fastest, 0 where none are worth it: small ones are more exact."""
    if min(layer.inputs, layer.outputs) < _LEAST:
        return 0
    best, least = 0, layer.direct(target)
    for tile in sorted(_TILES):
        cycles = layer.by_tiles(tile, target)
        if cycles <= _WORTH * least:
            best, least = tile, cycles
    return best


def with_winograd(
    program: Program, weights: Mapping[str, Array], target: Target
) -> tuple[Program, Pending, dict[str, str]]:
    """The program with convolutions by tiles where that is worth it, its weights, and what to say of which stages."""
    arrays, said = Pending(weights), dict[str, str]()
    changed, before = dict[str, Operation](), dict[str, Sequence[Operation]]()
    if target.can.device:
        return program, arrays, said
    for op in program.ops:
        found = _convolution(program, op, weights)
        tile = best_tile(found.layer, target) if found is not None else 0
        if found is None or not tile:
            continue
        block = _block(found.layer.outputs, target)
        made = found.by_tiles(tile, block, program)
        if made is None:
            continue
        before[found.op.name], changed[found.op.name] = made[:-1], made[-1]
        shape = found.panels(tile, block)
        arrays.later(found.weight, partial(found.transformed, tile=tile, block=block), shape)
        changed[found.weight] = PlaceholderOp(found.weight, tuple(Const(n, "int32") for n in shape), WEIGHTS)
        said |= {stage.name: f"winograd F({tile}x{tile}, 3x3)" for stage in made}
    return program.replacing(changed, before), arrays, said


def stages_by_tiles(program: Program, weights: Mapping[str, Array], target: Target) -> frozenset[str]:
    """The convolutions that are computed by tiles on a target."""
    found = (_convolution(program, op, weights) for op in program.ops)
    return frozenset(c.op.name for c in found if c is not None and best_tile(c.layer, target))


@dataclass(frozen=True, slots=True)
class _Convolution:
    """A stage that convolves images [n, y, x, c]; `order`: the dimensions of its weights as outputs, inputs, y, x."""

    op: ComputeOp
    data: Load
    weight: str
    order: tuple[int, ...]
    padding: tuple[int, int, int, int]
    layer: Layer

    def by_tiles(self, tile: int, block: int, program: Program) -> list[Operation] | None:
        """The stages in its place, the last under its name; None where others have the names of the rest."""
        layer = self.layer
        data = te.placeholder(self.data.buffer.shape, self.data.dtype, self.data.buffer.name)
        held = te.placeholder(self.panels(tile, block), WEIGHTS, self.weight)
        made = by_tiles(data, held, self.padding, layout("NHWC", "NCHW"), layer.outputs, self.op.name, "it is compiled")
        stages = canonical([made, data, held])[0].ops
        found: list[Operation] = [op for op in stages if not isinstance(op, PlaceholderOp)]
        return None if any(op.name in program.by_name for op in found[:-1]) else found

    def panels(self, tile: int, block: int) -> tuple[int, ...]:
        """The shape of the weights transformed."""
        points = tile + WINDOW - 1
        return points, points, -(-self.layer.outputs // block), self.layer.inputs, block

    def transformed(self, weight: Array, tile: int, block: int) -> Array:
        """The weights transformed, in blocks of outputs with zeros behind the last one."""
        return transformed_weights(weight.transpose(self.order), tile, block)


def _convolution(program: Program, op: Operation, weights: Mapping[str, Array]) -> _Convolution | None:
    """A stage as a convolution of 3 * 3 weights that are known and read by it alone; None for any other stage."""
    if not isinstance(op, ComputeOp) or op.tag != CONV2D or op.dtype != "float32":
        return None
    windows = window_sum(op)
    if windows is None or windows.factor is None or len(windows.outputs) != 1 or len(windows.inputs) != 1:
        return None
    weight, (o,), (c,) = windows.factor, windows.outputs, windows.inputs
    known = weight.buffer.name in weights and program.consumers[weight.buffer.name] == (op.name,)
    terms = {index.name: d for d, index in enumerate(weight.index) if isinstance(index, Var)}
    wanted = (o, c, windows.down, windows.right)
    window = [windows.extents.get(axis) for axis in wanted[2:]] == [WINDOW, WINDOW]
    places = _places(windows) if known and window and sorted(terms) == sorted(wanted) else None
    if places is None or {weight.dtype, windows.data.dtype} != {WEIGHTS}:
        return None
    n, rows, columns, outputs = (extent_of(axis.extent) or 0 for axis in op.axes)
    _, high, wide, inputs = (extent_of(extent) or 0 for extent in windows.data.buffer.shape)
    top, left = places
    padding = top, left, rows + WINDOW - 1 - top - high, columns + WINDOW - 1 - left - wide
    if min(padding) < 0 or not n * inputs or inputs != windows.extents[c]:  # of some channels of larger data
        return None
    layer = Layer(n, rows, columns, inputs, outputs)
    return _Convolution(op, windows.data, weight.buffer.name, tuple(terms[axis] for axis in wanted), padding, layer)


def _places(windows: WindowSum) -> tuple[int, int] | None:
    """The padding in front, where data are read at [n, y + down - top, x + right - left, c] for [n, y, x, o]."""
    index, batch = windows.data.index, windows.batch
    if len(index) != 4 or len(batch) != 1 or windows.axes != (*batch, windows.y, windows.x, *windows.outputs):
        return None
    down, right = ({axis: 1, step: 1} for axis, step in ((windows.y, windows.down), (windows.x, windows.right)))
    found = [affine(part) for part in index]
    moves = [{name: k for name, k in (form or {}).items() if name} for form in found]
    if moves != [{batch[0]: 1}, down, right, {windows.inputs[0]: 1}]:
        return None
    offsets = [int((form or {}).get("", 0)) for form in found]
    return (-offsets[1], -offsets[2]) if offsets[0] == offsets[3] == 0 and max(offsets) <= 0 else None


def _block(outputs: int, target: Target) -> int:
    """Output channels of a block: two vectors, or what there is."""
    lanes = target.lanes(32)
    return min(2 * lanes, -(-outputs // lanes) * lanes)
