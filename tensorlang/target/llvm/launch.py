"""Running compiled kernels through ctypes: the road of whatever the fast entry does not take."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tensorlang import dtypes
from tensorlang.errors import InternalError, KernelError
from tensorlang.ir.expr import Buffer, Var
from tensorlang.ir.stmt import CallPython, Kernel
from tensorlang.runtime.arguments import evaluate_shape
from tensorlang.runtime.arrays import Array, address
from tensorlang.target.llvm.context import NO_MEMORY
from tensorlang.target.llvm.image import Library

_Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


class CompiledLaunch:
    """Runs a loaded kernel on checked arrays; owns its code and the functions that it calls back.

    Calls may run at the same time: everything that belongs to one call lives in its context.
    """

    def __init__(
        self, kernel: Kernel, library: Library, symbol: str, calls: Sequence[CallPython], messages: tuple[str, ...]
    ) -> None:
        self._name = kernel.name
        self._messages = messages
        self._library = library
        words = [ctypes.c_void_p] * len(kernel.params) + [ctypes.c_int64] * len(kernel.sizes) + [ctypes.c_void_p]
        self._function = ctypes.CFUNCTYPE(None, *words)(library.addresses[symbol])
        self._raised: dict[int, BaseException] = {}
        functions = dict(kernel.callbacks)
        self._callbacks = [_callback(functions[c.name], c.buffers, kernel.sizes, self._raised) for c in calls]
        self._slots = [ctypes.cast(c, ctypes.c_void_p).value or 0 for c in self._callbacks]

    def __call__(self, arrays: Sequence[Array], sizes: Sequence[int]) -> None:
        """Run; what a called Python function raised, or a KernelError, is raised after the kernel returned."""
        context = (ctypes.c_int64 * (1 + len(self._slots)))(0, *self._slots)
        where = ctypes.addressof(context)
        self._function(*map(address, arrays), *sizes, where)
        raised = self._raised.pop(where, None)
        if raised is not None:
            raise raised
        if context[0]:
            self.fail(context[0])

    def fail(self, status: int) -> None:
        """Raise what a status other than 0 stands for."""
        if status == NO_MEMORY:
            raise MemoryError(f"{self._name}: no memory for its scratch buffers")
        if not 1 <= status <= len(self._messages):
            raise InternalError(f"{self._name} returned the status {status}")
        raise KernelError(f"{self._name}: {self._messages[status - 1]}")


def _callback(
    function: Callable[..., Any], buffers: tuple[Buffer, ...], sizes: tuple[Var, ...], raised: dict[int, BaseException]
) -> Any:
    """Wrap a Python function for compiled code: pointers and sizes to arrays, exceptions to `raised`."""
    words = len(buffers) + len(sizes)

    def call(context: int, block: int) -> None:
        try:
            given = (ctypes.c_int64 * words).from_address(block) if words else ()
            known = {v.name: given[len(buffers) + n] for n, v in enumerate(sizes)}
            function(*(_array(b, given[n], known) for n, b in enumerate(buffers)))
        except BaseException as error:
            # ctypes would print and drop it. The first one counts.
            raised.setdefault(context, error)

    return _Callback(call)


def _array(buffer: Buffer, pointer: int, sizes: dict[str, int]) -> Array:
    """The memory of a buffer as an array."""
    shape = evaluate_shape(buffer, sizes)
    d = dtypes.info(buffer.dtype)
    count = 1
    for extent in shape:
        count *= extent
    if count == 0:
        return np.empty(shape, d.numpy)
    memory = memoryview((ctypes.c_char * (count * d.bytes)).from_address(pointer))
    return np.frombuffer(memory.cast("B"), d.numpy).reshape(shape)
