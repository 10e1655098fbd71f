"""The function by which XLA, and so JAX, calls a kernel: `NAME_xla`. Results are the arrays that it writes.

Offsets and numbers are those of version 0.1 of XLA's C interface for foreign functions, 64 bits.
"""

from __future__ import annotations

from tensorlang.target.llvm.library.dl import dtype_word, layout
from tensorlang.target.llvm.library.emit import compare, load, store, text
from tensorlang.target.llvm.library.front import Face
from tensorlang.target.llvm.text import Function, Module, Value

_DTYPES = {
    "bool": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "uint8": 6, "uint16": 7, "uint32": 8, "uint64": 9,
    "float16": 10, "float32": 11, "float64": 12, "bfloat16": 16, "float8_e5m2": 19, "float8_e4m3fn": 20,
}  # fmt: skip
_EXTENSION, _API, _STAGE, _INPUTS, _RESULTS = 8, 16, 32, 56, 96
_EXECUTE, _METADATA = 3, 1
_INVALID = 3


def emit_xla(module: Module, face: Face) -> None:
    """Add the function; `NAME.dl` is there."""
    module.functions.append(_REFUSE.format(name=face.name))
    fn = Function(module, f"{face.name}_xla", ["ptr %frame"])
    _tell_version(fn)
    _return(fn, compare(fn, "ne", "i32", load(fn, "%frame", _STAGE, "i32"), str(_EXECUTE)))
    inputs = [b for b in face.arrays if b.name not in face.kernel.outputs]
    written = [b for b in face.arrays if b.name in face.kernel.outputs]
    at, tensors = layout(8), dict[str, str]()
    for place, buffers, what in ((_INPUTS, inputs, "operands"), (_RESULTS, written, "results")):
        given = load(fn, "%frame", place, "i64")
        words = f"{face.name} has {len(buffers)} {what}: {', '.join(map(str, buffers))}"
        _refuse(fn, face, compare(fn, "ne", "i64", given, str(len(buffers))), text(module, words))
        held = load(fn, "%frame", place + 16, "ptr")
        for k, buffer in enumerate(buffers):
            one = load(fn, held, 8 * k, "ptr")
            words = f"{face.name}: {buffer.name}: expected dtype {buffer.dtype}"
            dtype = compare(fn, "ne", "i32", load(fn, one, 16, "i32"), str(_DTYPES[buffer.dtype]))
            _refuse(fn, face, dtype, text(module, words))
            tensor = fn.alloca(f"[{at.bytes} x i8]", at.bytes)
            rank = fn.op(f"trunc i64 {load(fn, one, 32, 'i64')} to i32")
            for offset, typed in (
                (0, f"ptr {load(fn, one, 24, 'ptr')}"), (at.device, "i32 1"), (at.rank, f"i32 {rank}"),
                (at.dtype, f"i32 {dtype_word(buffer.dtype)}"), (at.shape, f"ptr {load(fn, one, 40, 'ptr')}"),
                (at.strides, "ptr null"), (at.offset, "i64 0"),
            ):  # fmt: skip
                store(fn, tensor, offset, typed)
            tensors[buffer.name] = tensor
    block = fn.alloca(f"[{len(face.arrays)} x ptr]", 8 * len(face.arrays))
    for k, buffer in enumerate(face.arrays):
        store(fn, block, 8 * k, f"ptr {tensors[buffer.name]}")
    code = fn.op(f"call i32 @{face.name}.dl(ptr {block})")
    _refuse(fn, face, compare(fn, "ne", "i32", code, "0"), fn.op(f"call ptr @{face.name}_message(i32 {code})"))
    fn.do("ret ptr null")
    fn.finish("ptr")


def _tell_version(fn: Function) -> None:
    """Where XLA asks for metadata, say which version this is."""
    extension = load(fn, "%frame", _EXTENSION, "ptr")
    with (
        fn.when(compare(fn, "ne", "ptr", extension, "null")),
        fn.when(compare(fn, "eq", "i32", load(fn, extension, 8, "i32"), str(_METADATA))),
    ):
        metadata = load(fn, extension, 24, "ptr")
        for offset, number in ((24, 0), (28, 1), (32, 0)):
            store(fn, metadata, offset, f"i32 {number}")
        fn.do("ret ptr null")
        fn.start(fn.fresh("never"))


def _return(fn: Function, condition: Value) -> None:
    stop, go_on = fn.fresh("stop"), fn.fresh("run")
    fn.branch(condition, stop, go_on)
    fn.start(stop)
    fn.do("ret ptr null")
    fn.start(go_on)


def _refuse(fn: Function, face: Face, wrong: Value, message: str) -> None:
    stop, go_on = fn.fresh("refused"), fn.fresh("fine")
    fn.branch(wrong, stop, go_on)
    fn.start(stop)
    fn.do(f"ret ptr {fn.op(f'call ptr @{face.name}.xla.error(ptr %frame, ptr {message})')}")
    fn.start(go_on)


_REFUSE = f"""\
define internal ptr @{{name}}.xla.error(ptr %frame, ptr %message) noinline #0 {{{{
entry:
  %words = alloca [4 x i64], align 8
  %api.at = getelementptr i8, ptr %frame, i64 {_API}
  %api = load ptr, ptr %api.at, align 8
  %create.at = getelementptr i8, ptr %api, i64 48
  %create = load ptr, ptr %create.at, align 8
  store i64 32, ptr %words, align 8
  %extension = getelementptr i8, ptr %words, i64 8
  store ptr null, ptr %extension, align 8
  %text = getelementptr i8, ptr %words, i64 16
  store ptr %message, ptr %text, align 8
  %kind = getelementptr i8, ptr %words, i64 24
  store i64 {_INVALID}, ptr %kind, align 8
  %error = call ptr %create(ptr %words)
  ret ptr %error
}}}}"""
