"""Nodes of which all is known ahead, evaluated by the reference of the onnx package."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tensorlang.errors import DefinitionError
from tensorlang.networks.elements import is_eighth
from tensorlang.networks.integers import along
from tensorlang.networks.network import Array
from tensorlang.networks.onnx.package import onnx_package
from tensorlang.networks.onnx.standard import alone, refuse_large_outputs


def evaluated(proto: Any, inputs: Mapping[str, Array], opsets: Sequence[Any]) -> list[Array | None]:
    """The outputs of a node. DefinitionError when the reference cannot run it, or they do not fit into memory."""
    try:
        attrs = {a.name: onnx_package().helper.get_attribute_value(a) for a in proto.attribute}
        integers = not any(is_eighth(str(array.dtype)) for array in inputs.values())
        if proto.op_type in _OWN and integers and not set(attrs) - {"axis"}:
            return [_OWN[proto.op_type](*(inputs[name] if name else None for name in proto.input), **attrs)]
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


def _dequantized(data: Array, scale: Array, zero: Array | None = None, axis: int = 1) -> Array:
    whole = data.astype(np.int32)
    if zero is not None:
        whole = whole - along(zero, axis, data.ndim).astype(np.int32)
    return np.asarray(whole.astype(scale.dtype) * along(scale, axis, data.ndim))


def _quantized(data: Array, scale: Array, zero: Array | None = None, axis: int = 1) -> Array:
    kind = np.dtype(np.uint8) if zero is None else zero.dtype
    whole = np.rint(data / along(scale, axis, data.ndim))
    if zero is not None:
        whole = whole + along(zero, axis, data.ndim)
    return np.asarray(np.clip(whole, np.iinfo(kind).min, np.iinfo(kind).max).astype(kind))


def _gathered(data: Array, indices: Array, axis: int = 0) -> Array:
    axis %= data.ndim
    part = data[tuple(slice(None if d == axis else n) for d, n in enumerate(indices.shape))]
    return np.take_along_axis(part, indices % data.shape[axis], axis)


_OWN: Mapping[str, Callable[..., Array]] = {
    "DequantizeLinear": _dequantized,
    "GatherElements": _gathered,
    "Identity": np.asarray,
    "QuantizeLinear": _quantized,
}
"""Operators that the reference has in new opsets only, or for some shapes, and names that exporters add to weights."""
