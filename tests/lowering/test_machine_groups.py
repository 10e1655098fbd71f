"""Machine code that goes on after its call: where its groups are closed, and which waits its dependences ask for."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tensorlang import lower, te
from tensorlang.ir import threads
from tensorlang.ir.stmt import (
    Barrier,
    CallMachine,
    For,
    Kernel,
    Launch,
    MachineCommit,
    MachineWait,
    Stmt,
    children,
    walk,
)
from tensorlang.schedule import Schedule
from tensorlang.te.operation import Tensor


def events(kernel: Kernel) -> list[str]:
    """What the threads of the one launch do about groups and barriers, with the depth in loops."""
    found: list[str] = []

    def visit(stmt: Stmt, depth: int) -> None:
        match stmt:
            case CallMachine():
                found.append(f"{depth} {stmt.code.name.rpartition('.')[2]}")
                return
            case MachineCommit():
                found.append(f"{depth} commit")
            case MachineWait():
                found.append(f"{depth} wait {stmt.pending}")
            case Barrier():
                found.append(f"{depth} barrier")
        for child in children(stmt):
            visit(child, depth + isinstance(stmt, For))

    (launch,) = (s for s in walk(kernel.body) if isinstance(s, Launch))
    visit(launch.kernel.body, 0)
    return found


def multiply(name: str, depth: int) -> tuple[Tensor, Tensor, Tensor]:
    A, B = (te.placeholder((64, depth), "bfloat16", name=f"{x}{name}") for x in "AB")
    k = te.reduce_axis((0, depth), "k")
    C = te.compute(
        (64, 64), lambda i, j: te.sum(A[i, k].astype("float32") * B[j, k].astype("float32"), axis=k), name=f"C{name}"
    )
    return A, B, C


def by_lanes(s: Schedule, out: Tensor) -> Any:
    """Distribute a matrix of 64 x 64 over a warp group; the loop where all of it is computed."""
    stage = s[out]
    i, j = stage.op.axis
    block, i = stage.split(i, 64)
    warp, i = stage.split(i, 16)
    half, row = stage.split(i, 8)
    tile, j = stage.split(j, 8)
    column, pair = stage.split(j, 2)
    stage.reorder(block, warp, row, column, tile, half, pair)
    stage.bind(block, "blockIdx.x")
    stage.bind(stage.fuse(stage.fuse(warp, row), column), "threadIdx.x")
    return block


def place(
    s: Schedule, product: tuple[Tensor, Tensor, Tensor], out: Tensor, at: Any, stages: int, ahead: int, run: int = 0
) -> None:
    """Compute a product in steps of 64 at a loop, from tiles in shared memory; `run`: in so many steps, then again."""
    A, B, C = product
    s[C].set_scope("warp")
    shared = [s.cache_read(x, "shared", [C]) for x in (A, B)]
    s[C].compute_at(s[out], at)
    i, j = s[C].op.axis
    step, k = s[C].split(s[C].op.reduce_axis[0], 64)
    steps = s[C].split(step, run) if run else (step,)
    s[C].reorder(*steps, i, j, k)
    for x in shared:
        s[x].compute_at(s[C], steps[-1])
        rest, lanes = s[x].split(s[x].fuse(*s[x].op.axis), 8)
        s[x].vectorize(lanes)
        s[x].bind(s[x].split(rest, 128)[1], "threadIdx.x")
        s[x].swizzle()
        if stages > 1:
            s[x].pipeline(stages, ahead)
    s[C].tensorize(i, te.intrin("cuda.wgmma.m64n64k64.bf16.bt"))


def one(depth: int, stages: int, ahead: int, run: int = 0) -> tuple[Schedule, list[Tensor]]:
    product = multiply("", depth)
    out = te.compute((64, 64), lambda i, j: product[2][i, j] + 1, name="out")
    s = te.create_schedule(out.op)
    place(s, product, out, by_lanes(s, out), stages, ahead, run)
    return s, [*product[:2], out]


def two(depth: int = 128, stages: int = 1, ahead: int = 0, run: int = 0) -> tuple[Schedule, list[Tensor]]:
    """The sum of two products; tiles of the first one are kept as given."""
    first, second = multiply("1", depth), multiply("2", depth)
    out = te.compute((64, 64), lambda i, j: first[2][i, j] + second[2][i, j], name="out")
    s = te.create_schedule(out.op)
    at = by_lanes(s, out)
    place(s, first, out, at, stages, ahead, run)
    place(s, second, out, at, 1, 0)
    return s, [*first[:2], *second[:2], out]


def lowered(made: tuple[Schedule, list[Tensor]]) -> Kernel:
    found: Kernel = lower(made[0], made[1], target="cuda -arch=sm_90a").kernel
    return found


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("stages", "ahead", "pending"), [(2, 1, [0]), (3, 2, [0]), (3, 1, [1]), (4, 3, [0]), (4, 2, [1]), (5, 2, [2])]
)
def test_a_tile_is_waited_for_before_it_is_written_again(stages: int, ahead: int, pending: list[int]) -> None:
    """As many products may be under way as a tile stays what it is for steps after its own."""
    found = events(lowered(one(64 * 12, stages, ahead)))
    assert found[-1] == "0 wait 0"
    assert found[:-1] == [f"1 wait {pending[0]}", "1 barrier", "1 update", "1 commit"]


def test_tiles_that_are_never_written_again_need_no_wait() -> None:
    assert events(lowered(one(64 * 3, 4, 3))) == ["1 barrier", "1 update", "1 commit", "0 wait 0"]


def test_without_a_pipeline_the_barrier_that_frees_the_tile_is_waited_at() -> None:
    found = events(lowered(one(128, 1, 0)))
    assert sorted(found[:-1]) == ["1 barrier", "1 barrier", "1 commit", "1 update", "1 wait 0"]
    behind = found.index("1 wait 0")
    assert found[behind + 1] == "1 barrier" and found[-1] == "0 wait 0"


def test_what_a_loop_fills_before_it_runs_again_is_waited_for() -> None:
    """The first tiles of a run are written in front of its first iteration, where no group of it has been closed."""
    made = one(64 * 4, 2, 1, run=2)
    kernel = lowered(made)
    assert events(kernel)[:2] == ["1 wait 0", "1 barrier"]
    given = {name: np.ones((64, 256), ml_dtypes.bfloat16) for name in "AB"}
    arrays = {**given, "out": np.zeros((64, 64), np.float32)}
    threads.run(kernel, arrays)
    np.testing.assert_array_equal(arrays["out"], np.full((64, 64), 257))


def test_a_barrier_in_front_of_the_loop_is_waited_at() -> None:
    """It stands in the body of another loop than the code that it waits for, which runs twice."""
    found = events(lowered(two(256, 2, 1, run=2)))
    assert found.count("2 update") == found.count("1 update") == 1
    assert found[0] == "1 wait 0" and found[1].endswith("barrier")


def test_code_beside_other_statements_of_its_region_waits_for_itself() -> None:
    found = events(lowered(one(64, 1, 0)))
    assert found == ["0 barrier", "0 update", "0 commit", "0 wait 0"]


def test_a_product_is_under_way_while_the_next_begins() -> None:
    """Nothing but the sum of both asks for the end of the first one's last step."""
    made = two()
    kernel = lowered(made)
    found = events(kernel)
    assert found.count("1 update") == found.count("1 commit") == 2
    last = max(k for k, event in enumerate(found) if event == "1 commit")
    assert found[last + 1 :] == ["0 wait 0"] and "0 wait 0" not in found[:last]
    rng = np.random.default_rng(3)
    given = {str(t.op.name): rng.integers(-3, 4, (64, 128)) for t in made[1][:-1]}
    arrays = {n: x.astype(ml_dtypes.bfloat16) for n, x in given.items()}
    arrays["out"] = np.zeros((64, 64), np.float32)
    threads.run(kernel, arrays)
    wanted = given["A1"] @ given["B1"].T + given["A2"] @ given["B2"].T
    np.testing.assert_array_equal(arrays["out"], wanted)
