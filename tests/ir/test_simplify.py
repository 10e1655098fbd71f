"""What the simplifier makes of expressions and statements."""

from __future__ import annotations

import pytest

from tensorlang.ir.construct import array, indices, kernel, load, loop, store
from tensorlang.ir.expr import Cast, Const, Expr, Load, Select, Var, binary, cast, select
from tensorlang.ir.printer import kernel_text, stmt_text
from tensorlang.ir.simplify import proves, simplify, simplify_kernel, simplify_stmt
from tensorlang.ir.stmt import Allocate, Fail, If, Let, LoopKind, Seq, Stmt, Store

RANGES = {"a": (0, 10), "b": (0, 31), "c": (0, 3), "n": (0, None), "m": (1, None), "z": (None, None)}
NAMES = {name: Var(name, "int64") for name in RANGES}
NAMES |= {"D": array("D", (100,), "int64"), "E": array("E", (100,), "int8")}  # type: ignore[dict-item]


def expression(text: str) -> Expr:
    """An expression from Python text over the variables above; `D` and `E` are buffers."""
    functions = {
        "min": lambda x, y: binary("min", x, y),
        "max": lambda x, y: binary("max", x, y),
        "both": lambda x, y: binary("and", x, y),
        "either": lambda x, y: binary("or", x, y),
        "equal": lambda x, y: binary("eq", x, y),
        "unequal": lambda x, y: binary("ne", x, y),
        "truncdiv": lambda x, y: binary("truncdiv", x, y),
        "truncmod": lambda x, y: binary("truncmod", x, y),
        "int32": lambda x: cast(x, "int32"),
        "int64": lambda x: cast(x, "int64"),
        "float32": lambda x: cast(x, "float32"),
        "load": load,
        "select": select,
    }
    value = eval(text, functions, NAMES)
    assert isinstance(value, Expr)
    return value


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        # sums
        ("a + b - a", "b"),
        ("2 * (a + 3) + 4 * (b - 1)", "2 * a + 4 * b + 2"),
        ("a - a", "0"),
        ("3 - a", "3 - a"),
        ("a * n + n * a", "2 * (a * n)"),
        # quotients and remainders
        ("(32 * a + b) // 32", "a"),
        ("(32 * a + b) % 32", "b"),
        ("(32 * z + b) // 32", "z"),
        ("(64 * a + 2 * b + 7) // 2", "32 * a + b + 3"),
        ("(n // 7) * 7 + n % 7", "n"),
        ("2 * (n % 6) + 12 * (n // 6) + 1", "2 * n + 1"),
        ("4 * (n // 4 % 6) + n % 4", "n % 24"),
        ("24 * (n // 24) + 4 * (n // 4 % 6) + n % 4", "n"),
        ("4 * (n // 4 % 6) + n % 5", "4 * (n // 4 % 6) + n % 5"),
        ("28 * ((8 * n + c) // 28 % 28) + (8 * n + c) % 28", "c + 8 * (n % 98)"),
        ("n // 4 // 8", "n // 32"),
        ("n % 32 % 8", "n % 8"),
        ("(n // 4 + 3) // 8", "(n + 12) // 32"),
        ("(8 * n + c) // 32", "n // 4"),
        ("(8 * n + c) % 32", "8 * (n % 4) + c"),
        ("(z + 96) % 32", "z % 32"),
        ("(4 * a + 2) // 4", "a"),
        ("b // 32", "0"),
        ("(b + 32) // 32", "1"),
        ("z // -4", "-((z + 3) // 4)"),
        ("(6 - n) // 7", "-(n // 7)"),
        ("7 * ((6 - n) // 7) + (6 - n) % 7", "6 - n"),
        ("(7 - n) % 8", "7 - n % 8"),
        ("n // 2 + (n + 1) // 2 - n", "0"),
        ("5 * (n // 2) + 3 * ((n + 1) // 2) + m", "2 * (n // 2) + 3 * n + m"),
        ("(z + 2) // 3 + z // 3 + (z + 1) // 3", "z"),
        ("n // 4 - (2 * n + 4) // 8 + n // 2", "n // 4 - (n + 2) // 4 + n // 2"),
        ("(n + 3) // 2 + (n + 2) // 2", "n + 2"),
        ("n // 3 + (n + 1) // 3", "n // 3 + (n + 1) // 3"),
        ("(n + 1) // 2 - n // 2", "(n + 1) // 2 - n // 2"),
        ("16 * n - 16 * ((n + 1) // 2) + 3", "16 * (n // 2) + 3"),
        ("n // 3 + (n + 2) // 3 - n", "-((n + 1) // 3)"),
        ("2 * n - (n + 1) // 2", "2 * n - (n + 1) // 2"),
        ("-a // 1", "-a"),
        ("truncdiv(n, 4)", "n // 4"),
        ("truncdiv(z, 4)", "truncdiv(z, 4)"),
        ("truncmod(32 * a + b, 32)", "b"),
        ("z // m", "z // m"),
        # minima and maxima
        ("min(a, b + 20)", "a"),
        ("max(a, b + 20)", "b + 20"),
        ("min(a, b)", "min(a, b)"),
        ("min(min(n, b), min(b, n + 1))", "min(n, b)"),
        ("max(min(a, 10), 0)", "a"),
        # conditions
        ("a + b < 42", "True"),
        ("a > 10", "False"),
        ("4 * a + 3 < 8", "a < 2"),
        ("4 * a < 2 * b", "2 * a < b"),
        ("32 * a + b - n >= 0", "n <= 32 * a + b"),
        ("equal(2 * a + 4 * b, 7)", "False"),
        ("equal(a - n, b - n)", "a == b"),
        ("unequal(a, a + 1)", "True"),
        ("~(a < b)", "a >= b"),
        ("both(a < n, a < n + 1)", "a < n"),
        ("both(a < n, a >= n)", "False"),
        ("either(a < n, a >= n)", "True"),
        ("both(a < 11, a < n)", "a < n"),
        ("32 * (n // 32) <= n", "True"),
        ("32 * (n // 32) + 31 >= n", "True"),
        ("32 * (n // 32) + 30 >= n", "n < 32 * (n // 32) + 31"),
        ("min(n, m) <= n", "True"),
        ("min(n, m) >= 0", "True"),
        ("min(n, m) > 0", "min(n, m) > 0"),
        ("max(n, m) > 0", "True"),
        # choices
        ("select(a < 11, b, n)", "b"),
        ("select(a < 5, min(a, 7), max(a, 3))", "a"),
        ("select(z < 3, n, n)", "n"),
        # casts
        ("int64(int32(a)) + 1", "a + 1"),
        ("int64(int32(n)) + 1", "int64(int32(n)) + 1"),
        ("float32(int32(a) + 1 - 1)", "float32(int32(a))"),
        # data may wrap, so only what holds for any value is decided
        ("load(D, a) + 1 > load(D, a)", "D[a] < D[a] + 1"),
        ("load(D, a + b - a) // 2", "D[b] // 2"),
        ("int64(load(E, b)) + 1 > int64(load(E, b))", "True"),
        ("int64(load(E, b)) < 128", "True"),
    ],
)
def test_expressions(given: str, wanted: str) -> None:
    assert str(simplify(expression(given), RANGES)) == wanted


