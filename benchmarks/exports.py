"""What exported kernels cost: a call from C and others, their speed beside the kernel in the process, their making."""

from __future__ import annotations

import ctypes
import importlib.util
import re
import shutil
import statistics
import subprocess
import tempfile
import time
import timeit
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import tensorlang
from benchmarks.figure import Figure
from tensorlang import te, topi
from tensorlang.runtime.executable import Executable

TURNS = 25
CALLS, ROUNDS = 100, 200  # of what takes less than a microsecond: short samples, between what else runs
ISAS = ("x86-64-v4", "cascadelake", "x86-64-v3", "x86-64-v2")
Call = Callable[[], object]


def measure() -> list[Figure]:
    """All figures; what needs a compiler or a library that is missing is left out."""
    with tempfile.TemporaryDirectory() as folder:
        return [*_calls(Path(folder)), *_speeds(Path(folder)), *_levels(), *_making(Path(folder))]


def best(turns: dict[str, Call], calls: int, rounds: int = TURNS) -> dict[str, float]:
    """Seconds of a call, the best of turns that alternate: whatever else runs only makes a call slower."""
    found: dict[str, list[float]] = {name: [] for name in turns}
    for _ in range(rounds):
        for name, call in turns.items():
            found[name].append(timeit.timeit(call, number=calls) / calls)
    return {name: min(times) for name, times in found.items()}


def _ratio(one: Call, other: Call, rest: float = 0.0) -> float:
    """The time of one call in times of another, the median of many pairs, with a rest of so many seconds between."""
    pairs = [(_rested(one, rest), _rested(other, rest)) for _ in range(20 * TURNS)]
    return statistics.median(a / b for a, b in pairs[TURNS:])


def _rested(call: Call, rest: float) -> float:
    if not rest:
        return timeit.timeit(call, number=1)
    time.sleep(rest)
    return min(timeit.repeat(call, number=1, repeat=5))


def _calls(folder: Path) -> list[Figure]:
    """Calls that add floats: 1024 of them, and 4 for what a call from C costs by itself."""
    kernel, (x, y, z) = _addition(1024)
    made = kernel.export(folder / "add", formats=("so",), faces=("c", "tvm_ffi"))
    library, loaded = ctypes.CDLL(str(made.files["so"])), tensorlang.load(made.files["so"])
    places = [ctypes.c_void_p(v.ctypes.data) for v in (x, y, z)]
    turns: dict[str, Call] = {
        "NumPy's np.add(a, b, out=c)": lambda: np.add(x, y, out=z),
        "in the process": lambda: kernel(x, y, z),
        "tensorlang.load": lambda: loaded(x, y, z),
        "ctypes, pointers at hand": lambda: library.add(*places),
    }
    goals: dict[str, float] = {}
    if importlib.util.find_spec("tvm_ffi"):
        turns |= _through_tvm_ffi(made.files["so"], (x, y, z))
        goals["TVM-FFI, arrays of NumPy"] = 0.6e-6
    times = best(turns, CALLS, ROUNDS)
    found = [
        Figure(f"call of 1024 floats: {n}", 1e9 * t, "ns", 1e9 * goals[n] if n in goals else None)
        for n, t in times.items()
    ]
    return [*_from_c(folder), *found]


def _through_tvm_ffi(path: Path, arrays: tuple[Any, ...]) -> dict[str, Call]:
    """Calls by TVM-FFI; those of a function that does nothing are what it takes for itself."""
    import tvm_ffi

    function = tvm_ffi.load_module(str(path)).add
    own = [tvm_ffi.from_dlpack(v) for v in arrays]
    turns: dict[str, Call] = {
        "TVM-FFI, its own tensors": lambda: function(*own),
        "TVM-FFI, arrays of NumPy": lambda: function(*arrays),
    }
    if importlib.util.find_spec("torch"):
        import torch

        tensors = [torch.from_numpy(v) for v in arrays]
        turns["TVM-FFI, tensors of PyTorch"] = lambda: function(*tensors)
    if compiler := shutil.which("cc"):
        source, library = path.with_name("nothing.c"), path.with_name("nothing.so")
        source.write_text("int __tvm_ffi_nothing(void *a, void *b, int c, void *d) { return 0; }\n")
        subprocess.run([compiler, "-O1", "-shared", "-fPIC", source, "-o", library], check=True)
        nothing = tvm_ffi.load_module(str(library)).nothing
        turns["TVM-FFI, arrays of NumPy, and nothing done"] = lambda: nothing(*arrays)
    return turns


