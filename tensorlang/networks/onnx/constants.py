"""Nodes of which all is known ahead, evaluated by the reference of the onnx package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tensorlang.errors import DefinitionError
from tensorlang.networks.network import Array
from tensorlang.networks.onnx.package import onnx_package


def evaluated(proto: Any, inputs: Mapping[str, Array], opsets: Sequence[Any]) -> list[Array | None]:
    """The outputs of a node. DefinitionError when the reference cannot run it."""
    onnx = onnx_package()
    names = [name for name in dict.fromkeys(proto.input) if name]
    described = [
        onnx.helper.make_tensor_value_info(
            name, onnx.helper.np_dtype_to_tensor_dtype(inputs[name].dtype), inputs[name].shape
        )
        for name in names
    ]
    outputs = [onnx.helper.make_empty_tensor_value_info(name) for name in proto.output if name]
    graph = onnx.helper.make_graph([proto], "known", described, outputs)
    model = onnx.helper.make_model(graph, opset_imports=opsets)
    try:
        from onnx.reference import ReferenceEvaluator

        made = ReferenceEvaluator(model).run(None, {name: inputs[name] for name in names})
    except Exception as error:  # the reference raises whatever its NumPy code does
        raise DefinitionError(f"{proto.op_type}, of which all is known ahead, cannot be evaluated: {error}") from error
    found = iter(made)
    return [next(found) if name else None for name in proto.output]
