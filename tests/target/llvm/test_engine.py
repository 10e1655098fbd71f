"""What the engine's pipeline must do to the code that it is given, and what names the pipeline."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tensorlang.target.llvm import engine, host

MACHINE = host.Machine("x86_64-unknown-linux-gnu", "skylake-avx512", "")


def test_functions_of_sources_are_inlined() -> None:
    text = "declare float @twice(float)\n" + (
        "define float @kernel(float %x) {\n  %y = call float @twice(float %x)\n  ret float %y\n}\n"
    )
    source = "define float @twice(float %x) {\n  %y = fadd float %x, %x\n  ret float %y\n}\n"
    kernel = engine.assembly(text, MACHINE, [source], {"twice"}).partition("kernel:")[2].partition("retq")[0]
    assert "vaddss" in kernel
    assert "twice" not in kernel


def test_accumulators_stay_in_registers() -> None:
    text = """
define void @kernel(ptr noalias %a, ptr noalias %c) {
entry:
  %sums = alloca [2 x <16 x float>], align 64
  %second = getelementptr <16 x float>, ptr %sums, i64 1
  store <16 x float> zeroinitializer, ptr %sums, align 64
  store <16 x float> zeroinitializer, ptr %second, align 64
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  %at = getelementptr <16 x float>, ptr %a, i64 %i
  %value = load <16 x float>, ptr %at, align 4
  %old0 = load <16 x float>, ptr %sums, align 64
  %new0 = fadd <16 x float> %old0, %value
  store <16 x float> %new0, ptr %sums, align 64
  %old1 = load <16 x float>, ptr %second, align 64
  %new1 = fsub <16 x float> %old1, %value
  store <16 x float> %new1, ptr %second, align 64
  %next = add nsw i64 %i, 1
  %more = icmp slt i64 %next, 1000
  br i1 %more, label %loop, label %done
done:
  %sum0 = load <16 x float>, ptr %sums, align 64
  %sum1 = load <16 x float>, ptr %second, align 64
  store <16 x float> %sum0, ptr %c, align 4
  %other = getelementptr <16 x float>, ptr %c, i64 1
  store <16 x float> %sum1, ptr %other, align 4
  ret void
}
"""
    made = engine.assembly(text, MACHINE)
    assert "vaddps" in made
    assert "(%rsp" not in made
    assert "(%rbp" not in made


def test_a_condition_is_tested_once() -> None:
    """Copies of a body with the same guard, as unrolled windows have them at the edge of an image."""
    text = """
declare void @before()
declare void @after()
declare void @always()
define void @kernel(i1 %inside) {
  br i1 %inside, label %first, label %middle
first:
  call void @before()
  br label %middle
middle:
  call void @always()
  br i1 %inside, label %second, label %done
second:
  call void @after()
  br label %done
done:
  ret void
}
"""
    made = engine.assembly(text, MACHINE)
    assert len(re.findall(r"^\s+(?:je|jne)\s", made, re.MULTILINE)) == 1


def test_the_fingerprint_names_whatever_changes_code(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {host.fingerprint(MACHINE), host.fingerprint(host.Machine(MACHINE.triple, "haswell", ""))}
    seen.add(host.fingerprint(host.Machine(MACHINE.triple, MACHINE.cpu, "-avx512f")))
    for level in ("SPEED_LEVEL", "CODEGEN_LEVEL"):
        with monkeypatch.context() as patched:
            patched.setattr(host, level, 1)
            seen.add(host.fingerprint(MACHINE))
    assert len(seen) == 5


@pytest.mark.skipif(sys.platform != "linux", reason="addresses are reserved as Linux does it")
def test_code_and_its_constants_lie_together_however_memory_is_cut() -> None:
    """In a process with gigabytes mapped and holes of a page between: offsets of 32 bits do not reach across."""
    done = subprocess.run([sys.executable, "-c", _CUT], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.split() == ["fine"], done.stderr


_CUT = """
import ctypes

import numpy as np

import tensorlang
from tensorlang import te

libc, page = ctypes.CDLL(None), 4096
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
A = te.placeholder((512,), name="A")
B = te.compute((512,), lambda i: te.exp(A[i]) * 3.25 + te.tanh(A[i]), name="B")
s = te.create_schedule(B.op)
outer, inner = s[B].split(B.op.axis[0], factor=16)
s[B].unroll(outer)
s[B].vectorize(inner)
tensorlang.lower(s, [A, B])  # what it imports lies elsewhere


def reserve(size):
    return libc.mmap(None, size, 0, 0x4022, -1, 0)  # no access; private, anonymous, without swap


reserve(6 << 30)
for at in [reserve(page) for _ in range(4000)][::2]:
    libc.munmap(at, page)
reserve(6 << 30)
a = np.ones(512, np.float32)
made = tensorlang.build(s, [A, B])(a)
np.testing.assert_allclose(made, np.exp(a) * 3.25 + np.tanh(a), rtol=1e-6)
print("fine")
"""
