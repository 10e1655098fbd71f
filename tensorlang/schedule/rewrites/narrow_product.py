"""Products of narrow numbers over words of 32 bits: the layouts that dot instructions take, as stages.

bfloat16 by bfloat16 gives float32; 8-bit by 8-bit integers give int32, exactly as long as the sums fit. Weights are
laid out as [n / w, k / g, w, g]: panels of w columns, of which g neighbouring terms fill a word of 32 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tensorlang import dtypes, te
from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Binary, Cast, Expr, Var, cast, same, variables
from tensorlang.ir.simplify import simplify
from tensorlang.te.operation import ComputeOp, Read, Reduce, Tensor
from tensorlang.te.program import unique
from tensorlang.te.reducer import builtin
from tensorlang.te.terms import term_axis

WORD = 32
SIGN = 128
"""What is added to signed bytes where the machine multiplies unsigned ones only."""
SUMS = {("bfloat16", "bfloat16"): "float32", ("int8", "int8"): "int32", ("uint8", "int8"): "int32"}
"""The dtypes of data and weights that have dot instructions, and of their sums."""


@dataclass(frozen=True, slots=True)
class Factors:
    """Two matrices that are multiplied; the terms of a transposed one do not lie as those of the other would."""

    a: Tensor
    b: Tensor
    transpose_a: bool
    transpose_b: bool

    @property
    def extents(self) -> tuple[Expr, Expr, Expr]:
        """Rows, columns and terms."""
        return self.a.shape[self.transpose_a], self.b.shape[not self.transpose_b], self.a.shape[not self.transpose_a]


def narrow_factors(op: ComputeOp) -> Factors | None:
    """The factors of a declared operation that is a product of two whole matrices of narrow numbers; else None."""
    match op.body:
        case (Reduce(sources=(Binary(op="mul", a=x, b=y),), axes=(k,), where=None, init=()) as total,):
            a, b = (z.value if isinstance(z, Cast) else z for z in (x, y))
        case _:
            return None
    if not (isinstance(a, Read) and isinstance(b, Read)) or len(op.axes) != 2 or op.where:
        return None
    if total.reducer != builtin("sum", op.dtype) or SUMS.get((a.dtype, b.dtype)) != op.dtype:
        return None
    i, j = op.axes
    for transpose_a, rows in ((False, (i, k)), (True, (k, i))):
        for transpose_b, columns in ((False, (k, j)), (True, (j, k))):
            if _reads_all(a, rows) and _reads_all(b, columns):
                return Factors(a.tensor, b.tensor, transpose_a, transpose_b)
    return None


def _reads_all(read: Read, axes: Sequence[te.Axis]) -> bool:
    """Whether a matrix is read as a whole, by some axes in this order."""
    names = [index.name if isinstance(index, Var) else "" for index in read.index]
    return names == [axis.name for axis in axes] and all(
        same(extent, axis.extent) for extent, axis in zip(read.tensor.shape, axes, strict=True)
    )


def narrow_product(factors: Factors, width: int, data: str, name: str) -> Tensor:
    """The product over panels of so many columns; rows are multiplied as numbers of the dtype `data`."""
    a, b = factors.a, factors.b
    packed = panels(b, factors.transpose_b, width, f"{name}_packed")
    zero = SIGN * (data != a.dtype)
    return product_of_panels(a, packed, factors.extents[1], factors.transpose_a, data, zero, None, name)


def panels(weight: Tensor, transposed: bool, width: int, name: str) -> Tensor:
    """Weights, [n, k] or transposed [k, n], in panels of so many columns, with zeros after the last column and term."""
    n, k = weight.shape[not transposed], weight.shape[transposed]
    group = terms_of_word(weight.dtype)
    count, words = parts(n, width), parts(k, group)
    extents = (count * width, words * group) if transposed else (words * group, count * width)
    whole = _grown(weight, tuple(map(simplify, extents)), weight.dtype, f"{name}_whole")

    def element(panel: Expr, word: Expr, lane: Expr, term: Expr) -> Expr:
        column, row = panel * width + lane, word * group + term
        value: Expr = whole[column, row] if transposed else whole[row, column]
        return value

    return _stage("panel word lane term", (count, words, width, group), element, name)


def panel_offsets(packed: Tensor, data: str, zero: int, name: str) -> Tensor:
    """A number times the sums of the columns of panels, as one more row of the product of numbers of a dtype."""
    _, words, _, group = packed.shape
    zeros = te.compute((group,), lambda t: te.const(zero, data), name=f"{name}_zero")
    k = term_axis(simplify(words * group), packed)

    def element(p: Expr, lane: Expr) -> Expr:
        return te.sum(cast(zeros[k % group], "int32") * cast(packed[p, k // group, lane, k % group], "int32"), axis=k)

    return _stage("p lane", (packed.shape[0], packed.shape[2]), element, name)


def product_of_panels(
    a: Tensor, packed: Tensor, n: Expr, transposed: bool, data: str, zero: int, offsets: Tensor | None, name: str
) -> Tensor:
    """Sums of whole panels, then the columns that there are.

    Rows of `a`, which is [m, k] or `transposed`, are multiplied as numbers of the dtype `data`, in which the zero of
    `a` is `zero`. What that adds to the sums is subtracted: the `offsets`, made here unless given.
    """
    sums_dtype = SUMS[a.dtype, packed.dtype]
    count, words, width, group = packed.shape
    m = a.shape[transposed]
    rows = _rows(a, transposed, (m, simplify(words * group)), data, zero, f"{name}_rows")
    k = term_axis(simplify(words * group), rows, packed)

    def partial(i: Expr, p: Expr, lane: Expr) -> Expr:
        factor = packed[p, k // group, lane, k % group]
        return te.sum(cast(rows[i, k], sums_dtype) * cast(factor, sums_dtype), axis=k)

    sums = _stage("i p lane", (m, count, width), partial, f"{name}_sums")
    if zero and offsets is None:
        offsets = panel_offsets(packed, data, zero, f"{name}_offsets")

    def element(i: Expr, j: Expr) -> Expr:
        at = (j // width, j % width)
        value: Expr = sums[i, *at] if offsets is None else sums[i, *at] - offsets[at]
        return value

    return _stage("i j", (m, n), element, name)


def _rows(a: Tensor, transposed: bool, shape: tuple[Expr, Expr], dtype: str, zero: int, name: str) -> Tensor:
    """Data as they are multiplied: rows side by side, as many terms as the weights have, of a dtype."""
    if not transposed:
        return _grown(a, shape, dtype, name, zero)
    return _stage("i k", shape, lambda i, k: _value(a, (k, i), shape[::-1], dtype, zero), name)


def _grown(matrix: Tensor, shape: tuple[Expr, ...], dtype: str, name: str, zero: int = 0) -> Tensor:
    """A matrix with zeros behind its last rows and columns, its elements as another 8-bit dtype; itself if it is so."""
    if all(map(same, matrix.shape, shape)) and dtype == matrix.dtype:
        return matrix
    return _stage("i j", shape, lambda i, j: _value(matrix, (i, j), shape, dtype, zero), name)


def _value(matrix: Tensor, index: tuple[Expr, Expr], shape: tuple[Expr, ...], dtype: str, zero: int) -> Expr:
    """An element, moved to be unsigned if it has to be; `zero` where an index, up to `shape`, is too large."""
    value: Expr = matrix[index]
    if dtype != matrix.dtype:
        value = cast(cast(value, "int32") + SIGN, dtype)
    for position, extent, reached in zip(index, matrix.shape, shape, strict=True):
        if not same(extent, reached):
            value = te.if_then_else(position < extent, value, te.const(zero, dtype))
    return value


def _stage(axes: str, shape: Sequence[Expr | int], element: Callable[..., Expr], name: str) -> Tensor:
    """A stage over axes of some names, or others where sizes have those."""
    sizes = {size for extent in shape if isinstance(extent, Expr) for size in variables(extent)}
    names = [unique(axis, sizes) for axis in axes.split()]

    def at(*index: Expr) -> Expr:
        return element(*index)

    made: Tensor = te.compute(shape, at, name=name, varargs_names=names)
    return made


def terms_of_word(dtype: str) -> int:
    """The terms in a word."""
    return WORD // dtypes.info(dtype).bits


def parts(extent: Expr, size: int) -> Expr:
    """How many parts of a size hold so many."""
    return simplify((extent + (size - 1)) // size)
