"""Kernels for other architectures, run by emulators: AArch64 and RISC-V with vectors, and WebAssembly."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest

import tensorlang
from tensorlang import dtypes, te, topi
from tensorlang.errors import TargetError
from tensorlang.export.linking import LINKERS
from tensorlang.runtime.executable import Executable
from tensorlang.target.detect import has_fma, parse
from tests.export.library import cases, operator

ZIG = LINKERS["ziglang"]()
WIDE = "llvm -mcpu={} -num-cores=2"
HARNESS = """
#include <stddef.h>
%(headers)s
%(exit)s
void *memset(void *to, int byte, size_t n) { for (char *p = to; n--; ) *p++ = (char)byte; return to; }
void *memcpy(void *to, const void *from, size_t n) {
  for (char *p = to; n--; ) *p++ = *(const char *)from, from = (const char *)from + 1;
  return to;
}
static _Alignas(64) char room[1 << 20];
static size_t taken;
void *aligned_alloc(size_t unit, size_t n) {
  char *at = room + taken;
  taken += (n + unit - 1) / unit * unit;
  return at;
}
void free(void *at) { (void)at; }
static int far_off(const float *made, const float *wanted, size_t n) {
  int wrong = 0;
  for (size_t k = 0; k < n; ++k) {
    float d = made[k] - wanted[k], most = 1e-4f * (1 + (wanted[k] < 0 ? -wanted[k] : wanted[k]));
    wrong += !(d <= most && -d <= most);
  }
  return wrong;
}
%(data)s
void _start(void) {
%(calls)s
  quit(0);
}
"""
EXIT = 'register long {0} __asm__("{0}") = 93, {1} __asm__("{1}") = c; __asm__ volatile("{2}" :: "r"({0}), "r"({1}));'
EXITS = {"aarch64": EXIT.format("x8", "x0", "svc 0"), "riscv64": EXIT.format("a7", "a0", "ecall")}
CPUS = {
    "aarch64": ("cortex-a76", [["qemu-aarch64"]]),
    "riscv64": ("rv64gcv", [["qemu-riscv64", "-cpu", f"rv64,v=true,vlen={bits}"] for bits in (128, 256)]),
}


def kernels(target: str) -> dict[str, tuple[Executable, list[Any]]]:
    """A layer of products and functions, rows of a symbolic length, and products of narrow elements."""
    rng = np.random.default_rng(4)
    x, w = te.placeholder((24, 32), name="x"), te.placeholder((40, 32), name="w")
    layer = topi.nn.softmax(topi.gelu(topi.dense(x, w)))
    a = te.placeholder((te.var("m"), te.var("n")), name="a")
    k = te.reduce_axis((0, a.shape[1]), "k")
    top = te.compute((a.shape[0],), lambda i: te.max(a[i, k], axis=k), name="top")
    rows = te.compute(a.shape, lambda i, j: te.exp(a[i, j] - top[i]) + te.tanh(a[i, j]), name="rows")
    s = te.create_schedule(rows.op)
    s[rows].parallel("i")
    s[top].compute_at(s[rows], "i")
    p, q = te.placeholder((12, 64), "int8", name="p"), te.placeholder((64,), "bfloat16", name="q")
    c = te.reduce_axis((0, 64), "c")
    mixed = te.compute(
        (12,), lambda i: te.sum(p[i, c].astype("float32") * q[c].astype("float32"), axis=c), name="mixed"
    )
    made = {
        "layer": tensorlang.build([x, w, layer], schedule="default", target=target),
        "rows": tensorlang.build(s, [a, rows], target=target),
        "mixed": tensorlang.build([p, q, mixed], schedule="default", target=target),
    }
    shapes: dict[str, list[Any]] = {
        "layer": [((24, 32), "float32"), ((40, 32), "float32"), ((24, 40), "float32")],
        "rows": [((5, 37), "float32"), ((5, 37), "float32")],
        "mixed": [((12, 64), "int8"), ((64,), "bfloat16"), ((12,), "float32")],
    }
    draw = {n: [rng.uniform(-4, 4, shape).astype(dtypes.info(d).numpy) for shape, d in v] for n, v in shapes.items()}
    return {name: (kernel, draw[name]) for name, kernel in made.items()}


def wanted(kernel: Executable, arrays: list[Any]) -> list[Any]:
    """What the kernel's unscheduled program leaves here."""
    origin: Any = kernel.origin
    out = [a.copy() for a in arrays]
    tensorlang.build(origin.schedule.again(fresh=True), origin.args, target="llvm")(*out)
    return out


