"""A token through layers of a decoder, for `python -m benchmarks lowbit`: 2048 wide, 8192 hidden, 32 heads by 8, Q4_0.

The kernels of examples/llm, called from Python, behind 1024 keys.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.lowbit_attention import filled
from examples.llm.parameters import Parameters
from examples.llm.steps import Layer, Step
from examples.llm.weights import Shape, Weights
from tensorlang import te, topi
from tensorlang.topi.block_formats import BLOCK_FORMATS

NAME, KEYS, _LAYERS, _FORMAT = "layer", 1024, 4, "q4_0"
_MODEL = Parameters(_LAYERS, 2048, 8192, 32, 8, vocabulary=1, context=2048, epsilon=1e-5, base=10000.0)


def layers() -> tuple[Callable[[], object], int, float]:
    """A turn: a token through some layers; the bytes that it reads, and its operations."""
    p, rng = _MODEL, np.random.default_rng(0)
    few, square = (p.groups * p.depth, p.width), (p.width, p.width)
    shapes = (square, few, few, square, (p.hidden, p.width), (p.hidden, p.width), (p.width, p.hidden))
    form = BLOCK_FORMATS[_FORMAT]

    def numbers(tensor: te.Tensor) -> object:
        size = [int(str(e)) for e in tensor.shape]
        if tensor.dtype == "float16":
            return rng.random(size, np.float32) * 0.01
        return rng.integers(0, 256, size, np.uint8)

    def layer() -> Layer:
        weights = [topi.nbits_weights(n, k, form).tensors for n, k in shapes]
        caches = [te.placeholder((1, p.groups, p.context, p.depth), "float16") for _ in range(2)]
        arrays = iter(filled([*(t for some in weights for t in some), *caches], numbers))
        held = [
            Weights(Shape(_FORMAT, n, k), tuple(next(arrays) for _ in some))
            for (n, k), some in zip(shapes, weights, strict=True)
        ]
        return Layer([np.ones(p.width, np.float32)] * 2, held, list(arrays))

    made = [layer() for _ in range(_LAYERS)]
    step = Step(p, made, topi.rope_tables(p.context, p.depth // 2, p.base), slice(None), 1, 1)
    token, begin = rng.standard_normal((1, p.width), np.float32), np.full(1, KEYS - 1, np.int32)
    weights = sum(array.nbytes for each in made[0].weights for array in each.arrays)
    cached = 2 * p.groups * KEYS * p.depth * 2
    operations = 2.0 * sum(n * k for n, k in shapes) + 4.0 * p.heads * KEYS * p.depth
    return lambda: step.run(token, begin, 1), _LAYERS * (weights + cached), _LAYERS * operations
