"""The operators of `benchmarks.vocabulary` in tensorlang: those of `topi` under its schedules."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

import tensorlang
from benchmarks.peers.serve import Array, Builder, Call, Given
from tensorlang import te, topi
from tensorlang.ir.expr import to_text
from tensorlang.te.operation import Tensor
from tensorlang.topi.sparse.matrices import CSRPlaceholder

Made = Callable[..., Sequence[Tensor]]
"""What an operator makes of tensors and options; the first one is the result."""


def sparse_dense(data: Tensor, indices: Tensor, indptr: Tensor, dense: Tensor) -> list[Tensor]:
    """CSR by a matrix."""
    rows = _sizes(indptr)[0] - 1
    matrix = CSRPlaceholder((te.const(rows), dense.shape[0]), data, indices, indptr)
    return [topi.sparse.csrmm(matrix, dense)]


FUNCTIONS: dict[str, Made] = {
    "conv2d_transpose": lambda x, w, stride, padding: [topi.conv2d_transpose_nchw(x, w, stride, padding)],
    "conv1d": lambda x, w, padding: [topi.conv1d_ncw(x, w, 1, padding)],
    "conv3d": lambda x, w, padding: [topi.conv3d_ncdhw(x, w, 1, padding)],
    "resize": lambda x: [topi.resize2d(x, None, [2 * n for n in _sizes(x)[2:]])],
    "topk": lambda x, k: topi.topk(x, k)[::-1],
    "cumsum": lambda x: [topi.cumsum(x, 1)],
    "argsort": lambda x: [topi.argsort(x, axis=1, dtype="int64")],
    "lstm": lambda x, **weights: topi.lstm(x, *map(weights.__getitem__, ("wi", "wh", "bi", "bh"))),
    "scatter_add": lambda data, indices, updates: [topi.scatter_elements(data, indices, updates, 0, "add")],
    "sparse_dense": sparse_dense,
}


def builder(make: Made) -> Builder:
    """A builder of the scheduled and compiled operator: outputs, and what is constant, are in arrays of its own."""

    def build(given: Given) -> Call:
        inputs = {name: te.placeholder(a.shape, str(a.dtype), name) for name, a in given.arrays.items()}
        outputs = list(make(**inputs, **given.options))
        run = tensorlang.build(topi.schedule(outputs, tuned=False), [*inputs.values(), *outputs])
        made = [np.empty(_sizes(t), t.dtype) for t in outputs]
        held = {name: tensorlang.nd.array(given.arrays[name]) for name in given.constant}  # whole lines, huge pages
        arrays = [*({**given.arrays, **held}).values(), *made]

        def call() -> Array:
            run(*arrays)
            return made[0]

        return call

    return build


def _sizes(tensor: Tensor) -> list[int]:
    return [int(to_text(extent)) for extent in tensor.shape]


BUILDERS = {name: builder(make) for name, make in FUNCTIONS.items()}
