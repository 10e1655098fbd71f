"""Arrays in the registers of lanes: which register holds an element, and which threads are lanes."""

from __future__ import annotations

import pytest

from tensorlang.errors import TargetError
from tensorlang.ir.construct import array, index
from tensorlang.ir.expr import Const, Expr, Var
from tensorlang.ir.fragment import Digit, Fragment
from tensorlang.ir.interpret import evaluate
from tensorlang.ir.stmt import INDEX, CallMachine, MachineCode, MachineParam, Seq, View
from tensorlang.ir.warp_arrays import fragments, held, lane_axes, lane_of, registers

# 4 x 4 elements over 4 lanes, 4 registers each: a lane has two rows of two neighbours.
LANES = Fragment(
    4, 4, 4, 4, 1,
    (Digit("lane", 2, 2, 1), Digit("register", 2, 2, 2)),
    (Digit("register", 1, 2, 1), Digit("lane", 1, 2, 2)),
)  # fmt: skip
BLOCK = {"threadIdx.x": 4, "threadIdx.y": 8, "threadIdx.z": 2}


def value(expr: Expr) -> int:
    assert isinstance(expr, Const)
    return int(expr.value)


@pytest.mark.parametrize("down", [False, True])
def test_every_element_has_a_register_of_its_own(down: bool) -> None:
    fragment = LANES.transposed if down else LANES
    buffer = array("t", (3, 8, 12), scope="warp")
    places = {}
    for n in range(3):
        for i in range(8):
            for j in range(12):
                at = held(buffer, fragment, (index(n), index(i), index(j)), {})
                places[value(at.lane), value(at.register), value(at.element)] = n, i, j
    assert len(places) == 3 * 8 * 12
    assert {lane for lane, _, _ in places} == set(range(4))
    assert max(register for _, register, _ in places) + 1 == registers(buffer, fragment) == 3 * 8 * 12 // 4
    for (lane, register, element), (_, i, j) in places.items():
        assert (i % 4, j % 4) == fragment.place(lane, register % 4, element)
    neighbour = held(buffer, fragment, (index(0), index(4 * down), index(4 * (not down))), {})
    assert value(neighbour.register) == fragment.registers


def test_an_index_of_loops_is_held_by_the_thread_that_they_are_split_for() -> None:
    x, half, pair, tile = (Var(name, INDEX) for name in ("threadIdx.x", "half", "pair", "tile"))
    ranges = {"threadIdx.x": (0, 3), "half": (0, 1), "pair": (0, 1), "tile": (0, 1)}
    at = held(array("t", (4, 8), scope="warp"), LANES, (half * 2 + x // 2, tile * 4 + x % 2 * 2 + pair), ranges)
    assert str(at.lane) == "threadIdx.x"
    for n in range(8):
        env = {half: n // 4, pair: n // 2 % 2, tile: n % 2, x: 0}
        assert evaluate(at.register, env) == 4 * env[tile] + 2 * env[half] + env[pair]


@pytest.mark.parametrize(
    ("lanes", "axes"), [(4, ("x",)), (32, ("x", "y")), (64, ("x", "y", "z")), (8, None), (128, None)]
)
def test_lanes_are_the_first_axes_of_the_block(lanes: int, axes: tuple[str, ...] | None) -> None:
    assert lane_axes(BLOCK, lanes) == (axes and tuple(f"threadIdx.{axis}" for axis in axes))


def test_the_number_of_a_lane_counts_threads_along_x_first() -> None:
    assert str(lane_of(BLOCK, MachineCode("f", (), Seq(()), lanes=32))) == "4 * threadIdx.y + threadIdx.x"
    with pytest.raises(TargetError, match="f is run by 16 neighbouring threads together, and the block has 4 along"):
        lane_of(BLOCK, MachineCode("f", (), Seq(()), lanes=16))


def test_machine_code_says_how_lanes_hold_its_arrays() -> None:
    tile, memory = array("tile", (4, 4), scope="warp"), array("memory", (4, 4))
    params = (MachineParam(tile, (index(4), index(1)), LANES), MachineParam(memory, (index(4), index(1))))
    views = tuple(View(b, (index(0), index(0)), (0, 1), (1, 1)) for b in (tile, memory))
    assert fragments(CallMachine(MachineCode("f", params, Seq(()), lanes=4), views, Seq(()))) == {"tile": LANES}
