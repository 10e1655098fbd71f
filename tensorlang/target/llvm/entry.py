"""The fast entry of a kernel: a METH_FASTCALL function that checks NumPy arrays in machine code.

Tensors of libraries that describe theirs to C (torch) take the same road, as records that look like arrays. Whatever it
does not recognise goes to `self`, the entry that checks in Python: it converts what can be converted, and raises the
errors. So do sizes beyond those for which 64 bits are known to hold all index arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tensorlang import dtypes
from tensorlang.ir.expr import Buffer, Var
from tensorlang.ir.stmt import For, Kernel, LoopKind, walk
from tensorlang.runtime import cpython
from tensorlang.runtime.arguments import Signature
from tensorlang.target.llvm.arithmetic import binary
from tensorlang.target.llvm.expressions import index
from tensorlang.target.llvm.kernel import Emitted
from tensorlang.target.llvm.reader import RECORD_BYTES
from tensorlang.target.llvm.scope import Scope
from tensorlang.target.llvm.text import INDEX, Function, Value, literal
from tensorlang.target.llvm.threads.balance import work

_POINTER_BYTES = 8
_SHORT = 1000
"""Statements that a kernel may run while it keeps the interpreter's lock: about a microsecond."""


def emit_entry(emitted: Emitted, kernel: Kernel, limit: int, signature: Signature | None = None) -> str | None:
    """Add the fast entry of a kernel to its module; return its symbol, or None when it cannot have one.

    `limit`: up to which sizes its index arithmetic is exact (`exact_limit`). Kernels that call Python have none, nor
    those with a size that is neither passed nor itself a dimension of an array. `signature`: what the caller passes,
    the arrays of the kernel in its order and sizes, if not those arrays alone.
    """
    taken = kernel.params if signature is None else signature
    bare = {e.name for p in kernel.params for e in p.shape if isinstance(e, Var)}
    passed = {p.name for p in taken if isinstance(p, Var)}
    if emitted.calls or not {v.name for v in kernel.sizes} <= bare | passed or _arrays(taken) != _arrays(kernel.params):
        return None
    module = emitted.module
    name, short = module.unique(f"{emitted.symbol.removesuffix('.kernel')}.entry"), _is_short(kernel)
    fn = Function(module, name, _PARAMETERS, plain=not short)
    _need(fn, _equal(fn, "ptr", "%names", "null"))
    _need(fn, _equal(fn, "i64", "%count", str(len(taken))))
    given = [(param, _load(fn, "%args", _POINTER_BYTES * n, "ptr")) for n, param in enumerate(taken)]
    sizes = {p.name: _size(fn, held, limit) for p, held in given if isinstance(p, Var)}
    objects = [_array(fn, held) for p, held in given if not isinstance(p, Var)]
    for param, held in zip(kernel.params, objects, strict=True):
        _check_array(fn, held, param, writeable=param.name in kernel.outputs)
    scope = _check_shapes(fn, kernel, objects, limit, sizes)
    pointers = [_load(fn, held, cpython.DATA, "ptr") for held in objects]
    _check_overlap(fn, scope, kernel, pointers)
    arguments = [f"ptr {p}" for p in pointers] + [scope.values[v.name].typed for v in kernel.sizes]
    _run(fn, emitted.symbol, arguments, release=not short)
    fn.finish("ptr")
    return fn.name


_PARAMETERS = ["ptr %self", "ptr %args", "i64 %count", "ptr %names"]


def _load(fn: Function, base: str, offset: int, type_: str) -> str:
    return fn.op(f"load {type_}, ptr {fn.field(base, offset)}, align 1")


def _equal(fn: Function, type_: str, a: str, b: str) -> Value:
    return fn.value(f"icmp eq {type_} {a}, {b}", "bool")


def _need(fn: Function, condition: Value) -> None:
    """Take the slow road unless a condition holds."""
    go_on = fn.fresh("ok")
    fn.branch(condition, go_on, "slow")
    fn.start(go_on)


