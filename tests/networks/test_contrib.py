"""Operators of onnxruntime's own domain: what onnxruntime makes of them is made here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from tensorlang.networks import UnsupportedModel
from tensorlang.networks.compiling import compile_network
from tensorlang.networks.onnx.reading import from_onnx
from tests.networks.models import drawn, model, node, onnx

runtime: Any = pytest.importorskip("onnxruntime")
B, S, N, H = 2, 5, 2, 16
D = N * H


@dataclass(frozen=True)
class Case:
    """A node; its inputs are arrays by name, in order, `-` for none; `weights` and numbers are known ahead.

    So many outputs are `compared`: what lies in a cache behind new rows is nobody's.
    """

    op: str
    inputs: dict[str, Any]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: str = "y"
    weights: str = ""
    domain: str = "com.microsoft"
    compared: int = 9
    tolerance: float = 2e-5

    @property
    def proto(self) -> Any:
        """The model of the node alone."""
        made = node(self.op, " ".join(self.inputs), self.outputs, domain=self.domain, **self.attributes)
        real = {name: array for name, array in self.inputs.items() if not name.startswith("-")}
        made.input[:] = ["" if name.startswith("-") else name for name in self.inputs]
        made.output[:] = ["" if name == "-" else name for name in self.outputs.split()]
        known = {name: array for name, array in real.items() if not array.ndim or name in self.weights.split()}
        given = {name: array for name, array in real.items() if name not in known}
        shapes = {name: array.shape for name, array in given.items()}
        outputs, dtypes = " ".join(filter(None, made.output)), {name: array.dtype for name, array in given.items()}
        proto = model([made], shapes, outputs, known, 17, dtypes)
        proto.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
        return proto


def tokens(seed: int, width: int = D, rows: int = S) -> Any:
    return drawn(B, rows, width, seed=seed)


def heads(seed: int, rows: int, count: int = N) -> Any:
    return drawn(B, count, rows, H, seed=seed)


def ids(*shape: int, most: int = 7) -> Any:
    return np.random.default_rng(3).integers(0, most, shape).astype(np.int32)


def raw(*shape: int) -> Any:
    """A mask that leaves the first key of each row."""
    made = np.random.default_rng(4).integers(0, 2, shape).astype(np.int32)
    made[..., 0] = 1
    return made


def turns(rows: int = 16) -> dict[str, Any]:
    angles = np.arange(rows)[:, None] * 0.3 ** np.arange(H // 2)
    return {"cos": np.cos(angles).astype(np.float32), "sin": np.sin(angles).astype(np.float32)}


def bytes_of(seed: int, *shape: int, dtype: Any = np.uint8) -> Any:
    return np.random.default_rng(seed).integers(20, 120, shape).astype(dtype)


def scaled(name: str, array: Any, scale: float = 0.05, zero: int = 3) -> dict[str, Any]:
    return {name: array, f"{name}s": np.float32(scale), f"{name}z": array.dtype.type(zero)}


def few_bits(shape: tuple[int, ...], n: int, block: int, bits: int = 4, zeros: bool = False, **more: Any) -> Case:
    """A product with weights of a few bits, by data of a shape."""
    rng, k = np.random.default_rng(n), shape[-1]
    blocks = -(-k // block)
    arrays = {
        "x": drawn(*shape),
        "w": rng.integers(0, 256, (n, blocks, block * bits // 8), dtype=np.uint8),
        "s": (rng.random(n * blocks) * 0.1).astype(np.float32),
    }
    if zeros:
        arrays["z"] = rng.integers(0, 256, n * -(-blocks * bits // 8), dtype=np.uint8)
    if more.pop("bias", False):
        arrays |= {name: np.float32(0) for name in ("-z", "-g") if not (zeros and name == "-z")} | {"b": drawn(n)}
    return Case("MatMulNBits", arrays, {"N": n, "K": k, "bits": bits, "block_size": block, **more}, weights="w s z")


OUT = {"os": np.float32(0.1), "oz": np.uint8(5)}
PROJECTED = {"x": tokens(1), "w": drawn(D, 3 * D, seed=2) * 0.3, "b": drawn(3 * D, seed=3)}
THREE = {"q": tokens(1), "k": tokens(2, rows=7), "v": tokens(3, rows=7)}
GROUPED = {"q": tokens(1, 2 * D), "k": tokens(2), "v": tokens(3)}
IMAGE = bytes_of(1, 1, 4, 6, 6)
EMBEDDED = {"i": ids(B, S), "s": ids(B, S, most=2), "w": drawn(9, D, seed=1), "p": drawn(8, D, seed=2)}
EMBEDDED |= {"t": drawn(2, D, seed=3), "g": drawn(D, seed=4), "b": drawn(D, seed=5)}

CASES = {
    "4 bits": few_bits((1, 64), 48, 32, accuracy_level=4),
    "4 bits, floats": few_bits((3, 64), 20, 32, zeros=True),
    "4 bits, odd blocks": few_bits((2, 80), 33, 16, zeros=True, accuracy_level=4),
    "4 bits, part of a block, bias": few_bits((2, 3, 300), 24, 128, zeros=True, bias=True, accuracy_level=4),
    "2 bits": few_bits((1, 64), 16, 32, 2, zeros=True, accuracy_level=4),
    "8 bits": few_bits((1, 64), 16, 32, 8, accuracy_level=4),
    "fast gelu": Case("FastGelu", {"x": tokens(1) * 3, "b": drawn(D)}),
    "fast gelu, no bias": Case("FastGelu", {"x": tokens(1) * 3}),
    "bias gelu": Case("BiasGelu", {"x": tokens(1) * 3, "b": drawn(D)}),
    "gelu": Case("Gelu", {"x": tokens(1) * 3}),
    "quick gelu": Case("QuickGelu", {"x": tokens(1) * 3}, {"alpha": 1.3}),
    "matmul": Case("FusedMatMul", {"a": drawn(2, 4, 3), "b": drawn(2, 5, 4)}, {"alpha": 0.3, "transA": 1, "transB": 1}),
    "conv": Case(
        "FusedConv",
        {"x": drawn(1, 3, 6, 6), "w": drawn(4, 3, 3, 3), "b": drawn(4), "z": drawn(1, 4, 6, 6)},
        {"pads": [1] * 4, "activation": "Relu"},
    ),
    "gemm": Case(
        "FusedGemm", {"a": drawn(3, 4), "b": drawn(5, 4), "c": drawn(5)},
        {"transB": 1, "alpha": 0.5, "activation": "LeakyRelu", "activation_alpha": 0.2},
    ),
    "skip layer norm": Case(
        "SkipLayerNormalization", {"x": tokens(1), "s": tokens(2), "g": drawn(D), "b": drawn(D, seed=2), "c": drawn(D)},
        {"epsilon": 1e-3}, "y - - total",
    ),
    "skip norm": Case("SkipSimplifiedLayerNormalization", {"x": tokens(1), "s": tokens(2), "g": drawn(D)}),
    "simple norm": Case("SimplifiedLayerNormalization", {"x": tokens(1), "g": drawn(D)}, {"axis": -1}, domain=""),
    "embeddings": Case("EmbedLayerNormalization", EMBEDDED | {"m": raw(B, S)}, outputs="y n"),
    "embeddings of places": Case(
        "EmbedLayerNormalization",
        {"i": ids(B, S), "-": 0, "w": EMBEDDED["w"], "p": EMBEDDED["p"], "--": 0, "g": drawn(D), "b": drawn(D, seed=1),
         "---": 0, "at": ids(B, S)},
        outputs="y n",
    ),
    "attention": Case("Attention", PROJECTED, {"num_heads": N}, weights="w b"),
    "attention, lengths": Case("Attention", PROJECTED | {"m": np.array([3, 5], np.int32)}, {"num_heads": N}),
    "attention, raw mask": Case("Attention", PROJECTED | {"m": raw(B, S)}, {"num_heads": N, "unidirectional": 1}),
    "attention, mask of rows": Case("Attention", PROJECTED | {"m": raw(B, S, S)}, {"num_heads": N, "scale": 0.5}),
    "attention behind others": Case(
        "Attention", PROJECTED | {"m": raw(B, S + 3), "past": drawn(2, B, N, 3, H, seed=6)},
        {"num_heads": N, "unidirectional": 1}, "y present",
    ),
    "attention, narrow values": Case(
        "Attention", {"x": tokens(1), "w": drawn(D, 2 * D + 4) * 0.3, "b": drawn(2 * D + 4)},
        {"num_heads": N, "qkv_hidden_sizes": [D, D, 4]},
    ),
    "heads": Case("MultiHeadAttention", THREE | {"b": drawn(3 * D), "m": raw(B, 7)}, {"num_heads": N}),
    "heads, bias of scores": Case(
        "MultiHeadAttention", THREE | {"-": 0, "--": 0, "a": drawn(1, N, S, 7)}, {"num_heads": N}
    ),
    "heads behind others": Case(
        "MultiHeadAttention",
        {"q": tokens(1), "k": tokens(2), "v": tokens(3), "-": 0, "--": 0, "---": 0,
         "pk": heads(4, 3), "pv": heads(5, 3)},
        {"num_heads": N, "unidirectional": 1}, "y nk nv",
    ),
    "keys by heads": Case("MultiHeadAttention", {"q": tokens(1), "k": heads(2, 7), "v": heads(3, 7)}, {"num_heads": N}),
    "rotary": Case("RotaryEmbedding", {"x": tokens(1), "p": np.array([2], np.int64), **turns()}),
    "rotary of heads": Case(
        "RotaryEmbedding", {"x": heads(1, S), "p": ids(B, S).astype(np.int64), **turns()}, {"interleaved": 1}
    ),
    "grouped": Case(
        "GroupQueryAttention",
        GROUPED | {"-": 0, "--": 0, "l": np.full(B, S - 1, np.int32), "t": np.int32(S), **turns()},
        {"num_heads": 2 * N, "kv_num_heads": N, "do_rotary": 1}, "y nk nv",
    ),
    "grouped behind others": Case(
        "GroupQueryAttention",
        {"q": tokens(1, 2 * D, 1), "k": tokens(2, rows=1), "v": tokens(3, rows=1), "pk": heads(4, 6), "pv": heads(5, 6),
         "l": np.array([4, 6], np.int32), "t": np.int32(7), **turns()},
        {"num_heads": 2 * N, "kv_num_heads": N, "do_rotary": 1, "rotary_interleaved": 1}, "y nk nv",
        compared=1,
    ),
    "integers added": Case("QLinearAdd", scaled("a", IMAGE) | scaled("b", bytes_of(2, 6, 6), 0.02) | OUT),
    "integers multiplied": Case("QLinearMul", scaled("a", IMAGE) | scaled("b", bytes_of(2, 6, 6), 0.02) | OUT),
    "integers pooled": Case("QLinearGlobalAveragePool", scaled("a", IMAGE) | OUT),
    "integers averaged": Case(
        "QLinearAveragePool", scaled("a", IMAGE) | OUT, {"kernel_shape": [2, 2], "strides": [2, 2]}
    ),
    "integers, leaky": Case(
        "QLinearLeakyRelu", scaled("a", IMAGE, zero=70) | OUT | {"oz": np.uint8(90)}, {"alpha": 0.3}
    ),
    "integers, sigmoid": Case(
        "QLinearSigmoid", scaled("a", IMAGE, zero=70) | {"os": np.float32(1 / 256), "oz": np.uint8(0)}
    ),
    "integers, softmax": Case(
        "QLinearSoftmax",
        scaled("a", IMAGE) | {"os": np.float32(1 / 256), "oz": np.uint8(0)},
        {"axis": -1, "opset": 13},
    ),
    "integers of floats": Case("QuantizeLinear", {"x": tokens(1), "s": np.float32(0.02), "z": np.uint8(100)}),
    "floats of integers": Case("DequantizeLinear", scaled("a", IMAGE)),
    "integers joined": Case(
        "QLinearConcat", OUT | scaled("a", IMAGE) | scaled("b", bytes_of(2, 1, 2, 6, 6), 0.02), {"axis": 1}
    ),
    "integers, gemm": Case(
        "QGemm", scaled("a", bytes_of(1, 3, 8)) | scaled("b", bytes_of(2, 8, 5, dtype=np.int8), 0.02, 0)
        | {"c": np.arange(5, dtype=np.int32) * 100, "os": np.float32(0.7), "oz": np.uint8(5)},
        weights="b",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_as_onnxruntime_has_it(name: str) -> None:
    case = CASES[name]
    proto = case.proto
    session = runtime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    given = {i.name: case.inputs[i.name] for i in session.get_inputs()}
    wanted = session.run(None, given)
    made = compile_network(from_onnx(proto)).run([given[i.name] for i in proto.graph.input])
    for got, want in list(zip(made, wanted, strict=True))[: case.compared]:
        assert got.shape == want.shape and got.dtype == want.dtype
        if got.dtype == np.uint8:
            assert np.abs(got.astype(int) - want).max() <= 1 and np.ptp(want) > 2
        else:
            np.testing.assert_allclose(got, want, rtol=case.tolerance, atol=case.tolerance)


def test_what_is_not_taken_is_said() -> None:
    packed = Case("MultiHeadAttention", {"q": drawn(B, S, N, 3, H)}, {"num_heads": N})
    other = Case("Attention", PROJECTED | {"m": raw(B + 1, S)}, {"num_heads": N})
    open_length = Case("GroupQueryAttention", GROUPED | {"-": 0, "--": 0, "l": ids(B), "t": ids(1)},
                       {"num_heads": 2 * N, "kv_num_heads": N})  # fmt: skip
    for case, why in (
        (packed, "queries that are packed with keys"),
        (other, r"a mask of the shape \(3, 5\)"),
        (open_length, "total_sequence_length"),
        (few_bits((1, 64), 16, 32, 4, accuracy_level=4, K=63), "whose rows are no 63 numbers"),
        (few_bits((1, 64), 16, 32, 4, block_size=64, K=640), "with weights uint8"),
        (few_bits((1, 64), 16, 32, 3), "16 by 64 weights of 3 bits in blocks of 32"),
        (Case("NGramRepeatBlock", {"x": ids(B, S)}), "this operator of onnxruntime is not known yet"),
    ):
        with pytest.raises(UnsupportedModel, match=why):
            from_onnx(case.proto)
