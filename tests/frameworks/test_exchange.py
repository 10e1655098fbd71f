"""Tensors of PyTorch in a plain call: machine code reads them, and what it does not take is refused as in Python."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np
import pytest

from tensorlang import dtypes
from tensorlang.errors import ArgumentError
from tensorlang.ir.construct import array, index, indices, load, loop, store
from tensorlang.ir.stmt import Kernel
from tensorlang.runtime import exchange
from tensorlang.runtime.executable import Executable
from tensorlang.runtime.foreign import current_stream, described
from tensorlang.target.backend import backend
from tensorlang.target.detect import parse

i, n = indices("i n")


@cache
def _copy(dtype: str = "float32", target: str = "llvm") -> Executable:
    """B[i] = A[i] over rows of three, of symbolic number."""
    a, b = array("A", (n, 3), dtype), array("B", (n, 3), dtype)
    body = loop(i, 0, n * index(3), store(b, (i // index(3), i % index(3)), load(a, i // index(3), i % index(3))))
    return backend(target).compile(Kernel("copy", (a, b), (n,), ("B",), body), parse(target))


def _entered(call: Callable[[], object]) -> list[str]:
    """The Python functions that a call enters."""
    names: list[str] = []
    sys.setprofile(lambda frame, event, _: names.append(frame.f_code.co_name) if event == "call" else None)
    try:
        call()
    finally:
        sys.setprofile(None)
    return names


@pytest.fixture
def copied(torch: Any) -> Callable[..., list[str]]:
    """Copy a tensor, and compare; the Python functions that were entered."""

    def check(a: Any, target: str = "llvm") -> list[str]:
        kernel = _copy(str(a.dtype).removeprefix("torch."), target)
        kernel(torch.ones_like(a), torch.ones_like(a))
        b = torch.ones_like(a)
        entered = _entered(lambda: kernel(a, b))[1:]
        bits = getattr(torch, f"int{8 * a.element_size()}")
        assert torch.equal(a.view(bits), b.view(bits))
        return entered

    return check


@pytest.mark.parametrize("dtype", list(dtypes.TABLE))
def test_tensors_are_read_by_machine_code(torch: Any, copied: Callable[..., list[str]], dtype: str) -> None:
    if not hasattr(torch, dtype):
        pytest.skip(f"this PyTorch has no {dtype}")
    kind = getattr(torch, dtype)
    whole = torch.arange(15, dtype=torch.uint8).reshape(5, 3) % 2 if dtype == "bool" else torch.arange(15).reshape(5, 3)
    assert copied(whole.to(kind)) == []
    assert copied(whole.to(kind)[2:4]) == []


@pytest.mark.parametrize("target", ["llvm", "interpreter"])
def test_a_call_may_mix_tensors_and_arrays(torch: Any, target: str) -> None:
    given, made = np.ones((2, 3), np.float32), torch.zeros(2, 3)
    _copy(target=target)(given, made)
    assert made.sum() == 6
    with pytest.raises(ArgumentError, match="output B overlaps A in memory"):
        _copy(target=target)(made, made.numpy())


def test_shapes_that_are_compact_in_spite_of_their_strides(torch: Any, copied: Callable[..., list[str]]) -> None:
    assert copied(torch.arange(6.0).as_strided((1, 3), (17, 1))) == []
    assert "checked" not in copied(torch.zeros(0, 3))


@pytest.mark.parametrize("target", ["llvm", "interpreter"])
def test_refusals(torch: Any, target: str) -> None:
    call, good = _copy(target=target), torch.zeros(2, 3)
    for a, message in (
        (torch.ones(2, 3, requires_grad=True), r"argument 1 \(A\): .*requires a gradient; pass tensor.detach"),
        (torch._neg_view(torch.ones(2, 3)), r"argument 1 \(A\): .*negative bit"),
        (torch._efficientzerotensor((2, 3)), r"argument 1 \(A\): .*ZeroTensor"),
        (torch.ones(3, 2).t(), r"argument 1 \(A\): expected a C-contiguous array"),
        (torch.ones(2, 3).to_sparse(), r"argument 1 \(A\): .*Sparse"),
        (torch.ones(2, 3, device="meta"), r"argument 1 \(A\): .*meta"),
        (torch.ones(2, 3, dtype=torch.float64), r"argument 1 \(A\): expected dtype float32, got float64"),
        (torch.ones(3, 3), r"n is 2, but 3 in copy"),
        (torch.ones(6), r"argument 1 \(A\): expected 2 dimensions"),
        (torch.frombuffer(bytearray(25), dtype=torch.uint8)[1:].view(2, 12), r"argument 1 \(A\): expected dtype"),
    ):
        with pytest.raises(ArgumentError, match=message):
            call(a, good)
        assert good.sum() == 0
    with pytest.raises(ArgumentError, match=r"argument 2 \(B\): .*requires a gradient"):
        call(good, torch.zeros(2, 3, requires_grad=True))
    with pytest.raises(ArgumentError, match="overlaps"):
        call(good, good)


def test_parameters_are_read_by_machine_code(torch: Any) -> None:
    weights, made = torch.nn.Parameter(torch.ones(2, 3), requires_grad=False), torch.zeros(2, 3)
    _copy()(weights, made)
    made.zero_()
    assert _entered(lambda: _copy()(weights, made))[1:] == []
    assert made.sum() == 6
    with pytest.raises(ArgumentError, match=r"argument 1 \(A\): .*requires a gradient"):
        _copy()(torch.nn.Parameter(torch.ones(2, 3)), made)


def test_misaligned_tensors_are_refused(torch: Any) -> None:
    odd = torch.frombuffer(memoryview(bytearray(25))[1:], dtype=torch.float32).view(2, 3)
    with pytest.raises(ArgumentError, match=r"argument 1 \(A\): expected data aligned to 4 bytes"):
        _copy()(odd, torch.zeros(2, 3))


def test_tensors_of_transforms_and_subclasses_are_left_to_python(torch: Any) -> None:
    def call(a: Any) -> Any:
        with pytest.raises(ArgumentError, match=r"argument 1 \(A\)"):
            _copy()(a, torch.zeros(2, 3))
        return a.sum()

    torch.vmap(call)(torch.ones(4, 2, 3))
    torch.func.grad(call)(torch.ones(2, 3))

    class Logged(torch.Tensor):  # type: ignore[misc]
        """What a subclass means by its values is its own."""

    made = torch.zeros(2, 3)
    assert "learn" not in _entered(lambda: _copy()(torch.ones(2, 3).as_subclass(Logged), made))
    assert made.sum() == 6
    assert Logged not in exchange._known


def test_calls_leave_no_references(torch: Any) -> None:
    a, b, required = torch.ones(2, 3), torch.zeros(2, 3), torch.ones(2, 3, requires_grad=True)
    _copy()(a, b)
    held = a, b, False, None, torch.Tensor

    def counts() -> list[int]:
        while gc.collect():  # what other tests have left may take several rounds
            pass
        return [sys.getrefcount(x) for x in held]

    before = counts()
    for _ in range(500):
        _copy()(a, b)
        with suppress(ArgumentError):
            _copy()(required, b)
    assert max(abs(x - y) for x, y in zip(before, counts(), strict=True)) < 250


def test_what_pytorch_says_in_c(torch: Any) -> None:
    x = torch.ones(3, 4, dtype=torch.bfloat16)[:, 1:]
    told = described(x)
    assert told is not None
    assert (told.address, told.dtype, told.shape, told.strides) == (x.data_ptr(), "bfloat16", (3, 3), (4, 1))
    assert (told.device_type, told.device, current_stream(type(x), 1, 0)) == (1, 0, 0)
    complex_ = described(torch.ones((), dtype=torch.complex64))
    assert complex_ is not None and (complex_.dtype, complex_.shape) == ("", ())
    for other in (x.as_subclass(type("Own", (torch.Tensor,), {})), torch.ones(2, 3).to_sparse(), np.ones(3)):
        assert described(other) is None


def test_unknown_tables_are_left_alone() -> None:
    class Other:
        __dlpack_c_exchange_api__ = "no capsule"

    assert exchange.offers(Other)
    assert not exchange.learn(Other)
    assert not exchange.offers(Other)
