"""LLVM IR that a user gives takes the place of no function, and does not end the process."""

from __future__ import annotations

import pytest

from tensorlang.errors import TargetError
from tensorlang.target.llvm import engine
from tensorlang.target.llvm.host import Machine

MACHINE = Machine("x86_64-unknown-linux-gnu", "x86-64", "")
KERNEL = """
declare i32 @helper(i32)
declare void @GOMP_parallel(ptr, ptr, i32, i32)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
define i32 @kernel(ptr %p, i64 %n, i32 %x) {
  call void @llvm.memset.p0.i64(ptr %p, i8 0, i64 %n, i1 false)
  call void @GOMP_parallel(ptr %p, ptr %p, i32 1, i32 0)
  %y = call i32 @helper(i32 %x)
  ret i32 %y
}
"""
HELPER = "define i32 @helper(i32 %x) noinline { %y = add i32 %x, 1 ret i32 %y }"
TAKERS = """
define ptr @memset(ptr %d, i32 %c, i64 %n) { ret ptr null }
define internal void @memcpy() { ret void }
define void @GOMP_parallel(ptr %f, ptr %d, i32 %n, i32 %o) { ret void }
define i32 @kernel(ptr %p, i64 %n, i32 %x) { ret i32 0 }
"""


def test_what_a_source_defines_is_called_by_name_and_by_nobody_else() -> None:
    made = engine.assembly(KERNEL, MACHINE, [TAKERS, HELPER], {"helper"})
    code = made.partition("kernel:")[2]
    assert "memset@PLT" in code and "GOMP_parallel@PLT" in code
    assert "tensorlang.source.helper" in code
    globals_ = [line.split()[1] for line in made.splitlines() if line.split()[:1] == [".globl"]]
    assert globals_ == ["kernel"]


def test_sources_may_call_each_other() -> None:
    first = "declare i32 @inner(i32)\ndefine i32 @helper(i32 %x) { %y = call i32 @inner(i32 %x) ret i32 %y }"
    second = "define i32 @inner(i32 %x) { %y = mul i32 %x, 3 ret i32 %y }"
    made = engine.assembly(KERNEL, MACHINE, [first, second], {"helper"})
    assert "inner" not in made and "helper" not in made  # both are inlined


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ('module asm "nop"', "has inline assembly, which is not assembled here"),
        ('define void @f() { call void asm sideeffect "nop", ""() ret void }', "has inline assembly"),
        ("@malloc = alias void (), ptr @f\ndefine void @f() { ret void }", "defines an alias or an ifunc"),
        (
            "@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] "
            "[{ i32, ptr, ptr } { i32 1, ptr @f, ptr null }]\ndefine void @f() { ret void }",
            "code that runs when it is loaded",
        ),
        ("define void @f() { ret i32 }", "LLVM cannot read the LLVM IR"),
    ],
)
def test_what_cannot_be_linked_apart_is_refused(source: str, why: str) -> None:
    with pytest.raises(TargetError, match=why):
        engine.compile_object(KERNEL, MACHINE, [source, HELPER], {"helper"})


def test_text_that_looks_like_assembly_is_no_assembly() -> None:
    source = f'@text = constant [18 x i8] c"module asm = alias"\n{HELPER}'
    assert engine.compile_object(KERNEL, MACHINE, [source], {"helper"})