def test_floats_are_left_alone() -> None:
    x = Var("x", "float32")
    expr = (x + 0.0) * 1.0 - x
    assert simplify(expr) is expr
    chosen = Select(Const(True, "bool"), x, x + 1.0, "float32")
    assert simplify(chosen) is x


def test_narrow_arithmetic_keeps_its_dtype() -> None:
    i = Var("i", "int8")
    assert str(simplify(i + 1 - 1, {"i": (0, 100)})) == "i"
    may_wrap = simplify(i + 1 - 1)
    assert may_wrap.dtype == "int8"
    assert str(may_wrap) == "i + int8(1) - int8(1)"


def test_constants_wrap_like_numpy() -> None:
    assert str(simplify(Cast(Const(200, "int64"), "int8"))) == "int8(-56)"
    assert str(simplify(binary("add", Const(127, "int8"), Const(1, "int8")))) == "int8(-128)"


def test_proves() -> None:
    a, n = NAMES["a"], NAMES["n"]
    assert proves(a < 11, RANGES)
    assert not proves(a < n, RANGES)


i, j, k, n = indices("i j k n")
A = array("A", (n,))
COUNTS = array("counts", (n,), "int64")
SIZES = {"n": (0, None)}


def simplified(stmt: Stmt) -> str:
    return stmt_text(simplify_stmt(stmt, SIZES))


