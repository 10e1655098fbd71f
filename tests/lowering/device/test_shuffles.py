"""Arrays in the registers of a warp without machine code: who holds an element, and reads by shuffles."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tensorlang
from tensorlang import te
from tensorlang.errors import InternalError, TargetError
from tensorlang.ir import threads
from tensorlang.ir.construct import array, load, store
from tensorlang.ir.expr import Expr, Var, cast
from tensorlang.ir.shuffle import ALWAYS, Shuffle
from tensorlang.ir.stmt import Barrier, If, Let, Seq, Stmt, walk
from tensorlang.ir.verify_device import verify_device
from tensorlang.lowering.device.exchanges import MOST_SHUFFLES
from tensorlang.runtime.host_program import device_kernels
from tensorlang.testing import check_schedule
from tests.launches import TX, device_kernel, launched
from tests.warp_programs import BLOCK, LANE, PROGRAMS, ROW, Made, on_lanes, product, rotated, wide

HELD = array("held", (2,), "int32", scope="local")
OUT = array("out", (64,), "int32")


def lowered(made: Made) -> str:
    s, args = made
    return str(tensorlang.lower(s, args, target="cuda"))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_compute_what_they_say(name: str) -> None:
    s, args = PROGRAMS[name]()
    check_schedule(s, args, targets=("interpreter",))


def test_each_lane_stores_its_own_and_names_the_lane_that_it_reads() -> None:
    text = lowered(rotated(64))
    assert "allocate A.warp: float32[1] in local" in text
    assert "shuffle(A.warp[0], lane (threadIdx.x + 1) % 32 of 32)" in text
    assert "allocate A.warp: int32[4] in local" in lowered(wide(256))


def test_a_read_of_several_registers_is_a_shuffle_of_each() -> None:
    text = lowered(rotated(96, lanes=16))
    assert [f"shuffle(A.warp[{k}], lane (threadIdx.x + 1) % 16 of 16)" in text for k in range(3)] == [True, True, False]


def test_lanes_of_a_warp_need_no_barrier() -> None:
    for made in PROGRAMS.values():
        s, args = made()
        (kernel,) = device_kernels(tensorlang.lower(s, args, target="cuda").kernel)
        assert not any(isinstance(stmt, Barrier) for stmt in walk(kernel.body))


def test_tests_that_some_lanes_fail_stand_behind_the_shuffles() -> None:
    lines = [line.strip() for line in lowered(product(5, 40, 50)).splitlines()]
    shuffle = next(k for k, line in enumerate(lines) if "shuffle(" in line)
    assert lines[shuffle - 1].startswith("for k_i")
    assert lines[shuffle + 1].startswith("if 32 * blockIdx.x + threadIdx.x < 40")


def test_registers_have_constant_numbers() -> None:
    s, args = PROGRAMS["stencil"]()
    text = tensorlang.build(s, args, target="cuda -arch=sm_80").source("cuda")
    assert "#pragma unroll" in text
    assert "__shfl_sync(0xffffffffu, A_warp[1], (thread_x + 1) % 32, 32)" in text


def unbound() -> Made:
    """The copy is made by one lane alone."""
    A = te.placeholder((64,), name="A")
    B = te.compute((64,), lambda i: A[i] + 1, name="B")
    s = te.create_schedule(B.op)
    held = s.cache_read(A, "warp", [B])
    block, inner = s[B].split("i", 32)
    s[B].bind(block, te.thread_axis(BLOCK))
    s[B].bind(inner, te.thread_axis(LANE))
    s[held].compute_at(s[B], block)
    return s, [A, B]


def transposed() -> Made:
    """The register that a lane reads is its own number."""
    A = te.placeholder((32, 32), name="A")
    B = te.compute((32, 32), lambda i, j: A[j, i], name="B")
    s = te.create_schedule(B.op)
    held = s.cache_read(A, "warp", [B])
    block, _ = s[B].split("i", 32)
    s[B].bind(block, te.thread_axis(BLOCK))
    s[B].bind("j", te.thread_axis(LANE))
    s[held].compute_at(s[B], block)
    on_lanes(s[held], held.op.axis[1], 32)
    return s, [A, B]


def gathered() -> Made:
    """Which lane has the element is known at run time only."""
    A, at = te.placeholder((64,), name="A"), te.placeholder((64,), name="at", dtype="int32")
    W = te.compute((64,), lambda i: A[i] * 2, name="W")
    B = te.compute((64,), lambda i: W[te.min(te.max(at[i], 0), 31)], name="B")
    s = te.create_schedule(B.op)
    block, inner = s[B].split("i", 32)
    s[B].bind(block, te.thread_axis(BLOCK))
    s[B].bind(inner, te.thread_axis(LANE))
    s[W].set_scope("warp")
    s[W].compute_at(s[B], block)
    on_lanes(s[W], W.op.axis[0], 32)
    return s, [A, at, B]


def other_rows() -> Made:
    """A whole block reads what is in the registers of one warp."""
    A = te.placeholder((64,), name="A")
    B = te.compute((4, 64), lambda r, i: A[i] + r, name="B")
    s = te.create_schedule(B.op)
    held = s.cache_read(A, "warp", [B])
    block, inner = s[B].split("i", 32)
    s[B].reorder(block, "r", inner)
    s[B].bind(block, te.thread_axis(BLOCK))
    s[B].bind("r", te.thread_axis(ROW))
    s[B].bind(inner, te.thread_axis(LANE))
    s[held].compute_at(s[B], block)
    on_lanes(s[held], held.op.axis[0], 32)
    return s, [A, B]


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: rotated(96, lanes=24), "the threads along threadIdx.x, and there are 24 of them; a warp has 32"),
        (unbound, r"its stores do not tell which lane holds an element: .*split a loop of its stage by 32"),
        (transposed, rf"a shuffle is of one that all lanes name \(up to {MOST_SHUFFLES} are tried\).* scope 'shared'"),
        (gathered, "whose index is read from memory: .* scope 'shared'"),
        (other_rows, r"A\.warp is in the registers of a warp, and the threads along threadIdx.y use it too"),
    ],
)
def test_refusals_say_what_to_do(made: Callable[[], Made], message: str) -> None:
    s, args = made()
    with pytest.raises(TargetError, match=message):
        tensorlang.lower(s, args, target="cuda")


def exchanged(lane: Expr, wanted: Expr = ALWAYS, register: Expr | int = 0) -> Stmt:
    taken = Var("taken", "int32")
    value = Shuffle(load(HELD, register), lane, wanted, 32)
    return Let(taken, value, If(wanted, store(OUT, TX, taken)))


def run(*body: Stmt) -> list[int]:
    kernel = launched([OUT], "out", Seq(body), (64,), scratch=[HELD])
    given = np.full(64, -1, np.int32)
    threads.run(kernel, {"out": given})
    return given.tolist()


FIRST = store(HELD, 0, cast(TX, "int32"))


def test_a_shuffle_gives_what_the_lane_of_the_same_warp_has() -> None:
    turned = [w + (i + 3) % 32 for w in (0, 32) for i in range(32)]
    assert run(FIRST, exchanged((TX + 3) % 32)) == turned
    ends = [i % 32 == 31 for i in range(64)]
    found = run(FIRST, exchanged(TX % 32 + 1, TX % 32 < 31))
    assert found == [-1 if last else i + 1 for i, last in enumerate(ends)]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ((FIRST, exchanged(TX % 32 + 1)), r"takes held\[0\] of lane 32, which is not there"),
        ((FIRST, exchanged((TX + 1) % 32, register=1)), r"reads held\[1\] in local memory before it is written"),
        ((If(TX < 40, FIRST), exchanged((TX + 1) % 32)), r"reads held\[0\] in local memory before it is written"),
        ((FIRST, If(TX < 40, exchanged((TX + 1) % 32))), r"takes held\[0\] of lane 8, which is not there"),
    ],
)
def test_shuffles_of_what_is_not_there_are_found(body: tuple[Stmt, ...], message: str) -> None:
    with pytest.raises(InternalError, match=message):
        run(*body)


def test_all_lanes_come_to_a_shuffle_and_name_one_register() -> None:
    for body, message in (
        (If(TX < 16, exchanged(TX)), r"not all of the 32 threads that exchange held\[0\] come here"),
        (exchanged(TX, register=TX % 2), r"the threads that exchange held\[threadIdx.x % 2\] name different registers"),
        (store(OUT, TX, Shuffle(load(HELD, 0), TX, ALWAYS, 32)), "is a part of another expression, or of no Let"),
    ):
        with pytest.raises(InternalError, match=message):
            verify_device(device_kernel([OUT], body, (32,), scratch=[HELD]))
    with pytest.raises(InternalError, match="a shuffle is of 32 neighbours, which are no axes"):
        verify_device(device_kernel([OUT], exchanged(TX), (48,), scratch=[HELD]))
