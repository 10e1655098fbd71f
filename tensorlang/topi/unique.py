"""Elements that occur, each once: an upper bound of their number, and how many there are."""

from __future__ import annotations

from tensorlang import dtypes, te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, binary
from tensorlang.te.operation import Tensor
from tensorlang.topi.axes import extents
from tensorlang.topi.checked import checked
from tensorlang.topi.computed import computed
from tensorlang.topi.creation import full
from tensorlang.topi.scatter import scatter_add
from tensorlang.topi.sort import argsort


@checked
def unique(data: Tensor, is_sorted: bool = True, return_counts: bool = False, name: str = "unique") -> list[Tensor]:
    """Return the elements of a vector, each once, where each is first, where each element went, and how many there are.

    Four tensors, and with `return_counts` the numbers of equal elements: `[elements, indices, inverse_indices,
    num_unique, counts]`. The first two and the last are as long as `data`; from `num_unique[0]` on they have 0, the
    length of `data`, and 0. In rising order, or with `is_sorted=False` in that of `data`. What is not a number is one
    element, above all. DefinitionError for anything but a vector of numbers whose length is a number.

        >>> from tensorlang import te, topi
        >>> [x.shape for x in topi.unique(te.placeholder((8,), "int32"))]
        [(8,), (8,), (8,), (1,)]
    """
    if data.ndim != 1:
        raise DefinitionError(f"{name} takes a vector, got {data}; topi.reshape it to (-1,)")
    (length,) = extents(name, data)
    order = argsort(data, dtype="int32", name=f"{name}_order")
    first, inverse, number = _runs(data, order, length, f"{name}_runs")
    if not is_sorted:
        first, inverse, number = _as_they_come(first, inverse, number, length, f"{name}_come")

    def element(i: Expr) -> Expr:
        there = te.maximum(te.minimum(first(i), length - 1), 0)
        return te.if_then_else(binary("lt", first(i), length), data(there), te.const(0, data.dtype))

    found = [computed((length,), element, name), first, inverse, number]
    if not return_counts:
        return found
    zeros, ones = (full((length,), "int32", value, f"{name}_{word}") for value, word in ((0, "zeros"), (1, "ones")))
    return [*found, scatter_add(zeros, inverse, ones, name=f"{name}_counts")]


def _runs(data: Tensor, order: Tensor, length: int, name: str) -> tuple[Tensor, ...]:
    """Runs of equal elements in rising order: where each is first, the run of each element, and their number."""
    with_nan = dtypes.info(data.dtype).is_float

    def runs(data, order):  # type: ignore[no-untyped-def]
        first = te.output_tensor((length,), "int32")
        inverse = te.output_tensor((length,), "int32")
        number = te.output_tensor((1,), "int32")
        number[0] = 0
        for i in range(length):
            first[i] = length
        for i in range(length):
            own = data[order[i]]
            last = data[order[max(i - 1, 0)]]
            new = own != last
            if with_nan:
                new = new and not (te.isnan(own) and te.isnan(last))
            if i == 0 or new:
                first[number[0]] = order[i]
                number[0] = number[0] + 1
            inverse[order[i]] = number[0] - 1
        return first, inverse, number

    made: tuple[Tensor, ...] = te.hybrid.script(name=name)(runs)(data, order)
    return made


def _as_they_come(first: Tensor, inverse: Tensor, number: Tensor, length: int, name: str) -> tuple[Tensor, ...]:
    """The same runs in the order in which their first elements are in the data."""

    def as_they_come(first, inverse, number):  # type: ignore[no-untyped-def]
        places = te.output_tensor((length,), "int32")
        back = te.output_tensor((length,), "int32")
        total = te.output_tensor((1,), "int32")
        rank = te.allocate((length,), "int32", "local")
        done = te.allocate((1,), "int32", "local")
        total[0] = number[0]
        done[0] = 0
        for i in range(length):
            places[i] = length
            rank[i] = 0
        for i in range(length):
            if first[inverse[i]] == i:
                places[done[0]] = i
                rank[inverse[i]] = done[0]
                done[0] = done[0] + 1
            back[i] = rank[inverse[i]]
        return places, back, total

    made: tuple[Tensor, ...] = te.hybrid.script(name=name)(as_they_come)(first, inverse, number)
    return made
