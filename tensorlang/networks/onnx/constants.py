"""Nodes of which all is known ahead, evaluated by the reference of the onnx package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tensorlang.errors import DefinitionError
from tensorlang.networks.network import Array
from tensorlang.networks.onnx.standard import alone, refuse_large_outputs


def evaluated(proto: Any, inputs: Mapping[str, Array], opsets: Sequence[Any]) -> list[Array | None]:
    """The outputs of a node. DefinitionError when the reference cannot run it, or they do not fit into memory."""
    try:
        model = alone(proto, inputs, opsets)
        refuse_large_outputs(model)
        from onnx.reference import ReferenceEvaluator

        made = ReferenceEvaluator(model).run(None, dict(inputs))
    except DefinitionError:
        raise
    except Exception as error:  # the reference raises whatever its NumPy code does
        raise DefinitionError(f"{proto.op_type}, of which all is known ahead, cannot be evaluated: {error}") from error
    found = iter(made)
    return [next(found) if name else None for name in proto.output]
