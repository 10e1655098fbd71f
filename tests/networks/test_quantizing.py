"""Networks quantized here: equal to a reference of the same levels, in bytes all the way, and how far from floats."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang.errors import ArgumentError, DefinitionError
from tensorlang.networks.compiling import compile_network, program_of
from tensorlang.networks.groups import parts_of
from tensorlang.networks.network import Network
from tensorlang.networks.onnx.reading import from_onnx
from tensorlang.networks.quantizing.bfloat16 import to_bfloat16
from tensorlang.networks.quantizing.errors import layer_errors
from tensorlang.networks.quantizing.static import quantize
from tensorlang.networks.quantizing.weights import quantize_weights
from tests.networks.models import block, drawn, model, node, reference

SHAPE = (1, 6, 8, 8)
DATA = [drawn(*SHAPE, seed=seed) for seed in range(4)]


WEIGHTS = {
    "w1": drawn(8, 6, 3, 3, seed=1) * 0.2,
    "b1": drawn(8, seed=2),
    "w2": drawn(12, 8, 1, 1, seed=3) * 0.3,
    "w3": drawn(12, 6, 3, 3, seed=4) * 0.1,
    "w4": drawn(5, 24, 3, 3, seed=5) * np.linspace(0.01, 2, 5, dtype=np.float32).reshape(5, 1, 1, 1),
}


def residual(stride: int = 1, weights: dict[str, Any] = WEIGHTS) -> Any:
    """A bottleneck with a residual, a join of it with a pool, and a classifier; all arrays have names."""
    nodes = [
        node("Conv", "x w1 b1", "c1", pads=[1] * 4, strides=[stride] * 2),
        node("Relu", "c1", "r1"),
        node("Conv", "r1 w2", "c2"),
        node("Conv", "x w3", "c3", pads=[1] * 4, strides=[stride] * 2),
        node("Add", "c2 c3", "a"),
        node("Relu", "a", "r2"),
        node("MaxPool", "r2", "p", kernel_shape=[3, 3], pads=[1] * 4),
        node("Concat", "p r2", "j", axis=1),
        node("Conv", "j w4", "y", pads=[0, 1, 2, 0]),
    ]
    return model(nodes, {"x": SHAPE}, "y", weights)


def made(proto: Any, x: Any, name: str) -> Any:
    """What a model makes of an input under a name of its own."""
    from tests.networks.models import onnx

    part = onnx.ModelProto()
    part.CopyFrom(proto)
    del part.graph.output[:]
    part.graph.output.append(onnx.helper.make_empty_tensor_value_info(name))
    return reference(part, x)[0]


def rounded_weight(w: Any) -> Any:
    """Weights as int8 with a scale for each output, and back."""
    scale = np.abs(w).max(tuple(range(1, w.ndim)), keepdims=True) / 127
    return (np.rint(w / scale) * scale).astype(np.float32)


def in_levels(proto: Any, arrays: dict[str, tuple[float, float]]) -> Any:
    """The model with arrays by names rounded to 256 levels of a range for who reads them, and with rounded weights."""
    from tests.networks.models import onnx

    nodes, weights, names = [], dict[str, Any](), dict[str, str]()
    for w in proto.graph.initializer:
        array = onnx.numpy_helper.to_array(w)
        weights[w.name] = rounded_weight(array) if array.ndim == 4 else array

    def rounding(name: str) -> None:
        low, high = arrays[name]
        scale = np.float32((high - low) / 255)
        weights[f"{name}_s"], weights[f"{name}_z"] = scale, np.uint8(np.rint(-low / scale))
        nodes.append(node("QuantizeLinear", f"{name} {name}_s {name}_z", f"{name}_q"))
        nodes.append(node("DequantizeLinear", f"{name}_q {name}_s {name}_z", f"{name}_d"))
        names[name] = f"{name}_d"

    rounding("x")
    for old in proto.graph.node:
        new = onnx.NodeProto()
        new.CopyFrom(old)
        new.input[:] = [names.get(name, name) for name in old.input]
        nodes.append(new)
        if old.output[0] in arrays:
            rounding(old.output[0])
    return model(nodes, {"x": SHAPE}, "y", weights, opset=21)


@pytest.mark.parametrize("stride", [1, 2])
def test_results_are_those_of_the_same_levels(stride: int) -> None:
    """The reference of ONNX with what is read by products, and passes between their kernels, in 256 levels."""
    proto, x = residual(stride), DATA[0]
    ranges = {}
    for name in ("x", "r1", "r2", "c3"):
        found = np.concatenate([x if name == "x" else made(proto, x, name) for x in DATA])
        ranges[name] = (min(0.0, float(found.min())), float(found.max()))
    (want,) = reference(in_levels(proto, ranges), x)
    got = compile_network(quantize(from_onnx(proto), DATA, "minmax"))(x)
    few_differ_by_a_level = np.abs(got - want).mean() < 2e-3 * np.abs(want).max()
    assert few_differ_by_a_level
    np.testing.assert_allclose(got, want, atol=0.02 * np.abs(want).max())


def between(network: Network) -> dict[str, str]:
    """The dtypes of the arrays that kernels pass on to each other, but for the last one, by names of stages."""
    program, _ = program_of(network)
    passed = [name for part in parts_of(program) for name in part.outputs]
    passed = [name for name in passed if not {name, *program.consumers[name]} & {*program.outputs}]
    return {name: program.buffers[name].dtype for name in passed}


DEPTHWISE = {"d": drawn(8, 1, 3, 3, seed=3), "e": drawn(8, 6, 3, 3, seed=4), "f": drawn(6, 8, 1, 1, seed=5)}
IN_BYTES: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "depthwise": (
        [
            node("Conv", "x e", "a", pads=[1] * 4),
            node("Clip", "a zero six", "b"),
            node("Conv", "b d", "c", group=8, pads=[1] * 4),
            node("Clip", "c zero six", "g"),
            node("Conv", "g f", "h"),
            node("Add", "h x", "y"),
        ],
        {**DEPTHWISE, "zero": np.float32(0), "six": np.float32(6)},
    ),
    "moves": (
        [
            node("Conv", "x e", "a", pads=[1] * 4),
            node("Transpose", "a", "b", perm=[0, 2, 3, 1]),
            node("Pad", "b pads", "c"),
            node("Slice", "c one nine one", "g"),
            node("Reshape", "g flat", "h"),
            node("MatMul", "h v", "y"),
        ],
        {
            **DEPTHWISE,
            "pads": np.array([0, 1, 0, 0, 0, 1, 0, 0]),
            "one": np.array([1]),
            "nine": np.array([9]),
            "flat": np.array([-1, 16]),
            "v": drawn(16, 7, seed=6),
        },
    ),
}


def test_groups_and_short_sums_of_inputs_stay_in_floats() -> None:
    weights = {"s": drawn(8, 6, 2, 2, seed=3), "g": drawn(8, 4, 3, 3, seed=4), "l": drawn(5, 8, 3, 3, seed=5)}
    nodes = [node("Conv", "x s", "a"), node("Conv", "a g", "b", group=2), node("Conv", "b l", "y")]
    network = from_onnx(model(nodes, {"x": SHAPE}, "y", weights))
    rows = layer_errors(network, quantize(network, DATA), DATA)
    assert {row.node: row.own == math.inf for row in rows} == {"the a": True, "the b": True, "the y": False}


@pytest.mark.parametrize("case", ["residual", *IN_BYTES])
def test_bytes_pass_between_kernels(case: str) -> None:
    nodes, weights = IN_BYTES.get(case, ([], {}))
    proto = residual(2) if case == "residual" else model(nodes, {"x": SHAPE}, "y", weights)
    network = from_onnx(proto)
    quantized = quantize(network, DATA, "minmax")
    found = between(quantized)
    assert found
    assert set(found.values()) == {"uint8"}, found
    want, got = (compile_network(n)(DATA[1]) for n in (network, quantized))
    assert np.abs(got - want).max() < 0.05 * np.abs(want).max()


def test_nodes_that_are_kept_are_exact() -> None:
    """A kept product reads floats and makes what it made; patterns mean several nodes."""
    network = from_onnx(residual())
    rows = {row.node: row for row in layer_errors(network, quantize(network, DATA, keep=["the c3", "the y"]), DATA)}
    assert {name for name, row in rows.items() if row.own == math.inf} == {"the c3", "the y"}
    assert rows["the c3"].snr == math.inf
    assert 20 < rows["the y"].snr < 60
    program, _ = program_of(quantize(network, DATA, keep="the c[12]"))
    assert sum(name.endswith("_integers") for name in program.by_name) == 2


def test_what_is_worst_comes_first() -> None:
    """A channel far out, that nobody looks at, takes the levels from all others."""
    weights = dict(WEIGHTS, b1=WEIGHTS["b1"] + np.float32(500) * (np.arange(8) == 3), w2=WEIGHTS["w2"].copy())
    weights["w2"][:, 3] = 0
    network = from_onnx(residual(weights=weights))
    rows = layer_errors(network, quantize(network, DATA, "minmax"), DATA)
    assert [row.own for row in rows] == sorted(row.own for row in rows)
    assert rows[0].node == "the c2"
    assert rows[0].own < 25 < rows[1].own
    assert "the c2" in str(rows[0])


def test_ratios_are_of_sums_of_squares() -> None:
    network = from_onnx(block())
    quantized = quantize(network, DATA, "minmax")
    (row,) = [row for row in layer_errors(network, quantized, DATA) if row.node == "the y"]
    want, got = (np.array([compile_network(n)(x) for x in DATA], np.float64) for n in (network, quantized))
    assert row.snr == pytest.approx(10 * np.log10((want**2).sum() / ((got - want) ** 2).sum()), abs=1e-3)
    assert row.greatest == pytest.approx(np.abs(got - want).max(), rel=1e-5)
    assert row.own == math.inf


def test_modules_of_torch() -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    nn = torch.nn
    module = nn.Sequential(
        nn.Conv2d(6, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, stride=2),
        nn.Hardswish(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 10),
    ).eval()
    data = [torch.from_numpy(x) for x in DATA]
    quantized = quantize(tensorlang.from_torch(module, data[0]), data, "minmax")
    program, _ = program_of(quantized)
    assert sum(name.endswith("_integers") for name in program.by_name) == 3
    got, want = tensorlang.compile(quantized)(data[1]), module(data[1]).detach()
    assert torch.abs(got - want).max() < 0.05 * torch.abs(want).max()


def bad_file(folder: Path) -> Path:
    (folder / "x.npy").write_text("nothing")
    return folder


def bad_names(folder: Path) -> Path:
    np.savez(folder / "x.npz", z=DATA[0])
    return folder


def test_products_of_what_a_scan_makes_and_what_another_runtime_does() -> None:
    """Arrays of stages that are not made element by element stay in floats."""
    pytest.importorskip("onnxruntime")
    weights = {
        "w": drawn(1, 32, 16, seed=1) * 0.3,
        "r": drawn(1, 32, 8, seed=2) * 0.3,
        "v": drawn(8, 40, seed=3),
        "u": drawn(40, 8, seed=4),
        "t": drawn(10, 40, seed=5),
        "squares": np.array([5, 2, 10, 2, 2]),
        "axes": np.array([1]),
        "first": np.array([0]),
    }
    nodes = [
        node("LSTM", "x w r", "a b", hidden_size=8),
        node("Squeeze", "a axes", "c"),
        node("MatMul", "c v", "d"),
        node("Reshape", "d squares", "s"),
        node("Det", "s", "dets"),
        node("MatMul", "dets t", "e"),
        node("Squeeze", "b first", "f"),
        node("MatMul", "f v", "g"),
        node("Add", "e g", "h"),
        node("MatMul", "h u", "y"),
    ]
    proto, data = model(nodes, {"x": (5, 2, 16)}, "y", weights), [drawn(5, 2, 16, seed=seed) for seed in range(3)]
    network = from_onnx(proto, fallback="onnxruntime")
    assert [refusal.op for refusal in network.fallback] == ["Det"]
    quantized = quantize(network, data)
    rows = {row.node: row.own for row in layer_errors(network, quantized, data)}
    assert 30 < rows["the y"] < 60
    (want,) = onnxruntime_of(proto, data[0])
    np.testing.assert_allclose(compile_network(quantized)(data[0]), want, atol=0.05 * np.abs(want).max())


def onnxruntime_of(proto: Any, x: Any) -> list[Any]:
    """What onnxruntime makes of an input."""
    import onnxruntime

    found: list[Any] = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": x})
    return found


def test_columns_and_arrays_of_next_to_nothing() -> None:
    """Zeros, and numbers whose scale, or its reciprocal, float32 cannot hold."""
    weights = dict(WEIGHTS, w1=WEIGHTS["w1"].copy(), w2=WEIGHTS["w2"] * np.float32(1e-39))
    weights["w1"][0], weights["w1"][1] = 0, 1e-44
    network = from_onnx(residual(weights=weights))
    quantized = quantize(network, DATA)
    want, got = (compile_network(n)(DATA[0]) for n in (network, quantized))
    assert np.abs(got - want).max() < 0.05 * np.abs(want).max()
    silent = compile_network(quantize(network, [0 * x for x in DATA]))(DATA[0])
    assert np.isfinite(silent).all()


NAN = DATA[0] * np.where(np.arange(8) == 3, np.nan, 1).astype(np.float32)
BAD: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no folder": (lambda folder: folder / "none", "there is no folder .*none"),
    "an empty folder": (lambda folder: folder, r"there are no samples of inputs: the folder .* has no \.npy"),
    "no array": (bad_file, r"x\.npy is no array"),
    "other names": (bad_names, r"x\.npz: the inputs are x, got z"),
    "no samples": (lambda folder: [], "there are no samples"),
    "no iterable": (lambda folder: {"x": DATA[0]}, "an iterable of samples, got dict"),
    "another shape": (
        lambda folder: [DATA[0], DATA[0][0]],
        r"sample 1: .*float32\[1, 6, 8, 8\], got float32\[6, 8, 8\]",
    ),
    "another dtype": (lambda folder: [DATA[0].astype(np.float64)], r"sample 0: .*got float64\[1, 6, 8, 8\]"),
    "two inputs": (lambda folder: [(DATA[0], DATA[0])], "has 1 inputs .*got 2"),
    "no number": (lambda folder: iter([NAN]), "sample 0: the input x has numbers that are not finite"),
    "overflow": (lambda folder: [np.full(SHAPE, 3e38, np.float32)], "sample 0: .*not finite"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_samples_are_refused(case: str, tmp_path: Path) -> None:
    give, why = BAD[case]
    with pytest.raises(ArgumentError, match=why):
        quantize(from_onnx(residual()), give(tmp_path))


def test_other_words_are_refused() -> None:
    network = from_onnx(residual())
    for options, why in (
        ({"method": "mean"}, "methods are minmax, percentile, entropy, got 'mean'"),
        ({"keep": ["the c9"]}, "no node is called 'the c9'; there are the c1"),
        ({"percentile": 0}, "at most 100, got 0"),
    ):
        with pytest.raises(ArgumentError, match=why):
            quantize(network, DATA, **options)
    nothing = from_onnx(model([node("Relu", "x", "y")], {"x": (3,)}, "y"))
    with pytest.raises(DefinitionError, match="no products by known weights"):
        quantize(nothing, [drawn(3)])
    with pytest.raises(ArgumentError, match="no layers in common"):
        layer_errors(network, nothing, DATA)


def test_samples_of_a_folder(tmp_path: Path) -> None:
    """The same ranges as from the same samples in another order."""
    for number, x in enumerate(DATA):
        np.save(tmp_path / f"{number}.npy", x) if number % 2 else np.savez(tmp_path / f"{number}.npz", x=x)
    (tmp_path / "labels.txt").write_text("0 1 2 3")
    network = from_onnx(residual())
    from_folder, given = quantize(network, tmp_path, "entropy"), quantize(network, DATA[::-1], "entropy")
    assert program_of(from_folder)[0].text == program_of(given)[0].text


@pytest.mark.parametrize(("most_uses", "rounded"), [(1, "v"), (63, "v"), (256, "w v"), (None, "w v")])
def test_weights_alone_are_rounded(most_uses: int | None, rounded: str) -> None:
    """The same as floats with rounded weights; those that a call uses more often are left."""
    nodes = [
        node("Conv", "x w b", "c", pads=[1] * 4),
        node("Relu", "c", "r"),
        node("Flatten", "r", "f"),
        node("Gemm", "f v", "y", transB=1),
    ]
    weights = {"w": WEIGHTS["w1"], "b": WEIGHTS["b1"], "v": drawn(10, 512, seed=8)}
    quantized = quantize_weights(from_onnx(model(nodes, {"x": SHAPE}, "y", weights)), most_uses=most_uses)
    held = compile_network(quantized)
    assert sum(w.dtype == np.int8 for w in held.weights.values()) == len(rounded.split())
    weights |= {name: rounded_weight(weights[name]) for name in rounded.split()}
    (want,) = reference(model(nodes, {"x": SHAPE}, "y", weights), DATA[0])
    np.testing.assert_allclose(held(DATA[0]), want, rtol=1e-4, atol=1e-4)


def test_what_has_no_weights_to_round_is_refused() -> None:
    network = from_onnx(residual())
    with pytest.raises(DefinitionError, match="no weights of products that are used 8 times at most"):
        quantize_weights(network, most_uses=8)
    with pytest.raises(ArgumentError, match="1 at least, or None; got 0"):
        quantize_weights(network, most_uses=0)
    rows = layer_errors(network, quantize_weights(network, keep=["the c1"]), DATA)
    assert [row.node for row in rows if row.own == math.inf] == ["the c1"]
    assert min(row.own for row in rows) > 35


ZEN = "llvm -mcpu=znver4"


@pytest.mark.parametrize("target", [None, "llvm -mcpu=haswell", "interpreter"])
def test_products_of_bfloat16(target: str | None) -> None:
    """With and without dot instructions; what is read by products, and passes between them, is rounded."""
    network = from_onnx(residual(2))
    rounded = to_bfloat16(network, target=ZEN)
    assert set(between(rounded).values()) == {"bfloat16"}
    rows = layer_errors(network, rounded, DATA)
    assert all(44 < row.own < 60 for row in rows)
    (want,) = reference(residual(2), DATA[0])
    model = compile_network(rounded, target)
    assert {str(w.dtype) for w in model.weights.values() if w.ndim > 1} == {"bfloat16"}
    np.testing.assert_allclose(model(DATA[0]), want, atol=0.02 * np.abs(want).max())


def test_what_is_slower_in_bfloat16_stays() -> None:
    """Winograd's convolutions, and on CPUs of Intel products whose weights are used often, unless these have tiles."""
    nodes = [
        node("Conv", "x u", "z"),
        node("Conv", "z w", "c", pads=[1] * 4),
        node("GlobalMaxPool", "c", "m"),
        node("Flatten", "m", "f"),
        node("MatMul", "f v", "y"),
    ]
    weights = {"w": drawn(64, 64, 3, 3, seed=1) * 0.05, "u": drawn(64, 64, 1, 1, seed=3), "v": drawn(64, 32, seed=2)}
    network = from_onnx(model(nodes, {"x": (1, 64, 28, 28)}, "y", weights))
    some = {"conv0_weight", "matmul4_weight"}
    for target, taken in (
        (ZEN, some),
        ("llvm -mcpu=cooperlake", {"matmul4_weight"}),
        ("llvm -mcpu=sapphirerapids", {*some, "conv1_weight"}),
    ):
        made = to_bfloat16(network, target=target)
        assert {name for name, array in made.weights.items() if array.dtype == "bfloat16"} == taken
    kept, _ = program_of(to_bfloat16(network, ["the y", "the z"], ZEN))
    assert not [name for name in kept.by_name if "bfloat16" in name]
    with pytest.raises(DefinitionError, match="no products by known weights to make in bfloat16"):
        to_bfloat16(from_onnx(model([node("Relu", "x", "y")], {"x": (3,)}, "y")))


@pytest.mark.parametrize("quantized", [lambda path: quantize(path, []), quantize_weights, to_bfloat16])
def test_files_are_read_before_they_are_quantized(quantized: Callable[[Any], Network]) -> None:
    with pytest.raises(ArgumentError, match="networks are quantized, got str; read a model first"):
        quantized("model.onnx")