def _arrays(signature: Signature) -> list[str]:
    return [str(p) for p in signature if not isinstance(p, Var)]


def _size(fn: Function, given: str, limit: int) -> Value:
    """A number that is passed, exactly an int, and not above the limit."""
    module, go_on, undo = fn.module, fn.fresh("ok"), fn.fresh("undo")
    _need(fn, _equal(fn, "ptr", _load(fn, given, cpython.TYPE, "ptr"), module.import_data("tensorlang_int", "i8")))
    value = fn.op(f"call i64 {module.import_function('PyLong_AsLongLong', 'i64', 'ptr')}(ptr {given})")
    fn.branch(fn.value(f"icmp ule i64 {value}, {limit}", "bool"), go_on, undo)
    fn.start(undo)  # -1 may stand for an error
    fn.do(f"call void {module.import_function('PyErr_Clear', 'void', '')}()")
    fn.jump("slow")
    fn.start(go_on)
    return Value(value, INDEX)


def _array(fn: Function, given: str) -> str:
    """An object that is exactly an ndarray, or the record that the reader makes of a tensor of another library."""
    array_type = fn.module.import_data("tensorlang_ndarray", "i8")
    cell = fn.module.import_data("tensorlang_reader", "ptr")
    record = fn.alloca(f"[{RECORD_BYTES} x i8]", RECORD_BYTES)
    before, foreign, read, array = fn.block, fn.fresh("foreign"), fn.fresh("read"), fn.fresh("array")
    fn.branch(_equal(fn, "ptr", _load(fn, given, cpython.TYPE, "ptr"), array_type), array, foreign)
    fn.start(foreign)
    reader = _load(fn, cell, 0, "ptr")
    fn.branch(_equal(fn, "ptr", reader, "null"), "slow", read)
    fn.start(read)
    fn.branch(fn.value(f"call i1 {reader}(ptr {given}, ptr {record})", "bool"), array, "slow")
    fn.start(array)
    return fn.op(f"phi ptr [{given}, %{before}], [{record}, %{read}]")


def _check_array(fn: Function, held: str, buffer: Buffer, writeable: bool) -> None:
    """An array of the dtype, rank and flags that the kernel wants."""
    dtype = dtypes.info(buffer.dtype).numpy
    description = _load(fn, held, cpython.DESCRIPTION, "ptr")
    number = str(dtype.num)
    if dtypes.info(buffer.dtype).is_extension:
        # Numbers of registered types are given out at run time.
        number = _load(fn, fn.module.import_data(cpython.number_symbol(buffer.dtype), "i32"), 0, "i32")
    _need(fn, _equal(fn, "i32", _load(fn, description, cpython.TYPE_NUMBER, "i32"), number))
    order = str(ord(np.dtype(dtype).byteorder))
    _need(fn, _equal(fn, "i8", _load(fn, description, cpython.BYTE_ORDER, "i8"), order))
    wanted = cpython.CONTIGUOUS_ALIGNED | (cpython.WRITEABLE if writeable else 0)
    flags = fn.op(f"and i32 {_load(fn, held, cpython.FLAGS, 'i32')}, {wanted}")
    _need(fn, _equal(fn, "i32", flags, str(wanted)))
    _need(fn, _equal(fn, "i32", _load(fn, held, cpython.RANK, "i32"), str(len(buffer.shape))))


def _check_shapes(fn: Function, kernel: Kernel, objects: list[str], limit: int, sizes: Mapping[str, Value]) -> Scope:
    """Bind sizes, none of them above the limit, from the dimensions that are a bare size; then compare all others.

    `sizes` are known already.
    """
    scope = Scope({}, {})
    for name, value in sizes.items():
        scope = scope.bind(name, value)
    rest = []
    for param, held in zip(kernel.params, objects, strict=True):
        if not param.shape:
            continue
        dimensions = _load(fn, held, cpython.DIMENSIONS, "ptr")
        for axis, extent in enumerate(param.shape):
            actual = Value(_load(fn, dimensions, _POINTER_BYTES * axis, "i64"), INDEX)
            if isinstance(extent, Var) and extent.name not in scope.values:
                _need(fn, fn.value(f"icmp ule i64 {actual.text}, {limit}", "bool"))
                scope = scope.bind(extent.name, actual)
            else:
                rest.append((extent, actual))
    for extent, actual in rest:
        _need(fn, binary(fn, "eq", actual, index(fn, scope, extent)))
    return scope


