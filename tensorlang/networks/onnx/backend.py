"""tensorlang as a backend of the onnx package: `prepare`, `run_model`, `run_node` and `supports_device`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx.backend.base import Backend as OnnxBackend
from onnx.backend.base import BackendRep, Device, DeviceType

from tensorlang.errors import ArgumentError, DefinitionError
from tensorlang.networks.dynamic import DynamicModel, compile_dynamic
from tensorlang.networks.network import Array
from tensorlang.networks.onnx.package import onnx_package
from tensorlang.networks.onnx.reading import declared_inputs, read_model
from tensorlang.networks.onnx.scopes import NEWEST


class Prepared(BackendRep):  # type: ignore[misc]
    """A model that is compiled for the shapes of inputs when they are met first.

    So it is for values of inputs that decide on shapes: each of them has kernels of its own.
    """

    def __init__(self, model: Any, options: Mapping[str, Any]) -> None:
        """See `Backend.prepare`."""
        _, self._inputs = declared_inputs(model)
        self._model, self._options = model, dict(options)
        self._models: dict[tuple[tuple[str, bytes], ...], DynamicModel] = {}

    def run(self, inputs: Any, **options: Any) -> tuple[Array, ...]:
        """The outputs, for inputs in the order of the model, or by name.

        Raises what `tensorlang.from_onnx` and `tensorlang.compile` raise, and ArgumentError for inputs that do not fit.
        """
        given = self._named(inputs)
        known = {name: given[name] for name in deciding(self._model, given)}
        key = tuple((name, f"{a.dtype}{a.shape}".encode() + a.tobytes()) for name, a in known.items())
        if key not in self._models:
            self._models[key] = compile_dynamic(self._model, known=known, **self._options)
        model = self._models[key]
        shapes = [np.shape(given[name]) for name in model.input_names]
        return model.for_shapes(*shapes).run([given[name] for name in model.input_names])

    def _named(self, inputs: Any) -> dict[str, Array]:
        if isinstance(inputs, Mapping):
            found = {name: np.asarray(value) for name, value in inputs.items()}
        else:
            values = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
            found = {name: np.asarray(value) for name, value in zip(self._inputs, values, strict=False)}
        if len(inputs) != len(self._inputs) or found.keys() != self._inputs.keys():
            raise ArgumentError(f"the model has the inputs {', '.join(self._inputs)}, got {len(inputs)}")
        return found


def deciding(model: Any, given: Mapping[str, Array]) -> tuple[str, ...]:
    """The inputs on whose values shapes depend, for inputs by name."""
    found: tuple[str, ...] = ()
    while True:
        shapes = {name: array.shape for name, array in given.items() if name not in found}
        refused = read_model(model, shapes, {name: given[name] for name in found}).refused
        more = {name for refusal in refused for name in refusal.inputs} - {*found}
        if not more:
            return found
        found = (*found, *sorted(more))


class Backend(OnnxBackend):  # type: ignore[misc]
    """The CPU of this machine as a backend of the onnx package.

    Source of the interface: onnx.backend.base.Backend, https://onnx.ai/onnx/api/backend.html
    """

    @classmethod
    def is_compatible(cls, model: Any, device: str = "CPU", **options: Any) -> bool:
        """Whether all nodes of a model are taken, as far as its shapes tell."""
        try:
            return cls.supports_device(device) and not [r for r in read_model(model).refused if not r.inputs]
        except DefinitionError:
            return False

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **options: Any) -> Prepared:
        """A model (a ModelProto), whose `run` takes inputs; options are those of `tensorlang.compile_dynamic`.

        Raises ArgumentError for other devices, onnx.checker.ValidationError for what is no model, DefinitionError for
        models with inputs that are no tensors.
        """
        if not cls.supports_device(device):
            raise ArgumentError(f"models run on the device CPU, got {device}")
        super().prepare(model, device, **options)
        return Prepared(model, options)

    @classmethod
    def run_node(cls, node: Any, inputs: Any, device: str = "CPU", outputs_info: Any = None, **options: Any) -> Any:
        """The outputs of a node for its inputs, in order; `opset_version` is the newest that is known unless given."""
        super().run_node(node, inputs, device, outputs_info, **options)
        helper = onnx_package().helper
        values = [np.asarray(v) for v in (inputs if isinstance(inputs, Sequence) else [inputs])]
        given = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
            for name, v in zip(filter(None, node.input), values, strict=True)
        ]
        outputs = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
        opset = helper.make_opsetid("", options.pop("opset_version", None) or _newest())
        model = helper.make_model(helper.make_graph([node], "node", given, outputs), opset_imports=[opset])
        return Prepared(model, options).run(values)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether models run on a device: on `CPU`."""
        return bool(Device(device.partition(":")[0]).type == DeviceType.CPU)


def _newest() -> int:
    return min(NEWEST, int(onnx_package().defs.onnx_opset_version()))


is_compatible, prepare, supports_device = Backend.is_compatible, Backend.prepare, Backend.supports_device
run_model, run_node = Backend.run_model, Backend.run_node
