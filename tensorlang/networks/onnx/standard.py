"""What the onnx package says of one node: what is wrong with it, and how large its outputs are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tensorlang import dtypes
from tensorlang.networks.network import Value
from tensorlang.networks.node import shape_of
from tensorlang.networks.onnx.package import onnx_package
from tensorlang.networks.refusal import refuse_large

_FEW = 1024
"""Elements of an array that shapes may depend on."""


def alone(proto: Any, inputs: Mapping[str, Value], opsets: Sequence[Any]) -> Any:
    """A model of one node, in which small arrays are constants, since shapes depend on them."""
    onnx = onnx_package()
    given = [described(name, value) for name, value in inputs.items()]
    held = [
        onnx.numpy_helper.from_array(value, name)
        for name, value in inputs.items()
        if isinstance(value, np.ndarray) and value.size <= _FEW
    ]
    outputs = [onnx.helper.make_empty_tensor_value_info(name) for name in proto.output if name]
    graph = onnx.helper.make_graph([proto], "alone", given, outputs, held)
    return onnx.helper.make_model(graph, opset_imports=opsets)


def fault(proto: Any, inputs: Mapping[str, Value], opsets: Sequence[Any]) -> str | None:
    """In a line why a node with these inputs is none of the standard; None where nothing is wrong with it."""
    onnx = onnx_package()
    try:
        model = alone(proto, inputs, opsets)
        context = onnx.checker.C.CheckerContext()
        context.ir_version, context.opset_imports = model.ir_version, {o.domain: o.version for o in opsets}
        onnx.checker.check_node(proto, context)
        onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    except Exception as error:  # of the package, of protobuf, or of Python for texts that are none
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return f"{proto.op_type} is not as ONNX has it: {lines[0] if lines else type(error).__name__}"
    return None


def refuse_large_outputs(model: Any) -> None:
    """DefinitionError where an output of a model would be larger than the memory of the machine.

    The sizes are those that ONNX infers; outputs whose size it does not tell are about as large as the inputs.
    """
    inferred = onnx_package().shape_inference.infer_shapes(model, data_prop=True)
    for output in inferred.graph.output:
        extents = [max(0, d.dim_value) for d in output.type.tensor_type.shape.dim if d.HasField("dim_value")]
        refuse_large(output.name, extents, 8)


def described(name: str, value: Value) -> Any:
    onnx = onnx_package()
    dtype = dtypes.info(value.dtype).numpy if isinstance(value.dtype, str) else value.dtype
    number = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return onnx.helper.make_tensor_value_info(name, number, shape_of(value))