def _check_overlap(fn: Function, scope: Scope, kernel: Kernel, pointers: list[str]) -> None:
    """No written array may touch another one."""
    starts = [Value(fn.op(f"ptrtoint ptr {p} to i64"), INDEX) for p in pointers]
    ends = [binary(fn, "add", start, _bytes(fn, scope, p)) for start, p in zip(starts, kernel.params, strict=True)]
    written = [n for n, p in enumerate(kernel.params) if p.name in kernel.outputs]
    for one in written:
        for other in range(len(pointers)):
            if other == one or (other in written and other < one):
                continue
            below = fn.value(f"icmp ule i64 {ends[one].text}, {starts[other].text}", "bool")
            above = fn.value(f"icmp ule i64 {ends[other].text}, {starts[one].text}", "bool")
            _need(fn, binary(fn, "or", below, above))


def _bytes(fn: Function, scope: Scope, buffer: Buffer) -> Value:
    size = literal(dtypes.info(buffer.dtype).bytes, INDEX)
    for extent in buffer.shape:
        size = binary(fn, "mul", size, index(fn, scope, extent))
    return size


def _is_short(kernel: Kernel) -> bool:
    """Whether a kernel ends before another thread would get the interpreter's lock."""
    parallel = any(isinstance(s, For) and s.kind is LoopKind.PARALLEL for s in walk(kernel.body))
    amount = None if parallel or kernel.sizes else work(kernel.body, {})
    return amount is not None and amount <= _SHORT


def _run(fn: Function, symbol: str, arguments: list[str], release: bool) -> None:
    """Call the kernel, if need be without the interpreter's lock; `self(STATUS, status)` raises what a status means."""
    module = fn.module
    context = fn.alloca("[1 x i64]", 8)
    box = fn.alloca("[2 x ptr]", 2 * _POINTER_BYTES)
    fn.do(f"store i64 0, ptr {context}, align 8")
    call = module.import_function("PyObject_Vectorcall", "ptr", "ptr, ptr, i64, ptr")
    run = f"call void @{symbol}({', '.join([*arguments, f'ptr {context}'])})"
    if release:
        state = fn.op(f"call ptr {module.import_function('PyEval_SaveThread', 'ptr', '')}()")
        fn.do(run)
        fn.do(f"call void {module.import_function('PyEval_RestoreThread', 'void', 'ptr')}(ptr {state})")
    else:
        fn.do(run)
    status = fn.op(f"load i64, ptr {context}, align 8")
    fn.branch(_equal(fn, "i64", status, "0"), "done", "failed")
    fn.start("done")
    none = module.import_data("tensorlang_none", "i8")
    fn.do(f"call void {module.import_function('Py_IncRef', 'void', 'ptr')}(ptr {none})")
    fn.do(f"ret ptr {none}")
    fn.start("failed")
    number = fn.op(f"call ptr {module.import_function('PyLong_FromLongLong', 'ptr', 'i64')}(i64 {status})")
    fn.do(f"store ptr {module.import_data('tensorlang_status', 'i8')}, ptr {box}, align 8")
    fn.do(f"store ptr {number}, ptr {fn.field(box, _POINTER_BYTES)}, align 8")
    raised = fn.op(f"call ptr {call}(ptr %self, ptr {box}, i64 2, ptr null)")
    fn.do(f"call void {module.import_function('Py_DecRef', 'void', 'ptr')}(ptr {number})")
    fn.do(f"ret ptr {raised}")
    fn.start("slow")
    fn.do(f"ret ptr {fn.op(f'call ptr {call}(ptr %self, ptr %args, i64 %count, ptr %names)')}")
