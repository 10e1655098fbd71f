"""A call with DLTensors: what the caller of the other functions has to keep is tested here.

Device, rank, dtype, shape, strides, alignment and overlap are looked at, as the entry of a process does; sizes are
read from the shapes. A code names the argument and what is wrong with it.
"""

from __future__ import annotations

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Buffer, Var
from tensorlang.target.llvm.arithmetic import binary
from tensorlang.target.llvm.expressions import index
from tensorlang.target.llvm.library.emit import compare, load, refuse, word
from tensorlang.target.llvm.library.front import BAD_SIZE, Face
from tensorlang.target.llvm.scope import Scope
from tensorlang.target.llvm.text import INDEX, Function, Module, Value, literal

_DTYPES = {"int": 0, "uint": 1, "float": 2, "bool": 6}
_OWN = {"bfloat16": 4, "float8_e4m3fn": 10, "float8_e5m2": 12}
_CPU = 1
_FIRST = -100
_KINDS = ("device", "rank", "dtype", "shape", "strides", "alignment", "overlap")
_EACH = 10
"""Codes of each argument: one for each kind of mistake, from -100 downwards."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the fields of a DLTensor are, by the bytes of a pointer."""

    device: int
    rank: int
    dtype: int
    shape: int
    strides: int
    offset: int
    bytes: int


def layout(pointer_bytes: int) -> Layout:
    """The layout of a DLTensor."""
    p = pointer_bytes
    return Layout(p, p + 8, p + 12, p + 16, 2 * p + 16, 3 * p + 16 if p == 8 else 32, 3 * p + 24 if p == 8 else 40)


def code_of(position: int, kind: str) -> int:
    """The code of a mistake in an argument."""
    return _FIRST - _EACH * position - _KINDS.index(kind)


def dtype_word(dtype: str) -> int:
    """A dtype as DLPack packs it in 32 bits: code, bits, lanes."""
    d = dtypes.info(dtype)
    return _OWN.get(dtype, _DTYPES[d.kind]) | (8 * d.bytes) << 8 | 1 << 16


def has_dl(face: Face) -> bool:
    """Whether the shapes of the arguments tell all sizes."""
    bare = {e.name for b in face.arrays for e in b.shape if isinstance(e, Var)}
    return {v.name for v in face.kernel.sizes} <= bare


def messages(face: Face) -> dict[int, str]:
    """The text of each code of a call with DLTensors."""
    found: dict[int, str] = {}
    for position, buffer in enumerate(face.arrays):
        shape = ", ".join(map(str, buffer.shape))
        wanted = {
            "device": "expected memory of the CPU",
            "rank": f"expected {len(buffer.shape)} dimensions [{shape}]",
            "dtype": f"expected dtype {buffer.dtype}",
            "shape": f"expected the shape [{shape}], with the sizes that the others have",
            "strides": "expected a compact array, rows one after the other",
            "alignment": f"expected data aligned to {dtypes.info(buffer.dtype).bytes} bytes",
            "overlap": "overlaps another argument in memory, and one of the two is written; pass a copy",
        }
        for kind, words in wanted.items():
            found[code_of(position, kind)] = f"{face.name}: argument {position + 1} ({buffer.name}): {words}"
    return found


def emit_dl(module: Module, face: Face) -> None:
    """Add `i32 NAME_dl(DLTensor **arrays)`, which calls NAME once all is as it should be."""
    inner = f"{face.name}.dl"
    fn = Function(module, inner, ["ptr %arrays"], internal=True)
    tensors = [load(fn, "%arrays", face.pointer_bytes * k, "ptr") for k in range(len(face.arrays))]
    for position, (tensor, buffer) in enumerate(zip(tensors, face.arrays, strict=True)):
        _check_kind(fn, face, tensor, buffer, position)
    scope = _check_shapes(fn, face, tensors)
    data = [_data(fn, face, tensor, position) for position, tensor in enumerate(tensors)]
    _check_overlap(fn, face, scope, data)
    pointers = [f"ptr {fn.op(f'inttoptr {place.typed} to ptr')}" for place in data]
    sizes = [scope.values[v.name].typed for v in face.kernel.sizes]
    given = ", ".join([*pointers, *sizes])
    fn.do(f"ret i32 {fn.op(f'call i32 @{face.name}.alone({given})')}")
    fn.finish("i32")
    outer = Function(module, f"{face.name}_dl", ["ptr %arrays"])
    outer.do(f"ret i32 {outer.op(f'call i32 @{inner}(ptr %arrays)')}")
    outer.finish("i32")