def c_array(name: str, array: Any) -> str:
    words = ",".join(map(str, np.frombuffer(array.tobytes(), np.uint8)))
    return f"static _Alignas(64) unsigned char {name}[] = {{{words}}};"


@pytest.mark.parametrize("architecture", list(CPUS))
def test_emulated_cpus_give_the_reference(architecture: str, tmp_path: Path) -> None:
    cpu, emulators = CPUS[architecture]
    if ZIG is None or shutil.which(emulators[0][0]) is None:
        pytest.skip(f"needs the ziglang wheel and {emulators[0][0]}")
    headers, data, calls, objects = [], [], [], []
    for number, (name, (kernel, arrays)) in enumerate(kernels(WIDE.format(cpu)).items(), 1):
        kernel.export(tmp_path / name, formats=("o", "h"))
        headers.append(f'#include "{name}.h"')
        objects.append(f"{name}.o")
        data += [c_array(f"{name}_{k}", a) for k, a in enumerate(arrays)]
        data.append(c_array(f"{name}_wanted", wanted(kernel, arrays)[-1]))
        given = ", ".join(
            [*(f"(void *){name}_{k}" for k in range(len(arrays))), *(["5", "37"] if name == "rows" else [])]
        )
        calls.append(f"  if ({name}({given})) quit({10 * number});")
        last = f"(const float *){name}_{len(arrays) - 1}"
        calls.append(
            f"  if (far_off({last}, (const float *){name}_wanted, sizeof {name}_wanted / 4)) quit({10 * number + 1});"
        )
    parts = {"headers": "\n".join(headers), "data": "\n".join(data), "calls": "\n".join(calls)}
    quits = f"static void quit(long c) {{ {EXITS[architecture]} __builtin_unreachable(); }}"
    (tmp_path / "main.c").write_text(HARNESS % {**parts, "exit": quits})
    compiler = [ZIG[0], "cc", "-target", f"{architecture}-linux-musl", "-nostdlib", "-static", "-O1", "-fno-builtin"]
    subprocess.run([*compiler, "main.c", *objects, "-o", "main"], cwd=tmp_path, check=True)
    for emulator in emulators:
        assert subprocess.run([*emulator, tmp_path / "main"], check=False).returncode == 0, emulator


@pytest.mark.parametrize("architecture", list(CPUS))
@pytest.mark.parametrize(("name", "dtype"), cases(0))
def test_operators_run_from_c_elsewhere(name: str, dtype: str, architecture: str, tmp_path: Path) -> None:
    """By night: the first program for an architecture takes minutes, in which zig compiles its libc."""
    cpu, emulators = CPUS[architecture]
    if ZIG is None or shutil.which(emulators[0][0]) is None:
        pytest.skip(f"needs the ziglang wheel and {emulators[0][0]}")
    kernel, arrays = operator(name, dtype, WIDE.format(cpu))
    kernel.export(tmp_path / "kernel", formats=("c",), check=arrays)
    compiler = [ZIG[0], "cc", "-target", f"{architecture}-linux-musl", "-static", "-O1", "-std=c99"]
    subprocess.run([*compiler, "kernel_test.c", "kernel.a", "-lm", "-o", "kernel_test"], cwd=tmp_path, check=True)
    for emulator in emulators:
        done = subprocess.run(
            [*emulator, tmp_path / "kernel_test", tmp_path, "0"], capture_output=True, text=True, check=False
        )
        if "decode_save_opc: Assertion" in done.stderr:
            pytest.skip("QEMU before 8.1 stops at some conversions of vectors (its issue 1441)")
        assert (done.returncode, done.stdout) == (0, "kernel: as expected\n"), (emulator, done.stderr)