def _from_c(folder: Path) -> list[Figure]:
    """The exported test's own time, best of many."""
    kernel, arrays = _addition(4)
    kernel.export(folder / "add", formats=("c",), check=arrays)
    compiler = shutil.which("cc")
    if compiler is None:
        return []
    subprocess.run([compiler, "-O1", "add_test.c", "add.a", "-lm", "-o", "add_test"], cwd=folder, check=True)
    told = subprocess.run([folder / "add_test", folder, "1"], capture_output=True, text=True, check=True).stdout
    time = re.search(r"([\d.e-]+) us", told)
    return [Figure("call of 4 floats: C", 1e3 * float(time[1]), "ns", 60)] if time else []


def _speeds(folder: Path) -> list[Figure]:
    """Exported kernels beside those in the process: above 1 they are faster. They run for long beside a call's cost."""
    found = []
    for name, args in {"product 512³": _product(512), "softmax 2048×1000": _softmax(2048)}.items():
        for threads in (1, 2):
            kernel = tensorlang.build(args, schedule="default", target=f"llvm -num-cores={threads}")
            arrays = [np.random.default_rng(0).standard_normal(tuple(map(int, t.shape)), np.float32) for t in args]
            for runner in ("host", "openmp"):
                found.append(_speed(folder, kernel, arrays, f"{name}, {threads} threads, {runner}", runner, threads))
    return found


def _speed(folder: Path, kernel: Executable, arrays: list[Any], name: str, runner: str, threads: int) -> Figure:
    stem = re.sub(r"[^a-z0-9]", "_", f"k {name}")
    path = kernel.export(folder / stem, formats=("so",), threads=runner).files["so"]
    with tensorlang.threads(threads):
        if runner == "host":
            loaded = tensorlang.load(path)
            call = partial(loaded, *arrays)
        else:
            function, places = getattr(ctypes.CDLL(str(path)), stem), [ctypes.c_void_p(v.ctypes.data) for v in arrays]
            ctypes.CDLL("libgomp.so.1").omp_set_num_threads(threads)
            call = partial(function, *places)
        # An OpenMP runtime of its own has threads of its own, and those of the other spin for a while after a call.
        rest = 0.01 if runner == "openmp" and threads > 1 else 0.0
        ratio = _ratio(partial(kernel, *arrays), call, rest)
        return Figure(f"exported beside in the process: {name}", ratio, "", 0.99, False)


def _levels() -> list[Figure]:
    args = _softmax()
    arrays = [np.random.default_rng(0).standard_normal((256, 1000), np.float32) for _ in args]
    kernels = {
        isa: tensorlang.build(args, schedule="default", target=f"llvm -mcpu={isa} -num-cores=1") for isa in ISAS[2:]
    }
    slow, fast = (partial(kernels[isa], *arrays) for isa in ("x86-64-v2", "x86-64-v3"))
    return [Figure("softmax 256×1000 for x86-64-v2, in times of x86-64-v3", _ratio(slow, fast), "", 2.5)]


def _making(folder: Path) -> list[Figure]:
    kernel = tensorlang.build(_product(512), schedule="default")
    write = partial(kernel.export, formats=("o", "a", "h"))
    times = best({"one": partial(write, folder / "one"), "four": partial(write, folder / "four", isas=ISAS)}, 1)
    return [
        Figure("export of a product", times["one"], "s"),
        Figure("export of a product for four instruction sets, no compiler", times["four"], "s", 1),
    ]


def _addition(size: int) -> tuple[Executable, list[Any]]:
    a, b = te.placeholder((size,), name="a"), te.placeholder((size,), name="b")
    out = te.compute((size,), lambda i: a[i] + b[i], name="out")
    kernel = tensorlang.build([a, b, out], schedule="default", target="llvm -num-cores=1")
    return kernel, [np.ones(size, np.float32) for _ in range(3)]


def _product(size: int) -> list[Any]:
    a, b = te.placeholder((size, size), name="a"), te.placeholder((size, size), name="b")
    return [a, b, topi.matmul(a, b)]


def _softmax(rows: int = 256) -> list[Any]:
    x = te.placeholder((rows, 1000), name="x")
    return [x, topi.nn.softmax(x)]
