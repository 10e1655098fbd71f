"""Nodes that run in onnxruntime: what they make, as far as that is known ahead, and the call of a part of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any, TypeAlias

import numpy as np

from tensorlang.errors import DefinitionError, KernelError, MissingDependency
from tensorlang.networks.network import Array, Value
from tensorlang.networks.onnx.elementwise import dtype_of
from tensorlang.networks.onnx.graphs import reads_of
from tensorlang.networks.onnx.package import onnx_package
from tensorlang.networks.onnx.standard import described
from tensorlang.networks.refusal import Refusal
from tensorlang.runtime.threads import available_cores
from tensorlang.words import printable

Types: TypeAlias = Mapping[str, Any]
"""What is known of values that have no fixed shape, as ONNX describes types."""
_FEW = 1024
"""Elements of an array that shapes may depend on."""
_ERRORS_ONLY = 3


def onnxruntime_package(refused: Sequence[Refusal]) -> Any:
    """The package; MissingDependency, with the nodes that need it, says how it is installed."""
    try:
        import onnxruntime
    except ImportError as error:
        nodes = "".join(f"\n  {refusal}" for refusal in refused)
        text = f"onnxruntime is to run nodes that are not taken, and is missing: pip install 'tensorlang[onnx]'{nodes}"
        raise MissingDependency(text) from error
    return onnxruntime


def made_types(proto: Any, values: Mapping[str, Value], types: Types, opsets: Sequence[Any]) -> dict[str, Any]:
    """What ONNX infers of the outputs of a node; nothing of those that it tells nothing of."""
    onnx = onnx_package()
    names = dict.fromkeys(reads_of(proto))
    given = [described(name, values[name]) for name in names if name in values]
    given += [onnx.helper.make_value_info(name, types[name]) for name in names if name in types]
    small = {n: v for n in names if isinstance(v := values.get(n), np.ndarray) and v.size <= _FEW}
    held = [onnx.numpy_helper.from_array(value, name) for name, value in small.items()]
    outputs = [onnx.helper.make_empty_tensor_value_info(name) for name in proto.output if name]
    graph = onnx.helper.make_graph([proto], "alone", given, outputs, held)
    try:
        model = onnx.helper.make_model(graph, opset_imports=opsets)
        found = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except Exception:  # a node that is none of the standard: onnxruntime may still run it, where its shapes are known
        return {}
    return {o.name: o.type for o in found.graph.output if o.type.HasField("tensor_type")}


def fixed(described_type: Any) -> tuple[tuple[int, ...], str] | None:
    """The shape and dtype of a type, where both are known and a kernel can have them."""
    tensor = described_type.tensor_type
    if not tensor.HasField("shape") or not all(d.HasField("dim_value") for d in tensor.shape.dim):
        return None
    try:
        return tuple(int(d.dim_value) for d in tensor.shape.dim), dtype_of(tensor.elem_type)
    except DefinitionError:
        return None


def part_of_model(
    nodes: Sequence[Any], inputs: Mapping[str, Value], outputs: Sequence[str], model: Any
) -> tuple[bytes, list[str]]:
    """Nodes as a model of their own, in which arrays are weights, and the names of its inputs."""
    onnx = onnx_package()
    given = [described(name, value) for name, value in inputs.items() if not isinstance(value, np.ndarray)]
    held = [onnx.numpy_helper.from_array(v, name) for name, v in inputs.items() if isinstance(v, np.ndarray)]
    made = [onnx.helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = onnx.helper.make_graph(nodes, "part", given, made, held)
    part = onnx.helper.make_model(
        graph, opset_imports=model.opset_import, functions=model.functions, ir_version=max(model.ir_version, 4)
    )
    data: bytes = part.SerializeToString()
    return data, [i.name for i in given]


def session_of(package: Any, data: bytes) -> Any:
    """A session of onnxruntime; DefinitionError for a model that it does not take."""
    options = package.SessionOptions()
    options.intra_op_num_threads = available_cores()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # its threads are not to hold up ours
    options.log_severity_level = _ERRORS_ONLY
    try:
        return package.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its errors have no common class
        raise DefinitionError(f"onnxruntime does not take it either: {printable(str(error), 300)}") from error


def caller_of(session: Any, data: bytes, names: Sequence[str], outputs: Sequence[str]) -> Callable[..., None]:
    """The function of an extern stage: it runs a session on arrays, and fills others."""

    def run(*arrays: Array) -> None:
        made = session.run(outputs, dict(zip(names, arrays, strict=False)))
        for name, array, result in zip(outputs, arrays[len(names) :], made, strict=True):
            if (result.dtype, result.shape) != (array.dtype, array.shape):
                wanted, got = (f"{a.dtype}{list(a.shape)}" for a in (array, result))
                raise KernelError(f"onnxruntime made {name} as {got}, and the model says {wanted}")
            np.copyto(array, result)

    run.__qualname__ = f"onnxruntime.{sha256(data).hexdigest()[:16]}"  # by which kernels of the same part are one
    return run
