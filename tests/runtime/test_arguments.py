"""The checks of a call, on the interpreter target (checks in Python) and on llvm (checks in machine code)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang import dtypes, te
from tensorlang.errors import ArgumentError
from tensorlang.ir.construct import array, index, indices, load, loop, store
from tensorlang.ir.expr import Var, binary
from tensorlang.ir.stmt import Kernel
from tensorlang.runtime.arguments import ArgumentCheck, Signature
from tensorlang.runtime.executable import Executable
from tensorlang.target.backend import backend
from tensorlang.target.detect import parse

TARGETS = ["llvm", "interpreter"]
i, n, m = indices("i n m")


def _build(kernel: Kernel, target: str, signature: Signature | None = None) -> Executable:
    return backend(target).compile(kernel, parse(target), signature)


def _scale(dtype: str = "float32") -> Kernel:
    """B[i] = A[i] + A[i], of symbolic length."""
    a, b = array("A", (n,), dtype), array("B", (n,), dtype)
    return Kernel("scale", (a, b), (n,), ("B",), loop(i, 0, n, store(b, i, load(a, i) + load(a, i))))


def _fixed(dtype: str = "float32") -> Kernel:
    a, b = array("A", (2, 3), dtype), array("B", (2, 3), dtype)
    return Kernel("fixed", (a, b), (), ("B",), store(b, (1, 2), load(a, 1, 2)))


def _ones(*shape: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    return np.ones(shape, dtype)


def _read_only(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    values.flags.writeable = False
    return values


def _misaligned() -> np.ndarray[Any, Any]:
    return np.zeros(25, np.uint8)[1:].view(np.float32).reshape(2, 3)


_REFUSED: list[tuple[tuple[Any, ...], str]] = [
    ((), r"fixed takes 2 arguments \(A: float32\[2, 3\], B: float32\[2, 3\]\), got 0"),
    ((_ones(2, 3),) * 3, "takes 2 arguments .*, got 3"),
    (([1.0], _ones(2, 3)), r"argument 1 \(A\): expected an array, got list; np\.asarray makes one"),
    ((_ones(2, 3), None), r"argument 2 \(B\): expected an array, got NoneType"),
    ((_ones(2, 3, dtype=np.float64), _ones(2, 3)), r"argument 1 \(A\): expected dtype float32, got float64; .*astype"),
    ((_ones(2, 3, dtype=">f4"), _ones(2, 3)), r"argument 1 \(A\): expected dtype float32, got >f4"),
    ((_ones(6), _ones(2, 3)), r"argument 1 \(A\): expected 2 dimensions \[2, 3\], got 1: shape \(6,\)"),
    ((_ones(2, 3), _ones(2, 4)), r"argument 2 \(B\): expected 3 in dimension 1, got 4: shape \(2, 4\)"),
    ((_ones(3, 2).T, _ones(2, 3)), r"argument 1 \(A\): expected a C-contiguous array, .*ascontiguousarray"),
    ((_misaligned(), _ones(2, 3)), r"argument 1 \(A\): expected data aligned to 4 bytes, got address 0x"),
    ((_ones(2, 3), _read_only(_ones(2, 3))), r"argument 2 \(B\): expected a writeable array, for it is an output"),
]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("args", "message"), _REFUSED)
def test_refusals_name_the_argument(target: str, args: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        _build(_fixed(), target)(*args)


@pytest.mark.parametrize("target", TARGETS)
def test_inputs_may_be_read_only_and_shared(target: str) -> None:
    a = array("A", (4,))
    kernel = Kernel("sum", (a, array("B", (4,)), array("C", (4,))), (), ("C",), store(array("C", (4,)), 0, load(a, 0)))
    shared, result = _read_only(_ones(4)), np.zeros(4, np.float32)
    _build(kernel, target)(shared, shared, result)
    assert result[0] == 1


@pytest.mark.parametrize("target", TARGETS)
def test_outputs_may_overlap_nothing(target: str) -> None:
    executable = _build(_scale(), target)
    block = np.zeros(10, np.float32)
    executable(block[:5], block[5:])
    for a, b in ((block[:5], block[4:9]), (block[4:9], block[:5]), (block[:3], block[:3])):
        with pytest.raises(ArgumentError, match="output B overlaps A in memory"):
            executable(a, b)
    executable(block[:0], block[:0])


@pytest.mark.parametrize("target", TARGETS)
def test_two_outputs_may_not_overlap(target: str) -> None:
    a, b = array("A", (4,)), array("B", (4,))
    executable = _build(Kernel("two", (a, b), (), ("A", "B"), store(a, 0, 1.0)), target)
    block = np.zeros(6, np.float32)
    with pytest.raises(ArgumentError, match="overlaps"):
        executable(block[:4], block[2:])


@pytest.mark.parametrize("target", TARGETS)
def test_sizes_are_bound_from_shapes(target: str) -> None:
    executable = _build(_scale("int32"), target)
    for size in (0, 1, 7):
        a, b = np.arange(size, dtype=np.int32), np.zeros(size, np.int32)
        executable(a, b)
        np.testing.assert_array_equal(b, 2 * a)
    with pytest.raises(ArgumentError, match=r"argument 2 \(B\) dimension 0: n is 3, but 4 in scale: argument 1 \(A\)"):
        executable(_ones(4, dtype=np.int32), _ones(3, dtype=np.int32))


@pytest.mark.parametrize("target", TARGETS)
def test_computed_extents_are_checked(target: str) -> None:
    a, b = array("A", (n, m)), array("B", (n * index(2) + m, binary("floordiv", n + index(3), index(4))))
    executable = _build(Kernel("computed", (a, b), (n, m), ("B",), store(b, (0, 0), load(a, 0, 0))), target)
    result = np.zeros((12, 2), np.float32)
    executable(_ones(5, 2), result)
    assert result[0, 0] == 1
    with pytest.raises(ArgumentError, match=r"expected 12 \(n \* 2 \+ m; m is 2 from .*\(A\) dimension 1, n is 5"):
        executable(_ones(5, 2), _ones(13, 2))


@pytest.mark.parametrize("target", TARGETS)
def test_one_unknown_size_is_solved_for(target: str) -> None:
    a = array("A", (n * index(2) + index(1),))
    executable = _build(Kernel("odd", (a,), (n,), ("A",), loop(i, 0, n, store(a, i, 5.0))), target)
    values = np.zeros(7, np.float32)
    executable(values)
    assert values.tolist() == [5.0] * 3 + [0.0] * 4
    for wrong in (6, 0):
        with pytest.raises(ArgumentError, match=rf"expected n \* 2 \+ 1 in dimension 0 .* got {wrong}"):
            executable(_ones(wrong))


@pytest.mark.parametrize("target", TARGETS)
def test_explicit_sizes_and_another_order(target: str) -> None:
    kernel = _scale()
    a, b = kernel.params
    executable = _build(kernel, target, (Var("n", "int32"), b, a))
    result = np.zeros(3, np.float32)
    executable(3, result, _ones(3))
    assert result.tolist() == [2.0] * 3
    executable(np.int64(3), result, _ones(3))
    for wrong, message in (
        (2.5, "expected a whole number for size n, got float 2.5"),
        (-1, "at least 0, got -1"),
        (2**63, "that fits int64, got 9"),
    ):
        with pytest.raises(ArgumentError, match=message):
            executable(wrong, result, _ones(3))
    with pytest.raises(ArgumentError, match=r"n is 3, but 4 in scale: argument 1 \(n\)"):
        executable(4, result, _ones(3))


@pytest.mark.parametrize("target", TARGETS)
def test_a_size_that_no_shape_has_must_be_passed(target: str) -> None:
    a = array("A", (4,))
    kernel = Kernel("some", (a,), (n,), ("A",), loop(i, 0, n, store(a, i, 1.0)))
    with pytest.raises(ArgumentError, match="do not determine n"):
        _build(kernel, target)(_ones(4))
    values = np.zeros(4, np.float32)
    _build(kernel, target, (a, n))(values, 2)
    assert values.tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "bfloat16", "float64", "float8_e4m3fn"])
def test_every_dtype_passes_both_roads(target: str, dtype: str) -> None:
    numpy_type = dtypes.info(dtype).numpy
    a, b = np.ones((2, 3), numpy_type), np.zeros((2, 3), numpy_type)
    _build(_fixed(dtype), target)(a, b)
    assert b[1, 2] == 1


@pytest.mark.parametrize("target", TARGETS)
def test_equal_dtypes_of_another_number_are_taken(target: str) -> None:
    """np.longlong is int64 under another type number; unpickled dtypes are other objects."""
    a, b = np.ones((2, 3), np.longlong), np.zeros((2, 3), np.longlong)
    _build(_fixed("int64"), target)(a, b)
    assert b[1, 2] == 1


class _Interface:
    """An array of another library that NumPy can look into."""

    def __init__(self, values: np.ndarray[Any, Any]) -> None:
        self.values = values

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self.values.__array_interface__


class _Capsule:
    """An array of another library that speaks DLPack."""

    def __init__(self, values: np.ndarray[Any, Any], device: int = 1) -> None:
        self.values = values
        self.device = device

    def __dlpack__(self, **options: Any) -> Any:
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("wrap", [_Interface, _Capsule, lambda a: a.view(np.matrix)])
def test_arrays_of_other_libraries_are_used_in_place(target: str, wrap: Any) -> None:
    a, b = _ones(2, 3), np.zeros((2, 3), np.float32)
    _build(_fixed(), target)(wrap(a), wrap(b))
    assert b[1, 2] == 1


@pytest.mark.parametrize("target", TARGETS)
def test_other_devices_and_odd_capsules_are_refused(target: str) -> None:
    executable = _build(_fixed(), target)
    with pytest.raises(ArgumentError, match=r"argument 1 \(A\): .* CPU memory, got one on DLPack device type 2"):
        executable(_Capsule(_ones(2, 3), device=2), _ones(2, 3))
    with pytest.raises(ArgumentError, match=r"argument 1 \(A\): this _Capsule cannot be used without a copy"):
        executable(_Capsule(np.array(["x"])), _ones(2, 3))


def test_sizes_that_are_passed_take_the_fast_road(monkeypatch: pytest.MonkeyPatch) -> None:
    """An int anywhere among the arguments; all else is checked in Python, and refused as ever."""
    x, m = te.placeholder((8,), "int32", "x"), te.var("m")
    j = te.reduce_axis((0, m), "j")
    y = te.compute((2,), lambda i: te.sum(te.if_then_else(j < 8, x[te.min(j, 7)], 0), axis=j), name="y")
    kernel = tensorlang.build(te.create_schedule(y.op), [x, m, y])
    given, made = np.arange(8, dtype=np.int32), np.zeros(2, np.int32)
    for size in (np.int64(3), True, -1, 1 << 70, "3", 2.0):
        if size == 3:
            kernel(given, size, made)
            assert made.tolist() == [3, 3]
            continue
        with pytest.raises(ArgumentError, match="m"):
            kernel(given, size, made)
    monkeypatch.setattr(ArgumentCheck, "__call__", lambda *_: pytest.fail("checked in Python"))
    for size, total in ((0, 0), (5, 10), (100, 28)):
        kernel(given, size, made)
        assert made.tolist() == [total, total]