Outside: TypeAlias = dict[str, Callable[..., Any]]
OUTSIDE: Outside = {
    "fma": lambda a, b, c: float(Fraction(a) * Fraction(b) + Fraction(c)),
    "__extendhfsf2": lambda bits: float(np.array(bits & 0xFFFF, np.uint16).view(np.float16)),
    "__truncsfhf2": lambda value: int(np.float16(value).view(np.uint16)),
}
"""What modules import, of libm and for float16."""


def in_web_assembly(
    kernel: Executable, name: str, arrays: list[Any], sizes: list[int], folder: Path, outside: Outside
) -> list[Any]:
    """The arrays of a call, as a module of WebAssembly leaves them in its memory; `outside` is all it may import."""
    wasmtime = pytest.importorskip("wasmtime", reason="needs wasmtime")
    if ZIG is None and shutil.which("wasm-ld") is None:
        pytest.skip("needs wasm-ld, or the ziglang wheel")
    store = wasmtime.Store()
    module = wasmtime.Module.from_file(store.engine, str(kernel.export(folder / name).files["wasm"]))
    given = [wasmtime.Func(store, function.type, outside[function.name]) for function in module.imports]
    exports = wasmtime.Instance(store, module, given).exports(store)
    memory = exports["memory"]
    memory.grow(store, 4)
    place = (exports["__heap_base"].value(store) + 63) // 64 * 64
    places = []
    for array in arrays:
        places.append(place)
        memory.write(store, array.tobytes(), place)
        place += (array.nbytes + 63) // 64 * 64
    room = exports[f"{name}_workspace_bytes"](store, *sizes, 1)
    assert 0 <= room <= memory.data_len(store) - place
    assert exports[f"{name}_run"](store, *places, *sizes, place, 0) == 0
    read = [memory.read(store, at, at + a.nbytes) for at, a in zip(places, arrays, strict=True)]
    return [np.frombuffer(r, a.dtype).reshape(a.shape) for r, a in zip(read, arrays, strict=True)]


def test_web_assembly_gives_the_reference(tmp_path: Path) -> None:
    for name, (kernel, arrays) in kernels(WIDE.format("wasm32-simd128")).items():
        found = in_web_assembly(kernel, name, arrays, [5, 37] if name == "rows" else [], tmp_path, {})
        np.testing.assert_allclose(found[-1], wanted(kernel, arrays)[-1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("name", "dtype"), cases(1))
def test_operators_run_in_web_assembly(name: str, dtype: str, tmp_path: Path) -> None:
    kernel, arrays = operator(name, dtype, WIDE.format("wasm32-simd128"))
    made = in_web_assembly(kernel, "kernel", arrays, [], tmp_path, OUTSIDE)
    for found, right in zip(made, wanted(kernel, arrays), strict=True):
        near = {"float16": 1e-2, "bfloat16": 5e-2, "float32": 1e-4, "float64": 1e-9}.get(right.dtype.name, 0)
        np.testing.assert_allclose(found.astype("float64"), right.astype("float64"), rtol=near, atol=near)


def test_rows_of_the_target_room(tmp_path: Path) -> None:
    assert [has_fma(parse(f"llvm -mcpu={cpu}")) for cpu in ("rv64gcv", "cortex-a76", "wasm32-simd128")] == [
        True,
        True,
        False,
    ]
    target = parse("llvm -mcpu=rv64gcv")
    assert (target.triple, target.vector_bytes, target.vector_registers) == ("riscv64-unknown-linux-gnu", 16, 32)
    a = te.placeholder((64,), name="a")
    out = te.compute((64,), lambda i: a[i] * a[i], name="out")
    s = te.create_schedule(out.op)
    s[out].vectorize("i")
    for cpu, word in (("rv64gcv", "vfmul.v"), ("wasm32-simd128", "f32x4.mul"), ("cortex-a76", "fmul\tv")):
        kernel = tensorlang.build(s, [a, out], target=f"llvm -mcpu={cpu}")
        assert word in kernel.source("asm")
        with pytest.raises(TargetError, match="which this machine cannot run"):
            kernel(np.zeros(64, np.float32), np.zeros(64, np.float32))
    with pytest.raises(TargetError, match="neither OpenMP, XLA nor ONNX Runtime"):
        tensorlang.build(s, [a, out], target="llvm -mcpu=wasm32-simd128").export(tmp_path / "out", threads="openmp")