def test_guards_that_the_bounds_imply_vanish() -> None:
    body = If(binary("and", j < n, j >= 0), store(A, j, 1.0))
    nest = loop(i, 0, (n + 31) // 32, loop(j, 32 * i, binary("min", 32 * i + 32, n), body))
    assert simplified(nest) == (
        "for i in range((n + 31) // 32):\n  for j in range(32 * i, min(32 * i + 32, n)):\n    A[j] = 1.0"
    )


def test_a_guard_that_matters_stays() -> None:
    nest = loop(i, 0, (n + 31) // 32, loop(j, 32 * i, 32 * i + 32, If(j < n, store(A, j, 1.0))))
    assert "if j < n:" in simplified(nest)


def test_loops_of_one_iteration_are_inlined() -> None:
    nest = loop(i, 5, 6, loop(j, 8 * i, 8 * i + 1, store(A, j // 8 + i, 1.0)))
    assert simplified(nest) == "A[10] = 1.0"


def test_loops_of_at_most_one_iteration_become_tests() -> None:
    assert simplified(loop(j, i, binary("min", i + 1, n), store(A, j, 1.0))) == "if i < min(i + 1, n):\n  A[i] = 1.0"


def test_thread_loops_stay() -> None:
    nest = loop(i, 0, 1, store(A, i, 1.0), LoopKind.BOUND, "threadIdx.x")
    assert simplified(nest) == "threadIdx.x i in range(1):\n  A[i] = 1.0"


@pytest.mark.parametrize(
    "stmt",
    [
        loop(i, 3, 3, store(A, i, 1.0)),
        loop(i, 0, n, loop(j, i, i, store(A, j, 1.0))),
        loop(i, 0, n, loop(j, n, i + 1, store(A, j, 1.0))),
        loop(i, 0, n, Seq(())),
        Seq((Seq(()), If(i < n, Seq(())))),
        loop(i, 0, 4, If(i > 4, store(A, i, 1.0))),
        Allocate(A, loop(i, 0, 0, store(A, i, 1.0))),
    ],
)
def test_what_does_nothing_is_dropped(stmt: Stmt) -> None:
    assert simplify_stmt(stmt, SIZES) == Seq(())


def test_an_empty_branch_turns_the_condition_round() -> None:
    assert simplified(If(i < n, Seq(()), Fail("late"))) == "if i >= n:\n  fail 'late'"


def test_sequences_flatten() -> None:
    one = store(A, 0, 1.0)
    assert simplify_stmt(Seq((Seq((one, Seq((one,)))), Seq(()), one))) == Seq((one, one, one))


def test_conditions_hold_inside_their_branches() -> None:
    inner = If(i < n + 1, store(A, i, 1.0), Fail("no"))
    other = If(i < n, Fail("no"), store(A, i, 2.0))
    text = simplified(If(i < n, inner, other))
    assert text == "if i < n:\n  A[i] = 1.0\nelse:\n  A[i] = 2.0"


def test_a_condition_on_memory_does_not_outlive_a_store() -> None:
    condition = load(COUNTS, 0) > 3
    inner = If(condition, store(COUNTS, 1, 7))
    text = simplified(If(condition, Seq((store(COUNTS, 0, 0), inner))))
    assert text.count("if counts[0] > 3:") == 2


def test_a_bound_on_memory_is_read_once() -> None:
    starts = array("starts", (n,), "int32")
    first = cast(load(starts, 0), "int64")
    text = simplified(loop(i, first, first + 1, Seq((store(starts, 0, 7), store(A, i, 1.0)))))
    assert text == "let i = int64(starts[0])\nstarts[0] = 7\nA[i] = 1.0"


def test_lets() -> None:
    x = Var("x", "int64")
    assert simplified(Let(x, i + 0, store(A, x, 1.0))) == "A[i] = 1.0"
    kept = loop(i, 0, 4, Let(x, i * 8 + 1, If(x < 26, store(A, x // 8, 1.0))))
    assert simplified(kept) == "for i in range(4):\n  let x = 8 * i + 1\n  A[x // 8] = 1.0"


def test_one_name_in_two_loops_is_two_variables() -> None:
    body = If(i < 10, store(A, i // 10, 1.0))
    text = simplified(Seq((loop(i, 0, 10, body), loop(i, 0, 100, body))))
    assert text == "for i in range(10):\n  A[0] = 1.0\nfor i in range(100):\n  if i < 10:\n    A[i // 10] = 1.0"


def tiled_matmul() -> tuple[Stmt, Load]:
    io, jo, ko, ii, ji, ki = indices("io jo ko ii ji ki")
    x, y, z = (array(name, (n, n)) for name in "XYZ")
    i, j, k = 32 * io + ii, 32 * jo + ji, 8 * ko + ki
    inside = binary("and", binary("and", i < n, j < n), k < n)
    last = load(y, k, (j // 32) * 32 + j % 32)
    update = store(z, (i, j), load(z, i, j) + load(x, i, k) * last)

    def rest(outer: Var, size: int) -> Expr:
        return binary("min", size, n - size * outer)

    nest = loop(ji, 0, rest(jo, 32), If(inside, update), LoopKind.VECTORIZED)
    nest = loop(ko, 0, (n + 7) // 8, loop(ii, 0, rest(io, 32), loop(ki, 0, rest(ko, 8), nest)))
    return loop(io, 0, (n + 31) // 32, loop(jo, 0, (n + 31) // 32, nest), LoopKind.PARALLEL), last


def test_tiled_matmul(golden) -> None:  # type: ignore[no-untyped-def]
    body, _ = tiled_matmul()
    params = [array(name, (n, n)) for name in "XYZ"]
    golden(kernel_text(simplify_kernel(kernel("matmul", params, "Z", body, [n]))))


def test_a_second_time_changes_nothing() -> None:
    once = simplify_stmt(tiled_matmul()[0], SIZES)
    assert stmt_text(simplify_stmt(once, SIZES)) == stmt_text(once)


def test_bounds_are_minima_and_maxima() -> None:
    upper = binary("min", 31, n - 32 * i - 1) + 1
    assert simplified(loop(j, 0, upper, store(A, j, 1.0))).startswith("for j in range(min(32, n - 32 * i)):")
    lower = 3 - binary("min", i, 2)
    assert simplified(loop(j, lower, n, store(A, j, 1.0))).startswith("for j in range(max(3 - i, 1), n):")


def test_a_tile_that_is_known_to_be_the_last() -> None:
    inner = loop(j, 0, binary("min", 32, 100 - 32 * i), store(A, 32 * i + j, 1.0))
    text = simplified(loop(i, 0, 4, If(i < 3, Fail("full"), inner)))
    assert text.endswith("else:\n    for j in range(4):\n      A[j + 96] = 1.0")


def test_a_shared_expression_is_what_it_means_in_each_place() -> None:
    """Nodes are remembered by identity where the same is known, and only there."""
    a, n = NAMES["a"], NAMES["n"]
    place, out = binary("min", a, n), array("P", (100,), "int64")
    stored = store(out, a, place)
    small = loop(Var("a", "int64"), 0, n, stored)
    other = loop(Var("a", "int64"), n, 7, stored)
    body = Seq((small, other, small, If(a < n, stored), stored))
    assert stmt_text(simplify_stmt(body, RANGES)) == (
        "for a in range(n):\n  P[a] = a\n"
        "for a in range(n, 7):\n  P[a] = n\n"
        "for a in range(n):\n  P[a] = a\n"
        "if a < n:\n  P[a] = a\n"
        "P[a] = min(a, n)"
    )
    again = simplify_stmt(Seq((stored, stored)), RANGES)
    assert isinstance(again, Seq)
    first, second = again.body
    assert isinstance(first, Store) and isinstance(second, Store) and first.value is second.value
