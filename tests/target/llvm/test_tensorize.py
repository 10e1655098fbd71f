"""Intrinsics on CPUs: the instructions that are chosen, calls of C functions, and what a CPU lacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tensorlang as tvm
from tensorlang import te, tir
from tensorlang.errors import DefinitionError, TargetError
from tensorlang.target.detect import host_cpu
from tensorlang.te.intrinsic import TensorIntrin
from tensorlang.te.operation import Tensor
from tensorlang.testing import check_intrinsic, check_schedule
from tests.programs import Case, matmul

DOT = {
    "x86.avx512.vpdpbusd": ("avx512vnni", "llvm -mcpu=cascadelake", "vpdpbusd", "%zmm"),
    "x86.avx2.vpdpbusd": ("avx512vnni", "llvm -mcpu=cascadelake", "vpdpbusd", "%ymm"),
    "x86.avx512.vpdpbusd.signed": ("avx512vnni", "llvm -mcpu=cascadelake", "vpdpbusd", "%zmm"),
    "x86.avx2.vpdpbusd.signed": ("avx512vnni", "llvm -mcpu=alderlake", "vpdpbusd", "%ymm"),
    "x86.avx2.vpmaddubsw.signed": ("avx2", "llvm -mcpu=haswell", "vpmaddubsw", "%ymm"),
    "x86.avx512.vdpbf16ps": ("avx512bf16", "llvm -mcpu=cooperlake", "vdpbf16ps", "%zmm"),
    "x86.avx2.vdpbf16ps": ("avx512bf16", "llvm -mcpu=cooperlake", "vdpbf16ps", "%ymm"),
    "aarch64.neon.sdot": ("dotprod", "llvm -mcpu=neoverse-n1", "sdot", ".4s"),
    "aarch64.neon.udot": ("dotprod", "llvm -mcpu=neoverse-n1", "udot", ".4s"),
    "aarch64.neon.usdot": ("i8mm", "llvm -mcpu=neoverse-v1", "usdot", ".4s"),
}
_ENDS = {"uint8": (0, 255), "int8": (-128, 127)}
PORTABLE = ("fma.f32x16", "fma.f32x8")
PAIRS = {
    f"{name}.{kind}": row
    for name, row in {
        "x86.avx512.vdpbf16ps": ("avx512bf16", "llvm -mcpu=cooperlake", "vdpbf16ps", "%zmm"),
        "x86.avx512.vpdpwssd": ("avx512vnni", "llvm -mcpu=cooperlake", "vpdpwssd", "%zmm"),
        "x86.avx512.vpmaddwd": ("avx512bw", "llvm -mcpu=skylake-avx512", "vpmaddwd", "%zmm"),
        "x86.avx2.vpdpwssd": ("avx512vnni", "llvm -mcpu=alderlake", "vpdpwssd", "%ymm"),
        "x86.avx2.vpmaddwd": ("avx2", "llvm -mcpu=haswell", "vpmaddwd", "%ymm"),
    }.items()
    for kind in ("pairs", "rows")
}


def packed(name: str, rows: int = 6, columns: int = 32, depth: int = 16) -> Case:
    """C = A W by an instruction of tensorlang's own, W packed as it wants."""
    intrin = te.intrin(name)
    (width, group), word = intrin.buffers["kernel"].shape, intrin.op.dtypes[0]
    A = te.placeholder((rows, depth), intrin.buffers["data"].dtype, name="A")
    shape = (columns // width, depth // group, width, group)
    W = te.placeholder(shape, intrin.buffers["kernel"].dtype, name="W")
    k = te.reduce_axis((0, depth), "k")

    def element(i: Any, j: Any) -> Any:
        weight = W[j // width, k // group, j % width, k % group]
        return te.sum(te.cast(A[i, k], word) * te.cast(weight, word), axis=k)

    C = te.compute((rows, columns), element, name="C")
    s = te.create_schedule(C.op)
    j_o, j_i = s[C].split("j", factor=width)
    k_o, k_i = s[C].split("k", factor=group)
    s[C].reorder("i", j_o, k_o, j_i, k_i)
    s[C].parallel("i")
    s[C].tensorize(j_i, intrin)
    return Case(s, (A, W, C))


@pytest.mark.parametrize("name", DOT)
def test_a_dot_product_is_the_instruction_it_is_named_for(name: str) -> None:
    _, target, word, register = DOT[name]
    s, args = packed(name)
    lines = tvm.build(s, list(args), target=target).source("asm").splitlines()
    assert any(word in line and register in line for line in lines)


@pytest.mark.parametrize("name", DOT)
def test_a_dot_product_equals_the_reference(name: str) -> None:
    if DOT[name][0] not in host_cpu().features:
        pytest.skip(f"this CPU has no {DOT[name][0]}")
    s, args = packed(name)
    check_schedule(s, args)


@pytest.mark.parametrize("name", DOT)
def test_a_dot_product_runs_on_the_interpreter_everywhere(name: str) -> None:
    s, args = packed(name, rows=2, columns=16, depth=8)
    check_schedule(s, args, targets=("interpreter",))


def as_they_lie(name: str) -> Case:
    """Products of 16 bits, summed over pairs along the rows of both factors, or over pairs of rows of the second."""
    along, intrin = name.endswith("pairs"), te.intrin(name)
    lanes, made = int(intrin.buffers["out"].shape[0]), intrin.buffers["out"].dtype
    A = te.placeholder((3, 4 * lanes), intrin.buffers["a"].dtype, name="A")
    B = te.placeholder((5, 4 * lanes) if along else (4 * lanes, 48), intrin.buffers["b"].dtype, name="B")
    t = te.reduce_axis((0, 2), "t")

    def term(i: Any, j: Any, k: Any) -> Any:
        return A[i, k].astype(made) * (B[j, k] if along else B[k, j]).astype(made)

    if along:
        step = te.reduce_axis((0, 2), "step")
        shape = (3, 5, lanes)
        C = te.compute(
            shape, lambda i, j, v: te.sum(term(i, j, step * 2 * lanes + v * 2 + t), axis=[step, t]), name="C"
        )
    else:
        k = te.reduce_axis((0, 4 * lanes), "k")
        C = te.compute((3, 48), lambda i, j: te.sum(term(i, j, k), axis=k), name="C")
    s = te.create_schedule(C.op)
    if along:
        s[C].reorder("step", "v", "t")
        s[C].tensorize("v", intrin)
    else:
        j_o, j_i = s[C].split("j", factor=lanes)
        k_o, k_i = s[C].split("k", factor=2)
        s[C].reorder(j_o, k_o, j_i, k_i)
        s[C].tensorize(j_i, intrin)
    return Case(s, (A, B, C))


@pytest.mark.parametrize("name", PAIRS)
def test_pairs_are_multiplied_as_they_lie(name: str) -> None:
    feature, target, word, register = PAIRS[name]
    s, args = as_they_lie(name)
    lines = tvm.build(s, list(args), target=target).source("asm").splitlines()
    assert any(word in line and register in line for line in lines)
    check_schedule(s, args, targets=("interpreter",))
    if feature in host_cpu().features:
        check_schedule(s, args)


@pytest.mark.parametrize("name", [*DOT, *PORTABLE, *PAIRS])
def test_own_intrinsics_do_what_they_declare(name: str) -> None:
    feature = (DOT | PAIRS).get(name, ("",))[0]
    if feature and feature not in host_cpu().features:
        pytest.skip(f"this CPU has no {feature}")
    check_intrinsic(te.intrin(name))


@pytest.mark.parametrize("name", [name for name in DOT if "bf16" not in name])
def test_bytes_of_any_value_are_multiplied_exactly(name: str) -> None:
    if DOT[name][0] not in host_cpu().features:
        pytest.skip(f"this CPU has no {DOT[name][0]}")
    s, args = packed(name, 8, 64, 64)
    rng = np.random.default_rng(0)
    a, w = (rng.integers(*_ENDS[x.dtype], [*map(int, x.shape)], x.dtype, endpoint=True) for x in args[:2])
    a[:2], a[2:4] = _ENDS[args[0].dtype][0], _ENDS[args[0].dtype][1]
    w[0], w[1] = _ENDS[args[1].dtype][0], _ENDS[args[1].dtype][1]
    c = np.zeros((8, 64), "int32")
    tvm.build(s, list(args))(a, w, c)
    unpacked = w.transpose(1, 3, 0, 2).reshape(64, 64).astype("int32")
    assert np.array_equal(c, a.astype("int32") @ unpacked)


@pytest.mark.parametrize("name", PORTABLE)
@pytest.mark.parametrize("target", ["llvm -mcpu=haswell", "llvm -mcpu=neoverse-n1", "llvm -mcpu=skylake-avx512"])
def test_multiply_adds_run_on_every_cpu(name: str, target: str) -> None:
    s, args = matmul(4, 32, 8)
    j_o, j_i = s["C"].split("j", factor=te.intrin(name).buffers["out"].shape[0])
    s["C"].reorder("i", j_o, "k", j_i)
    s["C"].tensorize(j_i, te.intrin(name))
    asm = tvm.build(s, list(args), target=target).source("asm")
    assert "fmla" in asm if "neoverse" in target else "vfmadd" in asm


def test_a_cpu_without_the_instruction_is_refused() -> None:
    s, args = packed("x86.avx512.vpdpbusd")
    with pytest.raises(
        TargetError, match=r"vpdpbusd\S* needs avx512vnni, which skylake-avx512 .* does not have; name a"
    ):
        tvm.build(s, list(args), target="llvm -mcpu=skylake-avx512")
    with pytest.raises(TargetError, match=r"vpdpbusd\S* is for x86_64, target .*neoverse-n1 is aarch64"):
        tvm.build(s, list(args), target="llvm -mcpu=neoverse-n1")
    s, args = packed("x86.avx2.vpdpbusd")
    with pytest.raises(TargetError, match="needs avx512vnni and avx512vl or avxvnni, which haswell"):
        tvm.build(s, list(args), target="llvm -mcpu=haswell")


def mapped(of_element: Callable[[Any], Any], dtype: str = "float32") -> Tensor:
    """out[i] = of_element(data[i]) over 8 elements."""
    data = te.placeholder((8,), dtype, name="data")
    out: Tensor = te.compute((8,), lambda i: of_element(data[i]), name="out")
    return out


def run(intrin: TensorIntrin, tensor: Tensor, target: str = "llvm") -> Any:
    """Build the declared computation itself, run by its intrinsic."""
    s = te.create_schedule(tensor.op)
    s[tensor].tensorize(tensor.op.axis[0], intrin)
    return tvm.build(s, [tensor.op.input_tensors[0], tensor], target=target)


def test_an_unknown_instruction_must_say_what_it_needs() -> None:
    tensor = mapped(lambda x: x + x)

    def body(ins: Any, outs: Any) -> Any:
        lanes = ins[0].vload([0], "float32x8")
        return outs[0].vstore([0], tir.call_llvm_intrin("float32x8", "llvm.x86.xyz.twice", lanes))

    with pytest.raises(TargetError, match="does not know what the CPU must have; declare it with features="):
        run(te.decl_tensor_intrin(tensor.op, body, "unknown"), tensor)


def test_vector_arithmetic_and_classic_spellings() -> None:
    tensor = mapped(lambda x: x * 3 + 1, "int32")

    def body(ins: Any, outs: Any) -> Any:
        ib = tir.ir_builder.create()
        scalar = tir.call_intrin("int32", "tir.reinterpret", tir.const(3, "uint32"))
        wide = ins[0].vload([0], "int32x8") * scalar.astype("int32x8") + tir.const(1, "int32x8")
        same = tir.call_llvm_pure_intrin("int32x8", "llvm.abs.v8i32", tir.const(0, "uint32"), wide, tir.const(False))
        largest = tir.call_llvm_pure_intrin("int32x8", "llvm.smax.v8i32", wide, wide)
        ib.emit(outs[0].vstore([0], largest + same - same))
        return ib.get()

    check_intrinsic(te.decl_tensor_intrin(tensor.op, body, "classic"))


TWICE = """
define float @twice(float %x) {
  %y = fadd float %x, %x
  ret float %y
}
define void @twice_all(ptr %out, ptr %in, i32 %n, i8 signext %unused) {
entry:
  br label %loop
loop:
  %i = phi i32 [0, %entry], [%next, %loop]
  %p = getelementptr float, ptr %in, i32 %i
  %q = getelementptr float, ptr %out, i32 %i
  %x = load float, ptr %p
  %y = call float @twice(float %x)
  store float %y, ptr %q
  %next = add i32 %i, 1
  %more = icmp slt i32 %next, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""


def twice_all(ins: Any, outs: Any) -> Any:
    """The whole tile by one C function."""
    last = tir.const(-3, "int8")
    return tir.call_extern("void", "twice_all", outs[0].access_ptr("w"), ins[0].access_ptr("r"), 8, last)


def test_c_functions_come_from_the_source() -> None:
    tensor = mapped(lambda x: x + x)
    check_intrinsic(te.decl_tensor_intrin(tensor.op, twice_all, "twice_all", source=TWICE))

    def one_by_one(ins: Any, outs: Any) -> Any:
        ib = tir.ir_builder.create()
        data, out = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        with ib.for_range(0, 8) as i:
            out[i] = tir.call_extern("float32", "twice", data[i])
        return ib.get()

    check_intrinsic(te.decl_tensor_intrin(tensor.op, one_by_one, "twice_each", source=TWICE))


def test_c_functions_come_from_libraries_of_this_process() -> None:
    tensor = mapped(lambda x: te.sqrt(x * x))

    def body(ins: Any, outs: Any) -> Any:
        ib = tir.ir_builder.create()
        data, out = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        with ib.for_range(0, 8) as i:
            out[i] = tir.call_extern("float32", "fabsf", data[i])
        return ib.get()

    check_intrinsic(te.decl_tensor_intrin(tensor.op, body, "fabsf_each"))


def test_a_c_function_that_nobody_loaded_is_refused() -> None:
    tensor = mapped(lambda x: x + x)
    intrin = te.decl_tensor_intrin(tensor.op, twice_all, "lost")
    with pytest.raises(TargetError, match="no C function twice_all is loaded; give its LLVM IR as source="):
        run(intrin, tensor)
    assert "twice_all" in run(intrin, tensor, "llvm -mcpu=neoverse-n1").source("ll")


def test_source_that_llvm_cannot_read_or_link_is_the_users() -> None:
    tensor = mapped(lambda x: x + x)
    broken = te.decl_tensor_intrin(tensor.op, twice_all, "broken", source="define nonsense")
    with pytest.raises(TargetError, match="LLVM cannot read the LLVM IR that was given as source"):
        run(broken, tensor)


def test_what_differs_from_the_declaration_is_found() -> None:
    tensor = mapped(lambda x: x * 3)
    wrong = te.decl_tensor_intrin(tensor.op, twice_all, "wrong", source=TWICE)
    with pytest.raises(AssertionError, match=r"wrong: the body does not do what is declared \(out on llvm\)"):
        check_intrinsic(wrong)


def test_a_vector_needs_lanes_of_one_call() -> None:
    with pytest.raises(DefinitionError, match="is a C function: it takes and returns scalars and pointers"):
        tir.call_extern("float32x8", "f")
