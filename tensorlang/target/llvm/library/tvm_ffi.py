"""The function by which TVM-FFI calls a kernel: `__tvm_ffi_NAME`, with tensors of NumPy, PyTorch, JAX or its own.

What it takes is packed: 16 bytes an argument, its type and its value. Its numbers are those of TVM-FFI's C interface.
"""

from __future__ import annotations

from tensorlang.target.llvm.library.emit import compare, load, store, text
from tensorlang.target.llvm.library.front import BAD_SIZE, Face
from tensorlang.target.llvm.text import Function, Module, Value

PREFIX = "__tvm_ffi_"
_POINTER, _OBJECT = 7, 70
"""Types: a DLTensor, and a tensor object, which holds one behind its head."""
_HEAD = 24
_RAISE = "TVMFFIErrorSetRaisedFromCStr"


def emit_tvm_ffi(module: Module, face: Face) -> None:
    """Add the function; `NAME.dl` is there."""
    module.declarations.setdefault(_RAISE, f"declare extern_weak void @{_RAISE}(ptr, ptr)")
    count, p = len(face.arrays), face.pointer_bytes
    fn = Function(module, f"{PREFIX}{face.name}", ["ptr %self", "ptr %args", "i32 %count", "ptr %result"])
    _raise(fn, compare(fn, "ne", "i32", "%count", str(count)), "TypeError", text(module, _wanted(face)))
    tensors = fn.alloca(f"[{max(1, count)} x ptr]", p * max(1, count))
    for k, array in enumerate(face.arrays):
        kind = load(fn, "%args", 16 * k, "i32")
        held = load(fn, "%args", 16 * k + 8, "ptr")
        inside = fn.field(held, _HEAD)
        is_object = compare(fn, "eq", "i32", kind, str(_OBJECT))
        known = fn.value(f"or i1 {is_object.text}, {compare(fn, 'eq', 'i32', kind, str(_POINTER)).text}", "bool")
        words = f"{face.name}: argument {k + 1} ({array.name}): expected a tensor in CPU memory"
        _raise(fn, fn.value(f"xor {known.typed}, true", "bool"), "TypeError", text(module, words))
        store(fn, tensors, p * k, f"ptr {fn.op(f'select {is_object.typed}, ptr {inside}, ptr {held}')}")
    code = fn.op(f"call i32 @{face.name}.dl(ptr {tensors})")
    message = fn.op(f"call ptr @{face.name}_message(i32 {code})")
    _raise(fn, compare(fn, "sle", "i32", code, str(BAD_SIZE)), "ValueError", message)
    _raise(fn, compare(fn, "ne", "i32", code, "0"), "RuntimeError", message)
    fn.do("ret i32 0")
    fn.finish("i32")


def _wanted(face: Face) -> str:
    return f"{face.name} takes {len(face.arrays)} tensors: {', '.join(map(str, face.arrays))}"


def _raise(fn: Function, wrong: Value, kind: str, message: str) -> None:
    """Append an error where a condition holds; without TVM-FFI in the process there is nobody to tell."""
    name = f"{PREFIX}raise"
    if name not in fn.module.names:
        fn.module.names.add(name)
        fn.module.functions.append(_TELL.format(name=name, raises=_RAISE))
    told = text(fn.module, kind)
    stop, go_on = fn.fresh("raise"), fn.fresh("fine")
    fn.branch(wrong, stop, go_on)
    fn.start(stop)
    fn.do(f"call void @{name}(ptr {told}, ptr {message})")
    fn.do("ret i32 -1")
    fn.start(go_on)


_TELL = """\
define internal void @{name}(ptr %kind, ptr %message) noinline #0 {{
entry:
  %there = icmp ne ptr @{raises}, null
  br i1 %there, label %tell, label %done
tell:
  call void @{raises}(ptr %kind, ptr %message)
  br label %done
done:
  ret void
}}"""
