"""Machine code that several threads run together: which blocks and loops fit it, and who may use what it holds."""

from __future__ import annotations

from dataclasses import replace

import pytest

import tensorlang
from tensorlang.errors import InternalError, TargetError
from tensorlang.ir.construct import array, index
from tensorlang.ir.expr import Expr, Var
from tensorlang.ir.stmt import INDEX, CallMachine, DeviceKernel, If, MachineCode, Seq, Stmt, View
from tensorlang.ir.verify_device import verify_device
from tests.target.cuda.tensor_core_gemm import Product, kernel, scheduled

SMALL = Product(32, 32, 32, block=(32, 32), warp=(16, 16), stages=1)
X, Y = (Var(f"threadIdx.{axis}", INDEX) for axis in "xy")
OUT = array("out", (64, 64))


def verified(body: Stmt) -> None:
    one = index(1)
    verify_device(DeviceKernel("k", (OUT,), (), (one, one, one), (32, 2, 1), (), body))


def call(row: Expr) -> Stmt:
    return CallMachine(MachineCode("f", (), Seq(()), lanes=32), (View(OUT, (row, index(0)), (0, 1), (1, 1)),), Seq(()))


def test_all_lanes_come_to_a_call_and_work_on_one_tile() -> None:
    verified(If(Y.equal(0), call(Y * 8)))
    with pytest.raises(InternalError, match="not all of the 32 threads that run f come here"):
        verified(If(X < 16, call(Y)))
    with pytest.raises(InternalError, match="the threads that run f do so on different tiles"):
        verified(call(X // 16))


def test_the_block_has_as_many_lanes_as_the_code() -> None:
    s, args = scheduled(replace(SMALL, copying=64))
    message = r"cuda\.\S+ is run by 32 neighbouring threads together, and the block has 64"
    with pytest.raises(TargetError, match=message):
        tensorlang.lower(s, list(args), target="cuda")


def test_what_lanes_share_is_computed_outside_of_their_loop() -> None:
    s, args = scheduled(SMALL)
    s["C.warp"].compute_at(s["C"], s["C"].leaf_iter_vars[4])
    inside = tensorlang.lower(s, list(args), target="cuda -arch=sm_80", name="gemm").kernel
    assert str(inside.body) == str(kernel(SMALL).body)


def test_swizzled_rows_are_stored_and_read_alike() -> None:
    """The interpreter sees no swizzle, so that the loops of both programs are the same."""
    plain, turned = (str(kernel(replace(SMALL, swizzled=s)).body) for s in (False, True))
    assert turned.replace("swizzled=True", "swizzled=False") == plain
