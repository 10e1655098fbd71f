"""From a model of ONNX to a network: node by node, with all that is known ahead evaluated on the way."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tensorlang import dtypes, te
from tensorlang.errors import DefinitionError, InternalError, TensorlangError
from tensorlang.files import is_file
from tensorlang.networks.elements import is_eighth
from tensorlang.networks.integers import Quantized
from tensorlang.networks.network import Array, Network, Value, Weights
from tensorlang.networks.node import Node, shape_of
from tensorlang.networks.onnx.constants import evaluated
from tensorlang.networks.onnx.contrib import DOMAIN as CONTRIBUTED
from tensorlang.networks.onnx.contrib import RULES as CONTRIBUTED_RULES
from tensorlang.networks.onnx.contrib import contributed
from tensorlang.networks.onnx.control.rules import CONTROL
from tensorlang.networks.onnx.elementwise import dtype_of
from tensorlang.networks.onnx.fallback import check_fallback, read_with_fallback
from tensorlang.networks.onnx.functions import called, functions_of, own_function, standard_function
from tensorlang.networks.onnx.graphs import RANDOM, graphs_of, inner_graphs, label_of, weights_of
from tensorlang.networks.onnx.package import onnx_package
from tensorlang.networks.onnx.rules import RULES
from tensorlang.networks.onnx.scopes import DOMAINS, NEWEST, OLDEST, Reading
from tensorlang.networks.onnx.standard import fault
from tensorlang.networks.refusal import NotAhead, Refusal, Unsupported, refuse_large
from tensorlang.words import printable

Declared: TypeAlias = tuple[int | str | None, ...]
"""The dimensions of an input: numbers, names of open ones, and None for open ones without a name."""


def from_onnx(
    model: str | os.PathLike[str] | Any,
    shapes: Mapping[str, Sequence[int]] | None = None,
    known: Mapping[str, npt.ArrayLike] | None = None,
    fallback: str | None = None,
) -> Network:
    """Return the network of an ONNX model (a file, or a ModelProto).

    `shapes`: by name those of inputs whose dimensions the model leaves open. `known`: by name what inputs are in all
    calls, which then are no inputs of the network. Whatever can be known ahead is evaluated, and weights are arrays of
    the network. `fallback="onnxruntime"`: nodes that are not taken run there, in the largest parts that can be, and
    `network.fallback` tells which, and why; what passes between them and the network has a fixed shape. Raises
    UnsupportedModel, which names every node that is not taken, and why; DefinitionError for files
    that are no such model, for external data outside of the model's folder, and for shapes and values that do not fit;
    ArgumentError for another fallback; MissingDependency without the onnx package, or without onnxruntime where nodes
    are to run there.
    """
    advice = 'onnxruntime may run them: fallback="onnxruntime"' if fallback is None else ""
    return read_model(model, shapes, known, fallback).network(advice)


def read_model(
    model: str | os.PathLike[str] | Any,
    shapes: Mapping[str, Sequence[int]] | None = None,
    known: Mapping[str, npt.ArrayLike] | None = None,
    fallback: str | None = None,
    chosen: Mapping[int, str] | None = None,
) -> Reading:
    """A model as far as it can be read, with what is refused of it; raises as `from_onnx`, but for refusals.

    `chosen`: nodes of a `recent` model that run in onnxruntime in any case, by number, and why.
    """
    check_fallback(fallback)
    proto = recent(model)
    functions = functions_of(proto)

    def fresh() -> Reading:
        made = Reading(proto.graph, Weights(), proto.opset_import, functions=functions)
        _declare_inputs(made, shapes or {}, known or {})
        return made

    reading = fresh()
    for node in proto.graph.node:
        _read(node, reading)
    if not chosen and (fallback is None or not reading.refused):
        return reading
    return read_with_fallback(proto, fresh, _read, reading.refused, chosen or {})


def declared_inputs(model: str | os.PathLike[str] | Any) -> tuple[str, dict[str, Declared]]:
    """The name of a model, and its inputs with their dimensions. Raises as `from_onnx`."""
    proto = _loaded(model)
    _refuse_unreadable_names(proto)
    held = {tensor.name for tensor in proto.graph.initializer}
    reading = Reading(proto.graph, Weights(), proto.opset_import)
    inputs = [given for given in proto.graph.input if given.name not in held]
    for given in inputs:
        _refuse_no_tensor(given)
    return reading.name, {given.name: _declared(given) for given in inputs}


def _refuse_no_tensor(given: Any) -> None:
    if not given.type.HasField("tensor_type"):
        raise DefinitionError(f"the input {given.name} is no tensor")


def _declared(given: Any) -> Declared:
    dims = given.type.tensor_type.shape.dim
    return tuple(
        d.dim_value if d.HasField("dim_value") and d.dim_value != -1 else printable(d.dim_param, 200) or None
        for d in dims
    )


def _loaded(model: Any) -> Any:
    """The model, checked, with its external data."""
    onnx = onnx_package()
    if isinstance(model, onnx.ModelProto):
        return model
    return with_data(opened(Path(model)), Path(model))


def opened(path: Path) -> Any:
    """The model in a file, without what it has in other files."""
    onnx = onnx_package()
    if not is_file(path):
        raise DefinitionError(f"there is no file {path}")
    try:
        proto = onnx.load(os.fspath(path), load_external_data=False)
    except Exception as error:  # protobuf's own error has no public class
        raise DefinitionError(f"{path} is no ONNX model: {error}") from error
    if not proto.graph.output:
        raise DefinitionError(f"{path} is no ONNX model: it has no outputs")
    return proto


def data_files(proto: Any) -> list[str]:
    """The files that hold weights of a model, by the names that it has for them; DefinitionError for other names."""
    external = onnx_package().TensorProto.EXTERNAL
    graphs = list(graphs_of(proto.graph))
    held = [t for graph in graphs for t in graph.initializer]
    graphs += [graph for function in proto.functions for graph in graphs_of(function)]
    attributes = [a for graph in graphs for node in graph.node for a in node.attribute]
    tensors = [*held, *(t for a in attributes for t in (a.t, *a.tensors))]
    found = [entry for t in tensors if t.data_location == external for entry in t.external_data]
    names = {entry.value for entry in found if entry.key == "location"}
    for name in names:
        if not isinstance(name, str):
            raise DefinitionError(f"{name!r}, a file of weights of the model, is no UTF-8")
    return sorted(names)


def with_data(proto: Any, path: Path) -> Any:
    """The model of a file with the weights of other files; DefinitionError where they are missing, or elsewhere."""
    onnx = onnx_package()
    try:
        onnx.load_external_data_for_model(proto, os.fspath(path.parent))
    except onnx.checker.ValidationError as error:  # external data that is missing, or outside of the folder
        raise DefinitionError(f"{path}: {error}") from error
    except Exception as error:  # whatever else the package does with offsets and lengths that are none
        raise DefinitionError(f"{path} is no ONNX model: {error}") from error
    return proto


def recent(model: str | os.PathLike[str] | Any) -> Any:
    """A model, checked, in an opset that rules know; such a one stays as it is. Raises as `from_onnx`."""
    proto = _loaded(model)
    _refuse_unreadable_names(proto)
    return _recent(proto)


def _recent(proto: Any) -> Any:
    """The model in an opset that rules know: the onnx package converts older ones.

    DefinitionError where it does not, or would do it wrong.
    """
    made = Reading(proto.graph, Weights(), proto.opset_import).opset
    if made > NEWEST or made < 1:
        raise DefinitionError(f"opset {made} of the model is not one of 1 to {NEWEST}")
    if made >= OLDEST:
        return proto
    import onnx.version_converter

    held = {tensor.name: tensor.dims for tensor in proto.graph.initializer}
    if any(n.op_type == "PRelu" and list(held.get(n.input[1], [1])) != [1] for n in proto.graph.node):
        raise DefinitionError(f"PRelu of opset {made} with slopes of channels; convert the model to a newer opset")
    try:
        return onnx.version_converter.convert_version(proto, OLDEST)
    except Exception as error:  # of the converter, which is written in C++
        line = printable(str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__, 300)
        raise DefinitionError(
            f"the onnx package cannot convert opset {made} of the model to {OLDEST}: {line}"
        ) from error


def _refuse_unreadable_names(proto: Any) -> None:
    """DefinitionError for names that are no UTF-8, which protobuf hands out as bytes."""
    texts: list[Any] = []
    nodes: list[Any] = []
    for function in proto.functions:
        texts += [function.name, function.domain, *function.input, *function.output]
        nodes += function.node
    inner = [graph for node in nodes for held in inner_graphs(node).values() for graph in graphs_of(held)]
    for part in (*graphs_of(proto.graph), *inner):
        texts += (item.name for item in [part, *part.input, *part.output, *part.initializer])
        nodes += part.node
    for node in nodes:
        texts += [node.name, node.op_type, node.domain, *node.input, *node.output, *(a.name for a in node.attribute)]
    for text in texts:
        if not isinstance(text, str):
            raise DefinitionError(f"{text!r}, a name in the model, is no UTF-8")


def _declare_inputs(reading: Reading, shapes: Mapping[str, Sequence[int]], known: Mapping[str, npt.ArrayLike]) -> None:
    found = reading.inputs
    reading.values |= weights_of(reading.graph)
    for given in reading.graph.input:
        if given.name in reading.values:
            continue
        _refuse_no_tensor(given)
        dtype = dtype_of(given.type.tensor_type.elem_type)
        if given.name in known:
            reading.values[given.name] = _fixed(given, known[given.name], dtype)
            continue
        shape = _shape(given, shapes.get(given.name))
        refuse_large(f"the input {given.name}", shape, dtypes.info(dtype).bytes)
        tensor = te.placeholder(shape, dtype, f"input{len(found)}")
        found[given.name] = reading.values[given.name] = tensor
    names = [given.name for given in reading.graph.input]
    unknown = {*shapes, *known} - {*names}
    if unknown:
        raise DefinitionError(f"the model has no inputs {', '.join(sorted(unknown))}; it has {', '.join(names)}")


def _fixed(given: Any, value: npt.ArrayLike, dtype: str) -> Array:
    """What an input is in all calls, as an array of its dtype and of a shape that it may have."""
    array = np.asarray(value)
    made = array.astype(dtypes.info(dtype).numpy)
    if not np.array_equal(made, array):
        raise DefinitionError(f"the input {given.name} is {dtype}, which cannot hold the value that is known of it")
    _shape(given, made.shape)
    return made


def _shape(given: Any, wanted: Sequence[int] | None) -> tuple[int, ...]:
    dims = _declared(given)
    declared = [n if isinstance(n, int) else None for n in dims]
    if wanted is None:
        if None in declared:
            names = ", ".join("?" if d is None else str(d) for d in dims)
            raise DefinitionError(
                f"the input {given.name} has the shape ({names}); give its numbers: shapes={{{given.name!r}: (...)}}"
            )
        wanted = [n for n in declared if n is not None]
    if any(n < 0 for n in wanted):
        raise DefinitionError(f"the input {given.name} has the shape {tuple(wanted)}; no extent is below 0")
    if len(wanted) != len(declared) or any(n is not None and n != w for n, w in zip(declared, wanted, strict=False)):
        raise DefinitionError(f"the input {given.name} has the shape {tuple(declared)}, and {tuple(wanted)} was given")
    return tuple(int(n) for n in wanted)


def _read(proto: Any, reading: Reading) -> None:
    """Add what a node makes to the values; what cannot be made is refused, and so is not what needs it."""
    label = label_of(proto)
    if any(name and name not in reading.values for name in proto.input):
        reading.skipped.append(label)
        return
    try:
        made = _made(proto, label, reading)
    except TensorlangError as error:
        why = error.message if isinstance(error, DefinitionError) else str(error)
        inputs = reading.deciding(error.tensor) if isinstance(error, NotAhead) else ()
        if inputs:
            told = ", ".join(f"{name!r}: value" for name in inputs)
            why += f"; where it is the same in all calls, tell it ahead: known={{{told}}}"
        reading.refused.append(Refusal(label, printable(proto.op_type, 200), printable(why), inputs))
        return
    for name, value in zip(proto.output, made, strict=False):
        if name and value is not None:
            reading.values[name] = value
    if proto.op_type == "DequantizeLinear":
        _note_meaning(proto, reading)


def _note_meaning(proto: Any, reading: Reading) -> None:
    """Remember of which integers numbers are made, so that products are made of these."""
    data, scale, zero = [*(reading.values[name] if name else None for name in proto.input), None][:3]
    attrs = dict(_attributes(proto))
    axis = attrs.get("axis", 1)
    if data is None or scale is None or is_eighth(str(data.dtype)):
        return
    if isinstance(axis, int) and not attrs.get("block_size"):
        reading.meanings[proto.output[0]] = Quantized(data, scale, zero, axis % max(1, len(shape_of(data))))


def _made(proto: Any, label: str, reading: Reading) -> Sequence[Value | None]:
    inputs = tuple(reading.values[name] if name else None for name in proto.input)
    if (function := own_function(proto, reading)) is not None:
        return called(function, proto, inputs, reading, _read)
    if (function := contributed(proto, label, inputs, dict(_attributes(proto)))) is not None:
        return called(function, proto, inputs, reading, _read)
    if proto.domain == CONTRIBUTED and proto.op_type not in CONTRIBUTED_RULES:
        raise Unsupported("this operator of onnxruntime is not known yet")
    if proto.domain not in (*DOMAINS, CONTRIBUTED):
        raise Unsupported(f"operators of the domain {proto.domain} are not known")
    known = {n: v for n, v in zip(proto.input, inputs, strict=True) if isinstance(v, np.ndarray)}
    if len(known) == len({n for n in proto.input if n}) and proto.op_type not in {*RANDOM, *CONTROL}:
        return evaluated(proto, known, reading.opsets)
    try:
        made: Sequence[Value | None]
        if proto.op_type in CONTROL:
            made = CONTROL[proto.op_type](proto, label, reading, _read)
        else:
            made = _ruled(proto, label, inputs, reading)
    except TensorlangError:
        raise
    except Exception as error:
        given = {n: v for n, v in zip(proto.input, inputs, strict=True) if v is not None}
        if (why := fault(proto, given, reading.opsets)) is None:
            raise InternalError(f"{label} ({proto.op_type}): {type(error).__name__}: {error}") from error
        raise Unsupported(why) from error
    for value in made:
        if value is not None:
            refuse_large("its output", shape_of(value), dtypes.info(str(value.dtype)).bytes)
    return made


def _ruled(proto: Any, label: str, inputs: tuple[Value | None, ...], reading: Reading) -> Sequence[Value | None]:
    """What the rule of an operator makes; where there is none, or it says no, what ONNX defines the operator by."""
    try:
        return _by_rule(proto, label, inputs, reading)
    except Unsupported as error:
        function = None if isinstance(error, NotAhead) else standard_function(proto, inputs, reading)
        if function is None:
            raise
        before = len(reading.refused), len(reading.skipped)
        found = called(function, proto, inputs, reading, _read)
        if found or proto.op_type not in RULES:
            return found
        del reading.refused[before[0] :], reading.skipped[before[1] :]
        raise


def _by_rule(proto: Any, label: str, inputs: tuple[Value | None, ...], reading: Reading) -> Sequence[Value | None]:
    rules = CONTRIBUTED_RULES if proto.domain == CONTRIBUTED else RULES
    if proto.op_type not in rules:
        raise Unsupported("this operator is not known yet")
    attrs = dict(_attributes(proto))
    stage, meanings = reading.stage(label, proto.op_type), tuple(map(reading.meanings.get, proto.input))
    node = Node(proto.op_type, stage, attrs, reading.opset, inputs, len(proto.output), reading.weights, meanings)
    made = rules[proto.op_type](node)
    return made if isinstance(made, tuple) else (made,)


def _attributes(proto: Any) -> Iterator[tuple[str, Any]]:
    helper = onnx_package().helper
    for attribute in proto.attribute:
        value = helper.get_attribute_value(attribute)
        yield attribute.name, value.decode() if isinstance(value, bytes) else value
