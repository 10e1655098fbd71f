"""LLVM IR says nothing twice: what is at hand is not computed or read again, and copies of a loop share addresses."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tensorlang.ir.construct import array, index, indices, kernel, load, loop, store
from tensorlang.ir.expr import cast
from tensorlang.ir.stmt import If, Kernel, Let, LoopKind, Stmt
from tensorlang.runtime.executable import Executable
from tensorlang.target.detect import parse
from tensorlang.target.llvm.arithmetic import binary
from tensorlang.target.llvm.kernel import emit_kernel
from tensorlang.target.llvm.text import INDEX, Function, Module, Value, literal

Compile = Callable[..., Executable]
N = Value("%n", INDEX)


def _function() -> Function:
    return Function(Module(parse("llvm")), "f", ["i64 %n"])


def _condition(fn: Function) -> Value:
    return Value(fn.op("call i1 @any()"), "bool")


def test_what_was_computed_in_front_of_a_branch_is_at_hand_in_it_and_behind() -> None:
    fn = _function()
    before = fn.op("mul i64 %n, 3")
    with fn.when(_condition(fn)):
        assert fn.op("mul i64 %n, 3") == before
        inside = fn.op("mul i64 %n, 5")
        assert fn.op("mul i64 %n, 5") == inside
    assert fn.op("mul i64 %n, 3") == before
    assert fn.op("mul i64 %n, 5") != inside


def test_no_branch_sees_what_the_other_computed() -> None:
    fn = _function()
    fn.branch(_condition(fn), "yes", "no")
    fn.start("yes")
    one = fn.op("mul i64 %n, 3")
    fn.jump("join")
    fn.start("no")
    more = fn.op("mul i64 %n, 7")
    other = fn.op("mul i64 %n, 3")
    fn.jump("join")
    fn.start("join")
    assert len({one, other, fn.op("mul i64 %n, 3")}) == 3
    assert fn.op("mul i64 %n, 7") != more


def test_a_block_that_nothing_is_known_about_knows_nothing() -> None:
    fn = _function()
    before = fn.op("mul i64 %n, 3")
    fn.do("br label %elsewhere")
    fn.start("elsewhere")
    assert fn.op("mul i64 %n, 3") != before


@pytest.mark.parametrize("text", ["load i64, ptr %p, align 8", "call i64 @next()", "phi i64 [0, %a]"])
def test_what_depends_on_the_moment_is_written_each_time(text: str) -> None:
    fn = _function()
    assert fn.op(text) != fn.op(text)


def test_reads_are_at_hand_until_the_array_may_change() -> None:
    fn = _function()
    second = fn.element("float", "%p", 1)

    def read() -> str:
        return fn.read("load float, ptr %p, align 4", "%p", "float32").text

    changes: list[tuple[Callable[[], object], bool]] = [
        (lambda: fn.write("store float 0.0, ptr %q, align 4", "%q"), True),
        (lambda: fn.op("call float @llvm.fabs.f32(float 0.0)"), True),
        (lambda: fn.write(f"store float 0.0, ptr {second}, align 4", second), False),
        (lambda: fn.do("call void @anything()"), False),
        (lambda: fn.op("call i64 @anything()"), False),
        (lambda: fn.op("atomicrmw add ptr %q, i64 1 monotonic, align 8"), False),
        (lambda: fn.start("next"), False),
    ]
    for change, kept in changes:
        before = read()
        assert read() == before
        change()
        assert (read() == before) is kept


def test_constants_that_are_added_one_after_the_other_are_one() -> None:
    fn = _function()
    three = binary(fn, "sub", binary(fn, "add", N, literal(5, INDEX)), literal(2, INDEX))
    assert three == binary(fn, "add", literal(3, INDEX), N)
    assert binary(fn, "sub", three, literal(3, INDEX)) == N
    assert fn.sum(three) == (N, 3)


def test_sums_wrap_around() -> None:
    fn = _function()
    large = literal(2**63 - 1, INDEX)
    assert fn.sum(binary(fn, "add", binary(fn, "add", N, large), large)) == (N, -2)


def _copies(rows: int) -> Kernel:
    """Rows of a matrix, each a row of another one times a number, in copies of a loop."""
    a, b, c = array("A", (64, 32)), array("B", (64, 128)), array("C", (64, 128))
    o, j = indices("o j")
    parts = [
        loop(j, 0, 16, store(c, (o * 4 + row, j), load(a, o * 4 + row, 3) * load(b, o * 4, j)), LoopKind.VECTORIZED)
        for row in range(rows)
    ]
    return kernel("copies", (a, b, c), "C", loop(o, 0, 16, parts))


def test_copies_of_a_loop_share_the_address_of_the_first() -> None:
    one, four = (emit_kernel(_copies(rows), parse("llvm -mcpu=skylake-avx512")).module.text() for rows in (1, 4))
    for word in (" mul i64", "load <16 x float>"):
        assert four.count(word) == one.count(word) > 0
    assert four.count("fmul contract") == 4


def test_copies_of_a_loop_compute_what_the_loop_does(compiled: Compile) -> None:
    random = np.random.default_rng(0)
    a, b = random.standard_normal((64, 32), np.float32), random.standard_normal((64, 128), np.float32)
    c = np.zeros((64, 128), np.float32)
    compiled(_copies(4))(a, b, c)
    np.testing.assert_array_equal(c[:, :16], np.repeat(b[::4, :16], 4, 0) * a[:, 3:4])


def test_a_read_follows_a_write_to_another_element_of_its_array(compiled: Compile) -> None:
    a, log = array("A", (8,), "int64"), array("L", (8,), "int64")
    (i,) = indices("i")
    body = [store(log, i, load(a, 0)), store(a, i, load(a, 0) + index(1)), store(log, i, load(log, i) + load(a, 0))]
    values, made = np.zeros(8, np.int64), np.zeros(8, np.int64)
    compiled(kernel("steps", (a, log), "A L", loop(i, 0, 8, body)))(values, made)
    assert values.tolist() == [1, 2, 2, 2, 2, 2, 2, 2]
    assert made.tolist() == [1, 2, 2, 2, 2, 2, 2, 2]


def test_an_index_from_memory_wraps_in_its_own_dtype(compiled: Compile) -> None:
    places, a, b = array("P", (4,), "int32"), array("A", (8,)), array("B", (4,))
    (i,) = indices("i")
    wrapped = cast(load(places, i) + cast(index(2**31 - 1), "int32"), INDEX)
    body = store(b, i, load(a, wrapped + index(2**31 - 1)))
    made = np.zeros(4, np.float32)
    given = np.array([3, 2, 5, 4], np.int32)
    compiled(kernel("wraps", (places, a, b), "B", loop(i, 0, 4, body)))(given, np.arange(8, dtype=np.float32), made)
    assert made.tolist() == [1.0, 0.0, 3.0, 2.0]


@pytest.mark.parametrize("n", [0, 3])
def test_an_index_in_a_branch_is_computed_in_it(compiled: Compile, n: int) -> None:
    a = array("A", (16,), "int64")
    i, t = indices("i t")
    chosen = If(index(n) < i, store(a, i * 3 % index(16), 1), store(a, i * 3 % index(16), 2))
    body: list[Stmt] = [chosen, Let(t, i * 3 % index(16), store(a, t, load(a, t) * index(10)))]
    made = np.zeros(16, np.int64)
    compiled(kernel("branches", (a,), "A", loop(i, 0, 5, body)))(made)
    wanted = np.zeros(16, np.int64)
    for k in range(5):
        wanted[k * 3 % 16] = 10 if n < k else 20
    assert made.tolist() == wanted.tolist()
