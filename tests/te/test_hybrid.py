"""te.hybrid.script: every construct means as a tensor program what it means in plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np

import tensorlang as tvm
from tensorlang import te
from tensorlang.ir.expr import Load, walk
from tensorlang.ir.stmt import Allocate, If, LoopKind
from tensorlang.ir.stmt import walk as walk_stmt
from tensorlang.te.hybrid import output_tensor, parallel, unroll, vectorize
from tests.te.hybrid_runs import agree, floats, from_text, loops_of, op_of, whole

FACTOR = 3
HALF = 0.5
WEIGHTS = (1, 4, 6, 4, 1)
ENABLED = True


# Loops


@te.hybrid.script
def outer_product(a: Any, b: Any) -> Any:
    c = te.output_tensor((a.shape[0], len(b)), a.dtype)
    for i in range(a.shape[0]):
        for j in te.range(0, b.shape[0]):
            c[i, j] = a[i] * b[j]
    return c


@te.hybrid.script
def strides(a: Any) -> Any:
    c = te.output_tensor(a.shape, "float32")
    for i in range(len(a)):
        c[i] = 0
    for i in range(1, len(a), 3):
        c[i] = a[i] + i
    for i in range(len(a) - 1, -1, -2):
        c[i] = c[i] * 2 - i
    for j in te.range(len(a), 2, -1):
        c[j - 1] += c[j - 2]
    for j in range(5, 2):
        c[j] = 99
    for j in range(2, 5, -1):
        c[j] = 99
    return c


@te.hybrid.script
def trapezoid(a: Any) -> Any:
    n, m = a.shape
    c = te.output_tensor((n, m), a.dtype)
    for i in range(n):
        for j in range(m):
            c[i, j] = 0
        for j in te.range(te.max(i - 1, 0), min(i + 2, m)):
            for k in te.range(j // 2, te.min(i, j) + 1):
                c[i, j] += a[i, j] * k
    return c


@te.hybrid.script
def kinds(a: Any) -> Any:
    c = output_tensor(a.shape, a.dtype)
    for i in parallel(a.shape[0]):
        for j in vectorize(0, 4):
            c[i, j] = a[i, j] + 1
        for j in unroll(4, 6):
            c[i, j] = a[i, j] + 2
        for j in te.serial(6, 7):
            c[i, j] = a[i, j] + 3
        for j in const_range(1):  # type: ignore[name-defined]  # noqa: F821
            c[i, j] += 4
    for i in bind("threadIdx.x", a.shape[0]):  # type: ignore[name-defined]  # noqa: F821
        c[i, 0] += 1
    return c


def test_loops() -> None:
    agree(outer_product, a=floats(5), b=floats(7))
    for n in (1, 2, 3, 8, 11):
        agree(strides, a=floats(n + 5))
    agree(trapezoid, a=floats(6, 5))
    agree(kinds, a=floats(3, 7))


def test_loops_have_their_kinds_and_unique_names() -> None:
    op = op_of(kinds, a=floats(3, 7))
    assert [(f.var.name, f.kind, f.thread) for f in loops_of(op)] == [
        ("i", LoopKind.PARALLEL, ""),
        ("j", LoopKind.VECTORIZED, ""),
        ("j_1", LoopKind.UNROLLED, ""),
        ("j_2", LoopKind.SERIAL, ""),
        ("j_3", LoopKind.UNROLLED, ""),
        ("i_1", LoopKind.BOUND, "threadIdx.x"),
    ]
    assert {f.var.dtype for f in loops_of(op)} == {"int64"}
    assert [f.axis for f in loops_of(op)] == [f.var.name for f in loops_of(op)]


def test_a_loop_in_steps_of_one_keeps_its_bounds() -> None:
    @te.hybrid.script
    def part(a: Any) -> None:
        for i in range(2, 9):
            for j in range(i + 1, len(a)):
                a[j] += 1

    outer, inner = loops_of(op_of(part, a=floats(12)))
    assert (str(outer.lower), str(outer.upper), str(inner.lower), str(inner.upper)) == ("2", "9", "i + 1", "12")
    agree(part, a=floats(12))


def test_a_loop_does_not_take_the_name_of_a_size() -> None:
    n = te.var("n")
    a = te.placeholder((n,), name="a")

    @te.hybrid.script
    def named(a: Any) -> None:
        for n in range(len(a)):
            a[n] += 1

    assert [f.var.name for f in loops_of(named(a).op)] == ["n_1"]


def test_what_does_nothing_is_left_out() -> None:
    @te.hybrid.script
    def idle(a: Any) -> None:
        for i in range(len(a)):
            unused = i + 1
            scratch = te.allocate((3,), "float32")  # noqa: F841
            if a[i] > unused:
                pass
            elif i > 3:
                for _j in range(i):
                    pass
        a[0] = 1

    assert str(op_of(idle, a=floats(5)).body).startswith("Store(")
    agree(idle, a=floats(5))


def test_deep_nests() -> None:
    depth = 14
    lines = [f"{' ' * (4 + d)}for i{d} in range({2 if d < 3 else 1}):" for d in range(depth)]
    text = "\n".join(["@te.hybrid.script", "def deep(a):", *lines, f"{' ' * (4 + depth)}a[i0, i1] += i2 + 1", ""])
    agree(from_text(text, "deep"), a=floats(2, 2))


# Branches


@te.hybrid.script
def branches(a: Any) -> Any:
    n = a.shape[0]
    c = te.output_tensor((n,), a.dtype)
    for i in range(n):
        if i == 0 or i >= n - 1:
            c[i] = a[i]
        elif 2 < i <= 5 and i % 2 == 1:
            c[i] = a[i - 1] + a[i + 1]
        elif not i < 4:
            c[i] = -a[i]
        else:
            pass
    return c


@te.hybrid.script
def data_dependent(a: Any, b: Any) -> Any:
    c = te.output_tensor(a.shape, a.dtype)
    for i in range(len(a)):
        if i > 0 and a[i - 1] > b[i] and te.likely(a[i] > 0):
            c[i] = a[i - 1]
            if c[i] > 1:
                c[i] -= 5
                c[i] *= 2
        elif a[i] < b[i] or (i + 1 < len(a) and a[i + 1] == 2):
            c[i] = 1
        else:
            c[i] = b[i]
        if i > 1 and c[i - 1] < c[i]:
            c[i - 1] = c[i]
    return c


@te.hybrid.script
def own_condition(a: Any) -> None:
    for i in range(len(a)):
        if a[i] > 0:
            a[i] = -1
            a[i] = a[i] - 1
        else:
            a[i] = 7


@te.hybrid.script
def choices(a: Any) -> Any:
    n = len(a)
    c = te.output_tensor((n,), a.dtype)
    for i in range(n):
        before = a[i - 1] if i > 0 else 0
        after = te.if_then_else(i + 1 < n, a[i + 1], te.select(a[i] > 0, 1, 2))
        c[i] = before + after + (1 if i % 2 == 0 else 0.5) + (a[i] if a[i] > 0 and a[i] < 3 else 2)
    return c


def test_branches() -> None:
    agree(branches, a=floats(9))
    for n in (1, 2, 12):
        agree(data_dependent, a=floats(n), b=whole(n, high=3, dtype="float32"))
        agree(own_condition, a=floats(n))
        agree(choices, a=floats(n))


def test_conditions_of_loops_stay_and_those_of_data_are_stored_before() -> None:
    op = op_of(data_dependent, a=floats(9), b=floats(9))
    flags = [s for s in walk_stmt(op.body) if isinstance(s, Allocate)]
    assert flags and {(f.buffer.shape, f.buffer.dtype) for f in flags} == {((), "bool")}
    conditions = [s.cond for s in walk_stmt(op.body) if isinstance(s, If)]
    for cond in conditions:
        for load in (n for n in walk(cond) if isinstance(n, Load)):
            assert load.buffer in [f.buffer for f in flags]
    assert [str(c) for c in conditions if not any(isinstance(n, Load) for n in walk(c))] == ["i > 0", "i > 1"]


@te.hybrid.script
def mixed_comparisons(a: Any, b: Any, flag: Any) -> Any:
    c = te.output_tensor(a.shape, "int32")
    for i in range(len(a)):
        c[i] = 0
        if a[i] > i * 0.5 and b[i] < i + 300 and not flag:
            c[i] += 1
        if i / 2 < a[i] + b[i] or -i >= b[i] - 5:
            c[i] += 2
        if flag or 1 < a[i] <= b[i] != 3:
            c[i] += 4
    return c


def test_comparisons_between_numbers_and_elements() -> None:
    for flag in (True, False):
        agree(mixed_comparisons, a=floats(9), b=whole(9, high=9, dtype="uint8"), flag=np.array(flag))


def test_a_branch_that_is_known_is_taken_when_the_script_is_read() -> None:
    @te.hybrid.script
    def scaled(a: Any, scale: float = 1.0) -> Any:
        c = te.output_tensor(a.shape, a.dtype)
        for i in range(len(a)):
            if ENABLED and scale != 1.0:
                x = a[i] * scale
            else:
                x = a[i]
            c[i] = x
        return c

    agree(scaled, a=floats(5))
    agree(scaled, a=floats(5), scale=2.5)

    @te.hybrid.script
    def optional(a: Any, bias: Any = None, mode: str = "plus") -> Any:
        c = te.output_tensor(a.shape, a.dtype)
        for i in range(len(a)):
            c[i] = a[i]
            if bias is not None and mode == "plus":
                if mode != "minus":
                    c[i] += bias[i]
            elif bias is None or a[i] > 1:
                c[i] *= 2
        return c

    agree(optional, a=floats(5))
    agree(optional, a=floats(5), bias=floats(5) + 1)
    agree(optional, a=floats(5), bias=floats(5) + 1, mode="minus")
    assert not [s for s in walk_stmt(op_of(scaled, a=floats(5), scale=2.5).body) if isinstance(s, If)]


# Functions, operators, indices


@te.hybrid.script
def integers(a: Any, b: Any) -> Any:
    c = te.output_tensor((len(a), 16), "int32")
    for i in range(len(a)):
        c[i, 0] = a[i] & b[i]
        c[i, 1] = a[i] | b[i]
        c[i, 2] = a[i] ^ b[i]
        c[i, 3] = a[i] << b[i]
        c[i, 4] = a[i] >> b[i]
        c[i, 5] = ~a[i]
        c[i, 6] = -a[i]
        c[i, 7] = abs(-a[i])
        c[i, 8] = te.popcount(a[i])
        c[i, 9] = te.truncdiv(-a[i], b[i] + 1)
        c[i, 10] = te.truncmod(-a[i], b[i] + 1)
        c[i, 11] = te.floordiv(-a[i], b[i] + 1)
        c[i, 12] = a[i] ** 3
        c[i, 13] = te.ceildiv(a[i], b[i] + 1)
        c[i, 14] = te.clz(a[i]) + max(i, FACTOR, 2) + popcount(i)  # type: ignore[name-defined]  # noqa: F821
        c[i, 15] = te.all(a[i] > 1, b[i] > 1) + te.any(a[i] > 2, b[i] > 2)
        c[i, 15] += FACTOR
        c[i, 15] <<= 2
        c[i, 15] |= 1
        c[i, 15] //= 2
        c[i, 15] %= 64
        c[i, 15] ^= 5
        c[i, 15] &= 31
        c[i, 15] >>= 1
    return c


@te.hybrid.script
def intrinsics(a: Any) -> Any:
    c = te.output_tensor((len(a), 18), a.dtype)
    for i in range(len(a)):
        c[i, 0] = te.exp(a[i])
        c[i, 1] = exp(a[i])  # type: ignore[name-defined]  # noqa: F821
        c[i, 2] = te.sqrt(te.abs(a[i]))
        c[i, 3] = tvm.tir.tanh(a[i])
        c[i, 4] = sigmoid(a[i])  # type: ignore[name-defined]  # noqa: F821
        c[i, 5] = power(abs(a[i]), 1.5)  # type: ignore[name-defined]  # noqa: F821
        c[i, 6] = te.log(abs(a[i]) + 1)
        c[i, 7] = te.max(a[i], 0.0)
        c[i, 8] = te.min(a[i], a[0], 1)
        c[i, 9] = round(a[i] / 2)
        c[i, 10] = te.floor(a[i] * 0.3)
        c[i, 11] = te.fma(a[i], a[i], 1.0)
        c[i, 12] = te.isnan(a[i])
        c[i, 13] = te.max_value("float32") + te.const(1.5, "float32")
        c[i, 14] = te.exp(1.0) * a[i] + te.exp(i * 0.5)
        c[i, 15] = i / FACTOR + a[i]
        c[i, 16] = int(a[i] * 1.5) + float32(0.1) + int(2.7) + float(i)  # type: ignore[name-defined]  # noqa: F821
        c[i, 17] = a[i].astype("float64") * 0.1 + np.float32(0.1)
    return c


@te.hybrid.script
def gathered(a: Any, index: Any) -> Any:
    c = te.output_tensor((len(index),), a.dtype)
    for i in range(len(index)):
        j = index[i]
        c[i] = a[index[i]] + a[j] + a[index[index[i]]] + a[(j + 1) % len(index)]
        c[j] += 1
    return c


@te.hybrid.script
def captured(a: Any) -> Any:
    c = te.output_tensor((len(a) - 4,), a.dtype)
    for i in range(len(a) - 4):
        c[i] = 0
        for k in unroll(len(WEIGHTS)):
            c[i] += a[i + k] * FACTOR
        c[i] += WEIGHTS[2] * HALF + np.pi
    return c


def test_functions_and_operators() -> None:
    agree(integers, a=whole(9, high=30), b=whole(9, high=5))
    for dtype in ("float32", "float64"):
        agree(intrinsics, a=floats(6, dtype=dtype))
    agree(gathered, a=floats(6), index=whole(6, high=6))
    agree(captured, a=floats(9))
