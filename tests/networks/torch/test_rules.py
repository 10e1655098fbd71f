"""Rules one by one: each operator of ATen beside PyTorch itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tensorlang.networks.compiling import program_of
from tensorlang.networks.network import Network
from tensorlang.networks.torch.modules import from_torch
from tensorlang.networks.torch.rules import RULES
from tensorlang.te.operation import PlaceholderOp
from tensorlang.te.reference import evaluate

torch = pytest.importorskip("torch")

Row = Callable[..., Any]
"""A use of an operator, the first argument; the others are inputs by name."""


def inputs() -> dict[str, Any]:
    """What rows read: floats, floats above 0 and below 1, whole numbers, bools, images, matrices, and places."""
    torch.manual_seed(3)
    return {
        "x": torch.randn(2, 3, 4),
        "p": torch.rand(3, 4) * 0.8 + 0.1,
        "n": torch.randint(-5, 6, (2, 3, 4)),
        "k": torch.randint(1, 4, (3, 4)),
        "b": torch.rand(2, 3, 4) > 0.5,
        "c": torch.rand(2, 3, 4) > 0.3,
        "image": torch.randn(2, 4, 6, 5),
        "rows": torch.randn(3, 5),
        "columns": torch.randn(5, 4),
        "line": torch.randn(2, 3, 6),
        "at": torch.randint(0, 3, (2, 2)),
        "infinite": torch.tensor([1.0, -math.inf, math.inf, math.nan]),
        "half": torch.randn(3, 4).half(),
    }


def _cell(gates: int, directions: int) -> list[Any]:
    """Weights of two layers over 4 inputs with 3 hidden elements."""
    generator, found = torch.Generator().manual_seed(6), []
    for width in (4, 3 * directions):
        for _ in range(directions):
            shapes = [(gates * 3, width), (gates * 3, 3), (gates * 3,), (gates * 3,)]
            found += [torch.randn(shape, generator=generator) for shape in shapes]
    return found


HEADS = [torch.randn(1, 2, n, 4, generator=torch.Generator().manual_seed(n)) for n in (3, 5, 6)]
HEADS[2] = HEADS[2][:, :, 1:]
CELLS = {(gates, directions): _cell(gates, directions) for gates, directions in ((4, 2), (4, 1), (3, 1))}


UNARY = {
    f"{name}.default": lambda op, p: op(p)
    for name in (
        "acos", "asin", "asinh", "atan", "atanh", "cos", "cosh", "erf", "exp", "exp2", "expm1", "log", "log10", "log1p",
        "log2", "reciprocal", "rsqrt", "sin", "sinh", "sqrt", "tan", "tanh")
} | {
    f"{name}.default": lambda op, x: op(x)
    for name in (
        "abs", "ceil", "elu", "floor", "gelu", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "logical_not",
        "mish", "neg", "relu", "round", "sigmoid", "sign", "silu", "softplus", "trunc")
}  # fmt: skip

TABLES: dict[str, Mapping[str, Row]] = {
    "functions": UNARY
    | {
        "acosh.default": lambda op, p: op(p + 1.5),
        "isfinite.default": lambda op, infinite: op(infinite),
        "isinf.default": lambda op, infinite: op(infinite),
        "isnan.default": lambda op, infinite: op(infinite),
        "bitwise_not.default": lambda op, n, b: (op(n), op(b)),
    },
    "pairs": {
        **{f"{name}.Tensor": lambda op, n, k: op(n, k) for name in ("eq", "ge", "gt", "le", "lt", "ne")},
        **{f"{name}.Scalar": lambda op, n, x: (op(n, 0.5), op(n, 1), op(x, 0)) for name in (
            "eq", "ge", "gt", "le", "lt", "ne")},
        "add.Tensor": lambda op, x, p, n, b: (op(x, p, alpha=2), op(n, p), op(n, 3), op(n, 0.5), op(b, b)),
        "add.Scalar": lambda op, x: op(x, 2),
        "sub.Tensor": lambda op, x, p, n: (op(x, p, alpha=3), op(n, p), op(n, 2)),
        "sub.Scalar": lambda op, n: op(n, 2),
        "rsub.Tensor": lambda op, x, p: op(x, p, alpha=2),
        "rsub.Scalar": lambda op, n: op(n, 2),
        "mul.Tensor": lambda op, x, n, k, half, b, c: (op(x, k), op(n, k), op(half, 2.5), op(b, c)),
        "mul.Scalar": lambda op, n: op(n, 0.5),
        "div.Tensor": lambda op, x, p, n, k: (op(x, p), op(n, k), op(n, 2)),
        "div.Scalar": lambda op, n: op(n, 3),
        "div.Tensor_mode": lambda op, x, p, n, k: tuple(
            op(a, b, rounding_mode=mode) for a, b in ((x, p), (n, k)) for mode in ("floor", "trunc", None)),
        "div.Scalar_mode": lambda op, n: op(n, 3, rounding_mode="floor"),
        "floor_divide.default": lambda op, n, x, k: (op(n, k), op(x, k)),
        "floor_divide.Scalar": lambda op, n: op(n, 2),
        "fmod.Tensor": lambda op, x, p, n, k: (op(x, p), op(n, k)),
        "fmod.Scalar": lambda op, n: op(n, 3),
        "remainder.Tensor": lambda op, x, p, n, k: (op(x, p), op(x, -p), op(n, k), op(n, -k)),
        "remainder.Scalar": lambda op, n, x: (op(n, 3), op(x, -1.5)),
        "pow.Tensor_Scalar": lambda op, p, n: (*(op(p, e) for e in (2, 3, 0.5, -0.5, -1, 1, 1.7, 4)), op(n, 2)),
        "pow.Tensor_Tensor": lambda op, p: op(p, p + 0.5),
        "pow.Scalar": lambda op, x: op(2.5, x),
        **{f"bitwise_{word}.Tensor": lambda op, n, k, b, c: (op(n, k), op(b, c)) for word in ("and", "or", "xor")},
        **{f"bitwise_{word}.Scalar": lambda op, n: op(n, 3) for word in ("and", "or", "xor")},
        **{f"logical_{word}.default": lambda op, n, b: op(n, b) for word in ("and", "or", "xor")},
        "atan2.default": lambda op, x, p: op(x, p - 0.5),
        "maximum.default": lambda op, x, p: op(x, p),
        "minimum.default": lambda op, x, p: op(x, p),
        "clamp.default": lambda op, x, n: (op(x, -0.5, 0.5), op(x, None, 0.1), op(n, -1)),
        "clamp.Tensor": lambda op, x, p: (op(x, p - 0.5, p), op(x, p)),
        "clamp_min.default": lambda op, x: op(x, 0.2),
        "clamp_min.Tensor": lambda op, x, p: op(x, p),
        "clamp_max.default": lambda op, x: op(x, 0.2),
        "clamp_max.Tensor": lambda op, x, p: op(x, p),
        "where.self": lambda op, b, x, p, n: (op(b, x, p), op(b, n, x)),
        "masked_fill.Scalar": lambda op, x, b: op(x, b, -math.inf),
        "masked_fill.Tensor": lambda op, x, b: op(x, b, torch.tensor(2.0)),
        "lerp.Scalar": lambda op, x, c: op(x, x * 2, 0.25),
        "lerp.Tensor": lambda op, x: op(x, x * 2, x),
        "addcmul.default": lambda op, x, p: op(x, p, p, value=2),
        "addcdiv.default": lambda op, x, p: op(x, p, p + 1),
        "threshold_backward.default": lambda op, x, p: op(x * p, x, 0),
        "gelu.default": lambda op, x: op(x, approximate="tanh"),
        "_to_copy.default": lambda op, x, n, b: (
            op(x, dtype=torch.int64), op(n, dtype=torch.float16), op(n, dtype=torch.bool), op(b, dtype=torch.float32)),
    },
    "moves": {
        **{f"{word}.default": lambda op, x: op(x) for word in (
            "alias", "clone", "detach")},
        "view.default": lambda op, x: (op(x, [6, 4]), op(x, [2, -1])),
        "_unsafe_view.default": lambda op, x: op(x, [24]),
        "squeeze.default": lambda op, x: op(x[:, :1]),
        "squeeze.dim": lambda op, x: op(x[:, :1], 1),
        "squeeze.dims": lambda op, x: op(x[:, :1, :1], [1, 2]),
        "unsqueeze.default": lambda op, x: op(x, -2),
        "split_with_sizes.default": lambda op, x: tuple(op(x, [1, 2], 1)),
        "split.Tensor": lambda op, x: tuple(op(x, 3, -1)),
        "reflection_pad1d.default": lambda op, x: op(x, [1, 2]),
        "reflection_pad2d.default": lambda op, image: op(image, [1, 2, 0, 3]),
        "replication_pad1d.default": lambda op, x: op(x, [1, 2]),
        "replication_pad2d.default": lambda op, image: op(image, [1, 2, 0, 3]),
        "cat.default": lambda op, x, n: (op([x, x * 2], 1), op([x, n], -1), op([torch.zeros(0), x[0]], 0)),
        "constant_pad_nd.default": lambda op, x: (op(x, [1, 2, 0, 1], 3.0), op(x, [-1, 2])),
        "diagonal.default": lambda op, x: (op(x, 0, 1, 2), op(x, 1, 0, 2)),
        "expand.default": lambda op, p: op(p, [2, 3, -1]),
        "flip.default": lambda op, x: op(x, [0, -1]),
        "permute.default": lambda op, x: op(x, [2, 0, -2]),
        "pixel_shuffle.default": lambda op, image: op(image, 2),
        "pixel_unshuffle.default": lambda op, image: op(image[..., :4], 2),
        "repeat.default": lambda op, p: op(p, [2, 1, 3]),
        "roll.default": lambda op, x: op(x, [1, -1], [1, 2]),
        "select.int": lambda op, x: op(x, 1, -1),
        "select_scatter.default": lambda op, x, p: op(x, p, 0, 1),
        "slice.Tensor": lambda op, x: (op(x, 2, 1, 9223372036854775807), op(x, -1, -3, -1), op(x, 2, 0, 4, 2)),
        "slice_scatter.default": lambda op, x: (op(x, x[:, :, :2] * 2, 2, 1, 3), op(x, x[..., :2] * 2, 2, 0, 4, 2)),
        "stack.default": lambda op, x, n: op([x, n], 1),
        "t.default": lambda op, p: op(p),
        "transpose.int": lambda op, x: op(x, 0, -1),
        "tril.default": lambda op, x: op(x, 1),
        "triu.default": lambda op, x: op(x, -1),
        "unbind.int": lambda op, x: tuple(op(x, 1)),
        "unfold.default": lambda op, x: op(x, 2, 2, 1),
    },
    "places": {
        "copy.default": lambda op, x, n: op(x, n),
        "cumprod.default": lambda op, p, n: (op(p, 1), op(n, 0)),
        "cumsum.default": lambda op, x, n, b: (op(x, 1), op(n, -1), op(b, 0)),
        "embedding.default": lambda op, p, at: op(p, at),
        "fill.Scalar": lambda op, x: op(x, 2.5),
        "full_like.default": lambda op, x: op(x, 2.5) * x,
        "gather.default": lambda op, x: op(x, 1, torch.tensor([[[0, 2, 1, 0]], [[1, 1, 0, 2]]])),
        "index.Tensor": lambda op, x, at: (
            op(x, [None, at]), op(x, [at[:, 0].clamp(max=1), None, at[:, 1]]), op(x, [torch.tensor([-1, 0]), at])),
        "index_select.default": lambda op, x, at: op(x, 1, at[0]),
        "new_full.default": lambda op, x: op(x, [2, 2], 1.5) + x[0, 0, 0],
        "new_ones.default": lambda op, n: op(n, [2]),
        "new_zeros.default": lambda op, x: op(x, [2]),
        "ones_like.default": lambda op, x: op(x),
        "zeros_like.default": lambda op, n: op(n),
    },
    "sums": {
        "addmm.default": lambda op, rows, columns, p: (op(p, rows, columns), op(p[0], rows, columns, beta=2, alpha=3)),
        "all.default": lambda op, b: op(b),
        "all.dim": lambda op, b: op(b, 1),
        "all.dims": lambda op, n: op(n, [0, 2]),
        "amax.default": lambda op, x: (op(x, [1], True), op(x)),
        "amin.default": lambda op, x: op(x, [-1, 0]),
        "any.default": lambda op, b: op(b),
        "any.dim": lambda op, n: op(n, -1, True),
        "any.dims": lambda op, b: op(b, [0, 1]),
        "argmax.default": lambda op, x: (op(x, 1), op(x), op(x, -1, True)),
        "argmin.default": lambda op, x: op(x, 0),
        "baddbmm.default": lambda op, x: op(x[:, :, :3], x, x.transpose(1, 2), alpha=0.5),
        "bmm.default": lambda op, x: op(x, x.transpose(1, 2)),
        "dot.default": lambda op, p: op(p[0], p[1]),
        "linalg_vector_norm.default": lambda op, x: (op(x), op(x, 1, [1]), op(x, math.inf, [-1], True)),
        "linear.default": lambda op, x, p: (op(x, p), op(x, p, p[:, 0]), op(x[0, 0], p)),
        "logsumexp.default": lambda op, x: op(x, [1]),
        "max.default": lambda op, x: op(x),
        "max.dim": lambda op, x: tuple(op(x, 1)),
        "mean.default": lambda op, x: op(x),
        "mean.dim": lambda op, x, n: (op(x, [0, -1]), op(n, [1], True, dtype=torch.float32)),
        "min.default": lambda op, n: op(n),
        "min.dim": lambda op, x: tuple(op(x, -1, True)),
        "mm.default": lambda op, rows, columns: op(rows, columns),
        "mv.default": lambda op, rows, columns: op(rows, columns[:, 0]),
        "prod.default": lambda op, x: op(x),
        "prod.dim_int": lambda op, x: op(x, 1),
        "std.correction": lambda op, x: op(x, [1, 2], correction=1),
        "sum.default": lambda op, x, b: (op(x), op(b)),
        "sum.dim_IntList": lambda op, x, n: (op(x, [1], True), op(n, [0], dtype=torch.float32)),
        "var.correction": lambda op, x: (op(x, [1], correction=0, keepdim=True), op(x)),
        "var.dim": lambda op, x: op(x, [2], False),
        "var_mean.correction": lambda op, x: tuple(op(x, [0, 2], correction=1, keepdim=True)),
    },
    "norms": {
        "_fused_rms_norm.default": lambda op, x, p: op(x, [4], p[0], None)[0],
        "_log_softmax.default": lambda op, x: op(x, 1, False),
        "_native_batch_norm_legit_no_training.default": lambda op, image, p: (
            op(image, p[0], p[1], p[1] - 0.3, p[2], 0.1, 1e-5)[0],
            op(image, None, None, torch.ones(4), torch.full((4,), 2.0), 0.1, 1e-3)[0]),
        "_native_batch_norm_legit_functional.default": lambda op, image, p: (
            tuple(op(image, p[0], p[1], p[1], p[2], True, 0.1, 1e-5)),
            op(image, None, None, torch.zeros(4), torch.ones(4), True, 0.3, 1e-3)[0]),
        "_softmax.default": lambda op, x: (op(x, -1, False), op(x, 0, False)),
        "group_norm.default": lambda op, image, p: op(image, 2, p[0], p[1]),
        "layer_norm.default": lambda op, x, p: (op(x, [4], p[0], p[1]), op(x, [3, 4], p)),
        "native_group_norm.default": lambda op, image, p: (
            op(image, p[0], p[1], 2, 4, 30, 2, 1e-5)[0], op(image, None, None, 2, 4, 30, 4, 1e-5)[0]),
        "native_layer_norm.default": lambda op, x, p: (
            tuple(op(x, [4], p[0], p[1], 1e-5)), op(x, [3, 4], p, None, 1e-5)[0], op(x, [4], None, None, 1e-5)[0]),
        "rms_norm.default": lambda op, x, p: op(x, [4], p[0], 1e-6),
    },
    "orders": {
        "_unsafe_index_put.default": lambda op, x, at: op(x, [at[0].clamp(max=1)], x[:, :1, :1], True),
        "argsort.default": lambda op, n: op(n, 1),
        "index_put.default": lambda op, x, at, line: (
            op(x, [torch.tensor([0, -1]), at[0]], x[:, 0]), op(x, [torch.tensor([1])], line[0, 0, :4], True)),
        "scatter.reduce": lambda op, x, at: op(x, 1, at[:, :, None], x[:, :2, :1] * 2, reduce="multiply"),
        "scatter.src": lambda op, x: op(x, 2, torch.tensor([[[0, 3], [1, 0], [2, 1]]]), x[:1, :, 2:] + 1),
        "scatter.value": lambda op, x, at: op(x, 1, at[:, :, None], 0.5),
        "scatter_add.default": lambda op, x, n: op(x, 0, n.clamp(0, 1), x * 2),
        "scatter_reduce.two": lambda op, x, n: op(x, 0, n.clamp(0, 1), x * 2, "amax"),
        "sort.default": lambda op, n: tuple(op(n, 0, True)),
        "sort.stable": lambda op, n: tuple(op(n, stable=True, dim=1)),
        "topk.default": lambda op, x, n: (*op(x, 2), op(x, 3, 1, False)[1]),
    },
    "windows": {
        "avg_pool3d.default": lambda op, image: op(image[None], [2, 2, 2], [1, 2, 1], [0, 1, 1], True, False),
        "max_pool3d_with_indices.default": lambda op, image: op(image[None], [3, 2, 2], [1, 2, 1], [1, 0, 0])[0],
        "grid_sampler_2d.default": lambda op, image, p: tuple(
            op(image, (p * 3 - 1).view(1, 2, 3, 2).expand(2, 2, 3, 2), mode, padding, corners)
            for mode, padding, corners in ((0, 0, False), (1, 1, True), (2, 2, False), (0, 2, True))),
        "_upsample_bilinear2d_aa.default": lambda op, image: op(image, [3, 4], False),
        "upsample_bicubic2d.vec": lambda op, image: (op(image, None, False, [2.0, 1.5]), op(image, [4, 8], True, None)),
        "_adaptive_avg_pool2d.default": lambda op, image: (op(image, [1, 1]), op(image, [3, 5]), op(image, [4, 3])),
        "adaptive_avg_pool2d.default": lambda op, image: op(image, [2, 1]),
        "avg_pool1d.default": lambda op, line: op(line, [2], [2]),
        "avg_pool2d.default": lambda op, image: (
            op(image, [2, 2]), op(image, [3], [2], [1]), op(image, [3, 3], [2, 2], [1, 1], True, False)),
        "convolution.default": lambda op, image, line, rows: (
            op(image, torch.linspace(-1, 1, 108).view(3, 4, 3, 3), rows[:, 0], [2, 1], [1, 0], [1, 1], False, [0], 1),
            op(image, torch.linspace(-1, 1, 36).view(4, 1, 3, 3), None, [1], [2], [2], False, [0], 4),
            op(line, torch.linspace(-1, 1, 18).view(3, 3, 2), None, [1], [1], [1], False, [0], 1),
            op(image, torch.linspace(-1, 1, 48).view(4, 3, 2, 2), None, [2, 2], [1, 0], [1, 1], True, [1, 0], 1)),
        "max_pool2d.default": lambda op, image: op(image, [2, 2], [2, 2], [0, 0], [1, 1], True),
        "max_pool2d_with_indices.default": lambda op, image: (
            op(image, [3, 3], [2, 2], [1, 1])[0], op(image[0], [2, 2])[0]),
        "_upsample_nearest_exact1d.default": lambda op, line: op(line, [9]),
        "_upsample_nearest_exact2d.default": lambda op, image: op(image, [9, 7]),
        "_upsample_nearest_exact2d.vec": lambda op, image: op(image, None, [2.0, 1.5]),
        "upsample_bilinear2d.vec": lambda op, image: op(image, None, False, [2.0, 1.5]),
        "upsample_linear1d.default": lambda op, line: op(line, [11], False),
        "upsample_linear1d.vec": lambda op, line: op(line, None, True, [2.0]),
        "upsample_nearest1d.default": lambda op, line: op(line, [9]),
        "upsample_nearest1d.vec": lambda op, line: op(line, None, [1.5]),
        "upsample_nearest2d.default": lambda op, image: op(image, [9, 7]),
        "upsample_nearest2d.vec": lambda op, image: op(image, None, [2.0, 1.5]),
    },
    "attention": {
        "scaled_dot_product_attention.default": lambda op, x: (
            op(*HEADS) * x[0, 0, 0],
            op(HEADS[0] * x[0, 0], *HEADS[1:], is_causal=True),
            op(HEADS[0] * x[0, 0], *HEADS[1:], torch.tensor([[True, False, True, True, False]] * 2 + [[False] * 5])),
            op(HEADS[0] * x[0, 0], *HEADS[1:], x[0, :, :1].expand(3, 5).contiguous(), scale=0.3),
            op(torch.cat(HEADS[:1] * 2, 1) * x[0, 0], *HEADS[1:], enable_gqa=True)),
        "_scaled_dot_product_flash_attention_for_cpu.default": lambda op, x: op(
            HEADS[1] * x[0, 0], *HEADS[1:], is_causal=True)[0],
    },
    "cells": {
        "lstm.input": lambda op, x: (
            *op(x, [torch.ones(4, 3, 3), torch.zeros(4, 3, 3)], CELLS[4, 2], True, 2, 0.0, False, True, False),
            *op(x, [torch.ones(2, 2, 3), torch.zeros(2, 2, 3)], CELLS[4, 1], True, 2, 0.0, False, False, True)),
        "gru.input": lambda op, x: op(x, torch.ones(2, 3, 3), CELLS[3, 1], True, 2, 0.0, False, False, False),
    },
}  # fmt: skip
UNREACHED = {
    "_upsample_bilinear2d_aa.vec", "prims.convert_element_type.default", "upsample_bicubic2d.default",
    "upsample_bilinear2d.default",
}  # fmt: skip
"""Rules of operators that torch.compile makes, and torch.export does not."""


class Table(torch.nn.Module):  # type: ignore[misc, name-defined]
    """A module of the rows of a table."""

    def __init__(self, rows: Mapping[str, Row]) -> None:
        super().__init__()
        self.rows = dict(rows)

    def forward(self, values: dict[str, Any]) -> dict[str, Any]:
        """What each row makes."""
        found = {}
        for name, row in self.rows.items():
            word, overload = name.split(".")
            wanted = row.__code__.co_varnames[1 : row.__code__.co_argcount]
            found[name] = row(getattr(getattr(torch.ops.aten, word), overload), *(values[w] for w in wanted))
        return found


def evaluated(network: Network, given: Any) -> Any:
    """What the program of a network makes, folded, by the reference of programs: no kernel is built."""
    program, names = program_of(network)
    assert network.signature is not None
    arrays = dict(zip((t.name for t in network.inputs), network.signature.flat((given,), {}), strict=True))
    read = {op.name for op in program.ops if isinstance(op, PlaceholderOp)}
    made = evaluate(program, {name: a for name, a in {**arrays, **network.weights}.items() if name in read})
    return network.signature.nested([made[name] for name in names], (given,), {})


@pytest.mark.parametrize("table", TABLES)
def test_operators_of_a_family(table: str) -> None:
    module, given = Table(TABLES[table]).eval(), inputs()
    network = from_torch(module, (given,))
    assert set(TABLES[table]) <= {origin.op for origin in network.origins.values()}
    made, wanted = evaluated(network, given), module(given)
    for name in TABLES[table]:
        got, want = (torch.utils._pytree.tree_leaves(found[name]) for found in (made, wanted))
        for one, other in zip(got, want, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}")


def test_every_rule_is_in_a_table() -> None:
    assert set(RULES) == {name for table in TABLES.values() for name in table} | UNREACHED
