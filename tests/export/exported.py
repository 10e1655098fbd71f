"""Exported kernels for tests, and ways to call them: ctypes, with DLTensors, with a host of Python's."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import tensorlang
from tensorlang import dtypes, te, topi
from tensorlang.runtime.executable import Executable
from tensorlang.target.llvm.library.dl import dtype_word

n = te.var("n")
Task = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
ParallelFor = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, Task, ctypes.c_void_p)


class Host(ctypes.Structure):
    """tl_host."""

    _fields_ = [("abi", ctypes.c_int32), ("threads", ctypes.c_int32), ("user", ctypes.c_void_p), ("run", ParallelFor)]


class DLTensor(ctypes.Structure):
    """A DLTensor over an array, which has to live as long."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("dtype", ctypes.c_uint32),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("offset", ctypes.c_uint64),
    ]


def dl_tensor(array: Any, **changed: Any) -> DLTensor:
    """A DLTensor over an array, with fields that are said to be others."""
    shape = (ctypes.c_int64 * max(1, array.ndim))(*array.shape)
    strides = (ctypes.c_int64 * max(1, array.ndim))(*(s // array.itemsize for s in array.strides))
    places = ctypes.addressof(shape), ctypes.addressof(strides)
    made = DLTensor(array.ctypes.data, 1, 0, array.ndim, dtype_word(array.dtype.name), *places, 0)
    for name, value in changed.items():
        setattr(made, name, value)
    made.kept = shape, strides, array
    return made


@dataclass
class Loaded:
    """A library by ctypes."""

    name: str
    library: ctypes.CDLL

    def __post_init__(self) -> None:
        self["message"].restype = self["metadata"].restype = ctypes.c_char_p
        self["workspace_bytes"].restype = ctypes.c_int64

    def __getitem__(self, part: str) -> Any:
        return getattr(self.library, f"{self.name}_{part}" if part else self.name)

    def __call__(self, arrays: Sequence[Any], sizes: Sequence[int] = ()) -> int:
        return int(self[""](*_words(arrays, sizes)))

    def run(self, arrays: Sequence[Any], sizes: Sequence[int], host: Host | None, threads: int = 0) -> int:
        """Call with a workspace of so many bytes as it asks for, and with what lies behind it watched."""
        size = self["workspace_bytes"](*(ctypes.c_int64(s) for s in (*sizes, threads)))
        assert size >= 0, size
        room = np.full(size + 128, 0x5A, np.uint8)
        start = -room.ctypes.data % 64
        place = ctypes.c_void_p(room.ctypes.data + start)
        code = int(self["run"](*_words(arrays, sizes), place, None if host is None else ctypes.byref(host)))
        assert (room[:start] == 0x5A).all() and (room[start + size :] == 0x5A).all(), "wrote outside of its workspace"
        return code

    def dl(self, *tensors: DLTensor) -> int:
        """Call with DLTensors."""
        pointers = (ctypes.c_void_p * len(tensors))(*map(ctypes.addressof, tensors))
        return int(self["dl"](pointers))

    def message(self, code: int) -> str:
        """The text of a code."""
        return str(self["message"](code).decode())


def _words(arrays: Sequence[Any], sizes: Sequence[int]) -> list[Any]:
    return [*(ctypes.c_void_p(a.ctypes.data) for a in arrays), *map(ctypes.c_int64, sizes)]


def exported(kernel: Executable, folder: Path, name: str = "layer", **how: Any) -> Loaded:
    """A kernel that was exported to a folder, and loaded."""
    files = kernel.export(folder / name, **{"formats": ("so",), **how}).files
    return Loaded(name, ctypes.CDLL(str(files["so"])))


def in_turn(order: Callable[[int], Sequence[int]]) -> tuple[Host, list[int]]:
    """A host that runs tasks in the calling thread, in an order of its own; how many it was asked for each time."""
    asked: list[int] = []

    def run(_: Any, tasks: int, task: Any, arg: Any) -> None:
        asked.append(tasks)
        for index in order(tasks):
            task(arg, index, tasks)

    return Host(1, 5, None, ParallelFor(run)), asked


@cache
def layer() -> Executable:
    """GELU of a product of fixed sizes, with a bias: the library's schedule."""
    x, w, b = te.placeholder((48, 64), name="x"), te.placeholder((96, 64), name="w"), te.placeholder((96,), name="b")
    y = topi.gelu(topi.add(topi.dense(x, w), b))
    made: Executable = tensorlang.build([x, w, b, y], schedule="default", target="llvm -num-cores=2")
    return made


@cache
def two_regions() -> Executable:
    """Row sums by the square of the array, then what each row has above its mean: two parallel loops with scratch."""
    a = te.placeholder((n, 40), name="a")
    squares = te.compute((n, 40), lambda i, j: a[i, j] * a[i, j], name="squares")
    k = te.reduce_axis((0, 40), "k")
    total = te.compute((n,), lambda i: te.sum(squares[i, k], axis=k), name="total")
    out = te.compute((n, 40), lambda i, j: squares[i, j] - total[i] * te.const(0.025), name="out")
    s = te.create_schedule(out.op)
    for stage, axis in ((total, "i"), (out, "i")):
        s[stage].parallel(axis)
    made: Executable = tensorlang.build(s, [a, out], target="llvm -num-cores=2")
    return made


@cache
def rows() -> Executable:
    """What each row has beyond its largest element, squared: a symbolic row of scratch for every task."""
    m = te.var("m")
    a = te.placeholder((m, n), name="a")
    k = te.reduce_axis((0, n), "k")
    top = te.compute((m,), lambda i: te.max(a[i, k], axis=k), name="top")
    below = te.compute((m, n), lambda i, j: a[i, j] - top[i], name="below")
    back = te.compute((m, n), lambda i, j: below[i, n - 1 - j] * below[i, j], name="back")
    s = te.create_schedule(back.op)
    s[back].parallel("i")
    s[top].compute_at(s[back], "i")
    s[below].compute_at(s[back], "i")
    made: Executable = tensorlang.build(s, [a, back], target="llvm -num-cores=2")
    return made


def narrow() -> tuple[Executable, list[Any]]:
    """An output of each dtype."""
    kinds = [d for d in dtypes.TABLE if d != "bool"]
    a = te.placeholder((te.var("n"),), name="a")
    outs = [te.compute(a.shape, lambda i, d=d: a[i].astype(d), name=f"as_{d}") for d in kinds]
    outs.append(te.compute(a.shape, lambda i: a[i] > 1, name="as_bool"))
    kernel: Executable = tensorlang.build(te.create_schedule([o.op for o in outs]), [a, *outs])
    values = np.array([0, 0.75, 1.5, 100, 447, 1e-3, 2**-9, 3], np.float32)
    return kernel, [values, *(np.zeros(8, dtypes.info(o.dtype).numpy) for o in outs)]
