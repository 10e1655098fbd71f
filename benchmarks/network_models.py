"""The networks of the benchmark: models with random weights, and what each is to reach.

Those of PyTorch and torchvision are exported where they are installed, the others are the light models in the onnx
package, but for those with LRN, of which its reference and onnxruntime make results that differ by a thousandth.
"""

from __future__ import annotations

import fnmatch
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contestant import Absent
from benchmarks.operators import Array
from benchmarks.workloads import Goal

TOLERANCE = 1e-4
"""Largest error over largest value: that of 50 layers of Winograd's algorithm stays below a fifth of it."""
NARROW_TOLERANCE = 0.1
"""Of networks in 8 bits, where a sum that lies between two bytes may become either."""
_SEED = 0
_OCR = "rapidocr_onnxruntime"
_OPSET = 17
_QDQ_OPSET = 19
"""From which on the reference of the onnx package has the operators of quantized models."""
_OPEN = 4
"""The version of the format from which initial values need not be inputs."""


@dataclass(frozen=True)
class NetworkWork:
    """A model in a file, as the contest takes it; `operations` and `bytes` are those of its kernels.

    `module`: its name among those of PyTorch, where it is from there.
    """

    name: str
    path: Path
    goal: Goal
    module: str = ""
    operator: str = "network"
    group: str = "network"
    constant: tuple[str, ...] = ()
    dtype: str = "float32"
    tolerance: float = TOLERANCE

    @property
    def all_options(self) -> dict[str, Any]:
        """What a contestant is told."""
        return {"model": str(self.path), "module": self.module, "dtype": self.dtype}

    @cached_property
    def _report(self) -> Any:
        from tensorlang.networks.report import inspect

        return inspect(self.path)

    @cached_property
    def operations(self) -> float:
        """Arithmetic operations of all nodes: two for each term of a sum."""
        return float(sum(row.operations for row in self._report.rows))

    @cached_property
    def bytes(self) -> int:
        """Bytes of weights, and of the inputs."""
        return int(self._report.weights + sum(array.nbytes for array in self.inputs().values()))

    def inputs(self) -> dict[str, Array]:
        """Random inputs, in the order of the model: `x0`, `x1`, ..."""
        import onnx

        proto, rng = onnx.load(self.path), np.random.default_rng(_SEED)
        held = {tensor.name for tensor in proto.graph.initializer}
        shapes = [
            [d.dim_value for d in given.type.tensor_type.shape.dim]
            for given in proto.graph.input
            if given.name not in held
        ]
        return {f"x{k}": rng.standard_normal(shape).astype(np.float32) for k, shape in enumerate(shapes)}

    def reference(self, inputs: Mapping[str, Array]) -> Array:
        """The first output, by the reference of the onnx package."""
        from onnx.reference import ReferenceEvaluator

        evaluator = ReferenceEvaluator(str(self.path))
        held = {tensor.name for tensor in evaluator.proto_.graph.initializer}
        names = [name for name in evaluator.input_names if name not in held]
        found = evaluator.run(None, dict(zip(names, inputs.values(), strict=True)))
        return np.asarray(found[0], np.float64)


@dataclass(frozen=True, slots=True)
class NetworkModel:
    """A network by name: `write` makes its model in a file, for which `needs` are installed.

    `module`: its name among those of PyTorch, where it is from there. `tolerance`: the largest error that is allowed,
    over the largest value.
    """

    name: str
    goal: Goal
    write: Callable[[Path], None]
    needs: tuple[str, ...] = ("onnx",)
    module: str = ""
    tolerance: float = TOLERANCE

    def made(self, folder: Path) -> NetworkWork | Absent:
        """Write the model into a folder."""
        missing = [package for package in self.needs if importlib.util.find_spec(package) is None]
        if missing:
            return Absent(f"not installed: {', '.join(missing)}")
        path = folder / f"{self.name}.onnx"
        self.write(path)
        return NetworkWork(self.name, path, self.goal, self.module, tolerance=self.tolerance)


