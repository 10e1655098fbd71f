"""Which of a row are wanted, brought to its front: data decide how many there are."""

from __future__ import annotations

from tensorlang import te
from tensorlang.ir.expr import Expr, binary, cast
from tensorlang.te.operation import Tensor
from tensorlang.topi.axes import extents
from tensorlang.topi.computed import computed


def places_in_front(wanted: Tensor, name: str) -> Tensor:
    """The places of what is wanted in each row of bools, int32[rows, n], in order; -1 behind them."""
    rows, n = extents(name, wanted)

    def in_front(wanted):  # type: ignore[no-untyped-def]
        made = te.output_tensor((rows, n), "int32")
        for i in range(rows):
            count = te.allocate((1,), "int32", "local")
            count[0] = 0
            for j in range(n):
                made[i, j] = -1
            for j in range(n):
                if wanted[i, j]:
                    made[i, min(max(count[0], 0), n - 1)] = j
                    count[0] = count[0] + 1
        return made

    found = te.hybrid.script(name=name)(in_front)(wanted)
    assert isinstance(found, Tensor)
    return found


def count_of(wanted: Tensor, name: str) -> Tensor:
    """How many of each row of bools are wanted, int32[rows]."""
    axis = te.reduce_axis((0, wanted.shape[1]), "j")
    return computed(wanted.shape[:1], lambda i: te.sum(cast(wanted(i, axis), "int32"), axis=axis), name)


def rows_at(data: Tensor, places: Tensor, name: str) -> Tensor:
    """The rows [b, n, elements] of data at places [b, n]; of -1 where a place is none."""
    last = extents(name, data)[1] - 1

    def element(b: Expr, j: Expr, k: Expr) -> Expr:
        at = te.maximum(te.minimum(places(b, j), last), 0)
        return te.if_then_else(binary("ge", places(b, j), 0), data(b, at, k), te.const(-1, data.dtype))

    return computed((data.shape[0], places.shape[1], data.shape[2]), element, name)
