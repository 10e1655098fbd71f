"""Sizes that wrap around, arrays that lie, keywords, and names that mean something elsewhere: refused, or harmless."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang import build, te
from tensorlang.errors import ArgumentError, DefinitionError
from tensorlang.runtime.executable import Executable

TARGETS = ["llvm", "interpreter"]
n, m = te.var("n"), te.var("m")


def doubled(*shape: Any, sizes: tuple[te.Var, ...] = (), target: str = "llvm", name: str = "f") -> Executable:
    A = te.placeholder(shape, name="A")
    C = te.compute(shape, lambda *i: A[i] * 2.0, name="C")
    made: Executable = build(te.create_schedule(C.op), [*sizes, A, C], target=target, name=name)
    return made


def ones(*shape: int) -> Any:
    return np.ones(shape, "f4")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("size", [2**31, 2**32, 2**62, 2**63 - 1])
def test_extents_do_not_wrap_around(target: str, size: int) -> None:
    kernel = doubled(2 * n + 1, sizes=(n,), target=target)
    with pytest.raises(ArgumentError, match=rf"2 \* n \+ 1; n is {size} from f: argument 1 \(n\)"):
        kernel(size, ones(1), ones(1))


@pytest.mark.parametrize("target", TARGETS)
def test_a_negative_extent_is_named(target: str) -> None:
    kernel = doubled(n - 1000, sizes=(n,), target=target)
    with pytest.raises(ArgumentError, match=r"an extent, got -990 \(n - 1000; n is 10 .*\), less than 0"):
        kernel(10, ones(0), ones(0))


def test_an_extent_of_two_unknown_sizes_is_checked_once_they_are_known() -> None:
    """n*m comes before what tells n and m: it used to be skipped."""
    A, B = te.placeholder((n * m,), name="A"), te.placeholder((2 * n, 3 * m), name="B")
    C = te.compute((2 * n, 3 * m), lambda i, j: B[i, j] + 1.0, name="C")
    D = te.compute((n * m,), lambda i: A[i] + 1.0, name="D")
    kernel = build(te.create_schedule([C.op, D.op]), [A, D, B, C])
    kernel(ones(6), out := ones(6), ones(4, 9), ones(4, 9))
    assert (out == 2).all()
    for size in (5, 7):
        with pytest.raises(ArgumentError, match=r"argument 1 \(A\): expected 6 \(n \* m; m is 3"):
            kernel(ones(size), ones(size), ones(4, 9), ones(4, 9))


def test_arithmetic_beyond_64_bits_names_the_sizes() -> None:
    A = te.placeholder((n, m), name="A")
    T = te.compute((n * 2**30, m), lambda i, j: A[i // 2**30, j], name="T")
    C = te.compute((n, m), lambda i, j: T[i, j] * 2.0, name="C")
    kernel = build(te.create_schedule(C.op), [A, C])
    long = np.zeros((2**40, 0), "f4")
    with pytest.raises(
        ArgumentError, match=rf"too large: n \* 1073741824 would be .* 64 bits \(m is 0 .*n is {2**40} from"
    ):
        kernel(long, long.copy())


def test_no_element_and_endless_rows() -> None:
    """The loop over rows would take a year to find that each is empty."""
    kernel = doubled(n, m)
    kernel(np.zeros((2**55, 0), "f4"), np.zeros((2**55, 0), "f4"))


@pytest.mark.parametrize("wrong", [True, np.bool_(True), 2.0, np.nan, "3", None, np.array([3]), np.uint64(2**63)])
def test_sizes_are_whole_numbers(wrong: Any) -> None:
    kernel = doubled(n, sizes=(n,))
    with pytest.raises(ArgumentError, match=r"argument 1 \(n\): expected a (whole number for )?size n"):
        kernel(wrong, ones(3), ones(3))


class Raising:
    """A size, an array, or an exporter whose methods raise what they like."""

    def __index__(self) -> int:
        raise ZeroDivisionError("no")

    @property
    def __array_interface__(self) -> Any:
        raise KeyError("shape")


class Exporter:
    def __dlpack__(self, **options: Any) -> Any:
        return 3

    def __dlpack_device__(self) -> Any:
        return ()


class Interface:
    def __init__(self, **parts: Any) -> None:
        self.__array_interface__ = {"shape": (8,), "typestr": "<f4", "data": (16, False), "version": 3, **parts}


class Liar(np.ndarray[Any, Any]):
    """Says that it is elsewhere."""


Liar.__array_interface__ = property(lambda _: Interface().__array_interface__)  # type: ignore[assignment, method-assign]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (np.ma.MaskedArray(ones(8)), r"got a masked one, whose mask a kernel does not see; pass a\.filled\(value\)"),
        (np.ma.MaskedArray(ones(8), mask=[True] * 8), "a masked one"),
        (Raising(), "this Raising cannot be used without a copy: 'shape'"),
        (Exporter(), "this Exporter cannot be used without a copy: "),
        (Interface(shape=(-8,)), "this Interface cannot be used without a copy: negative dimensions"),
        (Interface(data=(0, False)), "this Interface cannot be used without a copy: "),
        (Interface(typestr=5), "this Interface cannot be used without a copy: "),
        (ones(8).astype(object), "expected dtype float32, got object"),
    ],
)
def test_odd_arrays_are_refused(target: str, wrong: Any, message: str) -> None:
    kernel = doubled(8, target=target)
    for args, place in (((wrong, ones(8)), "1 (A)"), ((ones(8), wrong), "2 (C)")):
        with pytest.raises(ArgumentError, match=message) as caught:
            kernel(*args)
        assert f"f: argument {place}" in str(caught.value)


def test_a_subclass_is_taken_at_its_memory() -> None:
    kernel, out = doubled(8), ones(8)
    kernel(ones(8).view(Liar), out.view(Liar))
    assert (out == 2).all()


@pytest.mark.parametrize("target", TARGETS)
def test_arguments_go_in_order(target: str) -> None:
    kernel = doubled(8, target=target)
    for named in ({"A": ones(8), "C": ones(8)}, {"status": 1}, {"\ud800": 1}):
        with pytest.raises(ArgumentError, match=r"f takes its arguments in order, not by name \(.*\); pass \(A, C\)"):
            kernel(**named)
    with pytest.raises(ArgumentError, match="not by name"):
        kernel(ones(8), C=ones(8))


NAMES = [
    "llvm.memset",
    "malloc",
    "main",
    "GOMP_parallel",
    "x" * 100_000,
    "😀",
    "变量",
    "a b\n",
    "if",
    "",
    "0",
    "f.kernel",
]


@pytest.mark.parametrize("target", TARGETS)
def test_kernels_of_any_name(target: str) -> None:
    for name in NAMES:
        kernel, out = doubled(8, target=target, name=name), ones(8)
        kernel(ones(8), out)
        assert (out == 2).all() and kernel.entry_name == name
        with pytest.raises(ArgumentError):
            kernel(ones(7), out)


@pytest.mark.parametrize("name", ["malloc", "x" * 100_000, "if", "memset", "main"])
def test_arrays_and_sizes_of_any_name(name: str) -> None:
    size = te.var(name)
    A = te.placeholder((size, 2), name=name)
    C = te.compute((size, 2), lambda i, j: A[i, j] * 2.0, name=f"{name}_C")
    for target in TARGETS:
        kernel, out = build(te.create_schedule(C.op), [A, C], target=target), ones(3, 2)
        kernel(ones(3, 2), out)
        assert (out == 2).all()


@pytest.mark.parametrize("target", ["cuda", "opencl"])
def test_names_in_the_source_of_gpus(target: str) -> None:
    for name in ("x" * 100_000, "threadIdx", "llvm.memset", "0"):
        A = te.placeholder((8,), name=name if name[0].isalpha() else "A")
        C = te.compute((8,), lambda i, A=A: A[i] * 2.0, name="C")
        s = te.create_schedule(C.op)
        s[C].bind("i", "threadIdx.x")
        kernel = tensorlang.lower(s, [A, C], name=name, target=target).kernel
        text = str(kernel)
        assert "\n" in str(tensorlang.lower(s, [A, C], name=name, target=target)) and text


@pytest.mark.parametrize("name", ["\ud800", "a\0b", 3, None])
def test_names_that_cannot_be_written_are_refused(name: Any) -> None:
    with pytest.raises(DefinitionError, match="the name of a kernel is text in UTF-8 without a NUL"):
        doubled(8, name=name)