def _torch(name: str, goal: float, shape: tuple[int, ...], *needs: str) -> NetworkModel:
    """A module of PyTorch on one input, exported; `shape` begins with the batch."""

    def write(path: Path) -> None:
        import torch

        from benchmarks.peers.torch_modules import module_of

        torch.onnx.export(module_of(name), (torch.zeros(shape),), str(path), dynamo=False, input_names=["x"])

    called = name if shape[0] == 1 else f"{name}_batch_{shape[0]}"
    return NetworkModel(called, Goal(goal, goal), write, ("onnx", "torch", *needs), name)


def _vision(name: str, goal: float, batch: int = 1) -> NetworkModel:
    """A network of torchvision, on images of 224 * 224 pixels."""
    return _torch(name, goal, (batch, 3, 224, 224), "torchvision")


def _text(name: str, goal: float, batch: int = 1) -> NetworkModel:
    """The layers of a transformer, on the states of 128 tokens."""
    return _torch(name, goal, (batch, 128, 768))


def _in_bytes(model: NetworkModel, goal: float) -> NetworkModel:
    """The model with QDQ nodes, by onnxruntime: unsigned data, signed weights with a scale for each filter.

    Calibrated with random images as those that it gets. Where sums round to other bytes, results are further apart
    than those of floats.
    """

    def write(path: Path) -> None:
        import onnx
        import onnx.version_converter
        from onnxruntime.quantization import QuantFormat, QuantType, quant_pre_process, quantize_static

        floats = path.with_suffix(".floats.onnx")
        model.write(floats)
        proto = onnx.load(floats)
        if proto.opset_import[0].version < _QDQ_OPSET:
            onnx.save(onnx.version_converter.convert_version(proto, _QDQ_OPSET), floats)
        quant_pre_process(floats, floats, skip_symbolic_shape=True)
        quantize_static(
            floats,
            path,
            _Samples(floats),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )
        floats.unlink()

    needs = (*model.needs, "onnxruntime")
    return NetworkModel(f"{model.name}_int8", Goal(goal, goal), write, needs, tolerance=NARROW_TOLERANCE)


class _Samples:
    """Random inputs of a model, one by one, as onnxruntime asks for them."""

    def __init__(self, path: Path, count: int = 4) -> None:
        import onnx

        (given,) = onnx.load(path).graph.input
        shape = [d.dim_value for d in given.type.tensor_type.shape.dim]
        rng = np.random.default_rng(_SEED + 1)
        self._left = iter([{given.name: rng.standard_normal(shape).astype(np.float32)} for _ in range(count)])

    def get_next(self) -> dict[str, Array] | None:
        """The next one, or None behind the last."""
        return next(self._left, None)


def _light(name: str, goal: float) -> NetworkModel:
    """A light model of the onnx package, with random weights in place of its equal ones."""

    def write(path: Path) -> None:
        import onnx

        data = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
        onnx.save(randomized(onnx.load(data / f"light_{name}.onnx")), path)

    return NetworkModel(name.replace("_", "-"), Goal(goal, goal), write)


def _trained(name: str, goal: float, package: str, file: str, **shapes: tuple[int, ...]) -> NetworkModel:
    """A trained model in a wheel, for inputs of some shapes, in the opset that the reference is exact for.

    What it ends with, between 0 and 1, is left out, since it would hide errors.
    """

    def write(path: Path) -> None:
        import onnx
        import onnx.version_converter

        found = importlib.util.find_spec(package)
        assert found is not None and found.submodule_search_locations
        proto = onnx.load(Path(found.submodule_search_locations[0]) / file)
        for given in proto.graph.input:
            for dim, extent in zip(given.type.tensor_type.shape.dim, shapes.get(given.name, ()), strict=False):
                dim.dim_value = extent
        last = proto.graph.node[-1]
        if last.op_type in ("Sigmoid", "Softmax"):
            last.CopyFrom(onnx.helper.make_node("Identity", last.input, last.output, last.name))
        onnx.save(onnx.version_converter.convert_version(proto, _OPSET), path)

    return NetworkModel(name, Goal(goal, goal), write, ("onnx", package))


