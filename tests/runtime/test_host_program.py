"""The host part of device programs, on a device that only writes down what it is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from tensorlang.errors import InternalError, KernelError
from tensorlang.ir.expr import Buffer, Const, Load, Var, const
from tensorlang.ir.stmt import (
    INDEX,
    Allocate,
    DeviceKernel,
    Fail,
    For,
    If,
    Kernel,
    Launch,
    Let,
    LoopKind,
    Seq,
    Stmt,
    Store,
)
from tensorlang.runtime.host_program import Extents, device_kernels, host_program

n, i = Var("n", INDEX), Var("i", INDEX)
A, T = Buffer("A", (n,), "float32"), Buffer("T", (n, const(2, INDEX)), "float32")
ONE = Const(1, INDEX)


@dataclass
class Recorder:
    """A device that keeps what it was told, in order."""

    told: list[tuple[Any, ...]] = field(default_factory=list)
    failing: bool = False

    def allocate(self, shape: tuple[int, ...], dtype: str) -> Any:
        self.told.append(("allocate", shape, dtype))
        return f"scratch {len(self.told)}"

    def free(self, array: Any) -> None:
        self.told.append(("free", array))

    def launch(self, name: str, grid: Extents, block: Extents, arrays: Sequence[Any], scalars: Sequence[int]) -> None:
        if self.failing:
            raise RuntimeError("no launch")
        self.told.append((name, grid, block, tuple(arrays), tuple(scalars)))


def device_kernel(name: str, *params: Buffer, scalars: tuple[Var, ...] = (), grid: Any = ONE) -> DeviceKernel:
    """A kernel of 32 threads a block that does nothing."""
    return DeviceKernel(name, params, scalars, (grid, ONE, ONE), (32, 1, 1), (), Seq(()))


def kernel(body: Stmt) -> Kernel:
    """A host part over A[n]."""
    return Kernel("main", (A,), (n,), ("A",), body)


def told(body: Stmt, size: int) -> list[tuple[Any, ...]]:
    """What a device is told for an array named "memory" of that size."""
    device = Recorder()
    host_program(kernel(body))(device, ["memory"], [size])
    return device.told


def test_grids_are_made_of_the_values_of_a_launch() -> None:
    blocks = Var("blocks", INDEX)
    launch = Launch(device_kernel("k", A, scalars=(blocks, n), grid=blocks * 2), ((n + 31) // 32, n - 1))
    assert told(launch, 100) == [("k", (8, 1, 1), (32, 1, 1), ("memory",), (4, 99))]


def test_an_empty_grid_is_not_launched() -> None:
    launch = Launch(device_kernel("k", A, scalars=(n,), grid=n), (n,))
    assert told(launch, 0) == []
    assert len(told(launch, 1)) == 1


def test_loops_choices_and_names_run_on_the_host() -> None:
    launch = Launch(device_kernel("k", A, scalars=(i,)), (i,))
    body = For(i, Const(0, INDEX), n, LoopKind.SERIAL, Let(i, i * 10, If(i > 10, launch, Seq((launch, launch)))))
    assert [step[-1] for step in told(body, 3)] == [(0,), (0,), (10,), (10,), (20,)]


def test_an_inner_name_hides_an_outer_one_only_inside() -> None:
    launch = Launch(device_kernel("k", A, scalars=(i,)), (i,))
    assert [step[-1] for step in told(Let(i, n, Seq((Let(i, i + 1, launch), launch))), 5)] == [(6,), (5,)]


def test_scratch_lives_as_long_as_its_statement() -> None:
    use = Launch(device_kernel("k", T, A), ())
    body = For(i, Const(0, INDEX), Const(2, INDEX), LoopKind.SERIAL, Allocate(T, use))
    words = [step[0] for step in told(body, 3)]
    assert words == ["allocate", "k", "free"] * 2
    assert told(body, 3)[0] == ("allocate", (3, 2), "float32")
    assert told(body, 3)[1][3] == ("scratch 1", "memory")


def test_scratch_is_freed_after_an_error() -> None:
    device = Recorder(failing=True)
    with pytest.raises(RuntimeError, match="no launch"):
        host_program(kernel(Allocate(T, Launch(device_kernel("k", T), ()))))(device, ["memory"], [3])
    assert [step[0] for step in device.told] == ["allocate", "free"]


def test_faults_of_the_host_are_kernel_errors() -> None:
    with pytest.raises(KernelError, match="main: n is too large"):
        told(If(n > 4, Fail("n is too large")), 5)
    assert told(If(n > 4, Fail("n is too large")), 4) == []


def test_deep_nests_are_several_python_functions() -> None:
    body: Stmt = Launch(device_kernel("k", A, scalars=(i,)), (n,))
    for depth in range(30):
        body = For(Var(f"i{depth}", INDEX), Const(0, INDEX), ONE, LoopKind.SERIAL, body)
    assert [step[-1] for step in told(body, 7)] == [(7,)]


def test_kernels_are_listed_once() -> None:
    one, two = device_kernel("one", A), device_kernel("two", A)
    body = Seq((Launch(two, ()), Launch(one, ()), Launch(two, ())))
    assert device_kernels(kernel(body)) == (two, one) == host_program(kernel(body)).kernels
    clash = Seq((Launch(one, ()), Launch(device_kernel("one", T), ())))
    with pytest.raises(InternalError, match="two kernels of the name one"):
        device_kernels(kernel(clash))


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (Store(A, (ONE,), const(0, "float32")), "cannot run a Store"),
        (For(i, ONE, n, LoopKind.BOUND, Seq(()), thread="threadIdx.x"), "cannot run a For"),
        (Launch(device_kernel("k", T), ()), "launched on T, which its host does not have"),
        (Let(i, Load(Buffer("S", (n,), INDEX), (ONE,)), Seq(())), "reads an element of device memory"),
    ],
    ids=["store", "bound loop", "unknown array", "load"],
)
def test_what_a_host_cannot_run_is_refused(body: Stmt, why: str) -> None:
    with pytest.raises(InternalError, match=why):
        host_program(kernel(body))
