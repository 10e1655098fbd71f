"""Entries of kernels: those of long ones are compiled as they stand, those of short ones are optimised."""

from __future__ import annotations

from tensorlang import te
from tensorlang.driver import lower
from tensorlang.ir.overflow import exact_limit
from tensorlang.target import parse
from tensorlang.target.llvm.entry import emit_entry
from tensorlang.target.llvm.kernel import emit_kernel


def entry_of(rows: int) -> str:
    a = te.placeholder((rows, 8), name="A")
    kernel = lower(te.create_schedule(b := te.compute((rows, 8), lambda i, j: a[i, j] + 1, name="B")), [a, b]).kernel
    emitted = emit_kernel(kernel, parse("llvm"))
    name = emit_entry(emitted, kernel, exact_limit(kernel))
    (found,) = [text for text in emitted.module.functions if f"@{name}(" in text.partition("\n")[0]]
    return found.partition("\n")[0]


def test_only_entries_of_long_kernels_are_left_as_they_are() -> None:
    assert "optnone" in entry_of(1000) and "optnone" not in entry_of(4)