def randomized(proto: Any) -> Any:
    """The model with random weights where nodes fill arrays with one number; variances stay positive.

    Dropout becomes what it is in inference, a softmax at the end is left out, which would hide errors, and weights are
    no inputs any more. The opset is one that the reference of the onnx package is exact for.
    """
    import onnx
    import onnx.version_converter

    rng, graph = np.random.default_rng(_SEED), proto.graph
    shapes = {t.name: onnx.numpy_helper.to_array(t) for t in graph.initializer}
    places = {name: (node.op_type, k) for node in graph.node for k, name in enumerate(node.input)}
    for node in [n for n in graph.node if n.op_type == "ConstantOfShape" and n.input[0] in shapes]:
        shape = tuple(map(int, shapes[node.input[0]]))
        array = _weights(rng, shape, *places.get(node.output[0], ("", 0)))
        graph.initializer.append(onnx.numpy_helper.from_array(array, node.output[0]))
        graph.node.remove(node)
    for node in [n for n in graph.node if n.op_type == "Dropout"]:
        node.CopyFrom(onnx.helper.make_node("Identity", node.input[:1], node.output[:1], node.name))
    read = {name for node in graph.node for name in node.input}
    for held in [t for t in graph.initializer if t.name not in read]:
        graph.initializer.remove(held)
    known = {t.name for t in graph.initializer} | shapes.keys()
    for given in [i for i in graph.input if i.name in known]:
        graph.input.remove(given)
    last = graph.node[-1]
    if last.op_type == "Softmax":
        last.CopyFrom(onnx.helper.make_node("Identity", last.input, last.output, last.name))
    proto.ir_version = max(proto.ir_version, _OPEN)
    return onnx.version_converter.convert_version(proto, _OPSET)


def _weights(rng: np.random.Generator, shape: tuple[int, ...], op: str, place: int) -> Array:
    """Weights as they are before training (He et al., 2015), and norms that change little."""
    if op == "BatchNormalization":
        mean = 1.0 if place in (1, 4) else 0.0
        return (mean + 0.1 * rng.uniform(-1, 1, shape)).astype(np.float32)
    fan = int(np.prod(shape[1:])) if len(shape) > 1 else 100
    return np.asarray(rng.standard_normal(shape) * np.sqrt(2 / max(fan, 1)), np.float32)


MODELS = (
    _vision("resnet18", 1.6),
    _vision("resnet50", 1.15),
    _vision("mobilenet_v2", 1.15),
    _vision("mobilenet_v3_large", 1.15),
    _vision("efficientnet_b0", 1.15),
    _vision("vgg19", 2.5),
    _vision("vit_b_16", 1.0),
    _text("bert_base", 1.0),
    _text("gpt2_small", 1.0),
    _torch("detector", 1.4, (1, 3, 640, 640)),
    _vision("resnet50", 1.1, batch=8),
    _text("bert_base", 1.0, batch=8),
    _in_bytes(_vision("resnet50", 1.15), 1.1),
    _trained("speech", 1.0, "silero_vad", "data/silero_vad_openvino_16k.onnx"),
    _trained("ocr_detector", 1.4, _OCR, "models/ch_PP-OCRv4_det_infer.onnx", x=(1, 3, 640, 640)),
    _trained("ocr_recogniser", 1.1, _OCR, "models/ch_PP-OCRv4_rec_infer.onnx", x=(1, 3, 48, 320)),
    _light("squeezenet", 1.0),
    _light("shufflenet", 1.0),
    _light("densenet121", 1.0),
    _light("inception_v2", 1.0),
)


def chosen(pattern: str) -> list[NetworkModel]:
    """The one of this name, or those with names like the pattern."""
    named = [m for m in MODELS if m.name == pattern]
    return named or [m for m in MODELS if fnmatch.fnmatch(m.name, f"*{pattern}*")]