def _refuse(fn: Function, wrong: Value, position: int, kind: str) -> None:
    refuse(fn, wrong, f"i32 {code_of(position, kind)}")


def _check_kind(fn: Function, face: Face, tensor: str, buffer: Buffer, position: int) -> None:
    at = layout(face.pointer_bytes)
    dtype = dtype_word(buffer.dtype)
    for offset, number, kind in (
        (at.device, _CPU, "device"),
        (at.rank, len(buffer.shape), "rank"),
        (at.dtype, dtype, "dtype"),
    ):
        _refuse(fn, compare(fn, "ne", "i32", load(fn, tensor, offset, "i32"), str(number)), position, kind)


def _check_shapes(fn: Function, face: Face, tensors: list[str]) -> Scope:
    """Bind sizes from the dimensions that are a bare size, compare the others, then look at strides."""
    at, scope = layout(face.pointer_bytes), Scope({}, {})
    shapes = [
        [word(fn, load(fn, tensor, at.shape, "ptr"), 8 * axis, "i64") for axis in range(len(buffer.shape))]
        if buffer.shape
        else []
        for tensor, buffer in zip(tensors, face.arrays, strict=True)
    ]
    for buffer, found in zip(face.arrays, shapes, strict=True):
        for extent, actual in zip(buffer.shape, found, strict=True):
            if isinstance(extent, Var) and extent.name not in scope.values:
                refuse(fn, compare(fn, "ugt", "i64", actual.text, str(face.limit)), f"i32 {BAD_SIZE}")
                scope = scope.bind(extent.name, actual)
    for position, (buffer, found) in enumerate(zip(face.arrays, shapes, strict=True)):
        for extent, actual in zip(buffer.shape, found, strict=True):
            _refuse(fn, compare(fn, "ne", "i64", actual.text, index(fn, scope, extent).text), position, "shape")
    for position, (tensor, found) in enumerate(zip(tensors, shapes, strict=True)):
        if found:
            _check_strides(fn, load(fn, tensor, at.strides, "ptr"), found, position)
    return scope


def _check_strides(fn: Function, strides: str, shape: list[Value], position: int) -> None:
    """None, or those of a compact array; of an axis of one element, or of an array of none, they say nothing."""
    size = literal(1, INDEX)
    for extent in shape:
        size = binary(fn, "mul", size, extent)
    given = compare(fn, "ne", "ptr", strides, "null")
    filled = compare(fn, "ne", "i64", size.text, "0")
    with fn.when(fn.value(f"and {given.typed}, {filled.text}", "bool")):
        step = literal(1, INDEX)
        for axis in reversed(range(len(shape))):
            actual = word(fn, strides, 8 * axis, "i64")
            several = compare(fn, "ne", "i64", shape[axis].text, "1")
            other = compare(fn, "ne", "i64", actual.text, step.text)
            _refuse(fn, fn.value(f"and {several.typed}, {other.text}", "bool"), position, "strides")
            step = binary(fn, "mul", step, shape[axis])


def _data(fn: Function, face: Face, tensor: str, position: int) -> Value:
    """The address of the first element, as an index."""
    at = layout(face.pointer_bytes)
    base = fn.value(f"ptrtoint ptr {load(fn, tensor, 0, 'ptr')} to i64", INDEX)
    place = binary(fn, "add", base, word(fn, tensor, at.offset, "i64"))
    each = dtypes.info(face.arrays[position].dtype).bytes
    if each > 1:
        odd = fn.op(f"and i64 {place.text}, {each - 1}")
        _refuse(fn, compare(fn, "ne", "i64", odd, "0"), position, "alignment")
    return place


def _check_overlap(fn: Function, face: Face, scope: Scope, starts: list[Value]) -> None:
    """No written array may touch another one."""
    ends = []
    for start, buffer in zip(starts, face.arrays, strict=True):
        size = literal(dtypes.info(buffer.dtype).bytes, INDEX)
        for extent in buffer.shape:
            size = binary(fn, "mul", size, index(fn, scope, extent))
        ends.append(binary(fn, "add", start, size))
    written = [k for k, b in enumerate(face.arrays) if b.name in face.kernel.outputs]
    for one in written:
        for other in range(len(starts)):
            if other == one or (other in written and other < one):
                continue
            after = compare(fn, "ugt", "i64", ends[one].text, starts[other].text)
            before = compare(fn, "ugt", "i64", ends[other].text, starts[one].text)
            _refuse(fn, fn.value(f"and {after.typed}, {before.text}", "bool"), one, "overlap")
