"""Operators that are functions of others: those that a model defines, and those that ONNX itself defines so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tensorlang.errors import DefinitionError
from tensorlang.networks.network import Value
from tensorlang.networks.onnx.package import onnx_package
from tensorlang.networks.onnx.scopes import DOMAINS, Read, Reading
from tensorlang.networks.onnx.standard import described
from tensorlang.networks.refusal import Unsupported


def own_function(proto: Any, reading: Reading) -> Any | None:
    """The function of a model that a node calls."""
    return reading.functions.get((proto.domain, proto.op_type, proto.overload))


def standard_function(proto: Any, inputs: Sequence[Value | None], reading: Reading) -> Any | None:
    """What ONNX defines an operator by, for a node with these inputs; None where it is no function."""
    onnx = onnx_package()
    domain = "" if proto.domain in DOMAINS else proto.domain
    version = next((int(o.version) for o in reading.opsets if o.domain in (domain, proto.domain)), 0)
    try:
        schema = onnx.defs.get_schema(proto.op_type, version, domain)
    except onnx.defs.SchemaError:
        return None
    if schema.has_function:
        made = onnx.FunctionProto()
        made.CopyFrom(schema.function_body)
        made.attribute_proto.extend(a.default_value for a in schema.attributes.values() if a.default_value.name)
        return made
    if not schema.has_context_dependent_function:
        return None
    types = [
        onnx.TypeProto() if value is None else described(name, value).type
        for name, value in zip(proto.input, inputs, strict=True)
    ]
    try:
        body = schema.get_context_dependent_function(proto.SerializeToString(), [t.SerializeToString() for t in types])
    except Exception:  # of the package, for what it defines no function of
        return None
    made = onnx.FunctionProto()
    made.ParseFromString(body)
    return made if made.node else None


def called(
    function: Any, proto: Any, inputs: Sequence[Value | None], reading: Reading, read: Read
) -> list[Value | None]:
    """What a function makes of inputs; nothing where a node within it is refused."""
    attributes = {a.name: a for a in (*function.attribute_proto, *proto.attribute)}
    given = dict(zip(function.input, inputs, strict=False))
    reading.allowance.take(1 + len(function.node))
    opsets = [*function.opset_import] or reading.opsets
    inner = replace(reading, values={n: v for n, v in given.items() if v is not None}, opsets=opsets, meanings={})
    absent = {name for name in function.input if given.get(name) is None}
    before = len(reading.refused), len(reading.skipped)
    for node in function.node:
        read(_filled(node, attributes, absent), inner)
    found = [inner.values.get(name) for name in function.output[: len(proto.output)]]
    if any(value is None and name for value, name in zip(found, proto.output, strict=False)):
        if before == (len(reading.refused), len(reading.skipped)):
            raise Unsupported(f"the function {function.name} makes not all of its outputs")
        return []
    return found


def _filled(node: Any, attributes: Mapping[str, Any], absent: Iterable[str]) -> Any:
    """A node of a function with the attributes of the call, and without inputs that the call leaves out."""
    made = type(node)()
    made.CopyFrom(node)
    del made.attribute[:], made.input[:]
    made.input.extend("" if name in absent else name for name in node.input)
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            made.attribute.append(attribute)
        elif attribute.ref_attr_name in attributes:
            made.attribute.append(attributes[attribute.ref_attr_name])
            made.attribute[-1].name = attribute.name
    for attribute in made.attribute:
        if attribute.HasField("g"):
            nodes = [_filled(inner, attributes, absent) for inner in attribute.g.node]
            del attribute.g.node[:]
            attribute.g.node.extend(nodes)
    return made


def functions_of(model: Any) -> dict[tuple[str, str, str], Any]:
    """The functions that a model defines; DefinitionError where they call each other in a circle."""
    found = {(f.domain, f.name, f.overload): f for f in model.functions}
    state: dict[tuple[str, str, str], bool] = {}

    def visit(key: tuple[str, str, str]) -> None:
        if state.get(key) is False:
            raise DefinitionError(f"the function {key[1]} of the model calls itself")
        if key not in found or key in state:
            return
        state[key] = False
        for node in found[key].node:
            visit((node.domain, node.op_type, node.overload))
        state[key] = True

    for key in found:
        visit(key)
    return found
