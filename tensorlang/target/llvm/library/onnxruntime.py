"""What ONNX Runtime loads a kernel by: `RegisterCustomOps`, which adds an operator.

The operator is NAME of the domain `tensorlang.NAME`, since a session takes a domain from one library only. Its outputs
are the arrays that the kernel writes, its inputs all others. Offsets and numbers are those of version 16 of ONNX
Runtime's C interface (its release 1.16): a table of functions, and the record that describes an operator, 64 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from tensorlang.ir.expr import Buffer, Var, variables
from tensorlang.target.llvm.expressions import index
from tensorlang.target.llvm.library.dl import dtype_word, layout
from tensorlang.target.llvm.library.emit import compare, load, refuse, store, text, word
from tensorlang.target.llvm.library.front import Face
from tensorlang.target.llvm.scope import Scope
from tensorlang.target.llvm.text import Function, Module

REGISTER = "RegisterCustomOps"
_DOMAIN = "tensorlang.{name}"
_VERSION = 16
_DTYPES = {
    "float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "bool": 9, "float16": 10,
    "float64": 11, "uint32": 12, "uint64": 13, "bfloat16": 16, "float8_e4m3fn": 17, "float8_e5m2": 19,
}  # fmt: skip
_INVALID = 2


class _Api(IntEnum):
    """Functions by their place in the table."""

    CREATE_STATUS = 0
    CREATE_DOMAIN = 26
    ADD_OPERATOR = 27
    ADD_DOMAIN = 28
    TENSOR_DATA = 51
    RANK = 61
    SHAPE = 62
    SHAPE_OF_TENSOR = 65
    INPUT = 90
    OUTPUT = 91
    RELEASE_SHAPE = 99


def in_and_out(face: Face) -> tuple[list[Buffer], list[Buffer]]:
    """What a kernel reads, and what it writes."""
    written = [b for b in face.arrays if b.name in face.kernel.outputs]
    return [b for b in face.arrays if b not in written], written


def tells_shapes(face: Face) -> bool:
    """Whether the shapes of what is read tell those of what is written."""
    read, written = in_and_out(face)
    known = {e.name for b in read for e in b.shape if isinstance(e, Var)}
    return all(variables(extent) <= known for b in written for extent in b.shape)


def emit_onnxruntime(module: Module, face: Face) -> None:
    """Add the function, and the operator that it registers; `NAME.dl` is there."""
    name, (read, written) = face.name, in_and_out(face)
    for which, buffers in (("inputs", read), ("outputs", written)):
        numbers = ", ".join(f"i32 {_DTYPES[b.dtype]}" for b in buffers) or "i32 0"
        held = f"[{max(1, len(buffers))} x i32] [{numbers}]"
        module.declarations[f"{name}.ort.{which}"] = f"@{name}.ort.{which} = internal constant {held}"
        module.functions.append(_TYPES.format(name=name, which=which, count=len(buffers)))
    module.functions.append(_PLAIN.format(name=name, text=text(module, name)))
    types = [f"{which}.{what}" for which in ("inputs", "outputs") for what in ("type", "count")]
    usual = ["usual"] * 3  # whether inputs and outputs may be missing, and where inputs lie
    functions = ["null", "named", "provider", *types, "null", "destroy", *usual, *["null"] * 4, "create", "compute"]
    places = ", ".join("ptr null" if f == "null" else f"ptr @{name}.ort.{f}" for f in functions)
    record = f"{{i32, [{len(functions)} x ptr]}} {{i32 {_VERSION}, [{len(functions)} x ptr] [{places}]}}"
    module.declarations[f"{name}.ort.operator"] = f"@{name}.ort.operator = internal constant {record}"
    _compute(module, face, read, written)
    _register(module, face)


def _call(fn: Function, api: str, function: _Api, arguments: Sequence[str]) -> None:
    """Append a call, and a return of the error that it reports."""
    callee = load(fn, api, 8 * function, "ptr")
    status = fn.op(f"call ptr {callee}({', '.join(arguments)})")
    refuse(fn, compare(fn, "ne", "ptr", status, "null"), f"ptr {status}")


def _asked(fn: Function, api: str, function: _Api, arguments: Sequence[str], type_: str = "ptr") -> str:
    """What a function writes to its last argument."""
    slot = fn.alloca("i64", 8)
    _call(fn, api, function, [*arguments, f"ptr {slot}"])
    return load(fn, slot, 0, type_)


def _error(fn: Function, api: str, message: str) -> str:
    create = load(fn, api, 8 * _Api.CREATE_STATUS, "ptr")
    return fn.op(f"call ptr {create}(i32 {_INVALID}, ptr {message})")


def _fail(fn: Function, api: str, wrong: str, message: str) -> None:
    """Append a return of an error where a condition holds."""
    stop, go_on = fn.fresh("refused"), fn.fresh("fine")
    fn.do(f"br i1 {wrong}, label %{stop}, label %{go_on}")
    fn.start(stop)
    fn.do(f"ret ptr {_error(fn, api, message)}")
    fn.start(go_on)


def _compute(module: Module, face: Face, read: list[Buffer], written: list[Buffer]) -> None:
    """A call: DLTensors of inputs and outputs, which `NAME.dl` looks at."""
    fn = Function(module, f"{face.name}.ort.compute", ["ptr %api", "ptr %context"], internal=True)
    scope, tensors = Scope({}, {}), dict[str, str]()
    for k, buffer in enumerate(read):
        value = _asked(fn, "%api", _Api.INPUT, ["ptr %context", f"i64 {k}"])
        shape = _shape_of(fn, face, value, buffer)
        for axis, extent in enumerate(buffer.shape):
            if isinstance(extent, Var) and extent.name not in scope.values:
                scope = scope.bind(extent.name, word(fn, shape, 8 * axis, "i64"))
        tensors[buffer.name] = _tensor(fn, value, shape, buffer)
    for k, buffer in enumerate(written):
        shape = _reserved(fn, buffer)
        for axis, extent in enumerate(buffer.shape):
            store(fn, shape, 8 * axis, index(fn, scope, extent).typed)
        rank = len(buffer.shape)
        value = _asked(fn, "%api", _Api.OUTPUT, ["ptr %context", f"i64 {k}", f"ptr {shape}", f"i64 {rank}"])
        tensors[buffer.name] = _tensor(fn, value, shape, buffer)
    block = fn.alloca(f"[{len(face.arrays)} x ptr]", 8 * len(face.arrays))
    for k, buffer in enumerate(face.arrays):
        store(fn, block, 8 * k, f"ptr {tensors[buffer.name]}")
    code = fn.op(f"call i32 @{face.name}.dl(ptr {block})")
    message = fn.op(f"call ptr @{face.name}_message(i32 {code})")
    _fail(fn, "%api", compare(fn, "ne", "i32", code, "0").text, message)
    fn.do("ret ptr null")
    fn.finish("ptr")


def _reserved(fn: Function, buffer: Buffer) -> str:
    rank = max(1, len(buffer.shape))
    return fn.alloca(f"[{rank} x i64]", 8 * rank)


def _shape_of(fn: Function, face: Face, value: str, buffer: Buffer) -> str:
    """The shape of an input, in a block of our own; an error where it has another rank."""
    rank, shape = len(buffer.shape), _reserved(fn, buffer)
    info = _asked(fn, "%api", _Api.SHAPE_OF_TENSOR, [f"ptr {value}"])
    given = _asked(fn, "%api", _Api.RANK, [f"ptr {info}"], "i64")
    wrong = compare(fn, "ne", "i64", given, str(rank))
    fewer = fn.op(f"select i1 {wrong.text}, i64 0, i64 {rank}")
    _call(fn, "%api", _Api.SHAPE, [f"ptr {info}", f"ptr {shape}", f"i64 {fewer}"])
    fn.do(f"call void {load(fn, '%api', 8 * _Api.RELEASE_SHAPE, 'ptr')}(ptr {info})")
    words = f"{face.name}: {buffer.name}: expected {rank} dimensions, of {buffer}"
    _fail(fn, "%api", wrong.text, text(fn.module, words))
    return shape


def _tensor(fn: Function, value: str, shape: str, buffer: Buffer) -> str:
    """A DLTensor of a value."""
    at = layout(8)
    tensor = fn.alloca(f"[{at.bytes} x i8]", at.bytes)
    data = _asked(fn, "%api", _Api.TENSOR_DATA, [f"ptr {value}"])
    for offset, typed in (
        (0, f"ptr {data}"), (at.device, "i32 1"), (at.rank, f"i32 {len(buffer.shape)}"),
        (at.dtype, f"i32 {dtype_word(buffer.dtype)}"), (at.shape, f"ptr {shape}"), (at.strides, "ptr null"),
        (at.offset, "i64 0"),
    ):  # fmt: skip
        store(fn, tensor, offset, typed)
    return tensor


def _register(module: Module, face: Face) -> None:
    """`OrtStatus *RegisterCustomOps(OrtSessionOptions *options, const OrtApiBase *base)`."""
    fn = Function(module, REGISTER, ["ptr %options", "ptr %base"])
    get = load(fn, "%base", 0, "ptr")
    first = fn.op(f"call ptr {get}(i32 1)")
    api = fn.op(f"call ptr {get}(i32 {_VERSION})")
    words = f"{face.name} needs ONNX Runtime 1.{_VERSION} or newer"
    _fail(fn, first, compare(fn, "eq", "ptr", api, "null").text, text(module, words))
    domain = _asked(fn, api, _Api.CREATE_DOMAIN, [f"ptr {text(module, _DOMAIN.format(name=face.name))}"])
    _call(fn, api, _Api.ADD_OPERATOR, [f"ptr {domain}", f"ptr @{face.name}.ort.operator"])
    _call(fn, api, _Api.ADD_DOMAIN, ["ptr %options", f"ptr {domain}"])
    fn.do("ret ptr null")
    fn.finish("ptr")


_TYPES = """\
define internal i32 @{name}.ort.{which}.type(ptr %operator, i64 %number) #0 {{
entry:
  %at = getelementptr i32, ptr @{name}.ort.{which}, i64 %number
  %found = load i32, ptr %at, align 4
  ret i32 %found
}}
define internal i64 @{name}.ort.{which}.count(ptr %operator) #0 {{
entry:
  ret i64 {count}
}}"""
_PLAIN = """\
define internal ptr @{name}.ort.named(ptr %operator) #0 {{
entry:
  ret ptr {text}
}}
define internal ptr @{name}.ort.provider(ptr %operator) #0 {{
entry:
  ret ptr null
}}
define internal i32 @{name}.ort.usual(ptr %operator, i64 %number) #0 {{
entry:
  ret i32 0
}}
define internal ptr @{name}.ort.create(ptr %operator, ptr %api, ptr %info, ptr %kernel) #0 {{
entry:
  store ptr %api, ptr %kernel, align 8
  ret ptr null
}}
define internal void @{name}.ort.destroy(ptr %kernel) #0 {{
entry:
  ret void
}}"""
